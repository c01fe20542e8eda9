//! The CPUs that a task may run on, as `sched_setaffinity` sets them.

use crate::limits::CPUS;

/// A set of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSet(u8);

const _: () = assert!(CPUS <= u8::BITS as usize, "a set has a bit for each CPU");

impl CpuSet {
    /// All CPUs, whether or not the machine has them.
    pub const ALL: CpuSet = CpuSet(u8::MAX);

    /// Makes a set of the bits that stand for CPUs of a machine, which has `count`;
    /// [`ALL`](Self::ALL) if it has them all, and `None` if it has none of them.
    pub fn of(bits: u64, count: usize) -> Option<Self> {
        let there = u8::MAX >> (u8::BITS as usize - count.clamp(1, CPUS));
        match bits as u8 & there {
            0 => None,
            bits if bits == there => Some(Self::ALL),
            bits => Some(CpuSet(bits)),
        }
    }

    /// Returns the set as bits, of a machine that has `count` CPUs.
    pub fn bits(self, count: usize) -> u64 {
        u64::from(self.0) & ((1 << count) - 1)
    }

    /// Whether a CPU is in the set.
    #[inline]
    pub fn has(self, cpu: usize) -> bool {
        self.0 & 1 << (cpu % CPUS) != 0
    }

    /// Returns the CPUs of both sets.
    pub fn or(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_a_cpu_that_is_there_and_forgets_others() {
        assert_eq!((CpuSet::of(0, 4), CpuSet::of(0xf0, 4), CpuSet::of(1 << 40, 8)), (None, None, None));
        for (bits, count) in [(1, 1), (3, 1), (0xf, 4), (u64::MAX, 8), (u64::MAX, 3)] {
            assert_eq!(CpuSet::of(bits, count), Some(CpuSet::ALL));
        }
        let set = CpuSet::of(0b1111_0101, 4).unwrap();
        assert_eq!((set.bits(4), CpuSet::ALL.bits(3)), (0b101, 0b111));
        assert!(set.has(0) && !set.has(1) && set.has(2) && !set.has(5));
        assert_eq!(set.or(CpuSet::of(0b10, 4).unwrap()).bits(4), 0b111);
    }
}
