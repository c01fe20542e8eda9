//! Counts events of a policy, on each CPU by itself.
use crate::cpu::Counter;
use crate::page::{Layout, Level, MAX_LEVELS};

/// One CPU's counts for one level, as [`LevelCounts`] names them.
#[derive(Default)]
pub struct LevelTally {
    /// Pages handed out.
    pub allocs: Counter,
    /// Pages taken back.
    pub frees: Counter,
    /// Magazines that the depot moved to the CPU.
    pub refills: Counter,
    /// Pages that came from the frame allocator.
    pub misses: Counter,
    /// Pages that went back to the frame allocator.
    pub returns: Counter,
}

/// One CPU's counts, for a policy to keep. Only that CPU adds to them; it puts them on lines of
/// their own.
#[derive(Default)]
pub struct Tally {
    /// A power of two, so that an index is cut to size instead of checked. Behind the levels is the
    /// count of leaf tables in high memory, which the lowest level does not count.
    levels: [LevelTally; MAX_LEVELS.next_power_of_two()],
}

/// The index of the counts of leaf tables in high memory.
const HIGH: usize = MAX_LEVELS.next_power_of_two() - 1;
const _: () = assert!(HIGH >= MAX_LEVELS);

impl Tally {
    /// Returns the counts of tables of `level` in low memory.
    #[inline]
    pub fn level(&self, level: Level) -> &LevelTally {
        &self.levels[level.at() % MAX_LEVELS.next_power_of_two()]
    }

    /// Returns the counts of tables of `level` in low memory, or of leaf tables in high memory.
    #[inline]
    pub fn row(&self, level: Level, is_high: bool) -> &LevelTally {
        if is_high { &self.levels[HIGH] } else { self.level(level) }
    }
}

/// Counts of one level, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounts {
    /// Pages handed out.
    pub allocs: usize,
    /// Pages taken back.
    pub frees: usize,
    /// Magazines that the depot moved to a CPU. These are no misses: the pages were known to be
    /// clean.
    pub refills: usize,
    /// Pages that came from the frame allocator.
    pub misses: usize,
    /// Pages that went back to the frame allocator.
    pub returns: usize,
}

impl LevelCounts {
    /// Returns the number of pages handed out and not taken back. Of one CPU alone it wraps around
    /// below 0 where others hand out what that CPU takes back.
    pub fn live(&self) -> usize {
        self.allocs.wrapping_sub(self.frees)
    }

    /// Returns the number of pages that rest: taken from the allocator, neither handed out nor
    /// given back; 0 while the counts of a moment say less. Meaningful where pages are kept for one
    /// level alone, as those in high memory are.
    pub fn cached(&self) -> usize {
        self.resting().max(0) as usize
    }

    fn resting(&self) -> i64 {
        signed(self.misses.wrapping_sub(self.returns).wrapping_sub(self.live()))
    }

    fn add(&mut self, one: &LevelTally) {
        self.allocs = self.allocs.wrapping_add(one.allocs.get());
        self.frees = self.frees.wrapping_add(one.frees.get());
        self.refills = self.refills.wrapping_add(one.refills.get());
        self.misses = self.misses.wrapping_add(one.misses.get());
        self.returns = self.returns.wrapping_add(one.returns.get());
    }
}

/// Counts of a policy. Exact while no operation is in progress; otherwise off by at most the
/// operations in progress, and by counts of interrupt handlers where [a count may be
/// lost](crate::cpu::Counter#interrupts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    /// By level. Pages that a list keeps for several levels count at the level for which they were
    /// fetched.
    pub levels: [LevelCounts; MAX_LEVELS],
    /// Of the lowest level's, those in high memory.
    pub high: LevelCounts,
}

impl PolicyCounts {
    /// Returns the counts of all these CPUs together.
    pub fn sum<'t>(tallies: impl IntoIterator<Item = &'t Tally>) -> Self {
        let mut all = PolicyCounts::default();
        for tally in tallies {
            all.levels.iter_mut().zip(&tally.levels).for_each(|(sum, one)| sum.add(one));
            all.levels[Level::PTE.at()].add(&tally.levels[HIGH]);
            all.high.add(&tally.levels[HIGH]);
        }
        all
    }

    /// Returns the number of pages handed out and not taken back, at all levels.
    pub fn live(&self) -> usize {
        self.levels.iter().fold(0, |n, l| n.wrapping_add(l.live()))
    }

    /// Returns the number of pages that rest in the policy: taken from the allocator, neither
    /// handed out nor given back; 0 while the counts of a moment say less.
    pub fn cached(&self) -> usize {
        self.resting().max(0) as usize
    }

    fn resting(&self) -> i64 {
        self.levels.iter().map(LevelCounts::resting).sum()
    }

    /// Returns the bytes of tables handed out and not taken back, of trees of `layout`; 0 while the
    /// counts of a moment say less.
    pub fn live_bytes(&self, layout: &Layout) -> u64 {
        let bytes = |level: Level| signed(self.levels[level.at()].live()) * layout.table_bytes(level) as i64;
        layout.each_level().map(bytes).sum::<i64>().max(0) as u64
    }

    /// Returns the bytes that rest in the policy, the same way. Pages that lists keep for several
    /// levels are as large as PTE tables.
    pub fn cached_bytes(&self, layout: &Layout) -> u64 {
        let tops = self.levels[layout.root().at()].resting();
        let others = self.resting() - tops;
        let bytes = |level| layout.table_bytes(level) as i64;
        (tops * bytes(layout.root()) + others * bytes(Level::PTE)).max(0) as u64
    }
}

/// Returns the difference of two counts, of which the first may lag behind.
fn signed(difference: usize) -> i64 {
    difference as isize as i64
}

/// A node's cached pages and its limit, by state: constructed roots, and pages that are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Frames of low memory that the node may keep at the moment.
    pub budget: u32,
    /// Constructed roots in the depot.
    pub depot_roots: u32,
    /// Zero pages in the depot.
    pub depot_zero: u32,
    /// Constructed roots that CPUs of other nodes have freed, and that wait for a CPU of this node.
    pub remote_returns_roots: u32,
    /// Zero pages that wait in the same way.
    pub remote_returns: u32,
    /// Roots of the node's memory that are in use or kept anywhere.
    pub roots: u32,
    /// Other table pages of the node's low memory that are in use or kept anywhere.
    pub pages: u32,
    /// Frames of high memory that the node may keep at the moment.
    pub high_budget: u32,
    /// Pages of high memory in the depot.
    pub depot_high: u32,
    /// Pages of high memory that wait in the same way.
    pub remote_returns_high: u32,
    /// Leaf tables in the node's high memory that are in use or kept anywhere.
    pub high_pages: u32,
    /// Size of the CPUs' magazines for roots, in pages.
    pub magazine_roots: u32,
    /// Size of the CPUs' magazines for other pages.
    pub magazine_zero: u32,
}
