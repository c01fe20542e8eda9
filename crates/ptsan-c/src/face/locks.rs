//! The hooks of locks, with `PTSAN_FLAG_LOCKS`.
use crate::handles::{Ptsan, hook};
use ptsan::{Guard, Hold};

/// Tells that lock `lock`, any number, guards the entries of the table at `table` and of all tables
/// below it that have no lock of their own. With `flush_first`, flushes of changes under the lock
/// have to be over when it is released.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_lock_guards(san: *mut Ptsan, table: u64, lock: u64, flush_first: bool) -> i32 {
    hook("ptsan_lock_guards", san, |machine| {
        machine.check(|s, _| s.lock_guards(table, Guard { lock, flush_first }));
        Ok(())
    })
}

/// Tells that the CPU has taken a lock, alone or `shared` with others. Under a lock that is held
/// shared, entries are exchanged (`ptsan_entry_exchanged`).
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_lock_taken(san: *mut Ptsan, cpu: i32, lock: u64, shared: bool) -> i32 {
    hook("ptsan_lock_taken", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        let hold = if shared { Hold::Shared } else { Hold::Exclusive };
        machine.check(|s, _| s.lock_taken(cpu, lock, hold));
        Ok(())
    })
}

/// Tells that the CPU is about to release a lock.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_lock_released(san: *mut Ptsan, cpu: i32, lock: u64) -> i32 {
    hook("ptsan_lock_released", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check(|s, memory| s.lock_released(memory, cpu, lock));
        Ok(())
    })
}
