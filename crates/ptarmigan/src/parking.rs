//! Parks chains: the pages of a gather, unlinked and flushed on every CPU that uses the space,
//! until lazy CPUs and readers have let go of them, and CPUs that the flush was left to. Frames and
//! chains are bounded (REQ-34). Only `gather` looks into them: its `settle` has the protocol.
//!
//! A CPU has few chains. A gather with little joins the last chain if that waits for the same space
//! and no reader: both then wait for the CPUs of both, and for the later epoch. A chain takes no
//! more than its part of the bound in this way, so that it is not put off for ever.
use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{CpuSet, MachineId, PerCpu, Pinned};
use crate::frames::{FrameMeta, Frames};
use crate::page::Unhooked;
use crate::tlb::{Epoch, SpaceId, Ticket};

/// Chains that one CPU can park.
const CHAINS: usize = 8;

/// Frames whose reference waits for the flush and that another gather has on its chain.
const ASIDE: usize = 3;

/// Data frames that wait for the flush.
pub(crate) struct DataChains {
    /// Those whose last reference is gone, chained through their records' links.
    pub unused: Pfn,
    /// Those that others refer to too, chained through their records' maps, which a data frame has
    /// no other use for. The claim in the record says that the chain of one gather has the frame.
    pub shared: Pfn,
    /// Large ones that others refer to too, chained as `frames/data/large.rs` says.
    pub large: Pfn,
    /// Those that another gather has claimed.
    aside: [Pfn; ASIDE],
    /// As wide as the others: a struct with padding is copied in pieces that overlap, and stalls.
    aside_len: u32,
    pub len: u32,
}

