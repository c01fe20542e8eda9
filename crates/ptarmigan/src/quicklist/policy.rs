//! Defines the operations of every policy, and the safe way to call them.
use super::{Here, PolicyCounts, Returned};
use crate::addr::PhysAddr;
use crate::cpu::{MachineId, NodeId, Pinned};
use crate::frames::{AllocFlags, NoFrame};
use crate::page::{Clean, Flushed, FlushedLeaves, Level, Unhooked};

/// Where table pages come from and where they rest.
///
/// # One proof of place
///
/// A policy keeps values for each CPU and reaches them by the CPU's number, unchecked: a hit takes
/// some forty instructions, and a check would be paid in each. So the methods take a [`Here`], the
/// proof that the caller's pin is of this policy's machine. Code outside cannot make one:
/// [`PolicyOn`] checks a pin against a policy once, and calls that policy with its proof. Likewise
/// [`Returned`] tables are known to come from this policy. So no method is unsafe, and the
/// conditions stand once, in the contract below.
///
/// # Interrupts
///
/// Policies are for code that may be preempted, not for interrupt handlers. A handler that finds
/// its CPU's magazines in use goes past them, without harm. But the locks of the depots and of the
/// frame allocator are taken without masking interrupts, so a handler may wait for a lock that its
/// own CPU holds. A kernel whose handlers need tables masks interrupts around these calls.
///
/// # Wrappers
///
/// No method has a default body: a policy around another one would forget to forward it. Wrappers
/// are [`Layer`](super::Layer)s.
///
/// # Safety
///
/// Trees link the pages that a policy hands out, and never look at them. An implementation must
/// ensure:
///
/// 1. [`machine`](Self::machine), [`cpus`](Self::cpus) and [`takes_unhooked`](Self::takes_unhooked)
///    answer the same each time. The pages are frames of that machine.
/// 2. A page that [`alloc`](Self::alloc) or [`alloc_at_hand`](Self::alloc_at_hand) returns is of
///    the level that was asked for.
/// 3. Tables that come [flushed](Self::flushed) or were [never linked](Self::free_unlinked) may be
///    handed out again, to one caller each. Others are not, but for those that
///    [`TakesUnhooked`] took, which models of such code hand out too early.
/// 4. A [`Here`] goes on only to policies with the same [`machine`](Self::machine) and no fewer
///    [`cpus`](Self::cpus), and [`Returned`] tables only to the policy that handed them out. The
///    answer of [`takes_unhooked`](Self::takes_unhooked) is a part of this policy.
///
/// ```compile_fail,E0200
/// struct Swaps;
/// impl ptarmigan::quicklist::Policy for Swaps {} // what does it do with chains?
/// ```
pub unsafe trait Policy: Sync {
    /// Returns the machine that this policy was made for.
    fn machine(&self) -> MachineId;

    /// Returns the number of CPUs that this policy was made for.
    fn cpus(&self) -> usize;

    /// Returns the call by which the policy takes tables before their flush, as Linux once did.
    /// `None` for policies that respect TLBs.
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked>;

    /// Returns the level of its root tables; `None` if it does not tell them from others. A gather
    /// refuses roots that are not its own by it.
    fn root(&self) -> Option<Level> {
        None
    }

