//! Runs and waits.
use super::*;
use crate::cpu::*;
/// Stale addresses.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    start: u64,
    end: u64,
}
impl Default for Runs {
    fn default() -> Self {
        Self::new()
    }
}
impl Runs {
    /// None.
    pub const fn new() -> Self {
        Runs { start: u64::MAX, end: 0 }
    }
    /// All.
    pub const fn everything() -> Self {
        Runs { start: 0, end: u64::MAX }
    }
    /// Adds a run.
    pub fn add(&mut self, start: u64, end: u64) {
        self.start = self.start.min(start);
        self.end = self.end.max(end);
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}
impl<S: Shootdown> Tlb<S> {
    pub(crate) fn flush(
        &self,
        pin: &Pinned<'_>,
        space: &SpaceTlb,
        runs: &Runs,
        stride: u32,
        flags: FlushFlags,
    ) -> Ticket {
        let (start, end) = (runs.start & !((1 << stride) - 1), runs.end);
        let scope = if end == u64::MAX {
            Scope::Full
        } else if end - start <= 1 << stride {
            Scope::Page(start)
        } else {
            Scope::Range { start, end, stride }
        };
        self.flush_old(pin, space, scope, flags)
    }
    pub(crate) fn wait_until(&self, pin: &Pinned<'_>, mut done: impl FnMut() -> bool) {
        let mut turn = 0u32;
        while !done() {
            turn = turn.wrapping_add(1);
            self.pause(pin, turn);
        }
    }
    pub(crate) fn count_parked(&self, pin: &Pinned<'_>) {
        self.tally(pin).parked.add(1);
    }
    #[inline(always)]
    pub(crate) fn entry_became_valid(&self, _: &Pinned<'_>, _: &SpaceTlb, _: u64) {}
}
