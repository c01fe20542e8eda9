//! Numbers that are the same on all CPUs.
//!
//! # Protocol
//!
//! 1. Numbers are handed out in *generations* (not those of a space). Within one, no number is
//!    handed out twice; a space keeps its number for as long as its generation lasts, loaded or
//!    not.
//! 2. When all numbers are taken, a new generation begins: the *rollover*. A space that some CPU
//!    has loaded last keeps its number, which this CPU may be using at this instant. All others
//!    have none any more.
//! 3. Before a CPU first loads a space in a new generation, it forgets all that it knows under any
//!    number, once. So what it holds under a number was found while the number was the space's.
//! 4. A flush names the number that the space has, or had before a rollover: whatever CPUs know
//!    under it, of whichever space, they forget. A space that never had a number is known to no
//!    TLB.
//!
//! A CPU that loads a space *stores* its number, then looks at the space's generation of flushes; a
//! flush raises that, *then* looks at the number. So either the flush finds the number, or the CPU
//! finds what the flush has changed.
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::CpuId;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::tlb::id::SpaceId;
use core::sync::atomic::AtomicU32;

const BITS: usize = usize::BITS as usize;

/// The number of one space.
pub struct SpaceAsid {
    /// 0 until the space gets its first.
    number: AtomicUsize,
    /// The generation that the number is of, in two halves: not all machines have atomics of 64
    /// bits. Read and written with the lock of [`MachineWideAsids`] held.
    generation: [AtomicU32; 2],
}

impl SpaceAsid {
    pub fn none() -> Self {
        SpaceAsid { number: AtomicUsize::new(0), generation: Default::default() }
    }

    /// Returns the number that the space has, or had last; 0 if it never had one.
    #[inline(always)]
    pub fn number(&self) -> u16 {
        self.number.load(Ordering::SeqCst) as u16
    }

    fn generation(&self) -> u64 {
        let [low, high] = self.generation.each_ref().map(|half| u64::from(half.load(Ordering::Relaxed)));
        high << 32 | low
    }

    fn set(&self, number: u16, generation: u64) {
        self.number.store(usize::from(number), Ordering::SeqCst);
        self.generation[0].store(generation as u32, Ordering::Relaxed);
        self.generation[1].store((generation >> 32) as u32, Ordering::Relaxed);
    }
}

/// A number for a CPU to load.
#[derive(Clone, Copy)]
pub struct Chosen {
    pub asid: u16,
    /// The CPU forgets everything under all numbers first.
    pub forget_all: bool,
}

/// The space that a CPU has loaded last.
#[derive(Clone, Copy)]
struct Last {
    /// [`SpaceId::NONE`] if it has loaded none.
    space: SpaceId,
    asid: u16,
    /// It has not forgotten what it knew before the last rollover.
    behind: bool,
}

struct State {
    /// From 1: a space without a number is of generation 0.
    generation: u64,
    /// A bit for each number from 0, set if it is taken in this generation.
    taken: BootSlice<usize>,
    /// No number below it is free.
    next: usize,
    last: BootSlice<Last>,
}

/// The numbers of a machine, from 1 on; 0 is the kernel's.
pub struct MachineWideAsids {
    numbers: usize,
    state: SpinLock<State>,
}

impl MachineWideAsids {
    /// Makes `numbers` numbers for `cpus` CPUs, which are fewer; 0 if there are none.
    pub fn new(boot: &mut BootMemory, cpus: usize, numbers: u16) -> Result<Self, BootMemoryShort> {
        let numbers = usize::from(numbers);
        let (words, cpus) = if numbers == 0 { (0, 0) } else { (words(numbers), cpus) };
        let state = State {
            generation: 1,
            taken: boot.take(words, |_| 0)?,
            next: 1,
            last: boot.take(cpus, |_| Last { space: SpaceId::NONE, asid: 0, behind: false })?,
        };
        Ok(MachineWideAsids { numbers, state: SpinLock::new(state) })
    }

    /// Whether there are none.
    #[cfg(feature = "hosted")]
    pub fn is_empty(&self) -> bool {
        self.numbers == 0
    }

    /// Returns the boot memory that they take.
    pub const fn bytes(cpus: usize, numbers: u16) -> usize {
        BootMemory::bytes::<usize>(words(numbers as usize)) + BootMemory::bytes::<Last>(cpus)
    }

    /// Returns the number of `space` for `cpu`, which is about to load it.
    pub fn choose(&self, cpu: CpuId, space: SpaceId, own: &SpaceAsid) -> Chosen {
        if self.numbers == 0 {
            return Chosen { asid: 0, forget_all: false };
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        if own.generation() != state.generation {
            let kept = state.last.iter().find(|last| last.space == space).map(|last| last.asid);
            let asid = kept.unwrap_or_else(|| state.take(self.numbers));
            // The generation as it is now: taking a number may have begun a new one.
            own.set(asid, state.generation);
        }
        let asid = own.number();
        let last = &mut state.last[usize::from(cpu.0)];
        let forget_all = last.behind;
        *last = Last { space, asid, behind: false };
        Chosen { asid, forget_all }
    }

    /// Notes that `cpu` may not have loaded what it chose: it forgets everything under all numbers
    /// before it loads any.
    #[cold]
    pub fn fall_behind(&self, cpu: CpuId) {
        if let Some(last) = self.state.lock().last.get_mut(usize::from(cpu.0)) {
            last.behind = true;
        }
    }
}

impl State {
    /// Takes a number that is free, in a new generation if none is.
    fn take(&mut self, numbers: usize) -> u16 {
        let free = match self.free(numbers) {
            Some(free) => free,
            None => {
                self.roll_over();
                // There are more numbers than CPUs to keep one.
                self.free(numbers).unwrap_or(0)
            }
        };
        self.mark(free);
        self.next = free + 1;
        free as u16
    }

    fn free(&self, numbers: usize) -> Option<usize> {
        let mut at = self.next;
        while at <= numbers {
            let word = !self.taken[at / BITS] >> (at % BITS);
            if word == 0 {
                at = (at / BITS + 1) * BITS;
                continue;
            }
            at += word.trailing_zeros() as usize;
            return (at <= numbers).then_some(at);
        }
        None
    }

    fn mark(&mut self, number: usize) {
        self.taken[number / BITS] |= 1 << (number % BITS);
    }

    fn roll_over(&mut self) {
        self.generation += 1;
        self.next = 1;
        self.taken.fill(0);
        for cpu in 0..self.last.len() {
            self.last[cpu].behind = true;
            let kept = usize::from(self.last[cpu].asid);
            self.mark(kept);
        }
    }
}

/// Words of a bit for each number from 0 to `numbers`.
const fn words(numbers: usize) -> usize {
    (numbers + 1).div_ceil(BITS)
}
