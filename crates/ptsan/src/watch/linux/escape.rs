//! A run of kernel code, and the way out of it for an instruction that ends the run.
//!
//! The way out is that of `longjmp`: `enter` saves the registers that a call preserves, and the
//! signal handler sends the thread to `leave` on the stack of that call. The frames in between are
//! abandoned.
use super::region::Region;
use super::registers::{self, Registers};
use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{from_mut, from_ref, null};

/// The direction flag, the trap flag and the alignment check: clear in compiled code.
const ODD_FLAGS: i64 = 1 << 10 | 1 << 8 | 1 << 18;

/// A run of kernel code on this thread.
pub(super) struct KernelRun {
    pub(super) region: *const Region,
    pub(super) cpu: usize,
    /// The instruction that is being carried out.
    pub(super) pending: Cell<Option<Pending>>,
    /// Calls of `Watch::run` under way inside, of the same watch and on this thread.
    inner: Cell<usize>,
    /// Why the run was ended.
    end: Cell<Option<End>>,
    /// The stack pointer in `enter`.
    stack: Cell<usize>,
    /// The signals that were blocked at the start.
    mask: u64,
    outer: *const KernelRun,
}

/// An instruction that the processor refused.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) rip: i64,
    /// The exception.
    pub(super) exception: i64,
    /// The signals that were blocked before it.
    pub(super) mask: u64,
}

/// The instruction that ended a run.
pub(super) enum End {
    /// `hlt`, at this address.
    Halt(usize),
    Refused(crate::watch::Error),
}

std::thread_local! {
    // Needs neither initialisation nor a destructor, so a signal handler may use it.
    static RUN: Cell<*const KernelRun> = const { Cell::new(null()) };
}

/// Calls `look` with the innermost run of kernel code on this thread, if there is one.
pub(super) fn current<R>(look: impl FnOnce(&KernelRun) -> R) -> Option<R> {
    // SAFETY: a pointer that is not null is that of a frame of `run` further up on this thread,
    // which resets it before it returns.
    RUN.with(|run| unsafe { run.get().as_ref() }).map(look)
}

/// Tells that a call of `Watch::run` begins or ends on this thread: adds `change` to their number.
pub(super) fn nest(region: &Region, change: isize) {
    let inside = |run: &KernelRun| {
        if std::ptr::eq(run.region, region) {
            run.inner.set(run.inner.get().saturating_add_signed(change));
        }
    };
    let _ = current(inside);
}

/// Runs `code` as kernel code of the CPU. Returns a panic of it, or the cause of its end and how
/// many calls of `Watch::run` were abandoned.
///
/// # Safety
/// 1. `region` lives until this returns.
/// 2. The frames of `code` may be abandoned at any privileged instruction.
pub(super) unsafe fn run<R>(
    region: *const Region,
    cpu: usize,
    code: impl FnOnce() -> R,
) -> Result<std::thread::Result<R>, (End, usize)> {
    struct Call<F, R> {
        code: Option<F>,
        result: Option<std::thread::Result<R>>,
    }
    /// Calls the code. No panic leaves it.
    unsafe extern "sysv64" fn call<F: FnOnce() -> R, R>(argument: *mut c_void) {
        // SAFETY: `run` passes a `Call` of these types, which it does not touch meanwhile.
        let call = unsafe { &mut *argument.cast::<Call<F, R>>() };
        call.result = call.code.take().map(|code| catch_unwind(AssertUnwindSafe(code)));
    }
    fn calls<F: FnOnce() -> R, R>(_: &Call<F, R>) -> unsafe extern "sysv64" fn(*mut c_void) {
        call::<F, R>
    }
    let mut call = Call { code: Some(code), result: None };
    let run = KernelRun {
        region,
        cpu,
        pending: Cell::new(None),
        inner: Cell::new(0),
        end: Cell::new(None),
        stack: Cell::new(0),
        mask: registers::blocked_signals(),
        outer: RUN.get(),
    };
    RUN.set(from_ref(&run));
    let code = calls(&call);
    // SAFETY: 1. `code` is the function for the types of `call`. 2. `run.stack` can be written. 3.
    // The caller guarantees that the frames may be abandoned.
    unsafe { enter(run.stack.as_ptr(), code, from_mut(&mut call).cast()) };
    RUN.set(run.outer);
    match (run.end.take(), call.result) {
        (None, Some(result)) => Ok(result),
        (Some(end), _) => Err((end, run.inner.get())),
        (None, None) => unreachable!("the code neither returned nor was ended"),
    }
}

impl KernelRun {
    /// Ends the run: when the signal handler returns, the thread is at the end of `enter`.
    pub(super) fn leave(&self, end: End, at: &mut Registers) {
        self.end.set(Some(end));
        at.set_mask(self.mask);
        at.set(libc::REG_EFL, at.get(libc::REG_EFL) & !ODD_FLAGS);
        at.set(libc::REG_RSP, self.stack.get() as i64);
        at.set(libc::REG_RIP, leave as *const () as i64);
    }
}

/// Calls `code`, and returns when it does or when a signal handler sends the thread to [`leave`].
///
/// # Safety
/// 1. `code` may be called with `argument` and does not unwind.
/// 2. `stack` can be written.
/// 3. If the thread is sent to [`leave`], the frames of `code` may be abandoned, and `code` has not
///    returned.
#[unsafe(naked)]
unsafe extern "sysv64" fn enter(
    stack: *mut usize,
    code: unsafe extern "sysv64" fn(*mut c_void),
    argument: *mut c_void,
) {
    // The directives let backtraces go on to the caller.
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        ".cfi_offset rbx, -24",
        "push r12",
        ".cfi_offset r12, -32",
        "push r13",
        ".cfi_offset r13, -40",
        "push r14",
        ".cfi_offset r14, -48",
        "push r15",
        ".cfi_offset r15, -56",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rdi, rdx",
        "call rsi",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Restores the registers that [`enter`] saved, and returns from it.
///
/// # Safety
/// Must not be called: a signal handler sends a thread here, with the stack pointer that `enter`
/// stored.
#[unsafe(naked)]
unsafe extern "sysv64" fn leave() {
    naked_asm!(
        "fninit",
        "fldcw [rsp + 4]",
        "ldmxcsr [rsp]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}
