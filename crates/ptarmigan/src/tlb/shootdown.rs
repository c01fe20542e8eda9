//! Flushes the TLBs of all CPUs.
//!
//! The rules are Linux's, on x86 and alike. A flush raises the space's generation, *then* looks at
//! the CPUs that have it loaded; a CPU that loads a space enters its mask, *then* looks at the
//! generation: so either the flush sees the CPU, or the CPU sees the flush. A CPU that is asked to
//! bring a space to a generation
//!
//! * returns at once if it has reached it already: an earlier, larger flush did it;
//! * forgets just the addresses asked for if that is the only step it is behind;
//! * forgets the whole space otherwise, and has then reached whatever the generation is by now:
//!   requests that are about to arrive as well.
//!
//! A machine that broadcasts does all this at the CPU that asks, by the number that the space has
//! everywhere; others are asked only for work that a broadcast cannot do: to leave a space that
//! ends, to load a root anew, to give a space up.
//!
//! A CPU does what it is asked while it has its [`Loaded`] for itself. If the request comes in the
//! middle of something that has it already, the request stays unanswered until that is done.
use super::error::TlbRefusal;
use super::hardware::Shootdown;
use super::id::Generation;
use super::mailbox::Asked;
use super::readers::Epoch;
use super::request::{FlushRequest, Invalidation, Request, Ticket};
use super::runs::Runs;
use super::scope::Scope;
use super::space::SpaceTlb;
use super::state::{Loaded, Tlb};
use crate::cpu::{CpuId, CpuSet, Guard, Pinned};
use core::ptr::NonNull;

impl<S: Shootdown> Tlb<S> {
    /// Has every CPU that may know the changed entries of `space` forget them, and records the
    /// flush in `ticket`. If no range is named, everything is stale. The hardware is left alone if
    /// no TLB knows the space.
    ///
    /// The ticket is written where the caller wants it: it is half as large as the stack frame.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`]; no translation has been forgotten then, and there is no ticket.
    pub(crate) fn flush(
        &self,
        pin: &Pinned<'_>,
        space: &SpaceTlb,
        stale: &Runs,
        flags: FlushFlags,
        ticket: &mut Option<Ticket>,
    ) -> Result<(), TlbRefusal> {
        *ticket = None;
        self.accept(pin)?;
        self.machine.accept(space.machine())?;
        // Interrupts that come in from here to the end of this CPU's own part leave their requests
        // to this call.
        let loaded = self.own(pin)?;
        let generation = space.raise();
        self.flush_raised(pin, (space, generation), loaded, stale, flags, ticket)
    }

    /// As [`flush`](Self::flush), which has raised the space's generation, for a CPU that has its
    /// state for itself.
    #[inline]
    pub(super) fn flush_raised(
        &self,
        pin: &Pinned<'_>,
        (space, generation): (&SpaceTlb, Generation),
        mut loaded: Guard<'_, Loaded>,
        stale: &Runs,
        flags: FlushFlags,
        ticket: &mut Option<Ticket>,
    ) -> Result<(), TlbRefusal> {
        let FlushFlags { tables_freed, reload_root, space_ends: ends, may_park, may_defer } = flags;
        let recall = generation.0 & RECALL == 0;
        // Active CPUs first: one that becomes lazy meanwhile is then found in one of the masks.
        let Ticket { active, lazy, waiting, .. } = ticket.insert(Ticket {
            space: space.id(),
            generation,
            active: space.active.snapshot(),
            lazy: space.lazy.snapshot(),
            waiting: CpuSet::default(),
        });
        // The CPUs that have to do something themselves.
        let mut targets = *active;
        if ends || (tables_freed && !S::BROADCASTS && S::WALKS_TABLES) {
            if S::PARKS && may_park {
                *waiting = lazy.without(active).except(pin.cpu());
            }
            targets = active.or(lazy).without(waiting);
        }
        if S::PARKS && may_defer && const { can_defer::<S>() } && !(recall || ends || reload_root) {
            // They make up for it later, and the unlinked pages are parked until they have.
            *waiting = waiting.or(active).except(pin.cpu());
            targets = targets.without(waiting);
        }
        if recall {
            targets = (0..self.config.cpus).fold(targets, |all, cpu| all.with(CpuId(cpu as u16)));
        }
        let asid = if S::BROADCASTS { space.asid.number() } else { loaded.asid };
        // A broadcast reaches whatever is known under the number, on CPUs that have left the space
        // too; without numbers a CPU that has left it holds no translation.
        let is_known = if S::HAS_ASIDS && self.config.asids != 0 {
            asid != 0
        } else {
            !active.is_empty() || !lazy.is_empty()
        };
        let broadcast = S::BROADCASTS && is_known;
        if targets.is_empty() && !broadcast {
            self.leave(pin, loaded);
            return Ok(());
        }
        // Where no tables are walked, the hashed pages are known at the end, too.
        let everything = (ends && S::WALKS_TABLES) || reload_root || recall;
        let by_request = !S::BROADCASTS || everything || ends;
        // By address, links of tables that were freed would stay.
        let links = tables_freed && S::WALKS_TABLES && S::STRUCTURES.wants_everything();
        // Made where it stays: it is a good part of the stack frame.
        let what = Invalidation { space: space.id(), asid, scope: Scope::Full, tables_freed, reload_root };
        let mut request =
            Request::Flush(FlushRequest { space: NonNull::from(space), what, generation, ends, recall });
        if let Request::Flush(FlushRequest { what, .. }) = &mut request {
            if !(everything || links) {
                self.plan_into(pin, stale, &mut what.scope);
            }
            self.tally(pin).count(&what.scope);
            if broadcast {
                self.hardware.invalidate(pin, what);
            }
        }
        if broadcast && !by_request {
            if loaded.space == Some(space.id()) && loaded.generation.next() == generation {
                loaded.generation = generation;
            }
            self.leave(pin, loaded);
            return Ok(());
        }
        // SAFETY: 1. `space` is borrowed for longer than this call.
        let shot = unsafe { self.shoot(pin, loaded, &targets, &request) };
        if shot.is_err() {
            *ticket = None;
        }
        shot
    }

