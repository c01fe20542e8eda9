//! The TLBs of a machine: which CPU has which space loaded, and how all of them are made to forget.
//!
//! The rules are Linux's , on x86 and alike. A flush raises the space's generation, *then* looks at who
//! has it loaded; a CPU that loads a space enters its mask, *then* looks at the generation: so either the flush sees the
//! CPU, or the CPU sees the flush. A CPU that is asked to bring a space to a generation
//!
//! * does nothing if it has reached it already: an earlier, larger flush did it;
//! * forgets just the addresses asked for if that is the only step it is behind;
//! * forgets the whole space otherwise, and has then reached whatever the generation is by now: what it is about to be
//!   asked for as well.
use super::hardware::Shootdown;
use super::mailbox::Request;
use super::readers::Epoch;
use super::request::{Generation, Invalidation, Scope, Ticket};
use super::space::SpaceTlb;
use super::state::{Loaded, Tlb};
use crate::cpu::{CpuId, CpuSet, Pinned};
use core::ptr::NonNull;

impl<S: Shootdown> Tlb<S> {
    /// Flushes, and says what for. Nothing reaches the hardware if no CPU has the space loaded.
    pub(super) fn flush_old(
        &self,
        pin: &Pinned<'_>,
        space: &SpaceTlb,
        mut scope: Scope,
        flags: FlushFlags,
    ) -> Ticket {
        let generation = space.raise();
        let active = space.active.snapshot();
        let lazy = space.lazy.snapshot();
        let recall = generation.0 & RECALL == 0;
        let mut ticket = Ticket { space: space.id(), generation, active, lazy, waiting: CpuSet::default() };
        let mut targets = active;
        if flags.tables_freed || flags.space_ends {
            if flags.may_park {
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
        if pages > self.config.ceiling || flags.reload_root || flags.space_ends || recall {
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
        let FlushFlags { tables_freed, reload_root, space_ends, .. } = flags;
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
    pub(crate) fn force(&self, pin: &Pinned<'_>, cpus: CpuSet) {
        self.tally(pin).forced.add(1);
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
    pub(crate) fn not_clean(&self, lazy: &CpuSet, epoch: Epoch) -> CpuSet {
        lazy.iter().fold(CpuSet::default(), |left, cpu| {
            if self.readers.is_clean(cpu, epoch) { left } else { left.with(cpu) }
        })
    }
}

/// Turns of a wait after which requests are sent again.
const AGAIN: u32 = 256;

/// Whenever these bits of a generation come to be zero, four times a round, every CPU gives up what it holds of the
/// space: none can then be half a round behind, and the order of generations holds.
const RECALL: usize = usize::MAX >> 2;

/// What besides the addresses decides how to flush.
#[derive(Clone, Copy, Default)]
pub(crate) struct FlushFlags {
    pub tables_freed: bool,
    pub reload_root: bool,
    pub space_ends: bool,
    /// Lazy CPUs may be waited for: see [`Ticket::waiting`].
    pub may_park: bool,
}
