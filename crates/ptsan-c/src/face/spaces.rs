//! The hooks of address spaces.
use crate::handles::{Ptsan, hook};

/// Announces an address space. Only needed before a flush of one that no CPU has loaded yet.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_space_created(san: *mut Ptsan, space: u64) -> i32 {
    hook("ptsan_space_created", san, |machine| {
        machine.tell(|s, _| s.space_created(space));
        Ok(())
    })
}

/// Tells that the address space is gone and its number will not stand for another. Kernels that
/// reuse hardware ASIDs must not call it.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_space_destroyed(san: *mut Ptsan, space: u64) -> i32 {
    hook("ptsan_space_destroyed", san, |machine| {
        machine.check(|s, _| s.space_destroyed(space));
        Ok(())
    })
}
