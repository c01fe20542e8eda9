//! The tasks and address spaces that the builder follows, and the way of their events into the
//! trace.
use super::changes::Changes;
use super::describing::{DescribedProgram, Describing};
use super::exited::Exited;
use super::queue::Queue;
use super::tables::KnownTables;
use super::timing::{Timed, Timing};
use super::unread::UnreadProcesses;
use crate::linux::exec_result::ExecResult;
use crate::linux::object::MappedObject;
use crate::linux::raw::{MmCall, Raw};
use crate::linux::sources::spill::NotedReads;
use ptarmigan_trace::{Event, Kind, OpeningCounts, PlaceId, WriteError, Writer};
use std::collections::HashMap;
use std::io::Write;

/// A look at the effect of a call, which is about to follow.
#[derive(Clone, Copy)]
pub(super) struct ExpectedLook {
    /// The place in the queue behind the call: its pages were there from then on.
    pub(super) place: u64,
    /// When the call ended.
    pub(super) since: u64,
    /// Whether the call has written the pages. A fork of another task may have shared them by the
    /// time of the look, which then no longer tells.
    pub(super) writes: bool,
}

/// The usual limit of a stack, in pages: 8 MiB. A reader takes it by default.
pub(super) const USUAL_STACK: u64 = 2048;

/// The users of an address space.
#[derive(Default)]
pub(super) struct SpaceUsers {
    /// Number of tasks.
    pub(super) users: u32,
    /// Number of tasks that make no change: they are exiting, or wait for the child of a vfork.
    pub(super) still: u32,
    /// Where events have made tables.
    pub(super) known: KnownTables,
    pub(super) program: DescribedProgram,
    /// The mappings that its tasks have replaced last, if there are several.
    pub(super) changes: Changes,
}

impl SpaceUsers {
    /// A call of a task has changed its mappings.
    pub(super) fn change(&mut self, pid: i32, time: u64, kind: &Kind) {
        if self.users > 1 {
            self.changes.add(pid, time, kind);
        }
        self.known.forget_by(kind);
    }
}

pub(super) struct TaskState {
    pub(super) number: u32,
    pub(super) group: i32,
    pub(super) space: u64,
    pub(super) cpu: u16,
    /// The task that waits for this one, its child by vfork.
    pub(super) waiter: Option<i32>,
    /// While this task waits for the child of its vfork: its events that arrived early because two
    /// clocks differ.
    pub(super) held: Option<Vec<Raw>>,
    /// Whether its events are written. No event is written below a program that could not be looked
    /// at.
    pub(super) recorded: bool,
    /// The system call in progress.
    pub(super) call: Option<QueuedCall>,
    /// The object that the `mmap` in progress has mapped.
    pub(super) object: Option<Box<MappedObject>>,
    /// The stack that its last sample has copied, in bytes. The copy of the recorder's event may
    /// fault where the stack ends.
    pub(super) copied: Option<(u64, u64)>,
    /// The caller of the clone that it is about to make, where it was sampled.
    pub(super) clone_by: Option<Option<PlaceId>>,
    /// The places of the last two times that the task gave up a lock of an address space outside
    /// those system calls. A fork gives up the copy's lock and then its own space's, and stands
    /// where it gave up the first. `shmat` and its like stand where it gave up the newest.
    pub(super) released: [Option<u64>; 2],
    /// Its last event, if that is a fault in a space that other tasks share.
    pub(super) fault: Option<SharedFault>,
    /// The look at the effect of its last call, if one may follow.
    pub(super) look: Option<ExpectedLook>,
    /// The time of an execve that waits for the other threads to end.
    pub(super) exec: Option<u64>,
    /// Whether its execve has made a new address space. The stop behind it tells of the pages.
    pub(super) made: bool,
    /// Whether its last call of execve was under another tracer.
    pub(super) other_tracer: bool,
    pub(super) dying: bool,
}

/// A system call in progress, with the places that are reserved for it.
#[derive(Clone, Copy)]
pub(super) struct QueuedCall {
    pub(super) call: MmCall,
    pub(super) args: [u64; 5],
    /// The place of its event: where it took the lock of its space.
    pub(super) place: Option<u64>,
    /// Where it took the lock again, to make pages present.
    pub(super) populates: Option<u64>,
}

impl QueuedCall {
    pub(super) fn new(call: MmCall, args: [u64; 5]) -> Self {
        Self { call, args, place: None, populates: None }
    }

    /// Returns its places.
    pub(super) fn places(self) -> impl Iterator<Item = u64> {
        self.place.into_iter().chain(self.populates)
    }
}

/// A fault in a space that other tasks share.
#[derive(Clone, Copy)]
pub(super) struct SharedFault {
    /// The place of its event.
    pub(super) place: u64,
    /// How often its task has tried to lock the space, and another had it. A task that may not use
    /// the lock of the area tries once before it waits. One that uses it, and finds that it needs
    /// the lock of the space, has tried twice, and has made the tables of the page.
    pub(super) refusals: u8,
}

impl TaskState {
    pub(super) fn new(number: u32, group: i32, space: u64) -> Self {
        Self {
            number,
            group,
            space,
            cpu: 0,
            waiter: None,
            held: None,
            recorded: true,
            call: None,
            object: None,
            clone_by: None,
            copied: None,
            released: [None; 2],
            fault: None,
            look: None,
            exec: None,
            made: false,
            other_tracer: false,
            dying: false,
        }
    }
}

