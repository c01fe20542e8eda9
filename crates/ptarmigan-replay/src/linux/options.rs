//! Gives new spaces the options of the recorded Linux.
use super::HugeFaults;
use ptarmigan::format::Format;
use ptarmigan::space::{EmptyTables, SpaceMachine, SpaceMut};

/// The empty tables that recorded spaces give back: by the rule of Linux 6.14 (docs/linux.md,
/// "Munmap"). Recordings are of Linux 6.9 and later.
pub const RECORDED_EMPTY_TABLES: EmptyTables = EmptyTables::Covered;

/// Has a new space use tables, and large pages where `huge` is given, as Linux does; `empty` says
/// which empty tables it gives back.
pub fn begin<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    empty: EmptyTables,
    huge: Option<HugeFaults>,
) {
    space.set_empty_tables(empty);
    if let Some(huge) = huge {
        space.set_large_pages(huge.in_spaces());
    }
}
