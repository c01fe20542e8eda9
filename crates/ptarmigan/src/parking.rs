//! Parks chains: the pages of a gather, unlinked and flushed on every CPU that uses the space,
//! until lazy CPUs and readers have let go of them. Frames and chains are bounded (REQ-34). Only
//! `gather` looks into them.
use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{CpuSet, MachineId, PerCpu, Pinned};
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

    /// The frames that another gather has claimed.
    pub fn aside(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.aside.iter().copied().take(self.aside_len as usize)
    }
}

/// The pages of a gather, and the CPUs that it waits for.
pub(crate) struct Waiting {
    pub tables: Unhooked,
    pub data: DataChains,
    /// Frames in all chains.
    pub frames: u32,
    pub space: SpaceId,
    /// CPUs that had the space loaded and idle, and have not been flushed.
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
}

/// The parked chains of one CPU, oldest first.
#[derive(Default)]
struct List {
    chains: [Option<Waiting>; CHAINS],
    len: usize,
    frames: u32,
}

impl List {
    /// Adds a chain, or hands it back if that would be more than `limit` frames or there is no
    /// place.
    fn push(&mut self, waiting: Waiting, limit: u32) -> Option<Waiting> {
        if self.frames.saturating_add(waiting.frames) > limit {
            return Some(waiting);
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
    lists: PerCpu<List>,
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
        Ok(Parking { lists: PerCpu::new(boot, machine, cpus, |_| List::default())?, limit })
    }

    /// Boot memory for `cpus` CPUs, in bytes.
    pub const fn bytes(cpus: usize) -> usize {
        PerCpu::<List>::bytes(cpus)
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
    pub(crate) fn push(&self, pin: &Pinned<'_>, waiting: Waiting) -> Option<Waiting> {
        match self.lists.enter(pin) {
            Some(mut list) => list.push(waiting, self.limit),
            None => Some(waiting),
        }
    }

    /// Takes the oldest chain of this CPU for which `is_done` says so.
    pub(crate) fn take(&self, pin: &Pinned<'_>, is_done: impl FnMut(&Waiting) -> bool) -> Option<Waiting> {
        // The list is not in use while pages go back: that may come here again.
        self.lists.enter(pin)?.take(is_done)
    }
}
