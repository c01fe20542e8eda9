//! The workbench command.
use clap::{Parser, Subcommand};
use ptarmigan_cli::{Failure, inspect, record, replay};

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
}

fn main() -> std::process::ExitCode {
    let done = match Cli::parse().command {
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Replay(args)) => replay::run(&args),
        None => replay::default_run(),
    };
    done.unwrap_or_else(Failure::report)
}
