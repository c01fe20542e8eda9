//! Random programs of the whole mmap family, with fork and threads, recorded with Linux's own count
//! of tables after every call, and replayed. And commands of lists, with the counts at their ends.
mod check;
mod guest;
mod list;
mod program;
mod shrink;
mod suite;

use check::Checker;
use clap::Args;
pub use guest::guest;
use program::{Allowed, C, Random};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
pub use suite::{SuiteArgs, run as suite};

/// Options of `cargo xtask fidelity`.
#[derive(Args)]
pub struct FidelityArgs {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of programs, each of its own seed.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Begins no program after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Steps of a program.
    #[arg(long, default_value_t = 200)]
    calls: usize,
    /// CPUs of the replay.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Programs do not fork.
    #[arg(long)]
    no_forks: bool,
    /// Programs start no threads.
    #[arg(long)]
    no_threads: bool,
    /// Threads at the end of a program that do not wait for each other, each on its own memory; 0
    /// for none.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=8))]
    at_once: u8,
    /// Steps of each of them.
    #[arg(long, default_value_t = 20)]
    calls_at_once: usize,
    /// Does not make programs smaller that differ.
    #[arg(long)]
    no_shrink: bool,
    /// The part of the samples that must be equal, in percent.
    #[arg(long, default_value_t = 100.0)]
    least: f64,
    /// Keeps programs that differ, and their traces, in this directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The command `ptarmigan`; without it, one is built.
    #[arg(long, value_name = "FILE")]
    ptarmigan: Option<PathBuf>,
}

/// Runs the comparison. The exit status is 0 if enough samples are equal, the sanitizer has no
/// finding, and without threads at once no table is known from stops only; 2 if this host cannot
/// record.
pub fn run(args: &FidelityArgs) -> ExitCode {
    let checker = match Checker::new(args.ptarmigan.as_deref()).and_then(|c| c.probe().map(|()| c)) {
        Ok(checker) => checker,
        Err(why) => {
            eprintln!("fidelity: nothing can be compared here: {why}");
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    let (mut checked, mut equal, mut findings, mut unexplained, mut programs) = (0, 0, 0, 0, 0);
    let mut shown = 0;
    for seed in args.seed..args.seed + args.seeds {
        if args.seconds.is_some_and(|most| start.elapsed() > Duration::from_secs(most)) {
            break;
        }
        let allowed = Allowed { forks: !args.no_forks, threads: !args.no_threads };
        let mut steps = Random::new(seed).program(args.calls, allowed);
        if allowed.threads && args.at_once > 0 {
            // Of a seed of its own: the steps before stay as they are.
            let crowd = Random::new(!seed).crowd(args.at_once.into(), args.calls_at_once, allowed);
            steps.push(crowd);
        }
        let found = match checker.check(&steps, args.cpus) {
            Ok(found) => found,
            Err(why) => {
                eprintln!("fidelity: seed {seed}: {why}");
                return ExitCode::FAILURE;
            }
        };
        programs += 1;
        checked += found.checked;
        equal += found.equal;
        findings += found.findings;
        unexplained += found.unexplained;
        if found.is_right() {
            continue;
        }
        println!(
            "seed {seed}: {} of {} equal, {} tables unexplained, {} findings, {} calls refused, {} calls",
            found.equal,
            found.checked,
            found.unexplained,
            found.findings,
            found.odd,
            program::count(&steps)
        );
        if let Some(dir) = &args.keep
            && let Err(why) = checker.keep(dir, &seed.to_string())
        {
            eprintln!("fidelity: {why}");
            return ExitCode::FAILURE;
        }
        if args.no_shrink || shown >= 5 {
            continue;
        }
        shown += 1;
        let small = shrink::shrink(&steps, 150, &mut |steps| {
            checker.check(steps, args.cpus).is_ok_and(|f| !f.is_right())
        });
        let first = checker.check(&small, args.cpus).map(|f| f.first).unwrap_or_default();
        println!("{}/* {first} */", C(&small));
    }
    let part = if checked == 0 { 0.0 } else { equal as f64 * 100.0 / checked as f64 };
    println!("{programs} programs: {equal} of {checked} samples equal ({part:.3} %)");
    println!("{unexplained} tables known from pages found at stops only; {findings} findings");
    // The order of threads at once is not always known, so that stops tell of tables first.
    let explained = unexplained == 0 || (args.at_once > 0 && !args.no_threads);
    if part >= args.least && findings == 0 && explained { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
