//! The tables of tasks and processes, and the run queue.

use core::ptr::NonNull;

use ptarmigan_kernel_base::raw::Raw;

use crate::errno::Errno;
use crate::limits::{SPACES, TASKS};
use crate::signal::bit;
use crate::signal::number::SIGKILL;
use crate::slots::Slots;

use super::numbers::Numbers;
use super::records::{Place, Records};
use super::{CpuSet, Doing, INIT, LocksNew, Process, SpaceRecord, Task, Turns, Usage, Wait};
use crate::grown::Page;

/// The tables of tasks, processes and spaces, and the tasks that are ready, in order.
pub struct TaskQueues {
    /// The nanoseconds from 1970 to boot.
    pub epoch: u64,
    /// Slots of tasks. A process has that of its first task.
    pub(super) taken: Slots<{ TASKS / 64 }>,
    pub(super) all: Records<Task, TASKS>,
    pub(super) processes: Records<Process, TASKS>,
    /// Numbers of records of spaces.
    pub(super) taken_spaces: Slots<{ SPACES / 64 }>,
    pub(super) spaces: Records<SpaceRecord, SPACES>,
    numbers: Numbers,
    /// A ring of slots that are ready.
    ready: [u16; TASKS],
    first: usize,
    count: usize,
    /// How many of them have a rank, or may not run on all CPUs.
    particular: usize,
    last_pid: i32,
    /// Tasks whose call waits for a time.
    pub sleepers: usize,
    /// The process whose pages were looked at last, to make large pages of them.
    pub collapsed: usize,
    /// Waits on futexes so far.
    pub futex_waits: u64,
    /// Arguments of the program that is about to begin.
    pub arguments: crate::exec::Arguments,
}

const fn none<T>(record: &'static Raw<T>) -> NonNull<T> {
    // SAFETY: 1. A static is not at address 0.
    unsafe { NonNull::new_unchecked(record.get()) }
}

impl TaskQueues {
    /// Makes a table without tasks.
    ///
    /// # Safety
    ///
    /// 1. The caller makes one, and uses no other: records that are not there are statics.
    pub const unsafe fn new() -> Self {
        static TASK: Raw<Task> = Raw::new(Task::none());
        static PROCESS: Raw<Process> = Raw::new(Process::none());
        static SPACE: Raw<SpaceRecord> = Raw::new(SpaceRecord::none());
        // SAFETY: 1. They are statics of this function's, which is called for one table (point 1).
        let (all, processes, spaces) =
            unsafe { (Records::new(none(&TASK)), Records::new(none(&PROCESS)), Records::new(none(&SPACE))) };
        TaskQueues {
            epoch: 0,
            taken: Slots::new(),
            all,
            processes,
            taken_spaces: Slots::new(),
            spaces,
            numbers: Numbers::new(),
            ready: [0; TASKS],
            first: 0,
            count: 0,
            particular: 0,
            last_pid: 0,
            sleepers: 0,
            collapsed: 0,
            futex_waits: 0,
            arguments: crate::exec::Arguments::new(),
        }
    }

    /// Returns the task in a slot.
    #[inline]
    pub fn get(&self, slot: usize) -> &Task {
        self.all.get(slot)
    }

    /// Returns the task in a slot, to be changed.
    #[inline]
    pub fn get_mut(&mut self, slot: usize) -> &mut Task {
        self.all.get_mut(slot)
    }

    /// Returns a process by the slot of its first task.
    #[inline]
    pub fn process(&self, process: usize) -> &Process {
        self.processes.get(process)
    }

    /// Returns a process by the slot of its first task, to be changed.
    #[inline]
    pub fn process_mut(&mut self, process: usize) -> &mut Process {
        self.processes.get_mut(process)
    }

    /// Returns the process that a task belongs to.
    #[inline]
    pub fn process_of(&self, slot: usize) -> &Process {
        self.process(self.get(slot).process)
    }

    /// Returns the process that a task belongs to, to be changed.
    #[inline]
    pub fn process_of_mut(&mut self, slot: usize) -> &mut Process {
        self.process_mut(self.get(slot).process)
    }

    /// Returns the number of the record of the space that a task runs in.
    #[inline]
    pub fn space_of(&self, slot: usize) -> usize {
        self.get(slot).space
    }

    /// Returns the record of a space.
    #[inline]
    pub fn space(&self, number: usize) -> &SpaceRecord {
        self.spaces.get(number)
    }

    /// Returns the record of a space, to be changed.
    #[inline]
    pub fn space_mut(&mut self, number: usize) -> &mut SpaceRecord {
        self.spaces.get_mut(number)
    }

    /// Returns the process whose space has the most pages in its areas, of those that have not
    /// ended: process 1 only if there is no other. One that is to be killed already comes first.
    pub fn largest_process(&self) -> Option<usize> {
        let alive = |slot: &usize| self.is_process(*slot) && self.process(*slot).threads > 0;
        let size = |slot: &usize| {
            let process = self.process(*slot);
            let is_ending = process.pending.set() & bit(SIGKILL) != 0;
            (*slot != INIT, is_ending, self.space(process.space).shown.pages())
        };
        self.slots().filter(alive).max_by_key(size)
    }

