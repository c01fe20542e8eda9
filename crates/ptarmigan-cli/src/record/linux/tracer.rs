//! The tracer: follows every task with ptrace, and stops it only where no event reports what is
//! needed.
//!
//! Every task stops at each execve (before it for `VmPTE` of the old address space, after it for
//! the new areas) and at its exit (for `VmPTE`). With the `perf` method it also stops at clones and
//! at system calls that change an address space.
use super::proc;
use super::raw::{Found, Made, MmCall, NO_CPU, Raw, RawKind};
use super::spill::Notes;
use super::{pagemap, signals, sys};
use crate::error::{Context, Failure};
use ptarmigan_trace::{AreaKind, FaultFlags};
use std::collections::{HashMap, HashSet, VecDeque};

/// The system calls at which every task stops.
pub(super) const STOPS: [i64; 8] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_remap_file_pages,
    libc::SYS_process_madvise,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
];

/// The system calls at which tasks stop without tracepoints.
pub(super) const MM_STOPS: [i64; 12] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
];

fn call_of(number: i64) -> Option<MmCall> {
    Some(match number {
        libc::SYS_mmap => MmCall::Mmap,
        libc::SYS_munmap => MmCall::Munmap,
        libc::SYS_brk => MmCall::Brk,
        libc::SYS_mremap => MmCall::Mremap,
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => MmCall::Mprotect,
        libc::SYS_madvise => MmCall::Madvise,
        libc::SYS_mlock | libc::SYS_mlock2 => MmCall::Mlock,
        libc::SYS_munlock => MmCall::Munlock,
        libc::SYS_mlockall => MmCall::Mlockall,
        libc::SYS_munlockall => MmCall::Munlockall,
        _ => return None,
    })
}

/// Before an execve the pages of small programs only are looked at, of at most so many present
/// pages: the space may be that of a large parent.
const LITTLE: u64 = 4096;

const SPILL: &str = "the temporary files beside the output";

/// A system call that stopped at its beginning and stops again at its end.
enum Pending {
    MmCall,
    /// `mmap` of a file whose pages are made present at once, with its arguments; and whether it is
    /// recorded by the tracer, too.
    Populate([u64; 6], bool),
    Attach,
    /// The parts of the segment that are there, as first page and length.
    Detach(Vec<(u64, u64)>),
    /// `remap_file_pages`, with its first page and whether pages are made present.
    Remap(u64, bool),
    /// A change of the stack's limit.
    Limit,
    /// `process_madvise` on the process with this number: its ranges in bytes, and the advice.
    Advise(i32, Vec<(u64, u64)>, u16),
}

/// How the recorded command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(i32),
    Killed(i32),
}

pub(super) struct Tracer<'a> {
    notes: &'a mut Notes,
    /// Whether all events but the faults come from the tracer.
    full: bool,
    root: i32,
    alive: HashSet<i32>,
    pending: HashMap<i32, Pending>,
    /// Thread group of each task that was looked up.
    groups: HashMap<i32, i32>,
    /// For each thread group: the task in a system call that changes the address space, and the
    /// tasks that wait to begin theirs. Without turns, the ends of such calls in two threads could
    /// be seen in any order.
    turns: HashMap<i32, (i32, VecDeque<i32>)>,
    /// For each thread group: how many of its tasks are about to exit.
    exiting: HashMap<i32, u32>,
    /// Called at every stop, to show progress.
    tick: &'a mut dyn FnMut(usize),
    /// Called once, when the command has started and has not run yet.
    begun: Option<Box<dyn FnOnce() + 'a>>,
}

