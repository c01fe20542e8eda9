//! Output on the terminal. A closed pipe is no error.
use crate::error::Failure;
use crate::screen;
use crate::text::Text;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Writes `text` to standard output.
///
/// # Errors
/// A quiet failure if the reader has closed the pipe, as `head` does; one with a message for any
/// other error.
pub fn stdout(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(),
        _ => Failure::new(format!("standard output: {e}")),
    })
}

/// Writes a report of at most 80 columns to standard output.
///
/// # Errors
/// As [`stdout`].
pub fn report(text: &Text) -> Result<(), Failure> {
    stdout(&text.for_stdout())
}

/// Writes `ptarmigan: line` to standard error, the name in red on a terminal with colour. Control
/// characters, of a file's name for example, become spaces. An error in doing so is ignored: there
/// is no other place to report it.
pub fn error(line: &str) {
    let line = line.replace(char::is_control, " ");
    let mut err = std::io::stderr();
    let name = if screen::colour(&err) { screen::red("ptarmigan:") } else { "ptarmigan:".to_owned() };
    let _ = writeln!(err, "{name} {line}");
}

/// Prints a failure as one line on standard error and returns its exit status.
#[must_use]
pub fn failure(failure: &Failure) -> ExitCode {
    if !failure.message().is_empty() {
        error(failure.message());
    }
    failure.status()
}

/// Writes a line to standard error that announces the next step of the command.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
