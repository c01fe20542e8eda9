//! The TLBs of a machine: which CPU has which space loaded, and how all of them are made to forget.
//!
//! The rules are Linux's (semantics.md §5), on x86 and alike. A flush raises the space's generation, *then* looks at who
//! has it loaded; a CPU that loads a space enters its mask, *then* looks at the generation: so either the flush sees the
//! CPU, or the CPU sees the flush. A CPU that is asked to bring a space to a generation
//!
//! * does nothing if it has reached it already: an earlier, larger flush did it;
//! * forgets just the addresses asked for if that is the only step it is behind;
//! * forgets the whole space otherwise, and has then reached whatever the generation is by now: what it is about to be
//!   asked for as well.
use super::asid::Asids;
use super::hardware::Shootdown;
use super::mailbox::{Mailboxes, Request};
use super::readers::{Epoch, Readers};
use super::request::{Generation, Invalidation, Root, Scope, SpaceId, Ticket};
use super::space::SpaceTlb;
use crate::addr::PhysAddr;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{Counter, CpuId, CpuSet, MachineId, PerCpu, Pinned};
use crate::sync::atomic::Ordering;
use core::ptr::NonNull;

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
    /// CPUs that were asked by others to forget something.
    pub asked: usize,
    /// Of these requests, those that came to a CPU that had reached the generation already.
    pub skipped: usize,
    /// Those that came to a CPU that was more than one step behind, and forgot the whole space.
    pub upgraded: usize,
    /// Chains that were parked.
    pub parked: usize,
    /// Of these, those that were flushed by force.
    pub forced: usize,
}

impl FlushCounts {
    fn plus(self, t: &FlushTally) -> Self {
        let add = |a: usize, b: &Counter| a.wrapping_add(b.get());
        FlushCounts {
            page: add(self.page, &t.page),
            range: add(self.range, &t.range),
            full: add(self.full, &t.full),
            pages: add(self.pages, &t.pages),
            asked: add(self.asked, &t.asked),
            skipped: add(self.skipped, &t.skipped),
            upgraded: add(self.upgraded, &t.upgraded),
            parked: add(self.parked, &t.parked),
            forced: add(self.forced, &t.forced),
        }
    }
}

#[derive(Default)]
#[repr(align(128))]
pub(super) struct FlushTally {
    page: Counter,
    range: Counter,
    full: Counter,
    pages: Counter,
    asked: Counter,
    skipped: Counter,
    upgraded: Counter,
    pub(super) parked: Counter,
    pub(super) forced: Counter,
}

/// What a CPU has loaded.
#[derive(Clone, Copy)]
struct Loaded {
    space: Option<SpaceId>,
    generation: Generation,
    asid: u16,
    lazy: bool,
}

const KERNEL: Loaded = Loaded { space: None, generation: Generation(0), asid: 0, lazy: false };

/// The shape of a machine's TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbConfig {
    /// How many CPUs there are.
    pub cpus: usize,
    /// More pages than this are flushed as a whole space.
    pub ceiling: u64,
    /// Numbers that each CPU's TLB can tag spaces with (ASIDs, PCIDs), 0 being the kernel's: with `n`, 1 to `n` are
    /// used. 0 if it has no tags: every load of another root drops everything.
    pub asids: u16,
    /// Frames that each CPU may have parked until lazy CPUs let go of a space by themselves; 0: they are interrupted
    /// at once.
    pub park: u32,
}

/// Linux's rule: up to 33 pages one by one.
const LINUX_CEILING: u64 = 33;

impl TlbConfig {
    /// TLBs without tags, Linux's ceiling, nothing parked.
    pub const fn new(cpus: usize) -> Self {
        TlbConfig { cpus, ceiling: LINUX_CEILING, asids: 0, park: 0 }
    }
}

/// The machine's TLBs.
///
/// [`activate`](Self::activate), [`rest`](Self::rest) and [`deactivate`](Self::deactivate) are called with interrupts
/// masked, or on a machine that delivers none; flushes are not made by handlers of interrupts. As in Linux.
pub struct Tlb<S> {
    hardware: S,
    config: TlbConfig,
    loaded: PerCpu<Loaded>,
    asids: Asids,
    mailboxes: Mailboxes,
    pub(super) readers: Readers,
    pub(super) parked: PerCpu<super::park::ParkedList>,
    tallies: BootSlice<FlushTally>,
}

