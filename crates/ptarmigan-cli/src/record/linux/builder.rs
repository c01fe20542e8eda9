//! Builds the trace: follows tasks and address spaces through the merged raw events.
use super::proc::{PAGE_SHIFT, USER_END};
use super::queue::Queue;
use super::raw::{Made, MmCall, NO_CPU, Raw, RawKind};
use ptarmigan_trace::{CloneKind, Event, FaultFlags, Kind, MapFlags, Prot, Sampled, WriteError, Writer};
use std::collections::HashMap;
use std::io::Write;

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;

/// The most raw events of unknown tasks that are kept.
const MOST_EARLY: usize = 1 << 16;

/// The users of an address space.
#[derive(Default)]
struct SpaceUsers {
    /// Number of tasks.
    users: u32,
    /// Number of tasks that change nothing: they are exiting, or wait for the child of a vfork.
    still: u32,
}

struct TaskState {
    number: u32,
    group: i32,
    space: u64,
    cpu: u16,
    /// The task that waits for this one, its child by vfork.
    waiter: Option<i32>,
    /// While this task waits for the child of its vfork: its events that arrived early because two
    /// clocks differ.
    held: Option<Vec<Raw>>,
    /// The system call in progress, with its arguments and the place reserved for its event.
    call: Option<(MmCall, [u64; 5], Option<u64>)>,
    /// The time of an execve that waits for the other threads to end.
    exec: Option<u64>,
    dying: bool,
}

/// Counts beside the events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) execs: u64,
    pub(super) samples: u64,
    pub(super) faults: u64,
    /// Raw events of tasks that are not descendants of the command.
    pub(super) foreign: u64,
    pub(super) refused: u64,
    /// Execs whose areas are unknown.
    pub(super) blank_execs: u64,
}

/// Looks up what an execve made, by task and time.
pub(super) type ExecLookup<'a> = &'a mut dyn FnMut(i32, u64) -> Option<Made>;

pub(super) struct TraceBuilder<'a, W: Write> {
    queue: Queue<W>,
    tasks: HashMap<i32, TaskState>,
    /// Live tasks in each thread group.
    groups: HashMap<i32, u32>,
    spaces: HashMap<u64, SpaceUsers>,
    next_space: u64,
    next_task: u32,
    /// Whether the first program has started. Earlier events are the recorder's own.
    started: bool,
    /// Raw events of tasks whose clone has not arrived yet. ptrace may report them in this order.
    early: HashMap<i32, Vec<Raw>>,
    early_count: usize,
    made: ExecLookup<'a>,
    pub(super) seen: Seen,
}

impl<'a, W: Write> TraceBuilder<'a, W> {
    pub(super) fn new(writer: Writer<W>, root: i32, made: ExecLookup<'a>) -> Self {
        let task = TaskState {
            number: 0,
            group: root,
            space: 0,
            cpu: 0,
            waiter: None,
            held: None,
            call: None,
            exec: None,
            dying: false,
        };
        Self {
            queue: Queue::new(writer),
            tasks: HashMap::from([(root, task)]),
            groups: HashMap::from([(root, 1)]),
            spaces: HashMap::from([(0, SpaceUsers { users: 1, still: 0 })]),
            next_space: 1,
            next_task: 1,
            started: false,
            early: HashMap::new(),
            early_count: 0,
            made,
            seen: Seen::default(),
        }
    }

