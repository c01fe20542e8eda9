//! Numbers of errors, as Linux has them.

use core::fmt;

use ptarmigan::addr::BackwardRange;
use ptarmigan::frames::NoFrame;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! errors {
    ($($name:ident = $number:literal, $what:literal;)*) => {
        impl Errno {
            $(#[doc = $what] pub const $name: Errno = Errno($number);)*

            /// Returns its meaning, as a sentence.
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($number => $what,)*
                    _ => "Unknown.",
                }
            }
        }
    };
}

errors! {
    EPERM = 1, "Not permitted.";
    ENOENT = 2, "No such file.";
    ESRCH = 3, "No such process.";
    EINTR = 4, "Interrupted by a signal.";
    EIO = 5, "Input or output failed.";
    ENXIO = 6, "Nothing there.";
    E2BIG = 7, "Arguments are too long.";
    ENOEXEC = 8, "Not a program.";
    EBADF = 9, "Not an open file.";
    ECHILD = 10, "No child.";
    EAGAIN = 11, "Try again.";
    ENOMEM = 12, "No memory.";
    EACCES = 13, "Access denied.";
    EFAULT = 14, "Bad address.";
    EBUSY = 16, "It is in use.";
    EEXIST = 17, "It exists.";
    EXDEV = 18, "In another file system.";
    ENODEV = 19, "No such device.";
    ENOTDIR = 20, "Not a directory.";
    EISDIR = 21, "A directory.";
    EINVAL = 22, "Invalid argument.";
    ENFILE = 23, "Too many open files in the system.";
    EMFILE = 24, "Too many open files.";
    ENOTTY = 25, "Not a terminal.";
    EFBIG = 27, "The file is too large.";
    ENOSPC = 28, "No space left.";
    ESPIPE = 29, "A pipe has no position.";
    EMLINK = 31, "Too many names.";
    EPIPE = 32, "Nobody reads the pipe.";
    ERANGE = 34, "The result does not fit.";
    EDEADLK = 35, "Tasks would wait for each other.";
    ENAMETOOLONG = 36, "The name is too long.";
    ENOLCK = 37, "Too many locks.";
    ENOSYS = 38, "No such system call.";
    ENOTEMPTY = 39, "The directory is not empty.";
    ELOOP = 40, "Too many symbolic links.";
    EOVERFLOW = 75, "The number does not fit.";
    ELIBBAD = 80, "Not an interpreter for programs.";
    ENOTSOCK = 88, "Not a socket.";
    EOPNOTSUPP = 95, "Not supported.";
    EAFNOSUPPORT = 97, "No such sockets.";
    ETIMEDOUT = 110, "The time is over.";
}

impl Errno {
    /// Returns the error if `holds`: a check of a call's arguments in one expression.
    #[inline]
    pub fn when(self, holds: bool) -> Result<(), Errno> {
        if holds { Err(self) } else { Ok(()) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.0, self.text().trim_end_matches('.'))
    }
}

impl From<BackwardRange> for Errno {
    fn from(_: BackwardRange) -> Self {
        Errno::EINVAL
    }
}

impl From<NoFrame> for Errno {
    fn from(_: NoFrame) -> Self {
        Errno::ENOMEM
    }
}
