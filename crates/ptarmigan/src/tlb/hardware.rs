//! The machine beneath: the thin, hardware-specific leaf.
use super::request::{Invalidation, Root, SpaceId};
use crate::cpu::{CpuSet, Pinned};
use crate::sync;

/// What a CPU can do to its own TLB.
///
/// # Safety
///
/// An implementation promises:
/// 1. When [`invalidate`](Self::invalidate) returns, the calling CPU (every CPU, if [`BROADCASTS`](Self::BROADCASTS))
///    has forgotten what the request's scope covers of the space under its number, the paging-structure caches
///    included if `tables_freed`, and uses none of it for accesses that come later.
/// 2. When [`load`](Self::load) returns, the calling CPU uses no translation of another space's non-global pages, and
///    unless `keep` none of the space itself that is older than the call.
/// 3. When [`unload`](Self::unload) returns, the calling CPU walks no tables of user space.
pub unsafe trait Mmu: Sync {
    /// An invalidation on one CPU reaches all of them: AArch64's inner-shareable `TLBI`, x86's `INVLPGB`.
    const BROADCASTS: bool = false;

    /// Forgets.
    fn invalidate(&self, pin: &Pinned<'_>, request: &Invalidation);

    /// Loads a space's root.
    fn load(&self, pin: &Pinned<'_>, root: &Root);

    /// This CPU keeps the root loaded but runs nothing of the space.
    fn lazy(&self, _pin: &Pinned<'_>, _space: SpaceId) {}

    /// This CPU runs in the space again whose root it had kept loaded; nothing was flushed in between that it missed.
    fn resume(&self, _pin: &Pinned<'_>, _space: SpaceId) {}

    /// Loads the kernel's own root.
    fn unload(&self, pin: &Pinned<'_>, space: SpaceId);
}

/// How a CPU gets the attention of others, and how it waits for them.
///
/// Nothing here is trusted: a request counts as carried out when its CPU says so, not when it was sent. An
/// implementation that loses requests makes CPUs wait for ever, no worse; so sending is repeated now and then.
pub trait Ipi: Sync {
    /// Makes each of `cpus` call [`Tlb::serve`](super::Tlb::serve) soon: an inter-processor interrupt. `serve` is that
    /// function; a machine on which the caller may act for another CPU (one that nobody runs on) calls it with that
    /// CPU's pin instead.
    fn send(&self, pin: &Pinned<'_>, cpus: &CpuSet, serve: &dyn Fn(&Pinned<'_>));

    /// Turn number `turn` (from 1) of a wait for another CPU. The caller serves its own CPU between the turns; a
    /// machine that may run out of processors gives way here.
    #[inline]
    fn wait(&self, _pin: &Pinned<'_>, _turn: u32) {
        sync::spin();
    }
}

/// A machine that can shoot translations down: its MMUs and its interrupts.
pub trait Shootdown: Mmu + Ipi {}

impl<T: Mmu + Ipi> Shootdown for T {}
