//! Wrappers of policies: hooks around their calls.
//!
//! [`Layered`] forwards every call to the policy inside and tells its [`Layer`] of it. As it does
//! so in one place, no wrapper forgets to forward a method. Layers may be stacked.
use super::{Here, Policy, PolicyCounts, Returned, TakesUnhooked};
use crate::addr::PhysAddr;
use crate::cpu::{MachineId, NodeId, Pinned, Refused};
use crate::frames::{AllocFlags, Frames, NoFrame};
use crate::page::{Clean, Flushed, FlushedLeaves, Level, Unhooked};
use core::mem::ManuallyDrop;

/// Hooks around the calls of a policy `P`. The default of each hook has no effect.
///
/// A hook runs just before the call that it is named after is passed on. `policy` is the policy
/// inside; calls that a layer makes to it do not pass through the layer's own hooks.
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. A page that [`alloc`](Self::alloc) returns is the one that `inner` returned in the same call.
///
/// A hook may unwind. Pages that the call was to give back go back all the same.
///
/// ```compile_fail,E0200
/// use ptarmigan::{frames::Frames, quicklist::{Layer, Policy}};
/// struct Silent;
/// impl<P: Policy> Layer<P> for Silent {
///     fn frames(&self) -> Option<&Frames> { None } // and which pages does it hand out?
/// }
/// ```
pub unsafe trait Layer<P: Policy + ?Sized>: Sync {
    /// Returns the frames in whose records chains are linked if [`freeing`](Self::freeing) is to be
    /// called for every page, and `None` if it has no effect. They are the same frames each time;
    /// those of another machine name wrong tables, or panic. There is no default, so that a layer
    /// that defines the one does not forget the other.
    fn frames(&self) -> Option<&Frames>;

    /// Allocates: `inner` does so in the policy inside. A layer may refuse, look at the page, or
    /// take the time.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no state has changed then.
    #[inline]
    fn alloc(
        &self,
        policy: &P,
        pin: &Pinned<'_>,
        level: Level,
        flags: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let _ = (policy, pin, level, flags);
        inner()
    }

    /// The policy inside has taken a page into its books; see [`Policy::adopt`]. It must not
    /// unwind.
    #[inline]
    fn adopted(&self, policy: &P, pin: &Pinned<'_>, page: &Clean) {
        let _ = (policy, pin, page);
    }

    /// A table comes back: unlinked, flushed, or unhooked if the policy inside [takes it
    /// then](TakesUnhooked). It cannot be handed out yet. Each table is told of once.
    #[inline]
    fn freeing(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr) {
        let _ = (pin, level, at);
    }

    /// See [`Policy::free_unlinked`].
    #[inline]
    fn free_unlinked(&self, policy: &P, pin: &Pinned<'_>, page: &Clean) {
        let _ = (policy, pin, page);
    }

    /// See [`Policy::flushed`].
    #[inline]
    fn flushed(&self, policy: &P, pin: &Pinned<'_>, pages: &Flushed) {
        let _ = (policy, pin, pages);
    }

    /// The policy inside has taken flushed pages back.
    #[inline]
    fn after_flushed(&self, policy: &P, pin: &Pinned<'_>) {
        let _ = (policy, pin);
    }

    /// See [`Policy::gather_end`].
    #[inline]
    fn gather_end(&self, policy: &P, pin: &Pinned<'_>) {
        let _ = (policy, pin);
    }

    /// See [`Policy::idle`].
    #[inline]
    fn idle(&self, policy: &P, pin: &Pinned<'_>) {
        let _ = (policy, pin);
    }

    /// See [`Policy::end_interval`].
    #[inline]
    fn end_interval(&self, policy: &P, pin: &Pinned<'_>) {
        let _ = (policy, pin);
    }

    /// See [`Policy::reclaim`].
    #[inline]
    fn reclaim(&self, policy: &P, pin: &Pinned<'_>, node: NodeId, want: u32) {
        let _ = (policy, pin, node, want);
    }

    /// See [`Policy::drain`].
    #[inline]
    fn drain(&self, policy: &P, pin: &Pinned<'_>) {
        let _ = (policy, pin);
    }
}

/// Pages that go back to the policy inside when this is dropped, also if the layer's code unwinds.
struct GoesBack<T, G: Fn(T)> {
    what: ManuallyDrop<T>,
    give: G,
}

impl<T, G: Fn(T)> GoesBack<T, G> {
    #[inline]
    fn new(what: T, give: G) -> Self {
        GoesBack { what: ManuallyDrop::new(what), give }
    }
}

impl<T, G: Fn(T)> Drop for GoesBack<T, G> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: 1. it is used no more after this.
        (self.give)(unsafe { ManuallyDrop::take(&mut self.what) });
    }
}

/// The policy `P` with the layer `L` around it.
pub struct Layered<L, P> {
    layer: L,
    inner: P,
}

