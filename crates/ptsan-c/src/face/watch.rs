//! Memory in which every store is seen.
use crate::error::{PTSAN_OK, PtsanError, Refusal};
use crate::handles::{Ptsan, answer, call, hook};
use crate::machine::{Checker, Machine};
use ptsan::watch::{Error, Watch};
use std::ffi::c_void;

/// Code under test: called with the `user` that was given with it. It must return (no `longjmp`, no
/// exception).
pub type PtsanCode = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Returns the memory of a sanitizer made by `ptsan_watch_new`, for the kernel to keep its tables
/// in, or NULL. It goes when the sanitizer is destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_watch_base(san: *mut Ptsan) -> *mut c_void {
    let base = call("ptsan_watch_base", san, |machine| Ok(watch(machine)?.memory().base().cast()));
    base.unwrap_or(std::ptr::null_mut())
}

/// Runs `code(user)` with every store to the memory seen, also those of other threads. Each store
/// is checked before the next instruction, so `ptsan_entry_written` is not needed. A store takes
/// microseconds. Calls may be nested.
///
/// System calls do not write to the memory meanwhile: they fail with EFAULT. `code` calls the other
/// functions as usual.
///
/// # Safety
/// `code` is NULL, which is refused, or keeps to `ptsan_code`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_watch_run(san: *mut Ptsan, code: PtsanCode, user: *mut c_void) -> i32 {
    hook("ptsan_watch_run", san, |machine| {
        let code = given(code)?;
        // SAFETY: the caller promises it.
        watch(machine)?.run(|| unsafe { code(user) }).map_err(refusal)
    })
}

/// The result of `ptsan_watch_run_on` if the code executed `hlt`. It is positive, as faults are.
pub const PTSAN_HALTED: i32 = 100;

/// Runs `code(user)` as kernel code of the CPU, with every store seen as by `ptsan_watch_run`. The
/// privileged instructions of page-table code (`invlpg`, `invpcid`, `mov` to and from CR0, CR2, CR3
/// and CR4, `rdmsr`, `wrmsr`, `wbinvd`, `cli`, `sti`) are emulated, and tell of loads of the root
/// and of flushes. So no other hook than those of frames is needed. Without `PTSAN_FLAG_ASIDS` a
/// space is known by the physical address of its root, otherwise by its PCID.
///
/// The calling thread stands for the CPU meanwhile. Calls may be nested, for other CPUs too: so a
/// test plays an interrupt.
///
/// Returns `PTSAN_OK` if the code returned, `PTSAN_HALTED` if it executed `hlt`, and an error if an
/// instruction was refused, which ends the run, or if another thread stands for the CPU.
///
/// # Safety
/// 1. `code` is NULL, which is refused, or keeps to `ptsan_code`, except that it may end with
///    `hlt`.
/// 2. A run that is ended abandons its frames, as `longjmp` does: between the call of `code` and
///    the instruction there are only frames that may be abandoned, such as those of C.
/// 3. The code does not depend on other effects of an instruction, such as memory that appears when
///    CR3 is loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_watch_run_on(
    san: *mut Ptsan,
    cpu: i32,
    code: PtsanCode,
    user: *mut c_void,
) -> i32 {
    answer(call("ptsan_watch_run_on", san, |machine| {
        let code = given(code)?;
        let watch = watch(machine)?;
        let cpu = machine.cpu(cpu)?;
        let before = machine.run_on(cpu);
        // SAFETY: 1. Point 2; the frames of this library in between hold no value that others need.
        // 2. Point 3. The call of `code` is point 1.
        let ended = unsafe { watch.run_on(cpu, || code(user)) };
        machine.run_again_on(before);
        let ended = ended.map_err(refusal)?;
        Ok(if ended.halted() { PTSAN_HALTED } else { PTSAN_OK })
    }))
}

/// Runs `code(user)` with stores not seen, of all threads: for bulk work, such as clearing a pool
/// of frames. It may be called inside `ptsan_watch_run`.
///
/// # Safety
/// As `ptsan_watch_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_watch_unseen(san: *mut Ptsan, code: PtsanCode, user: *mut c_void) -> i32 {
    hook("ptsan_watch_unseen", san, |machine| {
        let code = given(code)?;
        let _paused = watch(machine)?.pause().map_err(refusal)?;
        // SAFETY: the caller promises it.
        unsafe { code(user) };
        Ok(())
    })
}

/// Returns the number of stores seen, or `PTSAN_NONE`.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_watch_stores(san: *mut Ptsan) -> u64 {
    let stores = call("ptsan_watch_stores", san, |machine| Ok(watch(machine)?.stores()));
    stores.unwrap_or(super::PTSAN_NONE)
}

fn given(code: PtsanCode) -> Result<unsafe extern "C" fn(*mut c_void), Refusal> {
    code.ok_or_else(|| Refusal::argument("the code to run is NULL"))
}

fn watch(machine: &Machine) -> Result<&Watch, Refusal> {
    match &machine.checker {
        Checker::Watched(watch) => Ok(watch),
        Checker::Told(..) => Err(Refusal::argument("the sanitizer has no memory; use ptsan_watch_new")),
    }
}

/// Returns the refusal for an error of a watch.
pub(super) fn refusal(error: Error) -> Refusal {
    let code = match error {
        Error::BadSize { .. } | Error::BadStart { .. } | Error::NoSuchCpu { .. } | Error::CpuTaken { .. } => {
            PtsanError::BadArgument
        }
        Error::Unsupported
        | Error::Identity { .. }
        | Error::Instruction { .. }
        | Error::TooMany { .. }
        | Error::System { .. } => PtsanError::System,
    };
    Refusal { code, why: error.to_string() }
}
