//! The handler of panics: it tells the kernel.
use crate::hooks::{PtHooks, PtPanicHook};
use crate::machine;
use core::panic::PanicInfo;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // Formatted text would bring the code that formats it. Where it matters is said by the place.
    let text = info.message().as_str().unwrap_or("the library has failed");
    let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
    let (hook, context): (PtPanicHook, _) = machine::panic_hook().map_or((None, core::ptr::null_mut()), of);
    if let Some(hook) = hook {
        // SAFETY: the kernel handed it over for this (contract of `pt_machine_init`).
        unsafe {
            hook(context, text.as_ptr().cast(), text.len(), file.as_ptr().cast(), file.len(), line);
        }
    }
    // SAFETY: the instruction does not return: it is undefined, and the CPU says so.
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    unsafe {
        core::arch::asm!("ud2", options(noreturn, nomem, nostack))
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("udf #0", options(noreturn, nomem, nostack))
    }
    // SAFETY: as above.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        core::arch::asm!("unimp", options(noreturn, nomem, nostack))
    }
}

fn of(hooks: &PtHooks) -> (PtPanicHook, *mut core::ffi::c_void) {
    (hooks.panic, hooks.context)
}
