//! The hooks of stores to entries.
use crate::handles::{Ptsan, hook};

/// Tells that the entry at physical address `entry` was stored to. Optional: tell all stores or
/// none. It finds a table that is linked before it is cleared. A watch tells all stores by itself.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_entry_written(san: *mut Ptsan, entry: u64) -> i32 {
    hook("ptsan_entry_written", san, |machine| {
        machine.check(|s, memory| s.entry_written(memory, entry));
        Ok(())
    })
}

/// Tells that entry `index` of the table at `parent` was made to point at the table at `table`, for
/// kernels that tell of links alone.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_table_linked(san: *mut Ptsan, parent: u64, index: u64, table: u64) -> i32 {
    hook("ptsan_table_linked", san, |machine| {
        machine.check(|s, memory| s.table_linked(memory, parent, index, table));
        Ok(())
    })
}
