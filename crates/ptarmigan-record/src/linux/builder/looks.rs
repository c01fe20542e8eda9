//! Records what was found at looks at tasks: present pages and counts of tables.
//!
//! A look takes a while, and others that share the space may run meanwhile. Pages of a call are
//! written only where no other task could have mapped since ([`changes`](super::changes)).
use super::changes::{remove, replaced_by};
use super::state::{ExpectedLook, QueuedCall, TraceBuilder};
use super::syscall::event_of;
use crate::linux::raw::MmCall;
use crate::linux::system::pagemap::PresentPages;
use crate::linux::system::sys;
use ptarmigan_trace::{Event, FaultFlags, Kind, Sampled, WriteError};
use std::io::Write;
use std::ops::Range;

impl<W: Write> TraceBuilder<'_, W> {
    /// Returns how many other tasks could change the space of a task.
    fn others(&self, pid: i32) -> u32 {
        let task = self.tasks.get(&pid);
        let Some((task, space)) = task.and_then(|task| Some((task, self.spaces.get(&task.space)?))) else {
            return 0;
        };
        let others = space.users.saturating_sub(1);
        others.saturating_sub(space.still.saturating_sub(u32::from(task.dying)))
    }

    /// Records pages that were found at a stop, where no event has made a table. In a space in
    /// which others run, no page is certain by the time it is written.
    pub(super) fn present(
        &mut self,
        pid: i32,
        still: bool,
        found: &[PresentPages],
    ) -> Result<(), WriteError> {
        // Of the recorder's own pages before the first program, no event tells.
        if !self.started || !self.tasks.get(&pid).is_some_and(|task| task.recorded) {
            return Ok(());
        }
        if !still && self.others(pid) > 0 {
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

    /// A call has ended whose effect may be looked at now. In a shared space, the pages that are
    /// found get a place behind it: a fork of another task may come before the look does.
    pub(super) fn expect_look(&mut self, pid: i32, call: MmCall, args: [u64; 5], result: i64) {
        let may_follow = match call {
            MmCall::Mmap => sys::populates_file(args[3]),
            MmCall::Madvise => result < 0 && sys::POPULATING.contains(&args[2]),
            MmCall::Mlock => result < 0,
            MmCall::Mlockall => result >= 0,
            _ => false,
        };
        if may_follow && self.started && self.space_of(pid).is_some_and(|space| space.users > 1) {
            let private = args[3] & libc::MAP_TYPE as u64 == libc::MAP_PRIVATE as u64;
            let writes = call == MmCall::Mmap && private && args[2] & libc::PROT_WRITE as u64 != 0;
            let (place, since) = (self.queue.open(), self.now);
            if let Some(task) = self.tasks.get_mut(&pid) {
                task.look = Some(ExpectedLook { place, since, writes });
            }
        }
    }

    /// Records pages that a call has made present.
    pub(super) fn touched(
        &mut self,
        pid: i32,
        start: u64,
        pages: u64,
        write: bool,
    ) -> Result<(), WriteError> {
        let task = self.tasks.get(&pid).filter(|task| task.recorded && self.started);
        let looked = task.and_then(|task| Some((task.look?, task.number, task.cpu)));
        let write = write || looked.is_some_and(|(look, ..)| look.writes);
        // The program asked for them.
        let flags = FaultFlags(if write { FaultFlags::WRITE } else { 0 } | FaultFlags::USER);
        let Some((look, number, cpu)) = looked else {
            return self.put(pid, Kind::Touched { start, pages, flags });
        };
        for part in self.not_replaced(pid, start..start + pages, look.since) {
            let kind = Kind::Touched { start: part.start, pages: part.end - part.start, flags };
            self.queue.add(look.place, self.now, Event { task: number, cpu, kind })?;
        }
        Ok(())
    }

    /// Returns the parts of a range in which no other task of the space may have put a mapping
    /// since a time.
    fn not_replaced(&self, pid: i32, range: Range<u64>, since: u64) -> Vec<Range<u64>> {
        let mut parts = vec![range];
        let Some(space) = self.tasks.get(&pid).map(|task| task.space) else { return parts };
        if let Some(space) = self.spaces.get(&space) {
            space.changes.remove(&mut parts, pid, since);
        }
        let others = self.tasks.iter().filter(|(other, task)| **other != pid && task.space == space);
        for QueuedCall { call, args, .. } in others.filter_map(|(_, task)| task.call) {
            // Where it will be if it does as it is told.
            let result = if call == MmCall::Mremap { args[4] } else { args[0] };
            let kind = event_of(call, args, result as i64);
            if let Some(gone) = kind.as_ref().and_then(replaced_by) {
                remove(&mut parts, &gone);
            }
        }
        parts
    }

    /// Records a count of tables if no other task could change the address space while it was read.
    pub(super) fn sample(&mut self, pid: i32, tables: u32, exit: bool) -> Result<(), WriteError> {
        let others = self.others(pid);
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let Some(space) = self.spaces.get_mut(&task.space) else { return Ok(()) };
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
