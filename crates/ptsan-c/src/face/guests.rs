//! The hooks of a hypervisor beside flushes: numbers of guests, and their accesses.
use crate::face::accesses::{access_of, result_of};
use crate::handles::{Ptsan, answer, call, hook};
use ptsan::GuestPage;

/// Tells that the tables at `root` were given the number `space` (ASID, PCID, VMID). From then on a
/// load of the root with another number, and of another root with this one, is a finding.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_number_given(san: *mut Ptsan, root: u64, space: u64) -> i32 {
    hook("ptsan_number_given", san, |machine| {
        machine.check(|s, _| s.number_given(root, space));
        Ok(())
    })
}

/// Tells that all numbers were taken back (a rollover), except those of roots that CPUs have
/// loaded.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_numbers_taken_back(san: *mut Ptsan) -> i32 {
    hook("ptsan_numbers_taken_back", san, |machine| {
        machine.check(|s, _| s.numbers_taken_back());
        Ok(())
    })
}

/// Tells that the CPU invalidates its entries of stage 1 for space `number` of the guest
/// that it runs, at `va` (AArch64 `tlbi vae1`, AMD `invlpga`). It helps against no change of stage
/// 2.
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_stage1_page_flushed(san: *mut Ptsan, cpu: i32, number: u64, va: u64) -> i32 {
    hook("ptsan_stage1_page_flushed", san, |machine| {
        let cpu = machine.cpu(cpu)?;
        machine.check(|s, _| s.stage1_part_flushed(cpu, Some(number), Some(va)));
        Ok(())
    })
}

/// Translates an access of a guest to `va`, in its space `number`, that stage 1 has translated to
/// the guest-physical address `gpa`. The CPU caches it as one, combined of both stages. `kind`,
/// `phys` and the result are those of `ptsan_access`.
///
/// # Safety
/// `phys` is NULL, or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_access_combined(
    san: *mut Ptsan,
    cpu: i32,
    number: u64,
    va: u64,
    gpa: u64,
    kind: u32,
    phys: *mut u64,
) -> i32 {
    answer(call("ptsan_access_combined", san, |machine| {
        let (access, cpu) = (access_of(kind, true)?, machine.cpu(cpu)?);
        let page = GuestPage { number, va };
        let found = machine.check(|s, memory| s.translate_combined(memory, cpu, page, gpa, access));
        // SAFETY: the caller promises it.
        Ok(unsafe { result_of(found, phys) })
    }))
}
