//! A space that several CPUs work on.
use super::SpaceMachine;
use super::fault::{Done, FaultError};
use super::lock::{LockError, SpaceLock, Writing};
use super::state::{Space, SpaceMut, State};
use crate::addr::{Pfn, PhysAddr, VirtAddr};
use crate::format::{Access, Attr, Format};
use crate::machine::{On, Refused};
use crate::sync::cell::UnsafeCell;
use crate::table::Tables;
use crate::tlb::hash::Refill;
use crate::tlb::{SpaceId, SpaceTlb, TlbRefusal};

/// A space for several CPUs at once.
///
/// | call | others meanwhile |
/// |---|---|
/// | [`fault`](Self::fault) | faults, in parallel: one leaf table's lock for the time of a store |
/// | [`lock`](Self::lock) and its operations: mmap, munmap, fork and so on | nobody but the next two |
/// | [`activate`](Self::activate), [`rest`](Self::rest), [`deactivate`](Self::deactivate) | anybody |
/// | [`query`](Self::query) | anybody: no lock, tables that are found stay until it returns |
///
/// All waiting goes through [`Ipi::wait`](crate::tlb::Ipi::wait); a CPU that waits serves requests
/// of others.
///
/// ```
/// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
/// # use ptarmigan::{format::X86_64, machine::Machine};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
/// # let cpus = host.slots();
/// # let pin = cpus[0].pin();
/// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
/// # let on = machine.on(&pin)?;
/// use ptarmigan::addr::{VirtAddr, VirtRange};
/// use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space};
///
/// let space = SharedSpace::new(Space::<X86_64>::new(on)?);
/// let heap = VirtRange::fixed::<0x40_0000, 0x50_0000>();
/// space.lock(on)?.edit().mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
/// space.fault(on, VirtAddr(0x40_0123), Access::Write)?; // others may fault at the same time
/// space.end(on)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a dropped space loses its frames: end it"]
pub struct SharedSpace<F: Format> {
    tlb: SpaceTlb,
    pub(super) root: PhysAddr,
    lock: SpaceLock,
    state: UnsafeCell<State<F>>,
}

// SAFETY: a `State` owns frames by number and has no ties to a thread.
unsafe impl<F: Format> Send for SharedSpace<F> {}
// SAFETY: `state` is reached as `&State` by holders of the lock for reading, and as `&mut State` by
// the one holder of the lock for writing; only atomics are written through `&State`.
unsafe impl<F: Format> Sync for SharedSpace<F> {}

impl<F: Format> SharedSpace<F> {
    /// Lets other CPUs in.
    pub fn new(space: Space<F>) -> Self {
        let Space { state, mut tlb } = space;
        tlb.set_shared(true);
        SharedSpace { tlb, root: state.tables.root(), lock: SpaceLock::new(), state: UnsafeCell::new(state) }
    }

    /// Takes the space back: nobody else has it any more.
    pub fn into_inner(self) -> Space<F> {
        let (state, mut tlb) = (self.state.into_inner(), self.tlb);
        tlb.set_shared(false);
        Space { state, tlb }
    }

    /// Returns its name.
    pub fn id(&self) -> SpaceId {
        self.tlb.id()
    }

    /// Returns its TLB state.
    pub fn tlb(&self) -> &SpaceTlb {
        &self.tlb
    }

    /// Takes the space down, see [`Space::end`].
    ///
    /// # Errors
    ///
    /// As there.
    #[expect(clippy::result_large_err, reason = "what is refused comes back by value: there is no heap")]
    pub fn end<M: SpaceMachine>(self, on: On<'_, M>) -> Result<(), Refused<Space<F>, TlbRefusal>> {
        self.into_inner().end(on)
    }

