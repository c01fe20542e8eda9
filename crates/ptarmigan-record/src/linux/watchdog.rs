//! Splits the command into two processes, which watch each other: the one that the user sees waits,
//! the other one records.
//!
//! # The protocol
//!
//! 1. The first process splits, before it has a second thread, and waits for its child.
//! 2. The recorder tells the first where it finds the listener of the command's system calls. The
//!    first keeps it open.
//! 3. The recorder notes in shared memory which call it is answering.
//! 4. If the first is killed, the kernel sends the recorder a signal: it stops recording, cleans
//!    up, and lets the command go on. If the recorder is killed, the first cleans up and answers
//!    the system calls that wait, until the command has ended. If both are, the next recorder
//!    cleans up.
//!
//! ```text
//!  user ── Ctrl-C ──> first ── relay_to ──> recorder ── listener ──> command
//!                       │ split, waitpid        │                      │ a call waits
//!                       │                       └─ ANSWERING = id ─────┤
//!                       └─ recorder killed: clean_up, answer_all ──────┘ the call goes on
//! ```
//!
//! # Why
//!
//! A command whose system calls wait for the recorder would stop for ever if the recorder died: the
//! kernel gives a call that nobody answers no way to go on. A recorder must not be able to do that
//! to a program, so that a second process holds the listener. It does very little, so that it has
//! no reason to fail. The call that was being answered must be known, because it is no longer in
//! the listener's queue.
use super::system::notify::{self, Listener, Ready};
use super::system::signals;
use ptarmigan_term::print;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The call that is being answered, in memory that both processes share; 0 without such a call.
static ANSWERING: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The number of the process that waits.
static FIRST: AtomicU32 = AtomicU32::new(0);

/// Returns the number of the process that waits, by which the user knows the recorder.
pub(crate) fn number() -> u32 {
    FIRST.load(Ordering::SeqCst)
}

/// The role of this process.
pub(crate) enum Role {
    /// The one that waits; the recording has ended with this status.
    Waited(ExitCode),
    /// The one that records.
    Recorder(Link),
}

/// The way to the process that waits.
pub(crate) struct Link(File);

/// Splits the process in two. Must be called while it has one thread. If the recorder is killed,
/// a message ends with `recorded`, and `clean_up` is called.
pub(crate) fn split(recorded: &str, clean_up: impl FnOnce()) -> io::Result<Role> {
    signals::remember();
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps no other. It is never
    // unmapped.
    let page = unsafe {
        mmap_anonymous(ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    }?;
    ANSWERING.store(page.cast(), Ordering::SeqCst);
    let first = std::process::id();
    FIRST.store(first, Ordering::SeqCst);
    // SAFETY: the process has one thread, so the child may do whatever it could.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid > 0 {
        drop(write);
        return Ok(Role::Waited(wait_for(pid, read, recorded, clean_up)));
    }
    drop(read);
    // Before the kernel is asked to send the signal, which would end this process.
    signals::catch(first);
    // SAFETY: both requests take numbers or a string with its end, and keep no pointer.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signals::ORPHANED);
        libc::prctl(libc::PR_SET_NAME, c"recorder".as_ptr());
    }
    if !signals::is_child_of(first) {
        return Err(io::Error::other("the recorder was killed at its start"));
    }
    Ok(Role::Recorder(Link(File::from(write))))
}

/// Notes which call is being answered.
pub(crate) fn answering(id: Option<u64>) {
    let page = ANSWERING.load(Ordering::Relaxed);
    // SAFETY: a pointer that is not null is to a page of shared memory that is never unmapped;
    // every bit pattern is a valid number.
    if let Some(page) = unsafe { page.as_ref() } {
        page.store(id.unwrap_or(0), Ordering::SeqCst);
    }
}

impl Link {
    /// Tells the process that waits where it finds the listener, which it keeps open from then on.
    pub(crate) fn keep(mut self, listener: &Listener) -> io::Result<()> {
        self.0.write_all(&listener.number().to_ne_bytes())
    }
}

/// Waits for the process that records.
fn wait_for(recorder: i32, link: OwnedFd, recorded: &str, clean_up: impl FnOnce()) -> ExitCode {
    signals::relay_to(recorder);
    let mut number = [0; 4];
    // A recorder that fails early, or needs no listener, closes its end.
    let listener = File::from(link).read_exact(&mut number).ok();
    let listener = listener.and_then(|()| Listener::of(recorder, RawFd::from_ne_bytes(number)).ok());
    let mut status = 0;
    // SAFETY: waitpid writes one int, to a variable that lives until the call returns.
    while unsafe { libc::waitpid(recorder, &raw mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    let code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        let signal = libc::WTERMSIG(status);
        print::error(&format!("the recorder was ended by signal {signal}; {recorded}"));
        clean_up();
        128 + signal
    };
    if let Some(listener) = listener {
        answer_all(&listener);
    }
    ExitCode::from(code as u8)
}

/// Lets all calls go on, until nobody is left to make one.
fn answer_all(listener: &Listener) {
    let page = ANSWERING.load(Ordering::Relaxed);
    // SAFETY: as in `answering`.
    let id = unsafe { page.as_ref() }.map_or(0, |page| page.load(Ordering::SeqCst));
    if id != 0 {
        listener.go_on(id);
    }
    let unblocked = signals::let_through();
    loop {
        match notify::wait(listener, &unblocked, None) {
            Ok(Ready::Call) => {
                if let Ok(Some(call)) = listener.receive() {
                    listener.go_on(call.id);
                }
            }
            Ok(Ready::Signal) => {}
            Ok(Ready::NobodyLeft) | Err(_) => return,
        }
    }
}
