//! A space that several CPUs work on.
use super::area::{Area, AreaFlags, Object};
use super::fault::Outcome;
use super::lock::{SpaceLock, Writing};
use super::{Access, Advice, AreaError, Done, FaultError, Space, SpaceMachine, done};
use crate::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use crate::cpu::Pinned;
use crate::format::{Attr, Format};
use crate::sync::cell::UnsafeCell;
use crate::table::{Tree, parts};
use crate::tlb::{SpaceId, SpaceTlb};
use core::ptr::NonNull;

/// A space for several CPUs at once.
///
/// | call | others meanwhile |
/// |---|---|
/// | [`fault`](Self::fault) | faults, in parallel: one leaf table's lock for the time of a store |
/// | [`lock`](Self::lock) and what it leads to: mmap, munmap, fork and so on | nobody but the next two |
/// | [`activate`](Self::activate), [`rest`](Self::rest), [`deactivate`](Self::deactivate) | anybody |
/// | [`query`](Self::query) | anybody: no lock, tables that are found stay until it returns |
///
/// All waiting goes through [`Ipi::wait`](crate::tlb::Ipi::wait); a CPU that waits serves what others ask of it.
#[must_use = "a dropped space loses its frames: end it"]
pub struct SharedSpace<F: Format> {
    tlb: SpaceTlb,
    root: PhysAddr,
    lock: SpaceLock,
    space: UnsafeCell<Space<F>>,
}

// SAFETY: a `Space` owns frames by number and has no ties to a thread.
unsafe impl<F: Format> Send for SharedSpace<F> {}
// SAFETY: `space` is reached as `&Space` by holders of the lock for reading, and as `&mut Space` by the one holder of
// the lock for writing; what is written through `&Space` are atomics.
unsafe impl<F: Format> Sync for SharedSpace<F> {}

impl<F: Format> SharedSpace<F> {
    /// Lets other CPUs in.
    pub fn new(mut space: Space<F>) -> Self {
        let mut tlb = space.tlb.take();
        tlb.set_shared(true);
        SharedSpace { tlb, root: space.tree.root(), lock: SpaceLock::new(), space: UnsafeCell::new(space) }
    }

    /// Takes the space back: nobody else has it any more.
    pub fn into_inner(self) -> Space<F> {
        let mut space = self.space.into_inner();
        let mut tlb = self.tlb;
        tlb.set_shared(false);
        space.tlb.put(tlb);
        space
    }

    /// Its name.
    pub fn id(&self) -> SpaceId {
        self.tlb.id()
    }

    /// Its TLB state.
    pub fn tlb(&self) -> &SpaceTlb {
        &self.tlb
    }

    /// Takes the space down, see [`Space::end`].
    pub fn end<M: SpaceMachine>(self, m: &M, pin: &Pinned<'_>) {
        self.into_inner().end(m, pin);
    }

    /// This CPU begins to run in the space.
    pub fn activate<M: SpaceMachine>(&self, m: &M, pin: &Pinned<'_>) {
        done(m.tlb().activate(pin, &self.tlb, self.root));
    }

    /// This CPU runs nothing of the space for now, but keeps its root loaded.
    pub fn rest<M: SpaceMachine>(&self, m: &M, pin: &Pinned<'_>) {
        done(m.tlb().rest(pin, &self.tlb));
        m.tlb().collect(parts(m, pin));
    }

    /// This CPU leaves the space.
    pub fn deactivate<M: SpaceMachine>(&self, m: &M, pin: &Pinned<'_>) {
        done(m.tlb().deactivate(pin, &self.tlb));
    }

    /// Serves a fault at `va`, in parallel with others. Only a stack that has to grow takes the space for itself.
    ///
    /// # Errors
    ///
    /// As [`Space::fault`].
    #[inline]
    pub fn fault<M: SpaceMachine>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        va: VirtAddr,
        access: Access,
    ) -> Result<Done, FaultError> {
        let reading = self.lock.read(m.tlb(), pin, self.id());
        // SAFETY: the lock is held for reading: nobody has a `&mut` to the space.
        let space = self.space.with(|p| unsafe { &*p });
        loop {
            match space.fault_once::<M, true>(m, pin, &self.tlb, va, access)? {
                Outcome::Done(done) => return Ok(done),
                Outcome::Again => {}
                Outcome::Exclusive => break,
            }
        }
        drop(reading);
        self.lock(m, pin).fault(va, access)
    }

    /// What is mapped at `va`, without waiting for anybody: frame and attributes, even where the MMU would not let the
    /// access through. Of pages that are being changed it may say that there is nothing.
    pub fn query<M: SpaceMachine>(&self, m: &M, pin: &Pinned<'_>, va: VirtAddr) -> Option<(Pfn, Attr)> {
        let _reading = done(m.tlb().readers().walk(pin, self.id()));
        Tree::<F>::query_from(m, self.root, va)
    }

    /// Waits until nobody else is at work on the space, and keeps others out as long as the result is there.
    pub fn lock<'a, M: SpaceMachine>(&'a self, m: &'a M, pin: &'a Pinned<'a>) -> Exclusive<'a, F, M> {
        let writing = self.lock.write(m.tlb(), pin, self.id());
        let home = NonNull::from(&self.tlb);
        let mut exclusive = Exclusive { shared: self, m, pin, _writing: writing };
        // SAFETY: 1. `self.tlb` is borrowed for as long as `exclusive` is there, whose `Drop` unsets it.
        unsafe { exclusive.space().tlb.set(Some(home)) };
        exclusive
    }
}

