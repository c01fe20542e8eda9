//! Gives each space a number that is the same on all CPUs.
//!
//! # Protocol
//!
//! 1. Numbers are handed out in *generations* (not those of a space). Within one, no number is
//!    handed out twice; a space keeps its number for as long as its generation lasts, loaded or
//!    not. A number and its generation are one value, a [`NumberTag`], of which no other space ever
//!    has the same.
//! 2. When all numbers are taken, a new generation begins: the *rollover*. A space that some CPU
//!    has loaded last keeps its number, which this CPU may be using at this instant. All others
//!    lose theirs.
//! 3. Before a CPU first loads a space in a new generation, it forgets all that it knows under any
//!    number, once. So its translations under a number were found while the number was the space's.
//! 4. A flush names the number that the space has, or had before a rollover: whatever CPUs know
//!    under it, of whichever space, they forget. A space that never had a number is known to no
//!    TLB.
//!
//! A CPU that loads a space *stores* its number, or finds it stored, then looks at the space's
//! generation of flushes; a flush raises that, *then* looks at the number. So either the flush
//! finds the number, or the CPU finds the entries that the flush is for.
//!
//! ```text
//!  generation 1   taken: 1 2 3 4 (all)    CPU 0 uses A = 2, CPU 1 uses B = 4
//!  roll_over      used[0].swap(0) ──> A keeps 2
//!                 used[1].swap(0) ──> B keeps 4, both CPUs are behind
//!  generation 2   taken: 2 4              the next space gets 1; spaces with 1 and 3 lost theirs
//! ```
//!
//! # Why
//!
//! A broadcast names one number to all CPUs, so numbers of each CPU's own would not do. A rollover
//! must not stop CPUs or change the number that one uses at this instant: that is why a space keeps
//! its number if some CPU has it loaded. The flush that a rollover needs is left to each CPU's next
//! load, because a broadcast of everything would also empty the TLBs of CPUs that are busy.
//!
//! # Without the lock
//!
//! A CPU that loads a space which has a number of the current generation takes no lock. Each CPU
//! has a word for the tag that it uses. The CPU exchanges it for the new one, if it is not 0; a
//! rollover takes the words of all CPUs and leaves 0. So a CPU that has found the old generation
//! exchanges its word before the rollover takes it, and the number is kept; or it finds 0, and
//! waits for the lock. Linux does the same for AArch64. It needs a tag in one atomic word:
//! elsewhere every load takes the lock.
use crate::bootmem::{BootArray, BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::CpuId;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicUsize, Ordering};

const BITS: usize = usize::BITS as usize;

/// Words of a tag.
const WORDS: usize = 64 / BITS;

/// Bits of a tag that are the number; those above are the generation, from 1.
const NUMBER_BITS: u32 = 16;

/// A number in the low 16 bits, with its generation above; 0 for none. Where it takes more than one
/// word, it is read and written with the lock of [`MachineWideAsids`] held, but for the number
/// alone, which lies in one.
struct NumberTag([AtomicUsize; WORDS]);

impl NumberTag {
    fn new(tag: u64) -> Self {
        NumberTag(core::array::from_fn(|word| AtomicUsize::new(word_of(tag, word))))
    }

    /// The number, whatever is held.
    #[inline]
    fn number(&self) -> u16 {
        self.0[0].load(Ordering::SeqCst) as u16
    }

    #[inline]
    fn load(&self) -> u64 {
        (0..WORDS)
            .fold(0, |tag, word| tag | (self.0[word].load(Ordering::SeqCst) as u64) << (word * BITS % 64))
    }

    fn store(&self, tag: u64) {
        self.0.iter().enumerate().for_each(|(word, at)| at.store(word_of(tag, word), Ordering::SeqCst));
    }

    /// Puts `tag` there; returns the tag before.
    fn swap(&self, tag: u64) -> u64 {
        (0..WORDS).fold(0, |old, word| {
            old | (self.0[word].swap(word_of(tag, word), Ordering::SeqCst) as u64) << (word * BITS % 64)
        })
    }
}

const fn word_of(tag: u64, word: usize) -> usize {
    (tag >> (word * BITS % 64)) as usize
}

const fn number_of(tag: u64) -> u16 {
    tag as u16
}

/// The number of one space.
pub struct SpaceAsid(NumberTag);

impl SpaceAsid {
    pub fn none() -> Self {
        SpaceAsid(NumberTag::new(0))
    }

    /// Returns the number that the space has, or had last; 0 if it never had one.
    #[inline]
    pub fn number(&self) -> u16 {
        self.0.number()
    }
}

/// A number for a CPU to load.
#[derive(Clone, Copy)]
pub struct Chosen {
    pub asid: u16,
    /// The CPU forgets everything under all numbers first.
    pub forget_all: bool,
}

/// A tag on lines of its own: CPUs write theirs at each load.
#[repr(align(128))]
struct Apart(NumberTag);

/// The last number that a CPU used, as a rollover found it.
#[derive(Clone, Copy)]
struct Kept {
    /// The tag; of the current generation, if its space has been loaded in it.
    tag: u64,
    /// The CPU still holds translations from before the last rollover.
    behind: bool,
}

struct NumberState {
    /// A bit for each number from 0, set if it is taken in this generation.
    taken: BootSlice<usize>,
    /// No number below it is free.
    next: usize,
    kept: BootSlice<Kept>,
}

/// The numbers of a machine, from 1 on; 0 is the kernel's.
pub struct MachineWideAsids {
    numbers: usize,
    /// The current generation, with the number 0. Written with the lock held.
    generation: NumberTag,
    /// The tag that each CPU uses, or was about to use last; 0 if it is among those kept.
    used: BootArray<Apart>,
    state: SpinLock<NumberState>,
}

