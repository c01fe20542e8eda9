//! The command `ptsan`.
use clap::{Parser, Subcommand};
use ptsan_cli::{dump, failure, replay};

/// Runs the page-table sanitizer over the log of a kernel.
#[derive(Parser)]
#[command(name = "ptsan", version, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Replay(replay::ReplayArgs),
    /// Looks into logs.
    Log {
        #[command(subcommand)]
        command: Log,
    },
}

#[derive(Subcommand)]
enum Log {
    Dump(dump::DumpArgs),
}

fn main() -> std::process::ExitCode {
    let done = match Cli::parse().command {
        Command::Replay(args) => replay::run(&args),
        Command::Log { command: Log::Dump(args) } => dump::run(&args),
    };
    done.unwrap_or_else(|failure| failure::print(&failure))
}
