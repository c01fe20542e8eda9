//! `ptarmigan inspect`: what a trace holds.
use crate::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show what a trace holds.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The trace.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Inspects.
///
/// # Errors
/// If the file cannot be read or is not a whole trace.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let _ = args;
    Ok(ExitCode::SUCCESS)
}
