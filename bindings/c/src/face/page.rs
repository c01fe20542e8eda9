//! Frames for data.
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PtError, answer};
use crate::object::Arg;
use crate::states::State;
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::frames::{AllocFlags, DataFrames};
use ptarmigan::machine::Machine;

/// Returns the physical address of a frame for data, all zero. If there is no frame, returns 0, and
/// `pt_cpu_error` says why. On i386 it is mostly high memory: `pt_kmap` shows it.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_page_alloc(cpu: Arg<'_, PtCpu>) -> u64 {
    let Ok(cpu) = Cpu::find(&cpu) else { return 0 };
    match take(cpu) {
        Ok(pfn) => pfn.addr().0,
        Err(e) => {
            cpu.refuse::<u8>(e);
            0
        }
    }
}

fn take(cpu: &Cpu) -> Result<Pfn, PtError> {
    let (on, parts) = (cpu.on(), cpu.parts());
    let (frame, is_zero) = on.data().take_zero(on.frames(), on.pin(), AllocFlags::NORMAL)?;
    let pfn = frame.into_raw();
    if !is_zero {
        // SAFETY: 1. taken just now.
        let cleared = unsafe { parts.clear_data(on.pin(), pfn) };
        if cleared.is_err() {
            // SAFETY: 1. taken just now, with one reference.
            give(cpu, unsafe { Unused::new(pfn) });
            return Err(PtError::NoSlot);
        }
    }
    if let Some(state) = state(cpu, pfn) {
        state.become_data();
        parts.count_page(on.pin(), 1);
    }
    Ok(pfn)
}

/// A data frame that is on its way back.
pub(super) struct Unused(Pfn);

impl Unused {
    /// # Safety
    ///
    /// 1. It is a data frame of the machine of the CPU that gives it back, with one reference,
    ///    which is the caller's, and no TLB reaches it.
    pub unsafe fn new(pfn: Pfn) -> Self {
        Unused(pfn)
    }
}

/// Gives back a frame.
pub(super) fn give(cpu: &Cpu, Unused(pfn): Unused) {
    let on = cpu.on();
    // SAFETY: of `release_raw`: 1. and 2. it is `Unused`. Of `give_raw`: 1. the parts are of one
    // machine, and `on` has checked the pin. 2. it is `Unused`.
    unsafe {
        if DataFrames::release_raw(on.frames(), pfn) {
            on.data().give_raw(on.frames(), on.pin(), pfn);
        }
    }
}

fn state(cpu: &Cpu, pfn: Pfn) -> Option<State<'static>> {
    cpu.parts().states().of(cpu.parts().frames(), pfn)
}

/// Finds the number of the frame at a physical address.
pub(super) fn frame(phys: u64) -> Result<Pfn, PtError> {
    super::aligned(phys)?;
    if phys >> 44 != 0 || PhysAddr(phys).pfn() == Pfn::NONE {
        return Err(PtError::Range);
    }
    Ok(PhysAddr(phys).pfn())
}

/// Finds a frame that `pt_page_alloc` has returned and that is the caller's.
pub(super) fn own(cpu: &Cpu, phys: u64) -> Result<(State<'static>, Pfn), PtError> {
    let pfn = frame(phys)?;
    let state = state(cpu, pfn).ok_or(PtError::Foreign)?;
    state.data()?;
    Ok((state, pfn))
}

/// Notes that a data frame is not C's any more.
pub(super) fn no_more(cpu: &Cpu, state: State<'_>) {
    state.become_freed();
    cpu.parts().count_page(cpu.on().pin(), -1);
}

/// Gives back a frame that is mapped nowhere.
///
/// Fails, and does not take the frame, with `PT_ERROR_RANGE` if the address is not that of a page,
/// `PT_ERROR_FOREIGN` if it did not come from `pt_page_alloc`, `PT_ERROR_FREED` if it was given
/// back before or waits in a gather, and `PT_ERROR_IN_USE` if a tree maps it: then the tree's unmap
/// gives it back, after the flush.
///
/// # Safety
///
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
/// - A frame that came from `pt_page_alloc` is not used any more, and no TLB knows it: one that was
///   mapped in a kernel's own tree goes to `pt_gather_page`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_page_free(cpu: Arg<'_, PtCpu>, phys: u64) -> i32 {
    let free = || {
        let cpu = Cpu::find(&cpu)?;
        let (state, pfn) = own(cpu, phys)?;
        no_more(cpu, state);
        // SAFETY: 1. the state says that it is a data frame of the caller's; the rest by the
        // caller.
        give(cpu, unsafe { Unused::new(pfn) });
        Ok(())
    };
    answer(free())
}
