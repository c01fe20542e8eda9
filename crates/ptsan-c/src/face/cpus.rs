//! The hooks of CPUs: loads of roots, lazy mode, threads that stand for CPUs.
use crate::error::Refusal;
use crate::handles::{Ptsan, call, hook};

/// Makes the calling thread stand for the CPU from now on, as when a thread migrates. Where a
/// function takes a CPU, `PTSAN_THIS_CPU` means it. A thread that never called this stands for the
/// lowest CPU that no thread has.
///
/// With `PTSAN_FLAG_BARRIERS` or `PTSAN_FLAG_ACCESSED_DIRTY`, a store that the thread tells is one
/// of this CPU.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_run_on(san: *mut Ptsan, cpu: i32) -> i32 {
    hook("ptsan_run_on", san, |machine| {
        machine.run_on(machine.cpu(cpu)?);
        Ok(())
    })
}

/// Returns the CPU that the calling thread stands for, or a negative `ptsan_error`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_this_cpu(san: *mut Ptsan) -> i32 {
    let cpu = call("ptsan_this_cpu", san, |machine| Ok(machine.threads.here()));
    cpu.map_or_else(|code| code as i32, |cpu| i32::try_from(cpu).unwrap_or(i32::MAX))
}

/// Tells that the CPU loads the root table at physical address `root` (CR3, satp, TTBR) and runs in
/// address space `space`, any number. Where every root is a space of its own, its address will do.
///
/// Call it only for real loads of the root. Without `PTSAN_FLAG_ASIDS` this drops all entries of
/// the CPU except global translations.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_switch(san: *mut Ptsan, cpu: i32, root: u64, space: u64) -> i32 {
    hook("ptsan_switch", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check(|s, memory| s.switch(memory, cpu, root, space));
        Ok(())
    })
}

/// Tells that the CPU runs kernel code and keeps the root loaded. Its walker may still walk.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_lazy(san: *mut Ptsan, cpu: i32) -> i32 {
    hook("ptsan_lazy", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check(|s, _| s.lazy(cpu));
        Ok(())
    })
}

/// Tells that a lazy CPU runs in its space again, without a new load of the root.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_resume(san: *mut Ptsan, cpu: i32) -> i32 {
    hook("ptsan_resume", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check(|s, _| s.resume(cpu));
        Ok(())
    })
}

/// Tells that the CPU loads a root of the kernel alone, which is not under the sanitizer.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_leave(san: *mut Ptsan, cpu: i32) -> i32 {
    hook("ptsan_leave", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check(|s, _| s.leave(cpu));
        Ok(())
    })
}

/// Tells that the CPU loads the root of the upper tree (`TTBR1`), of a sanitizer with
/// `PTSAN_FLAG_BOTH_TREES`. Otherwise as `ptsan_switch`, which loads that of the lower tree.
/// `space` is the number with which upper addresses are flushed, such as 0.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_switch_upper(san: *mut Ptsan, cpu: i32, root: u64, space: u64) -> i32 {
    hook("ptsan_switch_upper", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check_upper(|s, memory| s.switch(memory, cpu, root, space)).ok_or_else(one_tree)
    })
}

/// Tells that the CPU walks the upper tree no more (`TCR_EL1.EPD1`, or the MMU is off). Otherwise
/// as `ptsan_leave`, which is about the lower tree.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_leave_upper(san: *mut Ptsan, cpu: i32) -> i32 {
    hook("ptsan_leave_upper", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check_upper(|s, _| s.leave(cpu)).ok_or_else(one_tree)
    })
}

fn one_tree() -> Refusal {
    Refusal::argument("the sanitizer has one tree; set PTSAN_FLAG_BOTH_TREES")
}
