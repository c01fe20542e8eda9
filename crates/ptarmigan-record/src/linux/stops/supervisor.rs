//! Follows the tasks of a recording by tracepoints, which need no tracer: a task waits for the
//! recorder only before execve, before its exit and before a few rare calls.
//!
//! The effect of a call is looked at after it. For that the task is traced from the call's
//! beginning to its end, and is free again then: signals, debuggers and tracers of the program's
//! own find it untraced. Where another tracer is attached already, the look is left out.
use super::calls::{self, Exiting, Looked, Pending};
use super::tracer::{Ended, Surroundings};
use crate::linux::exec_result::ExecResult;
use crate::linux::raw::{NO_CPU, Raw, RawKind};
use crate::linux::sources::spill::Notes;
use crate::linux::system::counters::{Counters, When};
use crate::linux::system::notify::{self, Listener, Ready, WaitingCall};
use crate::linux::system::{proc, signals, sys};
use crate::linux::watchdog;
use ptarmigan_term::{Context, Failure};
use std::collections::HashMap;
use std::time::Instant;

/// The system calls at which tasks wait for the supervisor.
pub(crate) const CALLS: [i64; 4] =
    [libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group];

/// Why a task is traced for a moment.
enum Traced {
    Exec,
    Call(Pending),
    /// One of several threads that an `exit_group` ends.
    Exit,
}

/// Counts of programs and calls that the recording could not look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// Calls of `execve` under another tracer. Those that fail on the way along a path are among
    /// them.
    pub(crate) other_tracer: u64,
    /// Programs of 32 bits, whose system calls no tracepoint reports.
    pub(crate) narrow: u64,
}

pub(crate) struct Supervisor<'a, S> {
    /// Where events go. Without it, tasks are only let go on.
    notes: Option<Notes>,
    listener: &'a Listener,
    root: i32,
    traced: HashMap<i32, Traced>,
    exiting: Exiting,
    started: bool,
    ended: Option<Ended>,
    nobody_left: bool,
    missed: Missed,
    pub(crate) surroundings: &'a mut S,
}

impl<'a, S: Surroundings> Supervisor<'a, S> {
    pub(crate) fn new(notes: Notes, listener: &'a Listener, root: i32, surroundings: &'a mut S) -> Self {
        let (traced, exiting, missed) = (HashMap::new(), Exiting::default(), Missed::default());
        let (notes, started, ended, nobody_left) = (Some(notes), false, None, false);
        Self { notes, listener, root, traced, exiting, started, ended, nobody_left, missed, surroundings }
    }

