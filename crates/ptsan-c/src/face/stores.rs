//! The hooks of stores to entries.
use crate::handles::{Ptsan, hook};
use crate::machine::Machine;

/// Tells that the entry at physical address `entry` was stored to. Optional: tell all stores, or
/// leave all out. It finds a table that is linked before it is cleared. A watch tells all stores by
/// itself.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_entry_written(san: *mut Ptsan, entry: u64) -> i32 {
    hook("ptsan_entry_written", san, |machine| {
        let cpu = storing(machine);
        machine.tell(|s, memory| {
            cpu.into_iter().for_each(|cpu| s.running_on(cpu));
            s.entry_written(memory, entry);
        });
        Ok(())
    })
}

/// Tells that the entry at physical address `entry` was exchanged: stored to by an atomic
/// instruction that returned the old value, with the bits that hardware had set. Otherwise as
/// `ptsan_entry_written`. It makes a difference with `PTSAN_FLAG_ACCESSED_DIRTY`. A watch knows
/// atomic instructions by itself.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_entry_exchanged(san: *mut Ptsan, entry: u64) -> i32 {
    hook("ptsan_entry_exchanged", san, |machine| {
        let cpu = storing(machine);
        machine.tell(|s, memory| {
            cpu.into_iter().for_each(|cpu| s.running_on(cpu));
            s.entry_exchanged(memory, entry);
        });
        Ok(())
    })
}

/// Returns the CPU that the thread stands for, if it matters which CPU stores.
fn storing(machine: &Machine) -> Option<usize> {
    machine.asks_who_stores().then(|| machine.threads.here())
}

/// Tells that entry `index` of the table at `parent` was made to point at the table at `table`, for
/// kernels that tell of links alone.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_table_linked(san: *mut Ptsan, parent: u64, index: u64, table: u64) -> i32 {
    hook("ptsan_table_linked", san, |machine| {
        machine.tell(|s, memory| s.table_linked(memory, parent, index, table));
        Ok(())
    })
}
