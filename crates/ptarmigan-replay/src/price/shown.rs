//! Shows a replay to rows, operation by operation.
use super::changes::changes;
use super::guard::{Guarded, Show};
use super::moment::{Effect, Moment};
use super::reach::{emptied, reach};
use super::tables::TableEffects;
use super::whole::{LEVELS, Whole};
use crate::flushes::Flushes;
use crate::input::schedule::{Op, Program};
use crate::linux::PAGE;
use crate::workers::look::{Look, When};
use crate::workers::watch::Watch;
use ptarmigan::addr::VirtRange;
use ptarmigan::space::{Access, Done};
use ptarmigan::tlb::FlushCounts;
use ptarmigan_trace::{Event, Kind};
use std::ops::Range;
use std::time::Duration;

const ALL: VirtRange = VirtRange::up_to(u64::MAX);

/// The event whose operation runs.
#[derive(Clone, Copy)]
struct Pending {
    step: u32,
    event: Event,
    space: u32,
    was_mapped: bool,
    ranges: [Option<VirtRange>; 2],
}

/// Shows the replay to the rows.
pub struct Rows<'a, 'r> {
    rows: Vec<Guarded<'r>>,
    limit: Duration,
    program: &'a Program,
    tables: &'a TableEffects<'a>,
    flushes: Box<dyn Fn() -> FlushCounts + Send + 'a>,
    flushed: Flushes,
    /// The operation that runs.
    at: usize,
    /// The next step that rows have not seen.
    next: u32,
    /// The next flush of Linux.
    marks: usize,
    pending: Option<Pending>,
    effects: Vec<Effect>,
    /// The pages that were mapped before, by range.
    mapped: [Vec<Range<u64>>; 2],
    live: [u64; LEVELS],
    live_spaces: u64,
    whole: Whole<'a>,
}

impl<'a, 'r> Rows<'a, 'r> {
    /// Shows the replay of `program` to rows. `flushes` returns all flushes so far.
    pub fn new(
        rows: Vec<Guarded<'r>>,
        limit: Duration,
        program: &'a Program,
        tables: &'a TableEffects<'a>,
        flushes: impl Fn() -> FlushCounts + Send + 'a,
        whole: Whole<'a>,
    ) -> Self {
        Rows {
            rows,
            limit,
            program,
            tables,
            flushes: Box::new(flushes),
            flushed: Flushes::default(),
            at: 0,
            next: 0,
            marks: 0,
            pending: None,
            effects: Vec::new(),
            mapped: [Vec::new(), Vec::new()],
            live: [0; LEVELS],
            live_spaces: 1,
            whole,
        }
    }

    /// Ends the replay: shows the steps behind the last operation.
    pub fn finish(mut self) -> (Vec<Guarded<'r>>, Whole<'a>) {
        self.catch_up(self.whole.trace.steps.len() as u32);
        (self.rows, self.whole)
    }

    fn show(&mut self, when: Show, step: u32, event: Event, space: Option<u32>, view: Option<&dyn Look>) {
        let program = space.map_or(0, |space| self.whole.programs.of_space(space));
        let effects = if when == Show::Before { &[][..] } else { &self.effects };
        let moment = Moment { step, event, space, program, effects, view };
        Guarded::show(&mut self.rows, &moment, when, self.limit);
    }

    /// Shows the steps before `until` that no operation has shown: those that concern no space, or
    /// whose call the space refused.
    fn catch_up(&mut self, until: u32) {
        while self.next < until {
            self.linux_flushes(self.next);
            self.effects.clear();
            let (step, event) = (self.next, self.whole.trace.event(self.next));
            self.next += 1;
            self.show(Show::After, step, event, None, None);
        }
        self.linux_flushes(until);
    }

    /// Shows Linux's flushes up to a step.
    fn linux_flushes(&mut self, until: u32) {
        let trace = self.whole.trace;
        while let Some(mark) = trace.flush_marks.get(self.marks).filter(|mark| mark.step <= until) {
            self.marks += 1;
            self.effects.clear();
            let kind = Kind::TlbFlush { pages: mark.pages, reason: mark.reason };
            self.show(Show::After, mark.step, Event { task: mark.task, cpu: 0, kind }, None, None);
        }
    }

    /// Takes the tables that were made and freed, and the flushes, to the effects.
    fn take_effects(&mut self, flushes: bool) {
        for effect in self.tables.log().drain(..) {
            match effect {
                Effect::TableMade { level, .. } => {
                    let level = usize::from(level).min(LEVELS - 1);
                    self.live[level] += 1;
                    self.whole.tables[level] += 1;
                    self.whole.tables_peak[level] = self.whole.tables_peak[level].max(self.live[level]);
                }
                Effect::TableFreed { level, .. } => {
                    let live = &mut self.live[usize::from(level).min(LEVELS - 1)];
                    *live = live.saturating_sub(1);
                }
                _ => {}
            }
            self.effects.push(effect);
        }
        if flushes {
            let now = Flushes::from((self.flushes)());
            let new = now - std::mem::replace(&mut self.flushed, now);
            if new.total() > 0 {
                self.effects.push(Effect::Flushed(new));
            }
        }
    }

