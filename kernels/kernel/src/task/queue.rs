//! The table of tasks and the run queue.

use super::{Doing, Task, Wait};

/// Tasks at a time.
pub const TASKS: usize = 256;

/// The table of tasks, and those that are ready, in order.
pub struct Tasks {
    all: [Task; TASKS],
    /// A ring of slots that are ready.
    ready: [u16; TASKS],
    first: usize,
    count: usize,
    /// Slots that were used and are free, a stack.
    free: [u16; TASKS],
    free_count: usize,
    /// Slots from here on were never used.
    used: usize,
    last_pid: i32,
    /// Tasks whose call waits for a time.
    pub sleepers: usize,
    /// Arguments of the program that is about to begin.
    pub arguments: crate::exec::Arguments,
}

impl Tasks {
    /// Makes a table without tasks.
    pub const fn new() -> Self {
        Tasks {
            all: [const { Task::none() }; TASKS],
            ready: [0; TASKS],
            first: 0,
            count: 0,
            free: [0; TASKS],
            free_count: 0,
            used: 0,
            last_pid: 0,
            sleepers: 0,
            arguments: crate::exec::Arguments::new(),
        }
    }

    /// Returns the task in a slot.
    #[inline(always)]
    pub fn get(&self, slot: usize) -> &Task {
        &self.all[slot % TASKS]
    }

    /// Returns the task in a slot, to be changed.
    #[inline(always)]
    pub fn get_mut(&mut self, slot: usize) -> &mut Task {
        &mut self.all[slot % TASKS]
    }

    /// Returns two tasks, the first to be changed; `None` if they are one.
    pub fn pair(&mut self, to: usize, from: usize) -> Option<(&mut Task, &Task)> {
        let (to, from) = (to % TASKS, from % TASKS);
        if to < from {
            let (low, high) = self.all.split_at_mut(from);
            Some((low.get_mut(to)?, high.first()?))
        } else {
            let (low, high) = self.all.split_at_mut(to);
            Some((high.first_mut()?, low.get(from)?))
        }
    }

    /// Returns the slots that have ever held a task.
    pub fn slots(&self) -> core::ops::Range<usize> {
        0..self.used
    }

    /// Takes a free slot and a number for a new task.
    pub fn claim(&mut self) -> Option<(usize, i32)> {
        let slot = if let Some(left) = self.free_count.checked_sub(1) {
            self.free_count = left;
            usize::from(self.free[left])
        } else if self.used < TASKS {
            self.used += 1;
            self.used - 1
        } else {
            return None;
        };
        // Numbers do not come again before 2^30 others have been used.
        self.last_pid = self.last_pid % (1 << 30) + 1;
        Some((slot, self.last_pid))
    }

    /// Gives a slot back, whose task is gone.
    pub fn give_back(&mut self, slot: usize) {
        self.get_mut(slot).doing = Doing::Nothing;
        if let Some(place) = self.free.get_mut(self.free_count) {
            *place = slot as u16;
            self.free_count += 1;
        }
    }

    /// Puts a task at the end of the run queue.
    pub fn make_ready(&mut self, slot: usize) {
        self.get_mut(slot).doing = Doing::Ready;
        let at = (self.first + self.count) % TASKS;
        self.ready[at] = slot as u16;
        self.count += 1;
    }

    /// Takes the next task off the run queue; it runs on `cpu`.
    pub fn next(&mut self, cpu: usize) -> Option<usize> {
        self.count = self.count.checked_sub(1)?;
        let slot = usize::from(self.ready[self.first % TASKS]);
        self.first = (self.first + 1) % TASKS;
        self.get_mut(slot).doing = Doing::Running(cpu);
        Some(slot)
    }

    /// Whether a task is ready.
    #[inline(always)]
    pub fn has_ready(&self) -> bool {
        self.count > 0
    }

    /// Returns the slot of the task with a number, ended or not.
    pub fn find(&self, pid: i32) -> Option<usize> {
        self.slots().find(|slot| self.get(*slot).pid == pid && self.get(*slot).doing != Doing::Nothing)
    }

    /// Has every call that waits for what `which` says be made again; whether there was one.
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

    /// Has the waiting call of one task be made again, if there is one.
    pub fn wake_one(&mut self, slot: usize) {
        if let Doing::Waiting(_) = self.get(slot).doing {
            self.make_ready(slot);
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

impl Default for Tasks {
    fn default() -> Self {
        Tasks::new()
    }
}
