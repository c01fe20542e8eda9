//! `cargo xtask boot record`: records what an image does to its page tables and TLBs.
use super::objdump::{hex, objdump};
use clap::Args;
use kernel_boot::board::Boards;
use kernel_boot::guest::{Boot, BootLimits};
use kernel_boot::image::{Image, build_for_host, target_directory};
use kernel_boot::{Scratch, here};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Records what a kernel image does to its page tables and TLBs, as a log for `ptsan replay`.
///
/// The log is written by a plugin of QEMU (kernels/tools/recorder), to which the image tells of its
/// tables (kernels/tools/mailbox) because of the word `announce` on its command line. Other images
/// have no code for that: it takes the feature `record`. The exit status is 0 if there is a
/// complete log, whatever the image found.
#[derive(Args)]
pub struct RecordArgs {
    /// The board: riscv64 or x86_64.
    #[arg(required_unless_present = "check")]
    board: Option<String>,
    /// The log.
    #[arg(short, long = "output", value_name = "LOG", required_unless_present = "check")]
    out: Option<PathBuf>,
    /// The image leaves PART out, as with `boot image riscv64 --negative`; x86_64 knows `flush`.
    #[arg(long, value_name = "PART")]
    without: Vec<String>,
    /// Records accesses of programs, too: finds old translations that are used.
    #[arg(long)]
    accesses: bool,
    /// Copies the image, for `ptsan replay --symbols`.
    #[arg(long, value_name = "PATH")]
    image: Option<PathBuf>,
    /// Records all boards, with and without flushes, and replays the logs: no finding in the image
    /// as it is, and some where flushes are left out.
    #[arg(long, conflicts_with_all = ["board", "out", "without", "accesses", "image"])]
    check: bool,
}

/// The record that ends a log, without its check.
const END: [u8; 3] = [0x13, 0x01, 0x00];

/// Runs `cargo xtask boot record`.
///
/// # Errors
///
/// There is no complete log; or a replay does not find what it should.
pub fn run(args: &RecordArgs) -> Result<(), String> {
    let boards = Boards::read()?;
    if let (Some(board), Some(out)) = (&args.board, &args.out) {
        let recording = Recording { boards: &boards, board, out, accesses: args.accesses };
        let (image, said) = recording.record(&args.without)?;
        print!("{said}");
        let Some(copy) = &args.image else { return Ok(()) };
        return fs::copy(image, copy).map(drop).map_err(|e| format!("{}: {e}", copy.display()));
    }
    let ptsan = ptsan()?;
    let recorded = boards.board.iter().filter(|board| board.recorded.is_some());
    recorded.map(|board| &*board.name).try_for_each(|board| check(&boards, board, &ptsan))
}

/// A log that is to be made.
struct Recording<'a> {
    boards: &'a Boards,
    board: &'a str,
    out: &'a Path,
    accesses: bool,
}

impl Recording<'_> {
    /// Records an image without parts of it; returns the image, and the lines that it has printed.
    fn record(&self, without: &[String]) -> Result<(PathBuf, String), String> {
        let board = self.boards.named(self.board)?;
        let recorded = board.recorded.as_ref();
        let recorded = recorded.ok_or_else(|| format!("the kernel for {} is not recorded", board.name))?;
        let built = target_directory();
        let image = Image {
            profile: "recorded",
            features: &["record"],
            directory: built.join("images"),
            ..Image::of(board)
        }
        .build()?;
        let plugin = build_for_host(here(), &built.join("plugins"), &["kernel-recorder"])?
            .join("libkernel_recorder.so");
        let mailbox = mailbox(&objdump(&image, &["--syms"])?)
            .ok_or_else(|| format!("{} has no mailbox", image.display()))?;

        // The guest's memory is a file, which QEMU and the plugin share.
        let shared = Path::new("/dev/shm");
        let work = if shared.is_dir() { Scratch::below(shared)? } else { Scratch::new()? };
        let ram = work.file("ram");
        // An older log would be taken for this one.
        let _ = fs::remove_file(self.out);
        let cpus = board.cpus.min(2);
        let accesses = if self.accesses { ",accesses=on" } else { "" };
        let object =
            format!("memory-backend-file,id=ram,size={},mem-path={},share=on", board.memory, ram.display());
        let plugin = format!(
            "{},arch={},cpus={cpus},mailbox={mailbox:#x},ram={},base={:#x},out={}{accesses}",
            plugin.display(),
            board.name,
            ram.display(),
            recorded.base,
            self.out.display()
        );
        let mut more: Vec<String> =
            ["-object", &object, "-machine", "memory-backend=ram", "-plugin", &plugin]
                .map(str::to_owned)
                .into();
        more.extend(recorded.machine.split_whitespace().map(str::to_owned));
        let mut words = vec!["announce".to_owned()];
        words.extend(without.iter().map(|part| format!("without={part}")));
        let boot = Boot {
            accelerator: "tcg,thread=single".into(),
            cpus: cpus.to_string(),
            words: words.join(" "),
            more,
            ..Boot::new(board, &image)
        };
        let ended = boot.run(&BootLimits::from_environment(300, 20_000)?, false)?;
        let reason = ended.stopped.map_or_else(String::new, |reason| format!(": {reason}"));
        let log = fs::read(self.out).unwrap_or_default();
        if log.is_empty() {
            return Err(format!("{}there is no log{reason}", ended.log));
        }
        let end = log.len().checked_sub(5).and_then(|at| log.get(at..at + 3));
        if end != Some(&END[..]) {
            let log = ended.log;
            return Err(format!(
                "{log}the log is not complete: QEMU was stopped, or the plugin says why{reason}"
            ));
        }
        Ok((image, ended.log))
    }
}