impl MachineWideAsids {
    /// Creates `numbers` ASIDs for `cpus` CPUs. `numbers` must exceed `cpus`, or be 0 to disable
    /// ASIDs.
    pub fn new(boot: &mut BootMemory, cpus: usize, numbers: u16) -> Result<Self, BootMemoryShort> {
        let numbers = usize::from(numbers);
        let (words, cpus) = if numbers == 0 { (0, 0) } else { (words(numbers), cpus) };
        let state = NumberState {
            taken: boot.take(words, |_| 0)?,
            next: 1,
            kept: boot.take(cpus, |_| Kept { tag: 0, behind: false })?,
        };
        Ok(MachineWideAsids {
            numbers,
            generation: NumberTag::new(1 << NUMBER_BITS),
            used: boot.take_each(cpus, |_| Apart(NumberTag::new(0)))?,
            state: SpinLock::new(state),
        })
    }

    /// Returns whether ASIDs are disabled.
    pub fn is_empty(&self) -> bool {
        self.numbers == 0
    }

    /// Returns the boot memory that they take.
    pub const fn bytes(cpus: usize, numbers: u16) -> usize {
        let cpus = if numbers == 0 { 0 } else { cpus };
        BootMemory::bytes::<usize>(words(numbers as usize))
            + BootMemory::bytes::<Kept>(cpus)
            + BootMemory::bytes_each::<Apart>(cpus)
    }

    /// Returns the number of the space whose number is `own` for `cpu`, which is about to load it.
    #[inline]
    pub fn choose(&self, cpu: CpuId, own: &SpaceAsid) -> Chosen {
        if self.numbers == 0 {
            return Chosen { asid: 0, forget_all: false };
        }
        let used = &self.used.of(usize::from(cpu.0)).0;
        if WORDS == 1 {
            let (was, tag) = (used.load(), own.0.load());
            if was != 0
                && tag >> NUMBER_BITS == self.generation.load() >> NUMBER_BITS
                && self.exchange(used, was, tag)
            {
                return Chosen { asid: number_of(tag), forget_all: false };
            }
        }
        self.choose_anew(cpu, own)
    }

    /// Notes that a CPU uses `tag` and no longer `was`, unless a rollover has come in between.
    #[inline]
    fn exchange(&self, used: &NumberTag, was: u64, tag: u64) -> bool {
        used.0[0].compare_exchange(was as usize, tag as usize, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// As [`choose`](Self::choose), for a space without a number of the current generation, or a
    /// CPU that has not loaded one in it.
    #[cold]
    #[inline(never)]
    fn choose_anew(&self, cpu: CpuId, own: &SpaceAsid) -> Chosen {
        let mut state = self.state.lock();
        let mut tag = own.0.load();
        if tag >> NUMBER_BITS != self.generation.load() >> NUMBER_BITS {
            tag = self.renew(&mut state, tag);
            own.0.store(tag);
        }
        let cpu = usize::from(cpu.0);
        let kept = state.kept.get_mut(cpu);
        let forget_all = kept.is_none_or(|kept| core::mem::replace(&mut kept.behind, false));
        self.used.of(cpu).0.store(tag);
        Chosen { asid: number_of(tag), forget_all }
    }

    /// Gives the space whose tag is `old` one of the current generation.
    fn renew(&self, state: &mut NumberState, old: u64) -> u64 {
        let mut keeps = false;
        let now = self.generation.load() | u64::from(number_of(old));
        for kept in state.kept.iter_mut().filter(|kept| old != 0 && kept.tag == old) {
            kept.tag = now;
            keeps = true;
        }
        if keeps {
            return now;
        }
        let number = match state.free(self.numbers) {
            Some(free) => free,
            None => {
                self.roll_over(state);
                // There are more numbers than CPUs to keep one.
                state.free(self.numbers).unwrap_or(0)
            }
        };
        state.mark(number);
        state.next = number + 1;
        // The generation as it is now: it may be a new one.
        self.generation.load() | number as u64
    }

    fn roll_over(&self, state: &mut NumberState) {
        self.generation.store(self.generation.load() + (1 << NUMBER_BITS));
        state.next = 1;
        state.taken.fill(0);
        state.mark(0);
        for cpu in 0..state.kept.len() {
            let kept = usize::from(number_of(self.keep(state, cpu)));
            state.mark(kept);
        }
    }

    /// Takes the tag that `cpu` uses away, so that its next load takes the lock, and keeps it; the
    /// tag that is kept.
    fn keep(&self, state: &mut NumberState, cpu: usize) -> u64 {
        let used = self.used.of(cpu).0.swap(0);
        let Some(kept) = state.kept.get_mut(cpu) else { return 0 };
        if used != 0 {
            kept.tag = used;
        }
        kept.behind = true;
        kept.tag
    }

    /// Records that `cpu` may not have loaded its choice: it forgets everything under all numbers
    /// before it loads any.
    #[cold]
    pub fn fall_behind(&self, cpu: CpuId) {
        let mut state = self.state.lock();
        if usize::from(cpu.0) < state.kept.len() {
            self.keep(&mut state, cpu.0.into());
        }
    }
}

impl NumberState {
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
        let word = self.taken.get_mut(number / BITS);
        debug_assert!(word.is_some(), "there is no number {number}");
        if let Some(word) = word {
            *word |= 1 << (number % BITS);
        }
    }
}

/// Words of a bit for each number from 0 to `numbers`.
const fn words(numbers: usize) -> usize {
    (numbers + 1).div_ceil(BITS)
}
