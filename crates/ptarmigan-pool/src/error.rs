//! Defines the errors of a pool, and the refusals of the host.
use std::fmt;
use std::io;
use std::ops::Range;

/// The error of a page's state.
pub type StateError = Box<dyn std::error::Error + Send + Sync>;

/// A system call that the host refused: which, of which memory, why, and what helps.
///
/// ```
/// use ptarmigan_pool::{Bind, PagePool, PoolConfig, Topology};
///
/// // A node that no machine has.
/// let topology = Topology::told(64, || 0);
/// let config = PoolConfig { bind: Bind::Strict, topology, ..PoolConfig::default() };
/// let refused = PagePool::new(config).expect_err("there is no node 63");
/// assert!(refused.to_string().starts_with("mbind"), "{refused}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    call: &'static str,
    memory: Range<usize>,
    errno: i32,
    advice: &'static str,
}

impl Refusal {
    pub(super) fn new(call: &'static str, at: usize, len: usize, errno: i32, advice: &'static str) -> Self {
        Refusal { call, memory: at..at.saturating_add(len), errno, advice }
    }

    /// Returns the name of the call.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Returns the addresses concerned; from 0 on before any were known.
    pub fn memory(&self) -> Range<usize> {
        self.memory.clone()
    }

    /// Returns the host's number for the reason.
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.call, self.memory.len())?;
        if self.memory.start != 0 {
            write!(f, " at {:#x}", self.memory.start)?;
        }
        write!(f, ": {}; {}", io::Error::from_raw_os_error(self.errno), self.advice)
    }
}

impl std::error::Error for Refusal {}

/// The reason for which there is no pool, or no page. The pool is unchanged then.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// A number of the configuration is out of range; the text says which range.
    OutOfRange(String),
    /// The host has no memory for the pool's own records; the text has its answer.
    Host(String),
    /// The host refused a call without which there is no pool.
    Refused(Refusal),
    /// All pages are in use, or rest with other threads. Give pages back, or make a larger pool.
    Full {
        /// Bytes of pages that the pool has.
        capacity: usize,
        /// Bytes of pages that are handed out.
        in_use: usize,
        /// Bytes of pages that rest in magazines of other threads:
        /// [`hand_over`](super::PagePool::hand_over) there frees them.
        cached: usize,
    },
    /// The page could not be brought into its state; the error of the state's constructor, or the
    /// [`Refusal`] of its guard.
    State(StateError),
    /// The pool belongs to the process that forked this one. Make another pool here.
    Forked,
    /// An address that was given back as a page is not one; the text says why.
    Address(String),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::OutOfRange(s) | PoolError::Host(s) | PoolError::Address(s) => f.write_str(s),
            PoolError::Refused(refusal) => refusal.fmt(f),
            PoolError::Full { capacity, in_use, cached } => write!(
                f,
                "the pool of {capacity} bytes is full: {in_use} in use, {cached} with other threads; give pages back or make it larger"
            ),
            PoolError::State(e) => write!(f, "a page could not be constructed: {e}"),
            PoolError::Forked => f.write_str(
                "the pool belongs to the process that forked this one; make a pool after the fork",
            ),
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PoolError::State(e) => Some(&**e),
            PoolError::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}
