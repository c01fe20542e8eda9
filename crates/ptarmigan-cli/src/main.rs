//! The workbench command.
use clap::Parser;
use ptarmigan_cli::{Failure, inspect, record};

/// Records what real programs do to their address spaces, and looks at it.
#[derive(Parser)]
#[command(name = "ptarmigan", version)]
enum Command {
    Record(record::Args),
    Inspect(inspect::Args),
}

fn main() -> std::process::ExitCode {
    let done = match Command::parse() {
        Command::Record(args) => record::run(&args),
        Command::Inspect(args) => inspect::run(&args),
    };
    done.unwrap_or_else(Failure::report)
}
