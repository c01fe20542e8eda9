//! The interrupted thread: its registers, its signal mask, its `errno`.
use std::ffi::{c_int, c_void};

/// `si_code` of a `SIGSEGV` by an access that the page does not allow.
pub(super) const SEGV_ACCERR: c_int = 2;

/// `si_code` of a `SIGTRAP` by the trap flag.
pub(super) const TRAP_TRACE: c_int = 2;

/// Signals that the instruction itself may raise, in the kernel's bits: they are never blocked.
pub(super) const SYNCHRONOUS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGABRT);

pub(super) const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The interrupted thread's registers and signal mask, as they will be when the handler returns.
pub(super) struct Registers(*mut libc::ucontext_t);

impl Registers {
    /// # Safety
    /// `context` is the third argument of a handler with `SA_SIGINFO`, which runs for as long as
    /// this is used.
    pub(super) unsafe fn new(context: *mut c_void) -> Self {
        Self(context.cast())
    }

    pub(super) fn get(&self, register: c_int) -> i64 {
        // SAFETY: the frame is valid while the handler runs. Volatile, because the kernel and
        // unwinders use it too.
        unsafe { (&raw const (*self.0).uc_mcontext.gregs[register as usize]).read_volatile() }
    }

    pub(super) fn set(&mut self, register: c_int, value: i64) {
        // SAFETY: as in `get`.
        unsafe { (&raw mut (*self.0).uc_mcontext.gregs[register as usize]).write_volatile(value) }
    }

    /// Returns the signal mask. The kernel's mask is these 8 bytes; the rest of the C library's
    /// type is not there.
    pub(super) fn mask(&self) -> u64 {
        // SAFETY: as in `get`; the frame holds the 8 bytes.
        unsafe { (&raw const (*self.0).uc_sigmask).cast::<u64>().read_volatile() }
    }

    pub(super) fn set_mask(&mut self, mask: u64) {
        // SAFETY: as in `mask`.
        unsafe { (&raw mut (*self.0).uc_sigmask).cast::<u64>().write_volatile(mask) }
    }
}

/// Restores `errno` when dropped: the code under test made no call.
pub(super) struct KeepErrno(c_int);

impl KeepErrno {
    pub(super) fn new() -> Self {
        // SAFETY: the pointer is valid in this thread, also in a signal handler.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Writes to standard error, without its lock.
pub(super) fn say(text: &str) {
    // SAFETY: reads `text` only. A failed write cannot be reported.
    let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}