impl<L: Layer<P>, P: Policy> Layered<L, P> {
    /// Puts `layer` around `inner`.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`](crate::cpu::WrongMachine), with both, if the layer was made for the
    /// [frames](Layer::frames) of another machine than the policy.
    pub fn new(layer: L, inner: P) -> Result<Self, Refused<(L, P)>> {
        let accepted = layer.frames().map_or(Ok(()), |frames| inner.machine().accept(frames.machine()));
        match accepted {
            Ok(()) => Ok(Layered { layer, inner }),
            Err(error) => Err(Refused { value: (layer, inner), error }),
        }
    }
}

impl<L, P> Layered<L, P> {
    /// Returns the layer.
    pub const fn layer(&self) -> &L {
        &self.layer
    }

    /// Returns the policy inside.
    pub const fn inner(&self) -> &P {
        &self.inner
    }
}

// SAFETY: 1. to 4. are promises of `P`, which all calls are passed on to, and whose answers these
// are. `L` returns the pages that `P` handed out (contract of `Layer`, 1.), and sees the others by
// reference only; it gets the pin, not the proof.
unsafe impl<L: Layer<P>, P: Policy> Policy for Layered<L, P> {
    fn machine(&self) -> MachineId {
        self.inner.machine()
    }

    fn cpus(&self) -> usize {
        self.inner.cpus()
    }

    #[inline]
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        self.inner.takes_unhooked().is_some().then_some(self)
    }
    #[inline]
    fn root(&self) -> Option<Level> {
        self.inner.root()
    }

    #[inline]
    fn alloc(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        let inner = || self.inner.alloc(here, level, flags);
        self.layer.alloc(&self.inner, here.pin(), level, flags, inner)
    }

    /// The layer sees requests.
    #[inline]
    fn alloc_at_hand(&self, _: Here<'_>, _: Level, _: AllocFlags) -> Option<Clean> {
        None
    }

    fn adopt(&self, here: Here<'_>, page: &Clean) {
        self.inner.adopt(here, page);
        self.layer.adopted(&self.inner, here.pin(), page);
    }

    #[inline]
    fn free_unlinked(&self, here: Here<'_>, page: Returned<Clean>) {
        // The layer's code may unwind, and the page goes back all the same.
        let page = GoesBack::new(page, |page| self.inner.free_unlinked(here, page));
        let page = &*page.what;
        self.layer.free_unlinked(&self.inner, here.pin(), page);
        if self.layer.frames().is_some() {
            self.layer.freeing(here.pin(), page.level(), page.addr());
        }
    }

    #[inline]
    fn flushed(&self, here: Here<'_>, pages: Returned<Flushed>) {
        // As in `free_unlinked`.
        let pages = GoesBack::new(pages, |pages| self.inner.flushed(here, pages));
        self.layer.flushed(&self.inner, here.pin(), &pages.what);
        if let Some(frames) = self.layer.frames() {
            pages.what.each(frames, |level, at| self.layer.freeing(here.pin(), level, at));
        }
        drop(pages);
        self.layer.after_flushed(&self.inner, here.pin());
    }

    /// The layer sees chains.
    #[inline]
    fn flushed_leaves<'t>(
        &self,
        _: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        Err(pages)
    }

    #[inline]
    fn gather_end(&self, here: Here<'_>) {
        self.layer.gather_end(&self.inner, here.pin());
        self.inner.gather_end(here)
    }

    #[inline]
    fn idle(&self, here: Here<'_>) {
        self.layer.idle(&self.inner, here.pin());
        self.inner.idle(here)
    }

    #[inline]
    fn end_interval(&self, here: Here<'_>) -> u32 {
        self.layer.end_interval(&self.inner, here.pin());
        self.inner.end_interval(here)
    }

    #[inline]
    fn reclaim(&self, here: Here<'_>, node: NodeId, want: u32) -> u32 {
        self.layer.reclaim(&self.inner, here.pin(), node, want);
        self.inner.reclaim(here, node, want)
    }

    #[inline]
    fn drain(&self, here: Here<'_>) {
        self.layer.drain(&self.inner, here.pin());
        self.inner.drain(here)
    }

    fn counts(&self) -> PolicyCounts {
        self.inner.counts()
    }
}

// SAFETY: it is part of the `Policy` above. Of that contract: 3. the policy inside hands the tables
// out again, or leaves them in the chain. The layer is told where they are, and gets no page. 4.
// the proof and the tables go on to a part of `inner`, which has its machine and its CPUs. `inner`
// handed the tables out, as the layer only passes pages on.
unsafe impl<L: Layer<P>, P: Policy> TakesUnhooked for Layered<L, P> {
    fn take_unhooked(
        &self,
        here: Here<'_>,
        pages: Returned<&mut Unhooked>,
        taking: &mut dyn FnMut(Level, PhysAddr),
    ) {
        let Some(inner) = self.inner.takes_unhooked() else { return };
        let is_told = self.layer.frames().is_some();
        let mut taking = |level, at| {
            taking(level, at);
            if is_told {
                self.layer.freeing(here.pin(), level, at);
            }
        };
        inner.take_unhooked(here, pages, &mut taking)
    }
}
