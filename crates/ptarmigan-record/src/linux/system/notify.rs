//! System calls that wait for the recorder (seccomp's user notifications).
//!
//! A task waits in such a call until it is answered, in every state of the task: nobody has to
//! trace it. The calls of a task whose listener is gone fail, so the listener is kept by two
//! processes.
use super::signals;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// A system call that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingCall {
    pub(crate) id: u64,
    pub(crate) pid: i32,
    pub(crate) number: i64,
    pub(crate) args: [u64; 6],
}

/// The receiving end of a filter.
pub(crate) struct Listener(OwnedFd);

fn ok(r: libc::c_int) -> io::Result<()> {
    if r == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// Takes the listener that process `pid` has open as `fd`.
    pub(crate) fn of(pid: i32, fd: RawFd) -> io::Result<Self> {
        use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self(pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?))
    }

    /// The number of its descriptor in this process.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Receives the next call. `None` if the task ended meanwhile, or a signal arrived.
    pub(crate) fn receive(&self) -> io::Result<Option<WaitingCall>> {
        let mut call = MaybeUninit::<libc::seccomp_notif>::zeroed();
        // SAFETY: the request writes one seccomp_notif, to a zeroed buffer of that size that lives
        // until the call returns.
        let done =
            ok(unsafe { libc::ioctl(self.number(), libc::SECCOMP_IOCTL_NOTIF_RECV, call.as_mut_ptr()) });
        match done {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => return Ok(None),
            other => other?,
        }
        // SAFETY: the request succeeded, and every bit pattern is a valid seccomp_notif.
        let call = unsafe { call.assume_init() };
        let (pid, number) = (call.pid as i32, i64::from(call.data.nr));
        Ok(Some(WaitingCall { id: call.id, pid, number, args: call.data.args }))
    }

    /// Lets a call go on as if nobody had asked. A task that has ended meanwhile is no error.
    pub(crate) fn go_on(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: the request reads one seccomp_notif_resp, which lives until the call returns.
        let _ = unsafe { libc::ioctl(self.number(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    }
}

/// An event of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A call waits.
    Call,
    /// No task is left that could make one.
    NobodyLeft,
    /// A signal arrived, or the time has passed.
    Signal,
}

/// Waits for a call, or for one of the signals that `signals` lets through, or until the time
/// `most` has passed, which counts as a signal.
pub(crate) fn wait(
    listener: &Listener,
    signals: &libc::sigset_t,
    most: Option<Duration>,
) -> io::Result<Ready> {
    let most = most.map(signals::timespec);
    let most = most.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut fd = libc::pollfd { fd: listener.number(), events: libc::POLLIN, revents: 0 };
    // SAFETY: ppoll reads and writes one pollfd, and reads one signal set and one timespec or none;
    // all live until it returns.
    let done = unsafe { libc::ppoll(&raw mut fd, 1, most, signals) };
    if done == 0 {
        return Ok(Ready::Signal);
    }
    match ok(done) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(Ready::Signal),
        Err(e) => Err(e),
        Ok(()) if fd.revents & libc::POLLIN != 0 => Ok(Ready::Call),
        Ok(()) => Ok(Ready::NobodyLeft),
    }
}
