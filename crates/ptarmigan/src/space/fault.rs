//! Page faults.
use super::area::{Area, AreaFlags};
use super::areas::Hint;
use super::{RECENT, Space, SpaceMachine};
use crate::addr::{Pfn, PhysAddr, VirtAddr};
use crate::cpu::Pinned;
use crate::format::{Attr, Format};
use crate::frames::{AllocFlags, DataFrames, NoFrame};
use crate::page::Level;
use crate::sync::atomic::Ordering::Relaxed;
use crate::table::parts;
use crate::tlb::{Gather, SpaceTlb};
use core::fmt;

/// How a page was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read, or fetched as an instruction.
    Read,
    /// Written.
    Write,
}

/// What a fault did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The shared zero frame was mapped.
    Zero,
    /// A fresh frame was mapped.
    Fresh,
    /// A frame of the backing object was mapped.
    Backed,
    /// A private copy was made.
    Copied,
    /// The only user of a copied page got it back for writing.
    Reused,
    /// The entry was as it should be already.
    Spurious,
}

/// Why a fault could not be served; nothing has changed, except that a stack may have grown to the address.
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
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultError::NoArea(at) => write!(f, "no area at {at}"),
            FaultError::Denied(at) => write!(f, "access at {at} is not allowed"),
            FaultError::BeyondObject(at) => write!(f, "{at} lies beyond the end of what is mapped there"),
            FaultError::NoFrame(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for FaultError {}

impl From<NoFrame> for FaultError {
    fn from(e: NoFrame) -> Self {
        FaultError::NoFrame(e)
    }
}

/// Pages that Linux keeps free below a stack.
const STACK_GUARD: u64 = 256;

/// What came of one look at a fault.
pub(super) enum Outcome {
    /// It has been served.
    Done(Done),
    /// Another CPU has changed the entry meanwhile: look again.
    Again,
    /// A stack has to grow, for which the caller must have the space for itself.
    Exclusive,
}

impl<F: Format> Space<F> {
    /// Serves a fault at `va`.
    ///
    /// # Errors
    ///
    /// [`FaultError`]; nothing has changed then, except that a stack may have grown to `va` (as in Linux, which
    /// looks at permissions afterwards).
    #[inline]
    pub fn fault<M: SpaceMachine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        va: VirtAddr,
        access: Access,
    ) -> Result<Done, FaultError> {
        loop {
            match self.fault_once::<M, false>(m, pin, self.tlb.get(), va, access)? {
                Outcome::Done(done) => return Ok(done),
                Outcome::Again => {}
                Outcome::Exclusive => self.grow_stack(m, va)?,
            }
        }
    }

    /// Looks at a fault once. `SHARED` says that other CPUs may be serving faults too; `tlb` is the space's.
    #[inline(always)]
    pub(super) fn fault_once<M: SpaceMachine, const SHARED: bool>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        tlb: &SpaceTlb,
        va: VirtAddr,
        access: Access,
    ) -> Result<Outcome, FaultError> {
        let page = va.0 & !((1 << F::PAGE_SHIFT) - 1);
        // Neighbours in a span of a leaf table share a hint.
        let recent = &self.recent[(va.0 >> F::shift(Level(1))) as usize % RECENT];
        let mut hint = Hint(recent.load(Relaxed));
        let area = match self.areas.hinted(m, hint, va.0) {
            Some(area) => area,
            None => match self.areas.search(m, va.0) {
                Some((found, area)) if area.start <= va.0 => {
                    hint = found;
                    recent.store(hint.0, Relaxed);
                    area
                }
                Some((_, above)) if above.flags.has(AreaFlags::GROWS_DOWN) => return Ok(Outcome::Exclusive),
                _ => return Err(FaultError::NoArea(va)),
            },
        };
        let flags = area.flags;
        let allowed = match access {
            Access::Write => flags.has(AreaFlags::WRITE),
            Access::Read => flags.0 & AreaFlags::PERMISSIONS.0 != 0,
        };
        if !allowed {
            return Err(FaultError::Denied(va));
        }
        let at = Place { tlb, page, access, area, hint };
        match self.tree.look(m, page) {
            (Some(table), raw) if raw != 0 => self.fault_present::<M, SHARED>(m, pin, &at, table, raw),
            (table, _) => self.fault_missing::<M, SHARED>(m, pin, &at, table),
        }
    }

    /// Lets the stack just above `va` grow down to it.
    #[cold]
    fn grow_stack<M: SpaceMachine>(&mut self, m: &M, va: VirtAddr) -> Result<(), FaultError> {
        let none = FaultError::NoArea(va);
        let mut area = self.areas.at_or_after(m, va.0).ok_or(none)?;
        if area.start <= va.0 {
            return Ok(());
        }
        let start = va.0 & !((1 << F::PAGE_SHIFT) - 1);
        if !area.flags.has(AreaFlags::GROWS_DOWN) || area.end - start > self.stack_limit {
            return Err(none);
        }
        let below = self.areas.last_before(m, va.0).map_or(0, |a| a.end);
        if start < below + (STACK_GUARD << F::PAGE_SHIFT) {
            return Err(none);
        }
        let old = area.start;
        area.start = start;
        if self.areas.replace(m, old, area) { Ok(()) } else { Err(none) }
    }

    fn attr(flags: AreaFlags) -> Attr {
        let mut attr = Attr::USER | Attr::ACCESSED;
        if flags.0 & AreaFlags::PERMISSIONS.0 != 0 {
            attr = attr | Attr::READ;
        }
        if flags.has(AreaFlags::EXEC) {
            attr = attr | Attr::EXEC;
        }
        attr
    }

    /// The area of the fault holds a private page from now on: fork must copy it.
    #[inline(always)]
    fn note_private<M: SpaceMachine>(&self, m: &M, at: &Place<'_>) {
        if !at.area.flags.has(AreaFlags::PRIVATE_PAGES) {
            self.areas.mark(m, at.hint, AreaFlags::PRIVATE_PAGES);
        }
    }

    /// A data frame of any content, after asking caches to give memory up if there is none.
    #[inline(always)]
    fn take_any<M: SpaceMachine>(m: &M, pin: &Pinned<'_>) -> Result<Pfn, NoFrame> {
        match m.data().take(m.frames(), pin, AllocFlags::NORMAL) {
            Ok(pfn) => Ok(pfn),
            Err(_) => Self::take_again(m, pin, |m| m.data().take(m.frames(), pin, AllocFlags::NORMAL)),
        }
    }

    /// The same for a page that begins as zero.
    #[inline(always)]
    fn take_zeroed<M: SpaceMachine>(m: &M, pin: &Pinned<'_>) -> Result<Pfn, NoFrame> {
        match m.take_zeroed(pin, AllocFlags::NORMAL) {
            Ok(pfn) => Ok(pfn),
            Err(_) => Self::take_again(m, pin, |m| m.take_zeroed(pin, AllocFlags::NORMAL)),
        }
    }

    /// Has caches give memory up, and tries once more.
    #[cold]
    fn take_again<M: SpaceMachine>(
        m: &M,
        pin: &Pinned<'_>,
        take: impl Fn(&M) -> Result<Pfn, NoFrame>,
    ) -> Result<Pfn, NoFrame> {
        use crate::quicklist::Policy;
        m.tlb().unpark(parts(m, pin));
        m.data().drain(m.frames(), pin);
        m.policy().reclaim(pin, pin.node(), 64);
        take(m)
    }

    /// Gives back a data frame that was never mapped.
    fn give_data<M: SpaceMachine>(m: &M, pin: &Pinned<'_>, pfn: Pfn) {
        DataFrames::release(m.frames(), pfn);
        m.data().give(m.frames(), pin, pfn);
    }

    fn fault_missing<M: SpaceMachine, const SHARED: bool>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        at: &Place<'_>,
        table: Option<PhysAddr>,
    ) -> Result<Outcome, FaultError> {
        let Place { page, access, area, .. } = *at;
        let flags = area.flags;
        let attr = Self::attr(flags);
        let backed = flags.has(AreaFlags::BACKED) || flags.has(AreaFlags::SHARED);
        let object = if backed {
            let number = area.offset_at(page) >> F::PAGE_SHIFT;
            let frame = m.backing_frame(area.object, number);
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
            (None, true) => (Self::take_zeroed(m, pin)?, attr | Attr::WRITE | Attr::DIRTY, Done::Fresh),
            (Some(frame), true) => {
                let fresh = Self::take_any(m, pin)?;
                m.copy_data(frame, fresh);
                (fresh, attr | Attr::WRITE | Attr::DIRTY, Done::Copied)
            }
        };
        match self.tree.put::<M, SHARED>(m, pin, page, table, F::leaf(pfn, attr)) {
            Ok(true) => {
                if private_write {
                    self.note_private(m, at);
                }
                Ok(Outcome::Done(done))
            }
            lost => {
                if private_write {
                    Self::give_data(m, pin, pfn);
                }
                lost?;
                Ok(Outcome::Again)
            }
        }
    }

    fn fault_present<M: SpaceMachine, const SHARED: bool>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        at: &Place<'_>,
        table: PhysAddr,
        raw: u64,
    ) -> Result<Outcome, FaultError> {
        let Place { tlb, page, access, area, .. } = *at;
        let flags = area.flags;
        let private = tlb.is_unloaded();
        if access == Access::Read || F::is_writable(raw) {
            if F::is_present(raw) {
                return Ok(Outcome::Done(Done::Spurious));
            }
            let entry = self.tree.entry::<M, SHARED>(m, pin, table, page);
            if SHARED && !same_page::<F>(raw, entry.load()) {
                return Ok(Outcome::Again);
            }
            // Kept without permissions (PROT_NONE) and allowed again since: only gains, so nothing to flush.
            let attr = F::attr(raw).without(Attr::WRITE) | Self::attr(flags);
            entry.replace(F::leaf(F::frame(raw), attr), private);
            return Ok(Outcome::Done(Done::Reused));
        }
        let writable = Self::attr(flags) | Attr::WRITE | Attr::DIRTY;
        let old = F::frame(raw);
        let special = F::is_special(raw);
        if flags.has(AreaFlags::SHARED) || (!special && DataFrames::is_sole(m.frames(), old)) {
            let entry = self.tree.entry::<M, SHARED>(m, pin, table, page);
            // What was found without the lock is looked at again with it.
            if SHARED
                && (!same_page::<F>(raw, entry.load())
                    || !(flags.has(AreaFlags::SHARED) || DataFrames::is_sole(m.frames(), old)))
            {
                return Ok(Outcome::Again);
            }
            let keep = if special { Attr::SPECIAL } else { Attr::default() };
            entry.replace(F::leaf(old, writable | keep), private);
            return Ok(Outcome::Done(Done::Reused));
        }
        let zero = special && old == m.zero_frame();
        let fresh = if zero { Self::take_zeroed(m, pin)? } else { Self::take_any(m, pin)? };
        let entry = self.tree.entry::<M, SHARED>(m, pin, table, page);
        if SHARED && !same_page::<F>(raw, entry.load()) {
            drop(entry);
            Self::give_data(m, pin, fresh);
            return Ok(Outcome::Again);
        }
        if !zero {
            // Under the lock: the entry keeps the old frame from being used for anything else.
            m.copy_data(old, fresh);
        }
        self.note_private(m, at);
        let mut gather = Gather::one_page(parts(m, pin), tlb, F::PAGE_SHIFT, page);
        let new = F::leaf(fresh, writable);
        if tlb.is_active_elsewhere(pin.cpu()) {
            // No CPU may read the old frame once another has written to the new one.
            entry.break_off(raw);
            super::release::<F, M>(&mut gather, raw);
            let released = gather.flush();
            entry.replace(new, false);
            drop(entry);
            released.free();
        } else {
            entry.replace(new, private);
            drop(entry);
            super::release::<F, M>(&mut gather, raw);
            gather.finish();
        }
        Ok(Outcome::Done(Done::Copied))
    }
}

/// Where a fault is, and what lies there.
struct Place<'a> {
    tlb: &'a SpaceTlb,
    /// First address of the page.
    page: u64,
    access: Access,
    area: Area,
    hint: Hint,
}

/// Whether `now` is what `raw` was, but for what MMUs write.
#[inline(always)]
fn same_page<F: Format>(raw: u64, now: u64) -> bool {
    raw == now
        || (now != 0
            && F::frame(raw) == F::frame(now)
            && F::is_present(raw) == F::is_present(now)
            && F::is_writable(raw) == F::is_writable(now))
}
