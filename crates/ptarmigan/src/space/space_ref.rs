//! A space that one user has, or several.
use super::SpaceMachine;
use super::fault::{Done, FaultError};
use super::lock::LockError;
use super::shared::SharedSpace;
use super::state::{Space, SpaceMut};
use crate::addr::{PhysAddr, VirtAddr};
use crate::format::{Access, Format};
use crate::machine::On;
use crate::tlb::{SpaceTlb, TlbRefusal};

/// A space that its user has alone or together with others. Tasks begin with a space of their own;
/// a task that gets a second thread shares it. Code that serves faults and system calls for both
/// takes this.
///
/// ```
/// use ptarmigan::addr::{VirtAddr, VirtRange};
/// use ptarmigan::format::X86_64;
/// use ptarmigan::machine::On;
/// use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space, SpaceMachine, SpaceRef};
///
/// /// Maps a page and writes to it.
/// fn use_a_page<M: SpaceMachine>(
///     on: On<'_, M>,
///     mut space: SpaceRef<'_, X86_64>,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let page = VirtRange::fixed::<0x40_0000, 0x40_1000>();
///     let flags = AreaFlags::READ.with(AreaFlags::WRITE);
///     space.edit(on, |mut space| space.mmap(page, flags, 0))??;
///     space.fault(on, VirtAddr(page.start), Access::Write)?;
///     Ok(())
/// }
/// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
/// # use ptarmigan::machine::Machine;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
/// # let cpus = host.slots();
/// # let pin = cpus[0].pin();
/// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
/// # let on = machine.on(&pin)?;
///
/// let mut space = Space::new(on)?;
/// use_a_page(on, SpaceRef::Own(&mut space))?;
/// let space = SharedSpace::new(space);
/// use_a_page(on, SpaceRef::Shared(&space))?;
/// space.end(on)?;
/// # Ok(())
/// # }
/// ```
pub enum SpaceRef<'a, F: Format> {
    /// Nobody else has it.
    Own(&'a mut Space<F>),
    /// Other CPUs may be at work on it.
    Shared(&'a SharedSpace<F>),
}

impl<F: Format> SpaceRef<'_, F> {
    #[inline]
    fn parts(&self) -> (&SpaceTlb, PhysAddr) {
        match self {
            SpaceRef::Own(space) => (space.tlb(), space.tree().root()),
            SpaceRef::Shared(space) => (space.tlb(), space.root),
        }
    }

    /// Returns its TLB state.
    pub fn tlb(&self) -> &SpaceTlb {
        self.parts().0
    }

    /// Begins to run in the space on this CPU, see [`Space::activate`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn activate<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        let (tlb, root) = self.parts();
        on.activate(tlb, root)
    }

    /// Stops running the space on this CPU for now, but keeps its root loaded, see [`Space::rest`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn rest<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.rest(self.tlb())
    }

    /// Makes up for flushes that were left to this CPU, which runs in the space, and
    /// [gives back](On::collect) what waits for no CPU any more. A kernel whose spaces
    /// [defer](crate::space::Unmapping::Deferred) calls it at each tick.
    ///
    /// # Errors
    ///
    /// As [`Tlb::catch_up`](crate::tlb::Tlb::catch_up).
    pub fn catch_up<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.tlb().catch_up(on.pin(), Some(self.tlb()))?;
        on.collect();
        Ok(())
    }

    /// Leaves the space on this CPU, see [`Space::deactivate`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn deactivate<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.deactivate(self.tlb())
    }

    /// Serves a fault at `va`, in parallel with other faults, see [`SharedSpace::fault`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn fault<M: SpaceMachine>(
        &mut self,
        on: On<'_, M>,
        va: VirtAddr,
        access: Access,
    ) -> Result<Done, FaultError> {
        match self {
            SpaceRef::Own(space) => space.fault(on, va, access),
            SpaceRef::Shared(space) => space.fault(on, va, access),
        }
    }

    /// Calls `f` with the space. Others wait until it returns, see [`SharedSpace::lock`].
    ///
    /// # Errors
    ///
    /// As there; `f` is not called then.
    #[inline]
    pub fn edit<M: SpaceMachine, R>(
        &mut self,
        on: On<'_, M>,
        f: impl FnOnce(SpaceMut<'_, F, M>) -> R,
    ) -> Result<R, LockError> {
        match self {
            SpaceRef::Own(space) => Ok(f(space.edit(on)?)),
            SpaceRef::Shared(space) => Ok(f(space.lock(on)?.edit())),
        }
    }
}
