//! Compares answers of the kernel with its tables.
use crate::error::{PTSAN_OK, PtsanError, Refusal, code_of};
use crate::handles::{Ptsan, answer, call};
use crate::machine::Machine;
use ptsan::{Expected, Perms, Tree};

/// Permissions for `ptsan_expected.perms`, combined with `|`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtsanPerm {
    /// Loads.
    Read = 1,
    /// Stores.
    Write = 2,
    /// Instruction fetches in user mode, with `PTSAN_PERM_USER`.
    UserExec = 4,
    /// Loads and stores in user mode too.
    User = 8,
    /// Instruction fetches in supervisor mode.
    KernelExec = 16,
    /// No access at all, in place of any of these.
    Nothing = 32,
}

/// The kernel's answer about an address. Members that are 0 are not compared, except `phys`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtsanExpected {
    /// The physical address of the byte, not of its page.
    pub phys: u64,
    /// The size of the page in bytes, or 0.
    pub size: u64,
    /// The exact permissions, values of `enum ptsan_perm`; or 0.
    pub perms: u32,
}

/// Compares the kernel's answer about `va` with the tables of the root that the CPU has loaded.
/// `says` is the answer of the kernel's own lookup; NULL means not mapped. A difference is a
/// finding.
///
/// Returns `PTSAN_OK` if the tables map the address, else the positive `ptsan_fault` of the walk or
/// a negative `ptsan_error`.
///
/// # Safety
/// `says` is NULL, or points at the kernel's answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_expect(san: *mut Ptsan, cpu: i32, va: u64, says: *const PtsanExpected) -> i32 {
    answer(call("ptsan_expect", san, |machine| {
        // SAFETY: the caller promises it.
        let says = unsafe { read(says) }?;
        compare(machine, Tree::Cpu(machine.cpu(cpu)?), va, says)
    }))
}

/// Compares as `ptsan_expect` with the tables of the root at physical address `root`, whether a CPU
/// has it loaded or not.
///
/// # Safety
/// As `ptsan_expect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptsan_expect_below(
    san: *mut Ptsan,
    root: u64,
    va: u64,
    says: *const PtsanExpected,
) -> i32 {
    answer(call("ptsan_expect_below", san, |machine| {
        // SAFETY: the caller promises it.
        let says = unsafe { read(says) }?;
        compare(machine, Tree::Root(root), va, says)
    }))
}

fn compare(machine: &Machine, tree: Tree, va: u64, says: Option<Expected>) -> Result<i32, Refusal> {
    let found = machine.check_at(va, |s, memory| s.expect(memory, tree, va, says));
    Ok(found.map_or_else(code_of, |_| PTSAN_OK))
}

/// # Safety
/// `says` is NULL, or may be read.
unsafe fn read(says: *const PtsanExpected) -> Result<Option<Expected>, Refusal> {
    if says.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, and the caller promises the rest. No alignment is needed.
    let says = unsafe { says.read_unaligned() };
    let perms = match says.perms {
        0 => None,
        bits => Some(perms(bits)?),
    };
    Ok(Some(Expected { phys: says.phys, perms, size: (says.size > 0).then_some(says.size) }))
}

fn perms(bits: u32) -> Result<Perms, Refusal> {
    let has = |perm: PtsanPerm| bits & perm as u32 != 0;
    if bits > PtsanPerm::Nothing as u32 || bits == 0 {
        let why = format!("permissions {bits:#x}; combine values of enum ptsan_perm");
        return Err(Refusal { code: PtsanError::BadArgument, why });
    }
    Ok(Perms::NONE
        .with_if(Perms::READ, has(PtsanPerm::Read))
        .with_if(Perms::WRITE, has(PtsanPerm::Write))
        .with_if(Perms::USER_EXEC, has(PtsanPerm::UserExec))
        .with_if(Perms::USER, has(PtsanPerm::User))
        .with_if(Perms::KERNEL_EXEC, has(PtsanPerm::KernelExec)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_of_c_are_those_of_the_sanitizer() {
        assert_eq!(perms(31).unwrap(), Perms::ALL);
        assert_eq!(perms(4 | 16).unwrap(), Perms::EXEC);
        assert_eq!(perms(32).unwrap(), Perms::NONE);
        assert_eq!(perms(1 | 8).unwrap(), Perms::READ | Perms::USER);
        assert!(perms(33).is_err() && perms(64).is_err());
    }
}