impl<S: Shootdown> Tlb<S> {
    /// Over the `hardware` of `machine`, in the shape `config`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the per-CPU state does not fit.
    pub fn new(
        boot: &mut BootMemory,
        machine: MachineId,
        config: TlbConfig,
        hardware: S,
    ) -> Result<Self, BootMemoryShort> {
        let cpus = config.cpus;
        Ok(Tlb {
            hardware,
            config,
            loaded: PerCpu::new(boot, machine, cpus, |_| KERNEL)?,
            asids: Asids::new(boot, cpus, config.asids)?,
            mailboxes: Mailboxes::new(boot, cpus)?,
            readers: Readers::new(boot, cpus)?,
            parked: PerCpu::new(boot, machine, cpus, |_| Default::default())?,
            tallies: boot.take(cpus, |_| FlushTally::default())?,
        })
    }

    /// Boot memory for it.
    pub const fn bytes(config: &TlbConfig) -> usize {
        let cpus = config.cpus;
        PerCpu::<Loaded>::bytes(cpus)
            + Asids::bytes(cpus, config.asids)
            + Mailboxes::bytes(cpus)
            + Readers::bytes(cpus)
            + PerCpu::<super::park::ParkedList>::bytes(cpus)
            + BootMemory::bytes::<FlushTally>(cpus)
    }

    /// The hardware beneath.
    pub fn hardware(&self) -> &S {
        &self.hardware
    }

    /// Its shape.
    pub fn config(&self) -> &TlbConfig {
        &self.config
    }

    /// Who reads tables.
    #[inline(always)]
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    #[inline(always)]
    pub(super) fn tally(&self, pin: &Pinned<'_>) -> &FlushTally {
        &self.tallies[pin.cpu().0 as usize]
    }

    /// This CPU begins to run in `space`. A CPU that kept it loaded lazily only catches up with the generation.
    ///
    /// Whatever space the CPU had loaded before should have been left by [`deactivate`](Self::deactivate); if it was not,
    /// it goes on asking this CPU to flush, which costs time and does no harm.
    pub fn activate(&self, pin: &Pinned<'_>, space: &SpaceTlb, root: PhysAddr) {
        let cpu = pin.cpu();
        if !space.loaded.load(Ordering::SeqCst) {
            space.loaded.store(true, Ordering::SeqCst);
        }
        // Into the mask first, then look at the generation: a flush either sees us, or we see its generation.
        space.active.set(cpu);
        let generation = space.generation();
        let Some(mut loaded) = self.loaded.enter(pin) else { return };
        if loaded.space == Some(space.id()) && loaded.generation == generation {
            if loaded.lazy {
                loaded.lazy = false;
                space.lazy.clear(cpu);
                self.hardware.resume(pin, space.id());
            }
            return;
        }
        let now = self.readers.now();
        // SAFETY: 1. `loaded` is this CPU's, and its guard keeps interrupts that come here out.
        let (asid, keep) = unsafe {
            if loaded.space.is_some() {
                self.asids.reached(cpu, loaded.asid, loaded.generation);
            }
            self.asids.choose(cpu, space.id(), generation)
        };
        self.hardware.load(pin, &Root { space: space.id(), at: root, asid, keep });
        *loaded = Loaded { space: Some(space.id()), generation, asid, lazy: false };
        space.lazy.clear(cpu);
        self.readers.cleaned(cpu, now);
    }

    /// This CPU runs something that needs no user space; the root stays loaded.
    pub fn rest(&self, pin: &Pinned<'_>, space: &SpaceTlb) {
        let Some(mut loaded) = self.loaded.enter(pin) else { return };
        if loaded.space != Some(space.id()) || loaded.lazy {
            return;
        }
        // Lazy before it is no longer active: a flush that frees tables must find it in one of the masks.
        loaded.lazy = true;
        space.lazy.set(pin.cpu());
        space.active.clear(pin.cpu());
        self.hardware.lazy(pin, space.id());
    }

    /// This CPU switches to another root and forgets the space, or may use what it knows of it when it comes back to it
    /// if it is tagged.
    pub fn deactivate(&self, pin: &Pinned<'_>, space: &SpaceTlb) {
        if let Some(mut loaded) = self.loaded.enter(pin)
            && loaded.space == Some(space.id())
        {
            self.unload(pin, &mut loaded, space.id());
        }
        space.active.clear(pin.cpu());
        space.lazy.clear(pin.cpu());
    }

    fn unload(&self, pin: &Pinned<'_>, loaded: &mut Loaded, space: SpaceId) {
        let now = self.readers.now();
        self.hardware.unload(pin, space);
        // SAFETY: 1. `loaded` is this CPU's, borrowed from its guard.
        unsafe { self.asids.reached(pin.cpu(), loaded.asid, loaded.generation) };
        *loaded = KERNEL;
        self.readers.cleaned(pin.cpu(), now);
    }