/// Counts beside the events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SideCounts {
    /// Raw events of tasks that are not descendants of the command.
    pub(crate) foreign: u64,
    pub(crate) refused: u64,
    /// Events that give the state of processes which ran already.
    pub(crate) openings: OpeningCounts,
    /// Ranges of 2 MiB where pages were present at a stop that no event explains.
    pub(crate) found: u64,
    /// Programs that started under another tracer.
    pub(crate) other_tracer: u64,
    /// Programs of 32 bits, whose system calls no tracepoint reports.
    pub(crate) narrow: u64,
    /// Other programs that could not be looked at at their start.
    pub(crate) blank: u64,
    /// Times that were left out, as they end before they begin.
    pub(crate) backwards: u64,
    /// Processes that the recording attached to, and programs that they started, which ended or
    /// changed before they were read.
    pub(crate) unread: u64,
}

impl SideCounts {
    /// Returns the number of programs that ran and are not in the trace.
    pub(crate) fn unrecorded(&self) -> u64 {
        self.other_tracer + self.narrow + self.blank + self.unread
    }
}

/// Looks up the result of an execve, by task and time.
pub(crate) type ExecLookup<'a> = &'a mut dyn FnMut(i32, u64) -> Option<ExecResult>;

pub(crate) struct TraceBuilder<'a, W: Write> {
    pub(super) queue: Queue<W>,
    pub(super) tasks: HashMap<i32, TaskState>,
    /// Live tasks in each thread group.
    pub(super) groups: HashMap<i32, u32>,
    pub(super) spaces: HashMap<u64, SpaceUsers>,
    pub(super) next_space: u64,
    pub(super) next_task: u32,
    /// Whether the first program has started. Earlier events are the recorder's own.
    pub(super) started: bool,
    /// Raw events of tasks whose clone has not arrived yet. ptrace may report them in this order.
    pub(super) early: HashMap<i32, Vec<Raw>>,
    pub(super) early_count: usize,
    /// Whether the recording attached to processes. Their programs start without a stop.
    pub(super) attached: bool,
    pub(super) unread: UnreadProcesses,
    pub(super) made: ExecLookup<'a>,
    /// Which faults have only read, if their source does not tell.
    pub(super) reads: Option<NotedReads>,
    pub(super) describing: Describing<'a>,
    /// The time of the raw event that is being processed.
    pub(super) now: u64,
    pub(super) timing: Timing,
    /// Room for the events that times make.
    pub(super) timed: Vec<Timed>,
    pub(super) exited: Exited,
    pub(crate) seen: SideCounts,
}

impl<'a, W: Write> TraceBuilder<'a, W> {
    pub(crate) fn new(writer: Writer<W>, root: i32, made: ExecLookup<'a>) -> Self {
        Self {
            queue: Queue::new(writer),
            tasks: HashMap::from([(root, TaskState::new(0, root, 0))]),
            groups: HashMap::from([(root, 1)]),
            spaces: HashMap::from([(0, SpaceUsers { users: 1, ..SpaceUsers::default() })]),
            next_space: 1,
            next_task: 1,
            started: false,
            early: HashMap::new(),
            early_count: 0,
            attached: false,
            unread: UnreadProcesses::default(),
            made,
            reads: None,
            describing: Describing::default(),
            now: 0,
            timing: Timing::new(root),
            timed: Vec::new(),
            exited: Exited::default(),
            seen: SideCounts::default(),
        }
    }

    /// Tells reads apart by looks before forks.
    pub(crate) fn with_reads(mut self, reads: NotedReads) -> Self {
        self.reads = Some(reads);
        self
    }

    pub(super) fn push(&mut self, task: u32, cpu: u16, kind: Kind) -> Result<(), WriteError> {
        self.queue.push(self.now, Event { task, cpu, kind })
    }

    pub(super) fn put(&mut self, pid: i32, kind: Kind) -> Result<(), WriteError> {
        if let Some(t) = self.tasks.get(&pid)
            && self.started
            && t.recorded
        {
            self.queue.push(self.now, Event { task: t.number, cpu: t.cpu, kind })?;
        }
        Ok(())
    }

    pub(super) fn space_of(&mut self, pid: i32) -> Option<&mut SpaceUsers> {
        self.spaces.get_mut(&self.tasks.get(&pid)?.space)
    }

    pub(super) fn known_to(&self, pid: i32) -> KnownTables {
        let space = self.tasks.get(&pid).and_then(|task| self.spaces.get(&task.space));
        space.map(|space| space.known.forked()).unwrap_or_default()
    }

    pub(super) fn leave_space(&mut self, space: u64, still: bool) {
        if let Some(s) = self.spaces.get_mut(&space) {
            s.users = s.users.saturating_sub(1);
            s.still = s.still.saturating_sub(u32::from(still));
            if s.users == 0 {
                self.spaces.remove(&space);
            }
        }
    }

    pub(super) fn rename(&mut self, from: i32, to: i32) {
        if let Some(task) = self.tasks.remove(&from) {
            self.tasks.insert(to, task);
        }
    }
}
