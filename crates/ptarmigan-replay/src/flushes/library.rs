//! Counts the library's flushes by the operation that asked for them.
use super::Flushes;
use crate::causes::Cause;
use crate::input::schedule::Op;
use crate::input::trace::Trace;
use crate::workers::watch::Watch;
use ptarmigan::tlb::FlushCounts;
use serde::Serialize;

/// The library's flushes of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CauseFlushes {
    /// The cause.
    pub cause: Cause,
    /// The flushes.
    #[serde(flatten)]
    pub flushes: Flushes,
}

/// The library's flushes by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LibraryFlushes {
    /// By cause, in the order of [`Cause::ALL`].
    pub by_cause: Vec<CauseFlushes>,
    /// Those of all calls on mappings together.
    pub calls: Flushes,
}

impl LibraryFlushes {
    /// Returns the flushes of one cause.
    pub fn of(&self, cause: Cause) -> Flushes {
        self.by_cause.iter().find(|row| row.cause == cause).map_or(Flushes::default(), |row| row.flushes)
    }
}

/// Counts the flushes of a replay by cause. Of one worker, which has all CPUs.
pub struct FlushesByCause<'a> {
    trace: &'a Trace,
    ops: &'a [Op],
    counts: Box<dyn Fn() -> FlushCounts + Send + 'a>,
    before: Flushes,
    by_cause: [Flushes; Cause::ALL.len()],
}

impl<'a> FlushesByCause<'a> {
    /// Counts with `counts`, which returns all flushes so far, while a worker executes `ops`.
    pub fn new(trace: &'a Trace, ops: &'a [Op], counts: impl Fn() -> FlushCounts + Send + 'a) -> Self {
        let by_cause = [Flushes::default(); Cause::ALL.len()];
        FlushesByCause { trace, ops, counts: Box::new(counts), before: Flushes::default(), by_cause }
    }

    /// Returns all flushes so far.
    pub fn so_far(&self) -> Flushes {
        (self.counts)().into()
    }

    /// Returns the cause of an operation's flushes. An `execve` flushes for the end of the space
    /// before; the flushes for its new space belong to the areas that follow.
    fn cause(&self, at: usize) -> Cause {
        match self.ops.get(at) {
            Some(Op::Exec { .. }) | None => Cause::Exit,
            Some(_) => Cause::of(self.trace, self.ops, at as u32),
        }
    }

    fn count(&mut self, cause: Cause) {
        let now = self.so_far();
        self.by_cause[cause as usize] += now - self.before;
        self.before = now;
    }

    /// Returns the flushes. Those after the last operation end the spaces that were left.
    pub fn finish(mut self) -> LibraryFlushes {
        self.count(Cause::Exit);
        let rows = Cause::ALL.into_iter().zip(self.by_cause);
        let rows = rows.map(|(cause, flushes)| CauseFlushes { cause, flushes });
        let by_cause: Vec<_> = rows.filter(|row| row.flushes.total() > 0).collect();
        let mut calls = Flushes::default();
        by_cause.iter().filter(|row| row.cause.is_call()).for_each(|row| calls += row.flushes);
        LibraryFlushes { by_cause, calls }
    }
}

impl Watch for FlushesByCause<'_> {
    // Counters of all CPUs are added up where the cause changes, not at each fault.
    fn done(&mut self, at: usize) {
        let cause = self.cause(at);
        if self.cause(at + 1) != cause {
            self.count(cause);
        }
    }
}
