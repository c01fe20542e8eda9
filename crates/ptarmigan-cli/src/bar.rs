//! Progress bars on standard error, shown only on a terminal.
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Returns a bar for `len` steps.
pub(crate) fn bar(len: u64, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(len).with_message(what.to_owned());
    styled(bar, "{msg} {wide_bar} {percent}% {eta}")
}

/// Returns a spinner for work of unknown length.
#[cfg_attr(not(all(target_os = "linux", target_arch = "x86_64")), allow(dead_code))]
pub(crate) fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {msg}");
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// Shows which round is being measured. The line changes only in [`say`](Self::say), so no other
/// thread runs beside the clock.
pub(crate) struct RoundLine {
    line: ProgressBar,
    rounds: u32,
}

impl RoundLine {
    /// Creates the line for `rounds` rounds.
    pub(crate) fn new(rounds: u32) -> Self {
        let line = if std::io::stderr().is_terminal() {
            styled(ProgressBar::new_spinner(), "{msg}")
        } else {
            ProgressBar::hidden()
        };
        RoundLine { line, rounds }
    }

    /// Shows the next measurement. The caller must not call this while a clock runs.
    pub(crate) fn say(&self, round: u32, what: &str) {
        self.line.set_message(format!("round {round}/{}: {what}", self.rounds));
    }
}

impl Drop for RoundLine {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
