//! One boot of one contender.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cases::{Case, Counts, Program};
use crate::contender::{Arch, Contender};
use crate::{last_line, profile};

/// The most that a guest may print.
const OUTPUT: u64 = 64 << 10;
/// Seconds that a boot may take: Linux takes 25 on a quiet machine, several times that while it is
/// counted.
const SECONDS: &str = "1200";

/// Machines. PCs have the same processor for both contenders, with NX, as our entries carry it.
const PC32: &[&str] =
    &["-cpu", "qemu32,+pae,+pse36,+nx", "-M", "pc", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"];
const PC64: &[&str] = &["-cpu", "qemu64", "-M", "pc", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"];
const VIRT: &[&str] = &["-cpu", "cortex-a72", "-M", "virt", "-semihosting"];
/// Linux's command line.
const LINUX: &str = "quiet panic=-1 mitigations=off transparent_hugepage=never random.trust_cpu=1";

/// The files that boots of one architecture share.
pub struct Files {
    /// Our image.
    pub image: PathBuf,
    /// The initial file system.
    pub archive: PathBuf,
    /// Linux's image.
    pub linux: Option<PathBuf>,
    /// The image of a later Linux.
    pub newer: Option<PathBuf>,
    /// Lines about files that could not be had.
    pub missing: Vec<String>,
}

/// A boot that is to be made.
pub struct Guest<'a> {
    pub contender: &'a Contender,
    /// The program with cases that process 1 runs.
    pub program: Option<&'static Program>,
    pub files: &'a Files,
    /// More words of the command line.
    pub words: &'a str,
    /// CPUs of the machine.
    pub cpus: u8,
    /// QEMU's plugin, and where it writes.
    pub counter: Option<(&'a Path, &'a Path)>,
    /// The case whose instructions the plugin counts one by one.
    pub profiled: Option<usize>,
    /// The file of groups, by which the plugin counts our kernel's instructions.
    pub groups: Option<&'a Path>,
    /// The plugin models caches.
    pub caches: bool,
}

/// The results of a boot.
pub struct Boot {
    /// For each case, the instructions of an operation in each round.
    pub values: Vec<Vec<u64>>,
    /// For each case, the plugin's counts.
    pub counts: Option<Vec<Counts>>,
    /// How often each instruction of the kernel was executed in the case that is profiled.
    pub profile: Option<Vec<(u64, u64)>>,
    /// Lines of our kernel at its end.
    pub said: Vec<String>,
}

impl Guest<'_> {
    /// Boots, and waits for the end. Returns all that the guest printed, and how QEMU ended.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started.
    pub fn run(&self) -> Result<(String, String), String> {
        let Guest { contender, files, words, cpus, counter, profiled, groups, .. } = self;
        let arch = contender.arch();
        let (qemu, _) = arch.qemu();
        let (machine, kernel_start, console) = match arch {
            Arch::I386 => (PC32, "0xc0000000", "ttyS0"),
            Arch::X86_64 => (PC64, "0x800000000000", "ttyS0"),
            Arch::Aarch64 => (VIRT, "0xffff000000000000", "ttyAMA0"),
        };
        let mut command = Command::new("timeout");
        command.args([SECONDS, qemu, "-accel", "tcg,thread=single"]).args(machine);
        // CPUs take turns. Where instructions are counted, QEMU 7.2 leaves no turn to a CPU behind
        // one that waits and does not say so, as Linux's first does while it starts the others.
        if *cpus == 1 || !contender.is_linux() {
            command.args(["-icount", "shift=0"]);
        }
        command.args(["-m", "2G", "-smp", &cpus.to_string()]);
        command.args(["-nographic", "-no-reboot", "-nic", "none"]);
        let linux = if contender.is_newer() { &files.newer } else { &files.linux };
        let (image, common) = match (contender.is_linux(), linux) {
            (false, _) => (&files.image, String::new()),
            (true, Some(linux)) => (linux, format!("console={console} {LINUX}")),
            (true, None) => return Err("Linux was not fetched".into()),
        };
        let place = if arch == Arch::Aarch64 && !contender.is_linux() {
            // QEMU's option is for images of Linux alone there.
            self.place_archive(&mut command)?
        } else {
            command.arg("-initrd").arg(&files.archive);
            String::new()
        };
        command.arg("-kernel").arg(image);
        command.arg("-append").arg(format!("{common} {}{place} {words}", contender.append));
        if let Some((plugin, out)) = counter {
            // The output of an earlier boot does not count.
            let _ = fs::remove_file(out);
            let isa = if arch == Arch::Aarch64 { "aarch64" } else { "x86" };
            let mut plugin =
                format!("{},isa={isa},kernel={kernel_start},out={}", plugin.display(), out.display());
            if let Some(case) = profiled {
                plugin.push_str(&format!(",profile={case}"));
            }
            if let Some(groups) = groups.filter(|_| !contender.is_linux()) {
                plugin.push_str(&format!(",groups={}", groups.display()));
            }
            if self.caches {
                plugin.push_str(",caches=on");
            }
            command.arg("-plugin").arg(plugin);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("timeout: {e}"))?;
        let mut printed = Vec::new();
        if let Some(out) = child.stdout.take() {
            out.take(OUTPUT).read_to_end(&mut printed).map_err(|e| format!("{qemu}: {e}"))?;
        }
        let status = child.wait().map_err(|e| format!("{qemu}: {e}"))?;
        let ended = format!("{qemu} ended with {status}");
        Ok((String::from_utf8_lossy(&printed).into_owned(), ended))
    }

    /// Has QEMU put the archive at the end of memory, below the 4 MiB that `kernels/linux` leaves
    /// free; returns the word of the command line that says so.
    fn place_archive(&self, command: &mut Command) -> Result<String, String> {
        const END: u64 = 0x4000_0000 + (2 << 30) - (4 << 20);
        let archive = &self.files.archive;
        let bytes = fs::metadata(archive).map_err(|e| format!("{}: {e}", archive.display()))?.len();
        let at = END - bytes.next_multiple_of(4096);
        command.arg("-device").arg(format!("loader,file={},addr={at},force-raw=on", archive.display()));
        Ok(format!(" initrd={at:#x},{bytes}"))
    }

    /// Returns the text that QEMU's plugin has written, if there is one.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn counted(&self) -> Result<Option<String>, String> {
        let read = |(_, out): (&Path, &Path)| {
            fs::read_to_string(out)
                .map_err(|e| format!("QEMU's plugin has written no {}: {e}", out.display()))
        };
        self.counter.map(read).transpose()
    }

    /// Boots, and reads the results.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and if the guest's output is incomplete.
    pub fn boot(&self) -> Result<Boot, String> {
        let Guest { program, profiled, .. } = self;
        let cases = program.map_or(&[][..], |program| &program.cases);
        let (text, ended) = self.run()?;
        let values = results(&text, cases)
            .ok_or_else(|| format!("{ended} and no result; the guest's last line: {}", last_line(&text)))?;
        let (counts, profile) = match self.counted()? {
            Some(text) => {
                let counts = Counts::parse(&text, cases).ok_or("QEMU's plugin has not counted every case")?;
                (Some(counts), profiled.map(|_| profile::parse(&text)))
            }
            None => (None, None),
        };
        let said = text.lines().filter_map(|line| line.trim().strip_prefix("kernel: "));
        Ok(Boot { values, counts, profile, said: said.map(str::to_owned).collect() })
    }
}

/// Reads the program's results: for each case, the value of each round. `None` if one is missing.
fn results(text: &str, cases: &[Case]) -> Option<Vec<Vec<u64>>> {
    let mut values = vec![Vec::new(); cases.len()];
    for line in text.lines().filter_map(|line| line.split_once("RESULT ").map(|(_, rest)| rest)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (case, sums) in cases.iter().zip(&mut values) {
            let at = words.iter().position(|word| *word == case.name)?;
            sums.push(words.get(at + 1)?.parse().ok()?);
        }
    }
    values.iter().all(|all| !all.is_empty()).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_read_and_a_line_that_is_cut_is_refused() {
        let cases = &crate::cases::FAULTS.cases[..];
        let line = cases.iter().map(|case| format!(" {} 7", case.name)).collect::<String>();
        let values = results(&format!("boot\nRESULT{line}\nRESULT{line}\n"), cases).expect("two rounds");
        assert!(values.iter().all(|all| all == &[7, 7]));
        assert_eq!(results("RESULT fault-new-table 3", cases), None);
        assert_eq!(results("", cases), None);
    }
}
