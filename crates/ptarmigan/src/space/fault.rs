//! Serves page faults.
use super::SpaceMachine;
use super::area::AreaFlags;
use super::areas::Hint;
use super::state::{RECENT, Space, SpaceMut, State, release};
use crate::addr::{Pfn, VirtAddr, VirtRange};
use crate::cpu::{CpuId, WrongMachine};
use crate::error::error;
use crate::format::{Access, Attr, Format};
use crate::frames::{AllocFlags, DataFrames, NoFrame};
use crate::gather::{Gather, release_flushed};
use crate::machine::{Machine, On, Unmapped};
use crate::page::Level;
use crate::table::{Descent, Leaf, Locked, NeedsBreak, PutError, Use};
use crate::tlb::{NewEntry, SpaceTlb, TlbRefusal};
use core::fmt;

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The shared zero frame was mapped.
    Zero,
    /// A fresh frame was mapped.
    Fresh,
    /// A frame of the backing object was mapped, or physical memory, in a page or a larger leaf.
    Backed,
    /// A private copy was made.
    Copied,
    /// The only user of a copied page got it back for writing.
    Reused,
    /// A large page of zeroes was mapped.
    Large,
    /// The entry was as it should be already.
    Spurious,
}

/// Why a fault could not be served; the space is unchanged, except that a stack may have grown to
/// the address, or have been prepared for it in vain: fork copies its tables then, as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// No area lies there.
    NoArea(VirtAddr),
    /// The area does not allow it.
    Denied(VirtAddr),
    /// The backing object has no such page.
    BeyondObject(VirtAddr),
    /// There was no memory for the page or for a table.
    NoFrame(NoFrame),
    /// The space is of another machine.
    WrongMachine(WrongMachine),
    /// The CPU cannot read the space now, or not flush the changes of the fault.
    Refused(TlbRefusal),
    /// This CPU has the shared space for itself already: it would wait for itself.
    Locked(CpuId),
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultError::NoArea(at) => write!(f, "no area at {at}"),
            FaultError::Denied(at) => write!(f, "access at {at} is not allowed"),
            FaultError::BeyondObject(at) => write!(f, "{at} lies beyond the end of what is mapped there"),
            FaultError::NoFrame(e) => e.fmt(f),
            FaultError::WrongMachine(e) => e.fmt(f),
            FaultError::Refused(e) => e.fmt(f),
            FaultError::Locked(cpu) => write!(f, "CPU {} has the space for itself", cpu.0),
        }
    }
}

error!(FaultError: NoFrame => NoFrame, WrongMachine => WrongMachine, TlbRefusal => Refused);

impl From<PutError> for FaultError {
    fn from(e: PutError) -> Self {
        match e {
            PutError::NoFrame(e) => e.into(),
            PutError::Refused(e) => e.into(),
        }
    }
}

/// Pages that Linux keeps free below a stack.
const STACK_GUARD: u64 = 256;
/// The lowest address that a stack grows to (Linux's default `vm.mmap_min_addr`).
const LOWEST_STACK: u64 = 64 << 10;

/// The outcome of one attempt to serve a fault.
pub(super) enum Outcome {
    /// It has been served.
    Done(Done),
    /// Another CPU has changed the entry meanwhile: look again.
    Again,
    /// A stack has to grow, or a large page to change, for which the caller must have the space for
    /// itself.
    Exclusive,
}

impl<F: Format> Space<F> {
    /// Serves a fault at `va`.
    ///
    /// # Errors
    ///
    /// [`FaultError`](FaultError); the space is unchanged then, except that a stack may have grown
    /// to `va` (as in Linux, which checks permissions afterwards).
    #[inline]
    pub fn fault<M: SpaceMachine>(
        &mut self,
        on: On<'_, M>,
        va: VirtAddr,
        access: Access,
    ) -> Result<Done, FaultError> {
        on.check(self.tlb.machine())?;
        self.state.fault(on, &self.tlb, va, access)
    }
}

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    /// Serves a fault at `va`, see [`Space::fault`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn fault(&mut self, va: VirtAddr, access: Access) -> Result<Done, FaultError> {
        self.state.fault(self.on, self.tlb, va, access)
    }
}

impl<F: Format> State<F> {
    /// Serves a fault at `va` of a space that the caller holds exclusively; see
    /// [`Space::fault`](super::Space::fault).
    #[inline]
    pub(super) fn fault<M: SpaceMachine>(
        &mut self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        va: VirtAddr,
        access: Access,
    ) -> Result<Done, FaultError> {
        match self.fault_once::<M, false>(on, tlb, va, access)? {
            Outcome::Done(done) => Ok(done),
            Outcome::Again | Outcome::Exclusive => self.fault_exclusively(on, tlb, va, access),
        }
    }

