//! Showing frames for a while.
use super::page::frame;
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PtError, answer};
use crate::object::Arg;
use core::ffi::c_void;
use ptarmigan::addr::Pfn;
use ptarmigan::machine::Machine;

/// Returns an address at which a frame of `pt_page_alloc` can be read and written, on all CPUs,
/// until `pt_kunmap`. If there is no address, returns NULL, and `pt_cpu_error` says why:
/// `PT_ERROR_NO_SLOT` if the window for high memory is full.
///
/// Low frames, and all frames on x86-64, are found in the direct map. A high frame that is mapped
/// several times has one address.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_kmap(cpu: Arg<'_, PtCpu>, phys: u64) -> *mut c_void {
    let Ok(cpu) = Cpu::find(&cpu) else { return core::ptr::null_mut() };
    let map = || {
        let pfn = frame(phys)?;
        check(cpu, pfn)?;
        cpu.parts().kmap().map(cpu.on().pin(), pfn)
    };
    map().unwrap_or_else(|e| cpu.refuse(e))
}

/// Refuses all but data frames.
fn check(cpu: &Cpu, pfn: Pfn) -> Result<(), PtError> {
    let state = cpu.parts().states().of(cpu.parts().frames(), pfn).ok_or(PtError::Foreign)?;
    if state.is_data() { Ok(()) } else { Err(PtError::Foreign) }
}

/// Ends a use of a frame that `pt_kmap` has mapped, without a flush. A frame need not be unmapped
/// on the CPU that mapped it.
///
/// Fails with `PT_ERROR_FOREIGN` for an address that `pt_kmap` never returns, and on i386 with
/// `PT_ERROR_FREED` for a slot without users.
///
/// # Safety
///
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
/// - The address came from a `pt_kmap` whose use no other call has ended, and no code uses it for
///   that use any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_kunmap(cpu: Arg<'_, PtCpu>, address: *mut c_void) -> i32 {
    let unmap = || {
        let cpu = Cpu::find(&cpu)?;
        let parts = cpu.parts();
        super::aligned(address.addr() as u64)?;
        let at = parts.physical(address);
        if at.0 < parts.window().limit() && parts.states().of(parts.frames(), at.pfn()).is_some() {
            // In the direct map.
            return check(cpu, at.pfn());
        }
        parts.kmap().unmap(cpu.on().pin(), address)
    };
    answer(unmap())
}
