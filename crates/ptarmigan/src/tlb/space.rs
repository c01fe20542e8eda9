//! Which CPUs may know translations of which space, and how they are made to forget.
use crate::addr::PhysAddr;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{Counter, CpuId, CpuMask, CpuSet, PerCpu, Pinned};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Names an address space. Never used twice while a TLB may know the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpaceId(pub u32);

/// Counts a space's flushes; a CPU whose copy is behind must flush before it uses the space again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub usize);

/// What a space's TLB state is: its generation and the CPUs that have it loaded.
pub struct SpaceTlb {
    id: SpaceId,
    generation: AtomicUsize,
    /// Some CPU has loaded it at some time: before that the masks need not be looked at.
    loaded: AtomicBool,
    active: CpuMask,
    lazy: CpuMask,
}

/// What the pages of one gather wait for: that every CPU in it has reached the generation.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The space.
    pub space: SpaceId,
    /// The generation that the flush raised the space to.
    pub generation: Generation,
    /// CPUs that had the space loaded and active.
    pub active: CpuSet,
    /// CPUs that kept it loaded while running something else. They must be flushed, or moved to a safe root, when
    /// tables were unhooked; otherwise they may catch up when they use the space again.
    pub lazy: CpuSet,
}

/// Which addresses to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One page.
    Page(u64),
    /// All pages from `start` to `end`, 2^`stride` bytes apart.
    Range {
        /// First address.
        start: u64,
        /// First address after it.
        end: u64,
        /// Binary logarithm of the page size.
        stride: u32,
    },
    /// The whole space.
    Full,
}

/// One request to forget.
#[derive(Clone, Copy, Debug)]
pub struct Invalidation {
    /// Who waits for whom.
    pub ticket: Ticket,
    /// The CPUs that must carry it out before the request returns.
    pub targets: CpuSet,
    /// Which addresses.
    pub scope: Scope,
    /// Tables were unhooked: paging-structure caches must forget too (any `INVLPG` does that on x86; REQ-32).
    pub tables_freed: bool,
    /// The top's entries changed on a machine that keeps them in registers (x86 PAE): the root must be loaded anew.
    pub reload_root: bool,
    /// The space ends: targets must load another root.
    pub space_ends: bool,
}

impl Invalidation {
    /// What `cpu`, one of the targets, has to forget. A CPU that kept the space loaded while it ran something else
    /// was spared the flushes that freed no tables: it forgets the whole space, or loads another root.
    #[inline]
    pub fn scope_on(&self, cpu: CpuId) -> Scope {
        if self.ticket.active.has(cpu) { self.scope } else { Scope::Full }
    }
}