    /// Copies the record `from` to the record `to`, which is new. `page` makes pages of counts.
    ///
    /// # Errors
    ///
    /// Those of `page`.
    pub(super) fn copy_record(
        &mut self,
        to: usize,
        from: usize,
        page: impl FnMut() -> Result<Place<Page>, Errno>,
    ) -> Result<(), Errno> {
        if let Some((to, from)) = self.spaces.pair(to, from) {
            (to.users, to.heap, to.heap_end) = (from.users, from.heap, from.heap_end);
            // A child does not inherit them.
            (to.has_locks, to.locks_new) = (false, LocksNew::No);
            (to.forks_in_part, to.arguments) = (from.forks_in_part, from.arguments);
            to.shown.copy_from(&from.shown, page)?;
        }
        Ok(())
    }

    /// Returns two processes, the first to be changed; `None` if they are one.
    pub fn processes(&mut self, to: usize, from: usize) -> Option<(&mut Process, &Process)> {
        self.processes.pair(to, from)
    }

    /// Returns the slots among which the tasks of a process are that have not ended.
    fn places(&self, process: usize) -> core::ops::Range<usize> {
        // Mostly there is one, the first.
        let is_sole = self.process(process).threads == 1 && self.get(process).is_alive();
        if is_sole { process..process + 1 } else { self.slots() }
    }

