//! One boot of one contender.

use std::fs;
use std::path::{Path, PathBuf};

use kernel_boot::guest::{Boot as Machine, BootLimits};

use crate::cases::{Case, CaseCounts, MeasuredProgram};
use crate::contender::{Contender, TargetArch};
use crate::{last_line, profile};

/// Bounds of a boot: Linux takes 25 seconds on a quiet machine, several times that while it is
/// counted.
const LIMITS: BootLimits = BootLimits { seconds: 1200, bytes: 64 << 10 };
/// The address of memory on QEMU's board `virt`.
const MEMORY: u64 = 0x4000_0000;

/// Machines. PCs have the same processor for both contenders, with NX, as our entries carry it.
const PC32: &str = "-cpu qemu32,+pae,+pse36,+nx -M pc -nic none -device isa-debug-exit,iobase=0xf4,iosize=4";
const PC64: &str = "-cpu qemu64 -M pc -nic none -device isa-debug-exit,iobase=0xf4,iosize=4";
const VIRT: &str = "-cpu cortex-a72 -M virt -nic none -semihosting";
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
pub struct GuestBoot<'a> {
    pub contender: &'a Contender,
    /// The program with cases that process 1 runs.
    pub program: Option<&'static MeasuredProgram>,
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
pub struct BootResults {
    /// For each case, the instructions of an operation in each round.
    pub values: Vec<Vec<u64>>,
    /// For each case, the plugin's counts.
    pub counts: Option<Vec<CaseCounts>>,
    /// How often each instruction of the kernel was executed in the case that is profiled.
    pub profile: Option<Vec<(u64, u64)>>,
    /// Lines of our kernel at its end.
    pub said: Vec<String>,
}

impl GuestBoot<'_> {
    /// Boots, and waits for the end. Returns all that the guest printed, and how QEMU ended.
    ///
    /// # Errors
    ///
    /// QEMU cannot be started.
    pub fn run(&self) -> Result<(String, String), String> {
        let GuestBoot { contender, files, words, cpus, counter, profiled, groups, .. } = self;
        let arch = contender.arch();
        let (qemu, _) = arch.qemu();
        let (machine, kernel_start, console) = match arch {
            TargetArch::I386 => (PC32, "0xc0000000", "ttyS0"),
            TargetArch::X86_64 => (PC64, "0x800000000000", "ttyS0"),
            TargetArch::Aarch64 => (VIRT, "0xffff000000000000", "ttyAMA0"),
        };
        let linux = if contender.is_newer() { &files.newer } else { &files.linux };
        let (image, common) = match (contender.is_linux(), linux) {
            (false, _) => (&files.image, String::new()),
            (true, Some(linux)) => (linux, format!("console={console} {LINUX} ")),
            (true, None) => return Err("Linux was not fetched".into()),
        };
        let mut more = Vec::new();
        if let Some((plugin, out)) = counter {
            // The output of an earlier boot does not count.
            let _ = fs::remove_file(out);
            let isa = if arch == TargetArch::Aarch64 { "aarch64" } else { "x86" };
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
            more = vec!["-plugin".to_owned(), plugin];
        }
        // CPUs take turns. Where instructions are counted, QEMU 7.2 leaves no turn to a CPU behind
        // one that waits and does not say so, as Linux's first does while it starts the others.
        let takes_turns = *cpus == 1 || !contender.is_linux();
        let boot = Machine {
            qemu: qemu.to_owned(),
            machine: machine.to_owned(),
            accelerator: "tcg,thread=single".to_owned(),
            image: image.clone(),
            cpus: cpus.to_string(),
            nodes: 1,
            memory: "2G".to_owned(),
            words: format!("{common}{}", contender.append),
            arguments: format!(" {words}"),
            archive: Some(files.archive.clone()),
            base: (arch == TargetArch::Aarch64 && !contender.is_linux()).then_some(MEMORY),
            icount: takes_turns.then(|| "shift=0".to_owned()),
            more,
        };
        let ended = boot.run(&LIMITS, false)?;
        let how = ended.stopped.unwrap_or_else(|| format!("{qemu} ended with status {}", ended.status));
        Ok((ended.log, how))
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
    pub fn boot(&self) -> Result<BootResults, String> {
        let GuestBoot { program, profiled, .. } = self;
        let cases = program.map_or(&[][..], |program| &program.cases);
        let (text, ended) = self.run()?;
        let values = results(&text, cases)
            .ok_or_else(|| format!("{ended} and no result; the guest's last line: {}", last_line(&text)))?;
        let (counts, profile) = match self.counted()? {
            Some(text) => {
                let counts =
                    CaseCounts::parse(&text, cases).ok_or("QEMU's plugin has not counted every case")?;
                (Some(counts), profiled.map(|_| profile::parse(&text)))
            }
            None => (None, None),
        };
        let said = text.lines().filter_map(|line| line.trim().strip_prefix("kernel: "));
        Ok(BootResults { values, counts, profile, said: said.map(str::to_owned).collect() })
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
