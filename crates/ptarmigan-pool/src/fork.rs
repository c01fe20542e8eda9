//! Whether this process is the one that made a pool, or a child that a fork made of it.
//!
//! A child has a copy of each pool, and of its locks as they were: one that another thread held
//! stays locked for ever, as that thread is not there. So code that would lock asks first. The
//! answer is a word that the host clears in a child (`MADV_WIPEONFORK`), and costs a load. A host
//! without it (Linux before 4.14) does not tell; children must leave the parent's pools alone
//! there.
use crate::mapping::Mapping;
use rustix::mm::{Advice, madvise};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The process, as its pools know it. A child has another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Process(u32);

/// Copied by a fork, so a child counts on from its parent's.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The word that is 0 in a new child.
fn word() -> Option<&'static AtomicU32> {
    static WORD: OnceLock<Option<Mapping>> = OnceLock::new();
    let mapping = WORD.get_or_init(|| {
        let mapping = Mapping::new(rustix::param::page_size()).ok()?;
        // SAFETY: the range is the whole of the mapping, which nothing uses yet.
        unsafe { madvise(mapping.base().as_ptr().cast(), mapping.len(), Advice::LinuxWipeOnFork).ok()? };
        Some(mapping)
    });
    let base = mapping.as_ref()?.base();
    // SAFETY: the mapping is readable, writable, aligned, zero at first, never unmapped, and used
    // as this word alone.
    Some(unsafe { AtomicU32::from_ptr(base.as_ptr().cast()) })
}

impl Process {
    /// Returns the calling process.
    pub fn current() -> Self {
        let Some(word) = word() else { return Process(0) };
        let known = word.load(Relaxed);
        if known != 0 {
            return Process(known);
        }
        let next = LAST.fetch_add(1, Relaxed).wrapping_add(1).max(1);
        // Another thread of the process may have been faster.
        Process(word.compare_exchange(0, next, Relaxed, Relaxed).map_or_else(|other| other, |_| next))
    }

    /// Returns whether the calling process is another one: a child of it.
    #[inline]
    pub fn is_another(self) -> bool {
        word().map_or(0, |word| word.load(Relaxed)) != self.0
    }
}
