//! Tables one by one: how full they were, how long they lived, and the operations that made and
//! took them.
use ptarmigan_replay::{Cause, Life, Observation, ObservedTrace};
use serde::Serialize;

/// Figures over all tables.
#[derive(Serialize)]
pub(in crate::report) struct TableFigures {
    /// Tables made, by level.
    pub made: Vec<u64>,
    pub fullness: Fullness,
    pub lifetimes: Lifetimes,
    pub made_by: Vec<CauseRow>,
    pub taken_by: Vec<CauseRow>,
}

/// How full leaf tables were.
#[derive(Serialize)]
pub(in crate::report) struct Fullness {
    /// Leaf tables by the most entries that they held at once.
    pub classes: Vec<FullnessClass>,
    /// All leaf tables.
    pub tables: u64,
    /// Of these, those that never held 64 entries.
    pub below_64: u64,
    /// Those that were empty when they went, though they had held entries.
    pub left_empty: u64,
}

/// Leaf tables that held a number of entries.
#[derive(Serialize)]
pub(in crate::report) struct FullnessClass {
    pub from: u16,
    pub to: u16,
    /// Tables that held so many at most.
    pub most: u64,
    /// Tables that held so many when they went.
    pub when_taken: u64,
}

/// How long tables lived, in units of the axis.
#[derive(Serialize)]
pub(in crate::report) struct Lifetimes {
    /// By powers of two.
    pub bins: Vec<LifetimeBin>,
    /// Medians: of leaf tables, of the others. `None` if more than half of these lives are cut off.
    pub median: [Option<u64>; 2],
    /// Tables that were there before the recording, or were left at its end. Their lives are longer
    /// than they look.
    pub cut: u64,
}

/// Tables with a life of at least `from` and less than `to`.
#[derive(Serialize)]
pub(in crate::report) struct LifetimeBin {
    pub from: u64,
    pub to: u64,
    pub leaf: u64,
    pub upper: u64,
}

/// Tables that a cause made and took.
#[derive(Serialize)]
pub(in crate::report) struct CauseRow {
    pub cause: Cause,
    /// Tables by level.
    pub levels: Vec<u64>,
}

impl CauseRow {
    /// Returns the number of tables.
    pub fn total(&self) -> u64 {
        self.levels.iter().sum()
    }
}

/// The classes of fullness: no entry, one, and so on.
const CLASSES: [(u16, u16); 6] = [(0, 0), (1, 1), (2, 7), (8, 63), (64, 511), (512, 512)];

impl TableFigures {
    pub(super) fn new(observed: &ObservedTrace, seen: &Observation) -> Self {
        let levels = ObservedTrace::levels().len();
        let mut made = vec![0; levels];
        let mut made_by = vec![vec![0; levels]; Cause::ALL.len()];
        let mut taken_by = made_by.clone();
        for life in &seen.lives {
            let level = usize::from(life.level);
            made[level] += 1;
            let (came, went) = causes(observed, seen, life);
            made_by[came as usize][level] += 1;
            taken_by[went as usize][level] += 1;
        }
        let leaves = || seen.lives.iter().filter(|life| life.level == 0);
        TableFigures {
            made,
            fullness: Fullness::new(leaves()),
            lifetimes: Lifetimes::new(observed, seen),
            made_by: rows(made_by),
            taken_by: rows(taken_by),
        }
    }
}

fn op(seen: &Observation, call: u32) -> u32 {
    // A table that never went was left, like those that went after the last operation.
    seen.calls.get(call as usize).copied().unwrap_or(u32::MAX - 1)
}

fn causes(observed: &ObservedTrace, seen: &Observation, life: &Life) -> (Cause, Cause) {
    (observed.cause(op(seen, life.made)), observed.cause(op(seen, life.taken)))
}

/// Returns the causes that there are, the largest first.
fn rows(by_cause: Vec<Vec<u64>>) -> Vec<CauseRow> {
    let rows = Cause::ALL.into_iter().zip(by_cause).map(|(cause, levels)| CauseRow { cause, levels });
    let mut rows: Vec<CauseRow> = rows.filter(|row| row.total() > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.total()));
    rows
}