    /// Serves a fault at an address that a stack has to grow to, or in a large page that has to
    /// change.
    #[cold]
    #[inline(never)]
    fn fault_exclusively<M: SpaceMachine>(
        &mut self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        va: VirtAddr,
        access: Access,
    ) -> Result<Done, FaultError> {
        if let Some(done) = self.fault_in_large(on, tlb, va.0, access)? {
            return Ok(done);
        }
        self.grow_stack(on, tlb, va)?;
        // A second call of `fault` would keep the compiler from inlining the first: the code for
        // shared spaces serves this fault as well. An image with little room may not have it.
        #[cfg(feature = "small")]
        return self.fault(on, tlb, va, access);
        #[cfg(not(feature = "small"))]
        self.fault_contended(on, tlb, va, access)?.ok_or(FaultError::NoArea(va))
    }

    /// Serves a fault at `va` in parallel with others; `None` if the caller must have the space for
    /// itself first.
    #[inline]
    pub(super) fn fault_shared<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        va: VirtAddr,
        access: Access,
    ) -> Result<Option<Done>, FaultError> {
        // Mostly once is enough, and values of the first attempt are not kept for a second.
        match self.fault_once::<M, true>(on, tlb, va, access)? {
            Outcome::Done(done) => Ok(Some(done)),
            Outcome::Exclusive => Ok(None),
            Outcome::Again => self.fault_contended(on, tlb, va, access),
        }
    }

    /// As [`fault_shared`](Self::fault_shared), after another CPU was faster.
    #[cold]
    #[inline(never)]
    fn fault_contended<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        va: VirtAddr,
        access: Access,
    ) -> Result<Option<Done>, FaultError> {
        loop {
            match self.fault_once::<M, true>(on, tlb, va, access)? {
                Outcome::Done(done) => return Ok(Some(done)),
                Outcome::Exclusive => return Ok(None),
                Outcome::Again => {}
            }
        }
    }

    /// Looks at a fault once. `SHARED` says that other CPUs may be serving faults too; `tlb` is the
    /// space's.
    #[inline(always)]
    fn fault_once<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        va: VirtAddr,
        access: Access,
    ) -> Result<Outcome, FaultError> {
        let page = va.0 & !((1 << F::PAGE_SHIFT) - 1);
        // Neighbours in a span of a leaf table share a hint.
        let span = (va.0 >> F::shift(Level(1))) as usize;
        let recent = |span: usize| &self.recent[span % RECENT];
        let (hint, flags) = match self.areas.hinted(on, Hint::load(recent(span)), va.0) {
            Some(found) => found,
            None => {
                // A large area is mostly used upwards: it has been found for the span below.
                let below = Hint::load(recent(span.wrapping_sub(1)));
                let found = self.areas.hinted(on, below, va.0).or_else(|| self.areas.search(on, va.0));
                let Some((hint, flags)) = found else { return self.fault_outside(on, va) };
                hint.store(recent(span));
                (hint, flags)
            }
        };
        let allowed = match access {
            Access::Write => flags.has(AreaFlags::WRITE),
            Access::Read => flags.0 & const { AreaFlags::reads::<F>().0 } != 0,
            Access::Exec => flags.has(AreaFlags::EXEC),
        };
        if !allowed {
            return Err(FaultError::Denied(va));
        }
        if flags.has(AreaFlags::LARGE)
            && let Some(outcome) = self.fault_apart::<M, SHARED>(on, tlb, page, access, hint)?
        {
            return Ok(outcome);
        }
        // One for each use: a call has its own in memory, and the other's stays in registers.
        let at = || FaultPlace { tlb, page, access, flags, hint };
        match self.tables.leaf(on, page) {
            Ok(leaf) => {
                let raw = leaf.load();
                if F::is_none(raw) {
                    self.fault_missing::<M, SHARED>(on, at(), Ok(leaf))
                } else {
                    self.fault_present::<M, SHARED>(on, at(), leaf, raw)
                }
            }
            Err(end) => self.fault_missing::<M, SHARED>(on, at(), Err(end)),
        }
    }

    /// Serves a fault at an address where no area lies.
    #[cold]
    #[inline(never)]
    fn fault_outside<M: SpaceMachine>(&self, on: On<'_, M>, va: VirtAddr) -> Result<Outcome, FaultError> {
        match self.areas.at_or_after(on, va.0) {
            Some(above) if above.flags.has(AreaFlags::GROWS_DOWN) => Ok(Outcome::Exclusive),
            _ => Err(FaultError::NoArea(va)),
        }
    }

    /// Lets the stack just above `va` grow down to it.
    fn grow_stack<M: SpaceMachine>(
        &mut self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        va: VirtAddr,
    ) -> Result<(), FaultError> {
        let none = FaultError::NoArea(va);
        let mut area = self.areas.at_or_after(on, va.0).ok_or(none)?;
        if area.start <= va.0 {
            return Ok(());
        }
        if !area.flags.has(AreaFlags::GROWS_DOWN) {
            return Err(none);
        }
        let start = va.0 & !((1 << F::PAGE_SHIFT) - 1);
        let below = self.areas.last_before(on, va.0);
        // No access runs into an area without permissions, and one that grows down has moved on.
        let guarded = below
            .filter(|a| a.flags.0 & AreaFlags::PERMISSIONS.0 != 0 && !a.flags.has(AreaFlags::GROWS_DOWN));
        if start < guarded.map_or(LOWEST_STACK, |a| a.end + (STACK_GUARD << F::PAGE_SHIFT)) {
            return Err(none);
        }
        // Linux prepares for private pages whatever the access is, and before it looks at the
        // limit.
        self.areas.begin_private_in(on, area.range());
        area = self.areas.at_or_after(on, va.0).ok_or(none)?;
        let old = area.start;
        let grows = (area.end - start) >> F::PAGE_SHIFT <= u64::from(self.stack_limit);
        if grows {
            self.settle(on, tlb, VirtRange::ordered(start, old))?;
            area.offset = area.offset_at(start);
            area.start = start;
        }
        if self.areas.replace(on, old, area) && grows { Ok(()) } else { Err(none) }
    }

    /// Returns the attributes of a page that was used and not written: see [`AreaFlags::attr`].
    pub(super) fn attr(flags: AreaFlags) -> Attr {
        const { assert!(AreaFlags::EXEC.0 as u32 == Attr::EXEC.0) };
        let mut attr = Attr::USER | Attr::ACCESSED;
        if flags.0 & const { AreaFlags::reads::<F>().0 } != 0 {
            attr = attr | Attr::READ;
        }
        attr | Attr(u32::from(flags.0) & Attr::EXEC.0) | flags.key(const { AreaFlags::keys::<F>() })
    }

    /// Returns the attributes of a page that an access has just used.
    pub(super) fn attr_used(flags: AreaFlags, access: Access) -> Attr {
        let written = if access == Access::Write { Attr::WRITE | Attr::DIRTY } else { Attr::default() };
        Self::attr(flags) | written
    }

    /// Notes that the area of the fault holds a private page from now on: fork must copy it.
    #[inline]
    fn note_private<M: SpaceMachine>(&self, on: On<'_, M>, flags: AreaFlags, hint: Hint) {
        if !flags.has(AreaFlags::PRIVATE_PAGES) {
            self.areas.begin_private(on, hint);
        }
    }

    /// Serves a fault on a page that has no entry. In a build with checks it is a call: its values
    /// would lie on the stack of other faults too.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn fault_missing<'a, M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'a, M>,
        at: FaultPlace<'_>,
        leaf: Result<Leaf<'a, F, M>, Descent>,
    ) -> Result<Outcome, FaultError> {
        let FaultPlace { page, access, flags, .. } = at;
        let m = on.machine();
        let attr = Self::attr(flags);
        let backed = flags.has(AreaFlags::BACKED) || flags.has(AreaFlags::SHARED);
        let object = if backed {
            let (object, offset) = self.areas.object_at(on, at.hint, page);
            let frame = m.backing_frame(object, offset >> F::PAGE_SHIFT);
            Some(frame.ok_or(FaultError::BeyondObject(VirtAddr(page)))?)
        } else {
            None
        };
        let private_write = access == Access::Write && !flags.has(AreaFlags::SHARED);
        let (pfn, attr, done) = match (object, private_write) {
            (None, false) => (m.zero_frame(), attr | Attr::SPECIAL, Done::Zero),
            (Some(frame), false) => {
                let write = access == Access::Write;
                let extra = if write { Attr::WRITE | Attr::DIRTY } else { Attr::default() };
                (frame, attr | Attr::SPECIAL | extra, Done::Backed)
            }
            (None, true) => (take_zeroed(on)?, attr | Attr::WRITE | Attr::DIRTY, Done::Fresh),
            (Some(frame), true) => {
                let fresh = Unmapped { on, pfn: take_any(on)? };
                // SAFETY: 1. taken just now. 2. the object keeps its frames (`SpaceMachine`).
                unsafe { m.copy_data(on.pin(), frame, fresh.pfn) }?;
                (fresh.keep(), attr | Attr::WRITE | Attr::DIRTY, Done::Copied)
            }
        };
        on.before_mapped::<F>(attr, pfn, 1);
        let fresh = Unmapped { on, pfn: if private_write { pfn } else { Pfn::NONE } };
        match self.tables.put::<M, SHARED>(on, page, leaf, F::leaf(Level::PTE, pfn, attr)) {
            Ok(true) => {
                core::mem::forget(fresh);
                if private_write {
                    self.note_private(on, flags, at.hint);
                }
                let (linked, place) = (self.tables.take_linked::<M>(), (page, F::PAGE_SHIFT, 1));
                on.became_reachable(Some(at.tlb), linked, place, 0, F::leaf(Level::PTE, pfn, attr));
                if done == Done::Backed && access != Access::Write && m.fault_around() > 1 {
                    self.map_around::<M, SHARED>(on, at.tlb, page, at.hint);
                }
                Ok(Outcome::Done(done))
            }
            lost => {
                drop(fresh);
                lost?;
                Ok(Outcome::Again)
            }
        }
    }

    #[inline(always)]
    fn fault_present<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        at: FaultPlace<'_>,
        leaf: Leaf<'_, F, M>,
        raw: u64,
    ) -> Result<Outcome, FaultError> {
        let FaultPlace { tlb, page, access, flags, hint } = at;
        let others = Use::private(tlb.is_unloaded());
        if F::allows(Level::PTE, raw, access) {
            return Ok(spurious(on, tlb, page, F::PAGE_SHIFT, raw));
        }
        if access != Access::Write {
            // The area allows more than the entry: it was kept without permissions (PROT_NONE), may
            // not have been executed, or has not been used yet. It only gains, so no flush is
            // needed.
            let gain = |raw| Self::gained(Level::PTE, raw, Self::attr(flags));
            let new = gain(raw);
            on.before_changed::<F>(Level::PTE, raw, new);
            let entry = leaf.lock::<SHARED>(on)?;
            // An entry found without the lock is checked again with it.
            if SHARED && raw != entry.load() {
                return Ok(Outcome::Again);
            }
            let was = change(on, tlb, page, &entry, others, (raw, new), gain)?;
            drop(entry);
            on.became_valid(Some(tlb), page, F::PAGE_SHIFT, 1, was, gain(was));
            return Ok(Outcome::Done(Done::Reused));
        }
        let writable = Self::attr(flags) | Attr::WRITE | Attr::DIRTY;
        let old = F::frame(Level::PTE, raw);
        let special = F::is_special(Level::PTE, raw);
        // SAFETY: 1. `old` is a data frame of this machine: spaces map those and special frames.
        // The answer counts only while the entry holds its reference, which is looked at again
        // under the lock.
        let is_sole = || !special && unsafe { DataFrames::is_sole_raw(on.frames(), old) };
        if flags.has(AreaFlags::SHARED) || is_sole() {
            let keep = F::attr(Level::PTE, raw).only(Attr::SPECIAL | Attr::SOFT);
            let new = F::leaf(Level::PTE, old, writable | keep);
            on.before_changed::<F>(Level::PTE, raw, new);
            let entry = leaf.lock::<SHARED>(on)?;
            // As above.
            if SHARED && (!same_page::<F>(raw, entry.load()) || !(flags.has(AreaFlags::SHARED) || is_sole()))
            {
                return Ok(Outcome::Again);
            }
            let was = change(on, tlb, page, &entry, others, (raw, new), |_| new)?;
            drop(entry);
            on.became_valid(Some(tlb), page, F::PAGE_SHIFT, 1, was, new);
            return Ok(Outcome::Done(Done::Reused));
        }
        self.copy_on_write::<M, SHARED>(on, tlb, (page, raw), (flags, hint), leaf)
    }

    /// Gives a page that is written a frame of its own. `raw` is its entry, `leaf` its place. Pairs
    /// are passed in registers: other faults would have a structure in memory, too.
    #[inline(never)]
    fn copy_on_write<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        (page, raw): (u64, u64),
        (flags, hint): (AreaFlags, Hint),
        leaf: Leaf<'_, F, M>,
    ) -> Result<Outcome, FaultError> {
        let others = Use::private(tlb.is_unloaded());
        let (old, m) = (F::frame(Level::PTE, raw), on.machine());
        let new_attr =
            Self::attr(flags) | Attr::WRITE | Attr::DIRTY | F::attr(Level::PTE, raw).only(Attr::SOFT);
        // The frame of zeroes, or one of the block of zeroes that has been split.
        let anonymous = flags.0 & const { AreaFlags::BACKED.with(AreaFlags::SPECIAL).0 } == 0;
        let zero = F::is_special(Level::PTE, raw) && (anonymous || old == m.zero_frame());
        // Before the lock of the entry, which is given up first then.
        let fresh = Unmapped { on, pfn: if zero { take_zeroed(on)? } else { take_any(on)? } };
        let entry = leaf.lock::<SHARED>(on)?;
        if SHARED && !same_page::<F>(raw, entry.load()) {
            return Ok(Outcome::Again);
        }
        if !zero {
            // Under the lock: the entry keeps the old frame from being used for anything else.
            // SAFETY: 1. taken just now. 2. the entry holds a reference to it, and is locked.
            unsafe { m.copy_data(on.pin(), old, fresh.pfn) }?;
        }
        on.before_mapped::<F>(new_attr, fresh.pfn, 1);
        self.note_private(on, flags, hint);
        let new = F::leaf(Level::PTE, fresh.pfn, new_attr);
        let break_first = F::EVER_BREAKS && others == Use::Walked && F::needs_break(Level::PTE, raw, new);
        if break_first || tlb.is_active_elsewhere(on.cpu()) {
            on.tlb().may_flush(on.pin())?;
            let fresh = fresh.keep();
            // No CPU may read the old frame once another has written to the new one. The reference
            // to the old frame goes after the flush: until then another space must not take itself
            // for its only user. It goes after the new entry stands: if the flush unwinds, the old
            // one comes back.
            let mut gather = Gather::one_page(on, tlb, F::PAGE_SHIFT, true, page);
            let broken = BrokenEntry { on, entry: &entry, was: entry.break_off(), fresh: Some(fresh) };
            gather.flush_so_far()?;
            core::mem::forget(broken);
            entry.replace(Use::Walked, |_| new);
            drop(entry);
            // SAFETY: 1. spaces map counted data frames of their machine, each entry with a
            // reference of its own, and special frames. 2. the gather is one of this page, and the
            // entry was broken off before its flush.
            unsafe { release_flushed::<F, M>(on, raw) };
        } else if const { F::KEPT == 0 } && !tlb.owes_flush() {
            let flushed = on.tlb().change_page(on.pin(), tlb, page, F::PAGE_SHIFT, || {
                fresh.keep();
                entry.replace(others, |_| new);
                drop(entry);
            })?;
            // One that was not flushed belongs to nobody.
            if flushed {
                // SAFETY: 1. as above. 2. the entry was replaced before the flush, which has ended.
                unsafe { release_flushed::<F, M>(on, raw) };
            }
        } else {
            on.tlb().may_flush(on.pin())?;
            fresh.keep();
            let mut gather = Gather::one_page(on, tlb, F::PAGE_SHIFT, true, page);
            entry.replace(others, |_| new);
            drop(entry);
            release::<F, M>(&mut gather, Level::PTE, raw);
            drop(gather);
        }
        on.became_valid(Some(tlb), page, F::PAGE_SHIFT, 1, raw, new);
        Ok(Outcome::Done(Done::Copied))
    }
}

