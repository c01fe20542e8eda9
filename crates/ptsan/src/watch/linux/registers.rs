//! The interrupted thread: its registers, its signal mask, its `errno`.
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;

/// `si_code` of a `SIGSEGV` by an access that the page does not allow.
pub(super) const SEGV_ACCERR: c_int = 2;

/// `si_code` of a `SIGTRAP` by the trap flag.
pub(super) const TRAP_TRACE: c_int = 2;
/// `si_code` of a debug exception without a cause in DR6. The trap flag gives it too if a
/// hypervisor loses bit BS of DR6 before the kernel reads the register, as it happens at timer
/// ticks (see "How the sanitizer sees stores" in docs/decisions/ptsan.md). A breakpoint instruction
/// has another code.
pub(super) const TRAP_BRKPT: c_int = 1;
/// The debug exception, in the register [`libc::REG_TRAPNO`] of the signal frame.
const DEBUG_EXCEPTION: i64 = 1;

/// Signals that the instruction itself may raise, in the kernel's bits: they are never blocked.
pub(super) const SYNCHRONOUS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGABRT);

/// Returns the mask for the instruction that a handler lets the thread execute, from the mask of
/// the code under test. Only signals of the instruction itself come in. `SIGTRAP` does even if the
/// code blocks it: the kernel ends a process that raises a blocked one.
pub(super) const fn mask_of_one_instruction(mask: u64) -> u64 {
    (mask | !SYNCHRONOUS) & !bit(libc::SIGTRAP)
}

/// The calls of `arch_prctl` that read the start of a segment.
pub(super) const ARCH_GET_FS: c_int = 0x1003;
pub(super) const ARCH_GET_GS: c_int = 0x1004;

/// The general registers, in the processor's order.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

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

    /// Returns a general register, by the processor's number (below 16).
    pub(super) fn general(&self, number: u8) -> u64 {
        self.get(GENERAL[usize::from(number)]).cast_unsigned()
    }

    /// Sets a general register, by the processor's number (below 16).
    pub(super) fn set_general(&mut self, number: u8, value: u64) {
        self.set(GENERAL[usize::from(number)], value.cast_signed());
    }

    /// Returns whether the thread's last exception was a debug exception.
    pub(super) fn is_debug_exception(&self) -> bool {
        self.get(libc::REG_TRAPNO) == DEBUG_EXCEPTION
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

/// Returns where a segment of this thread begins: `which` is one of the calls above.
pub(super) fn segment(which: c_int) -> u64 {
    let mut start = 0u64;
    // SAFETY: both calls store 8 bytes at the address, or fail without a store.
    let _ = unsafe { libc::syscall(libc::SYS_arch_prctl, which, &raw mut start) };
    start
}

/// Returns the signals that this thread blocks, in the kernel's bits.
pub(super) fn blocked_signals() -> u64 {
    let mut blocked = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: without a new mask the call only writes the present one to `blocked`, of which all
    // zero is a valid value.
    let set = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), blocked.as_mut_ptr());
        blocked.assume_init()
    };
    // SAFETY: the set is initialised; the call only reads it.
    let is_blocked = |&signal: &c_int| unsafe { libc::sigismember(&raw const set, signal) } == 1;
    (1..=64).filter(is_blocked).fold(0, |mask, signal| mask | bit(signal))
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

/// A line of bounded length, formatted without an allocation. The rest of a longer one is left out.
#[derive(Debug)]
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let now = text.len().min(room.len());
        room[..now].copy_from_slice(&text.as_bytes()[..now]);
        self.length += now;
        Ok(())
    }
}

/// Writes formatted text to standard error, without its lock and without an allocation.
pub(super) fn say_formatted(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 256], length: 0 };
    let _ = fmt::Write::write_fmt(&mut line, text);
    say_bytes(&line.bytes[..line.length]);
}

/// Writes to standard error, without its lock.
pub(super) fn say(text: &str) {
    say_bytes(text.as_bytes());
}

fn say_bytes(text: &[u8]) {
    // SAFETY: reads `text` only. A failed write cannot be reported.
    let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}