    /// Ends a call that has had the CPU's state for itself and asks no other CPU.
    #[cfg_attr(not(feature = "small"), inline)]
    pub(super) fn leave(&self, pin: &Pinned<'_>, loaded: Guard<'_, Loaded>) {
        drop(loaded);
        self.serve(pin);
    }

    /// Has `targets` carry a request out, this CPU too if it is one of them, and waits until all
    /// have.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal::Busy`] if this CPU waits for answers already; no CPU has been asked then.
    ///
    /// # Safety
    ///
    /// 1. The data that `request` points to must stay there until this returns or has unwound.
    pub(super) unsafe fn shoot(
        &self,
        pin: &Pinned<'_>,
        mut loaded: Guard<'_, Loaded>,
        targets: &CpuSet,
        request: &Request,
    ) -> Result<(), TlbRefusal> {
        let me = pin.cpu();
        let remote = targets.except(me);
        if remote.is_empty() {
            if targets.has(me) {
                self.carry_out(pin, &mut loaded, request);
            }
            self.leave(pin, loaded);
            return Ok(());
        }
        // SAFETY: 1. the CPU is the caller's. 2. as the caller says: `asked` is dropped before this
        // returns or unwinds further. 3. it is a local, and `wait_for_answers` drops it.
        let asked = unsafe { self.mailboxes.ask(me, &remote, request) }.ok_or(TlbRefusal::Busy(me))?;
        let tally = self.tally(pin);
        tally.asked.add(remote.len());
        tally.remote.add(1);
        if request.is_about_root() {
            tally.asked_for_root.add(remote.len());
        }
        self.hardware.send(pin, &remote, &|pin| self.serve(pin));
        if targets.has(me) {
            self.carry_out(pin, &mut loaded, request);
        }
        drop(loaded);
        self.wait_for_answers(pin, asked);
        Ok(())
    }

    #[cold]
    fn wait_for_answers(&self, pin: &Pinned<'_>, asked: Asked<'_>) {
        let mut turn = 0u32;
        // Requests that came in during this CPU's own part.
        self.serve(pin);
        self.wait_until(pin, || {
            let left = asked.unanswered();
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(S::RESEND_AFTER) && !left.is_empty() {
                self.hardware.send(pin, &left, &|pin| self.serve(pin));
            }
            left.is_empty()
        });
    }

    /// Carries out the requests of other CPUs to this one. Called by the handler of the interrupt
    /// that [`Ipi::send`] causes, or wherever a CPU looks after its mail; costs a few loads if no
    /// CPU asks.
    ///
    /// In the middle of a switch or a flush it leaves requests to the code that was interrupted,
    /// which serves them before it returns. A pin of another machine serves no request.
    ///
    /// [`Ipi::send`]: super::Ipi::send
    #[cfg_attr(not(feature = "small"), inline)]
    pub fn serve(&self, pin: &Pinned<'_>) {
        if self.mailboxes.is_asked(pin.cpu()) {
            self.serve_all(pin);
        }
    }

    #[cold]
    fn serve_all(&self, pin: &Pinned<'_>) {
        // Again, for a request that came in while the first ones were carried out, and was left to
        // this call.
        while self.mailboxes.is_asked(pin.cpu()) {
            let Some(mut loaded) = self.loaded.enter(pin) else { return };
            self.mailboxes.answer(pin.cpu(), |request| self.carry_out(pin, &mut loaded, request));
        }
    }

    /// Takes turn number `turn` of a wait for other CPUs, which may be waiting for this one.
    #[inline]
    pub fn pause(&self, pin: &Pinned<'_>, turn: u32) {
        self.serve(pin);
        self.hardware.wait(pin, turn);
    }

    /// Waits until `done`, and serves requests of other CPUs meanwhile.
    pub(crate) fn wait_until(&self, pin: &Pinned<'_>, mut done: impl FnMut() -> bool) {
        let mut turn = 0u32;
        while !done() {
            turn = turn.wrapping_add(1);
            self.pause(pin, turn);
        }
    }

