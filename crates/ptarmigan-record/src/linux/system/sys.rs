//! System calls without a safe wrapper elsewhere: ptrace, waiting for its stops, and page maps.
use std::io;
use std::os::fd::AsRawFd;

/// Returns the nanoseconds on the clock of all sources (`CLOCK_MONOTONIC`).
pub(crate) fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Returns the CPU time of a process with all of its threads, in nanoseconds, as the scheduler
/// measures it.
pub(crate) fn scheduled_time(group: i32) -> Option<u64> {
    clock(!group << 3 | SCHEDULED)
}

/// The number of a process's clock that the scheduler keeps (`CPUCLOCK_SCHED`).
const SCHEDULED: i32 = 2;

/// Returns the CPU time of a process with all of its threads, in nanoseconds: as the scheduler
/// measures it; by the ticks of the kernel's clock in user mode; by those in both modes. `None` if
/// there is no such process.
pub(crate) fn cpu_time(group: i32) -> Option<(u64, u64, u64)> {
    // The numbers of the clocks that count ticks (`CPUCLOCK_PROF`, `CPUCLOCK_VIRT`).
    let [both, user] = [0, 1].map(|kind| clock(!group << 3 | kind));
    Some((scheduled_time(group)?, user?, both?))
}

/// Reads a clock.
fn clock(number: i32) -> Option<u64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec, to a variable that lives until the call returns.
    // An unknown number is an error.
    ok(unsafe { libc::clock_gettime(number, &raw mut t) }.into()).ok()?;
    Some(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// Turns the result of a system call into a result.
pub(crate) fn ok(r: libc::c_long) -> io::Result<libc::c_long> {
    if r == -1 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

/// Makes a ptrace request whose `data` is a number.
fn ptrace(request: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    // SAFETY: the requests made through this function (SEIZE, INTERRUPT, CONT, SYSCALL, LISTEN,
    // DETACH) do not read or write memory of this process: `data` is a signal number or a set of
    // options.
    ok(unsafe { libc::ptrace(request, pid, 0usize, data) }).map(drop)
}

/// The events at which every traced task stops.
const TRACED: i32 = libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEVFORKDONE
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACESYSGOOD;

/// Starts to trace `pid` and everything it creates.
pub(crate) fn seize(pid: i32) -> io::Result<()> {
    let options = TRACED | libc::PTRACE_O_TRACESECCOMP | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Starts to trace a task that runs already, and everything it creates. The task goes on if the
/// tracer ends.
pub(crate) fn seize_running(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, TRACED as usize)
}

/// Starts to trace a task, and nothing that it creates, and stops it as soon as it can stop. The
/// task goes on if the tracer ends.
pub(crate) fn seize_to_stop(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, 0)?;
    interrupt(pid)
}

/// Stops a traced task as soon as it can stop.
pub(crate) fn interrupt(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_INTERRUPT, pid, 0)
}

/// Returns whether a task has stopped at the beginning of a system call, not at its end.
pub(crate) fn is_at_beginning(pid: i32) -> io::Result<bool> {
    /// The beginning of a system call, in the first byte of `struct ptrace_syscall_info`.
    const ENTRY: u8 = 1;
    let mut info = [0u8; 8];
    // SAFETY: the request writes at most as many bytes as its third argument says, to a buffer of
    // that size that lives until the call returns.
    ok(unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, info.len(), info.as_mut_ptr()) })?;
    Ok(info[0] == ENTRY)
}

/// Traces a task for a moment, to see whether it can be done. The task may be in a system call that
/// starts anew after a stop.
pub(crate) fn try_to_trace(pid: i32) -> io::Result<()> {
    seize_to_stop(pid)?;
    next_stop(pid)?;
    free(pid, 0)
}

/// Traces a task that waits in a system call, until it is freed. It stops when the call ends; after
/// an execve, before the new program's first instruction.
pub(crate) fn trace_call(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_TRACEEXEC as usize)?;
    ptrace(libc::PTRACE_INTERRUPT, pid, 0)
}

/// Traces a task that is about to be ended. It stops at its exit.
pub(crate) fn trace_exit(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, libc::PTRACE_O_TRACEEXIT as usize)
}

/// Resumes a stopped task, with a signal or 0, and traces it no longer.
pub(crate) fn free(pid: i32, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_DETACH, pid, signal as usize)
}

/// Resumes a stopped task, with a signal or 0.
pub(crate) fn resume(pid: i32, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_CONT, pid, signal as usize)
}

/// Resumes a stopped task until the end of its system call.
pub(crate) fn resume_to_syscall(pid: i32, signal: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SYSCALL, pid, signal as usize)
}

/// Leaves a task stopped that a signal such as `SIGSTOP` has stopped, until it is continued.
pub(crate) fn listen(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_LISTEN, pid, 0)
}

/// Returns the number that came with a ptrace event: the new task of a clone, or the old number of
/// a task that called execve.
pub(crate) fn event_message(pid: i32) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: GETEVENTMSG writes one unsigned long, to a variable that lives until the call
    // returns.
    ok(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0usize, &raw mut message) })?;
    Ok(message)
}

