//! Signal handlers: installing them, calling those that were there before, restoring those.
//!
//! ```text
//!  put_in    previous = current action, Release ──> sigaction(ours)
//!  fault     on_fault ── step, emulate: ours ──> handled
//!               └─ not ours ── chain: previous, Acquire ──> with the mask that it asked for
//!  put_back  the action is still ours? ── yes ──> sigaction(previous)
//!               └─ no: a foreign handler may call ours, which stays and passes all on
//! ```
//!
//! # Why
//!
//! A sanitizer must not change how a program crashes: a fault of other code goes on as if this
//! handler did not exist. The previous action is known before the handler is installed, because a
//! fault of another thread may come at once. It is never freed: a handler on another thread may be
//! reading it, and no lock may be taken there. That leaks one action for each change of a foreign
//! handler.
use super::registers::{KeepErrno, Registers, SYNCHRONOUS, bit};
use super::{emulate, step};
use crate::watch::error::Error;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering::*};
use std::sync::{Mutex, PoisonError};

type SignalHandler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// A signal, its handler, and the action that this replaced.
struct Handled {
    signal: c_int,
    handler: SignalHandler,
    flags: c_int,
    /// Never freed while the handler is installed, and only reused afterwards: a handler on another
    /// thread may be reading it.
    previous: AtomicPtr<libc::sigaction>,
}

static HANDLED: [Handled; 3] = [
    // On the alternate stack, because the previous handler may need it: a stack overflow raises
    // this signal.
    Handled {
        signal: libc::SIGSEGV,
        handler: on_fault,
        flags: libc::SA_ONSTACK,
        previous: AtomicPtr::new(null_mut()),
    },
    // An instruction that this processor does not have.
    Handled {
        signal: libc::SIGILL,
        handler: on_fault,
        flags: libc::SA_ONSTACK,
        previous: AtomicPtr::new(null_mut()),
    },
    // On the thread's own stack: the sanitizer runs here.
    Handled { signal: libc::SIGTRAP, handler: on_trap, flags: 0, previous: AtomicPtr::new(null_mut()) },
];

/// The number of watches.
static USERS: Mutex<usize> = Mutex::new(0);

/// Keeps the handlers installed while it lives.
pub(super) struct Installed(());

impl Installed {
    pub(super) fn new() -> Result<Self, Error> {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        if *users == 0 {
            for (i, slot) in HANDLED.iter().enumerate() {
                if let Err(e) = slot.put_in() {
                    HANDLED[..i].iter().for_each(Handled::put_back);
                    return Err(e);
                }
            }
        }
        *users += 1;
        Ok(Self(()))
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        *users -= 1;
        if *users == 0 {
            HANDLED.iter().for_each(Handled::put_back);
        }
    }
}

impl Handled {
    fn current(&self) -> Result<libc::sigaction, Error> {
        let mut now = MaybeUninit::uninit();
        // SAFETY: without a new action the call only writes the present one to `now`.
        let failed = unsafe { libc::sigaction(self.signal, null(), now.as_mut_ptr()) } != 0;
        if failed {
            return Err(last_error());
        }
        // SAFETY: the call succeeded and filled it in.
        Ok(unsafe { now.assume_init() })
    }

    fn put_in(&self) -> Result<(), Error> {
        let now = self.current()?;
        if now.sa_sigaction == self.handler as *const () as usize {
            // It could not be restored last time, because a foreign handler stood before it.
            return Ok(());
        }
        let before = self.previous.load(Acquire);
        // SAFETY: never freed, and only replaced under the lock that `Installed` holds.
        if before.is_null() || !same(unsafe { &*before }, &now) {
            // It must be known before the handler is installed. It is leaked, because a handler may
            // be reading the old one.
            self.previous.store(Box::into_raw(Box::new(now)), Release);
        }
        // SAFETY: all zero is a valid action: the default one.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        ours.sa_sigaction = self.handler as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | self.flags;
        // SAFETY: 1. `ours` is a complete action. 2. The handler passes every signal on to the
        // previous one, which is known by now, unless a store to a watched region raised it.
        unsafe {
            libc::sigfillset(&raw mut ours.sa_mask);
            for signal in (1..64).filter(|&s| SYNCHRONOUS & bit(s) != 0) {
                libc::sigdelset(&raw mut ours.sa_mask, signal);
            }
            if libc::sigaction(self.signal, &raw const ours, null_mut()) != 0 {
                return Err(last_error());
            }
        }
        Ok(())
    }