    /// Follows all tasks until the last one has ended, or until a time: `None` then, and the call
    /// may be repeated.
    pub(crate) fn follow(&mut self, until: Option<Instant>) -> Result<Option<Ended>, Failure> {
        let unblocked = signals::let_through();
        loop {
            self.look_at_signals();
            while let Some((pid, status)) = sys::poll_wait() {
                if libc::WIFSTOPPED(status) {
                    self.stopped(pid, status);
                    continue;
                }
                self.traced.remove(&pid);
                if pid == self.root {
                    self.ended = Some(Ended::of(status));
                }
            }
            if self.nobody_left && self.ended.is_some() {
                return Ok(self.ended);
            }
            if self.nobody_left {
                // The first process is about to end.
                signals::wait(&unblocked);
                continue;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            match notify::wait(self.listener, &unblocked, left).context("waiting for the recorded program")? {
                Ready::NobodyLeft => self.nobody_left = true,
                Ready::Signal => {}
                Ready::Call => {
                    let call = self.listener.receive().context("waiting for the recorded program")?;
                    if let Some(call) = call {
                        watchdog::answering(Some(call.id));
                        self.surroundings.tick(None);
                        self.before(call);
                        self.listener.go_on(call.id);
                        watchdog::answering(None);
                    }
                }
            }
        }
    }

    /// Takes out the events so far, and how many programs are not among them. No later event is
    /// kept.
    pub(crate) fn take(&mut self) -> (Option<Notes>, Missed) {
        (self.notes.take(), self.missed)
    }

    /// After Ctrl-C the program has three seconds until the alarm. A second signal kills it.
    fn look_at_signals(&mut self) {
        if signals::orphaned() && self.notes.is_some() {
            self.notes = None;
            self.surroundings.abandon();
        }
        if signals::count() > 1 {
            // Repeated at every event, as there may be new tasks.
            self.surroundings.alive().into_iter().for_each(|pid| sys::kill(pid, libc::SIGKILL));
        }
    }

    fn note(&mut self, found: Looked) {
        let Some(notes) = &mut self.notes else { return };
        for (pid, what) in found {
            notes.event(&Raw { time: sys::now(), cpu: NO_CPU, pid, what });
        }
    }

    /// Looks at a task in its call, which goes on afterwards.
    fn before(&mut self, call: WaitingCall) {
        if self.notes.is_none() {
            return;
        }
        let pid = call.pid;
        match call.number {
            libc::SYS_execve | libc::SYS_execveat => {
                let found = calls::before_exec(pid);
                self.note(found);
                match sys::trace_call(pid) {
                    Ok(()) => drop(self.traced.insert(pid, Traced::Exec)),
                    Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                        self.missed.other_tracer += 1;
                        self.note(vec![(pid, RawKind::OtherTracer)]);
                    }
                    Err(_) => {}
                }
            }
            libc::SYS_exit | libc::SYS_exit_group => {
                let Some(counts) = proc::counts(pid) else { return };
                if call.number == libc::SYS_exit_group && counts.threads > 1 {
                    let counters = Counters::read(counts.group, When::Last);
                    self.note(counters.map(|read| (pid, RawKind::Counters(read))).into_iter().collect());
                    // Each thread is looked at when it cannot do anything any more.
                    for thread in proc::threads(counts.group) {
                        if sys::trace_exit(thread).is_ok() {
                            self.traced.insert(thread, Traced::Exit);
                        }
                    }
                    return;
                }
                let found = self.exiting.look(pid, counts);
                self.note(found);
            }
            number => {
                if let Some(pending) = calls::before(pid, number, call.args)
                    && sys::trace_call(pid).is_ok()
                {
                    self.traced.insert(pid, Traced::Call(pending));
                }
            }
        }
    }

    /// A task that is traced for a moment has stopped. It may be killed while it is stopped:
    /// requests then fail, and its end is reported next.
    fn stopped(&mut self, pid: i32, status: i32) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match event {
            libc::PTRACE_EVENT_EXEC => {
                let old = sys::event_message(pid).map_or(pid, |old| old as i32);
                self.traced.remove(&old);
                self.traced.remove(&pid);
                self.exiting.clear(pid);
                if !self.started {
                    self.started = true;
                    self.surroundings.begun();
                    let start = Counters::read(pid, When::Start).map(|read| (pid, RawKind::Counters(read)));
                    self.note(start.into_iter().collect());
                }
                if let Some(notes) = &mut self.notes {
                    let made = ExecResult::look(pid);
                    self.missed.narrow += u64::from(made.narrow);
                    notes.made(sys::now(), pid, &made);
                }
                let _ = sys::free(pid, 0);
            }
            libc::PTRACE_EVENT_EXIT => {
                self.traced.remove(&pid);
                if let Some(counts) = proc::counts(pid)
                    && self.notes.is_some()
                {
                    let found = self.exiting.look(pid, counts);
                    self.note(found);
                }
                let _ = sys::free(pid, 0);
            }
            // The call has ended; or a signal has come first, which is delivered.
            _ => {
                let ended = event == libc::PTRACE_EVENT_STOP;
                if let Some(Traced::Exit) = self.traced.get(&pid) {
                    let go = if ended { sys::resume(pid, 0) } else { sys::resume(pid, signal) };
                    let _ = go;
                    return;
                }
                if let Some(Traced::Call(pending)) = self.traced.remove(&pid)
                    && let Ok(regs) = sys::registers(pid)
                {
                    let found = pending.after(pid, regs.rax as i64);
                    self.note(found);
                }
                let _ = sys::free(pid, if ended { 0 } else { signal });
            }
        }
    }
}
