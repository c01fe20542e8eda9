//! One boot of one contender.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cases::{CASES, Counts};
use crate::contender::{Arch, Contender};
use crate::{last_line, profile};

/// The most that a guest may print.
const OUTPUT: u64 = 64 << 10;
/// Seconds that a boot may take: Linux takes 25 on a quiet machine, several times that while it is
/// counted.
const SECONDS: &str = "1200";

/// The files that boots of one architecture share.
pub struct Files {
    /// Our image.
    pub image: PathBuf,
    /// The initial file system.
    pub archive: PathBuf,
    /// Linux's image.
    pub linux: Option<PathBuf>,
}

/// A boot that is to be made.
pub struct Guest<'a> {
    pub contender: &'a Contender,
    pub files: &'a Files,
    /// QEMU's plugin, and where it writes.
    pub counter: Option<(&'a Path, &'a Path)>,
    /// The case whose instructions the plugin counts one by one.
    pub profiled: Option<usize>,
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
        let Guest { contender, files, counter, profiled } = self;
        // The same processor for both; NX, as our entries carry it.
        let (qemu, cpu, kernel_start) = match contender.arch() {
            Arch::I386 => ("qemu-system-i386", "qemu32,+pae,+pse36,+nx", "0xc0000000"),
            Arch::X86_64 => ("qemu-system-x86_64", "qemu64", "0x800000000000"),
        };
        let mut command = Command::new("timeout");
        command.args([SECONDS, qemu, "-accel", "tcg", "-icount", "shift=0", "-cpu", cpu, "-M", "pc"]);
        command.args(["-m", "2G", "-smp", "1", "-nographic", "-no-reboot", "-nic", "none"]);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        let (image, common) = match (contender.is_linux(), &files.linux) {
            (false, _) => (&files.image, ""),
            (true, Some(linux)) => (
                linux,
                "console=ttyS0 quiet panic=-1 mitigations=off transparent_hugepage=never random.trust_cpu=1",
            ),
            (true, None) => return Err("Linux was not fetched".into()),
        };
        command.arg("-kernel").arg(image).arg("-initrd").arg(&files.archive);
        command.arg("-append").arg(format!("{common} {}", contender.append));
        if let Some((plugin, out)) = counter {
            // The output of an earlier boot does not count.
            let _ = fs::remove_file(out);
            let mut plugin = format!("{},kernel={kernel_start},out={}", plugin.display(), out.display());
            if let Some(case) = profiled {
                plugin.push_str(&format!(",profile={case}"));
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

    /// Boots, and reads the results.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and if the guest's output is incomplete.
    pub fn boot(&self) -> Result<Boot, String> {
        let Guest { counter, profiled, .. } = self;
        let (text, ended) = self.run()?;
        let values = results(&text)
            .ok_or_else(|| format!("{ended} and no result; the guest's last line: {}", last_line(&text)))?;
        let (counts, profile) = match counter {
            Some((_, out)) => {
                let text = fs::read_to_string(out)
                    .map_err(|e| format!("QEMU's plugin has written no {}: {e}", out.display()))?;
                let counts = Counts::parse(&text).ok_or("QEMU's plugin has not counted every case")?;
                (Some(counts), profiled.map(|_| profile::parse(&text)))
            }
            None => (None, None),
        };
        let said = text.lines().filter_map(|line| line.trim().strip_prefix("kernel: "));
        Ok(Boot { values, counts, profile, said: said.map(str::to_owned).collect() })
    }
}

/// Reads the program's results: for each case, the value of each round. `None` if one is missing.
fn results(text: &str) -> Option<Vec<Vec<u64>>> {
    let mut values = vec![Vec::new(); CASES.len()];
    for line in text.lines().filter_map(|line| line.split_once("RESULT ").map(|(_, rest)| rest)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (case, sums) in CASES.iter().zip(&mut values) {
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
        let line = CASES.iter().map(|case| format!(" {} 7", case.name)).collect::<String>();
        let values = results(&format!("boot\nRESULT{line}\nRESULT{line}\n")).expect("two rounds");
        assert!(values.iter().all(|all| all == &[7, 7]));
        assert_eq!(results("RESULT fault-new-table 3"), None);
        assert_eq!(results(""), None);
    }
}