impl DataChains {
    pub const fn new() -> Self {
        DataChains {
            unused: Pfn::NONE,
            shared: Pfn::NONE,
            large: Pfn::NONE,
            aside: [Pfn::NONE; ASIDE],
            aside_len: 0,
            len: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a frame that another gather has claimed; false if there is no room.
    pub fn put_aside(&mut self, pfn: Pfn) -> bool {
        let Some(place) = self.aside.get_mut(self.aside_len as usize) else { return false };
        *place = pfn;
        self.aside_len += 1;
        self.len += 1;
        true
    }

    /// Adds the frames of chains that have neither large frames nor any that were put aside.
    fn append(&mut self, frames: &Frames, other: DataChains) {
        debug_assert!(other.large == Pfn::NONE && other.aside_len == 0, "these do not join");
        if let Some(last) = last_of(frames, other.unused, FrameMeta::link) {
            last.set_link(self.unused);
            self.unused = other.unused;
        }
        if let Some(last) = last_of(frames, other.shared, FrameMeta::next) {
            last.set_next(self.shared);
            self.shared = other.shared;
        }
        self.len += other.len;
    }

    /// The frames that another gather has claimed.
    pub fn aside(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.aside.iter().copied().take(self.aside_len as usize)
    }
}

/// Returns the record of the last frame of a chain; `None` if that is empty.
fn last_of(frames: &Frames, first: Pfn, next: impl Fn(&FrameMeta) -> Pfn) -> Option<&FrameMeta> {
    let (mut last, mut at) = (None, first);
    while at != Pfn::NONE {
        let record = frames.meta(at);
        last = Some(record);
        at = next(record);
    }
    last
}

/// The pages of a gather, and the CPUs that it waits for.
pub(crate) struct Waiting {
    pub tables: Unhooked,
    pub data: DataChains,
    /// Frames in all chains.
    pub frames: u32,
    pub space: SpaceId,
    /// CPUs that had the space loaded, and have not been flushed: lazy ones, and those that the
    /// flush was left to.
    pub lazy: CpuSet,
    /// CPUs that were reading its tables.
    pub readers: CpuSet,
    /// The pages of the chains were unlinked before it.
    pub epoch: Option<Epoch>,
}

impl Waiting {
    pub fn new(tables: Unhooked, data: DataChains, ticket: &Ticket) -> Self {
        let frames = tables.len() + data.len;
        let readers = CpuSet::default();
        Waiting { tables, data, frames, space: ticket.space, lazy: ticket.waiting, readers, epoch: None }
    }

    /// Returns whether the pages of `more` may join these, which may be `most` frames then.
    fn takes(&self, more: &Waiting, most: u32) -> bool {
        self.space == more.space
            && self.readers.is_empty()
            && more.readers.is_empty()
            && self.frames.saturating_add(more.frames) <= most
            && more.data.large == Pfn::NONE
            && more.data.aside_len == 0
            && !more.tables.has_root()
    }

    /// Adds the pages of `more`, which it [takes](Self::takes); they are of `frames`.
    fn join(&mut self, frames: &Frames, more: Waiting) {
        let Waiting { tables, data, frames: count, lazy, epoch, .. } = more;
        // SAFETY: 1. both are of the machine whose lists these are. 2. `more` has no root.
        unsafe { self.tables.append(frames, tables) };
        self.data.append(frames, data);
        self.frames += count;
        self.lazy = self.lazy.or(&lazy);
        self.epoch = match (self.epoch, epoch) {
            (Some(a), Some(b)) => Some(a.or_later(b)),
            (a, b) => a.or(b),
        };
    }
}

/// The parked chains of one CPU, oldest first.
#[derive(Default)]
struct ParkedList {
    chains: [Option<Waiting>; CHAINS],
    len: usize,
    frames: u32,
}

impl ParkedList {
    /// Adds a chain, or hands it back if that would be more than `limit` frames or there is no
    /// place.
    fn push(&mut self, frames: &Frames, waiting: Waiting, limit: u32) -> Option<Waiting> {
        if self.frames.saturating_add(waiting.frames) > limit {
            return Some(waiting);
        }
        let last = self.len.checked_sub(1).and_then(|last| self.chains.get_mut(last)?.as_mut());
        if let Some(last) = last
            && last.takes(&waiting, limit / CHAINS as u32)
        {
            self.frames += waiting.frames;
            last.join(frames, waiting);
            return None;
        }
        let Some(place) = self.chains.get_mut(self.len) else { return Some(waiting) };
        self.frames += waiting.frames;
        *place = Some(waiting);
        self.len += 1;
        None
    }

    /// Takes the oldest chain for which `is_done` says so.
    fn take(&mut self, mut is_done: impl FnMut(&Waiting) -> bool) -> Option<Waiting> {
        let mut used = self.chains.iter_mut().take(self.len);
        let mut place = used.find(|chain| chain.as_ref().is_some_and(&mut is_done))?;
        let taken = place.take()?;
        for next in used {
            *place = next.take();
            place = next;
        }
        self.len -= 1;
        self.frames -= taken.frames;
        Some(taken)
    }
}

/// Chains that the CPUs of a machine have parked.
pub struct Parking {
    lists: PerCpu<ParkedList>,
    limit: u32,
}

impl Parking {
    /// For `cpus` CPUs, each of which may have `limit` frames parked; 0: lazy CPUs are interrupted
    /// at once.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the lists do not fit.
    pub fn new(
        boot: &mut BootMemory,
        machine: MachineId,
        cpus: usize,
        limit: u32,
    ) -> Result<Self, BootMemoryShort> {
        Ok(Parking { lists: PerCpu::new(boot, machine, cpus, |_| ParkedList::default())?, limit })
    }

    /// Boot memory for `cpus` CPUs, in bytes.
    pub const fn bytes(cpus: usize) -> usize {
        PerCpu::<ParkedList>::bytes(cpus)
    }

    /// Whether anything may be parked.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Returns the frames that this CPU has parked.
    pub fn parked(&self, pin: &Pinned<'_>) -> u32 {
        self.lists.enter(pin).map_or(0, |list| list.frames)
    }

    /// Returns whether this CPU's list is empty, or an interrupt found it in use.
    #[inline]
    pub(crate) fn is_empty(&self, pin: &Pinned<'_>) -> bool {
        self.lists.enter(pin).is_none_or(|list| list.len == 0)
    }

    /// Parks a chain, or hands it back if that would exceed the bound or an interrupt found the
    /// list in use.
    pub(crate) fn push(&self, pin: &Pinned<'_>, frames: &Frames, waiting: Waiting) -> Option<Waiting> {
        match self.lists.enter(pin) {
            Some(mut list) => list.push(frames, waiting, self.limit),
            None => Some(waiting),
        }
    }

    /// Takes the oldest chain of this CPU for which `is_done` says so.
    pub(crate) fn take(&self, pin: &Pinned<'_>, is_done: impl FnMut(&Waiting) -> bool) -> Option<Waiting> {
        // The list is not in use while pages go back: that may come here again.
        self.lists.enter(pin)?.take(is_done)
    }
}
