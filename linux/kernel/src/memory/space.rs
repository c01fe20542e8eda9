//! The spaces that tasks run in: a task's own, or one of several.

use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Access, Format};
use ptarmigan::machine::On;
use ptarmigan::space::{Done, FaultError, SharedSpace, Space, SpaceMut, SpaceRef};
use ptarmigan::tlb::TlbRefusal;

use super::machine::Machine;
use crate::Kernel;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::task::MappedPages;

/// The space that a task runs in.
#[expect(clippy::large_enum_variant, reason = "mostly it is the large one, and there is no heap")]
pub enum TaskSpace<A: Arch> {
    /// An empty slot.
    None,
    /// One that no other task runs in.
    Own(Space<A::Format>),
    /// One that other tasks may run in, or may have.
    Shared(&'static SharedSpace<A::Format>),
}

impl<A: Arch> TaskSpace<A> {
    /// Returns the space; `None` for an empty slot.
    #[inline]
    pub fn get(&mut self) -> Option<SpaceRef<'_, A::Format>> {
        match self {
            TaskSpace::None => None,
            TaskSpace::Own(space) => Some(SpaceRef::Own(space)),
            TaskSpace::Shared(space) => Some(SpaceRef::Shared(space)),
        }
    }

    /// Calls `f` with the space, if there is one: to load it, or to leave it.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the CPU is in the middle of another switch.
    pub fn switch(
        &mut self,
        f: impl FnOnce(SpaceRef<'_, A::Format>) -> Result<(), TlbRefusal>,
    ) -> Result<(), TlbRefusal> {
        self.get().map_or(Ok(()), f)
    }

    /// Serves a fault at `va`. CPUs that run in a shared space serve theirs in parallel.
    ///
    /// # Errors
    ///
    /// [`FaultError`].
    #[inline]
    pub fn fault(
        &mut self,
        on: On<'_, Machine<A>>,
        va: VirtAddr,
        access: Access,
    ) -> Result<Done, FaultError> {
        match self.get() {
            Some(SpaceRef::Own(space)) => space.fault(on, va, access),
            Some(SpaceRef::Shared(space)) => fault_shared::<A>(space, on, va, access),
            None => Err(FaultError::NoArea(va)),
        }
    }

    /// Counts the pages that the areas show; there are places for their objects.
    ///
    /// # Errors
    ///
    /// As [`edit`](Self::edit); the counts are as they were then.
    pub fn count_shown(&mut self, on: On<'_, Machine<A>>, shown: &mut MappedPages) -> Result<(), Errno> {
        self.edit(on, |edit| {
            shown.restart();
            let all = VirtRange::up_to(A::Format::USER_END);
            // The space is of this machine.
            let _ = edit.areas().each(on, all, |area| shown.add(area, area.range()));
        })
    }

    /// Calls `f` with the space, which nobody else changes meanwhile; nor does anybody serve faults
    /// in it.
    ///
    /// # Errors
    ///
    /// [`Errno::EFAULT`] if there is no space, or if `f` is called within another one's `f`.
    #[inline]
    pub fn edit<R>(
        &mut self,
        on: On<'_, Machine<A>>,
        f: impl FnOnce(SpaceMut<'_, A::Format, Machine<A>>) -> R,
    ) -> Result<R, Errno> {
        self.get().ok_or(Errno::EFAULT)?.edit(on, f).map_err(|_| Errno::EFAULT)
    }
}

/// Serves a fault of a shared space; out of the way of those of others.
#[cold]
#[inline(never)]
fn fault_shared<A: Arch>(
    space: &SharedSpace<A::Format>,
    on: On<'_, Machine<A>>,
    va: VirtAddr,
    access: Access,
) -> Result<Done, FaultError> {
    space.fault(on, va, access)
}

impl<A: Arch> Kernel<A> {
    /// Makes a space one that several tasks can run in.
    ///
    /// # Safety
    ///
    /// 1. `space` is the space of record `number`, which has this one user.
    /// 2. The kernel lock is held.
    pub(crate) unsafe fn share_space(&'static self, number: usize, space: &mut TaskSpace<A>) {
        if !matches!(space, TaskSpace::Own(_)) {
            return;
        }
        let TaskSpace::Own(own) = core::mem::replace(space, TaskSpace::None) else { return };
        let place = self.spaces.get(number);
        // SAFETY: 1. A record that has a user has its frame, where `claim_space` has made the
        // place.
        // 2. Its one user is the caller (point 1), so nobody else has a reference to the place:
        // users take theirs away with them.
        unsafe { *place = Some(SharedSpace::new(own)) };
        // SAFETY: 1. It is written next by `take_space`, when no user but the caller of that is
        // left, and the frame is given back after that.
        if let Some(shared) = unsafe { &*place } {
            *space = TaskSpace::Shared(shared);
        }
    }

    /// Takes the space away from its last user.
    ///
    /// # Safety
    ///
    /// 1. `space` is the space of record `number`, and no other task has it.
    /// 2. The kernel lock is held.
    pub(crate) unsafe fn take_space(
        &'static self,
        number: usize,
        space: &mut TaskSpace<A>,
    ) -> Option<Space<A::Format>> {
        match core::mem::replace(space, TaskSpace::None) {
            TaskSpace::None => None,
            TaskSpace::Own(own) => Some(own),
            TaskSpace::Shared(_) => {
                let place = self.spaces.get(number);
                // SAFETY: 1. The reference that has just been dropped was the last (point 1).
                unsafe { (*place).take() }.map(SharedSpace::into_inner)
            }
        }
    }
}
