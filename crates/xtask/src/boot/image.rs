//! `cargo xtask boot image`: builds an image and boots it.
use super::checks::{self, Check, Ending, Group, passed};
use super::{linux, panics, stack};
use clap::Args;
use kernel_boot::board::{Board, Boards};
use kernel_boot::guest::{Boot, BootLimits, Ended};
use kernel_boot::image::Image;
use std::path::{Path, PathBuf};

/// Arguments of `image`.
#[derive(Args)]
pub struct ImageArgs {
    /// A board of `kernels/boards.toml`; or `minimal`, the smallest kernel, as a kernel would be
    /// shipped, with at most 40 calls to functions that panic.
    board: String,
    /// The board of the smallest kernel (all that it has).
    of: Option<String>,
    /// As a kernel would be shipped: counts calls to functions that panic, prints sizes, and checks
    /// the stack frames of mmap, munmap and mprotect.
    #[arg(long)]
    lean: bool,
    /// Not optimised: fails if a fault takes more stack than it may.
    #[arg(long, conflicts_with = "lean")]
    debug: bool,
    /// As a kernel would be shipped, once for each thing that it can leave out: each of these boots
    /// has to fail for its reason.
    #[arg(long, conflicts_with_all = ["lean", "debug"])]
    negative: bool,
    /// CPUs of kernels that have several, 2 to 8 (2).
    #[arg(long, value_name = "CPUS", value_parser = clap::value_parser!(u8).range(2..=8))]
    smp: Option<u8>,
}

/// The most calls to functions that panic in the smallest kernel.
const MINIMAL_PANICS: u64 = 40;
/// The name of the smallest kernel.
const MINIMAL: &str = "minimal";

/// Returns the CPUs that a board boots with; an error if it is to have several and has one.
///
/// # Errors
///
/// A text that names the boards with several.
pub fn cpus_of(boards: &Boards, board: &Board, smp: Option<u8>) -> Result<u8, String> {
    if smp.is_some() && board.cpus == 1 {
        let several = boards.board.iter().filter(|board| board.cpus > 1);
        let several: Vec<&str> = several.map(|board| &*board.name).collect();
        return Err(format!(
            "the kernel for {} has one CPU; --smp is for {}",
            board.name,
            several.join(", ")
        ));
    }
    Ok(most_cpus(board, smp))
}

/// Returns the CPUs that a board boots with: two, or as many as `smp` says, if it can have them.
pub fn most_cpus(board: &Board, smp: Option<u8>) -> u8 {
    smp.unwrap_or(2).min(board.cpus)
}

/// Runs `cargo xtask boot image`.
///
/// # Errors
///
/// The reason why an image is not built or does not pass; its output is printed before.
pub fn run(args: &ImageArgs) -> Result<(), String> {
    let boards = Boards::read()?;
    let has_mode = args.lean || args.debug || args.negative;
    if args.board == MINIMAL {
        if has_mode || args.smp.is_some() {
            return Err("the smallest kernel has one CPU and one image".into());
        }
        let has_minimal =
            |board: &&Board| board.has_minimal && args.of.as_ref().is_none_or(|of| *of == board.name);
        let all: Vec<&Board> = boards.board.iter().filter(has_minimal).collect();
        if all.is_empty() {
            return Err(format!("no smallest kernel for '{}'", args.of.as_deref().unwrap_or_default()));
        }
        return all.into_iter().try_for_each(minimal);
    }
    if let Some(of) = &args.of {
        return Err(format!("'{of}' is a board of `{MINIMAL}` alone"));
    }
    let board = boards.named(&args.board)?;
    let cpus = cpus_of(&boards, board, args.smp)?;
    if (args.lean || args.debug) && board.fault_stack.is_none() {
        return Err(format!("the kernel for {} has no image with --lean or --debug", board.name));
    }
    if args.negative {
        return negative(board, cpus);
    }
    let profile = if args.lean {
        "lean"
    } else if args.debug {
        "dev"
    } else {
        "release"
    };
    if board.linux.is_some() {
        return shown(board, &linux::parallel(board, cpus)?);
    }
    let (image, ended) = boot(board, profile, cpus, "")?;
    shown(board, &ended)?;
    if args.lean {
        panics::count(&image, None)?;
        stack::check(&image)?;
    }
    if args.debug { fault_stack(board, &ended) } else { Ok(()) }
}

/// Builds the image of a board, and boots it.
///
/// # Errors
///
/// A tool or the target is missing; the build fails; QEMU cannot be started.
pub fn boot(board: &Board, profile: &str, cpus: u8, words: &str) -> Result<(PathBuf, Ended), String> {
    let image = Image { profile, ..Image::of(board) }.build()?;
    let ended = boot_image(board, &image, cpus, words)?;
    Ok((image, ended))
}

