//! Signals to the recorder. Ctrl-C while recording reaches the recorded program, too; the recording
//! ends with it, and the trace is kept.
use super::sys;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// Seconds until an alarm, which counts as a second signal and ends the recorded program.
const GRACE: u32 = 3;

/// Signals that ask a program to end.
const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signal that says that the recorder's first process is gone.
pub(super) const ORPHANED: i32 = libc::SIGUSR1;

static COUNT: AtomicU32 = AtomicU32::new(0);
static IS_ORPHAN: AtomicBool = AtomicBool::new(false);
/// The process that signals are passed on to, or 0.
static TO: AtomicI32 = AtomicI32::new(0);
/// Whether a second signal follows the first one by itself.
static HURRIES: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    match signal {
        ORPHANED => return IS_ORPHAN.store(true, Ordering::SeqCst),
        libc::SIGCHLD => return,
        _ => {}
    }
    if COUNT.fetch_add(1, Ordering::SeqCst) == 0 && HURRIES.load(Ordering::SeqCst) {
        // SAFETY: alarm is async-signal-safe.
        unsafe { libc::alarm(GRACE) };
    }
    let to = TO.load(Ordering::SeqCst);
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let from_terminal = unsafe { (*info).si_code } > 0;
    // The terminal signals the whole process group itself.
    if to > 0 && !from_terminal && signal != libc::SIGALRM {
        sys::kill(to, signal);
    }
}

/// Installs the handler for signals, which interrupt system calls.
fn handle(signals: impl IntoIterator<Item = i32>) {
    for signal in signals {
        // SAFETY: a zeroed sigaction is valid. The handler makes only async-signal-safe calls
        // (atomics, alarm and kill).
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Catches the signals that ask a program to end and passes them on to `pid`: for the process that
/// waits for the recorder.
pub(super) fn relay_to(pid: i32) {
    pass_to(pid);
    handle(ENDING);
}

/// Catches signals in the process that records. A terminal's Ctrl-\ is for the program only.
pub(super) fn catch() {
    HURRIES.store(true, Ordering::SeqCst);
    handle(ENDING.into_iter().chain([libc::SIGALRM, ORPHANED]));
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGQUIT, libc::SIG_IGN) };
}

/// The signals that [`hold`] keeps back.
fn held() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initializes the set, sigaddset changes it; both get a valid pointer and
    // signals that exist.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in ENDING.into_iter().chain([libc::SIGALRM, ORPHANED, libc::SIGCHLD]) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Holds signals back in this thread and those that it starts, but while [`wait`] or a wait with
/// [`let_through`] lets them through. Ends of children are signals, too, from then on.
pub(super) fn hold() {
    handle([libc::SIGCHLD]);
    let held = held();
    // SAFETY: the call reads one set, which lives until it returns.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held, ptr::null_mut()) };
}

/// Ends [`hold`] in this thread. Async-signal-safe.
pub(super) fn release() {
    let held = held();
    // SAFETY: the call reads one set, which lives until it returns.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const held, ptr::null_mut()) };
}

/// The set of blocked signals with those taken out that [`hold`] keeps back.
pub(super) fn let_through() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: pthread_sigmask initializes the set with the thread's own; sigdelset changes it.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), set.as_mut_ptr());
        for signal in ENDING.into_iter().chain([libc::SIGALRM, ORPHANED, libc::SIGCHLD]) {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Waits for a signal that `unblocked` lets through.
pub(super) fn wait(unblocked: &libc::sigset_t) {
    // SAFETY: sigsuspend reads one set, which lives until it returns.
    unsafe { libc::sigsuspend(unblocked) };
}

/// Passes signals on to `pid` from now on, or to no process if it is 0.
pub(super) fn pass_to(pid: i32) {
    TO.store(pid, Ordering::SeqCst);
}

/// Returns how many signals that ask for the end have arrived.
pub(super) fn count() -> u32 {
    COUNT.load(Ordering::SeqCst)
}

/// Returns whether the process is gone that waits for this one.
pub(super) fn orphaned() -> bool {
    IS_ORPHAN.load(Ordering::SeqCst)
}
