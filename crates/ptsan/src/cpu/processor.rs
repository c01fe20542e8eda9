//! One CPU: the roots that it has loaded and the entries that it holds.
use super::combined::Combined;
use super::context::Context;
use super::entry::Table;
use super::flush::{Flush, Target};
use super::hashed::HashedTlb;
use super::visits::{Visit, Visits};
use crate::arch::{Arch, ByGuestAddress, Perms, SecondStage, StructureScope};
use crate::hash::FastMap;
use crate::shadow::FrameRef;

/// How a CPU uses the root that it has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CpuState {
    /// Runs in the address space.
    Active,
    /// Runs kernel code with the root still loaded. Its walker may still walk.
    Lazy,
    /// Has no user root loaded.
    #[default]
    Away,
}

/// The root that a CPU has loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    pub(crate) space: u64,
    pub(crate) root: u64,
    pub(crate) frame: FrameRef,
    /// Which of the CPU's contexts is used.
    pub(crate) context: u32,
}

/// A walk that has read the entry for a table and has paused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) va: u64,
    pub(crate) level: u8,
    pub(crate) table: Table,
    /// Event of the pause.
    pub(crate) since: u64,
}

/// A root entry held in a register.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Register {
    Empty,
    Table { phys: u64, perms: Perms, frame: FrameRef },
}

pub(crate) struct Cpu {
    pub(crate) state: CpuState,
    pub(crate) loaded: Option<Loaded>,
    pub(crate) contexts: Vec<Context>,
    by_space: FastMap<u64, u32>,
    spare: Vec<u32>,
    /// Global translations. It has no paging-structure entries.
    pub(crate) globals: Context,
    /// Translations combined of both stages, if the tables are those of stage 2.
    pub(crate) combined: Combined,
    /// The most entries of each kind in a context.
    tlb: usize,
    device: bool,
    /// The TLB, if CPUs look pages up in a hash table.
    pub(crate) hashed: HashedTlb,
    pub(crate) registers: Vec<Register>,
    /// Raised whenever the registers are loaded.
    pub(crate) register_generation: u32,
    /// The last flush since the root was loaded.
    last_flush: Option<(u64, Flush)>,
    /// Whether the load of the root is complete. With ASIDs, a flush that comes as the next hook
    /// may belong to it.
    pub(crate) settled: bool,
    /// Walks in flight, of the space that is loaded.
    pub(crate) flights: Vec<Flight>,
    /// The roots below which it may have walked.
    pub(crate) visits: Visits,
    /// It came back to a space at this event, from another or from lazy mode. Its debts there by
    /// then are due when it does anything but flush.
    pub(crate) returned: Option<u64>,
    /// The space's number stood for this root, and has not been flushed since.
    pub(crate) other_root: Option<Visit>,
    /// It has loaded a root, and has not synchronized since.
    pub(crate) unsynchronized: bool,
}

impl Cpu {
    /// Makes a CPU or a device whose caches hold `tlb` entries of each kind for each space.
    pub(crate) fn new(tlb: usize, device: bool) -> Self {
        Self {
            state: CpuState::Away,
            loaded: None,
            contexts: Vec::new(),
            by_space: FastMap::default(),
            spare: Vec::new(),
            globals: Context::new(u64::MAX, tlb, device),
            combined: Combined::default(),
            tlb,
            device,
            hashed: HashedTlb::default(),
            registers: Vec::new(),
            register_generation: 0,
            last_flush: None,
            settled: false,
            flights: Vec::new(),
            visits: Visits::default(),
            returned: None,
            other_root: None,
            unsynchronized: false,
        }
    }

    /// Returns the context in which `space` runs here. Without ASIDs there is one context for all
    /// spaces, and it starts empty.
    pub(crate) fn enter(&mut self, space: u64, asids: bool) -> u32 {
        if !asids {
            match self.contexts.first_mut() {
                Some(only) => {
                    only.clear();
                    only.space = space;
                }
                None => self.contexts.push(Context::new(space, self.tlb, self.device)),
            }
            return 0;
        }
        if let Some(&known) = self.by_space.get(&space) {
            return known;
        }
        let index = match self.spare.pop() {
            Some(index) => {
                self.contexts[index as usize].space = space;
                index
            }
            None => {
                self.contexts.push(Context::new(space, self.tlb, self.device));
                (self.contexts.len() - 1) as u32
            }
        };
        self.by_space.insert(space, index);
        index
    }

