//! A part of the slots of one colour, which is swept at once.
//!
//! ```text
//!   free ── take: up to 64 of one row ──> at hand on a CPU ──> shows a frame
//!    ^ ^────────────── give ──────────────────┘                    │ sweep
//!    └── give_flushed <── flush <── owed (a flush that unwound) <──┘
//! ```
//!
//! # Why
//!
//! Slots are taken by rows of 64, one word of the set, so that a CPU takes the lock once for many
//! maps. A chunk is no larger than a leaf table because a sweep flushes one chunk, and a flush that
//! names the pages of one table needs one bitmap. After a flush that has unwound, slots are empty,
//! but a CPU may still know their last frames: they must be flushed before they are free.
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering};

const WORDS: usize = 16;
/// Slots of a chunk at most: no more than a leaf table has entries.
pub(super) const MOST: usize = WORDS * 64;

/// A set of slots of one chunk, by their index in it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SlotBits([u64; WORDS]);

impl SlotBits {
    /// Makes the set of the first `n`.
    pub fn first(n: usize) -> Self {
        let word = |i: usize| match n.saturating_sub(i * 64) {
            0 => 0,
            left => u64::MAX >> (64 - left.min(64)),
        };
        SlotBits(core::array::from_fn(word))
    }

    pub fn insert(&mut self, index: usize) {
        self.0[index / 64 % WORDS] |= 1 << (index % 64);
    }

    fn add(&mut self, other: &SlotBits) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Iterates over the members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                (left != 0).then(|| {
                    left &= left - 1;
                    i * 64 + bit
                })
            })
        })
    }
}

struct Sets {
    /// Slots that can be used, and that no CPU has at hand.
    free: SlotBits,
    /// Slots that show nothing, and that some CPU may not have forgotten: a flush has unwound.
    owed: SlotBits,
}

/// Up to 64 slots in a row, of which some can be used.
#[derive(Clone, Copy, Default)]
pub(super) struct Batch {
    /// The first of the row.
    pub first: usize,
    pub bits: u64,
}

impl Batch {
    /// Takes the lowest slot out.
    #[inline]
    pub fn pop(&mut self) -> Option<usize> {
        let bit = self.bits.trailing_zeros() as usize;
        (self.bits != 0).then(|| {
            self.bits &= self.bits - 1;
            self.first + bit
        })
    }
}

pub(super) struct Chunk {
    sets: SpinLock<Sets>,
    /// How many are free, as of late.
    available: AtomicU32,
    /// Slots in it.
    len: usize,
}

impl Chunk {
    /// Makes a chunk of `len` free slots.
    pub fn new(len: usize) -> Self {
        let sets = Sets { free: SlotBits::first(len), owed: SlotBits::default() };
        Chunk { sets: SpinLock::new(sets), available: AtomicU32::new(len as u32), len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns how many slots were free a moment ago.
    pub fn available(&self) -> usize {
        self.available.load(Ordering::Relaxed) as usize
    }

    /// Takes up to `most` slots, of one row.
    pub fn take(&self, most: u32) -> Option<Batch> {
        let mut sets = self.sets.lock();
        let row = sets.free.0.iter().position(|word| *word != 0)?;
        let word = sets.free.0[row];
        let mut rest = word;
        for _ in 0..most {
            rest &= rest.wrapping_sub(1);
        }
        sets.free.0[row] = rest;
        self.note(&sets);
        Some(Batch { first: row * 64, bits: word & !rest })
    }

    /// Gives slots of one row back as they were taken.
    pub fn give(&self, batch: Batch) {
        let mut sets = self.sets.lock();
        sets.free.0[batch.first / 64 % WORDS] |= batch.bits;
        self.note(&sets);
    }

    /// Makes slots usable that every CPU has forgotten.
    pub fn give_flushed(&self, slots: &SlotBits) {
        let mut sets = self.sets.lock();
        sets.free.add(slots);
        self.note(&sets);
    }

    fn note(&self, sets: &Sets) {
        self.available.store(sets.free.len() as u32, Ordering::Relaxed);
    }

    /// Notes that slots show nothing and are to be flushed still.
    pub fn owe(&self, slots: &SlotBits) {
        self.sets.lock().owed.add(slots);
    }

    /// Takes what is to be flushed still.
    pub fn take_owed(&self) -> SlotBits {
        core::mem::take(&mut self.sets.lock().owed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_slot_of_a_chunk_is_handed_out_once() {
        for len in [1, 63, 64, 65, 1000, MOST] {
            let chunk = Chunk::new(len);
            let mut seen = SlotBits::default();
            while let Some(mut batch) = chunk.take(7) {
                assert!(batch.bits.count_ones() <= 7);
                while let Some(slot) = batch.pop() {
                    assert!(slot < len);
                    let before = seen.len();
                    seen.insert(slot);
                    assert_eq!(seen.len(), before + 1);
                }
            }
            assert_eq!((seen.len(), chunk.available()), (len, 0));
            assert!(seen == SlotBits::first(len) && seen.iter().eq(0..len));
            chunk.give_flushed(&seen);
            assert_eq!(chunk.available(), len);
        }
    }
}
