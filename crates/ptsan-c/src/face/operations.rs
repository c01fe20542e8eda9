//! The hooks of operations that take a while.
use crate::handles::{Ptsan, call, hook};

/// Begins an operation that changes tables. Until it ends, an access through an old translation is
/// not reported at once: another CPU may use the entries that it holds until the flush has reached
/// it.
///
/// Only needed where several CPUs work at the same time. Returns the number of the operation for
/// `ptsan_operation_ends`, or 0 if the call is refused.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_operation_begins(san: *mut Ptsan) -> u64 {
    let begun = call("ptsan_operation_begins", san, |machine| {
        let lower = machine.check(|s, _| s.operation_begins());
        Ok(machine.keep((lower, machine.check_upper(|s, _| s.operation_begins()))))
    });
    begun.unwrap_or(0)
}

/// Ends the operation: every CPU that held a page which it unmapped must have flushed it by now.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_operation_ends(san: *mut Ptsan, operation: u64) -> i32 {
    hook("ptsan_operation_ends", san, |machine| {
        let (lower, upper) = machine.take(operation)?;
        machine.check(|s, memory| s.operation_ends(memory, lower));
        if let Some(upper) = upper {
            machine.check_upper(|s, memory| s.operation_ends(memory, upper));
        }
        Ok(())
    })
}
