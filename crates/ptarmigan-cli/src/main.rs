//! The workbench command.
use clap::Parser;
use ptarmigan_cli::bench;

/// Page-table memory at the workbench.
#[derive(Parser)]
#[command(name = "ptarmigan", version)]
enum Command {
    Bench(bench::BenchArgs),
}

fn main() -> std::process::ExitCode {
    let done = match Command::parse() {
        Command::Bench(args) => args.run(),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("ptarmigan: {message}");
            std::process::ExitCode::FAILURE
        }
    }
}