/// Serves a fault in the page of 2^`shift` bytes at `page`, whose entry allows the access.
#[inline]
pub(super) fn spurious<M: Machine>(
    on: On<'_, M>,
    tlb: &SpaceTlb,
    page: u64,
    shift: u32,
    raw: u64,
) -> Outcome {
    // The TLB may still hold the former entry, or one from before another CPU linked tables.
    on.became_reachable(Some(tlb), NewEntry::ANY_LEVEL, (page, shift, 1), raw, raw);
    // Or a link of a table that has been unlinked, whose flush was left to this CPU. In the middle
    // of a flush it faults once more.
    let _ = on.tlb().catch_up(on.pin(), Some(tlb));
    Outcome::Done(Done::Spurious)
}

/// Changes the entry of the page at `page`, which keeps its frame, to the result of `new`; the one
/// that was there. `(seen, to)` is the entry that the caller has seen, and the result for it. Where
/// that needs a break, every CPU forgets the page in between.
///
/// # Errors
///
/// [`TlbRefusal`] if that is so in the middle of a flush of this CPU; the entry is unchanged then.
#[inline]
pub(super) fn change<F: Format, M: Machine>(
    on: On<'_, M>,
    tlb: &SpaceTlb,
    page: u64,
    entry: &Locked<'_, '_, F, M>,
    others: Use,
    (seen, to): (u64, u64),
    new: impl Fn(u64) -> u64,
) -> Result<u64, TlbRefusal> {
    match entry.update_seen(seen, to, others, &new) {
        Ok(was) => Ok(was),
        Err(NeedsBreak) => change_broken(on, tlb, page, entry, new),
    }
}

