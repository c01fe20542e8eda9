//! What is being measured, on one line of the terminal that is overwritten; nothing if nobody watches.
use std::io::{IsTerminal, Write, stderr};

/// The line.
pub(super) struct Progress {
    shown: bool,
}

impl Progress {
    pub fn new() -> Self {
        Progress { shown: stderr().is_terminal() }
    }

    /// Replaces the line. Never called while a clock runs.
    pub fn say(&self, round: u32, rounds: u32, what: &str) {
        if self.shown {
            // If the terminal does not take it, nobody misses it.
            let _ = write!(stderr(), "\r\x1b[Kround {round}/{rounds}: {what}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