/// Returns where the mailbox is in memory. Images are linked into a direct map that begins at a
/// multiple of 4 GiB.
fn mailbox(symbols: &str) -> Option<u64> {
    let line = symbols.lines().find(|line| line.ends_with(" ptsan_mailbox"))?;
    Some(hex(line.split(' ').next()?)? & 0xffff_ffff)
}

/// Builds `ptsan`, and returns its path.
fn ptsan() -> Result<PathBuf, String> {
    let root = here().join("..");
    let status =
        Command::new("cargo").args(["build", "--quiet", "-p", "ptsan-cli"]).current_dir(&root).status();
    let status = status.map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("ptsan-cli is not built: cargo ended with {status}"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("debug/ptsan"))
}

/// Replays a log; its exit status has to be the one that is expected. Returns the report.
fn replay(ptsan: &Path, log: &Path, image: &Path, options: &[&str], expected: i32) -> Result<String, String> {
    let mut command = Command::new(ptsan);
    command.arg("replay").arg(log).arg("--symbols").arg(image).args(options);
    let output = command.output().map_err(|e| format!("{}: {e}", ptsan.display()))?;
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(expected) {
        return Ok(report);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{report}{error}ptsan replay ended with {}, not {expected}", output.status))
}

/// Records a board with and without flushes, and replays the logs.
fn check(boards: &Boards, board: &str, ptsan: &Path) -> Result<(), String> {
    let work = Scratch::new()?;
    let log = work.file("log");
    let recording = Recording { boards, board, out: &log, accesses: true };
    let (image, said) = recording.record(&[])?;
    if !said.lines().any(|line| line == "PASS") {
        return Err(format!("{said}{board} did not print PASS"));
    }
    let mut report = String::new();
    for seed in ["1", "2", "3"] {
        report = replay(ptsan, &log, &image, &["--seed", seed], 0)?;
    }
    println!("{board}: {}; no findings", report.lines().next().unwrap_or(""));
    recording.record(&["flush".into()])?;
    let report = replay(ptsan, &log, &image, &[], 1)?;
    // Which of them comes first depends on the contents of QEMU's own TLB.
    if !report.contains("free-before-flush:") && !report.contains("stale-use:") {
        return Err(format!("{report}{board} without flush: not found"));
    }
    let names = super::checks::pattern(r"^ +(in )?[a-z_<].*::")?;
    if !report.lines().any(|line| names.is_match(line)) {
        return Err(format!("{report}{board} without flush: no function is named"));
    }
    let found = report.lines().filter(|line| line.ends_with("findings") || line.ends_with("finding"));
    println!("{board} without flush: {}", found.collect::<Vec<_>>().join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mailbox_is_below_4_gib() {
        let symbols = "ffffffff80123000 g     O .bss\t0000000000000040 ptsan_mailbox\n";
        assert_eq!(mailbox(symbols), Some(0x8012_3000));
        assert_eq!(mailbox("0 g F .text\t0 main\n"), None);
    }

    #[test]
    fn only_boards_that_are_recorded_are_booted() {
        let boards = Boards::read().unwrap();
        let record = |board| {
            Recording { boards: &boards, board, out: Path::new("/none"), accesses: false }
                .record(&[])
                .unwrap_err()
        };
        assert_eq!(record("ppc32"), "the kernel for ppc32 is not recorded");
        assert!(record("vax").contains("no kernel for 'vax'"));
    }
}
