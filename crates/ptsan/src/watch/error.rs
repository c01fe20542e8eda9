//! The reason why memory cannot be watched, or why a run was ended.
use std::fmt;

/// The reason why memory cannot be watched, or why a run was ended.
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
    /// There is no such CPU in the sanitizer's configuration.
    NoSuchCpu {
        /// The CPU asked for.
        cpu: usize,
        /// The number of CPUs.
        cpus: usize,
    },
    /// Another thread stands for the CPU.
    CpuTaken {
        /// The CPU asked for.
        cpu: usize,
    },
    /// An instruction ended [`super::Watch::run_on`]: one that is not emulated, or that a processor
    /// would refuse as well.
    Instruction {
        /// Its address.
        rip: usize,
        /// Its bytes.
        code: Code,
        /// The fault.
        why: &'static str,
        /// The value that is wrong, if there is one.
        value: Option<u64>,
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
                    ENOMEM => {
                        write!(f, "they are outside the address space of a process, or memory is short")?
                    }
                    EEXIST => write!(f, "this process uses some of them")?,
                    _ => write!(f, "{}", std::io::Error::from_raw_os_error(errno))?,
                }
                write!(f, "; give `Watch::identity_at` others, or let `Watch::identity` choose")
            }
            Self::NoSuchCpu { cpu, cpus } => {
                write!(f, "there is no CPU {cpu}; the sanitizer has {cpus}, see `Config::cpus`")
            }
            Self::CpuTaken { cpu } => {
                write!(f, "another thread stands for CPU {cpu}; give each thread a CPU of its own")
            }
            Self::Instruction { rip, code, why, value } => {
                write!(f, "the instruction at {rip:#x} ({code}) {why}")?;
                value.map_or(Ok(()), |value| write!(f, " ({value:#x})"))?;
                write!(f, "; the run ended there")
            }
            Self::TooMany { limit } => write!(f, "{limit} watches are the most at once; drop one first"),
            Self::System { call, errno } => {
                let why = std::io::Error::from_raw_os_error(errno);
                write!(f, "{call} failed while memory was set up to be watched: {why}")
            }
        }
    }
}

/// The bytes of an instruction. If its length is not known, more bytes follow, up to 15 or to the
/// end of the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code {
    bytes: [u8; 15],
    length: usize,
}

impl Code {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
    pub(super) const fn new(bytes: [u8; 15], length: usize) -> Self {
        Self { bytes, length }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Display for Code {
    /// Prints the bytes in hexadecimal, with spaces in between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes()
            .iter()
            .enumerate()
            .try_for_each(|(i, byte)| write!(f, "{}{byte:02x}", if i == 0 { "" } else { " " }))
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
