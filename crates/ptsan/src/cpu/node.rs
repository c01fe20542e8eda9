//! The cached entries of one table position.
use crate::arch::Perms;
use crate::shadow::FrameRef;

/// The number of translations in a chunk.
pub(super) const CHUNK: usize = 64;

pub(super) const NOTHING: TlbEntry =
    TlbEntry { phys: 0, since: 0, via: FrameRef::UNKNOWN, perms: Perms::NONE, memory_type: 0 };

pub(super) const NO_TABLE: Table = Table { phys: 0, frame: FrameRef::UNKNOWN, perms: Perms::NONE };

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
}

/// Which table a CPU uses at a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) phys: u64,
    pub(crate) frame: FrameRef,
    /// What all entries above allow.
    pub(crate) perms: Perms,
}

#[derive(Default)]
pub(super) struct Chunk {
    /// Which entries are valid.
    pub(super) mask: u64,
    /// Which entries a speculative walk may have read. No access is answered from them.
    pub(super) maybe: u64,
    pub(super) entries: Option<Box<[TlbEntry; CHUNK]>>,
}

pub(super) struct Node {
    pub(super) position: u64,
    /// Valid if `epoch` is the context's.
    pub(super) table: Table,
    pub(super) epoch: u64,
    /// A table that a speculative walk may have read, if `maybe_epoch` is the context's.
    pub(super) maybe: Table,
    pub(super) maybe_epoch: u64,
    pub(super) chunks: Vec<Chunk>,
}

impl Node {
    #[inline]
    pub(super) fn entry(&self, slot: usize) -> Option<TlbEntry> {
        let chunk = self.chunks.get(slot / CHUNK)?;
        if chunk.mask & 1 << (slot % CHUNK) == 0 {
            return None;
        }
        chunk.entries.as_ref().map(|e| e[slot % CHUNK])
    }
}
