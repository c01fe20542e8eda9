//! Counts and times tables by the class of operation that makes or takes them: faults, forks,
//! execs, exits, calls.
use crate::input::schedule::Op;
use crate::input::trace::Trace;
use crate::linux::{SPLIT, is_found};
use crate::workers::watch::Watch;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Policy};
use ptarmigan_bench::clock::Clock;
use ptarmigan_trace::{CloneKind, Kind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why tables come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpClass {
    /// A page fault.
    Fault,
    /// A fork.
    Fork,
    /// An `execve`, with the end of the address space before it.
    Exec,
    /// The exit of a task, with the end of its address space if it was the last.
    Exit,
    /// `mmap`, `munmap`, `madvise` and other calls.
    Call,
    /// Pages that were found at a stop: a correction, which the program did not ask for.
    Found,
    /// The state of processes that ran before the recording.
    Opening,
    /// A CPU switches to another space, or becomes idle.
    Switch,
}

impl OpClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [OpClass; 8] = [
        OpClass::Fault,
        OpClass::Fork,
        OpClass::Exec,
        OpClass::Exit,
        OpClass::Call,
        OpClass::Found,
        OpClass::Opening,
        OpClass::Switch,
    ];

    /// Returns the name, for reports.
    pub fn name(self) -> &'static str {
        match self {
            OpClass::Fault => "fault",
            OpClass::Fork => "fork",
            OpClass::Exec => "exec",
            OpClass::Exit => "exit",
            OpClass::Call => "call",
            OpClass::Found => "found",
            OpClass::Opening => "opening",
            OpClass::Switch => "switch",
        }
    }

    fn of(op: Op, trace: &Trace) -> OpClass {
        match op {
            Op::Fault { .. } => OpClass::Fault,
            Op::Fork { .. } => OpClass::Fork,
            Op::Exec { .. } => OpClass::Exec,
            Op::Exit { .. } => OpClass::Exit,
            Op::Call { rare, .. } => match trace.rare[rare as usize] {
                // The areas that execve maps.
                Kind::Area { .. } => OpClass::Exec,
                Kind::Touched { flags: SPLIT, .. } => OpClass::Fault,
                Kind::Touched { flags, .. } if is_found(flags) => OpClass::Found,
                _ => OpClass::Call,
            },
            _ => OpClass::Switch,
        }
    }
}

fn is_split(op: Op, trace: &Trace) -> bool {
    matches!(op, Op::Call { rare, .. } if matches!(trace.rare[rare as usize], Kind::Touched { flags: SPLIT, .. }))
}

/// No fault of a replay takes so many nanoseconds: the worker was interrupted.
const INTERRUPTED: f64 = 100_000.0;

/// Counts of the operations of one class.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassCount {
    /// How often it came.
    pub times: u64,
    /// Tables that it made, roots included.
    pub made: u64,
    /// Tables that it took away.
    pub freed: u64,
    /// Its time, in nanoseconds. A fault that was interrupted counts as 100 us.
    pub ns: f64,
}

/// Counts the tables of a policy.
pub struct TableCounts<'a> {
    frames: &'a Frames,
    made: AtomicU64,
    freed: AtomicU64,
    peak: AtomicU64,
    /// The most tables at once, with those that are reserved; 0 if these are not counted.
    peak_with_reserve: AtomicU64,
    counts_reserve: bool,
    peak_cached: AtomicU64,
}

impl<'a> TableCounts<'a> {
    /// Counts from 0. `counts_reserve` says whether tables that are reserved for splits of large
    /// pages are counted, too.
    pub fn new(frames: &'a Frames, counts_reserve: bool) -> Self {
        let zero = || AtomicU64::new(0);
        TableCounts {
            frames,
            made: zero(),
            freed: zero(),
            peak: zero(),
            peak_with_reserve: zero(),
            counts_reserve,
            peak_cached: zero(),
        }
    }

    /// Returns how many tables were made, roots included.
    pub fn made(&self) -> u64 {
        self.made.load(Relaxed)
    }

    /// Returns the most tables that there were at once, roots included.
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// Returns the most tables at once with those that were reserved for splits of large pages; as
    /// [`peak`](Self::peak) if these are not counted.
    pub fn peak_with_reserve(&self) -> u64 {
        self.peak_with_reserve.load(Relaxed).max(self.peak())
    }

    /// Looks at the reserve: after each operation, and when a table above the leaves is made.
    fn look_at_reserve(&self) {
        if self.counts_reserve {
            let live = self.made.load(Relaxed) - self.freed.load(Relaxed);
            self.peak_with_reserve.fetch_max(live + u64::from(self.frames.reserved()), Relaxed);
        }
    }