    /// Returns the slots of the tasks of a process that have not ended.
    pub fn threads(&self, process: usize) -> impl Iterator<Item = usize> + '_ {
        self.places(process)
            .filter(move |slot| self.get(*slot).process == process && self.get(*slot).is_alive())
    }

    /// Returns the use of the tasks of a process, ended ones included. Faults of a
    /// task that runs are counted when it gives its CPU up.
    pub fn usage_of(&self, process: usize) -> Usage {
        let mut usage = self.process(process).usage;
        for slot in self.threads(process) {
            usage.add(self.get(slot).usage);
        }
        usage
    }

    /// Returns the processes, ended ones too, until their parents have asked for them.
    pub fn each_process(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots().filter(|slot| self.is_process(*slot))
    }

    /// Whether a slot is that of the first task of a process, ended or not.
    pub fn is_process(&self, slot: usize) -> bool {
        let task = self.get(slot);
        task.process == slot && task.doing != Doing::Nothing
    }

    /// Returns the signals that can be delivered to a task now.
    pub fn deliverable(&self, slot: usize) -> u64 {
        let task = self.get(slot);
        (task.signals.pending.set() | self.process(task.process).pending.set()) & !task.signals.blocked
    }

    /// Returns the signals that a call of a task waits for.
    pub fn awaited(&self, slot: usize) -> u64 {
        match self.get(slot).doing {
            Doing::Waiting(Wait::Signal(set)) => set,
            _ => 0,
        }
    }

    /// Returns the slots up to the last one that holds a task.
    pub fn slots(&self) -> core::ops::Range<usize> {
        0..self.taken.end()
    }

    /// Gives the task in a slot, which has just been taken, a number.
    pub(super) fn give_number(&mut self, slot: usize) -> i32 {
        // Numbers do not come again before 2^30 others have been used.
        self.last_pid = self.last_pid % (1 << 30) + 1;
        self.get_mut(slot).tid = self.last_pid;
        self.numbers.add(self.last_pid, slot);
        self.last_pid
    }

    /// Gives a task, which has a number, another one: that of its process.
    pub fn change_number(&mut self, slot: usize, number: i32) {
        let before = core::mem::replace(&mut self.get_mut(slot).tid, number);
        if before != number {
            self.numbers.remove(before, slot);
            self.numbers.add(number, slot);
        }
    }

    /// Forgets the number of a task that goes.
    pub(super) fn forget_number(&mut self, slot: usize) {
        let number = self.get(slot).tid;
        self.numbers.remove(number, slot);
    }

    /// Puts a task at the end of the run queue.
    pub fn make_ready(&mut self, slot: usize) {
        let task = self.get_mut(slot);
        task.doing = Doing::Ready;
        let is_particular = task.is_particular();
        self.particular += usize::from(is_particular);
        let at = (self.first + self.count) % TASKS;
        self.ready[at] = slot as u16;
        self.count += 1;
    }

    /// Takes the next task off the run queue; it runs on `cpu`.
    pub fn next(&mut self, cpu: usize) -> Option<usize> {
        if self.particular > 0 && !self.bring_first(cpu) {
            return None;
        }
        self.count = self.count.checked_sub(1)?;
        let slot = usize::from(self.ready[self.first % TASKS]);
        self.first = (self.first + 1) % TASKS;
        self.get_mut(slot).doing = Doing::Running(cpu);
        Some(slot)
    }

    /// Returns the highest rank of a task that is ready and may run on `cpu`, and the first place
    /// of the queue that has such a task.
    fn highest(&self, cpu: usize) -> Option<(u8, usize)> {
        let ranked = |place: usize| {
            let task = self.get(self.ready[(self.first + place) % TASKS].into());
            task.cpus.has(cpu).then_some((task.turns.rank, place))
        };
        (0..self.count).filter_map(ranked).max_by_key(|(rank, place)| (*rank, usize::MAX - place))
    }

    /// Moves the first task of the highest rank that may run on `cpu` to the front of the run
    /// queue; false if there is no task for that CPU.
    #[cold]
    fn bring_first(&mut self, cpu: usize) -> bool {
        let Some((_, place)) = self.highest(cpu) else { return false };
        let slot = self.ready[(self.first + place) % TASKS];
        for place in (0..place).rev() {
            self.ready[(self.first + place + 1) % TASKS] = self.ready[(self.first + place) % TASKS];
        }
        self.ready[self.first % TASKS] = slot;
        self.particular -= usize::from(self.get(slot.into()).is_particular());
        true
    }

    /// Sets how a task takes turns.
    pub fn set_turns(&mut self, slot: usize, turns: Turns) {
        self.change(slot, |task| task.turns = turns);
    }

    /// Sets the CPUs that a task may run on. One that runs elsewhere goes on there until its CPU
    /// looks ([`is_turn_over`](Self::is_turn_over)).
    pub fn set_cpus(&mut self, slot: usize, cpus: CpuSet) {
        self.change(slot, |task| task.cpus = cpus);
    }

    /// Changes a task in a way that the run queue counts.
    fn change(&mut self, slot: usize, f: impl FnOnce(&mut Task)) {
        let task = self.get_mut(slot);
        let before = task.is_particular();
        f(task);
        let (is_ready, after) = (task.doing == Doing::Ready, task.is_particular());
        if is_ready {
            self.particular = self.particular + usize::from(after) - usize::from(before);
        }
    }

    /// Whether a task that runs on `cpu` gives way at a tick: to one of a higher rank, and without
    /// a rank, or with one and turns, to one of its own; or because it may not run there any more.
    pub fn is_turn_over(&self, slot: usize, cpu: usize) -> bool {
        let (turns, cpus) = (self.get(slot).turns, self.get(slot).cpus);
        if !cpus.has(cpu) {
            return true;
        }
        if turns.rank == 0 {
            return self.has_ready_for(cpu);
        }
        let highest = self.highest(cpu).map_or(0, |(rank, _)| rank);
        highest > turns.rank || (highest == turns.rank && turns.takes_turns())
    }

    /// Whether a task is ready, for any CPU.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.count > 0
    }

    /// Whether a task is ready that may run on a CPU.
    pub fn has_ready_for(&self, cpu: usize) -> bool {
        self.count > 0 && (self.particular == 0 || self.highest(cpu).is_some())
    }

    /// Returns the CPUs that ready tasks may run on; `None` if any of them may run on all.
    pub fn wanted_cpus(&self) -> Option<CpuSet> {
        if self.particular == 0 {
            return None;
        }
        let cpus = |place: usize| self.get(self.ready[(self.first + place) % TASKS].into()).cpus;
        (0..self.count).map(cpus).reduce(CpuSet::or)
    }

    /// Returns the process with a number, ended or not.
    pub fn find_process(&self, pid: i32) -> Option<usize> {
        self.numbers.candidates(pid).find(|slot| self.is_process(*slot) && self.process(*slot).pid == pid)
    }

    /// Returns the slot of the task with a number that has not ended.
    pub fn find_task(&self, tid: i32) -> Option<usize> {
        self.numbers.candidates(tid).find(|slot| self.get(*slot).tid == tid && self.get(*slot).is_alive())
    }

    /// Returns the process whose lock a thread of a process waits for.
    pub fn lock_holder(&self, process: usize) -> Option<usize> {
        self.threads(process).find_map(|slot| match self.get(slot).doing {
            Doing::Waiting(Wait::Lock { holder, .. }) => holder.map(usize::from),
            _ => None,
        })
    }

    /// Makes every call with a wait for which `which` returns true be made again; returns whether
    /// there was one.
    pub fn wake(&mut self, which: impl Fn(Wait) -> bool) -> bool {
        let mut any = false;
        for slot in self.slots() {
            if let Doing::Waiting(wait) = self.get(slot).doing
                && which(wait)
            {
                self.make_ready(slot);
                any = true;
            }
        }
        any
    }

    /// Has the calls of a process's tasks be made again that wait for `wait`.
    pub fn wake_threads(&mut self, process: usize, wait: Wait) {
        for slot in self.places(process) {
            let task = self.get(slot);
            if task.process == process && task.doing == Doing::Waiting(wait) {
                self.make_ready(slot);
            }
        }
    }

    /// Has calls be made again whose time has come.
    pub fn wake_sleepers(&mut self, now: u64) {
        if self.sleepers == 0 {
            return;
        }
        let mut left = 0;
        for slot in self.slots() {
            let task = self.get(slot);
            if task.deadline == 0 || !matches!(task.doing, Doing::Waiting(_)) {
                continue;
            }
            if task.deadline <= now {
                self.make_ready(slot);
            } else {
                left += 1;
            }
        }
        self.sleepers = left;
    }
}
