//! The loop of each CPU: runs tasks, and serves their traps.
//!
//! ```text
//!  next ──> run_from ── activate ── run_one ── enter ──> user mode
//!    ^         ^                        ^                   │ trap
//!    │         │                        └── fault, Resume <─┤ no lock, no other task
//!    │         └── another task, lock ──── GiveWay, Block <─┤
//!    └── nothing to do: idle ───────────────────── End <────┘
//! ```
//!
//! # Why
//!
//! Faults come first in the loop, and take neither the kernel lock nor a look at other tasks,
//! because they are the work that this kernel is measured by. A task that gives its CPU up is saved
//! with the lock held: otherwise another CPU could take it off the queue and run it with old
//! registers. A CPU that goes idle keeps the root loaded, because often the same task goes on.

use core::sync::atomic::Ordering;

use ptarmigan::addr::VirtAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::space::FaultError;
use ptarmigan_kernel_base::say;

use super::limits::{INFINITY, Limit};
use super::{After, Body, Doing};
use crate::arch::{Arch, Context, Trap};
use crate::counts::Count;
use crate::signal::{SignalInfo, bit, info, number};
use crate::{Kernel, State};

impl<A: Arch> Kernel<A> {
    /// Runs tasks until the kernel ends. Every CPU calls it.
    pub fn run(&'static self) -> ! {
        loop {
            let next = self.lock().tasks.next(A::cpu());
            match next {
                Some(slot) => self.run_from(slot),
                None => self.idle(),
            }
            if self.stopping.load(Ordering::SeqCst) {
                self.stop();
            }
        }
    }

    /// Runs a task, and those that follow it without a pause.
    fn run_from(&'static self, mut slot: usize) {
        let pin = self.pin();
        loop {
            // SAFETY: 1. The task runs on this CPU: it has just been taken off the queue. 2. The
            // reference ends with this turn of the loop. 3. A task that has not ended has its slot.
            let body = unsafe { self.body(slot) };
            self.count(Count::Switches);
            self.begin_faults(body);
            must(body.space.switch(|space| space.activate(self.on(&pin))));
            A::load(&body.context);
            let (mut state, doing) = match self.run_one(slot, body, &pin) {
                After::GiveWay(state) => (state, None),
                After::Block(state, wait) => (state, Some(wait)),
                After::End(ends, status) => {
                    let (mut state, is_over) = self.end_task(slot, body, &pin, (ends, status));
                    if is_over {
                        self.give_back(&mut state, slot);
                    }
                    if self.stopping.load(Ordering::SeqCst) {
                        return;
                    }
                    let Some(next) = state.tasks.next(A::cpu()) else { return };
                    slot = next;
                    continue;
                }
                After::Resume => continue,
            };
            A::save(&mut body.context);
            let tasks = &mut state.tasks;
            tasks.get_mut(slot).usage.faults += self.take_faults(body);
            match doing {
                None => tasks.make_ready(slot),
                Some(wait) => {
                    let task = tasks.get_mut(slot);
                    task.doing = Doing::Waiting(wait);
                    task.in_call = true;
                    if task.deadline != 0 {
                        tasks.sleepers += 1;
                    }
                }
            }
            let next = if self.stopping.load(Ordering::SeqCst) { None } else { tasks.next(A::cpu()) };
            let space = tasks.space_of(slot);
            if next.is_none() {
                // It may be for other CPUs alone.
                self.wake_idle(&state);
            }
            let tasks = &state.tasks;
            if next.is_none_or(|next| tasks.space_of(next) != space) {
                let on = self.on(&pin);
                // A CPU that goes idle keeps the root: often the same task goes on.
                must(
                    body.space
                        .switch(|space| if next.is_some() { space.deactivate(on) } else { space.rest(on) }),
                );
            }
            drop(state);
            let Some(next) = next else { return };
            slot = next;
        }
    }

    /// Runs a task until it gives its CPU up.
    fn run_one(&'static self, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>) -> After {
        match self.first_step(slot, body, pin) {
            After::Resume => {}
            after => return after,
        }
        let on = self.on(pin);
        loop {
            // Faults first, and apart from the others: they have to be fast.
            let trap = A::enter(&mut body.context);
            let after = if let Trap::Fault { at, access } = trap {
                match body.space.fault(on, VirtAddr(at), access) {
                    Ok(done) => {
                        self.count_fault(done);
                        continue;
                    }
                    Err(e) => self.fault_signal(slot, body, pin, at, e),
                }
            } else {
                self.after_trap(slot, body, pin, trap)
            };
            match after {
                After::Resume => {}
                after => return after,
            }
        }
    }