    /// Flushes, and says what for. Nothing reaches the hardware if no CPU has the space loaded.
    pub(super) fn flush(&self, pin: &Pinned<'_>, space: &SpaceTlb, mut scope: Scope, why: Why) -> Ticket {
        let generation = space.raise();
        let active = space.active.snapshot();
        let lazy = space.lazy.snapshot();
        let recall = generation.0 & RECALL == 0;
        let mut ticket = Ticket { space: space.id(), generation, active, lazy, waiting: CpuSet::default() };
        let mut targets = active;
        if why.tables_freed || why.space_ends {
            if why.may_park {
                ticket.waiting = lazy.without(&active).except(pin.cpu());
            }
            targets = active.or(&lazy).without(&ticket.waiting);
        }
        if recall {
            targets = (0..self.config.cpus).fold(targets, |all, cpu| all.with(CpuId(cpu as u16)));
        }
        if targets.is_empty() {
            return ticket;
        }
        let pages = match scope {
            Scope::Page(_) => 1,
            Scope::Range { start, end, stride } => (end - start) >> stride,
            Scope::Full => 0,
        };
        if pages > self.config.ceiling || why.reload_root || why.space_ends || recall {
            scope = Scope::Full;
        }
        let tally = self.tally(pin);
        match scope {
            Scope::Page(_) => tally.page.add(1),
            Scope::Range { .. } => tally.range.add(1),
            Scope::Full => tally.full.add(1),
        }
        if scope != Scope::Full {
            tally.pages.add(pages as usize);
        }
        let Why { tables_freed, reload_root, space_ends, .. } = why;
        let what = Invalidation { space: space.id(), asid: 0, scope, tables_freed, reload_root };
        let request =
            Request::Flush { space: NonNull::from(space), what, generation, ends: space_ends, recall };
        let remote = targets.except(pin.cpu());
        if S::BROADCASTS && !space_ends && !recall {
            self.hardware.invalidate(pin, &what);
            self.carry_out(pin, &request);
        } else if remote.is_empty() {
            self.carry_out(pin, &request);
        } else {
            // SAFETY: 2. `space` is borrowed until `shoot` returns, which is after all have answered.
            unsafe { self.shoot(pin, remote, request, targets.has(pin.cpu())) };
        }
        ticket
    }

    /// Asks `remote` CPUs, does this CPU's own part meanwhile if it is one of the targets, and waits for the answers.
    ///
    /// # Safety
    ///
    /// 1. A space in `request` is there until this returns.
    #[cold]
    unsafe fn shoot(&self, pin: &Pinned<'_>, remote: CpuSet, request: Request, own_part: bool) {
        let me = pin.cpu();
        let serve = |pin: &Pinned<'_>| self.serve(pin);
        self.tally(pin).asked.add(remote.len());
        // SAFETY: 1. the CPU is the caller's, and each call of this function ends with all answers here. 2. as the
        // caller says, and this returns after the answers only.
        unsafe { self.mailboxes.ask(me, &remote, request) };
        self.hardware.send(pin, &remote, &serve);
        if own_part {
            self.carry_out(pin, &request);
        }
        let mut turn = 0u32;
        loop {
            let left = self.mailboxes.unanswered(me);
            if left.is_empty() {
                return;
            }
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(AGAIN) {
                self.hardware.send(pin, &left, &serve);
            }
            self.pause(pin, turn);
        }
    }

    /// Carries out what other CPUs ask of this one. Called by the handler of the interrupt that [`Ipi::send`] causes, or
    /// wherever a CPU looks after its mail; costs a few loads if nobody asks.
    ///
    /// [`Ipi::send`]: super::Ipi::send
    #[inline(always)]
    pub fn serve(&self, pin: &Pinned<'_>) {
        if self.mailboxes.is_asked(pin.cpu()) {
            self.serve_all(pin);
        }
    }

    #[cold]
    fn serve_all(&self, pin: &Pinned<'_>) {
        self.mailboxes.answer(pin.cpu(), |request| self.carry_out(pin, request));
    }

    /// Turn number `turn` of a wait for other CPUs, in which they may be waiting for this one.
    #[inline]
    pub fn pause(&self, pin: &Pinned<'_>, turn: u32) {
        self.serve(pin);
        self.hardware.wait(pin, turn);
    }

