//! A policy that somebody looks over the shoulder of.
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Flushed, Level, Unhooked};
use ptarmigan::quicklist::{Policy, PolicyCounts};

/// Who looks on. With several workers, what is said of one page comes in its right order: a page is said to be free
/// before anybody can get it.
pub trait Hooks: Sync {
    /// Has `policy` allocate a page.
    ///
    /// # Errors
    /// Those of the policy.
    fn alloc(
        &self,
        policy: &impl Policy,
        pin: &Pinned<'_>,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Clean, NoFrame>;

    /// A page is about to be given back to the policy.
    fn freed(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr);

    /// A gather is about to end.
    fn gather_end(&self, _policy: &impl Policy, _pin: &Pinned<'_>) {}

    /// The policy has got flushed pages.
    fn flushed(&self, _policy: &impl Policy) {}

    /// The CPU is about to be idle.
    fn idle(&self, _pin: &Pinned<'_>) {}
}

/// The policy `inner` with hooks.
pub struct Hooked<'a, P, H> {
    /// The policy.
    pub inner: P,
    /// Who looks on.
    pub hooks: H,
    /// Frames' records.
    pub frames: &'a Frames,
    /// The policy takes pages back when they are unhooked, before they are flushed, as the patch of 2007 did.
    pub early: bool,
}

impl<P: Policy, H: Hooks> Policy for Hooked<'_, P, H> {
    #[inline]
    fn alloc(&self, pin: &Pinned<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        self.hooks.alloc(&self.inner, pin, level, flags)
    }

    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.hooks.freed(pin, level, page.addr());
        self.inner.unused(pin, level, page);
    }

    fn retire(&self, pin: &Pinned<'_>, pages: &mut Unhooked) {
        if self.early {
            pages.each(self.frames, |level, at| self.hooks.freed(pin, level, at));
        }
        self.inner.retire(pin, pages);
    }

    fn flushed(&self, pin: &Pinned<'_>, pages: Flushed) {
        pages.each(self.frames, |level, at| self.hooks.freed(pin, level, at));
        self.inner.flushed(pin, pages);
        self.hooks.flushed(&self.inner);
    }

    fn gather_end(&self, pin: &Pinned<'_>) {
        self.hooks.gather_end(&self.inner, pin);
        self.inner.gather_end(pin);
    }

    fn idle(&self, pin: &Pinned<'_>) {
        self.hooks.idle(pin);
        self.inner.idle(pin);
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