impl<'a> Tracer<'a> {
    /// Creates a tracer for `root`, which is already seized.
    pub(super) fn new(
        notes: &'a mut Notes,
        root: i32,
        full: bool,
        tick: &'a mut dyn FnMut(usize),
        begun: impl FnOnce() + 'a,
    ) -> Self {
        let alive = HashSet::from([root]);
        let (pending, groups, turns, exiting) =
            (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        let begun: Option<Box<dyn FnOnce()>> = Some(Box::new(begun));
        Self { notes, full, root, alive, pending, groups, turns, exiting, tick, begun }
    }

    /// Follows all tasks until the last one has ended.
    pub(super) fn follow(mut self) -> Result<Ended, Failure> {
        let mut ended = Ended::Exited(0);
        loop {
            self.end_if_asked();
            let (pid, status) = match sys::wait() {
                Ok(Some(stop)) => stop,
                Ok(None) => return Ok(ended),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Failure::new(format!("waiting for the recorded program: {e}"))),
            };
            (self.tick)(self.alive.len());
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.alive.remove(&pid);
                self.pending.remove(&pid);
                self.end_turn(pid, true).context(SPILL)?;
                if pid == self.root {
                    ended = if libc::WIFEXITED(status) {
                        Ended::Exited(libc::WEXITSTATUS(status))
                    } else {
                        Ended::Killed(libc::WTERMSIG(status))
                    };
                }
                continue;
            }
            self.alive.insert(pid);
            self.stopped(pid, status).context(SPILL)?;
        }
    }

    /// After Ctrl-C the program has three seconds until the alarm. A second signal kills it.
    fn end_if_asked(&mut self) {
        if signals::count() == 0 {
            return;
        }
        if signals::count() > 1 {
            // Repeated at every stop, as there may be new tasks.
            self.alive.iter().for_each(|&pid| sys::kill(pid, libc::SIGKILL));
        }
    }

    fn note(&mut self, pid: i32, what: RawKind) -> std::io::Result<()> {
        self.notes.event(&Raw { time: sys::now(), cpu: NO_CPU, pid, what })
    }

    fn stopped(&mut self, pid: i32, status: i32) -> std::io::Result<()> {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        // A task may be killed while it is stopped. Requests then fail, and its end is reported
        // next.
        let resumed = match event {
            libc::PTRACE_EVENT_EXIT => {
                if let Some(counts) = proc::counts(pid) {
                    let exiting = self.exiting.entry(counts.group).or_default();
                    *exiting += 1;
                    // Of the threads of a process the last one looks.
                    if *exiting >= counts.threads {
                        self.exiting.remove(&counts.group);
                        self.note(pid, RawKind::Present(pagemap::present(pid)))?;
                    }
                    self.note(pid, RawKind::Tables { tables: counts.tables, exit: true })?;
                }
                if self.full {
                    self.note(pid, RawKind::Exit)?;
                    self.end_turn(pid, true)?;
                }
                sys::resume(pid, 0)
            }
            libc::PTRACE_EVENT_EXEC => {
                if let Some(begun) = self.begun.take() {
                    begun();
                }
                let old = sys::event_message(pid).map_or(pid, |old| old as i32);
                if old != pid {
                    self.alive.remove(&old);
                    self.pending.remove(&old);
                    self.groups.remove(&old);
                }
                // The other threads are gone, and their calls with them.
                self.turns.remove(&pid);
                self.exiting.remove(&pid);
                if self.full {
                    self.note(old, RawKind::ExecStart)?;
                }
                let made = Made::look(pid);
                self.notes.made(sys::now(), pid, &made)?;
                if self.full {
                    self.note(pid, RawKind::ExecDone { old })?;
                    // Pages that execve itself touched, in kernel faults that perf does not report:
                    // arguments, the end of .data, the auxiliary vector.
                    for page in proc::present(pid, &made.areas) {
                        let code = FaultFlags::WRITE.into();
                        self.note(pid, RawKind::Fault { address: page << proc::PAGE_SHIFT, code })?;
                    }
                }
                sys::resume(pid, 0)
            }
            libc::PTRACE_EVENT_SECCOMP => self.before_call(pid)?,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                if self.full
                    && let Ok(child) = sys::event_message(pid)
                {
                    let flags = clone_flags(pid, event);
                    self.note(pid, RawKind::Clone { child: child as i32, flags })?;
                }
                sys::resume(pid, 0)
            }
            libc::PTRACE_EVENT_STOP
                if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) =>
            {
                sys::listen(pid)
            }
            libc::PTRACE_EVENT_STOP => sys::resume(pid, 0),
            _ if signal == libc::SIGTRAP | 0x80 => self.after_call(pid)?,
            _ => {
                // The signal may interrupt a system call that has not ended.
                let go = if self.pending.contains_key(&pid) { sys::resume_to_syscall } else { sys::resume };
                go(pid, signal)
            }
        };
        let _ = resumed;
        Ok(())
    }

    fn before_call(&mut self, pid: i32) -> std::io::Result<std::io::Result<()>> {
        let Ok(regs) = sys::registers(pid) else { return Ok(Ok(())) };
        let all = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8];
        let pending = match regs.orig_rax as i64 {
            libc::SYS_execve | libc::SYS_execveat => {
                if let Some(counts) = proc::counts(pid) {
                    if counts.resident <= LITTLE {
                        self.note(pid, RawKind::Present(pagemap::present(pid)))?;
                    }
                    self.note(pid, RawKind::Tables { tables: counts.tables, exit: false })?;
                }
                None
            }
            libc::SYS_shmat => Some(Pending::Attach),
            libc::SYS_shmdt => Some(Pending::Detach(proc::segment(pid, args[0] >> proc::PAGE_SHIFT))),
            libc::SYS_remap_file_pages => {
                let present = args[4] & libc::MAP_NONBLOCK as u64 == 0;
                Some(Pending::Remap(args[0] >> proc::PAGE_SHIFT, present))
            }
            libc::SYS_setrlimit if args[0] == u64::from(libc::RLIMIT_STACK) => Some(Pending::Limit),
            // For itself, and with a new limit.
            libc::SYS_prlimit64 if args[1] == u64::from(libc::RLIMIT_STACK) && args[2] != 0 => {
                Some(Pending::Limit)
            }
            libc::SYS_setrlimit | libc::SYS_prlimit64 => None,
            libc::SYS_process_madvise => {
                let ranges = sys::ranges(pid, args[1], args[2]);
                proc::of_pidfd(pid, args[0]).map(|of| Pending::Advise(of, ranges, args[3] as u16))
            }
            libc::SYS_mmap if !self.full => Some(Pending::Populate(all, false)),
            number => match call_of(number) {
                Some(call) => {
                    if !self.take_turn(pid) {
                        return Ok(Ok(()));
                    }
                    self.note(pid, RawKind::Enter { call, args })?;
                    let populates = number == libc::SYS_mmap && sys::populates_file(all[3]);
                    Some(if populates { Pending::Populate(all, true) } else { Pending::MmCall })
                }
                None => None,
            },
        };
        let Some(pending) = pending else { return Ok(sys::resume(pid, 0)) };
        self.pending.insert(pid, pending);
        Ok(sys::resume_to_syscall(pid, 0))
    }

    /// Returns whether the task may begin a call that changes its address space. If not, the task
    /// stays stopped until it may.
    fn take_turn(&mut self, pid: i32) -> bool {
        let group = *self.groups.entry(pid).or_insert_with(|| proc::group(pid).unwrap_or(pid));
        let (now, waiting) = self.turns.entry(group).or_insert((pid, VecDeque::new()));
        if *now != pid {
            waiting.push_back(pid);
        }
        *now == pid
    }

    /// Ends the turn of a task, or its wait for one if the task is gone.
    fn end_turn(&mut self, pid: i32, gone: bool) -> std::io::Result<()> {
        let group = self.groups.get(&pid).copied().unwrap_or(pid);
        if gone {
            self.groups.remove(&pid);
        }
        let Some((now, waiting)) = self.turns.get_mut(&group) else { return Ok(()) };
        if *now != pid {
            waiting.retain(|&w| w != pid);
            return Ok(());
        }
        let Some(next) = waiting.pop_front() else {
            self.turns.remove(&group);
            return Ok(());
        };
        *now = next;
        // The task may have been killed meanwhile; its end is reported then.
        let _ = self.before_call(next)?;
        Ok(())
    }

    /// Notes the pages that `mmap` has made present.
    fn populated(&mut self, pid: i32, at: u64, args: [u64; 6]) -> std::io::Result<()> {
        let end = at.saturating_add(args[1].next_multiple_of(1 << proc::PAGE_SHIFT));
        if let Some(found) = pagemap::present_in(pid, at, end) {
            for Found { start, pages, private, .. } in found {
                self.note(pid, RawKind::Touched { start, pages, write: private })?;
            }
            return Ok(());
        }
        let (start, pages) = (at >> proc::PAGE_SHIFT, proc::backed(pid, args[4], args[5], args[1]));
        let private = args[3] & libc::MAP_TYPE as u64 == libc::MAP_PRIVATE as u64;
        let write = private && args[2] & libc::PROT_WRITE as u64 != 0;
        if pages > 0 { self.note(pid, RawKind::Touched { start, pages, write }) } else { Ok(()) }
    }

    fn after_call(&mut self, pid: i32) -> std::io::Result<std::io::Result<()>> {
        let (Some(pending), Ok(regs)) = (self.pending.remove(&pid), sys::registers(pid)) else {
            return Ok(sys::resume(pid, 0));
        };
        let result = regs.rax as i64;
        match pending {
            Pending::MmCall => {
                self.note(pid, RawKind::Leave { result })?;
                self.end_turn(pid, false)?;
            }
            Pending::Populate(args, full) => {
                if full {
                    self.note(pid, RawKind::Leave { result })?;
                }
                if result >= 0 {
                    self.populated(pid, result as u64, args)?;
                }
                if full {
                    self.end_turn(pid, false)?;
                }
            }
            Pending::Attach if result >= 0 => {
                let start = result as u64 >> proc::PAGE_SHIFT;
                if let Some(a) = proc::areas(pid).into_iter().find(|a| a.start == start) {
                    let what = RawKind::Attached { start, pages: a.pages, prot: a.prot, segment: true };
                    self.note(pid, what)?;
                }
            }
            Pending::Detach(parts) if result >= 0 => {
                for (start, pages) in parts {
                    self.note(pid, RawKind::Detached { start, pages })?;
                }
            }
            Pending::Remap(start, present) if result >= 0 => {
                if let Some(a) = proc::areas(pid).into_iter().find(|a| a.start == start) {
                    let what = RawKind::Attached { start, pages: a.pages, prot: a.prot, segment: false };
                    self.note(pid, what)?;
                    if present {
                        self.note(pid, RawKind::Touched { start, pages: a.pages, write: false })?;
                    }
                }
            }
            Pending::Limit => {
                if let Some(pages) = proc::stack_limit(pid) {
                    self.note(pid, RawKind::StackLimit { pages })?;
                }
            }
            // The result is the number of bytes that were advised on.
            Pending::Advise(of, ranges, advice) => {
                let mut left = u64::try_from(result).unwrap_or(0);
                for (start, len) in ranges {
                    let len = len.min(left);
                    left -= len;
                    if len > 0 {
                        let (start, pages) = (start >> proc::PAGE_SHIFT, len >> proc::PAGE_SHIFT);
                        self.note(of, RawKind::Advised { start, pages, advice })?;
                    }
                }
            }
            Pending::Attach | Pending::Detach(_) | Pending::Remap(..) => {}
        }
        Ok(sys::resume(pid, 0))
    }
}

/// Returns the flags of the clone that a task has just made: from its registers, or from the kind
/// of event.
fn clone_flags(pid: i32, event: i32) -> u64 {
    let vm = libc::CLONE_VM as u64;
    let Ok(regs) = sys::registers(pid) else { return 0 };
    match regs.orig_rax as i64 {
        libc::SYS_clone => regs.rdi,
        libc::SYS_clone3 => sys::peek(pid, regs.rdi).unwrap_or(vm),
        libc::SYS_vfork => vm | libc::CLONE_VFORK as u64,
        _ if event == libc::PTRACE_EVENT_VFORK => vm | libc::CLONE_VFORK as u64,
        _ => 0,
    }
}

/// Returns whether the areas after an execve include a stack, as those of every program do. If not,
/// /proc could not be read.
pub(super) fn complete(made: &Made) -> bool {
    made.areas.iter().any(|a| a.kind == AreaKind::Stack)
}
