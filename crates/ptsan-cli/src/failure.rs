//! Failures of the command: one line on standard error and exit status 2.
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// The exit status of a replay that found something.
pub const FINDINGS: u8 = 1;
/// The exit status of bad input and bad usage.
pub const BAD_INPUT: u8 = 2;

/// The reason why the command failed.
#[derive(Debug)]
pub struct Failure(Option<String>);

impl Failure {
    /// Creates a failure; `message` is one line without a full stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self(Some(message.into()))
    }

    /// Creates a failure of standard output. A reader that has gone is no failure.
    #[must_use]
    pub fn output(e: &io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe { Self(None) } else { Self::at("standard output", e) }
    }

    /// Creates a failure of the thing that `what` names.
    pub fn at(what: impl Display, e: impl Display) -> Self {
        Self(Some(format!("{what}: {e}")))
    }
}

/// Prints a failure and returns the exit status that goes with it.
#[must_use]
pub fn print(failure: &Failure) -> ExitCode {
    match &failure.0 {
        Some(message) => {
            eprintln!("ptsan: {message}");
            ExitCode::from(BAD_INPUT)
        }
        None => ExitCode::SUCCESS,
    }
}
