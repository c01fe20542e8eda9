//! The slots of one colour.
//!
//! ```text
//!  pop      at hand on this CPU ─────────────────────────> slot     no lock, no atomic operation
//!  take     chunk of this CPU ── empty: the next chunk ──> slot, and a batch to have at hand
//!  sweep    a chunk ── flush ──> free                               Begun counts it while it runs
//! ```
//!
//! # Why
//!
//! A CPU that finds no slot must tell "all slots are in use" from "another CPU is about to free
//! some": in the first case its caller sleeps or fails, in the second it waits a moment. So each
//! sweep is counted while it runs, for the colour and for its CPU. The count of the CPU is there
//! because a handler that interrupts a sweep would otherwise wait for the sweep that it interrupts.
use super::chunk::{Batch, Chunk, MOST};
use super::config::PoolConfig;
use super::queue::SlotQueue;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{MachineId, PerCpu, Pinned};
use crate::sync::atomic::{AtomicU32, Ordering};

/// Slots that a CPU has at hand.
#[derive(Default)]
pub(super) struct Hand {
    chunk: usize,
    batch: Batch,
}

/// Sweeps that a CPU is in the middle of.
#[derive(Default)]
pub(super) struct Sweeping(AtomicU32);

/// Slots of one colour: chunks, of which each CPU has some at hand, and the queue of those that
/// wait.
pub(super) struct Color {
    chunks: BootSlice<Chunk>,
    chunk_len: usize,
    hands: PerCpu<Hand, Sweeping>,
    pub queue: SlotQueue,
    /// Sweeps that have not ended.
    sweeps: AtomicU32,
    cpus: usize,
}

impl Color {
    /// Slots of a chunk if a colour has `slots`: each CPU has one that is its own, unless they
    /// would be small.
    fn chunk_len(config: &PoolConfig, slots: usize) -> usize {
        let most = (MOST / config.colors.max(1)).max(1);
        let share = slots.div_ceil(config.cpus.max(1)).next_multiple_of(64);
        share.min(most).min(slots).max(1)
    }

    pub fn new(
        boot: &mut BootMemory,
        machine: MachineId,
        config: &PoolConfig,
        slots: usize,
    ) -> Result<Self, BootMemoryShort> {
        let chunk_len = Self::chunk_len(config, slots);
        let len = |i: usize| (slots - i * chunk_len).min(chunk_len);
        Ok(Color {
            chunks: boot.take(slots.div_ceil(chunk_len), |i| Chunk::new(len(i)))?,
            chunk_len,
            hands: PerCpu::new(boot, machine, config.cpus, |_| Hand::default())?,
            queue: SlotQueue::default(),
            sweeps: AtomicU32::new(0),
            cpus: config.cpus,
        })
    }

    pub fn bytes(config: &PoolConfig, slots: usize) -> usize {
        BootMemory::bytes::<Chunk>(slots.div_ceil(Self::chunk_len(config, slots)))
            + PerCpu::<Hand, Sweeping>::bytes(config.cpus)
    }

    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// A chunk, with the index of its first slot.
    pub fn chunk(&self, index: usize) -> (&Chunk, usize) {
        let index = index % self.chunks.len();
        (&self.chunks[index], index * self.chunk_len)
    }

    /// The chunk at which the CPU of `pin` begins.
    pub fn home(&self, pin: &Pinned<'_>) -> usize {
        usize::from(pin.cpu().0) * self.chunks.len() / self.cpus
    }

    /// Free slots of the shared set, as of late.
    pub fn available(&self) -> usize {
        self.chunks.iter().map(Chunk::available).sum()
    }

    /// Takes a slot that the CPU has at hand.
    #[inline]
    pub fn pop(&self, pin: &Pinned<'_>) -> Option<usize> {
        let mut hand = self.hands.enter(pin)?;
        let slot = hand.batch.pop()?;
        Some(hand.chunk * self.chunk_len + slot)
    }

    /// Takes a slot of the shared set, and up to `most` - 1 others to have at hand.
    pub fn take(&self, pin: &Pinned<'_>, most: u32) -> Option<usize> {
        let home = self.home(pin);
        // A chunk that seems empty may not be, to a caller that has to know.
        let chunk = (home..home + self.chunks()).map(|i| i % self.chunks());
        let (chunk, mut batch) = chunk.filter_map(|i| Some((i, self.chunks[i].take(most)?))).next()?;
        let slot = batch.pop()?;
        if batch.bits != 0 {
            match self.hands.enter(pin) {
                Some(mut hand) if hand.batch.bits == 0 => *hand = Hand { chunk, batch },
                // An interrupt came in between: it, or the code that it interrupted, has some.
                _ => self.chunks[chunk].give(batch),
            }
        }
        Some(chunk * self.chunk_len + slot)
    }

    /// Gives back what the CPU has at hand; whether it had anything.
    pub fn give_back(&self, pin: &Pinned<'_>) -> bool {
        let Some(mut hand) = self.hands.enter(pin) else { return false };
        let Hand { chunk, batch } = core::mem::take(&mut *hand);
        drop(hand);
        if batch.bits != 0 {
            self.chunks[chunk].give(batch);
        }
        batch.bits != 0
    }

    /// Gives one slot back as it was taken.
    pub fn give(&self, slot: usize) {
        let (chunk, index) = (slot / self.chunk_len, slot % self.chunk_len);
        self.chunks[chunk].give(Batch { first: index & !63, bits: 1 << (index % 64) });
    }

    /// Begins a sweep.
    pub fn sweep<'a>(&'a self, pin: &Pinned<'_>) -> Option<Begun<'a>> {
        let own = &self.hands.own_shown(pin)?.0;
        own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.sweeps.fetch_add(1, Ordering::SeqCst);
        Some(Begun { color: self, own })
    }

    /// Returns whether another CPU is sweeping, and not this one: what it sweeps will be free soon.
    pub fn others_sweep(&self, pin: &Pinned<'_>) -> bool {
        let own = self.hands.own_shown(pin).map_or(0, |own| own.0.load(Ordering::Relaxed));
        own == 0 && self.sweeps.load(Ordering::SeqCst) != 0
    }
}

/// A sweep that has begun; ends when dropped.
pub(super) struct Begun<'a> {
    color: &'a Color,
    own: &'a AtomicU32,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.own.store(self.own.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        self.color.sweeps.fetch_sub(1, Ordering::SeqCst);
    }
}
