//! Starting a program so that its system calls can be looked at.
use crate::linux::system::notify::Listener;
use crate::linux::system::signals;
use crate::linux::system::sys::{self, POPULATES};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

/// The action of a task at the system calls that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtCalls {
    /// It stops for its tracer.
    Stop,
    /// It waits for the listener.
    Ask,
}

/// Everything that the start of a program needs, prepared before the fork. Between fork and execve,
/// a process with threads may make hardly any call.
pub(crate) struct ProgramStart {
    args: Vec<CString>,
    /// The filter of the calls that are looked at.
    pub(crate) filter: Vec<libc::sock_filter>,
    at_calls: AtCalls,
    no_new_privileges: bool,
}

/// A started program that waits for its release.
pub(crate) struct Started {
    /// Its process number.
    pub(crate) pid: i32,
    go: OwnedFd,
    failed: OwnedFd,
    listener: OwnedFd,
}

impl ProgramStart {
    /// Prepares a program with its arguments. `calls` are the system calls that are looked at.
    pub(crate) fn new(
        command: &[OsString],
        at_calls: AtCalls,
        calls: &[i64],
        no_new_privileges: bool,
    ) -> io::Result<Self> {
        let args = command.iter().map(|a| CString::new(a.as_bytes())).collect::<Result<_, _>>()?;
        let op = |code: u32, k: u32, jt: usize, jf: u8| libc::sock_filter {
            code: code as u16,
            jt: jt as u8,
            jf,
            k,
        };
        let action = match at_calls {
            AtCalls::Stop => libc::SECCOMP_RET_TRACE,
            AtCalls::Ask => libc::SECCOMP_RET_USER_NOTIF,
        };
        // A task without a tracer could make none of the calls that stop for it.
        let traced = at_calls == AtCalls::Stop;
        let mut filter = vec![
            // 32-bit system calls have other numbers. They are allowed.
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 4, 0, 0),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0xc000_003e, 1, 0),
            op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        ];
        let allow = op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0);
        let look = op(libc::BPF_RET | libc::BPF_K, action, 0, 0);
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        for call in calls {
            filter.extend([op(equal, *call as u32, 0, 1), look]);
        }
        let test = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
        if traced {
            // `clone3` has its flags in memory, `clone` has them as argument 0.
            filter.extend([
                op(equal, libc::SYS_clone3 as u32, 0, 1),
                look,
                op(equal, libc::SYS_clone as u32, 0, 4),
                op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 16, 0, 0),
                op(test, libc::CLONE_UNTRACED as u32, 0, 1),
                look,
                allow,
            ]);
        }
        // Of `madvise`, the advice that makes pages present, in argument 2.
        let [read, write] = sys::POPULATING;
        filter.extend([
            op(equal, libc::SYS_madvise as u32, 0, 5),
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 16 + 2 * 8, 0, 0),
            op(equal, read as u32, 1, 0),
            op(equal, write as u32, 0, 1),
            look,
            allow,
        ]);
        // Of `mmap`, the calls that make pages of a file present; the flags are argument 3.
        filter.extend([
            op(equal, libc::SYS_mmap as u32, 0, 4),
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 16 + 3 * 8, 0, 0),
            op(test, libc::MAP_ANONYMOUS as u32, 2, 0),
            op(test, POPULATES as u32, 0, 1),
            look,
            allow,
        ]);
        Ok(Self { args, filter, at_calls, no_new_privileges })
    }

    /// Forks. The child waits for [`Started::release`].
    pub(crate) fn fork(&self) -> io::Result<Started> {
        let (go_read, go) = pipe()?;
        let (failed, failed_write) = pipe()?;
        let (listener, listener_write) = pipe()?;
        let mut argv: Vec<*const libc::c_char> = self.args.iter().map(|a| a.as_ptr()).collect();
        argv.push(std::ptr::null());
        let program =
            libc::sock_fprog { len: self.filter.len() as u16, filter: self.filter.as_ptr().cast_mut() };
        // SAFETY: the child makes only the async-signal-safe calls of `child` and never returns
        // from it.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: 1. this is the child of a fork, which never drops the closed descriptors. 2.
            // `argv` ends in a null pointer. It and `program` point into `self` and this frame,
            // which live in the child too.
            unsafe {
                libc::close(go.as_raw_fd());
                libc::close(listener.as_raw_fd());
                let pipes = [go_read.as_raw_fd(), failed_write.as_raw_fd(), listener_write.as_raw_fd()];
                child(&argv, &program, self, pipes)
            }
        }
        sys::ok(pid.into())?;
        Ok(Started { pid, go, failed, listener })
    }
}

