//! Remembers tasks that have exited: their last times come behind their exit.
use super::TraceBuilder;
use ptarmigan_trace::{Event, Kind, Note, WriteError};
use std::collections::HashMap;
use std::io::Write;

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

    fn get(&self, pid: i32) -> Option<ExitedTask> {
        self.newer.get(&pid).or_else(|| self.older.get(&pid)).copied()
    }
}

impl<W: Write> TraceBuilder<'_, W> {
    /// Records a note on a task that has exited.
    pub(super) fn note_exited(&mut self, pid: i32, note: Note) -> Result<(), WriteError> {
        match self.exited.get(pid) {
            Some(ExitedTask { number, cpu, recorded: true }) if self.started => {
                self.queue.push(self.now, Event { task: number, cpu, kind: Kind::Note(note) })
            }
            _ => Ok(()),
        }
    }
}
