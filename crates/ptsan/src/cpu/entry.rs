//! Defines the entries of a CPU's caches.
use crate::arch::{Access, Perms};
use crate::shadow::FrameRef;

/// A cached translation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlbEntry {
    /// Physical address of the page.
    pub(crate) phys: u64,
    /// Event of the walk that filled it.
    pub(crate) since: u64,
    /// The table it was read from.
    pub(crate) via: FrameRef,
    pub(crate) perms: Perms,
    pub(crate) memory_type: u8,
    /// It has denied an access that memory allowed.
    pub(crate) denied: bool,
    /// The CPU knows that the page is dirty, and does not set the bit again.
    pub(crate) dirty: bool,
}

/// A cached entry that was not valid when it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invalid {
    /// Its physical address.
    pub(crate) entry: u64,
    /// Event of the walk that read it.
    pub(crate) since: u64,
    /// The CPU has faulted on it while it was not valid: it did not just walk ahead.
    pub(crate) met: bool,
    /// The address and the access of a fault on it, although memory allowed the access.
    pub(crate) faulted: Option<(u64, Access)>,
}

/// Which table a CPU uses at a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) phys: u64,
    pub(crate) frame: FrameRef,
    /// The rights that all entries above grant.
    pub(crate) perms: Perms,
}
