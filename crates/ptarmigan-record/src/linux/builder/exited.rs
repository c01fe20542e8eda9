//! Remembers tasks that have exited: their last times come behind their exit.
use std::collections::HashMap;

/// The number of exits after which a task may be forgotten.
const REMEMBERED: usize = 1 << 12;

/// A task that has exited.
#[derive(Clone, Copy)]
pub(super) struct ExitedTask {
    pub(super) number: u32,
    pub(super) cpu: u16,
    pub(super) recorded: bool,
}

/// The last tasks that have exited, by their process numbers.
#[derive(Default)]
pub(super) struct Exited {
    newer: HashMap<i32, ExitedTask>,
    older: HashMap<i32, ExitedTask>,
}

impl Exited {
    pub(super) fn add(&mut self, pid: i32, task: ExitedTask) {
        if self.newer.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(pid, task);
    }

    pub(super) fn get(&self, pid: i32) -> Option<ExitedTask> {
        self.newer.get(&pid).or_else(|| self.older.get(&pid)).copied()
    }
}