/// As [`change`], where a break is needed.
#[cold]
#[inline(never)]
fn change_broken<F: Format, M: Machine>(
    on: On<'_, M>,
    tlb: &SpaceTlb,
    page: u64,
    entry: &Locked<'_, '_, F, M>,
    new: impl Fn(u64) -> u64,
) -> Result<u64, TlbRefusal> {
    on.tlb().may_flush(on.pin())?;
    let mut gather = Gather::one_page(on, tlb, F::PAGE_SHIFT, true, page);
    let broken = BrokenEntry { on, entry, was: entry.break_off(), fresh: None };
    gather.flush_so_far()?;
    let was = broken.was;
    let raw = new(was);
    core::mem::forget(broken);
    entry.replace(Use::Walked, |_| raw);
    Ok(was)
}

/// An entry that is broken off, and the frame that is to take the place of its own. Dropping it
/// leaves things as they were: for a flush that unwinds.
struct BrokenEntry<'e, 'l, 'a, 'o, F: Format, M: Machine> {
    on: On<'o, M>,
    entry: &'e Locked<'l, 'a, F, M>,
    /// The entry before.
    was: u64,
    /// `None` if the frame stays.
    fresh: Option<Pfn>,
}

impl<F: Format, M: Machine> Drop for BrokenEntry<'_, '_, '_, '_, F, M> {
    #[cold]
    fn drop(&mut self) {
        self.entry.replace(Use::Walked, |_| self.was);
        if let Some(fresh) = self.fresh {
            drop(Unmapped { on: self.on, pfn: fresh });
        }
    }
}

