//! Charging table pages to owners: a layer around a policy.
//!
//! A page is charged when it is handed out, whether it rested or is new, and uncharged when it
//! comes back. So a page that rests is charged to nobody: a cache neither keeps an owner's charge
//! nor lets the owner skip it. The owner is noted beside the frame, so the right owner is uncharged
//! on whatever CPU the page comes back.
//!
//! A policy without the layer has no cost.
use super::{Layer, Policy};
use crate::addr::PhysAddr;
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::Pinned;
use crate::frames::{AllocFlags, Frames, MemorySize, NoFrame, PerFrame};
use crate::page::{Clean, Layout, Level};
use core::mem::forget;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// An owner of pages: a number that the [`Charge`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub NonZeroU32);

/// The accounts.
pub trait Charge: Sync {
    /// Charges `bytes` for a table of `level` to the owner that this CPU is working for, and
    /// returns it. Returns `None`, without a charge, if the owner has reached its limit.
    fn charge(&self, pin: &Pinned<'_>, level: Level, bytes: usize) -> Option<Owner>;

    /// Takes back the charge to `owner` for one table. The CPU may be any.
    fn uncharge(&self, owner: Owner, level: Level, bytes: usize);
}

impl<H: Charge> Charge for &H {
    fn charge(&self, pin: &Pinned<'_>, level: Level, bytes: usize) -> Option<Owner> {
        (**self).charge(pin, level, bytes)
    }
    fn uncharge(&self, owner: Owner, level: Level, bytes: usize) {
        (**self).uncharge(owner, level, bytes);
    }
}

/// A [`Layer`] that charges pages to owners. An allocation whose charge is refused fails with
/// [`NoFrame`]: that frames are free, which it says, tells it from a lack of memory.
///
/// Tables smaller than a frame share one, and are not charged.
pub struct Charged<'m, H> {
    hook: H,
    frames: &'m Frames,
    layout: Layout,
    /// Of each frame: the owner's number; 0: charged to nobody. The code that has the page writes
    /// it.
    owners: PerFrame<AtomicU32>,
}

impl<'m, H: Charge> Charged<'m, H> {
    /// Has `hook` charge for pages of `frames` that are handed out, for trees of `layout`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if a word for each frame does not fit.
    pub fn new(
        boot: &mut BootMemory,
        frames: &'m Frames,
        layout: Layout,
        hook: H,
    ) -> Result<Self, BootMemoryShort> {
        let owners = PerFrame::new(boot, frames, || AtomicU32::new(0))?;
        Ok(Charged { hook, frames, layout, owners })
    }
}

impl<H> Charged<'_, H> {
    /// Returns the bytes of boot memory that memory of this size takes.
    pub fn bytes(size: &MemorySize) -> usize {
        PerFrame::<AtomicU32>::bytes(size)
    }

    /// Returns the accounts.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    /// Returns the owner to whom the page at `at`, which the caller has, is charged.
    pub fn owner(&self, at: PhysAddr) -> Option<Owner> {
        let owner = self.word(at)?.load(Relaxed);
        NonZeroU32::new(owner).map(Owner)
    }

    fn word(&self, at: PhysAddr) -> Option<&AtomicU32> {
        self.owners.of(self.frames, at.pfn())
    }

    fn bytes_of(&self, level: Level) -> usize {
        self.layout.table_bytes(level) as usize
    }
}

/// A charge for which there is no page yet: taken back when dropped.
struct Unused<'a, H: Charge> {
    hook: &'a H,
    owner: Owner,
    level: Level,
    bytes: usize,
}

impl<H: Charge> Drop for Unused<'_, H> {
    fn drop(&mut self) {
        self.hook.uncharge(self.owner, self.level, self.bytes);
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy, H: Charge> Layer<P> for Charged<'_, H> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.frames)
    }

    fn alloc(
        &self,
        _: &P,
        pin: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        if self.layout.is_small(level) {
            return inner();
        }
        let bytes = self.bytes_of(level);
        let Some(owner) = self.hook.charge(pin, level, bytes) else {
            let free = self.frames.node_free(pin.node());
            return Err(NoFrame::new(self.layout.order(level), pin.node(), free));
        };
        // The charge goes if there is no page, also because the policy inside unwinds.
        let unused = Unused { hook: &self.hook, owner, level, bytes };
        let page = inner()?;
        forget(unused);
        if let Some(word) = self.word(page.addr()) {
            word.store(owner.0.get(), Relaxed);
        }
        Ok(page)
    }

    fn freeing(&self, _: &Pinned<'_>, level: Level, at: PhysAddr) {
        if !self.layout.is_small(level)
            && let Some(word) = self.word(at)
            && let Some(owner) = NonZeroU32::new(word.load(Relaxed)).map(Owner)
        {
            word.store(0, Relaxed);
            self.hook.uncharge(owner, level, self.bytes_of(level));
        }
    }
}
