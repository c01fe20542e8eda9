//! Signals to the recorder. Ctrl-C while recording reaches the recorded program, too; the recording
//! ends with it, and the trace is kept.
//!
//! ```text
//!  first signal     COUNT 0 -> 1, alarm in 3 s ──> passed on to the program: it ends by itself
//!  within 300 ms    the same signal again (group, and the other process) ──> counts once
//!  second, alarm    COUNT 1 -> 2 ──────────────> the recorder kills the program; the trace is kept
//!  ORPHANED         another parent? ───────────> the recording is abandoned, the program goes on
//! ```
//!
//! The command inherits the signal settings that the recorder was started with: a signal that is
//! ignored stays ignored, by the recorder itself as well (`nohup`, `trap '' INT`), and a signal
//! that is blocked stays blocked.
//!
//! # Why
//!
//! A terminal sends Ctrl-C to the whole group, `kill` sends it to one process. The program must get
//! it exactly once in both cases, so that the sender is looked at. The handler only counts and
//! passes on, because it may interrupt any code: the loops that wait for tasks look at the count. A
//! program that ignores the first signal would keep its user waiting, so a second one, or the
//! alarm, ends it.
use super::sys;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Seconds until an alarm, which counts as a second signal and ends the recorded program.
const GRACE: u32 = 3;

/// Milliseconds in which a signal counts once. A signal to a process group reaches both processes
/// of the recorder, and the first one passes it on to the second.
const SAME: u64 = 300;

/// Signals that ask a program to end.
const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signal that says that the recorder's first process is gone.
pub(crate) const ORPHANED: i32 = libc::SIGUSR1;

/// Signals without a meaning for the recorder, which they do not end. [`ORPHANED`] has one for its
/// second process, if it comes from the kernel.
const IGNORED: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

/// Signals that the recorder changes, and that the command finds as the recorder found them.
const CHANGED: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGALRM,
    libc::SIGCHLD,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Signal settings at the start of the recorder.
struct AtStart {
    /// The signals of [`CHANGED`] that are ignored, as bits.
    ignored: u64,
    blocked: libc::sigset_t,
}

static AT_START: OnceLock<AtStart> = OnceLock::new();

static COUNT: AtomicU32 = AtomicU32::new(0);
/// When the first signal arrived, in milliseconds.
static FIRST_AT: AtomicU64 = AtomicU64::new(0);
static IS_ORPHAN: AtomicBool = AtomicBool::new(false);
/// The recorder's first process.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// The process that signals are passed on to, or 0.
static TO: AtomicI32 = AtomicI32::new(0);
/// Whether a second signal follows the first one by itself.
static HURRIES: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    match signal {
        ORPHANED => {
            // Anybody can send this signal. The kernel does when there is another parent.
            let is_orphan = !is_child_of(PARENT.load(Ordering::SeqCst));
            return IS_ORPHAN.store(is_orphan, Ordering::SeqCst);
        }
        libc::SIGCHLD => return,
        _ => {}
    }
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let from_terminal = unsafe { (*info).si_code } > 0;
    if signal == libc::SIGQUIT {
        // A terminal's Ctrl-\ is for the program only. Anybody else means the recorder.
        if !from_terminal {
            // SAFETY: signal and raise are async-signal-safe. The signal arrives when this handler
            // has returned.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
        return;
    }
    if HURRIES.load(Ordering::SeqCst) {
        let now = milliseconds();
        if COUNT.load(Ordering::SeqCst) == 0 {
            FIRST_AT.store(now, Ordering::SeqCst);
            // SAFETY: alarm is async-signal-safe.
            unsafe { libc::alarm(GRACE) };
        } else if signal != libc::SIGALRM && now.saturating_sub(FIRST_AT.load(Ordering::SeqCst)) < SAME {
            return;
        }
    }
    COUNT.fetch_add(1, Ordering::SeqCst);
    let to = TO.load(Ordering::SeqCst);
    // The terminal signals the whole process group itself.
    if to > 0 && !from_terminal && signal != libc::SIGALRM {
        sys::kill(to, signal);
    }
}

/// Returns milliseconds on the monotonic clock. Async-signal-safe.
fn milliseconds() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which lives until it returns.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

