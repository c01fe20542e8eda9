//! System calls without a safe wrapper elsewhere: ptrace, waiting for its stops, and starting a
//! program under it.
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Returns the nanoseconds on the clock of all sources (`CLOCK_MONOTONIC`).
pub(super) fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn ok(r: libc::c_long) -> io::Result<libc::c_long> {
    if r == -1 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

/// Makes a ptrace request whose `data` is a number.
fn ptrace(request: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made through this function (SEIZE, CONT, SYSCALL, LISTEN) reads
    // or writes memory of this process: `data` is a signal number or a set of options.
    ok(unsafe { libc::ptrace(request, pid, 0usize, data) }).map(drop)
}

/// Starts to trace `pid` and everything it creates.
pub(super) fn seize(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Resumes a stopped task, with a signal or 0.
pub(super) fn resume(pid: i32, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT, pid, signal as usize)
}

/// Resumes a stopped task until the end of its system call.
pub(super) fn resume_to_syscall(pid: i32, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SYSCALL, pid, signal as usize)
}

/// Leaves a task stopped that a signal such as `SIGSTOP` has stopped, until it is continued.
pub(super) fn listen(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_LISTEN, pid, 0)
}

/// Returns the number that came with a ptrace event: the new task of a clone, or the old number of
/// a task that called execve.
pub(super) fn event_message(pid: i32) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: GETEVENTMSG writes one unsigned long, to a variable that lives until the call
    // returns.
    ok(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0usize, &raw mut message) })?;
    Ok(message)
}

/// Returns the registers of a stopped task.
pub(super) fn registers(pid: i32) -> io::Result<libc::user_regs_struct> {
    let mut regs = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: GETREGS writes one user_regs_struct, to a buffer of that size that lives until the
    // call returns.
    ok(unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0usize, regs.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, and every bit pattern, zeros included, is a valid
    // user_regs_struct.
    Ok(unsafe { regs.assume_init() })
}

/// Returns one word of a stopped task's memory.
pub(super) fn peek(pid: i32, address: u64) -> io::Result<u64> {
    let mut word: libc::c_long = 0;
    // SAFETY: the raw system call writes one long to `word`. `address` is used in the other process
    // only.
    let r = unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, pid, address as usize, &raw mut word)
    };
    ok(r)?;
    Ok(word as u64)
}

/// Returns the ranges of an array of `iovec` in a stopped task's memory, as address and bytes.
pub(super) fn ranges(pid: i32, at: u64, count: u64) -> Vec<(u64, u64)> {
    // The kernel takes no more either.
    let entries = (0..count.min(1024)).map(|n| at.wrapping_add(n * 16));
    entries.map_while(|at| Some((peek(pid, at).ok()?, peek(pid, at.wrapping_add(8)).ok()?))).collect()
}

/// Waits for the next stop or exit of a traced task. Returns `None` if no task is left.
pub(super) fn wait() -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // SAFETY: waitpid writes one int, to a variable that lives until the call returns.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
    if pid > 0 {
        return Ok(Some((pid, status)));
    }
    let e = io::Error::last_os_error();
    if e.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(e) }
}

/// Sends a signal. A task that is gone is not an error.
pub(super) fn kill(pid: i32, signal: i32) {
    // SAFETY: kill takes two numbers and accesses no memory.
    unsafe { libc::kill(pid, signal) };
}

/// A run of pages with the same categories (`struct page_region`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct PageRegion {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) categories: u64,
}

impl PageRegion {
    pub(super) const FILE: u64 = 1 << 2;
    const PRESENT: u64 = 1 << 3;
    const SWAPPED: u64 = 1 << 4;
    pub(super) const ZERO: u64 = 1 << 5;
    pub(super) const HUGE: u64 = 1 << 6;
}

