//! `cargo xtask boot`: builds the kernel images and boots them under QEMU.
//!
//! `kernels/boards.toml` has the boards, `kernels/checks.toml` the boots of the checks, with the
//! lines that have to come. `kernels/boot` builds images and runs QEMU.
use crate::outcome;
use clap::{Args, Subcommand};
use kernel_boot::board::{Board, Boards};
use kernel_boot::debian::Debian;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

mod checks;
mod compare;
mod image;
mod lint;
mod linux;
mod objdump;
mod panics;
mod record;
mod stack;
mod verdicts;

/// Arguments of `boot`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BootArgs {
    /// Boots this board of `kernels/boards.toml`; without it, all.
    #[arg(long, value_name = "BOARD", default_value = ALL)]
    arch: String,
    /// CPUs of kernels that have several, 2 to 8 (2).
    #[arg(long, value_name = "CPUS", value_parser = clap::value_parser!(u8).range(2..=8))]
    smp: Option<u8>,
    #[command(subcommand)]
    task: Option<BootTask>,
}

/// The name of all boards.
const ALL: &str = "all";

#[derive(Subcommand)]
enum BootTask {
    /// Builds the image of a board and boots it (`kernels/run`).
    Image(image::ImageArgs),
    Linux(Box<linux::LinuxArgs>),
    /// Counts, in a linked image, the calls to functions that panic, and prints the sizes of code
    /// and data.
    Panics {
        /// The image.
        image: PathBuf,
        /// Fails if there are more calls.
        #[arg(long, value_name = "N")]
        most: Option<u64>,
    },
    /// Sums, in a linked riscv64 or aarch64 image, the stack frames of the library's calls; fails
    /// if a bound is exceeded.
    Stack {
        /// The image.
        image: PathBuf,
    },
    Record(record::RecordArgs),
    /// Compares the kernel for Linux programs with Debian's Linux (`kernels/compare`).
    Compare {
        /// Arguments of the comparison, as `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Fetches packages of Debian's into a cache outside of the repository, unpacks them there, and
    /// prints a directory.
    Debian {
        /// A root file system of the packages and all that they depend on, for `boot linux --root`.
        #[arg(long, conflicts_with = "backports")]
        root: bool,
        /// Looks at the release's backports, too.
        #[arg(long)]
        backports: bool,
        /// i386, amd64 or arm64.
        arch: String,
        /// The package, a regular expression of which the newest that fits is taken; with --root
        /// the names of packages.
        #[arg(required = true)]
        names: Vec<String>,
    },
    Verdicts(verdicts::VerdictsArgs),
    /// Lints each image for its own target.
    Lint,
}

/// Runs `cargo xtask boot`.
pub fn run(args: &BootArgs) -> ExitCode {
    let done = |result: Result<(), String>| result.map(|()| ExitCode::SUCCESS);
    let result = match &args.task {
        None => each(args),
        Some(BootTask::Image(args)) => done(image::run(args)),
        Some(BootTask::Linux(args)) => linux::run(args),
        Some(BootTask::Panics { image, most }) => done(panics::count(image, *most)),
        Some(BootTask::Stack { image }) => done(stack::check(image)),
        Some(BootTask::Record(args)) => done(record::run(args)),
        Some(BootTask::Compare { words }) => compare::run(words),
        Some(BootTask::Debian { root, backports, arch, names }) => {
            done(debian(arch, names, *root, *backports).map(|place| println!("{}", place.display())))
        }
        Some(BootTask::Verdicts(args)) => verdicts::run(args),
        Some(BootTask::Lint) => done(lint::run()),
    };
    result.unwrap_or_else(|why| outcome::exit("boot", Err(why)))
}

fn debian(arch: &str, names: &[String], root: bool, backports: bool) -> Result<PathBuf, String> {
    let debian = Debian::open(arch, backports)?;
    match names {
        _ if root => debian.root(names),
        [name] => debian.package(name),
        _ => Err("one package, or --root with several".into()),
    }
}

/// Boots all boards that are chosen, whether others fail or not.
fn each(args: &BootArgs) -> Result<ExitCode, String> {
    let boards = Boards::read()?;
    let chosen: Vec<&Board> =
        if args.arch == ALL { boards.board.iter().collect() } else { vec![boards.named(&args.arch)?] };
    if let [board] = chosen[..] {
        image::cpus_of(&boards, board, args.smp)?;
    }
    println!("{:<14}{:>5}   {:<4}{:>9}", "kernel", "CPUs", "", "seconds");
    let mut failed = 0;
    for board in chosen {
        let start = Instant::now();
        let cpus = image::most_cpus(board, args.smp);
        let booted = boot(board, cpus);
        println!("{}", row(board, cpus, booted.is_ok(), start.elapsed()));
        if let Err(why) = booted {
            failed += 1;
            why.lines().for_each(|line| println!("    {line}"));
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds and boots a kernel. The last lines that it has printed are in the error.
fn boot(board: &Board, cpus: u8) -> Result<(), String> {
    let ended = if board.linux.is_some() {
        linux::parallel(board, cpus)?
    } else {
        image::boot(board, "release", cpus, "")?.1
    };
    checks::passed(board, &ended).map_err(|why| format!("{}\n{why}", ended.last_lines(12)))
}

fn row(board: &Board, cpus: u8, passed: bool, time: Duration) -> String {
    let result = if passed { "PASS" } else { "FAIL" };
    format!("{:<14}{cpus:>5}   {result}{:>9.1}", board.name, time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;
    use std::path::Path;

    #[test]
    fn a_row_has_the_board_its_processors_and_the_time() {
        let boards = Boards::read().unwrap();
        let row = row(boards.named("ppc32").unwrap(), 1, false, Duration::from_millis(2340));
        assert_eq!(row, "ppc32             1   FAIL      2.3");
    }

    #[test]
    fn the_jobs_know_all_targets_and_packages() {
        let jobs =
            repository::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/jobs.toml")).unwrap();
        for board in Boards::read().unwrap().board {
            // An image that needs a nightly toolchain is a nightly job.
            if board.core_from_source {
                continue;
            }
            assert!(jobs.contains(&format!(" {}", board.target)), "{}", board.target);
            for package in board.needs[0].1.split(' ') {
                assert!(
                    jobs.lines().any(|line| line.starts_with("debian") && line.contains(package)),
                    "{package}"
                );
            }
        }
    }
}