/// Notes the signal settings at the start of the recorder. Ends of children are signals from then
/// on, whatever the setting was: the recorder waits for them. Signals of [`IGNORED`] are ignored.
pub(crate) fn remember() {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    let mut ignored = 0;
    // SAFETY: pthread_sigmask initializes the set; a zeroed sigaction is valid, and sigaction
    // writes one. Both live until the calls return.
    let blocked = unsafe {
        for signal in CHANGED {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, ptr::null(), &raw mut now);
            ignored |= u64::from(now.sa_sigaction == libc::SIG_IGN) << signal;
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), blocked.as_mut_ptr());
        blocked.assume_init()
    };
    let _ = AT_START.set(AtStart { ignored, blocked });
    // SAFETY: the default action runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    ignore(IGNORED);
}

/// Returns whether the recorder was started with this signal ignored.
fn was_ignored(signal: i32) -> bool {
    AT_START.get().is_some_and(|start| start.ignored >> signal & 1 != 0)
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

/// The signals that ask for the end and were not ignored at the start.
fn ending() -> impl Iterator<Item = i32> {
    ENDING.into_iter().filter(|signal| !was_ignored(*signal))
}

/// Catches the signals that ask a program to end and passes them on to `pid`: for the process that
/// waits for the recorder.
pub(crate) fn relay_to(pid: i32) {
    pass_to(pid);
    handle(ending().chain(Some(libc::SIGQUIT).filter(|signal| !was_ignored(*signal))));
}

/// Catches signals in the process that records, a child of `parent`. A terminal's Ctrl-\ is for the
/// program only.
pub(crate) fn catch(parent: u32) {
    HURRIES.store(true, Ordering::SeqCst);
    PARENT.store(parent, Ordering::SeqCst);
    ignore([libc::SIGQUIT]);
    handle(ending().chain([libc::SIGALRM, ORPHANED]));
}

fn ignore(signals: impl IntoIterator<Item = i32>) {
    for signal in signals {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Returns whether a process is this one's parent. Async-signal-safe.
pub(crate) fn is_child_of(process: u32) -> bool {
    rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == process as i32)
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
pub(crate) fn hold() {
    handle([libc::SIGCHLD]);
    let held = held();
    // SAFETY: the call reads one set, which lives until it returns.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held, ptr::null_mut()) };
}

/// Lets ends of children interrupt system calls, as other signals do.
pub(crate) fn interrupts() {
    handle([libc::SIGCHLD]);
}

/// Restores the signal settings from the start of the recorder. Async-signal-safe.
pub(crate) fn restore() {
    let action = |signal| if was_ignored(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither action runs code. The mask is set from one set, which lives until the call
    // returns.
    unsafe {
        for signal in CHANGED {
            libc::signal(signal, action(signal));
        }
        // Rust's runtime ignores it before anybody can ask.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if let Some(start) = AT_START.get() {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const start.blocked, ptr::null_mut());
        }
    }
}

/// The set of blocked signals with those taken out that [`hold`] keeps back.
pub(crate) fn let_through() -> libc::sigset_t {
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
pub(crate) fn wait(unblocked: &libc::sigset_t) {
    // SAFETY: sigsuspend reads one set, which lives until it returns.
    unsafe { libc::sigsuspend(unblocked) };
}

/// Returns a length of time as the kernel takes it.
pub(crate) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

/// Waits for a signal that `unblocked` lets through, or until one of the descriptors is readable,
/// at most so long.
pub(crate) fn wait_for(unblocked: &libc::sigset_t, descriptors: &[RawFd], most: Duration) {
    let most = timespec(most);
    let poll = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls: Vec<libc::pollfd> = descriptors.iter().map(poll).collect();
    let count = polls.len() as libc::nfds_t;
    // SAFETY: ppoll reads and writes `count` descriptors, and reads one timespec and one set, which
    // live until it returns.
    unsafe { libc::ppoll(polls.as_mut_ptr(), count, &raw const most, unblocked) };
}

/// Passes signals on to `pid` from now on, or to no process if it is 0.
pub(crate) fn pass_to(pid: i32) {
    TO.store(pid, Ordering::SeqCst);
}

/// Returns how many signals that ask for the end have arrived.
pub(crate) fn count() -> u32 {
    COUNT.load(Ordering::SeqCst)
}

/// Returns whether the process is gone that waits for this one.
pub(crate) fn orphaned() -> bool {
    IS_ORPHAN.load(Ordering::SeqCst)
}
