//! Counts the events of a policy, on each CPU by itself.
use ptarmigan::cpu::Counter;
use ptarmigan::page::{Level, MAX_LEVELS};
use ptarmigan::quicklist::{LevelCounts, PolicyCounts};

/// One CPU's counts for one level. Single writer.
#[derive(Default)]
pub(crate) struct LevelTally {
    pub allocs: Counter,
    pub frees: Counter,
    pub misses: Counter,
    pub returns: Counter,
}

/// One CPU's counts, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    levels: [LevelTally; MAX_LEVELS],
    /// Those of leaf tables in high memory, which the lowest level's leave out.
    high: LevelTally,
}

impl Tally {
    /// Returns the counts of tables of `level` in low memory, or of leaf tables in high memory.
    pub fn of(&self, level: Level, is_high: bool) -> &LevelTally {
        if is_high { &self.high } else { &self.levels[level.at() % MAX_LEVELS] }
    }

    /// Adds the CPU's counts to `sum`.
    pub fn add_to(&self, mut sum: PolicyCounts) -> PolicyCounts {
        for (sum, one) in sum.levels.iter_mut().zip(&self.levels) {
            add(sum, one);
        }
        add(&mut sum.levels[Level::PTE.at()], &self.high);
        add(&mut sum.high, &self.high);
        sum
    }
}

fn add(sum: &mut LevelCounts, one: &LevelTally) {
    sum.allocs = sum.allocs.wrapping_add(one.allocs.get());
    sum.frees = sum.frees.wrapping_add(one.frees.get());
    sum.misses = sum.misses.wrapping_add(one.misses.get());
    sum.returns = sum.returns.wrapping_add(one.returns.get());
}
