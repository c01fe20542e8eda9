//! Numbers that are taken and free: the lowest free one comes next.

const BITS: usize = u64::BITS as usize;

/// A set of numbers below `64 * WORDS`.
pub struct Slots<const WORDS: usize> {
    taken: [u64; WORDS],
    /// All that are taken lie below.
    end: usize,
}

impl<const WORDS: usize> Slots<WORDS> {
    /// Makes a set of which all numbers are free.
    pub const fn new() -> Self {
        Slots { taken: [0; WORDS], end: 0 }
    }

    /// Returns the first number above all that are taken.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Whether all numbers are taken.
    pub fn is_full(&self) -> bool {
        self.taken.iter().all(|bits| *bits == u64::MAX)
    }

    /// Takes the lowest free number.
    pub fn claim(&mut self) -> Option<usize> {
        let (word, bits) = self.taken.iter_mut().enumerate().find(|(_, bits)| **bits != u64::MAX)?;
        let bit = bits.trailing_ones() as usize;
        *bits |= 1 << bit;
        let number = word * BITS + bit;
        self.end = self.end.max(number + 1);
        Some(number)
    }

    /// Gives a number back.
    pub fn release(&mut self, number: usize) {
        let Some(bits) = self.taken.get_mut(number / BITS) else { return };
        *bits &= !(1 << (number % BITS));
        if number + 1 == self.end {
            let below = self.taken.get(..=number / BITS).unwrap_or_default();
            let last = below.iter().enumerate().rfind(|(_, bits)| **bits != 0);
            self.end = last.map_or(0, |(word, bits)| (word + 1) * BITS - bits.leading_zeros() as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_taken_next() {
        let mut slots = Slots::<2>::new();
        for number in 0..128 {
            assert_eq!((slots.claim(), slots.end()), (Some(number), number + 1));
        }
        assert_eq!((slots.claim(), slots.is_full()), (None, true));
        for number in [100, 3, 70] {
            slots.release(number);
        }
        assert_eq!(
            [slots.claim(), slots.claim(), slots.claim(), slots.claim()],
            [Some(3), Some(70), Some(100), None]
        );
    }

    #[test]
    fn the_end_goes_down_with_the_last_ones() {
        let mut slots = Slots::<2>::new();
        (0..66).for_each(|_| assert!(slots.claim().is_some()));
        assert!(!slots.is_full());
        for (number, end) in [(10, 66), (64, 66), (65, 64), (63, 63), (1000, 63)] {
            slots.release(number);
            assert_eq!(slots.end(), end, "{number}");
        }
        (0..66).for_each(|number| slots.release(number));
        assert_eq!((slots.end(), slots.claim(), slots.end()), (0, Some(0), 1));
    }
}