fn boot_image(board: &Board, image: &Path, cpus: u8, words: &str) -> Result<Ended, String> {
    let boot = Boot { cpus: cpus.to_string(), words: words.to_owned(), ..Boot::new(board, image) };
    let mut ended = boot.run(&BootLimits::from_environment(60, 20_000)?, false)?;
    if board.has_firmware {
        ended.log = without_firmware(&ended.log);
    }
    Ok(ended)
}

/// Returns the lines that the kernel itself has printed.
fn without_firmware(log: &str) -> String {
    let begins = ["OpenSBI", "Platform", "Firmware", "Runtime", "Domain", "Boot HART"];
    let is_kernel = |line: &&str| {
        let is_drawing = line.starts_with(' ') && line.trim_start().starts_with(['_', '/', '|', '\\']);
        !line.trim().is_empty() && !is_drawing && !begins.iter().any(|begin| line.starts_with(begin))
    };
    log.lines().filter(is_kernel).map(|line| format!("{line}\n")).collect()
}

/// Prints the output of a boot, which has to have passed.
fn shown(board: &Board, ended: &Ended) -> Result<(), String> {
    print!("{}", ended.log);
    passed(board, ended)
}

fn minimal(board: &Board) -> Result<(), String> {
    let image = Image { package: "kernel-minimal", profile: "lean", ..Image::of(board) }.build()?;
    shown(board, &boot_image(board, &image, board.cpus.min(2), "")?)?;
    panics::count(&image, Some(MINIMAL_PANICS))
}

fn fault_stack(board: &Board, ended: &Ended) -> Result<(), String> {
    let most = board.fault_stack.unwrap_or(0);
    let line = ended.log.lines().find(|line| line.starts_with("stack: "));
    let taken = line.and_then(|line| line.split_once(" fault ")).map(|(_, rest)| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse::<u64>()
    });
    match taken {
        Some(Ok(bytes)) if bytes <= most => Ok(()),
        Some(Ok(bytes)) => Err(format!("a fault takes {bytes} bytes of stack, not {most} at most")),
        _ => Err(format!("a fault takes an unknown number of bytes of stack, not {most} at most")),
    }
}

/// Boots an image once as it is, and once for each thing that it can leave out.
fn negative(board: &Board, cpus: u8) -> Result<(), String> {
    let all = checks::read(Group::Image, &board.name)?;
    if all.is_empty() {
        return Err(format!("kernels/checks.toml has nothing that the kernel for {} leaves out", board.name));
    }
    let (mut image, ended) = boot(board, "lean", cpus, "")?;
    passed(board, &ended).inspect_err(|_| print!("{}", ended.log))?;
    let mut built = "lean";
    for check in &all {
        let profile = check.profile.as_deref().unwrap_or("lean");
        if profile != built {
            image = Image { profile, ..Image::of(board) }.build()?;
            built = profile;
        }
        let cpus = check.cpus.as_ref().and_then(|cpus| cpus.parse().ok()).unwrap_or(cpus);
        let ended = boot_image(board, &image, cpus, &check.words)?;
        if check.outcome == Ending::Pass {
            passed(board, &ended).inspect_err(|_| print!("{}", ended.log))?;
            continue;
        }
        let lines = Check::judge(check, &ended, board.pass, board.fail)?;
        lines.iter().for_each(|line| println!("{line}"));
    }
    println!("with everything: PASS");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_cpus_are_refused_where_there_is_one() {
        let boards = Boards::read().unwrap();
        let cpus = |name: &str, smp| cpus_of(&boards, boards.named(name).unwrap(), smp);
        assert_eq!(
            cpus("x86_64", Some(4)).unwrap_err(),
            "the kernel for x86_64 has one CPU; --smp is for aarch64, i686, linux-aarch64, linux-riscv64, \
             linux-x86_64, riscv64"
        );
        assert_eq!(
            [cpus("x86_64", None), cpus("riscv64", None), cpus("riscv64", Some(4))],
            [Ok(1), Ok(2), Ok(4)]
        );
    }

    #[test]
    fn lines_of_the_firmware_are_left_out() {
        let log = "OpenSBI v1.2\n   ____  \n  / __ \\\n\nBoot HART ID : 0\n sv39\nPASS\n";
        assert_eq!(without_firmware(log), " sv39\nPASS\n");
    }

    #[test]
    fn the_stack_of_a_fault_is_bounded() {
        let boards = Boards::read().unwrap();
        let check = |log: &str| {
            let ended = Ended { log: log.into(), ..Ended::default() };
            fault_stack(boards.named("riscv64").unwrap(), &ended)
        };
        assert_eq!(check("stack: set-up 9, fault 12288, fork 3\n"), Ok(()));
        assert!(check("stack: fault 12289").unwrap_err().contains("takes 12289 bytes"));
        assert!(check("").unwrap_err().contains("unknown"));
    }
}
