//! Reports the failure of a command: one line on standard error and an exit status.
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

/// The reason why a command failed.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// Creates a failure with exit status 1; `message` is one line without a full stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 1 }
    }

    /// Creates the failure for a closed output pipe: no message, and exit status 0.
    #[must_use]
    pub fn quiet() -> Self {
        Self { message: String::new(), status: 0 }
    }

    /// Replaces the exit status.
    #[must_use]
    pub fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Returns the message; it is empty for a failure without a printed line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the exit status.
    pub fn status(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

/// Adds to an error the operation that failed.
pub trait Context<T> {
    /// Turns an error into a [`Failure`] that reads `what: error`.
    ///
    /// # Errors
    /// If `self` is an error.
    fn context(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(format!("{what}: {e}")))
    }
}
