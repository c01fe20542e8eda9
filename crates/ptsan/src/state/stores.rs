//! Entries to which stores are told.
use crate::shadow::FrameRef;

/// An entry, and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct EntryAt {
    pub(crate) entry: u64,
    pub(crate) table: FrameRef,
    pub(crate) level: u8,
}
