//! Ctrl-C while recording: the recorded program gets it, the recording ends with it, and the trace is kept.
use super::sys;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Seconds that the recorded program has to end; then an alarm comes, which counts as a second signal.
const GRACE: u32 = 3;

static COUNT: AtomicU32 = AtomicU32::new(0);
/// The first process recorded, 0 while there is none.
static ROOT: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if COUNT.fetch_add(1, Ordering::SeqCst) == 0 {
        // SAFETY: alarm is async-signal-safe.
        unsafe { libc::alarm(GRACE) };
    }
    let root = ROOT.load(Ordering::SeqCst);
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let from_terminal = unsafe { (*info).si_code } > 0;
    // The terminal signals the whole group itself.
    if root > 0 && !from_terminal && signal != libc::SIGALRM {
        sys::kill(root, signal);
    }
}

/// Catches the signals that ask a program to end. System calls are interrupted, not restarted.
pub(super) fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGALRM] {
        // SAFETY: a zeroed sigaction is valid; the handler makes only async-signal-safe calls (atomics and kill).
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// Passes signals on to `pid` from now on; 0 for nobody.
pub(super) fn pass_to(pid: i32) {
    ROOT.store(pid, Ordering::SeqCst);
}

/// How many have come.
pub(super) fn count() -> u32 {
    COUNT.load(Ordering::SeqCst)
}
