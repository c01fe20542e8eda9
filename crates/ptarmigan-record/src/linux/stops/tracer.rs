//! The tracer: follows every task with ptrace, for recordings without tracepoints.
//!
//! # The protocol
//!
//! Every task stops at each execve (before it for `VmPTE` of the old address space, after it for
//! the new areas), at its exit (for `VmPTE`), at clones and at system calls that change an address
//! space.
//!
//! ```text
//!  task A    mmap: stop ─ turn ─> runs in the kernel ─> stop: result noted ─> goes on
//!  task B            munmap: stop ─ waits for its turn ─────────────────────> runs ─> stop
//!  tracer    pending[A] ──────────────────────────────> event, in this order ──> event
//! ```
//!
//! # Why
//!
//! Two threads of one space change it at once, and the kernel orders them by a lock that a tracer
//! does not see. The ends of the two calls could come in either order, and the replay would unmap
//! pages that it has not mapped. So tasks of one thread group take turns in such calls: the order
//! in which they are recorded must be the one that took place. That makes a program with many such
//! calls slower, and the report says by how much. Tracepoints need no turns: prefer them.
use super::callers::StopSampler;
use super::calls::{self, Exiting, Looked, Pending};
use super::reads::Reads;
use super::watch::StopWatch;
use crate::linux::exec_result::ExecResult;
use crate::linux::raw::{CLONE_THREAD, CLONE_VFORK, CLONE_VM, MmCall, NO_CPU, Raw, RawKind, clone_call};
use crate::linux::sources::spill::Notes;
use crate::linux::system::counters::{Counters, When};
use crate::linux::system::stop_cost::StopCost;
use crate::linux::system::{proc, signals, sys};
use ptarmigan_term::Failure;
use ptarmigan_trace::{Call, FaultFlags};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The system calls at which tasks stop, beside [`calls::LOOKED_AT`].
pub(crate) const STOPS: [i64; 18] = [
    libc::SYS_execve,
    libc::SYS_execveat,
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
    // Clones stop for their times only.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_fork,
    libc::SYS_vfork,
];

/// A system call that stopped at its beginning and stops again at its end.
struct Stopped {
    /// The call, if it is recorded as such.
    call: Option<MmCall>,
    args: [u64; 5],
    look: Option<Pending>,
}

/// How the recorded command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Killed(i32),
}

impl Ended {
    /// Of the status of a process that has ended.
    pub(crate) fn of(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            Self::Exited(libc::WEXITSTATUS(status))
        } else {
            Self::Killed(libc::WTERMSIG(status))
        }
    }
}

/// Callbacks of the code that follows tasks.
pub(crate) trait Surroundings {
    /// The command has started, and has not run yet.
    fn begun(&mut self);
    /// Called often, to show progress, with the number of tasks if it is known.
    fn tick(&mut self, alive: Option<usize>);
    /// Returns the tasks that are recorded now.
    fn alive(&self) -> Vec<i32>;
    /// The recorder's first process is gone: nobody wants the recording any more.
    fn abandon(&mut self);
}

pub(crate) struct Tracer<'a, S> {
    /// Where events go. Without it, tasks are only let go on.
    notes: Option<Notes>,
    /// The command, or 0 if the tracer was attached to processes.
    root: i32,
    /// Whether tasks have no filter, and so stop at every system call.
    every_call: bool,
    alive: HashSet<i32>,
    pending: HashMap<i32, Stopped>,
    /// Thread group of each task that was looked up.
    groups: HashMap<i32, i32>,
    /// For each thread group: the task in a system call that changes the address space, and the
    /// tasks that wait to begin theirs. Without turns, the ends of such calls in two threads could
    /// be seen in any order.
    turns: HashMap<i32, (i32, VecDeque<i32>)>,
    exiting: Exiting,
    reads: Reads,
    watch: StopWatch,
    started: bool,
    ended: Ended,
    /// 32-bit programs so far.
    narrow: u64,
    callers: StopSampler,
    pub(crate) surroundings: &'a mut S,
}