/// What `PAGEMAP_SCAN` reads and writes (`struct pm_scan_arg`).
#[repr(C)]
struct ScanRequest {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;

/// Finds pages in `start..end` that are present or swapped out, through `/proc/PID/pagemap`. Fills
/// `regions` from its beginning; returns how many, and the address at which the scan ended.
pub(super) fn scan_pages(
    map: &std::fs::File,
    start: u64,
    end: u64,
    regions: &mut [PageRegion],
) -> io::Result<(usize, u64)> {
    let mut request = ScanRequest {
        size: size_of::<ScanRequest>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: 0,
        category_anyof_mask: PageRegion::PRESENT | PageRegion::SWAPPED,
        return_mask: PageRegion::FILE | PageRegion::ZERO | PageRegion::HUGE,
    };
    // SAFETY: the kernel reads and writes one request of the size it says, and at most `vec_len`
    // regions at `vec`; both live until the call returns, and all their bit patterns are valid.
    let filled = ok(unsafe { libc::ioctl(map.as_raw_fd(), PAGEMAP_SCAN, &raw mut request) }.into())?;
    Ok((filled as usize, request.walk_end))
}

/// Flags of `mmap` that make pages present.
const POPULATES: i32 = libc::MAP_POPULATE | libc::MAP_LOCKED;

/// Returns whether a call of `mmap` with these flags makes pages of a file present.
pub(super) fn populates_file(flags: u64) -> bool {
    flags & libc::MAP_ANONYMOUS as u64 == 0 && flags & POPULATES as u64 != 0
}

/// Everything that the start of a program needs, prepared before the fork. Between fork and execve,
/// a process with threads may make hardly any call.
pub(super) struct Start {
    args: Vec<CString>,
    filter: Vec<libc::sock_filter>,
    no_new_privileges: bool,
}

/// A started program that waits for its release.
pub(super) struct Started {
    /// Its process number.
    pub(super) pid: i32,
    go: OwnedFd,
    failed: OwnedFd,
}

impl Start {
    /// Prepares a program with its arguments. The program stops for its tracer at the system calls
    /// in `traced`.
    pub(super) fn new(command: &[String], traced: &[i64], no_new_privileges: bool) -> io::Result<Self> {
        let args = command.iter().map(|a| CString::new(a.as_str())).collect::<Result<_, _>>()?;
        let op = |code: u32, k: u32, jt: usize, jf: u8| libc::sock_filter {
            code: code as u16,
            jt: jt as u8,
            jf,
            k,
        };
        let mut filter = vec![
            // 32-bit system calls have other numbers. They are allowed.
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 4, 0, 0),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0xc000_003e, 1, 0),
            op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        ];
        let allow = op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0);
        let trace = op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRACE, 0, 0);
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        for call in traced {
            filter.extend([op(equal, *call as u32, 0, 1), trace]);
        }
        // Of `mmap`, the calls that make pages of a file present; the flags are argument 3.
        let test = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
        filter.extend([
            op(equal, libc::SYS_mmap as u32, 0, 4),
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 16 + 3 * 8, 0, 0),
            op(test, libc::MAP_ANONYMOUS as u32, 2, 0),
            op(test, POPULATES as u32, 0, 1),
            trace,
            allow,
        ]);
        Ok(Self { args, filter, no_new_privileges })
    }

    /// Forks. The child waits for [`Started::release`].
    pub(super) fn fork(&self) -> io::Result<Started> {
        let (go_read, go) = pipe()?;
        let (failed, failed_write) = pipe()?;
        let mut argv: Vec<*const libc::c_char> = self.args.iter().map(|a| a.as_ptr()).collect();
        argv.push(std::ptr::null());
        let program =
            libc::sock_fprog { len: self.filter.len() as u16, filter: self.filter.as_ptr().cast_mut() };
        // SAFETY: the child makes only the async-signal-safe calls of `child` and never returns
        // from it.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: this is the child of a fork, which never drops the closed descriptor. `argv`
            // ends in a null pointer. It and `program` point into `self` and this frame, which live
            // in the child too.
            unsafe {
                libc::close(go.as_raw_fd());
                child(&argv, &program, self.no_new_privileges, go_read.as_raw_fd(), failed_write.as_raw_fd())
            }
        }
        ok(pid.into())?;
        Ok(Started { pid, go, failed })
    }
}

impl Started {
    /// Releases the program. From here on it stops for its tracer.
    pub(super) fn release(&self) -> io::Result<()> {
        let one = [1u8];
        // SAFETY: `write` reads one byte, which lives until the call returns.
        ok(unsafe { libc::write(self.go.as_raw_fd(), one.as_ptr().cast(), 1) } as libc::c_long).map(drop)
    }

    /// Returns why the program could not be started, once its process has ended: the step and the
    /// error.
    pub(super) fn why_failed(&self) -> Option<(u8, io::Error)> {
        let mut b = [0u8; 5];
        // SAFETY: `read` writes at most as many bytes as the buffer has. The writing end is closed
        // in every other process.
        let n = unsafe { libc::read(self.failed.as_raw_fd(), b.as_mut_ptr().cast(), b.len()) };
        (n == 5).then(|| (b[0], io::Error::from_raw_os_error(i32::from_ne_bytes([b[1], b[2], b[3], b[4]]))))
    }
}

/// The step that failed was execve itself.
pub(super) const STEP_EXEC: u8 = 3;

/// Runs in the child between fork and execve.
///
/// # Safety
/// 1. The caller is the child of a fork.
/// 2. `argv` ends in a null pointer, and `filter` points to a valid program.
unsafe fn child(
    argv: &[*const libc::c_char],
    filter: &libc::sock_fprog,
    no_new_privileges: bool,
    go: RawFd,
    failed: RawFd,
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
    let mut byte = 0u8;
    // SAFETY: all calls are async-signal-safe and get pointers that live until they return; `argv`
    // and `filter` are valid by point 2 of the contract.
    unsafe {
        if libc::read(go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_DFL);
        }
        if no_new_privileges && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            fail(1);
        }
        if libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_ref(filter)) != 0
        {
            fail(2);
        }
        libc::execvp(argv[0], argv.as_ptr());
    }
    fail(STEP_EXEC)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: pipe2 writes two ints, to an array that lives until the call returns.
    ok(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    // SAFETY: the call succeeded, so both descriptors are open, and nothing else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}
