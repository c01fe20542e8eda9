//! Collects the stale slots of a window, each by itself.
use super::shape::{Plan, Shape};
use crate::bits;
use crate::tlb::runs::Runs;
use crate::tlb::scope::Scope;

/// Slots in a word.
const BITS: usize = u64::BITS as usize;
const WORDS: usize = SlotSet::SLOTS / BITS;

/// An exact set of up to 1,024 stale slots: pages that follow each other from a base address on, as
/// pages of one leaf table do.
///
/// ```
/// use ptarmigan::tlb::SlotSet;
/// let mut stale = SlotSet::new(0xff80_0000, 12);
/// for slot in [1, 2, 1023] {
///     stale.insert(slot);
/// }
/// assert_eq!(stale.runs().collect::<Vec<_>>(), [(1, 3), (1023, 1024)]);
/// assert_eq!(stale.address(2), 0xff80_2000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSet {
    words: [u64; WORDS],
    base: u64,
    shift: u8,
    everything: bool,
}

impl SlotSet {
    /// Slots that a set can name.
    pub const SLOTS: usize = 1024;

    /// Makes an empty set of slots of 2^`shift` bytes from `base` on. Another shift than 1 to 63 is
    /// taken for the nearest of these, and `base` for the beginning of the page that it lies in.
    pub const fn new(base: u64, shift: u32) -> Self {
        let shift = match shift {
            0 => 1,
            64.. => 63,
            shift => shift as u8,
        };
        SlotSet { words: [0; WORDS], base: base >> shift << shift, shift, everything: false }
    }

    /// Inserts a slot. With a slot that it cannot name, number 1,024 or one beyond the end of the
    /// address space, the set [stands for everything](Self::is_everything) from then on.
    pub fn insert(&mut self, slot: usize) {
        let last = (u64::MAX - self.base) >> self.shift;
        match self.words.get_mut(slot / BITS) {
            Some(word) if slot as u64 <= last => *word |= 1 << (slot % BITS),
            _ => self.everything = true,
        }
    }

    /// Returns whether it stands for everything.
    pub const fn is_everything(&self) -> bool {
        self.everything
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        !self.everything && self.words.iter().all(|word| *word == 0)
    }

    /// Returns the number of slots in it.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether a slot is in it.
    pub fn contains(&self, slot: usize) -> bool {
        self.everything || self.words.get(slot / BITS).is_some_and(|word| word >> (slot % BITS) & 1 == 1)
    }

    /// Returns the address of a slot.
    pub const fn address(&self, slot: usize) -> u64 {
        self.base.wrapping_add((slot as u64) << self.shift)
    }

    /// Returns the binary logarithm of the bytes of a slot.
    pub const fn shift(&self) -> u32 {
        self.shift as u32
    }

    /// Iterates over the runs of slots in it: the first one, and the first after it.
    pub fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let first = self.next(at, true)?;
            at = self.next(first, false).unwrap_or(Self::SLOTS);
            Some((first, at))
        })
    }

    /// The first slot from `from` on that is in it, or is not.
    fn next(&self, from: usize, is_in: bool) -> Option<usize> {
        bits::next(&self.words, from, is_in)
    }

    /// The first slot in it and the first after all.
    fn hull(&self) -> Option<(usize, usize)> {
        let first = self.next(0, true)?;
        let last = self.words.iter().rposition(|word| *word != 0)?;
        Some((first, (last + 1) * BITS - self.words[last].leading_zeros() as usize))
    }

    /// Returns the properties that a planner needs.
    pub fn shape(&self) -> Shape {
        let hull = self.hull().map_or(0, |(first, end)| end - first);
        // A run begins at each slot that is in it while the slot before is not.
        let before = |at: usize| at.checked_sub(1).map_or(0, |at| self.words[at] >> (BITS - 1));
        let begins = |(at, word): (usize, &u64)| (word & !(word << 1 | before(at))).count_ones();
        let runs: u32 = self.words.iter().enumerate().map(begins).sum();
        Shape { pages: self.len() as u64, runs: u64::from(runs), hull: hull as u64, has_window: true }
    }

    /// Calls `visit` with the scopes that together are `plan`, from lower to higher addresses. They
    /// cover at least the slots. An empty set has no run.
    pub fn each_scope(&self, plan: Plan, mut visit: impl FnMut(&Scope)) {
        if self.everything {
            return visit(&Scope::Full);
        }
        let Some((first, end)) = self.hull() else { return };
        match plan {
            Plan::Full => visit(&Scope::Full),
            Plan::Window => visit(&self.range(first, end)),
            Plan::Pages => self.runs().for_each(|(first, end)| {
                (first..end).for_each(|slot| visit(&self.page(self.address(slot))));
            }),
            Plan::Runs => {
                let mut batch = Runs::new(self.shift());
                for (first, end) in self.runs() {
                    batch.insert(self.address(first), self.address(end));
                    if batch.len() == Runs::MOST {
                        visit(&Scope::Runs(batch));
                        batch.clear();
                    }
                }
                match batch.hull() {
                    None => {}
                    Some((start, end)) if batch.len() == 1 => visit(&self.addresses(start, end)),
                    Some(_) => visit(&Scope::Runs(batch)),
                }
            }
        }
    }

    fn range(&self, first: usize, end: usize) -> Scope {
        self.addresses(self.address(first), self.address(end))
    }

    fn addresses(&self, start: u64, end: u64) -> Scope {
        if end.wrapping_sub(start) >> self.shift == 1 {
            self.page(start)
        } else {
            Scope::Range { start, end, stride: self.shift(), mixed: false }
        }
    }

    const fn page(&self, at: u64) -> Scope {
        Scope::Page { at, shift: self.shift() }
    }
}