impl<'a, S: Surroundings> Tracer<'a, S> {
    /// Creates a tracer for `root`, which is already seized. Its stops cost `cost`.
    pub(crate) fn new(notes: Notes, root: i32, cost: StopCost, surroundings: &'a mut S) -> Self {
        let alive = HashSet::from([root]);
        let (pending, groups, turns) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (exiting, watch) = (Exiting::default(), StopWatch::new(cost));
        let (notes, every_call, started) = (Some(notes), false, false);
        let (ended, narrow) = (Ended::Exited(0), 0);
        Self {
            notes,
            root,
            every_call,
            alive,
            pending,
            groups,
            turns,
            exiting,
            reads: Reads::default(),
            watch,
            started,
            ended,
            narrow,
            callers: StopSampler::new(false),
            surroundings,
        }
    }

    /// Notes where calls are made, if it is wanted.
    pub(crate) fn with_callers(mut self, wanted: bool) -> Self {
        self.callers = StopSampler::new(wanted);
        self
    }

    /// Creates a tracer for tasks that have been stopped, with the status of each stop, and for
    /// others that are about to. They go on.
    pub(crate) fn attached(
        notes: Notes,
        stopped: Vec<(i32, i32)>,
        waiting: &[i32],
        cost: StopCost,
        surroundings: &'a mut S,
    ) -> Self {
        let mut tracer = Self::new(notes, 0, cost, surroundings);
        tracer.every_call = true;
        tracer.started = true;
        tracer.surroundings.begun();
        tracer.alive = stopped.iter().map(|(pid, _)| *pid).chain(waiting.iter().copied()).collect();
        for pid in stopped.iter().map(|(pid, _)| pid).chain(waiting) {
            let group = tracer.group(*pid);
            if group != *pid {
                tracer.watch.thread_made(group);
            }
        }
        for (pid, status) in stopped {
            match status >> 16 {
                // The child is among the tasks already.
                libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                    let _ = tracer.go(pid, 0);
                }
                _ => tracer.stopped(pid, status),
            }
        }
        tracer
    }

    /// Follows all tasks until the last one has ended, or until a time: `None` then, and the call
    /// may be repeated. With processes that were attached to, a signal ends it, too.
    pub(crate) fn follow(&mut self, until: Option<Instant>) -> Result<Option<Ended>, Failure> {
        let _ticker = until.map(Ticker::start);
        loop {
            self.look_at_signals();
            let attached = self.root == 0;
            let asked = attached && (signals::count() > 0 || self.notes.is_none());
            if asked || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            let (pid, status) = match self.next_stop() {
                Ok(Some(stop)) => stop,
                Ok(None) => return Ok(Some(self.ended)),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Failure::new(format!("waiting for the recorded program: {e}"))),
            };
            self.surroundings.tick(Some(self.alive.len()));
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.gone(pid);
                if pid == self.root {
                    self.ended = Ended::of(status);
                }
                continue;
            }
            self.alive.insert(pid);
            self.stopped(pid, status);
            self.watch.handled(pid);
        }
    }

    /// Waits for the next stop or end of a task. The last times of a process are read while it is
    /// still there.
    fn next_stop(&mut self) -> std::io::Result<Option<(i32, i32)>> {
        let Some((pid, ended)) = sys::look_out()? else { return Ok(None) };
        self.watch.stopped();
        if ended {
            let took = self.watch.gone(pid);
            let counters = Counters::read(pid, When::Ended)
                .map(|read| RawKind::Counters(Counters { own: self.watch.own(pid), ..read }));
            took.into_iter().chain(counters).for_each(|what| self.note(pid, what));
        }
        sys::wait_for(pid)
    }

    fn gone(&mut self, pid: i32) {
        self.reads.forget(pid);
        self.alive.remove(&pid);
        self.pending.remove(&pid);
        self.end_turn(pid, true);
    }

    /// Takes out the events so far, and how many 32-bit programs are not among them. No later event
    /// is kept.
    pub(crate) fn take(&mut self) -> (Option<Notes>, u64) {
        (self.notes.take(), self.narrow)
    }

    /// Lets all tasks go on without a tracer. `each` is called for each process, which stands
    /// still, before that, and returns events.
    pub(crate) fn detach(&mut self, each: impl Fn(i32) -> Looked) {
        let waiting = self.turns.values().flat_map(|(_, waiting)| waiting.iter().map(|pid| (*pid, 0)));
        let mut stopped: HashMap<i32, i32> = waiting.collect();
        self.turns.clear();
        stop_all(&mut self.alive, &mut stopped, TO_STOP, |_| Vec::new());
        let mut processes: HashMap<i32, Vec<i32>> = HashMap::new();
        for &pid in &self.alive {
            processes.entry(proc::group(pid).unwrap_or(pid)).or_default().push(pid);
        }
        for (process, tasks) in processes {
            if tasks.iter().all(|pid| stopped.contains_key(pid)) {
                let found = each(process);
                self.note_all(found);
            }
        }
        free_all(&stopped);
        // Those that waited for a child stop now that it goes on.
        self.alive.retain(|pid| !stopped.contains_key(pid));
        let end = Instant::now() + TO_STOP;
        while !self.alive.is_empty() && Instant::now() < end {
            let Some((pid, status)) = sys::poll_wait() else {
                std::thread::sleep(BETWEEN);
                continue;
            };
            self.alive.remove(&pid);
            if libc::WIFSTOPPED(status) {
                free_all(&HashMap::from([(pid, status)]));
            }
        }
    }

    /// After Ctrl-C the program has three seconds until the alarm. A second signal kills it.
    fn look_at_signals(&mut self) {
        if signals::orphaned() && self.notes.is_some() {
            self.notes = None;
            self.surroundings.abandon();
        }
        if signals::count() > 1 && self.root != 0 {
            // Repeated at every stop, as there may be new tasks.
            self.alive.iter().for_each(|&pid| sys::kill(pid, libc::SIGKILL));
        }
    }

    fn note(&mut self, pid: i32, what: RawKind) {
        if let Some(notes) = &mut self.notes {
            notes.event(&Raw { time: sys::now(), cpu: NO_CPU, pid, what });
        }
    }

    fn note_all(&mut self, found: Looked) {
        found.into_iter().for_each(|(pid, what)| self.note(pid, what));
    }

    /// Resumes a task until its next stop.
    fn go(&self, pid: i32, signal: i32) -> std::io::Result<()> {
        // A signal may interrupt a system call that has not ended.
        if self.every_call || self.pending.contains_key(&pid) {
            sys::resume_to_syscall(pid, signal)
        } else {
            sys::resume(pid, signal)
        }
    }

    fn stopped(&mut self, pid: i32, status: i32) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        // A task may be killed while it is stopped. Requests then fail, and its end is reported
        // next.
        let _ = match event {
            libc::PTRACE_EVENT_EXIT => {
                self.before_exit(pid);
                self.go(pid, 0)
            }
            libc::PTRACE_EVENT_EXEC => {
                self.after_exec(pid);
                self.go(pid, 0)
            }
            libc::PTRACE_EVENT_SECCOMP => self.before_call(pid),
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                if let Ok(child) = sys::event_message(pid) {
                    let sample = self.callers.of_clone(pid);
                    self.note_all(sample);
                    self.after_clone(pid, child as i32, clone_flags(pid, event));
                }
                self.go(pid, 0)
            }
            libc::PTRACE_EVENT_VFORK_DONE => {
                if let Some(took) = self.watch.end_wait(pid) {
                    self.note(pid, took);
                }
                self.go(pid, 0)
            }
            libc::PTRACE_EVENT_STOP
                if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) =>
            {
                sys::listen(pid)
            }
            libc::PTRACE_EVENT_STOP => self.go(pid, 0),
            _ if signal == libc::SIGTRAP | 0x80 => {
                if self.every_call && sys::is_at_beginning(pid).unwrap_or(false) {
                    self.before_call(pid)
                } else {
                    self.after_call(pid)
                }
            }
            _ => self.go(pid, signal),
        };
    }

    fn before_exit(&mut self, pid: i32) {
        let (mut group, mut alone) = (pid, true);
        if let Some(counts) = proc::counts(pid) {
            let mut found = self.exiting.look(pid, counts);
            for (_, what) in &mut found {
                if let RawKind::Counters(counters) = what {
                    counters.waits = counters.waits.saturating_sub(self.watch.stops(pid));
                }
            }
            self.note_all(found);
            (group, alone) = (counts.group, counts.threads <= 1);
        }
        self.note(pid, RawKind::Exit);
        self.end_turn(pid, true);
        self.watch.begin_exit(pid, group, alone);
    }

    fn after_clone(&mut self, pid: i32, child: i32, flags: u64) {
        self.note(pid, RawKind::Clone { child, flags });
        if flags & CLONE_THREAD != 0 {
            let group = self.group(pid);
            self.watch.thread_made(group);
        }
        let took = match clone_call(flags) {
            Call::Vfork => {
                self.watch.wait(pid, child);
                None
            }
            call => self.watch.end_clone(pid, call),
        };
        if let Some(took) = took {
            self.note(pid, took);
        }
    }

    fn after_exec(&mut self, pid: i32) {
        let first = !self.started;
        if first {
            self.started = true;
            self.surroundings.begun();
        }
        let old = sys::event_message(pid).map_or(pid, |old| old as i32);
        let took = self.watch.end(old);
        self.watch.program_started(pid);
        self.reads.forget(pid);
        if old != pid {
            if let Some(exit) = self.watch.replaced(pid) {
                self.note(pid, exit);
            }
            self.alive.remove(&old);
            self.pending.remove(&old);
            self.groups.remove(&old);
        }
        // The other threads are gone, and their calls with them.
        self.turns.remove(&pid);
        self.exiting.clear(pid);
        self.note(old, RawKind::ExecStart);
        let made = ExecResult::look(pid);
        self.narrow += u64::from(made.narrow);
        if let Some(notes) = &mut self.notes {
            notes.made(sys::now(), pid, &made);
        }
        self.note(pid, RawKind::ExecDone { old });
        if first {
            if let Some(counters) = Counters::read(pid, When::Start) {
                self.note(pid, RawKind::Counters(counters));
            }
            self.note(pid, RawKind::StopCost(self.watch.cost));
        }
        if let Some(took) = took {
            self.note(pid, took);
        }
        // Pages that execve itself touched, in kernel faults that perf does not report: arguments,
        // the end of .data, the auxiliary vector.
        for page in proc::present(pid, &made.areas) {
            let code = FaultFlags::WRITE.into();
            self.note(pid, RawKind::Fault { address: page << proc::PAGE_SHIFT, code });
        }
    }

    fn before_call(&mut self, pid: i32) -> std::io::Result<()> {
        self.watch.forget(pid);
        let regs = sys::registers(pid)?;
        let args = [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9];
        let number = regs.orig_rax as i64;
        if matches!(number, libc::SYS_execve | libc::SYS_execveat) {
            let sample = self.callers.of_call(pid, &regs);
            self.note_all(sample);
            self.note_all(calls::before_exec(pid));
            return self.resume_in(pid, Call::Exec);
        }
        if matches!(number, libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork) {
            if follow_child(pid, regs)? {
                self.note_unwritten(pid);
            }
            return self.resume_in(pid, Call::Fork);
        }
        let call = MmCall::of(number);
        if let Some(call) = call {
            if !self.take_turn(pid) {
                return Ok(());
            }
            let sample = self.callers.of_call(pid, &regs);
            self.note_all(sample);
            let [a, b, c, d, e, _] = args;
            self.note(pid, RawKind::Enter { call, args: [a, b, c, d, e] });
        }
        let look = calls::before(pid, number, args);
        if call.is_none() && look.is_none() {
            return self.go(pid, 0);
        }
        let [a, b, c, d, e, _] = args;
        self.pending.insert(pid, Stopped { call, args: [a, b, c, d, e], look });
        let timed = match number {
            libc::SYS_shmat | libc::SYS_shmdt => Some(Call::Segment),
            _ => call.map(MmCall::timed_as),
        };
        if let Some(timed) = timed {
            let group = self.group(pid);
            self.watch.begin(pid, group, timed);
        }
        sys::resume_to_syscall(pid, 0)
    }

    /// Notes the pages of a task that nobody has written. It is about to fork.
    fn note_unwritten(&mut self, pid: i32) {
        let group = self.group(pid);
        let found = self.reads.look(pid, group);
        if let Some(notes) = &mut self.notes {
            notes.unwritten(sys::now(), group, &found);
        }
    }

    /// Resumes a task in a call that is only timed.
    fn resume_in(&mut self, pid: i32, call: Call) -> std::io::Result<()> {
        let group = self.group(pid);
        self.watch.begin(pid, group, call);
        self.go(pid, 0)
    }

    /// Returns the thread group of a task.
    fn group(&mut self, pid: i32) -> i32 {
        *self.groups.entry(pid).or_insert_with(|| proc::group(pid).unwrap_or(pid))
    }

    /// Returns whether the task may begin a call that changes its address space. If not, the task
    /// stays stopped until it may.
    fn take_turn(&mut self, pid: i32) -> bool {
        let group = self.group(pid);
        let (now, waiting) = self.turns.entry(group).or_insert((pid, VecDeque::new()));
        if *now != pid {
            waiting.push_back(pid);
        }
        *now == pid
    }

    /// Ends the turn of a task, or its wait for one if the task is gone.
    fn end_turn(&mut self, pid: i32, gone: bool) {
        let group = self.groups.get(&pid).copied().unwrap_or(pid);
        if gone {
            self.groups.remove(&pid);
        }
        let Some((now, waiting)) = self.turns.get_mut(&group) else { return };
        if *now != pid {
            waiting.retain(|&w| w != pid);
            return;
        }
        let Some(next) = waiting.pop_front() else {
            self.turns.remove(&group);
            return;
        };
        *now = next;
        // The task may have been killed meanwhile; its end is reported then.
        let _ = self.before_call(next);
    }

    fn after_call(&mut self, pid: i32) -> std::io::Result<()> {
        let (Some(Stopped { call, args, look }), Ok(regs)) = (self.pending.remove(&pid), sys::registers(pid))
        else {
            return self.go(pid, 0);
        };
        let result = regs.rax as i64;
        let took = self.watch.end(pid);
        if let Some(call) = call {
            self.note(pid, RawKind::Leave { result });
            let group = self.group(pid);
            self.reads.call(group, call, args, result, sys::now());
        }
        if let Some(took) = took {
            self.note(pid, took);
        }
        if let Some(look) = look {
            self.note_all(look.after(pid, result));
        }
        if call.is_some() {
            self.end_turn(pid, false);
        }
        self.go(pid, 0)
    }
}

