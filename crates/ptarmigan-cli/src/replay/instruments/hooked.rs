//! A policy with hooks around its calls.
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::frames::{Ask, Frames, NoFrame};
use ptarmigan::quicklist::{Clean, Flushed, Level, Policy, PolicyCounts, Unhooked};

/// Hooks around the calls of a policy. With several workers, the hooks see the events of each page
/// in order: a page is reported as freed before it can be allocated again.
pub trait Hooks: Sync {
    /// Makes `policy` allocate a page.
    ///
    /// # Errors
    /// As the policy.
    fn alloc(&self, policy: &impl Policy, pin: &Pinned<'_>, level: Level, ask: Ask)
    -> Result<Clean, NoFrame>;

    /// Called before a page is given back to the policy.
    fn freed(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr);

    /// Called before a gather ends.
    fn gather_end(&self, _policy: &impl Policy, _pin: &Pinned<'_>) {}

    /// Called after the policy has taken flushed pages back.
    fn flushed(&self, _policy: &impl Policy) {}

    /// Called before the CPU is idle.
    fn idle(&self, _pin: &Pinned<'_>) {}
}

/// The policy `inner` with hooks.
pub struct Hooked<'a, P, H> {
    /// The policy.
    pub inner: P,
    /// The hooks.
    pub hooks: H,
    /// The frames and their records.
    pub frames: &'a Frames,
    /// Whether the policy takes pages back when they are unhooked, before the flush, as the patch
    /// of 2007 did.
    pub early: bool,
}

impl<P: Policy, H: Hooks> Policy for Hooked<'_, P, H> {
    #[inline]
    fn alloc(&self, pin: &Pinned<'_>, level: Level, ask: Ask) -> Result<Clean, NoFrame> {
        self.hooks.alloc(&self.inner, pin, level, ask)
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
