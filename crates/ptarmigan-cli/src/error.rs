//! How a command fails: one line on standard error and an exit status.
use std::fmt::Display;
use std::process::ExitCode;

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// A failure with exit status 1; `message` is one line without a full stop.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 1 }
    }

    /// The reader of our output has gone away: nothing to say, and nothing went wrong.
    #[must_use]
    pub fn quiet() -> Self {
        Self { message: String::new(), status: 0 }
    }

    /// The same with another exit status.
    #[must_use]
    pub fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Returns the message, empty for a failure that is not worth one.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the exit status.
    pub(crate) fn status(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

/// Says what was being done when something failed.
pub trait Context<T> {
    /// Turns an error into a [`Failure`] that reads `what: error`.
    ///
    /// # Errors
    /// If `self` is one.
    fn context(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|e| Failure::new(format!("{what}: {e}")))
    }
}
