//! Checks the traces that a command line names.
use ptarmigan_term::Failure;
use std::path::PathBuf;

/// Returns whether standard input, written `-`, is one of the traces.
///
/// # Errors
/// If it is named twice: it has one trace.
pub(crate) fn has_standard_input<'p>(traces: impl IntoIterator<Item = &'p PathBuf>) -> Result<bool, Failure> {
    match traces.into_iter().filter(|path| path.as_os_str() == "-").count() {
        count @ 0..=1 => Ok(count == 1),
        _ => Err(Failure::new("- twice: standard input has one trace")),
    }
}
