//! The kernel's half of all spaces.
use crate::arch::{KERNEL_ENTRIES, ROOT_IS_FRAME};
use crate::cpu::{Cpu, PtCpu};
use crate::error::{PtError, answer};
use crate::object::Arg;
use ptarmigan::addr::FRAME_SHIFT;
use ptarmigan::machine::Machine;
use ptarmigan::tlb::Runs;

/// Sets entry `index` of the kernel's half in every root: of trees, in use by the kernel's own
/// spaces, and resting in the lists. The kernel's own root is the caller's to write. If the entry
/// was present before, `pt_kernel_flush` follows.
///
/// Fails with `PT_ERROR_RANGE` if the entry is not the kernel's, and with `PT_ERROR_ARGUMENT` on
/// i386, where roots are not found again: the entry is in `kernel_root` before `pt_machine_init`.
///
/// # Safety
///
/// - `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
/// - `entry` is 0, or lets the kernel alone through; a table that it links stays one until no root
///   has the entry any more and all CPUs have been flushed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_kernel_set(cpu: Arg<'_, PtCpu>, index: u32, entry: u64) -> i32 {
    let set = || {
        let cpu = Cpu::find(&cpu)?;
        if !KERNEL_ENTRIES.contains(&(index as usize)) {
            return Err(PtError::Range);
        }
        if !ROOT_IS_FRAME {
            return Err(PtError::Argument);
        }
        let parts = cpu.parts();
        // SAFETY: 1. by the caller. 2. no ranges are claimed. 3. both are parts of one machine.
        unsafe { parts.kernel().set(parts.frames(), index as usize, entry) };
        Ok(())
    };
    answer(set())
}

/// Has all CPUs forget the `bytes` from `va` on of the kernel's half, after its entries have
/// changed; all of the half if `bytes` is 0. Waits for all of them.
///
/// Fails with `PT_ERROR_RANGE` for addresses that are not at the border of a page, or end behind
/// the last one, and with `PT_ERROR_BUSY` in the middle of another flush of this CPU.
///
/// # Safety
///
/// `cpu` is NULL or points to the `struct pt_cpu` of the calling CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_kernel_flush(cpu: Arg<'_, PtCpu>, va: u64, bytes: u64) -> i32 {
    let flush = || -> Result<(), PtError> {
        let cpu = Cpu::find(&cpu)?;
        super::aligned(va)?;
        super::aligned(bytes)?;
        // An end of 0 is the end of the address space, and 0 to 0 is all of it.
        let start = if bytes == 0 { 0 } else { va };
        let end = start.wrapping_add(bytes);
        if end < start && end != 0 {
            return Err(PtError::Range);
        }
        let mut stale = Runs::one(start, end, FRAME_SHIFT);
        // C says nothing of the sizes of pages.
        stale.mix();
        cpu.on().tlb().flush_kernel(cpu.on().pin(), &stale)?;
        Ok(())
    };
    answer(flush())
}