    /// Does this CPU's part of a request.
    fn carry_out(&self, pin: &Pinned<'_>, loaded: &mut Loaded, request: &Request) {
        let cpu = pin.cpu();
        match request {
            Request::Nothing => {}
            Request::Kernel(scope) => self.hardware.invalidate_kernel(pin, scope),
            // Never asked for.
            Request::KernelSlots { .. } if const { !S::HAS_SLOTS } => {}
            Request::KernelSlots { slots, plan } => {
                // SAFETY: the CPU that asks keeps the set in place until all have answered.
                self.forget_slots(pin, unsafe { slots.as_ref() }, *plan);
            }
            // Never asked for.
            Request::Everything if const { !S::PARKS } => {}
            Request::Everything => {
                let Some(space) = loaded.space else { return };
                if loaded.lazy {
                    self.unload(pin, loaded, space);
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
            Request::Flush(request) => {
                // SAFETY: the CPU that asks keeps the space in place until all have answered.
                let space = unsafe { request.space.as_ref() };
                if loaded.space != Some(space.id()) {
                    if S::HAS_ASIDS && request.recall {
                        // SAFETY: 1. `loaded` is this CPU's.
                        unsafe { self.asids.forget(cpu, space.id()) };
                    }
                    // A root that was loaded over this space's without leaving it first.
                    space.active.clear(cpu);
                    space.lazy.clear(cpu);
                } else if request.ends || (loaded.lazy && request.what.tables_freed) {
                    self.unload(pin, loaded, space.id());
                    space.active.clear(cpu);
                    space.lazy.clear(cpu);
                } else {
                    self.bring_up(pin, loaded, space, request);
                }
            }
        }
    }

    #[inline]
    fn bring_up(&self, pin: &Pinned<'_>, loaded: &mut Loaded, space: &SpaceTlb, request: &FlushRequest) {
        let FlushRequest { what, generation, .. } = request;
        if loaded.generation.reaches(*generation) {
            self.tally(pin).skipped.add(1);
            return;
        }
        // Read before anything is forgotten: later changes are not covered.
        let reached = space.generation();
        let one_step = loaded.generation.next() == *generation && reached == *generation;
        let asid = loaded.asid;
        if one_step && !what.scope.is_full() {
            if asid == what.asid {
                self.hardware.invalidate(pin, what);
            } else {
                self.hardware.invalidate(pin, &Invalidation { asid, ..*what });
            }
            loaded.generation = *generation;
            return;
        }
        if !what.scope.is_full() {
            self.tally(pin).upgraded.add(1);
        }
        let now = self.readers.now();
        // Other flushes, of unknown scope, are made up for: tables may have gone in them.
        let tables_freed = what.tables_freed || !one_step;
        let reload_root = what.reload_root || !one_step;
        let scope = Scope::Full;
        let full = Invalidation { space: space.id(), asid, scope, tables_freed, reload_root };
        self.hardware.invalidate(pin, &full);
        loaded.generation = reached;
        self.readers.cleaned(pin.cpu(), now);
    }

    /// Makes `cpus` drop everything they know of user space, lazy ones by loading the kernel's
    /// root.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal::Busy`] if this CPU is in the middle of an operation; no translation has been
    /// dropped then.
    pub(crate) fn force(&self, pin: &Pinned<'_>, cpus: &CpuSet) -> Result<(), TlbRefusal> {
        // SAFETY: 1. it holds no pointer.
        unsafe { self.shoot(pin, self.own(pin)?, cpus, &Request::Everything) }
    }

    /// Returns whether a flush would be accepted: this CPU is not in the middle of an operation.
    pub(crate) fn can_flush(&self, pin: &Pinned<'_>) -> bool {
        self.may_flush(pin).is_ok()
    }

    /// Returns the CPUs of `lazy` that may still know pages that were unhooked before `epoch`.
    pub(crate) fn not_clean(&self, lazy: &CpuSet, epoch: Epoch) -> CpuSet {
        lazy.iter().fold(CpuSet::default(), |left, cpu| {
            if self.readers.is_clean(cpu, epoch) { left } else { left.with(cpu) }
        })
    }
}

/// Whenever these bits of a generation come to be zero, four times a round, every CPU gives up its
/// translations of the space: no CPU can then be half a round behind, and the order of generations
/// holds.
pub(super) const RECALL: usize = usize::MAX >> 2;

/// The facts besides the addresses that decide how to flush.
#[derive(Clone, Copy, Default)]
pub(crate) struct FlushFlags {
    /// Tables were unhooked: lazy CPUs walk them still.
    pub tables_freed: bool,
    /// An entry of a root that the MMU keeps in registers has changed.
    pub reload_root: bool,
    /// The space ends.
    pub space_ends: bool,
    /// Lazy CPUs may be waited for: see [`Ticket::waiting`].
    pub may_park: bool,
    /// Active CPUs may be waited for as well: the flush is left to them.
    pub may_defer: bool,
}

/// Whether flushes can be left to the CPUs that they concern: there is nothing to defer where a
/// broadcast does it.
pub(super) const fn can_defer<S: Shootdown>() -> bool {
    S::PARKS && !S::BROADCASTS && S::WALKS_TABLES
}
