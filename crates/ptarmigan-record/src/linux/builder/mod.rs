//! Builds the trace: follows tasks and address spaces through the merged raw events.
mod changes;
mod describing;
mod exec;
mod exited;
mod looks;
mod missed;
mod objects;
mod queue;
mod reading;
mod state;
mod syscall;
mod tables;
mod timing;
mod unread;

pub(crate) use describing::CallersFound;
pub(crate) use state::{SideCounts, TraceBuilder};

use crate::linux::raw::{CLONE_THREAD, CLONE_VFORK, CLONE_VM, MmCall, NO_CPU, Raw, RawKind};
use crate::linux::system::proc::{PAGE_SHIFT, USER_END};
use crate::linux::system::sys;
use exited::ExitedTask;
use ptarmigan_trace::{
    CloneKind, Event, FaultFlags, FlushEvent, Kind, MapFlags, Note, Object, Sampled, WriteError, Writer,
};
use state::{QueuedCall, SharedFault, SpaceUsers, TaskState};
use std::io::Write;
use syscall::{event_of, populated_later};
use tables::KnownTables;

/// The most raw events of unknown tasks that are kept.
const MOST_EARLY: usize = 1 << 16;

impl<'a, W: Write> TraceBuilder<'a, W> {
    /// Processes the next raw event, in order of time.
    pub(crate) fn feed(&mut self, mut raw: Raw) -> Result<(), WriteError> {
        let (time, cpu) = (raw.time, raw.cpu);
        let mut timed = std::mem::take(&mut self.timed);
        self.timing.settle(&mut raw);
        self.timing.see(&raw, &mut timed);
        match raw.what {
            RawKind::Switch { next: 0, .. } => self.follow(Raw { what: RawKind::Idle, ..raw })?,
            RawKind::Switch { .. }
            | RawKind::Wake { .. }
            | RawKind::Begin { .. }
            | RawKind::End { .. }
            | RawKind::Counters(_) => {}
            RawKind::Begun => self.queue.begin(time),
            _ => self.follow(raw)?,
        }
        if !self.queue.has_begun() {
            // Times are of the recording, without the reading before it.
            timed.clear();
        }
        for (pid, what) in timed.drain(..) {
            self.follow(Raw { time, cpu, pid, what })?;
        }
        self.timed = timed;
        Ok(())
    }

    /// Processes a raw event that is known to the account of times.
    fn follow(&mut self, raw: Raw) -> Result<(), WriteError> {
        let pid = raw.pid;
        self.now = raw.time;
        match &raw.what {
            RawKind::ReadStart { threads } => {
                self.read_start(pid, threads);
                return Ok(());
            }
            RawKind::ReadDone(state) => return self.read_done(pid, state),
            _ => {}
        }
        if let Some(group) = self.unread.group_of(pid) {
            return self.unread_event(group, raw);
        }
        if let RawKind::ExecDone { old } = raw.what
            && old != pid
            && self.tasks.contains_key(&old)
        {
            // ptrace does not always report the exit of the group's first task, whose number this
            // task takes.
            self.exit(pid)?;
            self.rename(old, pid);
        }
        if let Some(note) = raw.what.after_exit() {
            // Its exit waits for the clone, which the parent's stop tells later.
            if self.early.contains_key(&pid) && self.exited.get(pid).is_none() {
                return self.stranger(raw);
            }
            return self.note_exited(pid, note);
        }
        if !self.tasks.contains_key(&pid) {
            // A thread that calls execve takes the number of its group's first task after that
            // task's exit.
            let Some(thread) =
                self.tasks.iter().find(|(_, t)| t.exec.is_some() && t.group == pid).map(|(p, _)| *p)
            else {
                return self.stranger(raw);
            };
            self.rename(thread, pid);
            if let Some(group) = self.begun_exec(pid)? {
                return self.unread_event(group, raw);
            }
        }
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        if raw.cpu != NO_CPU {
            task.cpu = raw.cpu;
        }
        let quiet = matches!(raw.what, RawKind::Idle | RawKind::TlbFlush { .. } | RawKind::Exit);
        if let Some(held) = &mut task.held
            && !quiet
        {
            held.push(raw);
            return Ok(());
        }
        if !raw.what.is_beside() {
            task.fault = None;
        }
        if !raw.what.is_of_look()
            && let Some(look) = task.look.take()
        {
            self.queue.close(look.place)?;
        }
        if !raw.what.keeps_lock() {
            self.release_locks(pid)?;
        }
        self.take(pid, raw)
    }

