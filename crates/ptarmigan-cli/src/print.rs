//! Writing to the terminal without falling over when nobody listens any more.
use crate::error::Failure;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Writes a whole text to standard output.
///
/// # Errors
/// Quiet when the reader has closed its end, as `head` does; with a message for anything else.
pub(crate) fn stdout(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(),
        _ => Failure::new(format!("standard output: {e}")),
    })
}

/// Writes one line to standard error, `ptarmigan: ...`; if that cannot be written there is nobody to tell.
pub(crate) fn error(line: &str) {
    let _ = writeln!(std::io::stderr(), "ptarmigan: {line}");
}

/// Prints a failure as one line on standard error and returns its exit status.
#[must_use]
pub fn failure(failure: &Failure) -> ExitCode {
    if !failure.message().is_empty() {
        error(&failure.message().replace('\n', " "));
    }
    failure.status()
}
