//! Charging table pages to owners: a policy around another one.
//!
//! A page is charged when it is handed out, whether it rested or is new, and uncharged when it comes back; so what rests is
//! charged to nobody, and a cache neither keeps an owner's charge nor lets him skip it (H18, REQ-20). The owner is noted
//! beside the frame: a page is uncharged from whoever was charged for it, on whatever CPU and for whomever it comes back.
//!
//! Who charges nobody uses the policy as it is, and pays nothing.
use super::{Policy, PolicyCounts};
use crate::addr::PhysAddr;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{NodeId, Pinned};
use crate::frames::{AllocFlags, Frames, NoFrame};
use crate::page::{Clean, Flushed, Layout, Level};
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Whom pages are charged to: a number that the [`Charge`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub NonZeroU32);

/// Whoever keeps the accounts.
pub trait Charge: Sync {
    /// Charges `bytes` for a table of `level` to whoever this CPU is working for: to whom; `None` if he may have no more, and
    /// then nothing is charged.
    fn charge(&self, pin: &Pinned<'_>, level: Level, bytes: usize) -> Option<Owner>;

    /// Takes back what was charged to `owner` for one table. The CPU may be any.
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

/// A policy whose pages are charged. For policies that take pages in [`Policy::flushed`]: one that takes them earlier, in
/// `retire`, as those of history did, gets them when they have been flushed.
///
/// Tables smaller than a frame share one, and are not charged.
pub struct Charged<'m, P, H> {
    inner: P,
    hook: H,
    frames: &'m Frames,
    layout: Layout,
    base: u32,
    /// Of each frame: the owner's number; 0: charged to nobody. Whoever has the page writes it.
    owners: BootSlice<AtomicU32>,
}

impl<'m, P: Policy, H: Charge> Charged<'m, P, H> {
    /// Has `hook` charge for what `inner` hands out of `frames`, for trees of `layout`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if a word for each frame does not fit.
    pub fn new(
        boot: &mut BootMemory,
        frames: &'m Frames,
        layout: Layout,
        inner: P,
        hook: H,
    ) -> Result<Self, BootMemoryShort> {
        let (base, span) = frames.span();
        let owners = boot.take(span as usize, |_| AtomicU32::new(0))?;
        Ok(Charged { inner, hook, frames, layout, base, owners })
    }

    /// Boot memory for `frames`.
    pub fn bytes(frames: &Frames) -> usize {
        BootMemory::bytes::<AtomicU32>(frames.span().1 as usize)
    }

    /// The policy inside.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Whoever keeps the accounts.
    pub fn hook(&self) -> &H {
        &self.hook
    }

    /// Whom the page at `at`, which the caller has, is charged to.
    pub fn owner(&self, at: PhysAddr) -> Option<Owner> {
        let owner = self.word(at)?.load(Relaxed);
        NonZeroU32::new(owner).map(Owner)
    }

    fn word(&self, at: PhysAddr) -> Option<&AtomicU32> {
        self.owners.get(at.pfn().0.wrapping_sub(self.base) as usize)
    }

    fn bytes_of(&self, level: Level) -> usize {
        self.layout.table_bytes(level) as usize
    }

    /// A page comes back.
    fn uncharge(&self, level: Level, at: PhysAddr) {
        if !self.layout.is_small(level)
            && let Some(word) = self.word(at)
            && let Some(owner) = NonZeroU32::new(word.load(Relaxed)).map(Owner)
        {
            word.store(0, Relaxed);
            self.hook.uncharge(owner, level, self.bytes_of(level));
        }
    }
}

impl<P: Policy, H: Charge> Policy for Charged<'_, P, H> {
    /// As the policy inside.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] as well if the charge is refused: that frames are free, which it says, tells the one from the other. Nothing
    /// has changed then, and nothing is charged.
    fn alloc(&self, pin: &Pinned<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        if self.layout.is_small(level) {
            return self.inner.alloc(pin, level, flags);
        }
        let bytes = self.bytes_of(level);
        let Some(owner) = self.hook.charge(pin, level, bytes) else {
            let free = self.frames.node_free(pin.node());
            return Err(NoFrame::new(self.layout.order(level), pin.node(), free));
        };
        match self.inner.alloc(pin, level, flags) {
            Ok(page) => {
                if let Some(word) = self.word(page.addr()) {
                    word.store(owner.0.get(), Relaxed);
                }
                Ok(page)
            }
            Err(e) => {
                self.hook.uncharge(owner, level, bytes);
                Err(e)
            }
        }
    }

    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.uncharge(level, page.addr());
        self.inner.unused(pin, level, page);
    }

    fn flushed(&self, pin: &Pinned<'_>, pages: Flushed) {
        pages.each(self.frames, |level, at| self.uncharge(level, at));
        self.inner.flushed(pin, pages);
    }

    fn gather_end(&self, pin: &Pinned<'_>) {
        self.inner.gather_end(pin);
    }

    fn idle(&self, pin: &Pinned<'_>) {
        self.inner.idle(pin);
    }

    fn age(&self, pin: &Pinned<'_>) -> u32 {
        self.inner.age(pin)
    }

    fn reclaim(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        self.inner.reclaim(pin, node, want)
    }

    fn drain(&self, pin: &Pinned<'_>) {
        self.inner.drain(pin);
    }

    fn counts(&self) -> PolicyCounts {
        self.inner.counts()
    }
}