/// How long tasks have to stop. One that waits in the kernel for a disk cannot.
pub(crate) const TO_STOP: Duration = Duration::from_secs(2);

/// The time between two looks at tasks that are about to stop.
const BETWEEN: Duration = Duration::from_micros(200);

/// Stops tasks, and those that they make meanwhile, with the status of each stop. `more` returns
/// tasks that have to stop, too: it is called until it returns no new one. A task that waits for
/// the child of its vfork need not stop.
pub(crate) fn stop_all(
    alive: &mut HashSet<i32>,
    stopped: &mut HashMap<i32, i32>,
    within: Duration,
    mut more: impl FnMut(&HashSet<i32>) -> Vec<i32>,
) {
    let end = Instant::now() + within;
    for pid in alive.iter().filter(|pid| !stopped.contains_key(pid)) {
        // One that is gone is reported.
        let _ = sys::interrupt(*pid);
    }
    loop {
        while let Some((pid, status)) = sys::poll_wait() {
            if libc::WIFSTOPPED(status) {
                alive.insert(pid);
                stopped.insert(pid, status);
            } else {
                alive.remove(&pid);
                stopped.remove(&pid);
            }
        }
        if alive.iter().all(|pid| stopped.contains_key(pid) || proc::waits_for_child(*pid)) {
            let new = more(alive);
            if new.is_empty() {
                return;
            }
            alive.extend(new);
        }
        if Instant::now() > end {
            return;
        }
        std::thread::sleep(BETWEEN);
    }
}

