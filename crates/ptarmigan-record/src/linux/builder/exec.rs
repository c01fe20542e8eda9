//! Gives tasks the address spaces of new programs.
use super::state::{SpaceUsers, TraceBuilder, USUAL_STACK};
use crate::linux::system::proc::{PAGE_SHIFT, USER_END};
use ptarmigan_trace::{Kind, Name, UnreadReason, WriteError};
use std::io::Write;

impl<W: Write> TraceBuilder<'_, W> {
    /// Ends the events of a task whose new program could not be looked at.
    fn leave_unrecorded(&mut self, pid: i32) -> Result<(), WriteError> {
        self.put(pid, Kind::Exit { last: true })?;
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.recorded = false;
        }
        Ok(())
    }

    /// Gives a task in the middle of an execve its address space. Returns its process, if that has
    /// to be read.
    pub(super) fn begun_exec(&mut self, pid: i32) -> Result<Option<i32>, WriteError> {
        if let Some(when) = self.tasks.get_mut(&pid).and_then(|task| task.exec.take()) {
            self.exec(pid, when)?;
        }
        Ok(self.unread.group_of(pid))
    }

    /// Gives a task a new address space.
    pub(super) fn exec(&mut self, pid: i32, when: u64) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let group = task.group;
        let waiter = task.waiter.take();
        let other_tracer = std::mem::take(&mut task.other_tracer);
        let old = std::mem::replace(&mut task.space, self.next_space);
        self.spaces.insert(self.next_space, SpaceUsers { users: 1, ..SpaceUsers::default() });
        self.next_space += 1;
        self.leave_space(old, false);
        let made = (self.made)(group, when);
        if self.attached && made.is_none() {
            self.exec_unseen(pid, group)?;
            return self.release(waiter);
        }
        let narrow = made.as_ref().is_some_and(|made| made.narrow);
        let name = made.as_ref().map(|made| made.name.clone()).unwrap_or_default();
        let Some(made) = made.filter(|made| made.is_complete() && !narrow) else {
            let (count, why) = match (narrow, other_tracer) {
                (true, _) => (&mut self.seen.narrow, UnreadReason::Narrow),
                (_, true) => (&mut self.seen.other_tracer, UnreadReason::OtherTracer),
                _ => (&mut self.seen.blank, UnreadReason::Ended),
            };
            *count += 1;
            let number = self.tasks.get(&pid).filter(|task| task.recorded).map(|task| task.number);
            self.note_unread(number, &name, why)?;
            self.leave_unrecorded(pid)?;
            return self.release(waiter);
        };
        self.started |= self.tasks.get(&pid).is_some_and(|task| task.recorded);
        let stack_end = if made.stack_end == 0 { (USER_END >> PAGE_SHIFT) - 1 } else { made.stack_end };
        // 0 stands for a process that ran already.
        self.put(pid, Kind::Exec { stack_end, arg_pages: made.arg_pages.max(1) })?;
        for a in &made.areas {
            self.put(pid, Kind::Area { start: a.start, pages: a.pages, prot: a.prot, kind: a.kind })?;
        }
        if made.heap != 0 {
            self.put(pid, Kind::Brk { end: made.heap })?;
        }
        if made.stack_limit != 0 && made.stack_limit != USUAL_STACK {
            self.put(pid, Kind::StackLimit { pages: made.stack_limit })?;
        }
        if !made.name.is_empty() {
            self.put(pid, Kind::Name(Name::new(&made.name)))?;
        }
        self.note_program(pid, &made.program, &made.objects)?;
        self.release(waiter)
    }
}
