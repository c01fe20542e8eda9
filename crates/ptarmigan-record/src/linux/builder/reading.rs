//! Processes that ran before the recording, or started a program without a stop: nothing is known
//! of their address spaces until they are read from `/proc`.
//!
//! A reading takes time, and the process runs meanwhile. Its events between the two marks of the
//! reading are held back. At the second mark they decide:
//!
//! 1. Until the areas were known, no call changed an area. So the list is of one moment.
//! 2. After that, no call copied or moved tables (fork, mremap), and no program was started. The
//!    process was not in the middle of an execve, where no event tells of the kernel's maps. All
//!    other events may be carried out again on the state that was read: a fault on a page that is
//!    present makes no table, and an unmapping takes away the pages that the scan has seen before
//!    it. Pages outside of the areas came by a later call, whose event and faults follow.
//!
//! A child by vfork changes nothing of this: it copies no table. What it does in the space that it
//! shares counts as the process's own, until it starts a program. Its events are held back, too.
//!
//! If both hold, the process begins in the trace at the first mark, with the state that was read,
//! and the events that were held back follow. If not, they are dropped, and a later reading counts.
use super::state::{ExecLookup, QueuedCall, SpaceUsers, TaskState, TraceBuilder, USUAL_STACK};
use super::timing::Timing;
use super::unread::{CallInProgress, HeldBack, Spoiled, Unread, UnreadProcesses};
use crate::linux::raw::{CLONE_THREAD, CLONE_VM, Raw, RawKind};
use crate::linux::state::{SpaceState, StateArea};
use crate::linux::system::proc::{PAGE_SHIFT, USER_END};
use ptarmigan_trace::{
    AreaKind, CloneKind, FaultFlags, Kind, Locking, MapFlags, Name, Note, Object, Prot, Sampled,
    UnreadReason, WriteError, Writer,
};
use std::collections::HashSet;
use std::io::Write;

impl<'a, W: Write> TraceBuilder<'a, W> {
    /// Creates a builder for processes that run already: they begin when they have been read.
    pub(crate) fn attached(writer: Writer<W>, named: &[i32], made: ExecLookup<'a>) -> Self {
        let mut builder = Self::new(writer, 0, made);
        builder.unread = UnreadProcesses::of(named);
        builder.tasks.clear();
        builder.groups.clear();
        builder.spaces.clear();
        builder.timing = Timing::default();
        builder.attached = true;
        builder.queue.begins_later();
        builder
    }

    /// A reading begins.
    pub(super) fn read_start(&mut self, group: i32, threads: &[i32]) {
        if self.tasks.contains_key(&group) || threads.iter().any(|pid| self.tasks.contains_key(pid)) {
            // It is known: the clone of a process that was read before has told of it.
            return;
        }
        self.unread.by_group.entry(group).or_default();
        for &pid in threads {
            let gone = self.unread.by_group.get(&group).is_some_and(|unread| unread.gone.contains(&pid));
            if !gone {
                self.unread.add(group, pid);
            }
        }
        let since = self.now;
        if let Some(unread) = self.unread.by_group.get_mut(&group) {
            let unsteady = unread.calls.values().any(|call| call.locked);
            unread.reading = Some(HeldBack { since, unsteady, events: Vec::new() });
            unread.is_program = true;
        }
    }

    /// A reading has ended.
    pub(super) fn read_done(&mut self, group: i32, state: &SpaceState) -> Result<(), WriteError> {
        let reading = self.unread.by_group.get_mut(&group).and_then(|unread| unread.reading.take());
        let Some(held) = reading else { return Ok(()) };
        let unread = self.unread.by_group.get(&group);
        let checked = unread.map_or(Ok(()), |unread| match unread.starting {
            true => Err(Spoiled::Program),
            false => held.check(state, &unread.calls),
        });
        if checked.is_ok()
            && let Some(unread) = self.unread.take(group)
        {
            let now = self.now;
            self.now = held.since;
            let begun = self.begin(group, &unread, state, held.is_silent())?;
            self.now = now;
            if begun {
                self.unread.begun(group);
            } else {
                self.unread.groups.extend(unread.tasks.iter().map(|pid| (*pid, group)));
                self.unread.by_group.insert(group, unread);
            }
        }
        if let Some(unread) = self.unread.by_group.get_mut(&group) {
            unread.spoiled(checked.err(), &state.name);
        }
        for raw in held.events {
            self.feed(raw)?;
        }
        Ok(())
    }

