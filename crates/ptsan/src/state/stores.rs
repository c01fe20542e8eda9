//! Entries and what stores leave in them.
use crate::shadow::FrameRef;

/// The content that the last told store left in an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) raw: u64,
    /// The table at that time.
    pub(crate) frame: FrameRef,
}

/// An entry, and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct EntryAt {
    pub(crate) entry: u64,
    pub(crate) table: FrameRef,
    pub(crate) level: u8,
}
