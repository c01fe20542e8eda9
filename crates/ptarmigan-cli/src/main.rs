//! The command `ptarmigan`.
use clap::{Parser, Subcommand};
use ptarmigan_cli::{advise, bench, calibrate, inspect, print, record, replay, report};

/// A workbench for page-table memory: records what real programs do to their address spaces and
/// replays it on several allocation policies. Without a command, replays the shipped recording of a
/// compile on all policies.
#[derive(Parser)]
#[command(name = "ptarmigan", version, args_conflicts_with_subcommands = true, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    spread: replay::Spread,
}

#[derive(Subcommand)]
enum Command {
    Record(record::RecordArgs),
    Inspect(inspect::InspectArgs),
    Replay(Box<replay::ReplayArgs>),
    Advise(advise::AdviseArgs),
    Bench(bench::BenchArgs),
    Calibrate(calibrate::CalibrateArgs),
    Report(report::ReportArgs),
}

fn main() -> std::process::ExitCode {
    let Cli { command, spread } = Cli::parse();
    let done = match command {
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Advise(args)) => advise::run(&args),
        Some(Command::Bench(args)) => args.run().map(|()| std::process::ExitCode::SUCCESS),
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        None => replay::default_run(spread),
    };
    done.unwrap_or_else(|failure| print::failure(&failure))
}
