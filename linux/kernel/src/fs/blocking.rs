//! Calls that cannot go on.

use crate::errno::Errno;
use crate::syscall::Stop;
use crate::task::Wait;

/// `O_NONBLOCK`.
pub const NONBLOCK: u32 = 0o4000;

/// Returns the end of a call that cannot go on: it waits, or fails if the file says so.
pub(super) fn waits(flags: u32, wait: Wait) -> Stop {
    if flags & NONBLOCK != 0 { Errno::EAGAIN.into() } else { Stop::Block(wait) }
}