    /// Gives up the places that a fork would have taken.
    fn release_locks(&mut self, pid: i32) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        for place in std::mem::take(&mut task.released).into_iter().flatten() {
            self.queue.resolve(place, self.now, None)?;
        }
        Ok(())
    }

    /// Handles an event of an unknown task: it is no descendant, or its clone arrives late.
    fn stranger(&mut self, raw: Raw) -> Result<(), WriteError> {
        let foreign = match raw.what {
            RawKind::Idle | RawKind::TlbFlush { .. } => true,
            // Those of all programs are reported.
            RawKind::Mapped(_) | RawKind::Sampled(_) => !self.early.contains_key(&raw.pid),
            _ => false,
        };
        if foreign || self.early_count >= MOST_EARLY {
            self.seen.foreign += 1;
            return Ok(());
        }
        self.early_count += 1;
        self.early.entry(raw.pid).or_default().push(raw);
        Ok(())
    }

    fn take(&mut self, pid: i32, raw: Raw) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        match raw.what {
            RawKind::Fault { code: 0, .. } if task.made => {}
            RawKind::Fault { address, code } => self.faulted(pid, raw.time, address, code)?,
            RawKind::Clone { child, flags } => self.clone(pid, child, flags)?,
            RawKind::ExecStart => {
                let alone = self.groups.get(&task.group) == Some(&1);
                if alone {
                    self.exec(pid, raw.time)?;
                } else {
                    // The other threads end first.
                    task.exec = Some(raw.time);
                }
            }
            RawKind::ExecMade => task.made = true,
            RawKind::ExecDone { .. } => {
                task.made = false;
                if let Some(group) = self.begun_exec(pid)? {
                    return self.unread_event(group, raw);
                }
            }
            RawKind::Exit => self.exit(pid)?,
            RawKind::Mapped(object) => self.object_seen(pid, *object),
            RawKind::Sampled(sample) => self.note_caller(pid, &sample)?,
            RawKind::Enter { call, args } => {
                task.object = None;
                // The previous call never ended: its task was killed in it, or its end was lost.
                let last = task.call.replace(QueuedCall::new(call, args));
                for place in last.into_iter().flat_map(QueuedCall::places) {
                    self.queue.resolve(place, self.now, None)?;
                }
            }
            RawKind::Locked if self.started && task.recorded => {
                if let Some(QueuedCall { place: place @ None, .. }) = &mut task.call {
                    *place = Some(self.queue.reserve());
                }
            }
            RawKind::Released if self.started && task.recorded && task.call.is_none() => {
                let [oldest, newest] = task.released;
                task.released = [newest, Some(self.queue.reserve())];
                if let Some(place) = oldest {
                    self.queue.resolve(place, self.now, None)?;
                }
            }
            RawKind::NotLocked => {
                if let Some(fault) = &mut task.fault {
                    fault.refusals = fault.refusals.saturating_add(1);
                }
            }
            RawKind::LockedToRead => self.locked_to_read(pid)?,
            RawKind::Locked | RawKind::Released => {}
            RawKind::Leave { result } => {
                if let Some(call) = task.call.take() {
                    self.returned(pid, raw.time, call, result)?;
                }
            }
            RawKind::Attached { start, pages, prot, segment } => {
                let segment = if segment { MapFlags::SEGMENT } else { 0 };
                let flags = MapFlags(MapFlags::SHARED | MapFlags::ANON | segment);
                self.segments(pid, Kind::Mmap { start, pages, prot, flags })?;
                let object = Object::SharedMemory;
                self.put(pid, Kind::Note(Note::Mapped { start, pages, object, name: None }))?;
            }
            RawKind::Detached { start, pages } => self.segments(pid, Kind::Munmap { start, pages })?,
            RawKind::Touched { start, pages, write } => {
                self.touched(pid, start, pages, write)?;
            }
            RawKind::Present { still, found } => self.present(pid, still, &found)?,
            RawKind::Advised { start, pages, advice } => {
                self.put(pid, Kind::Madvise { start, pages, advice })?;
            }
            RawKind::OtherTracer => task.other_tracer = true,
            RawKind::StackLimit { pages } => self.put(pid, Kind::StackLimit { pages })?,
            // Its fault was not the event before on the same CPU.
            RawKind::Refused | RawKind::BadAddress => {}
            // Nothing was stale: no page was flushed.
            RawKind::TlbFlush { reason, pages: 0 }
                if FlushEvent::of(reason).is_some_and(FlushEvent::has_pages) => {}
            RawKind::TlbFlush { reason, pages } => {
                let pages = if pages >= 1 << 52 { 0 } else { pages };
                self.put(pid, Kind::TlbFlush { pages, reason })?;
            }
            RawKind::Idle => self.put(pid, Kind::Idle)?,
            RawKind::Took { .. } | RawKind::StopCost(_) => {
                if let Some(note) = raw.what.note() {
                    self.put(pid, Kind::Note(note))?;
                }
            }
            // Only times are made of them, or they come after the exit.
            RawKind::Switch { .. } | RawKind::Wake { .. } | RawKind::Begin { .. } | RawKind::End { .. } => {}
            RawKind::Counters(_) | RawKind::Used(_) => {}
            RawKind::Tables { tables, exit } => self.sample(pid, tables, exit)?,
            RawKind::LastTables { tables } => self.put(pid, Kind::Truth { tables, at: Sampled::Exit })?,
            RawKind::ReadStart { .. } | RawKind::ReadDone(_) | RawKind::Begun => {}
        }
        Ok(())
    }

    /// Records a fault as its source tells it.
    fn faulted(&mut self, pid: i32, time: u64, address: u64, code: u64) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        if let Some(when) = task.exec
            && code & u64::from(FaultFlags::USER) == 0
        {
            // The kernel already writes to the new address space.
            task.exec = None;
            self.exec(pid, when)?;
        }
        let user = code & u64::from(FaultFlags::USER) != 0;
        let of_recorder = self.tasks.get_mut(&pid).and_then(|task| task.copied.take());
        if of_recorder.is_some_and(|(from, to)| !user && (from..to).contains(&address)) {
            return Ok(());
        }
        if address < USER_END {
            let mut flags = FaultFlags((code & 0x1f) as u8);
            if flags.0 | FaultFlags::USER == FaultFlags::USER
                && self.only_read(pid, time, address >> PAGE_SHIFT)
            {
                flags.0 |= FaultFlags::READ;
            }
            if flags.0 & FaultFlags::REFUSED == 0
                && let Some(space) = self.space_of(pid)
            {
                space.known.add(address >> PAGE_SHIFT, flags.0 & FaultFlags::WRITE != 0);
            }
            self.fault(pid, address >> PAGE_SHIFT, flags)?;
        }
        Ok(())
    }

    /// Follows a task that has taken its space's lock for reading.
    fn locked_to_read(&mut self, pid: i32) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        if let Some(SharedFault { place, refusals }) = task.fault {
            task.fault = Some(SharedFault { place: self.queue.end(), refusals: 0 });
            self.queue.delay(place, self.now, refusals > 1)?;
        } else if self.started
            && task.recorded
            && let Some(QueuedCall { call, place, populates, .. }) = &mut task.call
        {
            match (call, place.is_some(), populates.is_some()) {
                // It takes effect under this lock.
                (MmCall::Madvise, false, _) => *place = Some(self.queue.reserve()),
                (MmCall::Mmap | MmCall::Mlock, true, false) => {
                    *populates = Some(self.queue.reserve());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Records a call that has returned.
    fn returned(&mut self, pid: i32, time: u64, call: QueuedCall, result: i64) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get(&pid) else { return Ok(()) };
        let QueuedCall { call, args, place, populates } = call;
        let (number, cpu) = (task.number, task.cpu);
        let mut event = event_of(call, args, result).filter(|_| task.recorded);
        if let Some(pages) = populates {
            // Where a file ends is looked up.
            let is_looked_up = call == MmCall::Mmap && sys::populates_file(args[3]);
            let later = place.is_some_and(|place| pages > place + 1) && !is_looked_up;
            let touched = event.as_mut().filter(|_| later).and_then(populated_later);
            let touched = touched.map(|kind| Event { task: number, cpu, kind });
            self.queue.resolve(pages, time, touched)?;
        }
        let event = event.map(|kind| Event { task: number, cpu, kind });
        if let (Some(event), Some(space)) = (event, self.spaces.get_mut(&task.space)) {
            space.change(pid, self.now, &event.kind);
        }
        match place {
            Some(place) => self.queue.resolve(place, time, event)?,
            None => {
                if let Some(e) = event {
                    self.put(pid, e.kind)?;
                }
            }
        }
        match call {
            MmCall::Mmap => self.note_mmap(pid, args, result)?,
            MmCall::Munmap if result == 0 => {
                self.unmap_code(pid, args[0] >> PAGE_SHIFT, args[1].div_ceil(1 << PAGE_SHIFT));
            }
            _ => {}
        }
        self.expect_look(pid, call, args, result);
        Ok(())
    }

    /// Returns whether a fault is known to have read, though its source does not say so.
    fn only_read(&mut self, pid: i32, time: u64, page: u64) -> bool {
        let (Some(reads), Some(task)) = (&mut self.reads, self.tasks.get(&pid)) else { return false };
        reads.knows(task.group, time, page)
    }

    /// Records a fault. It stands where its task took the space's lock, if it has to take it.
    fn fault(&mut self, pid: i32, page: u64, flags: FaultFlags) -> Result<(), WriteError> {
        let shared = self.space_of(pid).is_some_and(|space| space.users > 1);
        let place = self.queue.end();
        self.put(pid, Kind::Fault { page, flags })?;
        if let Some(task) = self.tasks.get_mut(&pid) {
            let is_queued = shared && self.queue.end() > place;
            task.fault = is_queued.then_some(SharedFault { place, refusals: 0 });
        }
        Ok(())
    }

    /// Records a change by `shmat`, `shmdt` or `remap_file_pages`, which the stop after the call
    /// tells. It stands where its task last gave up the space's lock: a fork of another task may
    /// come before the stop.
    fn segments(&mut self, pid: i32, kind: Kind) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid).filter(|task| self.started && task.recorded) else {
            return Ok(());
        };
        let place = task.released[1].take();
        let event = Event { task: task.number, cpu: task.cpu, kind };
        if let Some(space) = self.spaces.get_mut(&task.space) {
            space.change(pid, self.now, &kind);
        }
        match place {
            Some(place) => self.queue.resolve(place, self.now, Some(event)),
            None => self.queue.push(self.now, event),
        }
    }

    fn clone(&mut self, pid: i32, child: i32, flags: u64) -> Result<(), WriteError> {
        let Some(parent) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let place = parent.released[0].take();
        let shares = flags & CLONE_VM != 0;
        let waits = flags & CLONE_VFORK != 0;
        let kind = match (shares, waits) {
            (true, true) => CloneKind::Vfork,
            (true, false) => CloneKind::Share,
            (false, _) => CloneKind::Fork,
        };
        self.note_clone(pid, kind)?;
        let Some(parent) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let space = if shares { parent.space } else { self.next_space };
        let group = if flags & CLONE_THREAD != 0 { parent.group } else { child };
        let (cpu, waiter) = (parent.cpu, (kind == CloneKind::Vfork).then_some(pid));
        if waiter.is_some() {
            parent.held = Some(Vec::new());
        }
        let known = if shares { KnownTables::default() } else { self.known_to(pid) };
        if !shares && let Some(space) = self.space_of(pid) {
            space.known.fork();
        }
        let program = self.space_of(pid).map(|space| space.program.clone()).unwrap_or_default();
        let new = || SpaceUsers { known, program, ..SpaceUsers::default() };
        let s = self.spaces.entry(space).or_insert_with(new);
        s.users += 1;
        s.still += u32::from(waiter.is_some());
        if !shares {
            self.next_space += 1;
        }
        *self.groups.entry(group).or_default() += 1;
        let number = self.next_task;
        let (from, recorded) = self.tasks.get(&pid).map_or((0, false), |t| (t.number, t.recorded));
        self.next_task += u32::from(recorded);
        let event = Event { task: from, cpu, kind: Kind::Clone { child: number, kind } };
        match place {
            Some(place) if !shares && recorded => self.queue.resolve(place, self.now, Some(event))?,
            _ => {
                if let Some(place) = place {
                    self.queue.resolve(place, self.now, None)?;
                }
                if self.started && recorded {
                    self.queue.push(self.now, event)?;
                }
            }
        }
        self.release_locks(pid)?;
        let task = TaskState { cpu, waiter, recorded, ..TaskState::new(number, group, space) };
        self.tasks.insert(child, task);
        let early = self.early.remove(&child).unwrap_or_default();
        self.early_count -= early.len();
        for raw in early {
            self.follow(raw)?;
        }
        Ok(())
    }

    /// Records a note on a task that has exited, or on the times of a process that goes on.
    fn note_exited(&mut self, pid: i32, note: Note) -> Result<(), WriteError> {
        if matches!(note, Note::Used { .. }) && self.tasks.contains_key(&pid) {
            return self.put(pid, Kind::Note(note));
        }
        match self.exited.get(pid) {
            Some(ExitedTask { number, cpu, recorded: true }) if self.started => {
                self.queue.push(self.now, Event { task: number, cpu, kind: Kind::Note(note) })
            }
            _ => Ok(()),
        }
    }

    fn exit(&mut self, pid: i32) -> Result<(), WriteError> {
        let Some(mut task) = self.tasks.remove(&pid) else { return Ok(()) };
        let TaskState { number, cpu, recorded, .. } = task;
        self.exited.add(pid, ExitedTask { number, cpu, recorded });
        for place in task.call.into_iter().flat_map(QueuedCall::places) {
            self.queue.resolve(place, self.now, None)?;
        }
        if let Some(look) = task.look.take() {
            self.queue.close(look.place)?;
        }
        let left = self.groups.get_mut(&task.group).map_or(0, |n| {
            *n -= 1;
            *n
        });
        if left == 0 {
            self.groups.remove(&task.group);
        }
        let waited = task.held.take().is_some();
        let (space, waiter) = (task.space, task.waiter.take());
        let still = task.dying || waited;
        let event = Event { task: task.number, cpu: task.cpu, kind: Kind::Exit { last: left == 0 } };
        if self.started && task.recorded {
            self.queue.push(self.now, event)?;
        }
        self.leave_space(space, still);
        self.release(waiter)
    }

    /// Ends the wait of a vfork's parent.
    fn release(&mut self, waiter: Option<i32>) -> Result<(), WriteError> {
        let Some(pid) = waiter else { return Ok(()) };
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let Some(held) = task.held.take() else { return Ok(()) };
        if let Some(s) = self.spaces.get_mut(&task.space) {
            s.still = s.still.saturating_sub(1);
        }
        for raw in held {
            self.follow(raw)?;
        }
        Ok(())
    }

    /// Returns a process that was named and is not in the trace, and why.
    pub(crate) fn unread_named(&self) -> Option<(i32, String)> {
        self.unread.named()
    }

    /// Returns whether a program was started.
    pub(crate) fn started(&self) -> bool {
        self.started
    }

    /// Ends the trace.
    pub(crate) fn finish(mut self) -> Result<(Writer<W>, SideCounts), WriteError> {
        for unread in self.unread.take_missed() {
            self.seen.unread += 1;
            self.note_unread(unread.number, &unread.name, unread.why())?;
        }
        let Self { queue, mut seen, timing, .. } = self;
        let backwards = timing.backwards;
        let (writer, written) = queue.finish()?;
        (seen.refused, seen.openings, seen.backwards) = (written.refused, written.openings, backwards);
        Ok((writer, seen))
    }
}

#[cfg(test)]
mod tests;
