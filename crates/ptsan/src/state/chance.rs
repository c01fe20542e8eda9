//! The random choices of the adversary.
use crate::arch::Arch;

/// The number of addresses remembered.
const RECENT: usize = 32;

/// How often CPUs walk by themselves.
/// ```
/// use ptsan::{Adversary, Arch, Config, Test};
///
/// let busy = Adversary { rate: 3000, ..Adversary::new(0) }; // three walks at each hook
/// Test::with(Config { adversary: Some(busy), ..Config::new(Arch::x86_64()) }).seeds(0..5).run(|s| {
///     let root = s.table().unwrap();
///     s.memory[root as usize..][..4096].fill(0);
///     s.load(root);
///     s.leave();
///     s.free(root);
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adversary {
    /// The seed of all choices. The environment variable `PTSAN_SEED` replaces it.
    pub seed: u64,
    /// The number of actions in 1000 hooks. Above 1000, each hook gets several.
    pub rate: u16,
}

impl Adversary {
    /// Acts at every second hook.
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

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    #[inline]
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// Remembers an address that was used or mapped.
    #[inline]
    pub(crate) fn remember(&mut self, va: u64) {
        self.recent[self.seen % RECENT] = va;
        self.seen += 1;
    }

    /// Returns one of those addresses, or a neighbour of one at some level.
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