    /// Processes the next raw event, in order of time.
    pub(super) fn feed(&mut self, raw: Raw) -> Result<(), WriteError> {
        let pid = raw.pid;
        if let RawKind::ExecDone { old } = raw.what
            && old != pid
            && self.tasks.contains_key(&old)
        {
            // ptrace does not always report the exit of the group's first task, whose number this
            // task takes.
            self.exit(pid)?;
            self.rename(old, pid);
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
            if let Some(when) = self.tasks.get_mut(&pid).and_then(|t| t.exec.take()) {
                self.exec(pid, when)?;
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
        self.take(pid, raw)
    }

    /// Handles an event of an unknown task: it is no descendant, or its clone arrives late.
    fn stranger(&mut self, raw: Raw) -> Result<(), WriteError> {
        if matches!(raw.what, RawKind::Idle | RawKind::TlbFlush { .. }) || self.early_count >= MOST_EARLY {
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
            RawKind::Fault { address, code } => {
                if let Some(when) = task.exec
                    && code & u64::from(FaultFlags::USER) == 0
                {
                    // The kernel already writes to the new address space.
                    task.exec = None;
                    self.exec(pid, when)?;
                }
                if address < USER_END {
                    self.seen.faults += 1;
                    let flags = FaultFlags((code & 0x17) as u8);
                    self.put(pid, Kind::Fault { page: address >> PAGE_SHIFT, flags })?;
                }
            }
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
            RawKind::ExecDone { .. } => {
                if let Some(when) = self.tasks.get_mut(&pid).and_then(|t| t.exec.take()) {
                    self.exec(pid, when)?;
                }
            }
            RawKind::Exit => self.exit(pid)?,
            RawKind::Enter { call, args } => {
                // The previous call never ended: its task was killed in it, or its end was lost.
                if let Some((_, _, Some(place))) = task.call.replace((call, args, None)) {
                    self.queue.resolve(place, None)?;
                }
            }
            RawKind::Locked => {
                if self.started
                    && let Some((_, _, place @ None)) = &mut task.call
                {
                    *place = Some(self.queue.reserve());
                }
            }
            RawKind::Leave { result } => {
                if let Some((call, args, place)) = task.call.take() {
                    let (number, cpu) = (task.number, task.cpu);
                    let event = called(call, args, result).map(|kind| Event { task: number, cpu, kind });
                    match place {
                        Some(place) => self.queue.resolve(place, event)?,
                        None => {
                            if let Some(e) = event {
                                self.put(pid, e.kind)?;
                            }
                        }
                    }
                }
            }
            RawKind::Attached { start, pages, prot } => {
                let flags = MapFlags(MapFlags::SHARED | MapFlags::ANON);
                self.put(pid, Kind::Mmap { start, pages, prot, flags })?;
            }
            RawKind::Detached { start, pages } => self.put(pid, Kind::Munmap { start, pages })?,
            RawKind::Populated { start, pages } => {
                self.put(pid, Kind::Madvise { start, pages, advice: libc::MADV_POPULATE_READ as u16 })?;
            }
            RawKind::TlbFlush { reason, pages } => {
                let pages = if pages >= 1 << 52 { 0 } else { pages };
                self.put(pid, Kind::TlbFlush { pages, reason })?;
            }
            RawKind::Idle => self.put(pid, Kind::Idle)?,
            RawKind::Tables { tables, exit } => self.sample(pid, tables, exit)?,
        }
        Ok(())
    }

    fn put(&mut self, pid: i32, kind: Kind) -> Result<(), WriteError> {
        if let Some(t) = self.tasks.get(&pid)
            && self.started
        {
            self.queue.push(Event { task: t.number, cpu: t.cpu, kind })?;
        }
        Ok(())
    }

    fn clone(&mut self, pid: i32, child: i32, flags: u64) -> Result<(), WriteError> {
        let Some(parent) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let shares = flags & CLONE_VM != 0;
        let waits = flags & CLONE_VFORK != 0;
        let kind = match (shares, waits) {
            (true, true) => CloneKind::Vfork,
            (true, false) => CloneKind::Share,
            (false, _) => CloneKind::Fork,
        };
        let space = if shares { parent.space } else { self.next_space };
        let group = if flags & CLONE_THREAD != 0 { parent.group } else { child };
        let (cpu, waiter) = (parent.cpu, (kind == CloneKind::Vfork).then_some(pid));
        if waiter.is_some() {
            parent.held = Some(Vec::new());
        }
        let s = self.spaces.entry(space).or_default();
        s.users += 1;
        s.still += u32::from(waiter.is_some());
        if !shares {
            self.next_space += 1;
        }
        *self.groups.entry(group).or_default() += 1;
        let number = self.next_task;
        self.next_task += 1;
        self.put(pid, Kind::Clone { child: number, kind })?;
        let task =
            TaskState { number, group, space, cpu, waiter, held: None, call: None, exec: None, dying: false };
        self.tasks.insert(child, task);
        let early = self.early.remove(&child).unwrap_or_default();
        self.early_count -= early.len();
        for raw in early {
            self.feed(raw)?;
        }
        Ok(())
    }

    /// Gives a task a new address space.
    fn exec(&mut self, pid: i32, when: u64) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let group = task.group;
        let waiter = task.waiter.take();
        let old = std::mem::replace(&mut task.space, self.next_space);
        self.spaces.insert(self.next_space, SpaceUsers { users: 1, still: 0 });
        self.next_space += 1;
        self.leave_space(old, false);
        self.seen.execs += 1;
        self.started = true;
        let made = (self.made)(group, when).filter(super::tracer::complete);
        self.seen.blank_execs += u64::from(made.is_none());
        let made = made.unwrap_or_default();
        let stack_end = if made.stack_end == 0 { (USER_END >> PAGE_SHIFT) - 1 } else { made.stack_end };
        self.put(pid, Kind::Exec { stack_end, arg_pages: made.arg_pages })?;
        for a in &made.areas {
            self.put(pid, Kind::Area { start: a.start, pages: a.pages, prot: a.prot, kind: a.kind })?;
        }
        if made.heap != 0 {
            self.put(pid, Kind::Brk { end: made.heap })?;
        }
        self.release(waiter)
    }

    fn exit(&mut self, pid: i32) -> Result<(), WriteError> {
        let Some(mut task) = self.tasks.remove(&pid) else { return Ok(()) };
        if let Some((_, _, Some(place))) = task.call.take() {
            self.queue.resolve(place, None)?;
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
        if self.started {
            self.queue.push(event)?;
        }
        self.leave_space(space, still);
        self.release(waiter)
    }

    fn leave_space(&mut self, space: u64, still: bool) {
        if let Some(s) = self.spaces.get_mut(&space) {
            s.users = s.users.saturating_sub(1);
            s.still = s.still.saturating_sub(u32::from(still));
            if s.users == 0 {
                self.spaces.remove(&space);
            }
        }
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
            self.feed(raw)?;
        }
        Ok(())
    }

    fn rename(&mut self, from: i32, to: i32) {
        if let Some(task) = self.tasks.remove(&from) {
            self.tasks.insert(to, task);
        }
    }

    /// Records a count of tables if no other task could change the address space while it was read.
    fn sample(&mut self, pid: i32, tables: u32, exit: bool) -> Result<(), WriteError> {
        let Some(task) = self.tasks.get_mut(&pid) else { return Ok(()) };
        let Some(space) = self.spaces.get_mut(&task.space) else { return Ok(()) };
        let mut others = space.users.saturating_sub(1);
        others = others.saturating_sub(space.still - u32::from(task.dying));
        if exit && !task.dying {
            task.dying = true;
            space.still += 1;
        }
        if others == 0 && self.started {
            self.seen.samples += 1;
            let at = if exit { Sampled::Exit } else { Sampled::Exec };
            self.put(pid, Kind::Truth { tables, at })?;
        }
        Ok(())
    }

    /// Returns the number of tasks so far.
    pub(super) fn tasks(&self) -> u32 {
        self.next_task
    }

    /// Returns whether a program was started.
    pub(super) fn started(&self) -> bool {
        self.started
    }

    /// Ends the trace.
    pub(super) fn finish(self) -> Result<(Writer<W>, Seen), WriteError> {
        let Self { queue, mut seen, .. } = self;
        let (writer, refused) = queue.finish()?;
        seen.refused = refused;
        Ok((writer, seen))
    }
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(1 << PAGE_SHIFT)
}

/// Returns the event of a system call, or `None` if the call failed or did nothing.
fn called(call: MmCall, args: [u64; 5], result: i64) -> Option<Kind> {
    if (-4095..0).contains(&result) {
        return None;
    }
    let [a, b, c, d, _] = args;
    let (start, end) = (a >> PAGE_SHIFT, pages(a.saturating_add(b)));
    let len = end.saturating_sub(start);
    let prot = |bits: u64| Prot((bits & 7) as u8);
    let kind = match call {
        MmCall::Mmap => {
            let has = |flag: i32, bit: u8| if d & flag as u64 != 0 { bit } else { 0 };
            let populate = d & libc::MAP_POPULATE as u64 != 0 && d & libc::MAP_NONBLOCK as u64 == 0;
            let flags = has(libc::MAP_ANONYMOUS, MapFlags::ANON)
                | has(libc::MAP_GROWSDOWN, MapFlags::GROWSDOWN)
                | has(libc::MAP_FIXED, MapFlags::FIXED)
                | has(libc::MAP_LOCKED, MapFlags::POPULATE)
                | if populate { MapFlags::POPULATE } else { 0 }
                // MAP_SHARED is 1, MAP_SHARED_VALIDATE is 3, MAP_PRIVATE is 2.
                | if d & 1 != 0 { MapFlags::SHARED } else { 0 };
            Kind::Mmap {
                start: result as u64 >> PAGE_SHIFT,
                pages: pages(b),
                prot: prot(c),
                flags: MapFlags(flags),
            }
        }
        MmCall::Munmap => Kind::Munmap { start, pages: len },
        MmCall::Brk => Kind::Brk { end: pages(result as u64) },
        MmCall::Mremap => Kind::Mremap {
            from: start,
            old_pages: pages(b),
            to: result as u64 >> PAGE_SHIFT,
            new_pages: pages(c),
            keep: d & libc::MREMAP_DONTUNMAP as u64 != 0,
        },
        MmCall::Mprotect => Kind::Mprotect { start, pages: len, prot: prot(c) },
        MmCall::Madvise => Kind::Madvise { start, pages: len, advice: u16::try_from(c).ok()? },
        // Locking makes the pages present, as this advice does.
        MmCall::Mlock => Kind::Madvise { start, pages: len, advice: libc::MADV_POPULATE_READ as u16 },
    };
    match kind {
        Kind::Munmap { pages: 0, .. } | Kind::Mprotect { pages: 0, .. } | Kind::Madvise { pages: 0, .. } => {
            None
        }
        kind => Some(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::linux::proc::Area;
    use ptarmigan_trace::{AreaKind, Header, Method, Reader};

    const VFORK: u64 = CLONE_VM | CLONE_VFORK;
    const THREAD: u64 = CLONE_VM | CLONE_THREAD;

    /// Feeds raw events of task 100 and its children at consecutive times. Returns the events after
    /// the start of the first program as pairs of task and kind.
    fn run(what: &[(i32, RawKind)]) -> Vec<(u32, Kind)> {
        let header = Header::new("m", 4, Method::Synthetic);
        let writer = Writer::new(Vec::new(), &header, 1).expect("a good header");
        let mut made = |_: i32, _: u64| {
            let area =
                Area { start: 0x7_0000, pages: 4, prot: Prot(3), kind: AreaKind::Stack, shared: false };
            Some(Made { stack_end: 0x7_ffff, arg_pages: 1, heap: 0, areas: vec![area] })
        };
        let mut model = TraceBuilder::new(writer, 100, &mut made);
        let start = [(100, RawKind::Fault { address: 0x5000, code: 4 }), (100, RawKind::ExecStart)];
        for (time, (pid, what)) in start.iter().chain(what).enumerate() {
            let raw = Raw { time: time as u64, cpu: 0, pid: *pid, what: what.clone() };
            model.feed(raw).expect("memory takes everything");
        }
        let (writer, seen) = model.finish().expect("memory takes everything");
        assert_eq!(seen.refused, 0);
        let (bytes, _) = writer.finish(0).expect("memory takes everything");
        let events: Vec<Event> =
            Reader::new(&bytes[..]).expect("a header").map(|e| e.expect("an event")).collect();
        assert!(
            matches!(events[0].kind, Kind::Exec { arg_pages: 1, .. }),
            "the recorder's own doing is left out"
        );
        assert!(matches!(events[1].kind, Kind::Area { .. }));
        events[2..].iter().map(|e| (e.task, e.kind)).collect()
    }

    fn fault(pid: i32, page: u64) -> (i32, RawKind) {
        (pid, RawKind::Fault { address: page << PAGE_SHIFT, code: 6 })
    }

    fn clone(pid: i32, child: i32, flags: u64) -> (i32, RawKind) {
        (pid, RawKind::Clone { child, flags })
    }

    fn faulted(page: u64) -> Kind {
        Kind::Fault { page, flags: FaultFlags(6) }
    }

    /// Returns the task and page of each fault, and `None` as page for an exec.
    fn order(events: &[(u32, Kind)]) -> Vec<(u32, Option<u64>)> {
        let pick = |&(task, kind): &(u32, Kind)| match kind {
            Kind::Fault { page, .. } => Some((task, Some(page))),
            Kind::Exec { .. } => Some((task, None)),
            _ => None,
        };
        events.iter().filter_map(pick).collect()
    }

    #[test]
    fn the_parent_of_a_vfork_waits() {
        let events = run(&[
            clone(100, 101, VFORK),
            fault(101, 1),
            fault(100, 2),
            (101, RawKind::ExecStart),
            fault(101, 3),
            fault(100, 4),
        ]);
        assert_eq!(events[0], (0, Kind::Clone { child: 1, kind: CloneKind::Vfork }));
        assert_eq!(order(&events), [(1, Some(1)), (1, None), (0, Some(2)), (1, Some(3)), (0, Some(4))]);
        let events = run(&[clone(100, 101, VFORK), fault(100, 2), (101, RawKind::Exit)]);
        assert_eq!(events[1..], [(1, Kind::Exit { last: true }), (0, faulted(2))]);
    }

    #[test]
    fn a_thread_that_calls_execve_takes_the_first_number() {
        let events = run(&[
            clone(100, 101, THREAD),
            (101, RawKind::ExecStart),
            fault(100, 1),
            (100, RawKind::Exit),
            fault(100, 2),
            (100, RawKind::ExecDone { old: 101 }),
            fault(100, 3),
        ]);
        // Events with the first number after that task's exit belong to the thread, in its new
        // address space.
        assert_eq!(order(&events), [(0, Some(1)), (1, None), (1, Some(2)), (1, Some(3))]);
        // The exit of the first task is not always reported.
        let events = run(&[
            clone(100, 101, THREAD),
            (101, RawKind::ExecStart),
            (100, RawKind::ExecDone { old: 101 }),
            fault(100, 3),
            (100, RawKind::Exit),
        ]);
        assert!(events.contains(&(0, Kind::Exit { last: false })));
        assert_eq!(order(&events), [(1, None), (1, Some(3))]);
        assert_eq!(events.last(), Some(&(1, Kind::Exit { last: true })));
    }

    #[test]
    fn children_may_be_reported_before_their_clone() {
        let events = run(&[fault(101, 7), clone(100, 101, 0), fault(999, 1), (998, RawKind::Idle)]);
        assert_eq!(events, [(0, Kind::Clone { child: 1, kind: CloneKind::Fork }), (1, faulted(7))]);
    }

    #[test]
    fn calls_stand_where_they_took_effect() {
        let enter = |pid, call, args| (pid, RawKind::Enter { call, args });
        let events = run(&[
            clone(100, 101, THREAD),
            enter(100, MmCall::Munmap, [0x1000, 0x1001, 0, 0, 0]),
            (100, RawKind::Locked),
            enter(101, MmCall::Mmap, [0, 1, 3, 0x22, 0]),
            (101, RawKind::Locked),
            (101, RawKind::Leave { result: 0x1000 }),
            fault(101, 1),
            (100, RawKind::Leave { result: 0 }),
            enter(100, MmCall::Mprotect, [0x1000, 0x1000, 1, 0, 0]),
            (100, RawKind::Leave { result: -12 }),
        ]);
        let mmap = Kind::Mmap { start: 1, pages: 1, prot: Prot(3), flags: MapFlags(MapFlags::ANON) };
        assert_eq!(events[1..], [(0, Kind::Munmap { start: 1, pages: 2 }), (1, mmap), (1, faulted(1))]);
    }

    #[test]
    fn counts_of_tables_need_quiet() {
        let tables = |pid, tables, exit| (pid, RawKind::Tables { tables, exit });
        let truths = |what: &[(i32, RawKind)]| -> Vec<u32> {
            let pick =
                |(_, k): &(u32, Kind)| if let Kind::Truth { tables, .. } = k { Some(*tables) } else { None };
            run(what).iter().filter_map(pick).collect()
        };
        assert_eq!(truths(&[tables(100, 1, false)]), [1]);
        // Another thread runs; both threads are exiting; the child of a vfork has the space to
        // itself.
        assert_eq!(truths(&[clone(100, 101, THREAD), tables(100, 1, false)]), [0; 0]);
        assert_eq!(truths(&[clone(100, 101, THREAD), tables(100, 1, true), tables(101, 2, true)]), [2]);
        assert_eq!(truths(&[clone(100, 101, VFORK), tables(101, 3, false)]), [3]);
    }

    #[test]
    fn flags_of_mmap() {
        let kind = called(MmCall::Mmap, [0, 4097, 5, 0x8000 | 0x100 | 0x10 | 3, 0], 0x7000);
        let flags = MapFlags::POPULATE | MapFlags::GROWSDOWN | MapFlags::FIXED | MapFlags::SHARED;
        assert_eq!(kind, Some(Kind::Mmap { start: 7, pages: 2, prot: Prot(5), flags: MapFlags(flags) }));
        assert_eq!(called(MmCall::Mprotect, [0x1000, 0, 1, 0, 0], 0), None);
        assert_eq!(called(MmCall::Madvise, [u64::MAX - 4095, u64::MAX, 70_000, 0, 0], 0), None);
    }
}
