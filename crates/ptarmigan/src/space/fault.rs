//! Page faults.
use super::area::{Area, AreaFlags};
use super::{NO_AREA, RECENT, Space, SpaceMachine};
use crate::addr::{Pfn, PhysAddr, VirtAddr};
use crate::cpu::Pinned;
use crate::format::{Attr, Format};
use crate::frames::{Ask, DataFrames, NoFrame};
use crate::quicklist::Level;
use crate::table::parts;
use crate::tlb::Gather;
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
        let page = va.0 & !((1 << F::PAGE_SHIFT) - 1);
        let recent = Self::recent_index(va.0);
        if !self.recent[recent].range().contains(va.0) {
            self.recent[recent] = self.area_for_fault(m, va)?;
        }
        let area = self.recent[recent];
        let flags = area.flags;
        let allowed = match access {
            Access::Write => flags.has(AreaFlags::WRITE),
            Access::Read => flags.0 & AreaFlags::PERMISSIONS.0 != 0,
        };
        if !allowed {
            return Err(FaultError::Denied(va));
        }
        match self.tree.look(m, page) {
            (table, 0) => self.fault_missing(m, pin, page, access, area, table),
            (_, raw) => self.fault_present(m, pin, page, access, area, raw),
        }
    }

    /// Where the area of a recent fault around `va` is remembered: neighbours in a span of a leaf table share it.
    #[inline(always)]
    fn recent_index(va: u64) -> usize {
        (va >> F::shift(Level(1))) as usize % RECENT
    }

    /// The area at `va`; a stack just above grows down to it.
    fn area_for_fault<M: SpaceMachine>(&mut self, m: &M, va: VirtAddr) -> Result<Area, FaultError> {
        let none = FaultError::NoArea(va);
        let mut area = self.areas.at_or_after(m, va.0).ok_or(none)?;
        if area.start <= va.0 {
            return Ok(area);
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
        if !self.areas.replace(m, old, area) {
            return Err(none);
        }
        // Other memories of it have its old start.
        self.forget();
        Ok(area)
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

    /// `area`, which a fault at `va` met, holds a private page from now on: fork must copy it.
    #[inline(always)]
    fn note_private<M: SpaceMachine>(&mut self, m: &M, va: u64, mut area: Area) {
        if !area.flags.has(AreaFlags::PRIVATE_PAGES) {
            area.flags = area.flags.with(AreaFlags::PRIVATE_PAGES);
            self.recent[Self::recent_index(va)] = area;
            let known = self.areas.replace(m, area.start, area);
            debug_assert!(known, "the area of the fault is gone");
        }
    }

    /// A data frame, after asking caches to give memory up if there is none.
    #[inline]
    fn take_data<M: SpaceMachine>(m: &M, pin: &Pinned<'_>) -> Result<Pfn, NoFrame> {
        m.data().take(m.frames(), pin, Ask::NORMAL).or_else(|_| {
            use crate::quicklist::Policy;
            m.data().drain(m.frames(), pin);
            m.policy().reclaim(pin, pin.node(), 64);
            m.data().take(m.frames(), pin, Ask::NORMAL)
        })
    }

    fn fault_missing<M: SpaceMachine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        page: u64,
        access: Access,
        area: Area,
        table: Option<PhysAddr>,
    ) -> Result<Done, FaultError> {
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
            (object, true) => {
                let fresh = Self::take_data(m, pin)?;
                match object {
                    Some(frame) => m.copy_data(frame, fresh),
                    None => m.clear_data(fresh),
                }
                let done = if object.is_some() { Done::Copied } else { Done::Fresh };
                (fresh, attr | Attr::WRITE | Attr::DIRTY, done)
            }
        };
        match self.tree.put(m, pin, page, table, F::leaf(pfn, attr)) {
            Ok(()) => {
                if private_write {
                    self.note_private(m, page, area);
                }
                Ok(done)
            }
            Err(e) => {
                if private_write {
                    DataFrames::release(m.frames(), pfn);
                    m.data().give(m.frames(), pin, pfn);
                }
                Err(e.into())
            }
        }
    }

    fn fault_present<M: SpaceMachine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        page: u64,
        access: Access,
        area: Area,
        raw: u64,
    ) -> Result<Done, FaultError> {
        let flags = area.flags;
        let private = self.tlb.is_unloaded();
        if access == Access::Read || F::is_writable(raw) {
            if F::is_present(raw) {
                return Ok(Done::Spurious);
            }
            // Kept without permissions (PROT_NONE) and allowed again since: only gains, so nothing to flush.
            let attr = F::attr(raw).without(Attr::WRITE) | Self::attr(flags);
            self.tree.change(m, page, private, |_| F::leaf(F::frame(raw), attr));
            return Ok(Done::Reused);
        }
        let writable = Self::attr(flags) | Attr::WRITE | Attr::DIRTY;
        let old = F::frame(raw);
        let special = F::is_special(raw);
        if flags.has(AreaFlags::SHARED) || (!special && DataFrames::is_sole(m.frames(), old)) {
            let keep = if special { Attr::SPECIAL } else { Attr::default() };
            self.tree.change(m, page, private, |_| F::leaf(old, writable | keep));
            return Ok(Done::Reused);
        }
        let fresh = Self::take_data(m, pin)?;
        if special && old == m.zero_frame() {
            m.clear_data(fresh);
        } else {
            m.copy_data(old, fresh);
        }
        self.tree.change(m, page, private, |_| F::leaf(fresh, writable));
        self.note_private(m, page, area);
        let mut gather = Gather::one_page(parts(m, pin), &self.tlb, F::PAGE_SHIFT, page);
        super::release::<F, M>(&mut gather, raw);
        gather.finish();
        Ok(Done::Copied)
    }

    /// Forgets the areas of recent faults: areas are about to change.
    #[inline(always)]
    pub(super) fn forget(&mut self) {
        self.recent = [NO_AREA; RECENT];
    }
}