/// Lets stopped tasks go on without a tracer, each with the signal that it has stopped for.
pub(crate) fn free_all(stopped: &HashMap<i32, i32>) {
    for (&pid, &status) in stopped {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let is_signal = status != 0 && event == 0 && signal != libc::SIGTRAP | 0x80;
        let _ = sys::free(pid, if is_signal { signal } else { 0 });
    }
}

/// Interrupts the wait for the next stop from a time on, until it is dropped.
struct Ticker(Arc<AtomicBool>);

impl Ticker {
    fn start(until: Instant) -> Self {
        let (done, tracer) = (Arc::new(AtomicBool::new(false)), sys::own_thread());
        let ticker = Self(Arc::clone(&done));
        signals::interrupts();
        std::thread::spawn(move || {
            while !done.load(Ordering::SeqCst) {
                let left = until.saturating_duration_since(Instant::now());
                std::thread::sleep(left.clamp(Duration::from_millis(20), Duration::from_millis(200)));
                if left.is_zero() {
                    sys::interrupt_thread(tracer);
                }
            }
        });
        ticker
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Takes `CLONE_UNTRACED` from a clone that is about to be made. Without a tracer, the child could
/// make none of the calls that stop for it. Returns whether the child gets a copy of the address
/// space.
fn follow_child(pid: i32, mut regs: libc::user_regs_struct) -> std::io::Result<bool> {
    let untraced = libc::CLONE_UNTRACED as u64;
    let copies = |flags: u64| flags & CLONE_VM == 0;
    match regs.orig_rax as i64 {
        libc::SYS_clone => {
            regs.rdi &= !untraced;
            sys::set_registers(pid, &regs)?;
            Ok(copies(regs.rdi))
        }
        libc::SYS_clone3 => {
            // A bad address fails in the call, too.
            let Ok(flags) = sys::peek(pid, regs.rdi) else { return Ok(false) };
            if flags & untraced != 0 {
                sys::poke(pid, regs.rdi, flags & !untraced)?;
            }
            Ok(copies(flags))
        }
        number => Ok(number == libc::SYS_fork),
    }
}

/// Returns the flags of the clone that a task has just made: from its registers, or from the kind
/// of event.
fn clone_flags(pid: i32, event: i32) -> u64 {
    let Ok(regs) = sys::registers(pid) else { return 0 };
    match regs.orig_rax as i64 {
        libc::SYS_clone => regs.rdi,
        libc::SYS_clone3 => sys::peek(pid, regs.rdi).unwrap_or(CLONE_VM),
        libc::SYS_vfork => CLONE_VM | CLONE_VFORK,
        _ if event == libc::PTRACE_EVENT_VFORK => CLONE_VM | CLONE_VFORK,
        _ => 0,
    }
}
