//! Memory in which every store is seen.
use crate::error::{PtsanError, Refusal};
use crate::handles::{Ptsan, call, hook};
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
/// `code` is NULL, which is refused, or does what `ptsan_code` demands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_watch_run(san: *mut Ptsan, code: PtsanCode, user: *mut c_void) -> i32 {
    hook("ptsan_watch_run", san, |machine| {
        let code = given(code)?;
        // SAFETY: the caller promises it.
        watch(machine)?.run(|| unsafe { code(user) }).map_err(refusal)
    })
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
