//! Why memory cannot be watched.
use std::fmt;

/// Why memory cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// This is not Linux on x86-64. Run the test on such a host, or call the hooks from the code.
    Unsupported,
    /// A size of 0, or beyond the address space.
    BadSize {
        /// The size asked for, in bytes.
        bytes: usize,
    },
    /// A physical address that is no multiple of 4096, or so high that the memory does not fit
    /// behind it.
    BadStart {
        /// The address asked for.
        start: u64,
    },
    /// The addresses are in use, or the system does not give them.
    Identity {
        /// The first address.
        start: u64,
        /// The size, in bytes.
        bytes: usize,
        /// The system's error number.
        errno: i32,
    },
    /// Too many watches at once.
    TooMany {
        /// The most watches at once.
        limit: usize,
    },
    /// The system refused.
    System {
        /// The call that failed.
        call: &'static str,
        /// Its error number.
        errno: i32,
    },
}

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EEXIST: i32 = 17;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unsupported => {
                write!(
                    f,
                    "watching memory needs Linux on x86-64; call the sanitizer's hooks from the code instead"
                )
            }
            Self::BadSize { bytes } => {
                write!(f, "cannot watch {bytes} bytes; give a size above 0 that fits in memory")
            }
            Self::BadStart { start } => {
                write!(
                    f,
                    "memory cannot begin at physical address {start:#x}; give a multiple of 4096 that leaves room"
                )
            }
            Self::Identity { start, bytes, errno } => {
                let end = start + bytes as u64;
                write!(f, "the addresses {start:#x}..{end:#x} cannot stand for physical memory: ")?;
                match errno {
                    EPERM => write!(f, "the system keeps the lowest ones (vm.mmap_min_addr)")?,
                    ENOMEM => write!(f, "they are outside the address space of a process, or memory is short")?,
                    EEXIST => write!(f, "this process uses some of them")?,
                    _ => write!(f, "{}", std::io::Error::from_raw_os_error(errno))?,
                }
                write!(f, "; give `Watch::identity_at` others, or let `Watch::identity` choose")
            }
            Self::TooMany { limit } => write!(f, "{limit} watches are the most at once; drop one first"),
            Self::System { call, errno } => {
                let why = std::io::Error::from_raw_os_error(errno);
                write!(f, "{call} failed while memory was set up to be watched: {why}")
            }
        }
    }
}

impl std::error::Error for Error {}
