//! Records what was found at looks at tasks: present pages and counts of tables.
use super::state::TraceBuilder;
use crate::record::linux::system::pagemap::Found;
use ptarmigan_trace::{FaultFlags, Kind, Sampled, WriteError};
use std::io::Write;

impl<W: Write> TraceBuilder<'_, W> {
    /// Records pages that were found at a stop, where no event has made a table.
    pub(super) fn present(&mut self, pid: i32, found: &[Found]) -> Result<(), WriteError> {
        // Of the recorder's own pages before the first program, no event tells.
        if !self.started || !self.tasks.get(&pid).is_some_and(|task| task.recorded) {
            return Ok(());
        }
        let Some(space) = self.space_of(pid) else { return Ok(()) };
        let (news, unexplained) = space.known.news(found);
        self.seen.found += unexplained;
        for f in news {
            // A page that a fork shares has not been written since: a write would copy it.
            let flags = match (f.huge, f.private, f.exclusive) {
                (true, ..) => FaultFlags::HUGE,
                (false, true, true) => FaultFlags::WRITE,
                (false, true, false) => FaultFlags::PRESENT,
                (false, false, _) => 0,
            };
            let kind = Kind::Touched { start: f.start, pages: f.pages, flags: FaultFlags(flags) };
            self.put(pid, kind)?;
        }
        Ok(())
    }

    /// Records a count of tables if no other task could change the address space while it was read.
    pub(super) fn sample(&mut self, pid: i32, tables: u32, exit: bool) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let Some(space) = self.spaces.get_mut(&task.space) else { return Ok(()) };
        let mut others = space.users.saturating_sub(1);
        others = others.saturating_sub(space.still - u32::from(task.dying));
        if exit && !task.dying {
            task.dying = true;
            space.still += 1;
        }
        if others == 0 && self.started && task.recorded {
            let at = if exit { Sampled::Exit } else { Sampled::Exec };
            self.put(pid, Kind::Truth { tables, at })?;
        }
        Ok(())
    }
}
