//! Chains that wait for CPUs which need not be disturbed: lazy ones, which will drop what they know by themselves when
//! they run something else, and readers that will be done in a moment (REQ-33). Bounded, by frames and by chains: what
//! is too much is flushed by force (REQ-34).
use super::gather::{GatherParts, give_back};
use super::hardware::Shootdown;
use super::readers::Epoch;
use super::request::{SpaceId, Ticket};
use super::state::Tlb;
use crate::addr::Pfn;
use crate::cpu::{CpuSet, Pinned};
use crate::page::{FlushProof, Flushed, Unhooked};
use crate::quicklist::Policy;

/// Chains that one CPU can park.
const CHAINS: usize = 8;

/// What a gather held, unhooked, and flushed wherever it is in use.
pub(super) struct Parked {
    tables: Unhooked,
    data: Pfn,
    /// Frames in both chains.
    frames: u32,
    space: SpaceId,
    /// CPUs that had the space loaded and idle, and have not been flushed.
    lazy: CpuSet,
    /// CPUs that were reading its tables.
    readers: CpuSet,
    /// What the chains hold was unhooked before it.
    epoch: Option<Epoch>,
}

impl Parked {
    pub fn new(tables: Unhooked, data: Pfn, frames: u32, ticket: &Ticket) -> Self {
        let readers = CpuSet::default();
        Parked { tables, data, frames, space: ticket.space, lazy: ticket.waiting, readers, epoch: None }
    }
}

/// The parked chains of one CPU, oldest first.
#[derive(Default)]
pub(super) struct ParkedList {
    chains: [Option<Parked>; CHAINS],
    len: usize,
    frames: u32,
}

impl ParkedList {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frames in all chains.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Adds a chain, or hands it back if that would be more than `limit` frames or there is no place.
    pub fn push(&mut self, parked: Parked, limit: u32) -> Option<Parked> {
        if self.len == CHAINS || self.frames + parked.frames > limit {
            return Some(parked);
        }
        self.frames += parked.frames;
        self.chains[self.len] = Some(parked);
        self.len += 1;
        None
    }

    /// Takes the oldest chain for which `is_done` says so.
    pub fn take(&mut self, mut is_done: impl FnMut(&Parked) -> bool) -> Option<Parked> {
        let at = self.chains[..self.len].iter().position(|c| c.as_ref().is_some_and(&mut is_done))?;
        let taken = self.chains[at].take()?;
        self.chains[at..self.len].rotate_left(1);
        self.len -= 1;
        self.frames -= taken.frames;
        Some(taken)
    }
}

impl<S: Shootdown> Tlb<S> {
    /// Parks what `held` is if that is allowed, possible and needed; else waits for whom it waits for. What is free at once
    /// is returned.
    #[cold]
    pub(super) fn settle(&self, pin: &Pinned<'_>, mut held: Parked, may_park: bool) -> (Flushed, Pfn) {
        let epoch = self.readers.advance();
        held.epoch = Some(epoch);
        for cpu in 0..self.config().cpus {
            let cpu = crate::cpu::CpuId(cpu as u16);
            if cpu != pin.cpu() && self.readers.is_reading(cpu, held.space, Some(epoch)) {
                held.readers = held.readers.with(cpu);
            }
        }
        let waits = !held.lazy.is_empty() || !held.readers.is_empty();
        if waits
            && may_park
            && let Some(mut list) = self.parked.enter(pin)
        {
            match list.push(held, self.config().park) {
                None => {
                    self.tally(pin).parked.add(1);
                    // SAFETY: 1. there are no tables in it.
                    return (Unhooked::new().flushed(unsafe { FlushProof::claim() }), Pfn::NONE);
                }
                Some(back) => held = back,
            }
        }
        self.wait_for(pin, held)
    }

    /// Has lazy CPUs flushed or moved, and waits for readers.
    fn wait_for(&self, pin: &Pinned<'_>, held: Parked) -> (Flushed, Pfn) {
        let Parked { tables, data, space, lazy, readers, epoch, .. } = held;
        if let Some(epoch) = epoch {
            let lazy = self.not_clean(&lazy, epoch);
            if !lazy.is_empty() {
                self.tally(pin).forced.add(1);
                // Who comes here in the middle of something has been refused the flush before, or looked first.
                self.force(pin, &lazy).unwrap_or_else(|refused| panic!("parked pages are lost: {refused}"));
            }
            for cpu in readers.iter() {
                let mut turn = 0u32;
                while self.readers.is_reading(cpu, space, Some(epoch)) {
                    turn = turn.wrapping_add(1);
                    self.pause(pin, turn);
                }
            }
        }
        // SAFETY: 1. CPUs that had the space active were flushed by `Tlb::flush`; lazy ones have loaded another root since,
        // or have just dropped everything; whoever read the tables before they were unhooked has ended.
        (tables.flushed(unsafe { FlushProof::claim() }), data)
    }

    fn is_done(&self, held: &Parked) -> bool {
        held.epoch.is_none_or(|epoch| {
            self.not_clean(&held.lazy, epoch).is_empty()
                && !held.readers.iter().any(|cpu| self.readers.is_reading(cpu, held.space, Some(epoch)))
        })
    }

    /// Gives back the chains that this CPU has parked and that wait for nobody any more.
    pub fn collect<P: Policy>(&self, parts: GatherParts<'_, P, S>) {
        self.release(parts, false);
    }

    /// Gives back all chains that this CPU has parked, after interrupting those they wait for; how many frames. For
    /// lack of memory, and for a CPU that goes away.
    pub fn unpark<P: Policy>(&self, parts: GatherParts<'_, P, S>) -> u32 {
        self.release(parts, true)
    }

    fn release<P: Policy>(&self, parts: GatherParts<'_, P, S>, force: bool) -> u32 {
        let mut frames = 0;
        let force = force && self.can_flush(parts.pin);
        loop {
            // The list is not in use while pages go back: that may come here again.
            let held = match self.parked.enter(parts.pin) {
                Some(mut list) if !list.is_empty() => list.take(|p| force || self.is_done(p)),
                _ => None,
            };
            let Some(held) = held else { return frames };
            frames += held.frames;
            let (tables, data) = self.wait_for(parts.pin, held);
            give_back(parts, tables, data);
        }
    }

    /// Frames that this CPU has parked.
    pub fn parked(&self, pin: &Pinned<'_>) -> u32 {
        self.parked.enter(pin).map_or(0, |list| list.frames())
    }
}