    /// Does what a trap asks for that is no fault.
    #[inline]
    fn after_trap(&'static self, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>, trap: Trap) -> After {
        match trap {
            Trap::Call => self.call(slot, body, pin),
            Trap::Timer => self.tick(slot, body, pin),
            Trap::Interrupt => self.look_around(slot, body, pin),
            Trap::Protection => self.protection(slot, body, pin),
            Trap::Signal { signal, info } => {
                body.context.note_trap(None);
                self.force(slot, body, pin, signal, info)
            }
            Trap::Fault { .. } => After::Resume,
        }
    }

    /// Does the work before a task goes on in user mode: a call that has waited, signals that came
    /// while it did not run.
    fn first_step(&'static self, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>) -> After {
        let mut state = self.lock();
        let task = state.tasks.get_mut(slot);
        if core::mem::take(&mut task.in_call) {
            drop(state);
            return self.call(slot, body, pin);
        }
        if state.tasks.deliverable(slot) == 0 {
            return After::Resume;
        }
        self.deliver(&mut state, slot, body, pin)
    }

    #[cold]
    #[inline(never)]
    fn fault_signal(
        &'static self,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
        at: u64,
        e: FaultError,
    ) -> After {
        let (signal, code) = match e {
            FaultError::NoFrame(_) => (number::SIGKILL, info::SI_KERNEL),
            FaultError::BeyondObject(_) => (number::SIGBUS, info::BUS_ADRERR),
            FaultError::Denied(_) => (number::SIGSEGV, info::SEGV_ACCERR),
            _ => (number::SIGSEGV, info::SEGV_MAPERR),
        };
        body.context.note_trap(Some(at));
        if signal == number::SIGKILL
            && let Some(after) = self.out_of_memory(slot)
        {
            return after;
        }
        self.force(slot, body, pin, signal, SignalInfo::at(code, at))
    }

    /// Ends the process with the most pages for the sake of a task that found no memory. `None` if
    /// that is the task's own. Otherwise the task gives way, and makes its access again.
    #[cold]
    fn out_of_memory(&'static self, slot: usize) -> Option<After> {
        let mut state = self.lock();
        let own = state.tasks.get(slot).process;
        let victim = state.tasks.largest_process().unwrap_or(own);
        let is_ending = state.tasks.process(victim).pending.set() & bit(number::SIGKILL) != 0;
        if victim == own || !is_ending {
            let pid = state.tasks.process(victim).pid;
            say!("kernel: out of memory: process {pid} ends");
        }
        if victim == own {
            return None;
        }
        // It may be one that another task has chosen, and that has not got to its end.
        self.send(&mut state, victim, number::SIGKILL, SignalInfo::KERNEL);
        Some(After::GiveWay(state))
    }

    /// Sends a signal to a task for its last operation.
    #[cold]
    #[inline(never)]
    fn force(
        &'static self,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
        signal: u8,
        info: SignalInfo,
    ) -> After {
        let mut state = self.lock();
        state.tasks.force(slot, signal, info);
        self.deliver(&mut state, slot, body, pin)
    }

    /// A privileged instruction: a write to the exit device's port, or an offence.
    #[cold]
    #[inline(never)]
    fn protection(&'static self, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>) -> After {
        let mut bytes = [0; 2];
        let at = body.context.instruction();
        let has_ports = self.lock().tasks.process_of(slot).ports;
        if has_ports
            && body.space.read(self.on(pin), at, &mut bytes).is_ok()
            && let Some((port, value, len)) = body.context.port_write(&bytes)
        {
            if port == crate::report::EXIT_PORT {
                self.end_by_port(value);
            }
            body.context.skip(len);
            return After::Resume;
        }
        body.context.note_trap(None);
        self.force(slot, body, pin, number::SIGSEGV, SignalInfo::KERNEL)
    }

