//! The workbench command.
use clap::{Parser, Subcommand};
use ptarmigan_cli::{Failure, bench, inspect, record, replay};

/// Page-table memory, measured: records what real programs do to their address spaces and replays it. Without a
/// command, the shipped recording of a compile is replayed on all policies.
#[derive(Parser)]
#[command(name = "ptarmigan", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Record(record::Args),
    Inspect(inspect::Args),
    Replay(replay::Args),
    Bench(bench::BenchArgs),
}

fn main() -> std::process::ExitCode {
    let done = match Cli::parse().command {
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Bench(args)) => {
            args.run().map(|()| std::process::ExitCode::SUCCESS).map_err(Failure::new)
        }
        None => replay::default_run(),
    };
    done.unwrap_or_else(Failure::report)
}