    /// Returns the context that holds entries of `space`, if there is one.
    pub(crate) fn context_of(&mut self, space: u64, asids: bool) -> Option<&mut Context> {
        if asids {
            let index = *self.by_space.get(&space)?;
            return self.contexts.get_mut(index as usize);
        }
        let loaded = self.loaded.filter(|l| l.space == space)?;
        self.contexts.get_mut(loaded.context as usize)
    }

    /// Returns the contexts of all spaces and of the global translations.
    pub(crate) fn everything(&mut self) -> impl Iterator<Item = &mut Context> {
        self.contexts.iter_mut().chain([&mut self.globals])
    }

    /// Records a flush, for reports.
    pub(crate) fn note_flush(&mut self, event: u64, flush: Flush) {
        self.last_flush = Some((event, flush));
    }

    /// Returns the last flush since the root was loaded, and its event.
    pub(crate) fn last_flush(&self) -> Option<(u64, Flush)> {
        self.last_flush
    }

    /// Switches to another root.
    pub(crate) fn load(&mut self, loaded: Loaded, asids: bool) {
        if !asids {
            self.combined.clear();
        }
        self.settled = !asids;
        self.loaded = Some(loaded);
        self.state = CpuState::Active;
        self.last_flush = None;
        self.flights.clear();
    }

    /// Drops the combined translations that a flush of a second stage reaches.
    pub(crate) fn flush_combined(&mut self, flush: Flush, second: SecondStage) {
        match (flush.target, flush.addresses()) {
            (Target::Space(guest), _) => self.combined.drop_guest(guest),
            (_, None) => self.combined.clear(),
            (_, Some((guest, range))) if second.by_address == ByGuestAddress::DropsCombined => {
                self.combined.drop_addresses(guest, |held| {
                    flush.drops_level(held.level) && range.hit(held.gpa, 1 << 12)
                });
            }
            (_, Some(_)) => {}
        }
    }

    /// Ends the walks in flight whose tables the flush would drop from a paging-structure cache.
    /// Hardware without such a cache waits for them at any flush.
    pub(crate) fn end_flights(&mut self, arch: &Arch, flush: Flush) {
        let Some(loaded) = self.loaded.filter(|_| !self.flights.is_empty()) else { return };
        let (scope, spares) = (arch.structures, flush.spares_tables(arch.structures, self.device));
        if self.device && spares && scope != StructureScope::None {
            return;
        }
        let range = match (flush.target, flush.addresses()) {
            (Target::Space(space), _) if space != loaded.space => return,
            (_, None) => return self.flights.clear(),
            (_, Some((space, _))) if space.is_some_and(|space| space != loaded.space) => return,
            (_, Some((_, range))) => range,
        };
        self.flights.retain(|f| match scope {
            StructureScope::AnyInvalidation | StructureScope::None => false,
            StructureScope::WholeSpace => true,
            StructureScope::Tagged => {
                let l = &arch.levels[usize::from(f.level)];
                let low = arch.position_start(arch.position(f.level, f.va));
                let span = (1u64 << l.shift).saturating_mul(l.entries() as u64);
                spares || !range.hit(low, span)
            }
        });
    }

    /// Forgets a space for good.
    pub(crate) fn forget(&mut self, space: u64) {
        if let Some(index) = self.by_space.remove(&space) {
            self.contexts[index as usize].clear();
            self.spare.push(index);
        }
        self.visits.forget(space);
        self.combined.drop_guest(space);
    }

    /// Returns whether the CPU runs in the space, and uses entries cached there before `since`.
    pub(crate) fn uses(&self, space: u64, since: u64) -> bool {
        self.state == CpuState::Active && self.runs(space) && self.returned.is_none_or(|at| at < since)
    }

    pub(crate) fn runs(&self, space: u64) -> bool {
        self.loaded.is_some_and(|l| l.space == space)
    }
}
