//! Ctrl-C while recording: the recorded program gets the signal, the recording ends with it, and
//! the trace is kept.
use super::sys;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Seconds until an alarm, which counts as a second signal and ends the recorded program.
const GRACE: u32 = 3;

static COUNT: AtomicU32 = AtomicU32::new(0);
/// The first recorded process, or 0.
static ROOT: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if COUNT.fetch_add(1, Ordering::SeqCst) == 0 {
        // SAFETY: alarm is async-signal-safe.
        unsafe { libc::alarm(GRACE) };
    }
    let root = ROOT.load(Ordering::SeqCst);
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let from_terminal = unsafe { (*info).si_code } > 0;
    // The terminal signals the whole process group itself.
    if root > 0 && !from_terminal && signal != libc::SIGALRM {
        sys::kill(root, signal);
    }
}

/// Catches the signals that ask a program to end. They interrupt system calls.
pub(super) fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGALRM] {
        // SAFETY: a zeroed sigaction is valid. The handler makes only async-signal-safe calls
        // (atomics, alarm and kill).
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Passes signals on to `pid` from now on, or to no process if it is 0.
pub(super) fn pass_to(pid: i32) {
    ROOT.store(pid, Ordering::SeqCst);
}

/// Returns how many signals have arrived.
pub(super) fn count() -> u32 {
    COUNT.load(Ordering::SeqCst)
}