impl Fullness {
    fn new<'a>(leaves: impl Iterator<Item = &'a Life>) -> Self {
        let class = |(from, to)| FullnessClass { from, to, most: 0, when_taken: 0 };
        let mut fullness = Fullness {
            classes: CLASSES.into_iter().map(class).collect(),
            tables: 0,
            below_64: 0,
            left_empty: 0,
        };
        for life in leaves {
            for class in &mut fullness.classes {
                let holds = |entries: u16| u64::from((class.from..=class.to).contains(&entries));
                class.most += holds(life.most);
                class.when_taken += holds(life.last);
            }
            fullness.tables += 1;
            fullness.below_64 += u64::from(life.most < 64);
            fullness.left_empty += u64::from(life.most > 0 && life.last == 0);
        }
        fullness
    }
}

impl Lifetimes {
    fn new(observed: &ObservedTrace, seen: &Observation) -> Self {
        let mut lives: [Vec<u64>; 2] = Default::default();
        let mut cut = [0; 2];
        // Processes that ran already had their tables before.
        let openings = observed.trace().opening_steps();
        for life in &seen.lives {
            let (made, taken) = (op(seen, life.made), op(seen, life.taken));
            let (came, went) = causes(observed, seen, life);
            let opened = observed.step(made).is_some_and(|step| openings.contains_key(&step));
            let before = came == Cause::Start || opened;
            cut[usize::from(life.level > 0)] += usize::from(before || went == Cause::End);
            let span = observed.at(taken).saturating_sub(observed.at(made));
            lives[usize::from(life.level > 0)].push(span);
        }
        lives.iter_mut().for_each(|lives| lives.sort_unstable());
        let median = [0, 1].map(|which: usize| {
            let lives = &lives[which];
            let most = 2 * cut[which] <= lives.len();
            most.then(|| lives.get(lives.len() / 2).copied().unwrap_or(0))
        });
        let first = lives.iter().filter_map(|lives| lives.first()).min().map_or(0, |span| bin(*span));
        let last = lives.iter().filter_map(|lives| lives.last()).max().map_or(0, |span| bin(*span));
        let bins = (first..=last).map(|n| {
            let in_bin = |lives: &Vec<u64>| lives.iter().filter(|span| bin(**span) == n).count() as u64;
            let (from, to) = if n == 0 { (0, 1) } else { (1 << (n - 1), 1 << n) };
            LifetimeBin { from, to, leaf: in_bin(&lives[0]), upper: in_bin(&lives[1]) }
        });
        Lifetimes { bins: bins.collect(), median, cut: (cut[0] + cut[1]) as u64 }
    }
}

/// Returns the bin of a life: 0 for no event, n for at least 2^(n - 1).
fn bin(span: u64) -> u32 {
    (u64::BITS - span.leading_zeros()).min(63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_full_as_it_ever_was_and_may_be_left_empty() {
        let life = |most, last| Life { level: 0, made: 0, taken: 1, most, last };
        let fullness =
            Fullness::new([life(0, 0), life(1, 1), life(63, 0), life(64, 7), life(512, 512)].iter());
        let most: Vec<u64> = fullness.classes.iter().map(|class| class.most).collect();
        assert_eq!(most, [1, 1, 0, 1, 1, 1]);
        let last: Vec<u64> = fullness.classes.iter().map(|class| class.when_taken).collect();
        assert_eq!(last, [2, 1, 1, 0, 0, 1]);
        assert_eq!((fullness.tables, fullness.below_64, fullness.left_empty), (5, 3, 1));
    }

    #[test]
    fn every_number_of_entries_is_in_one_class() {
        for entries in 0..=512 {
            assert_eq!(CLASSES.iter().filter(|(from, to)| (*from..=*to).contains(&entries)).count(), 1);
        }
    }

    #[test]
    fn lives_are_counted_by_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 1023, 1024].map(bin), [0, 1, 2, 2, 3, 10, 11]);
    }
}