    /// Follows the tasks of a process that has not been read.
    pub(super) fn unread_event(&mut self, group: i32, raw: Raw) -> Result<(), WriteError> {
        let pid = raw.pid;
        let Some(unread) = self.unread.by_group.get_mut(&group) else { return Ok(()) };
        if let Some(reading) = &mut unread.reading {
            // The events of a new thread or child are held back with it.
            if let RawKind::Clone { child, .. } = raw.what {
                self.unread.groups.insert(child, group);
            }
            reading.events.push(raw);
            return Ok(());
        }
        match raw.what {
            RawKind::Enter { call, args } => {
                unread.calls.insert(pid, CallInProgress { call, args, locked: false });
            }
            RawKind::Locked => {
                if let Some(call) = unread.calls.get_mut(&pid) {
                    call.locked = true;
                    self.unread.changed_shared(group);
                }
            }
            RawKind::Leave { .. } => {
                let known = unread.calls.remove(&pid).is_some();
                if known {
                    self.unread.changed_shared(group);
                }
            }
            RawKind::Clone { child, flags } if flags & CLONE_THREAD != 0 => {
                self.unread.add(group, child);
            }
            RawKind::Clone { child, flags } => {
                let shares = (flags & CLONE_VM != 0).then(|| unread.shares.unwrap_or(group));
                self.unread.add(child, child).shares = shares;
            }
            RawKind::ExecStart => {
                let (number, name) = (unread.number, std::mem::take(&mut unread.name));
                let was_program = std::mem::replace(&mut unread.is_program, true);
                (unread.shares, unread.starting) = (None, true);
                if was_program {
                    // The program before was not read.
                    self.seen.unread += 1;
                    self.note_unread(number, &name, UnreadReason::Changed)?;
                }
            }
            RawKind::ExecDone { .. } => {
                (unread.shares, unread.is_program, unread.starting) = (None, true, false);
                // The other threads are gone, and this one has the group's number.
                unread.tasks = HashSet::from([group]);
                unread.calls.clear();
                unread.gone.clear();
                self.unread.groups.retain(|_, of| *of != group);
                self.unread.groups.insert(group, group);
            }
            RawKind::Exit => {
                unread.tasks.remove(&pid);
                unread.gone.insert(pid);
                unread.calls.remove(&pid);
                self.unread.groups.remove(&pid);
                self.end_unread(group)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the task of a process that has ended without being read.
    fn end_unread(&mut self, group: i32) -> Result<(), WriteError> {
        let Some(unread) = self.unread.by_group.get(&group).filter(|unread| unread.tasks.is_empty()) else {
            return Ok(());
        };
        // A child by vfork that starts no program is a part of its parent.
        let (number, has_space) = (unread.number, unread.shares.is_none());
        if let Some(unread) = self.unread.ended(group)
            && has_space
        {
            self.seen.unread += 1;
            self.note_unread(number, &unread.name, UnreadReason::Ended)?;
        }
        match number {
            Some(task) => self.push(task, 0, Kind::Exit { last: true }),
            None => Ok(()),
        }
    }

    /// Ends the space of a task that has started a program without a stop. The new space is empty
    /// until it is read. Every program has a page of arguments; there may be more.
    pub(super) fn exec_unseen(&mut self, pid: i32, group: i32) -> Result<(), WriteError> {
        self.put(pid, Kind::Exec { stack_end: (USER_END >> PAGE_SHIFT) - 1, arg_pages: 1 })?;
        if let Some(task) = self.tasks.remove(&pid) {
            let space = task.space;
            self.leave_space(space, false);
            self.unread.add_program(group, task.recorded.then_some(task.number));
        }
        self.groups.remove(&group);
        Ok(())
    }

    /// Begins a process with the state that was read. Returns whether it has a place in the trace.
    fn begin(
        &mut self,
        group: i32,
        unread: &Unread,
        state: &SpaceState,
        silent: bool,
    ) -> Result<bool, WriteError> {
        let mut pids: Vec<i32> = unread.tasks.iter().copied().collect();
        pids.sort_unstable_by_key(|pid| (*pid != group, *pid));
        let Some((&first, others)) = pids.split_first() else { return Ok(true) };
        let number = match (unread.number, self.started) {
            (Some(number), _) => number,
            (None, false) => {
                self.next_task = 1;
                0
            }
            (None, true) => {
                let Some((from, cpu)) = self.parent_for(state.parent) else { return Ok(false) };
                let child = self.next_number();
                self.push(from, cpu, Kind::Clone { child, kind: CloneKind::Vfork })?;
                child
            }
        };
        self.started = true;
        pids.iter().for_each(|&pid| self.timing.add_running(pid, group));
        let space = self.next_space;
        self.next_space += 1;
        self.tasks.insert(first, TaskState::new(number, group, space));
        self.groups.insert(group, pids.len() as u32);
        let users = SpaceUsers { users: pids.len() as u32, ..SpaceUsers::default() };
        self.spaces.insert(space, users);
        self.begin_space(first, state)?;
        if silent {
            self.put(first, Kind::Truth { tables: state.tables, at: Sampled::Exec })?;
        }
        for &pid in others {
            let child = self.next_number();
            self.push(number, 0, Kind::Clone { child, kind: CloneKind::Share })?;
            self.tasks.insert(pid, TaskState::new(child, group, space));
        }
        // It ends the opening.
        let pages = if state.stack_limit == 0 { USUAL_STACK } else { state.stack_limit };
        self.put(first, Kind::StackLimit { pages })?;
        for (pid, in_progress) in &unread.calls {
            if let Some(task) = self.tasks.get_mut(pid) {
                task.call = Some(QueuedCall::new(in_progress.call, in_progress.args));
            }
        }
        Ok(true)
    }

    fn next_number(&mut self) -> u32 {
        self.next_task += 1;
        self.next_task - 1
    }

    /// Returns a task that can make one: the process's own parent if it is there, or the oldest
    /// that does not wait for a child. Also its CPU.
    fn parent_for(&self, parent: i32) -> Option<(u32, u16)> {
        let can = |task: &&TaskState| task.recorded && task.held.is_none() && task.exec.is_none();
        let own = self.tasks.get(&parent).filter(can);
        let task = own.or_else(|| self.tasks.values().filter(can).min_by_key(|task| task.number))?;
        Some((task.number, task.cpu))
    }

    /// Writes the state of a space, as if an execve had made it: an opening
    /// ([`Openings`](ptarmigan_trace::Openings)).
    fn begin_space(&mut self, pid: i32, state: &SpaceState) -> Result<(), WriteError> {
        let stack_end = (USER_END >> PAGE_SHIFT) - 1;
        self.put(pid, Kind::Exec { stack_end, arg_pages: 0 })?;
        let heap_end = heap_end(state);
        if state.heap != 0 {
            self.put(pid, Kind::Brk { end: state.heap })?;
            if heap_end > state.heap {
                self.put(pid, Kind::Brk { end: heap_end })?;
                self.cut_heap(pid, state)?;
            }
            if let Some(space) = self.space_of(pid) {
                space.known.forget_by(&Kind::Brk { end: heap_end });
            }
        }
        for one in &state.areas {
            self.begin_area(pid, one, state)?;
        }
        for one in &state.areas {
            let (start, pages) = (one.area.start, one.area.pages);
            for advice in one.advice() {
                self.put(pid, Kind::Madvise { start, pages, advice })?;
            }
        }
        self.put(pid, Kind::Name(Name::new(&state.name)))?;
        for a in state.areas.iter().filter(|one| one.stack).map(|one| one.area) {
            let (object, name) = (Object::ThreadStack, None);
            self.put(pid, Kind::Note(Note::Mapped { start: a.start, pages: a.pages, object, name }))?;
        }
        self.note_program(pid, &state.program, &state.objects)?;
        self.begin_pages(pid, state)?;
        self.protect(pid, state)
    }

    fn begin_area(&mut self, pid: i32, one: &StateArea, state: &SpaceState) -> Result<(), WriteError> {
        let a = one.area;
        let (start, mut pages) = (a.start, a.pages);
        if one.heap && state.heap != 0 {
            // From there on it is made by `brk`.
            pages = state.heap.saturating_sub(start).min(pages);
        }
        let prot = if is_closed(one, state) { OPEN } else { a.prot };
        if pages == 0 {
            return Ok(());
        }
        let anon = if a.kind == AreaKind::Anon && !a.shared { MapFlags::ANON } else { 0 };
        let flags = MapFlags(one.flags.0 | anon | MapFlags::FIXED);
        let kind = if one.flags.0 == 0 || a.kind == AreaKind::Stack {
            Kind::Area { start, pages, prot, kind: a.kind }
        } else {
            // Locked pages are present, and are listed as such.
            let locked = MapFlags::LOCKED;
            let flags = MapFlags(flags.0 & !locked);
            self.put(pid, Kind::Mmap { start, pages, prot, flags })?;
            if one.flags.0 & locked == 0 {
                return Ok(());
            }
            let how = Locking(Locking::NOW | Locking::ON_FAULT);
            Kind::Lock { start, pages, how }
        };
        self.put(pid, kind)
    }

    /// Gives the heap its holes.
    fn cut_heap(&mut self, pid: i32, state: &SpaceState) -> Result<(), WriteError> {
        let mut at = state.heap;
        for a in state.areas.iter().filter(|one| one.heap).map(|one| one.area) {
            if a.start > at {
                self.put(pid, Kind::Munmap { start: at, pages: a.start - at })?;
            }
            at = at.max(a.start + a.pages);
        }
        Ok(())
    }

    /// Gives the permissions that would have kept pages from being touched, and those of the heap.
    fn protect(&mut self, pid: i32, state: &SpaceState) -> Result<(), WriteError> {
        for one in &state.areas {
            let a = one.area;
            let start = if one.heap { a.start.max(state.heap) } else { a.start };
            let end = a.start + a.pages;
            let differs = if one.heap { a.prot != OPEN } else { is_closed(one, state) };
            if differs && start < end {
                self.put(pid, Kind::Mprotect { start, pages: end - start, prot: a.prot })?;
            }
        }
        Ok(())
    }

    /// Writes the present pages, as far as there are areas for them. Private pages were written:
    /// the replay's space shares them with no other.
    fn begin_pages(&mut self, pid: i32, state: &SpaceState) -> Result<(), WriteError> {
        for f in &state.present {
            let flags = match (f.huge, f.private) {
                (true, _) => FaultFlags::HUGE,
                (_, true) => FaultFlags::WRITE | FaultFlags::USER,
                _ => FaultFlags::USER,
            };
            let from = state.areas.partition_point(|one| one.area.start + one.area.pages <= f.start);
            for a in state.areas[from..].iter().map(|one| one.area) {
                let (start, end) = (a.start.max(f.start), (a.start + a.pages).min(f.start + f.pages));
                if a.start >= f.start + f.pages {
                    break;
                }
                if start >= end || a.kind == AreaKind::Special {
                    continue;
                }
                if let Some(space) = self.space_of(pid) {
                    let spans = (start >> 9..=(end - 1) >> 9).map(|span| (span << 9).max(start));
                    spans.for_each(|page| space.known.add(page, f.private));
                }
                self.put(pid, Kind::Touched { start, pages: end - start, flags: FaultFlags(flags) })?;
            }
        }
        Ok(())
    }
}

/// The permissions of a heap.
const OPEN: Prot = Prot(Prot::READ | Prot::WRITE);

/// Returns whether an area has pages that can no longer be read.
fn is_closed(one: &StateArea, state: &SpaceState) -> bool {
    let a = one.area;
    let from = state.present.partition_point(|f| f.start + f.pages <= a.start);
    a.prot.0 & Prot::READ == 0 && state.present.get(from).is_some_and(|f| f.start < a.start + a.pages)
}

/// Returns the end of the heap, or its start if it is empty.
fn heap_end(state: &SpaceState) -> u64 {
    let heaps = state.areas.iter().filter(|one| one.heap).map(|one| one.area);
    heaps.map(|a| a.start + a.pages).max().unwrap_or(0).max(state.heap)
}

#[cfg(test)]
mod tests;
