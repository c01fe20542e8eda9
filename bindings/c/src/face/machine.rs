//! Set-up and end of a machine.
use crate::config::PtConfig;
use crate::error::{PtError, answer};
use crate::machine::{Parts, PtMachine, bytes};
use crate::object::{Arg, ConstArg, LastArg, Out};

/// Returns how much boot memory a machine needs, in bytes, whole pages; 0 if the configuration is
/// refused, for which `pt_machine_init` says why. `boot_memory` and `boot_bytes` need not be known
/// yet.
///
/// # Safety
///
/// `config` is NULL or points to a configuration, and its `runs` to `run_count` runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_machine_bytes(config: ConstArg<'_, PtConfig>) -> usize {
    PtConfig::read(&config).map_or(0, |(config, runs)| bytes(&config, &runs))
}

/// Sets a machine up. One CPU calls it, before all other calls.
///
/// Fails with `PT_ERROR_SIZE` if the header is of another version, `PT_ERROR_RUNS`,
/// `PT_ERROR_BOOT_MEMORY`, `PT_ERROR_RANGE` for addresses that are not at the border of a page or
/// behind the direct map, `PT_ERROR_POINTER` for a function or a pointer that is missing,
/// `PT_ERROR_ARGUMENT` for numbers, and `PT_ERROR_OBJECT` if `machine` is neither zero nor ended.
///
/// Before it writes, it walks the kernel's half of `kernel_root`: `PT_ERROR_KERNEL_ENTRY` is for an
/// entry that is not one of a kernel's half. Unless `hosted` says that no hardware walks it, it is
/// `PT_ERROR_WINDOW_SHOWS` if the root does not map `direct_map` to each run, for the kernel alone
/// and to be written to. On AArch64 the kernel has another root, and no walk is made.
/// The memory is the caller's again after an error.
///
/// # Safety
///
/// - `machine` is NULL or points to a `struct pt_machine`, which stays where it is and is left
///   alone until `pt_machine_exit`; as long as that, the boot memory and the runs are the
///   library's.
/// - `config` is NULL or points to a configuration that is true: memory below `direct_map_end` that
///   is in runs, the boot memory and the kernel's root are mapped from `direct_map` on in every
///   space, and reached in no other way by code in C; the kernel's half of the root is the kernel's
///   alone, its tables stay for ever, and its user's half is empty; the functions do as their
///   members say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_machine_init(machine: Arg<'_, PtMachine>, config: ConstArg<'_, PtConfig>) -> i32 {
    let make = || {
        let (config, runs) = PtConfig::read(&config)?;
        // SAFETY: 1. by the caller.
        unsafe { Parts::make(machine, &config, &runs) }
    };
    answer(make())
}

/// Ends a machine whose CPUs have all ended. Its boot memory and its runs are the caller's again.
///
/// Fails with `PT_ERROR_IN_USE` if a CPU has not ended or frames are still out: `*missing` is how
/// many. The machine stays as it was then.
///
/// # Safety
///
/// - `machine` is NULL or points to a `struct pt_machine`, and no other code uses it any more.
/// - `missing` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pt_machine_exit(machine: LastArg<'_, PtMachine>, missing: Out<'_, u64>) -> i32 {
    let exit = || -> Result<(), PtError> {
        let parts = machine.find::<Parts>()?;
        missing.check()?;
        let mut out = 0;
        let ended = parts.end(machine, &mut out);
        missing.put(out)?;
        ended
    };
    answer(exit())
}