    /// This CPU's part of a request.
    fn carry_out(&self, pin: &Pinned<'_>, request: &Request) {
        let cpu = pin.cpu();
        // Busy only if `activate` and its like are interrupted, which their callers rule out.
        let Some(mut loaded) = self.loaded.enter(pin) else {
            debug_assert!(false, "an interrupt came in while {cpu:?} was changing its root");
            return;
        };
        match *request {
            Request::Nothing => {}
            Request::Everything => {
                let Some(space) = loaded.space else { return };
                if loaded.lazy {
                    self.unload(pin, &mut loaded, space);
                    return;
                }
                let now = self.readers.now();
                let what = Invalidation {
                    space,
                    asid: loaded.asid,
                    scope: Scope::Full,
                    tables_freed: true,
                    reload_root: true,
                };
                self.hardware.invalidate(pin, &what);
                self.readers.cleaned(cpu, now);
            }
            Request::Flush { space, what, generation, ends, recall } => {
                // SAFETY: the CPU that asks borrows the space until all have answered.
                let space = unsafe { space.as_ref() };
                if loaded.space != Some(space.id()) {
                    if recall {
                        // SAFETY: 1. `loaded` is this CPU's.
                        unsafe { self.asids.forget(cpu, space.id()) };
                    }
                    // A root that was loaded over this space's without leaving it first.
                    space.active.clear(cpu);
                    space.lazy.clear(cpu);
                } else if ends || (loaded.lazy && what.tables_freed) {
                    self.unload(pin, &mut loaded, space.id());
                    space.active.clear(cpu);
                    space.lazy.clear(cpu);
                } else {
                    self.catch_up(pin, &mut loaded, space, what, generation);
                }
            }
        }
    }

    #[inline]
    fn catch_up(
        &self,
        pin: &Pinned<'_>,
        loaded: &mut Loaded,
        space: &SpaceTlb,
        what: Invalidation,
        generation: Generation,
    ) {
        let what = Invalidation { asid: loaded.asid, ..what };
        if loaded.generation.reaches(generation) {
            self.tally(pin).skipped.add(1);
            return;
        }
        // Read before anything is forgotten: what comes later is not covered.
        let reached = space.generation();
        let one_step = loaded.generation.next() == generation && reached == generation;
        if one_step && what.scope != Scope::Full {
            if !S::BROADCASTS {
                self.hardware.invalidate(pin, &what);
            }
            loaded.generation = generation;
            return;
        }
        if what.scope != Scope::Full {
            self.tally(pin).upgraded.add(1);
        }
        let now = self.readers.now();
        // Other flushes are made up for, of which nothing is known here: tables may have gone in them.
        let tables_freed = what.tables_freed || !one_step;
        let reload_root = what.reload_root || !one_step;
        let full = Invalidation { scope: Scope::Full, tables_freed, reload_root, ..what };
        self.hardware.invalidate(pin, &full);
        loaded.generation = reached;
        self.readers.cleaned(pin.cpu(), now);
    }

    /// Makes `cpus` drop everything they know of user space, lazy ones by loading the kernel's root.
    pub(super) fn force(&self, pin: &Pinned<'_>, cpus: CpuSet) {
        let remote = cpus.except(pin.cpu());
        if !remote.is_empty() {
            // SAFETY: 1. there is no space in the request.
            unsafe { self.shoot(pin, remote, Request::Everything, false) };
        }
        if cpus.has(pin.cpu()) {
            self.carry_out(pin, &Request::Everything);
        }
    }

    /// CPUs of `lazy` that may still know what was unhooked before `epoch`.
    pub(super) fn not_clean(&self, lazy: &CpuSet, epoch: Epoch) -> CpuSet {
        lazy.iter().fold(CpuSet::default(), |left, cpu| {
            if self.readers.is_clean(cpu, epoch) { left } else { left.with(cpu) }
        })
    }

    /// Flushes so far, all CPUs.
    pub fn counts(&self) -> FlushCounts {
        self.tallies.iter().fold(FlushCounts::default(), |c, t| c.plus(t))
    }
}

/// Turns of a wait after which requests are sent again.
const AGAIN: u32 = 256;

/// Whenever these bits of a generation come to be zero, four times a round, every CPU gives up what it holds of the
/// space: none can then be half a round behind, and the order of generations holds.
const RECALL: usize = usize::MAX >> 2;

/// What besides the addresses decides how to flush.
#[derive(Clone, Copy, Default)]
pub(super) struct Why {
    pub tables_freed: bool,
    pub reload_root: bool,
    pub space_ends: bool,
    /// Lazy CPUs may be waited for: see [`Ticket::waiting`].
    pub may_park: bool,
}
