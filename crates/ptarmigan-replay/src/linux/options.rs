//! Gives new spaces the options of the recorded Linux.
use super::HugeFaults;
use ptarmigan::format::Format;
use ptarmigan::space::{EmptyTables, SpaceMachine, SpaceMut};

/// Has a new space use tables, and large pages where `huge` is given, as Linux does. Recordings are
/// of Linux 6.9 and later; which tables `madvise` gives back is the rule of 6.14
/// (docs/linux.md, "Munmap").
pub fn begin<F: Format, M: SpaceMachine>(space: &mut SpaceMut<'_, F, M>, huge: Option<HugeFaults>) {
    space.set_empty_tables(EmptyTables::Covered);
    if let Some(huge) = huge {
        space.set_large_pages(huge.in_spaces());
    }
}
