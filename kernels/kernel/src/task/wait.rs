//! What calls wait for.

/// What a call waits for. The call is made again then, and looks for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The end of a child.
    Child,
    /// Something happens to a pipe.
    Pipe(u16),
    /// Something is typed.
    Console,
    /// A file of several becomes ready.
    Poll,
    /// A time, or a signal.
    Time,
}