/// The machine's way to invalidate: the thin, hardware-specific leaf.
///
/// # Safety
///
/// An implementation promises:
/// 1. When [`invalidate`](Self::invalidate) returns, every CPU in `targets` has forgotten what
///    [`scope_on`](Invalidation::scope_on) that CPU covers of the space, its paging-structure caches included if
///    `tables_freed`, and has loaded another root if `space_ends`.
/// 2. [`load`](Self::load) leaves no translation of another space's non-global pages usable on that CPU.
pub unsafe trait Shootdown: Sync {
    /// Carries a request out; see the contract.
    fn invalidate(&self, pin: &Pinned<'_>, request: &Invalidation);

    /// Loads a space's root on this CPU.
    fn load(&self, pin: &Pinned<'_>, space: SpaceId, root: PhysAddr);

    /// This CPU keeps the root loaded but runs nothing of the space.
    fn lazy(&self, _pin: &Pinned<'_>, _space: SpaceId) {}

    /// This CPU runs in the space again whose root it had kept loaded; nothing was flushed in between that it missed.
    fn resume(&self, _pin: &Pinned<'_>, _space: SpaceId) {}

    /// This CPU loads the kernel's own root.
    fn unload(&self, pin: &Pinned<'_>, space: SpaceId);
}

/// Flushes issued, counted once each at the CPU that asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushCounts {
    /// Of one page.
    pub page: usize,
    /// Of several pages, one by one.
    pub range: usize,
    /// Of a whole space.
    pub full: usize,
    /// Pages in all `page` and `range` flushes together.
    pub pages: usize,
}

#[derive(Default)]
#[repr(align(128))]
struct FlushTally {
    page: Counter,
    range: Counter,
    full: Counter,
    pages: Counter,
}

#[derive(Clone, Copy)]
struct Loaded {
    space: Option<SpaceId>,
    generation: Generation,
}

/// The machine's TLBs.
pub struct Tlb<S> {
    hardware: S,
    loaded: PerCpu<Loaded>,
    tallies: BootSlice<FlushTally>,
    /// More pages than this are flushed as a whole space.
    ceiling: u64,
}

/// Linux's rule: up to 33 pages one by one.
const LINUX_CEILING: u64 = 33;

impl SpaceTlb {
    /// A space that no CPU has loaded yet.
    pub const fn new(id: SpaceId) -> Self {
        SpaceTlb {
            id,
            generation: AtomicUsize::new(0),
            loaded: AtomicBool::new(false),
            active: CpuMask::new(),
            lazy: CpuMask::new(),
        }
    }

    /// The space's name.
    #[inline(always)]
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The current generation.
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Whether no CPU may have anything of it cached: entries may be changed with plain stores, and nothing needs
    /// to be flushed.
    #[inline]
    pub fn is_unloaded(&self) -> bool {
        !self.loaded.load(Ordering::SeqCst) || (self.active.is_empty() && self.lazy.is_empty())
    }

    /// Whether it is active on `cpu`.
    pub fn is_active_on(&self, cpu: CpuId) -> bool {
        self.active.has(cpu)
    }
}

impl<S: Shootdown> Tlb<S> {
    /// For `cpus` CPUs over `hardware`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the per-CPU state does not fit.
    pub fn new(boot: &mut BootMemory, cpus: usize, hardware: S) -> Result<Self, BootMemoryShort> {
        Ok(Tlb {
            hardware,
            loaded: PerCpu::new(boot, cpus, |_| Loaded { space: None, generation: Generation(0) })?,
            tallies: boot.take(cpus, |_| FlushTally::default())?,
            ceiling: LINUX_CEILING,
        })
    }

    /// Boot memory for `cpus` CPUs.
    pub const fn bytes(cpus: usize) -> usize {
        PerCpu::<Loaded>::bytes(cpus) + BootMemory::bytes::<FlushTally>(cpus)
    }

    /// The hardware beneath.
    pub fn hardware(&self) -> &S {
        &self.hardware
    }

    /// This CPU begins to run in `space`. A CPU that kept it loaded lazily only catches up with the generation.
    ///
    /// Whatever space the CPU had loaded before should have been left by [`deactivate`](Self::deactivate); if it was not,
    /// it goes on asking this CPU to flush, which costs time and does no harm.
    pub fn activate(&self, pin: &Pinned<'_>, space: &SpaceTlb, root: PhysAddr) {
        let cpu = pin.cpu();
        let was_lazy = space.lazy.has(cpu);
        if !space.loaded.load(Ordering::SeqCst) {
            space.loaded.store(true, Ordering::SeqCst);
        }
        // Into the mask first, then look at the generation: a flush either sees us, or we see its generation.
        space.active.set(cpu);
        space.lazy.clear(cpu);
        let now = space.generation();
        let Some(mut loaded) = self.loaded.enter(pin) else { return };
        if !was_lazy || loaded.space != Some(space.id) || loaded.generation != now {
            self.hardware.load(pin, space.id, root);
            *loaded = Loaded { space: Some(space.id), generation: now };
        } else {
            self.hardware.resume(pin, space.id);
        }
    }

    /// This CPU runs something that needs no user space; the root stays loaded.
    pub fn rest(&self, pin: &Pinned<'_>, space: &SpaceTlb) {
        space.lazy.set(pin.cpu());
        space.active.clear(pin.cpu());
        self.hardware.lazy(pin, space.id);
    }

    /// This CPU switches to another root and forgets the space.
    pub fn deactivate(&self, pin: &Pinned<'_>, space: &SpaceTlb) {
        self.hardware.unload(pin, space.id);
        if let Some(mut loaded) = self.loaded.enter(pin) {
            loaded.space = None;
        }
        space.active.clear(pin.cpu());
        space.lazy.clear(pin.cpu());
    }

    /// Flushes, and says what for. Nothing reaches the hardware if no CPU has the space loaded.
    pub(super) fn flush(&self, pin: &Pinned<'_>, space: &SpaceTlb, mut scope: Scope, why: Why) -> Ticket {
        let generation = Generation(space.generation.fetch_add(1, Ordering::SeqCst).wrapping_add(1));
        let active = space.active.snapshot();
        let lazy = space.lazy.snapshot();
        let ticket = Ticket { space: space.id, generation, active, lazy };
        let targets = if why.tables_freed || why.space_ends { active.or(&lazy) } else { active };
        if targets.is_empty() {
            return ticket;
        }
        let pages = match scope {
            Scope::Page(_) => 1,
            Scope::Range { start, end, stride } => (end - start) >> stride,
            Scope::Full => 0,
        };
        if pages > self.ceiling || why.reload_root || why.space_ends {
            scope = Scope::Full;
        }
        let tally = &self.tallies[pin.cpu().0 as usize];
        match scope {
            Scope::Page(_) => tally.page.add(1),
            Scope::Range { .. } => tally.range.add(1),
            Scope::Full => tally.full.add(1),
        }
        if scope != Scope::Full {
            tally.pages.add(pages as usize);
        }
        let Why { tables_freed, reload_root, space_ends } = why;
        let request = Invalidation { ticket, targets, scope, tables_freed, reload_root, space_ends };
        self.hardware.invalidate(pin, &request);
        if space_ends {
            for cpu in targets.iter() {
                space.active.clear(cpu);
                space.lazy.clear(cpu);
            }
        } else if targets.has(pin.cpu())
            && let Some(mut loaded) = self.loaded.enter(pin)
            && loaded.space == Some(space.id)
            && loaded.generation.0.wrapping_add(1) == generation.0
        {
            // A partial flush brings this CPU up to date only if it missed none before.
            loaded.generation = generation;
        }
        ticket
    }

    /// Flushes so far, all CPUs.
    pub fn counts(&self) -> FlushCounts {
        self.tallies.iter().fold(FlushCounts::default(), |c, t| FlushCounts {
            page: c.page.wrapping_add(t.page.get()),
            range: c.range.wrapping_add(t.range.get()),
            full: c.full.wrapping_add(t.full.get()),
            pages: c.pages.wrapping_add(t.pages.get()),
        })
    }
}

/// What besides the addresses decides how to flush.
#[derive(Clone, Copy, Default)]
pub(super) struct Why {
    pub tables_freed: bool,
    pub reload_root: bool,
    pub space_ends: bool,
}