/// Returns the registers of a stopped task.
pub(crate) fn registers(pid: i32) -> io::Result<libc::user_regs_struct> {
    let mut regs = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: GETREGS writes one user_regs_struct, to a buffer of that size that lives until the
    // call returns.
    ok(unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0usize, regs.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, and every bit pattern, zeros included, is a valid
    // user_regs_struct.
    Ok(unsafe { regs.assume_init() })
}

/// Returns the limit of a task's stack, in bytes; `u64::MAX` is no limit.
pub(crate) fn stack_limit(pid: i32) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: prlimit reads no new limit through a null pointer, and writes one rlimit, to a
    // variable that lives until the call returns.
    ok(unsafe { libc::prlimit(pid, libc::RLIMIT_STACK, std::ptr::null(), &raw mut limit) }.into())?;
    Ok(limit.rlim_cur)
}

/// Returns one word of a stopped task's memory.
pub(crate) fn peek(pid: i32, address: u64) -> io::Result<u64> {
    let mut word: libc::c_long = 0;
    // SAFETY: the raw system call writes one long to `word`. `address` is used in the other process
    // only.
    let r = unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, pid, address as usize, &raw mut word)
    };
    ok(r)?;
    Ok(word as u64)
}

/// Changes the registers of a stopped task.
pub(crate) fn set_registers(pid: i32, regs: &libc::user_regs_struct) -> io::Result<()> {
    // SAFETY: SETREGS reads one user_regs_struct, which lives until the call returns.
    ok(unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0usize, std::ptr::from_ref(regs)) }).map(drop)
}

/// Changes one word of a stopped task's memory.
pub(crate) fn poke(pid: i32, address: u64, word: u64) -> io::Result<()> {
    // SAFETY: POKEDATA takes the word itself as data. `address` is used in the other process only.
    ok(unsafe { libc::ptrace(libc::PTRACE_POKEDATA, pid, address as usize, word as usize) }).map(drop)
}

/// Waits for the next stop or exit of a traced task. Returns `None` if no task is left.
pub(crate) fn wait() -> io::Result<Option<(i32, i32)>> {
    wait_for(-1)
}

/// Waits for the next stop or end of a task as `wait` does, and leaves it to be waited for. Returns
/// the task, and whether it has ended.
pub(crate) fn look_out() -> io::Result<Option<(i32, bool)>> {
    let how = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
    // SAFETY: all bits 0 are a valid siginfo_t, which is made of numbers and pointers. waitid
    // writes one, to a variable that lives until the call returns.
    let (waited, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(libc::P_ALL, 0, &raw mut info, how), info)
    };
    match ok(waited.into()) {
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
        other => other.map(drop)?,
    }
    let ended = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&info.si_code);
    // SAFETY: waitid has filled the information about a child, which has a process number.
    Ok(Some((unsafe { info.si_pid() }, ended)))
}

/// Waits for the next stop or end of the task `pid`, -1 for any.
pub(crate) fn wait_for(pid: i32) -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // SAFETY: waitpid writes one int, to a variable that lives until the call returns.
    let pid = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    if pid > 0 {
        return Ok(Some((pid, status)));
    }
    let e = io::Error::last_os_error();
    if e.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(e) }
}

/// Waits for the next stop or the end of a task, however often a signal interrupts. Returns its
/// status, or `None` if there is no such task.
pub(crate) fn next_stop(pid: i32) -> io::Result<Option<i32>> {
    loop {
        match wait_for(pid) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            stop => return Ok(stop?.map(|(_, status)| status)),
        }
    }
}

/// Returns the next stop or end of a task that is traced or a child, if there is one now.
pub(crate) fn poll_wait() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: waitpid writes one int, to a variable that lives until the call returns.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) };
    (pid > 0).then_some((pid, status))
}

/// Sends a signal. A task that is gone is not an error.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: kill takes two numbers and accesses no memory.
    unsafe { libc::kill(pid, signal) };
}

/// Returns the number of this thread.
pub(crate) fn own_thread() -> i32 {
    // SAFETY: gettid takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Interrupts the system call of a thread of this process.
pub(crate) fn interrupt_thread(thread: i32) {
    // SAFETY: tgkill takes three numbers and accesses no memory.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGCHLD) };
}

/// Kills a child that may be traced, and waits for its end.
pub(crate) fn end(pid: i32) {
    kill(pid, libc::SIGKILL);
    loop {
        match wait() {
            // A task that is traced stops at its exit.
            Ok(Some((stopped, status))) if libc::WIFSTOPPED(status) => drop(resume(stopped, 0)),
            Ok(Some((ended, _))) if ended != pid => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// A run of pages with the same categories (`struct page_region`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PageRegion {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) categories: u64,
}

impl PageRegion {
    pub(crate) const FILE: u64 = 1 << 2;
    const PRESENT: u64 = 1 << 3;
    const SWAPPED: u64 = 1 << 4;
    pub(crate) const ZERO: u64 = 1 << 5;
    pub(crate) const HUGE: u64 = 1 << 6;
}

/// The argument of `PAGEMAP_SCAN`, read and written (`struct pm_scan_arg`).
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
pub(crate) fn scan_pages(
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

/// Advice that makes pages present: `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`.
pub(crate) const POPULATING: [u64; 2] = [libc::MADV_POPULATE_READ as u64, libc::MADV_POPULATE_WRITE as u64];

/// Flags of `mmap` that make pages present.
pub(crate) const POPULATES: i32 = libc::MAP_POPULATE | libc::MAP_LOCKED;

/// Returns whether a call of `mmap` with these flags makes pages of a file present.
pub(crate) fn populates_file(flags: u64) -> bool {
    flags & libc::MAP_ANONYMOUS as u64 == 0 && flags & POPULATES as u64 != 0
}