    /// Restores the previous action, unless a foreign handler was installed later. That one may
    /// call this handler, which stays and passes everything on.
    fn put_back(&self) {
        let previous = self.previous.load(Acquire);
        let ours = self.current().is_ok_and(|now| now.sa_sigaction == self.handler as *const () as usize);
        if ours && !previous.is_null() {
            // SAFETY: the action was read from the system and is installed again as it was.
            unsafe { libc::sigaction(self.signal, previous, null_mut()) };
        }
    }
}

fn same(a: &libc::sigaction, b: &libc::sigaction) -> bool {
    // SAFETY: both sets are initialised; the call only reads them.
    let in_set = |set: &libc::sigset_t, signal| unsafe { libc::sigismember(set, signal) };
    a.sa_sigaction == b.sa_sigaction
        && a.sa_flags == b.sa_flags
        && (1..64).all(|s| in_set(&a.sa_mask, s) == in_set(&b.sa_mask, s))
}

fn last_error() -> Error {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Error::System { call: "sigaction", errno }
}

/// Handles `SIGSEGV` and `SIGILL`.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = KeepErrno::new();
    // SAFETY: the kernel calls this as a handler with `SA_SIGINFO`, so both pointers are valid
    // while it runs.
    let (info_now, at) = unsafe { (&*info, &mut Registers::new(context)) };
    let ours = signal == libc::SIGSEGV && step::fault(info_now, at) || emulate::fault(info_now, at);
    if !ours {
        // SAFETY: the arguments are those of this handler, which returns next.
        unsafe { chain(signal, info, context) };
    }
}

/// Handles `SIGTRAP`. Its name is where a backtrace is cut ([`crate::watch::FoundAt`]).
unsafe extern "C" fn on_trap(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = KeepErrno::new();
    // SAFETY: as in `on_fault`.
    let (info_now, at) = unsafe { (&*info, &mut Registers::new(context)) };
    let ours = step::trap(info_now, at) || emulate::trap(at);
    if !ours {
        // SAFETY: the arguments are those of this handler, which returns next.
        unsafe { chain(signal, info, context) };
    }
}

/// Passes a signal on to the handler that was installed before, as if this one did not exist.
///
/// # Safety
/// The arguments are those of a signal handler that is running now, and it returns after this call.
unsafe fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(slot) = HANDLED.iter().find(|s| s.signal == signal) else { return };
    let previous = slot.previous.load(Acquire);
    // SAFETY: the handler was installed after `previous` was stored, which is never freed.
    let Some(previous) = (unsafe { previous.as_ref() }) else { return };
    // SAFETY: the caller guarantees that the arguments are those of a handler.
    let by_kernel = unsafe { (*info).si_code } > 0;
    match previous.sa_sigaction {
        libc::SIG_IGN if !by_kernel => {}
        // The kernel does not let a process ignore a fault.
        libc::SIG_DFL | libc::SIG_IGN => {
            if signal == libc::SIGTRAP {
                // SAFETY: the caller guarantees that the arguments are those of a handler.
                unsafe { step::say_unexplained(&*info, &Registers::new(context)) };
            }
            // SAFETY: all zero is the default action.
            let default: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: the default action runs no code of this process. A fault is raised again when
            // the handler returns to the instruction, with everything as it was for the core dump.
            // Other signals are sent again.
            unsafe {
                libc::sigaction(signal, &raw const default, null_mut());
                if !by_kernel || signal == libc::SIGTRAP {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            let mut set = previous.sa_mask;
            // SAFETY: 1. The sets are initialised. 2. Until this handler returns and the mask is
            // restored, the blocked signals are those of the interrupted code and those that the
            // previous handler asked for.
            unsafe {
                if previous.sa_flags & libc::SA_NODEFER == 0 {
                    libc::sigaddset(&raw mut set, signal);
                }
                let blocked = Registers::new(context).mask();
                for s in (1..64).filter(|&s| blocked & bit(s) != 0) {
                    libc::sigaddset(&raw mut set, s);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, null_mut());
            }
            if previous.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: with `SA_SIGINFO` it is a function of this type, and the arguments are
                // those of a handler.
                unsafe { std::mem::transmute::<usize, SignalHandler>(handler)(signal, info, context) };
            } else {
                // SAFETY: without `SA_SIGINFO` it is a function of this type.
                unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler)(signal) };
            }
        }
    }
}