    /// Hands out a page for a table of `level`, in that level's state.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no state has changed then. It is absent for a level that trees do not have.
    fn alloc(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame>;

    /// Hands out a page as [`alloc`](Self::alloc) does, if that takes no more than a few
    /// instructions; a policy that looks at requests, or has no page at hand, returns `None`.
    fn alloc_at_hand(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Option<Clean>;

    /// Takes a page into the books that a tree made itself, of a frame that it had
    /// [reserved](crate::table::Tree::reserved) when nothing else was free: as if
    /// [`alloc`](Self::alloc) had handed it out. It comes back like others.
    ///
    /// It must not unwind: a part of a large page is being taken away.
    fn adopt(&self, here: Here<'_>, page: &Clean);

    /// Takes back a page that was never linked, so that no flush is needed.
    fn free_unlinked(&self, here: Here<'_>, page: Returned<Clean>);

    /// Takes back pages that no TLB knows any more.
    fn flushed(&self, here: Here<'_>, pages: Returned<Flushed>);

    /// Takes back leaf tables that no TLB knows any more, on the shortest way. A policy that looks
    /// at them, or has no room for them at hand, refuses. It must not unwind.
    ///
    /// # Errors
    ///
    /// The tables that it does not take: they come [flushed](Self::flushed) then, as others of
    /// their space do.
    fn flushed_leaves<'t>(
        &self,
        here: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>>;

    /// Does a bounded amount of trimming: a gather has ended on this CPU.
    fn gather_end(&self, here: Here<'_>);

    /// Does a bounded amount of trimming on a CPU that is idle. An idle CPU can also call
    /// [`On::clear_ahead`](crate::machine::On::clear_ahead).
    fn idle(&self, here: Here<'_>);

    /// Ends an interval, of a second or so, and begins the next: gives back a bounded number of
    /// pages that the caller's node did not need in it. Returns how many. A timer calls it, once
    /// for each node.
    fn end_interval(&self, here: Here<'_>) -> u32;

    /// Gives back up to `want` frames that are cached for `node`, which is short of memory. Returns
    /// how many.
    fn reclaim(&self, here: Here<'_>, node: NodeId, want: u32) -> u32;

    /// Gives back all that this CPU holds: it goes offline, or the machine ends. For a CPU that
    /// went offline without it, the code that took it down calls this with that CPU's proof: no
    /// other code runs on its number then, as [`Pinned::assume`] requires.
    fn drain(&self, here: Here<'_>);

    /// Returns the counts so far.
    fn counts(&self) -> PolicyCounts;
}

/// A policy that takes tables before their flush: a model of code that did so.
///
/// # Safety
///
/// It must be part of a [`Policy`] and keep that contract.
pub unsafe trait TakesUnhooked {
    /// Takes tables that have been unhooked, and that TLBs still know. Those that it leaves in the
    /// chain come back [flushed](Policy::flushed). Of each of the others it tells `taking`, before
    /// anything can hand that table out.
    fn take_unhooked(
        &self,
        here: Here<'_>,
        pages: Returned<&mut Unhooked>,
        taking: &mut dyn FnMut(Level, PhysAddr),
    );
}

// SAFETY: 1. to 4. by the policy behind the reference, whose answers these are.
unsafe impl<P: Policy + ?Sized> Policy for &P {
    #[inline]
    fn machine(&self) -> MachineId {
        (**self).machine()
    }
    #[inline]
    fn cpus(&self) -> usize {
        (**self).cpus()
    }
    #[inline]
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        (**self).takes_unhooked()
    }
    #[inline]
    fn root(&self) -> Option<Level> {
        (**self).root()
    }
    #[inline]
    fn alloc(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        (**self).alloc(here, level, flags)
    }
    #[inline]
    fn alloc_at_hand(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Option<Clean> {
        (**self).alloc_at_hand(here, level, flags)
    }
    fn adopt(&self, here: Here<'_>, page: &Clean) {
        (**self).adopt(here, page)
    }
    #[inline]
    fn free_unlinked(&self, here: Here<'_>, page: Returned<Clean>) {
        (**self).free_unlinked(here, page)
    }
    #[inline]
    fn flushed(&self, here: Here<'_>, pages: Returned<Flushed>) {
        (**self).flushed(here, pages)
    }
    #[inline]
    fn flushed_leaves<'t>(
        &self,
        here: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        (**self).flushed_leaves(here, pages)
    }
    #[inline]
    fn gather_end(&self, here: Here<'_>) {
        (**self).gather_end(here)
    }
    #[inline]
    fn idle(&self, here: Here<'_>) {
        (**self).idle(here)
    }
    #[inline]
    fn end_interval(&self, here: Here<'_>) -> u32 {
        (**self).end_interval(here)
    }
    #[inline]
    fn reclaim(&self, here: Here<'_>, node: NodeId, want: u32) -> u32 {
        (**self).reclaim(here, node, want)
    }
    #[inline]
    fn drain(&self, here: Here<'_>) {
        (**self).drain(here)
    }
    #[inline]
    fn counts(&self) -> PolicyCounts {
        (**self).counts()
    }
}

/// A policy, and where the caller is, checked once to be of one machine: the proof of place, which
/// every call of a policy goes through. [`On::policy`](crate::machine::On::policy) returns it
/// unchecked, as all parts of a machine are of one.
pub struct PolicyOn<'a, P: ?Sized> {
    policy: &'a P,
    pin: &'a Pinned<'a>,
}

impl<P: ?Sized> Clone for PolicyOn<'_, P> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for PolicyOn<'_, P> {}

impl<'a, P: Policy + ?Sized> PolicyOn<'a, P> {
    /// Takes both together; `None` if `pin` is of another machine, or of a CPU that the policy was
    /// not made for.
    #[inline]
    pub fn new(policy: &'a P, pin: &'a Pinned<'a>) -> Option<Self> {
        let known = policy.machine().matches(pin.machine()) && usize::from(pin.cpu().0) < policy.cpus();
        known.then_some(PolicyOn { policy, pin })
    }

    /// Takes both together, unchecked.
    ///
    /// # Safety
    ///
    /// 1. `pin` must be of `policy`'s machine, and its CPU must be below the number of CPUs that
    ///    `policy` was made for.
    #[inline]
    pub unsafe fn new_unchecked(policy: &'a P, pin: &'a Pinned<'a>) -> Self {
        PolicyOn { policy, pin }
    }

    /// Returns the policy.
    #[inline]
    pub fn policy(self) -> &'a P {
        self.policy
    }

    /// Returns the proof of where the caller is.
    #[inline]
    pub fn pin(self) -> &'a Pinned<'a> {
        self.pin
    }

    /// Returns the proof for this policy.
    #[inline]
    pub(super) fn here(self) -> Here<'a> {
        // SAFETY: 1. it goes to this policy, with which `new` has compared the pin, or the caller
        // of `new_unchecked`.
        unsafe { Here::new(self.pin) }
    }

    /// See [`Policy::alloc`].
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no state has changed then.
    #[inline]
    pub fn alloc(self, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        self.policy.alloc(self.here(), level, flags)
    }

    /// See [`Policy::alloc_at_hand`].
    #[inline]
    pub fn alloc_at_hand(self, level: Level, flags: AllocFlags) -> Option<Clean> {
        self.policy.alloc_at_hand(self.here(), level, flags)
    }

    /// See [`Policy::adopt`].
    ///
    /// # Safety
    ///
    /// 1. The page must be made of low frames of the policy's machine, and be no root: it comes
    ///    back to the policy, and from there to the frames.
    #[cold]
    pub unsafe fn adopt(self, page: &Clean) {
        self.policy.adopt(self.here(), page);
    }

    /// See [`Policy::free_unlinked`]. A page does not say of which policy it is:
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::{page::Clean, quicklist::{Policy, PolicyOn}};
    /// fn give_back(here: PolicyOn<'_, impl Policy>, page: Clean) {
    ///     here.free_unlinked(page); // whose page is it?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// 1. The page must have come from this policy.
    #[inline]
    pub unsafe fn free_unlinked(self, page: Clean) {
        // SAFETY: 1. by the caller.
        let page = unsafe { Returned::new(page) };
        self.policy.free_unlinked(self.here(), page)
    }

    /// Offers tables before their flush: see [`Policy::takes_unhooked`]. Those that stay in the
    /// chain are for [`flushed`](Self::flushed).
    ///
    /// # Safety
    ///
    /// 1. The tables must have come from this policy.
    #[inline]
    pub unsafe fn unhooked(self, pages: &mut Unhooked) {
        if let Some(policy) = self.policy.takes_unhooked() {
            // SAFETY: 1. by the caller: `policy` is a part of this one.
            let pages = unsafe { Returned::new(pages) };
            policy.take_unhooked(self.here(), pages, &mut |_, _| ());
        }
    }

    /// See [`Policy::flushed`]. A chain does not say of which policy its tables are:
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::{page::Flushed, quicklist::{Policy, PolicyOn}};
    /// fn give_back(here: PolicyOn<'_, impl Policy>, pages: Flushed) {
    ///     here.flushed(pages); // whose tables are they?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// 1. The tables must have come from this policy.
    #[inline]
    pub unsafe fn flushed(self, pages: Flushed) {
        // SAFETY: 1. by the caller.
        let pages = unsafe { Returned::new(pages) };
        self.policy.flushed(self.here(), pages)
    }

    /// See [`Policy::flushed_leaves`].
    ///
    /// # Errors
    ///
    /// The tables that the policy does not take.
    ///
    /// # Safety
    ///
    /// 1. The tables must have come from this policy.
    #[inline]
    pub unsafe fn flushed_leaves(self, pages: FlushedLeaves<'_>) -> Result<(), FlushedLeaves<'_>> {
        // SAFETY: 1. by the caller.
        let pages = unsafe { Returned::new(pages) };
        self.policy.flushed_leaves(self.here(), pages).map_err(Returned::into_inner)
    }

    /// See [`Policy::gather_end`].
    #[inline]
    pub fn gather_end(self) {
        self.policy.gather_end(self.here())
    }

    /// See [`Policy::idle`].
    #[inline]
    pub fn idle(self) {
        self.policy.idle(self.here())
    }

    /// See [`Policy::end_interval`].
    #[inline]
    pub fn end_interval(self) -> u32 {
        self.policy.end_interval(self.here())
    }

    /// See [`Policy::reclaim`].
    #[inline]
    pub fn reclaim(self, node: NodeId, want: u32) -> u32 {
        self.policy.reclaim(self.here(), node, want)
    }

    /// See [`Policy::drain`].
    #[inline]
    pub fn drain(self) {
        self.policy.drain(self.here())
    }
}
