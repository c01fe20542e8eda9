//! Accesses by the program that uses the tables, and walks of the hardware.
use crate::error::{PTSAN_OK, Refusal, code_of};
use crate::handles::{Ptsan, answer, call, hook};
use ptsan::{Access, AccessKind, Fault, Translation};

/// An access that loads.
pub const PTSAN_READ: u32 = 0;
/// An access that stores.
pub const PTSAN_WRITE: u32 = 1;
/// An access that fetches an instruction.
pub const PTSAN_EXEC: u32 = 2;

/// Translates an access to `va` as the CPU does: from its TLB, or by a walk that fills its caches.
/// An answer that memory no longer gives is a finding. `kind` is `PTSAN_READ`,
/// `PTSAN_WRITE` or `PTSAN_EXEC`; `user` says that it is made in user mode.
///
/// Returns `PTSAN_OK` and the physical address of the byte in `*phys`, or a positive `ptsan_fault`
/// or a negative `ptsan_error`, and then leaves `*phys` alone.
///
/// # Safety
/// `phys` is NULL, or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_access(
    san: *mut Ptsan,
    cpu: i32,
    va: u64,
    kind: u32,
    user: bool,
    phys: *mut u64,
) -> i32 {
    answer(call("ptsan_access", san, |machine| {
        let (access, cpu) = (access_of(kind, user)?, machine.cpu(cpu)?);
        let found = machine.check_at(va, |s, memory| s.translate(memory, cpu, va, access));
        // SAFETY: the caller promises it.
        Ok(unsafe { result_of(found, phys) })
    }))
}

/// Returns the result of an access for C, and its physical address in `*phys`.
///
/// # Safety
/// `phys` is NULL, or may be written to. No alignment is needed.
pub(super) unsafe fn result_of(found: Result<Translation, Fault>, phys: *mut u64) -> i32 {
    match found {
        Ok(translation) => {
            if !phys.is_null() {
                // SAFETY: the caller promises that it may be written to.
                unsafe { phys.write_unaligned(translation.phys) };
            }
            PTSAN_OK
        }
        Err(fault) => code_of(fault),
    }
}

pub(super) fn access_of(kind: u32, user: bool) -> Result<Access, Refusal> {
    let kind = match kind {
        PTSAN_READ => AccessKind::Read,
        PTSAN_WRITE => AccessKind::Write,
        PTSAN_EXEC => AccessKind::Exec,
        kind => {
            let why = format!("access {kind}; give PTSAN_READ, PTSAN_WRITE or PTSAN_EXEC");
            return Err(Refusal::argument(why));
        }
    };
    Ok(Access { kind, user })
}

/// Lets the CPU walk speculatively for `va`, as hardware may at any time. It fills the caches and
/// raises no fault.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_probe_walk(san: *mut Ptsan, cpu: i32, va: u64) -> i32 {
    hook("ptsan_probe_walk", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check_at(va, |s, memory| s.probe_walk(memory, cpu, va));
        Ok(())
    })
}

/// Lets the adversary of `ptsan_options.adversary_rate` act now, besides at other calls.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_adversary_step(san: *mut Ptsan) -> i32 {
    hook("ptsan_adversary_step", san, |machine| {
        machine.tell(|s, memory| s.adversary_step(memory));
        Ok(())
    })
}