    fn before(&mut self, op: &Op, view: &dyn Look) {
        let step = self.program.origins[self.at];
        self.catch_up(step);
        let space = match *op {
            Op::Fault { space, .. }
            | Op::Call { space, .. }
            | Op::Fork { space, .. }
            | Op::Exec { space, .. }
            | Op::Exit { space, .. } => space,
            _ => return,
        };
        let event = self.whole.trace.event(step);
        let mut pending = Pending { step, event, space, was_mapped: false, ranges: [None, None] };
        match event.kind {
            Kind::Fault { page, .. } => pending.was_mapped = view.is_mapped(page << PAGE),
            kind => pending.ranges = reach(&kind, view, self.whole.trace.locks),
        }
        for (mapped, range) in self.mapped.iter_mut().zip(pending.ranges) {
            mapped.clear();
            if let Some(range) = range {
                view.mapped(range, &mut |run| mapped.push(run));
            }
        }
        // What happened between operations is nobody's, such as the first space's root.
        self.take_effects(false);
        self.effects.clear();
        self.flushed = (self.flushes)().into();
        self.pending = Some(pending);
        self.show(Show::Before, step, event, Some(space), Some(view));
    }

    /// A fork or an `execve` has made a space.
    fn made(&mut self, op: &Op, view: &dyn Look) {
        let Some(pending) = self.pending else { return };
        self.live_spaces += 1;
        self.whole.spaces.0 += 1;
        self.whole.spaces.1 = self.whole.spaces.1.max(self.live_spaces);
        match *op {
            Op::Fork { child, .. } => {
                self.whole.forks += 1;
                self.effects.push(Effect::Forked { child });
                let (effects, entries) = (&mut self.effects, &mut self.whole.forked_entries);
                view.leaf_tables(ALL, &mut |table| {
                    *entries += u64::from(table.entries);
                    let start = table.start >> PAGE;
                    effects.push(Effect::TableCopied { start, entries: table.entries });
                });
            }
            Op::Exec { next, last, .. } => {
                self.take_effects(true);
                let is_made = |effect: &Effect| matches!(effect, Effect::TableMade { .. });
                let (made, ended) = std::mem::take(&mut self.effects).into_iter().partition(is_made);
                if last {
                    self.effects = ended;
                    self.effects.push(Effect::Ended);
                    self.live_spaces -= 1;
                    let Event { task, cpu, .. } = pending.event;
                    let end = Event { task, cpu, kind: Kind::Exit { last: false } };
                    self.show(Show::After, pending.step, end, Some(pending.space), None);
                }
                self.effects = made;
                let effects = &mut self.effects;
                view.mapped(ALL, &mut |run| {
                    effects.push(Effect::Mapped { start: run.start, pages: run.end - run.start });
                });
                self.pending = None;
                self.next = pending.step + 1;
                self.show(Show::After, pending.step, pending.event, Some(next), Some(view));
            }
            _ => {}
        }
    }

    /// The operation is done: shows its event, with the view if the space is still there.
    fn after(&mut self, op: Option<&Op>, view: Option<&dyn Look>) {
        let Some(Pending { step, event, space, was_mapped, ranges }) = self.pending.take() else { return };
        let is_fault = matches!(event.kind, Kind::Fault { .. });
        let served = self.effects.iter().find_map(|effect| match effect {
            Effect::Served(done) => Some(*done),
            _ => None,
        });
        self.whole.faults += u64::from(is_fault);
        self.take_effects(!is_fault || matches!(served, Some(Done::Copied | Done::Reused)));
        match (event.kind, view) {
            (Kind::Fault { page, .. }, Some(_)) if served.is_some() && !was_mapped => {
                let block = self.effects.iter().find_map(|effect| match effect {
                    Effect::Block { start, pages } => Some((*start, *pages)),
                    _ => None,
                });
                let (start, pages) = block.unwrap_or((page, 1));
                self.effects.push(Effect::Mapped { start, pages });
            }
            (kind, Some(view)) => {
                let now = ranges.map(|range| {
                    let mut runs = Vec::new();
                    range.into_iter().for_each(|range| view.mapped(range, &mut |run| runs.push(run)));
                    runs
                });
                if let Some((start, pages)) = emptied(&kind, ranges) {
                    self.effects.push(Effect::Emptied { start, pages });
                }
                changes(&kind, &self.mapped, &now, &mut |effect| self.effects.push(effect));
            }
            _ => {}
        }
        if let Some(Op::Exit { last: true, .. }) = op {
            self.effects.push(Effect::Ended);
            self.live_spaces -= 1;
        }
        self.next = step + 1;
        self.show(Show::After, step, event, Some(space), view);
    }
}

impl Watch for Rows<'_, '_> {
    fn looks(&self, op: &Op, _: When) -> bool {
        matches!(op, Op::Fault { .. } | Op::Call { .. } | Op::Fork { .. } | Op::Exec { .. } | Op::Exit { .. })
    }

    fn look(&mut self, op: &Op, when: When, view: &dyn Look) {
        match when {
            When::Before => self.before(op, view),
            When::Made => self.made(op, view),
            When::After => self.after(Some(op), Some(view)),
        }
    }

    fn served(&mut self, _: usize, _: u64, _: Access, done: Done) {
        self.effects.push(Effect::Served(done));
    }

    fn block(&mut self, block: VirtRange) {
        self.effects.push(Effect::Block { start: block.start >> PAGE, pages: block.len() >> PAGE });
    }

    fn done(&mut self, at: usize) {
        // Spaces that have ended are not shown after their end.
        let op = self.program.ops.get(at).copied();
        self.after(op.as_ref(), None);
        self.at = at + 1;
    }
}
