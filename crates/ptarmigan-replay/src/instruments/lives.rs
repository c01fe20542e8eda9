//! The lives of table pages: which operation made each and which took it, and how many entries it
//! held.
//!
//! A table's entries are counted before each operation that may take some of them, and at no other
//! time: between two such operations entries only come. So the largest of these counts is the most
//! that the table ever held, and the last one is its number of entries at the end.
use crate::causes::START;
use crate::flushes::{Flushes, FlushesByCause};
use crate::input::schedule::Op;
use crate::input::trace::Trace;
use crate::linux::PAGE;
use crate::workers::look::{Look, When};
use crate::workers::watch::Watch;
use ptarmigan::addr::{PhysAddr, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Policy};
use ptarmigan_trace::{AreaKind, FailedCall, FaultFlags, Kind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// The life of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The level, 0 for leaf tables.
    pub level: u8,
    /// The call of the policy that handed it out, as an index of `LifeLog::calls`.
    pub made: u32,
    /// The call that took it back; `u32::MAX` while it lives.
    pub taken: u32,
    /// The most entries that it held, if it is a leaf table.
    pub most: u16,
    /// The entries that it held when it went, if it is a leaf table.
    pub last: u16,
}

/// All lives of a pass.
#[derive(Default)]
pub struct LifeLog {
    /// In order of birth.
    pub lives: Vec<Life>,
    /// For each call of the policy, in order, the operation that it belongs to: its index, that of
    /// the end of the program, or [`START`].
    pub calls: Vec<u32>,
    /// The table in each frame, as an index of `lives`.
    by_frame: Vec<u32>,
}

impl LifeLog {
    fn at(&mut self, at: PhysAddr) -> Option<&mut Life> {
        let index = *self.by_frame.get(at.pfn().0 as usize)?;
        self.lives.get_mut(index as usize)
    }
}

/// Writes down the lives of the tables that a policy hands out, in a pass with one worker.
pub struct Lives<'a> {
    frames: &'a Frames,
    /// Index of the operation that is being executed.
    now: AtomicU32,
    log: Mutex<LifeLog>,
}

impl<'a> Lives<'a> {
    /// Makes a log without lives.
    pub fn new(frames: &'a Frames) -> Self {
        Lives { frames, now: AtomicU32::new(START), log: Mutex::default() }
    }

    /// Locks the log.
    pub fn log(&self) -> MutexGuard<'_, LifeLog> {
        self.log.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The first operation comes next.
    pub fn begin(&self) {
        self.now.store(0, Relaxed);
    }

    fn called(&self) {
        self.log().calls.push(self.now.load(Relaxed));
    }

    /// Counts the entries of the leaf tables in `range` of a space, parts of which may go.
    pub fn look(&self, space: &dyn Look, range: VirtRange) {
        let mut log = self.log();
        space.leaf_tables(range, &mut |table| {
            if let Some(life) = log.at(table.at) {
                life.last = table.entries as u16;
                life.most = life.most.max(life.last);
            }
        });
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy> Layer<P> for Lives<'_> {
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
        let mut log = self.log();
        let (frame, index, made) =
            (page.addr().pfn().0 as usize, log.lives.len() as u32, log.calls.len() as u32);
        if log.by_frame.len() <= frame {
            log.by_frame.resize(frame + 1, u32::MAX);
        }
        log.by_frame[frame] = index;
        log.lives.push(Life { level: level.0, made, taken: u32::MAX, most: 0, last: 0 });
        log.calls.push(self.now.load(Relaxed));
        Ok(page)
    }

    fn freeing(&self, _: &Pinned<'_>, _: Level, at: PhysAddr) {
        let mut log = self.log();
        let taken = log.calls.len() as u32;
        if let Some(life) = log.at(at) {
            life.taken = taken;
        }
        log.calls.push(self.now.load(Relaxed));
    }

    fn gather_end(&self, _: &P, _: &Pinned<'_>) {
        self.called();
    }

    fn idle(&self, _: &P, _: &Pinned<'_>) {
        self.called();
    }
}

/// Flushes up to an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlushSample {
    /// Number of operations done.
    pub ops: u32,
    /// All flushes so far.
    pub flushes: Flushes,
}

/// The observer of the worker: tells [`Lives`] which operation is being executed, and counts
/// flushes.
pub struct LifeWatch<'a> {
    /// Where the lives are written down.
    pub lives: &'a Lives<'a>,
    /// The trace that is replayed.
    pub trace: &'a Trace,
    /// Numbers of operations after which flushes are counted, in order.
    pub samples_at: &'a [u32],
    /// The flushes so far, by cause.
    pub flushes: FlushesByCause<'a>,
    /// The samples so far.
    pub samples: Vec<FlushSample>,
}

impl LifeWatch<'_> {
    #[cold]
    fn sample(&mut self, ops: u32) {
        let flushes = self.flushes.so_far();
        self.samples.push(FlushSample { ops, flushes });
    }
}

impl Watch for LifeWatch<'_> {
    fn starts(&mut self) {
        self.lives.begin();
    }

    // Before operations that may take tables.
    fn looks(&self, op: &Op, when: When) -> bool {
        when == When::Before && matches!(op, Op::Call { .. } | Op::Exec { .. } | Op::Exit { .. })
    }

    fn look(&mut self, op: &Op, _: When, space: &dyn Look) {
        const ALL: VirtRange = VirtRange::up_to(u64::MAX);
        let (rare, all) = match *op {
            Op::Exec { last, .. } | Op::Exit { last, .. } => (None, last),
            Op::Call { rare, .. } => (self.trace.rare.get(rare as usize), false),
            _ => (None, false),
        };
        if all {
            return self.lives.look(space, ALL);
        }
        let of = |start: u64, pages: u64| {
            // Whole leaf tables: a neighbour's table may be moved along.
            let span = space.leaf_shift();
            let shift = span - PAGE;
            let (first, end) = (start >> shift, start.saturating_add(pages).div_ceil(1 << shift));
            Some(VirtRange::saturating_pages(first, end - first, span))
        };
        let ranges = match rare {
            Some(&Kind::Area { kind: AreaKind::Stack, .. }) => [Some(ALL), None],
            Some(
                &Kind::Area { start, pages, .. }
                | &Kind::Mmap { start, pages, .. }
                | &Kind::Munmap { start, pages }
                | &Kind::Madvise { start, pages, .. }
                | &Kind::Failed { call: FailedCall::Madvise { start, pages, .. }, .. },
            ) => [of(start, pages), None],
            Some(&Kind::Touched { start, pages, flags }) if flags.0 & FaultFlags::HUGE != 0 => {
                [of(start, pages), None]
            }
            Some(&Kind::Mremap { from, old_pages, to, new_pages, .. }) => {
                [of(from, old_pages), of(to, new_pages)]
            }
            Some(&Kind::Failed { call: FailedCall::Mremap { start, pages, to, .. }, .. }) => {
                [of(start, pages), of(to, pages)]
            }
            // A heap that shrinks has pages behind its new end.
            Some(&Kind::Brk { end }) => {
                let start = end.saturating_mul(1 << PAGE);
                [space.area(start).and_then(|_| VirtRange::new(start, ALL.end).ok()), None]
            }
            _ => [None, None],
        };
        for range in ranges.into_iter().flatten() {
            self.lives.look(space, range);
        }
    }

    fn done(&mut self, at: usize) {
        let next = at as u32 + 1;
        self.lives.now.store(next, Relaxed);
        self.flushes.done(at);
        if self.samples_at.get(self.samples.len()) == Some(&next) {
            self.sample(next);
        }
    }
}
