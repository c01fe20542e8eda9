//! Shows on standard error which round is being measured, if that is a terminal.
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// The line of a benchmark. It changes only in [`say`](Self::say), so no other thread runs beside
/// the clock.
pub struct RoundLine {
    line: ProgressBar,
    rounds: u32,
}

impl RoundLine {
    /// Creates the line for `rounds` rounds.
    #[must_use]
    pub fn new(rounds: u32) -> Self {
        let line = match ProgressStyle::with_template("{msg}") {
            Ok(style) if std::io::stderr().is_terminal() => ProgressBar::new_spinner().with_style(style),
            _ => ProgressBar::hidden(),
        };
        RoundLine { line, rounds }
    }

    /// Shows the next measurement. The caller must not call this while a clock runs.
    pub fn say(&self, round: u32, what: &str) {
        self.line.set_message(format!("round {round}/{}: {what}", self.rounds));
    }
}

impl Drop for RoundLine {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
