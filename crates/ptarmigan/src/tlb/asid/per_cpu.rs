//! Gives a space a number on each CPU, which that CPU hands out by itself.
//!
//! Each CPU has numbers from 1 to the hardware's limit (or fewer: an unused number need not be
//! flushed). A space may get any of a few of them, chosen by its name, so that finding it again
//! takes a few comparisons however wide the numbers are. Taking a number from another space needs
//! no flush of its own: the load that follows is told not to keep anything.
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::CpuId;
use crate::tlb::id::{Generation, SpaceId};
use core::cell::Cell;

/// Numbers that a space may get on one CPU.
const WAYS: usize = 4;

#[derive(Clone, Copy)]
struct Held {
    space: SpaceId,
    /// Everything older than this generation has been forgotten.
    generation: Generation,
    valid: bool,
}

const NOTHING: Held = Held { space: SpaceId::NONE, generation: Generation(0), valid: false };

/// The numbers of all CPUs. Each CPU's are used by that CPU alone, as the caller sees to.
pub struct PerCpuAsids {
    held: BootSlice<Cell<Held>>,
    /// Numbers of each CPU.
    numbers: usize,
    /// Places from one CPU's to the next one's.
    stride: usize,
}

// SAFETY: the cells of a CPU are reached through methods that take its number and demand to be
// called on that CPU only, one at a time.
unsafe impl Sync for PerCpuAsids {}

/// Places that each CPU has for so many numbers: whole cache lines.
const fn stride(numbers: u16) -> usize {
    (numbers as usize).next_multiple_of(16)
}

impl PerCpuAsids {
    /// `numbers` for each of `cpus` CPUs; 0 if the TLB has no tags.
    pub fn new(boot: &mut BootMemory, cpus: usize, numbers: u16) -> Result<Self, BootMemoryShort> {
        let stride = stride(numbers);
        let held = boot.take(cpus * stride, |_| Cell::new(NOTHING))?;
        Ok(PerCpuAsids { held, numbers: usize::from(numbers), stride })
    }

    /// Boot memory for them.
    pub const fn bytes(cpus: usize, numbers: u16) -> usize {
        BootMemory::bytes::<Cell<Held>>(cpus * stride(numbers))
    }

    fn of(&self, cpu: CpuId) -> &[Cell<Held>] {
        let first = cpu.0 as usize * self.stride;
        &self.held[first..first + self.numbers]
    }

    /// The places a space may have.
    #[inline]
    fn ways(n: usize, space: SpaceId) -> impl Iterator<Item = usize> {
        let first = space.number() as usize % n.max(1);
        (0..WAYS.min(n)).map(move |way| (first + way) % n)
    }

    /// The number of `space` on `cpu`, and whether the TLB's translations under it are of this
    /// space at `now`. From here on the number is the space's, at that generation.
    ///
    /// # Safety
    ///
    /// 1. The caller must run on `cpu`, and no other code on that CPU may be using this value.
    pub unsafe fn choose(&self, cpu: CpuId, space: SpaceId, now: Generation) -> (u16, bool) {
        let held = self.of(cpu);
        let n = held.len();
        if n == 0 {
            return (0, false);
        }
        let new = Held { space, generation: now, valid: true };
        let mut free = None;
        for at in Self::ways(n, space) {
            let there = held[at].get();
            if there.valid && there.space == space {
                held[at].set(new);
                return (at as u16 + 1, there.generation == now);
            }
            if !there.valid {
                free = free.or(Some(at));
            }
        }
        // The name says which of the others gives way, too: neighbours rarely agree.
        let taken = || (space.number() as usize % n + space.number() as usize / n % WAYS.min(n)) % n;
        let at = free.unwrap_or_else(taken);
        held[at].set(new);
        (at as u16 + 1, false)
    }

    /// The space under `asid` on `cpu` has been brought to `generation`.
    ///
    /// # Safety
    ///
    /// As for [`choose`](Self::choose).
    pub unsafe fn reached(&self, cpu: CpuId, asid: u16, generation: Generation) {
        if let Some(held) = usize::from(asid).checked_sub(1).and_then(|at| self.of(cpu).get(at)) {
            held.set(Held { generation, ..held.get() });
        }
    }

    /// `cpu` gives up the number of `space`, if it has one.
    ///
    /// # Safety
    ///
    /// As for [`choose`](Self::choose).
    pub unsafe fn forget(&self, cpu: CpuId, space: SpaceId) {
        let held = self.of(cpu);
        for at in Self::ways(held.len(), space) {
            if held[at].get().space == space {
                held[at].set(NOTHING);
            }
        }
    }
}
