//! Puts Linux's flushes and the library's of the same cause side by side.
use super::{Flushes, LibraryFlushes, LinuxFlushes};
use crate::causes::Cause;

/// The flushes of one cause. `None` where a side does not report them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushRow {
    /// The cause, or causes, in words.
    pub of: &'static str,
    /// Whether another row has these flushes in its sum.
    pub part: bool,
    /// Flushes by Linux, by the CPU that asked for them.
    pub linux: Option<Flushes>,
    /// Flushes by the library.
    pub library: Option<Flushes>,
}

/// Returns the rows that any side has flushes in.
pub fn compare(linux: Option<&LinuxFlushes>, library: Option<&LibraryFlushes>) -> Vec<FlushRow> {
    let row = |of, cause: Cause| FlushRow {
        of,
        part: cause.is_call(),
        linux: linux.map(|linux| linux.of(cause)),
        library: library.map(|library| library.of(cause)),
    };
    let calls = FlushRow {
        of: "calls on mappings",
        part: false,
        linux: linux.map(|linux| linux.calls.carried_out),
        library: library.map(|library| library.calls),
    };
    let mut rows =
        vec![row("faults", Cause::Fault), row("forks", Cause::Fork), row("execs", Cause::Exec), calls];
    let of_calls = Cause::ALL.into_iter().filter(|cause| cause.is_call());
    rows.extend(of_calls.map(|cause| row(cause.name(), cause)));
    // Linux's tracepoint is silent where a space ends, and Linux made no correction.
    let silent = |row: FlushRow| FlushRow { linux: row.linux.filter(|flushes| flushes.total() > 0), ..row };
    rows.push(silent(row("ends of spaces", Cause::Exit)));
    rows.push(silent(row("found at stops", Cause::Found)));
    rows.push(row("other", Cause::Other));
    let any = |flushes: Option<Flushes>| flushes.is_some_and(|flushes| flushes.total() > 0);
    rows.retain(|row| any(row.linux) || any(row.library));
    rows
}