impl Started {
    /// Releases the program. From here on it stops for its tracer.
    pub(crate) fn release(&self) -> io::Result<()> {
        let one = [1u8];
        // SAFETY: `write` reads one byte, which lives until the call returns.
        sys::ok(unsafe { libc::write(self.go.as_raw_fd(), one.as_ptr().cast(), 1) } as libc::c_long).map(drop)
    }

    /// Releases the program as far as its filter, and returns the filter's listener; `None` if the
    /// filter was refused. [`release`](Self::release) then starts the program.
    pub(crate) fn listen(&self) -> io::Result<Option<Listener>> {
        self.release()?;
        let mut number = [0; 4];
        if read(self.listener.as_raw_fd(), &mut number)? != number.len() {
            return Ok(None);
        }
        Listener::of(self.pid, RawFd::from_ne_bytes(number)).map(Some)
    }

    /// Returns why the program could not be started, once its process has ended: the step and the
    /// error.
    pub(crate) fn why_failed(&self) -> Option<(u8, io::Error)> {
        let mut b = [0u8; 5];
        // The writing end is closed in every other process.
        let n = read(self.failed.as_raw_fd(), &mut b).ok()?;
        (n == 5).then(|| (b[0], io::Error::from_raw_os_error(i32::from_ne_bytes([b[1], b[2], b[3], b[4]]))))
    }
}

/// Reads once, however often a signal interrupts.
fn read(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: `read` writes at most as many bytes as the buffer has.
        let n = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
        match sys::ok(n as libc::c_long) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|n| n as usize),
        }
    }
}

/// The step that failed was execve itself.
pub(crate) const STEP_EXEC: u8 = 3;

/// Runs in the child between fork and execve.
///
/// # Safety
/// 1. The caller is the child of a fork.
/// 2. `argv` ends in a null pointer, and `filter` points to a valid program.
unsafe fn child(
    argv: &[*const libc::c_char],
    filter: &libc::sock_fprog,
    start: &ProgramStart,
    [go, failed, listener]: [RawFd; 3],
) -> ! {
    let fail = |step: u8| -> ! {
        let e = io::Error::last_os_error().raw_os_error().unwrap_or(0).to_ne_bytes();
        let b = [step, e[0], e[1], e[2], e[3]];
        // SAFETY: write and _exit are async-signal-safe, and the buffer lives until the call
        // returns.
        unsafe {
            libc::write(failed, b.as_ptr().cast(), b.len());
            libc::_exit(127)
        }
    };
    let wait = || {
        let mut byte = 0u8;
        // SAFETY: read and _exit are async-signal-safe, and the byte lives until the call returns.
        unsafe {
            if libc::read(go, (&raw mut byte).cast(), 1) != 1 {
                libc::_exit(127);
            }
        }
    };
    wait();
    // SAFETY: all calls are async-signal-safe and get pointers that live until they return; `argv`
    // and `filter` are valid by point 2 of the contract.
    unsafe {
        signals::restore();
        if start.no_new_privileges && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            fail(1);
        }
        let flags = match start.at_calls {
            AtCalls::Stop => 0,
            // From the moment on at which its call is looked at, only a fatal signal ends the wait.
            AtCalls::Ask => {
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
            }
        };
        let set = libc::SECCOMP_SET_MODE_FILTER;
        let number = libc::syscall(libc::SYS_seccomp, set, flags, std::ptr::from_ref(filter));
        if number < 0 {
            fail(2);
        }
        if start.at_calls == AtCalls::Ask {
            let number = (number as RawFd).to_ne_bytes();
            libc::write(listener, number.as_ptr().cast(), number.len());
            wait();
        }
        libc::execvp(argv[0], argv.as_ptr());
    }
    fail(STEP_EXEC)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: pipe2 writes two ints, to an array that lives until the call returns.
    sys::ok(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    // SAFETY: the call succeeded, so both descriptors are open, and these are their only owners.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}