    /// Begins to run in the space on this CPU.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the space is of another machine, or in the middle of another switch of
    /// this CPU.
    pub fn activate<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.activate(&self.tlb, self.root)
    }

    /// Stops running the space on this CPU for now, but keeps its root loaded.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the space is of another machine, or in the middle of another switch of
    /// this CPU.
    pub fn rest<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.rest(&self.tlb)
    }

    /// Leaves the space on this CPU.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the space is of another machine, or in the middle of another switch of
    /// this CPU.
    pub fn deactivate<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.deactivate(&self.tlb)
    }

    /// Serves a fault at `va`, in parallel with others. A stack that has to grow takes the space
    /// for itself, and so do a large page that changes and one of physical memory.
    ///
    /// # Errors
    ///
    /// As [`Space::fault`].
    #[inline]
    pub fn fault<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        va: VirtAddr,
        access: Access,
    ) -> Result<Done, FaultError> {
        on.check(self.tlb.machine())?;
        let reading = self.lock.read(on.tlb(), on.pin(), self.id())?;
        // SAFETY: the lock is held for reading: nobody has a `&mut` to the state.
        let state = self.state.with(|p| unsafe { &*p });
        if let Some(done) = state.fault_shared(on, &self.tlb, va, access)? {
            return Ok(done);
        }
        drop(reading);
        let mut exclusive = self.lock(on).map_err(|e| match e {
            LockError::WrongMachine(e) => FaultError::WrongMachine(e),
            LockError::Reading(cpu) => FaultError::Refused(TlbRefusal::Busy(cpu)),
            LockError::Writing(cpu) => FaultError::Locked(cpu),
        })?;
        exclusive.edit().fault(va, access)
    }

    /// Returns the mapping at `va`, without waiting: frame and attributes, even where the MMU would
    /// not let the access through. It may report pages that are being changed as unmapped.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the space is of another machine.
    pub fn query<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        va: VirtAddr,
    ) -> Result<Option<(Pfn, Attr)>, TlbRefusal> {
        on.check(self.tlb.machine())?;
        let _reading = on.tlb().readers().walk(on.pin(), &self.tlb)?;
        Ok(Tables::<F>::query_from(on, self.root, va))
    }

    /// Has `hash` put the page at `va` into the machine's hash table for an `access`, without
    /// waiting for anybody: it calls its argument once, with the hash table's lock held, as
    /// [`TreeView::refill`](crate::table::TreeView::refill) does. The tables stay until `hash`
    /// returns.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the space is of another machine.
    pub fn refill<M: SpaceMachine, R>(
        &self,
        on: On<'_, M>,
        va: VirtAddr,
        access: Access,
        hash: impl FnOnce(&dyn Fn() -> Option<Refill<u64>>) -> R,
    ) -> Result<R, TlbRefusal> {
        on.check(self.tlb.machine())?;
        let _reading = on.tlb().readers().walk(on.pin(), &self.tlb)?;
        Ok(hash(&|| Tables::<F>::refill_from(on, self.root, va, access)))
    }

    /// Waits until nobody else is at work on the space, and keeps others out as long as the result
    /// is there.
    ///
    /// # Errors
    ///
    /// [`LockError`] if the space is of another machine, or this CPU is in the middle of reading
    /// it or has it already.
    pub fn lock<'a, M: SpaceMachine>(&'a self, on: On<'a, M>) -> Result<Exclusive<'a, F, M>, LockError> {
        on.check(self.tlb.machine())?;
        let writing = self.lock.write(on.tlb(), on.pin(), self.id())?;
        Ok(Exclusive { shared: self, on, _writing: writing })
    }
}

/// Exclusive use of a shared space, see [`SharedSpace::lock`].
pub struct Exclusive<'a, F: Format, M: SpaceMachine> {
    shared: &'a SharedSpace<F>,
    on: On<'a, M>,
    _writing: Writing<'a>,
}

impl<F: Format, M: SpaceMachine> Exclusive<'_, F, M> {
    /// Leads to the calls that change the space.
    #[inline]
    pub fn edit(&mut self) -> SpaceMut<'_, F, M> {
        // SAFETY: the lock is held for writing, and this borrow of its holder is exclusive.
        let state = self.shared.state.with_mut(|p| unsafe { &mut *p });
        SpaceMut { on: self.on, state, tlb: &self.shared.tlb }
    }
}