/// Exclusive use of a shared space, see [`SharedSpace::lock`]: the calls of [`Space`] that change its structure.
pub struct Exclusive<'a, F: Format, M: SpaceMachine> {
    shared: &'a SharedSpace<F>,
    m: &'a M,
    pin: &'a Pinned<'a>,
    _writing: Writing<'a>,
}

impl<F: Format, M: SpaceMachine> Drop for Exclusive<'_, F, M> {
    fn drop(&mut self) {
        // SAFETY: 1. nothing is said to be anywhere.
        unsafe { self.space().tlb.set(None) };
    }
}

/// Calls that are passed on to the space.
macro_rules! pass_on {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl<F: Format, M: SpaceMachine> Exclusive<'_, F, M> {
            $(
                $(#[$doc])*
                pub fn $name(&mut self $(, $arg: $type)*) -> $result {
                    let (m, pin) = (self.m, self.pin);
                    self.space().$name(m, pin $(, $arg)*)
                }
            )*
        }
    };
}

pass_on! {
    /// See [`Space::fault`].
    ///
    /// # Errors
    ///
    /// As there.
    fn fault(va: VirtAddr, access: Access) -> Result<Done, FaultError>;
    /// See [`Space::fork`].
    ///
    /// # Errors
    ///
    /// As there.
    fn fork() -> Result<Space<F>, AreaError>;
    /// See [`Space::munmap`].
    ///
    /// # Errors
    ///
    /// As there.
    fn munmap(range: VirtRange) -> Result<(), AreaError>;
    /// See [`Space::mprotect`].
    ///
    /// # Errors
    ///
    /// As there.
    fn mprotect(range: VirtRange, permissions: AreaFlags) -> Result<(), AreaError>;
    /// See [`Space::brk`].
    ///
    /// # Errors
    ///
    /// As there.
    fn brk(end: VirtAddr) -> Result<(), AreaError>;
    /// See [`Space::mremap`].
    ///
    /// # Errors
    ///
    /// As there.
    fn mremap(from: VirtRange, to: VirtRange, keep: bool) -> Result<(), AreaError>;
    /// See [`Space::madvise`].
    ///
    /// # Errors
    ///
    /// As there.
    fn madvise(range: VirtRange, advice: Advice) -> Result<(), AreaError>;
    /// See [`Space::populate`].
    ///
    /// # Errors
    ///
    /// As there.
    fn populate(range: VirtRange, access: Access) -> Result<(), AreaError>;
    /// See [`Space::move_stack`].
    ///
    /// # Errors
    ///
    /// As there.
    fn move_stack(range: VirtRange, flags: AreaFlags) -> Result<(), AreaError>;
}

impl<F: Format, M: SpaceMachine> Exclusive<'_, F, M> {
    fn space(&mut self) -> &mut Space<F> {
        // SAFETY: the lock is held for writing, and this borrow of its holder is exclusive.
        self.shared.space.with_mut(|p| unsafe { &mut *p })
    }

    fn space_ref(&self) -> &Space<F> {
        // SAFETY: the lock is held for writing; its holder is borrowed, so there is no `&mut` from `space`.
        self.shared.space.with(|p| unsafe { &*p })
    }

    /// See [`Space::mmap`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn mmap(
        &mut self,
        range: VirtRange,
        flags: AreaFlags,
        object: impl Into<Object>,
    ) -> Result<(), AreaError> {
        let (m, pin) = (self.m, self.pin);
        self.space().mmap(m, pin, range, flags, object)
    }

    /// See [`Space::find_gap`].
    pub fn find_gap(&self, len: u64, below: u64) -> Option<VirtRange> {
        self.space_ref().find_gap(self.m, len, below)
    }

    /// The area that `va` lies in.
    pub fn area(&self, va: VirtAddr) -> Option<Area> {
        self.space_ref().areas.find(self.m, va.0)
    }

    /// The space's tables.
    pub fn tree(&self) -> &Tree<F> {
        &self.space_ref().tree
    }
}
