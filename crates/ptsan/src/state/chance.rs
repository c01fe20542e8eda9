//! What the adversary draws its choices from.
use crate::arch::Arch;

/// How many addresses are remembered.
const RECENT: usize = 32;

/// When CPUs walk of their own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adversary {
    /// What all choices follow from. The environment variable `PTSAN_SEED` replaces it.
    pub seed: u64,
    /// At how many of 1000 hooks something is done, and how many things at each thousand beyond that.
    pub rate: u16,
}

impl Adversary {
    /// Something at every second hook.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, rate: 500 }
    }
}

/// The generator (SplitMix64), and the addresses that were walked last.
pub(crate) struct Chance {
    state: u64,
    /// As configured.
    pub(crate) rate: u16,
    recent: [u64; RECENT],
    seen: usize,
}

impl Chance {
    pub(crate) fn new(adversary: Adversary) -> Self {
        Self { state: adversary.seed, rate: adversary.rate, recent: [0; RECENT], seen: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// An address that somebody used or mapped.
    pub(crate) fn remember(&mut self, va: u64) {
        self.recent[self.seen % RECENT] = va;
        self.seen += 1;
    }

    /// One of those, or a neighbour at some level.
    pub(crate) fn near(&mut self, arch: &Arch) -> Option<u64> {
        let known = self.seen.min(RECENT) as u64;
        let which = self.below(known) as usize;
        let va = *self.recent[..known as usize].get(which)?;
        if self.below(2) == 0 {
            return Some(va);
        }
        let level = self.below(arch.levels.len() as u64) as usize;
        let steps = (self.below(8) + 1) << arch.levels[level].shift;
        Some(arch.extend(if self.below(2) == 0 { va.wrapping_add(steps) } else { va.wrapping_sub(steps) }))
    }
}
