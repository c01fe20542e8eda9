//! Decides when more than the event is checked.

/// Where the number of an event begins in its word.
pub(super) const NUMBER: u32 = 21;
/// Numbers of events that there are; they wrap.
const EVENTS: u32 = 1 << (u32::BITS - NUMBER);

/// Every how many events of a page there is more to do than to note them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// 2^32 by how many, rounded up and cut to 32 bits: the product of this and the number of an
    /// event, cut to 32 bits, is below it just for multiples. No division on the path of a hit, and
    /// exact, as numbers have 11 bits (Lemire, Kaser, Kurz 2019).
    step: u32,
    bound: u64,
}

impl Sample {
    /// At no event.
    pub const NEVER: Sample = Sample { step: 0, bound: 0 };
    /// At every event.
    pub const ALWAYS: Sample = Sample { step: 0, bound: 1 << 32 };

    /// Each `every`-th time, or the odd number below; see
    /// [`CheckConfig::sample`](super::CheckConfig::sample).
    pub const fn new(every: u32) -> Self {
        match every {
            0 => Self::NEVER,
            1 | 2 => Self::ALWAYS,
            _ => {
                let most = EVENTS - 1;
                let every = ((if every < most { every } else { most }) - 1) | 1;
                let step = u32::MAX / every + 1;
                Sample { step, bound: step as u64 }
            }
        }
    }

    /// Returns whether it is the turn of event `number`.
    #[inline]
    pub const fn is_due(self, number: u32) -> bool {
        (number.wrapping_mul(self.step) as u64) < self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENTS, Sample};

    #[test]
    fn a_sample_takes_every_nth_event_and_both_ends_of_a_pages_way() {
        for n in [3, 4, 5, 64, 100, 255, 256, 1023, EVENTS - 1, EVENTS, u32::MAX] {
            let odd = (n.min(EVENTS - 1) - 1) | 1;
            let due = |number: &u32| Sample::new(n).is_due(*number);
            let multiples = (0..EVENTS).filter(|number| number % odd == 0);
            assert!((0..EVENTS).filter(due).eq(multiples), "each {n}th");
            assert!((0..EVENTS).filter(due).any(|number| number % 2 == 1), "each {n}th");
        }
        assert!((0..EVENTS).all(|number| Sample::new(1).is_due(number) && Sample::new(2).is_due(number)));
        assert!(!(0..EVENTS).any(|number| Sample::new(0).is_due(number)));
    }
}
