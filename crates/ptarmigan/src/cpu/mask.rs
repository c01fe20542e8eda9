//! Sets of CPUs.
//!
//! # Why
//!
//! A mask is written by one CPU and looked at by another one that has just written something else:
//! "set my bit, then look at the generation" against "raise the generation, then look at the bits".
//! Only a total order of all four accesses makes one side see the other, so every operation is
//! `SeqCst`. With acquire and release alone, each side would be allowed to miss the other's store.
//!
//! ```text
//!  set      fetch_or(bit)                  enters
//!  remove   fetch_and(!bit) & bit != 0 ──> one of several callers is told that it took the bit
//!  snapshot word 0 ─> word 1 ─> …          each word at its own moment: callers look again
//! ```
use super::{CpuId, MAX_CPUS};
use crate::sync::atomic::{AtomicUsize, Ordering};

const BITS: usize = usize::BITS as usize;
const WORDS: usize = MAX_CPUS / BITS;

/// A set of CPUs that any CPU may change.
#[derive(Default)]
pub struct CpuMask {
    words: [AtomicUsize; WORDS],
}

impl CpuMask {
    /// The word of a CPU, and its bit there; `None` from [`MAX_CPUS`] on.
    #[inline]
    fn word(&self, cpu: CpuId) -> Option<(&AtomicUsize, usize)> {
        self.words.get(cpu.0 as usize / BITS).map(|word| (word, 1 << (cpu.0 as usize % BITS)))
    }

    /// Adds a CPU; a number from [`MAX_CPUS`] on, which no set can hold, has no effect.
    #[inline]
    pub fn set(&self, cpu: CpuId) {
        debug_assert!(usize::from(cpu.0) < MAX_CPUS);
        if let Some((word, bit)) = self.word(cpu) {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Removes a CPU.
    #[inline]
    pub fn clear(&self, cpu: CpuId) {
        if let Some((word, bit)) = self.word(cpu) {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Returns whether `cpu` is in the set.
    #[inline]
    pub fn has(&self, cpu: CpuId) -> bool {
        self.word(cpu).is_some_and(|(word, bit)| word.load(Ordering::SeqCst) & bit != 0)
    }

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // All words, without branches: most sets that are asked about are empty.
        self.words.iter().fold(0, |all, w| all | w.load(Ordering::SeqCst)) == 0
    }

    /// Returns whether another CPU than `cpu` is in the set.
    #[inline]
    pub fn has_others(&self, cpu: CpuId) -> bool {
        let own = usize::from(cpu.0) / BITS;
        let load = |n: usize| self.words[(own + n) % WORDS].load(Ordering::SeqCst);
        // All words, from the CPU's own on, without branches.
        let own_bit = if own < WORDS { 1 << (usize::from(cpu.0) % BITS) } else { 0 };
        (1..WORDS).fold(load(0) & !own_bit, |all, n| all | load(n)) != 0
    }

    /// Replaces the set by `to`.
    #[inline]
    pub fn assign(&self, to: &CpuSet) {
        for (word, to) in self.words.iter().zip(to.words) {
            word.store(to, Ordering::SeqCst);
        }
    }

    /// Takes a CPU out, and returns whether it was in the set: of several that try, one is told so.
    #[inline]
    pub fn remove(&self, cpu: CpuId) -> bool {
        self.word(cpu).is_some_and(|(word, bit)| word.fetch_and(!bit, Ordering::SeqCst) & bit != 0)
    }

    /// Returns the set as it is now.
    #[inline]
    pub fn snapshot(&self) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i].load(Ordering::SeqCst)) }
    }
}

/// A set of CPUs, as it was at one moment.
///
/// ```
/// use ptarmigan::cpu::{CpuId, CpuSet};
///
/// let all = CpuSet::default().with(CpuId(1)).with(CpuId(3));
/// let others = all.except(CpuId(1));
/// assert_eq!(others.iter().collect::<Vec<_>>(), [CpuId(3)]);
/// assert!(all.has(CpuId(1)) && all.len() == 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    words: [usize; WORDS],
}

impl CpuSet {
    /// Returns whether `cpu` is in the set.
    #[inline]
    pub fn has(&self, cpu: CpuId) -> bool {
        let word = self.words.get(cpu.0 as usize / BITS).unwrap_or(&0);
        word & 1 << (cpu.0 as usize % BITS) != 0
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Iterates over the members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(i, w)| {
            let mut left = *w;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                if left == 0 {
                    return None;
                }
                left &= left - 1;
                Some(CpuId((i * BITS) as u16 + bit as u16))
            })
        })
    }

    /// Returns the union of both sets.
    pub fn or(&self, other: &CpuSet) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i] | other.words[i]) }
    }

    /// Returns the members of `self` that are not in `other`.
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        CpuSet { words: core::array::from_fn(|i| self.words[i] & !other.words[i]) }
    }

    /// Returns the set with one more CPU; itself for one from [`MAX_CPUS`] on, which no set can
    /// hold.
    pub fn with(mut self, cpu: CpuId) -> CpuSet {
        if let Some(word) = self.words.get_mut(cpu.0 as usize / BITS) {
            *word |= 1 << (cpu.0 as usize % BITS);
        }
        self
    }

    /// Returns the set with one CPU less.
    pub fn except(mut self, cpu: CpuId) -> CpuSet {
        if let Some(word) = self.words.get_mut(cpu.0 as usize / BITS) {
            *word &= !(1 << (cpu.0 as usize % BITS));
        }
        self
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }
}