    // Apart from the loop, whose registers are for faults and calls.
    #[cold]
    #[inline(never)]
    fn tick(&'static self, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>) -> After {
        self.count(Count::Ticks);
        self.catch_up(&mut body.space, pin);
        let mut state = self.lock();
        state.tasks.get_mut(slot).usage.ticks += 1;
        self.limit_cpu(&mut state, slot);
        self.pass_time(&mut state);
        if state.timers.counts_cpus() {
            self.expire(&mut state, false, A::now());
        }
        match self.deliver(&mut state, slot, body, pin) {
            After::Resume if state.tasks.is_turn_over(slot, A::cpu()) => After::GiveWay(state),
            after => after,
        }
    }

    /// Sends the signals of `RLIMIT_CPU` if the process of a task has run so long. As under Linux,
    /// each of the soft limit raises it by a second.
    fn limit_cpu(&'static self, state: &mut State, slot: usize) {
        let process = state.tasks.get(slot).process;
        let Limit { soft, hard } = state.tasks.process(process).limits.cpu;
        if soft.min(hard) == INFINITY {
            return;
        }
        let used = state.tasks.usage_of(process).seconds();
        if used >= hard {
            self.send(state, process, number::SIGKILL, SignalInfo::KERNEL);
        } else if used >= soft {
            state.tasks.process_mut(process).limits.cpu.soft = soft + 1;
            self.send(state, process, number::SIGXCPU, SignalInfo::KERNEL);
        }
    }

    /// Another CPU wanted attention: a signal may have come, the task may have to go to another
    /// CPU, or the kernel may be ending.
    #[cold]
    #[inline(never)]
    fn look_around(&'static self, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>) -> After {
        let mut state = self.lock();
        if self.stopping.load(Ordering::SeqCst) || !state.tasks.get(slot).cpus.has(A::cpu()) {
            return After::GiveWay(state);
        }
        self.deliver(&mut state, slot, body, pin)
    }

    /// Takes the typed bytes, and makes calls be made again whose time has come.
    pub(crate) fn pass_time(&'static self, state: &mut State) {
        if A::cpu() == 0 {
            self.take_typed(state);
            let now = A::now();
            state.tasks.wake_sleepers(now);
            if state.events.pass_time(now) {
                self.events_changed(state);
            }
            if state.timers.is_due(now) {
                self.expire(state, true, now);
            }
        }
        self.wake_idle(state);
    }

    /// Wakes a CPU that is idle, if a task is ready; if some tasks may not run on all CPUs, every
    /// one for which a task is ready.
    pub(crate) fn wake_idle(&'static self, state: &State) {
        if !state.tasks.has_ready() {
            return;
        }
        let (me, wanted) = (A::cpu(), state.tasks.wanted_cpus());
        for cpu in (0..self.cpu_count()).filter(|cpu| *cpu != me) {
            if wanted.is_some_and(|wanted| !wanted.has(cpu)) {
                continue;
            }
            if self.cpus[cpu].idle.swap(false, Ordering::SeqCst) {
                self.count(Count::Ipis);
                A::interrupt(cpu);
                if wanted.is_none() {
                    return;
                }
            }
        }
    }

    /// Waits until there may be something to do.
    fn idle(&'static self) {
        let cpu = A::cpu();
        let pin = self.pin();
        let on = self.on(&pin);
        on.idle();
        while !A::HIGH_TABLES && on.clear_ahead(16) > 0 {
            self.serve();
            if self.lock().tasks.has_ready_for(cpu) {
                return;
            }
        }
        self.cpus[cpu].idle.store(true, Ordering::SeqCst);
        // Asked after the flag is set: a task that became ready before is seen here, one that comes
        // later wakes this CPU.
        if !self.lock().tasks.has_ready_for(cpu) && !self.stopping.load(Ordering::SeqCst) {
            A::wait_for_interrupt();
        }
        self.cpus[cpu].idle.store(false, Ordering::SeqCst);
        let mut state = self.lock();
        self.pass_time(&mut state);
        self.collapse(&mut state, &pin);
    }
}

/// There is one machine, and no switch is in the middle of another.
pub(crate) fn must<E: core::fmt::Display>(result: Result<(), E>) {
    if let Err(e) = result {
        refused(&e);
    }
}

#[cold]
#[inline(never)]
fn refused(e: &dyn core::fmt::Display) -> ! {
    panic!("a switch was refused: {e}")
}