    /// Returns the most pages that the policy kept at once.
    pub fn peak_cached(&self) -> u64 {
        self.peak_cached.load(Relaxed)
    }

    fn look(&self, policy: &(impl Policy + ?Sized)) {
        self.peak_cached.fetch_max(policy.counts().cached() as u64, Relaxed);
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy + ?Sized> Layer<P> for TableCounts<'_> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.frames)
    }

    fn alloc(
        &self,
        _: &P,
        _: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let page = inner()?;
        let made = self.made.fetch_add(1, Relaxed) + 1;
        self.peak.fetch_max(made - self.freed.load(Relaxed), Relaxed);
        // A split has its leaf table before it gives up the frame that was reserved for it.
        if level > Level::PTE {
            self.look_at_reserve();
        }
        Ok(page)
    }

    fn freeing(&self, _: &Pinned<'_>, _: Level, _: PhysAddr) {
        self.freed.fetch_add(1, Relaxed);
    }

    fn after_flushed(&self, policy: &P, _: &Pinned<'_>) {
        self.look(policy);
    }
}

/// Assigns times and tables to classes of operations. Of one worker, which has all CPUs.
pub struct ByClass<'a> {
    tables: &'a TableCounts<'a>,
    trace: &'a Trace,
    ops: &'a [Op],
    clock: Clock,
    began: u64,
    /// Tables made and freed before the operation.
    before: (u64, u64),
    /// By the number of the class.
    pub counts: [ClassCount; OpClass::ALL.len()],
    /// Tables of spaces that ended.
    pub at_end: u64,
    /// The space of an opening ([`Openings`](ptarmigan_trace::Openings)) that goes on.
    opening: Option<u32>,
}

impl<'a> ByClass<'a> {
    /// Observes the worker whose operations are `ops`.
    pub fn new(tables: &'a TableCounts<'a>, trace: &'a Trace, ops: &'a [Op], clock: Clock) -> Self {
        let counts = Default::default();
        let (began, before) = (clock.now(), (0, 0));
        ByClass { tables, trace, ops, clock, began, before, counts, at_end: 0, opening: None }
    }

    /// Returns whether an operation opens a process.
    fn opens(&self, op: Op) -> bool {
        matches!(op, Op::Exec { rare, .. } if matches!(self.trace.rare[rare as usize], Kind::Exec { arg_pages: 0, .. }))
    }

    /// Returns the class of the next operation.
    fn class(&mut self, at: usize) -> OpClass {
        let kind = |rare: u32| self.trace.rare[rare as usize];
        let op = self.ops[at];
        match op {
            Op::Exec { next, .. } if self.opens(op) => {
                self.opening = Some(next);
                return OpClass::Opening;
            }
            Op::Call { rare, .. } if matches!(kind(rare), Kind::Clone { kind: CloneKind::Vfork, .. }) => {
                self.opening = None;
                let works = |op: &&Op| OpClass::of(**op, self.trace) != OpClass::Switch;
                if self.ops[at + 1..].iter().find(works).is_some_and(|next| self.opens(*next)) {
                    return OpClass::Opening;
                }
            }
            Op::Call { rare, space, .. } if self.opening == Some(space) => {
                if matches!(kind(rare), Kind::StackLimit { .. }) {
                    self.opening = None;
                }
                return OpClass::Opening;
            }
            Op::Fault { .. } | Op::Call { .. } | Op::Fork { .. } | Op::Exec { .. } | Op::Exit { .. } => {
                self.opening = None;
            }
            _ => {}
        }
        OpClass::of(op, self.trace)
    }
}

impl Watch for ByClass<'_> {
    fn begins(&mut self) {
        self.before = (self.tables.made.load(Relaxed), self.tables.freed.load(Relaxed));
        self.began = self.clock.now();
    }

    fn done(&mut self, at: usize) {
        let ns = self.clock.between(self.began, self.clock.now());
        let class = self.class(at);
        let count = &mut self.counts[class as usize];
        // A split belongs to the fault that comes after it.
        count.times += u64::from(!is_split(self.ops[at], self.trace));
        count.made += self.tables.made.load(Relaxed) - self.before.0;
        let freed = self.tables.freed.load(Relaxed) - self.before.1;
        count.freed += freed;
        let is_fault = matches!(self.ops[at], Op::Fault { .. });
        count.ns += if is_fault { ns.min(INTERRUPTED) } else { ns };
        if let Op::Exec { .. } | Op::Exit { .. } = self.ops[at] {
            self.at_end += freed;
        }
        self.tables.look_at_reserve();
    }
}