/// Takes a data frame of any content. If memory is exhausted, asks caches to give some up first.
#[inline]
fn take_any<M: Machine>(on: On<'_, M>) -> Result<Pfn, NoFrame> {
    // SAFETY: 1. `on` is one machine.
    let take = || unsafe { on.data().take_raw(on.frames(), on.pin(), AllocFlags::NORMAL) };
    match take() {
        Ok(pfn) => Ok(pfn),
        Err(_) => take_again(on, take),
    }
}

/// Takes a data frame for a page that begins as zero.
#[inline]
fn take_zeroed<M: Machine>(on: On<'_, M>) -> Result<Pfn, NoFrame> {
    match M::take_anonymous(on, AllocFlags::NORMAL) {
        Ok(pfn) => Ok(pfn),
        Err(_) => take_again(on, || M::take_anonymous(on, AllocFlags::NORMAL)),
    }
}

/// Has caches give memory up, and tries once more.
#[cold]
fn take_again<M: Machine>(on: On<'_, M>, take: impl Fn() -> Result<Pfn, NoFrame>) -> Result<Pfn, NoFrame> {
    on.unpark();
    on.data().drain(on.frames(), on.pin());
    on.policy().reclaim(on.node(), 64);
    take()
}

/// The address of a fault, with its area and table. Passed by value: it need not lie in memory
/// before a callee wants it there.
#[derive(Clone, Copy)]
struct FaultPlace<'a> {
    tlb: &'a SpaceTlb,
    /// First address of the page.
    page: u64,
    access: Access,
    /// Those of the area.
    flags: AreaFlags,
    /// Where the area is.
    hint: Hint,
}

/// Returns whether `now` equals `raw`, but for bits that MMUs write.
#[inline]
fn same_page<F: Format>(raw: u64, now: u64) -> bool {
    raw == now
        || (!F::is_none(now)
            && F::frame(Level::PTE, raw) == F::frame(Level::PTE, now)
            && F::is_present(Level::PTE, raw) == F::is_present(Level::PTE, now)
            && F::attr(Level::PTE, raw).has(Attr::WRITE) == F::attr(Level::PTE, now).has(Attr::WRITE))
}
