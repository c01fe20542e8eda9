//! The part of a task that its CPU alone uses.

use core::cell::UnsafeCell;

use crate::Kernel;
use crate::arch::{Arch, Context};
use crate::limits::TASKS;
use crate::memory::TaskSpace;

/// Registers and space of a task.
#[repr(C)]
pub struct Body<A: Arch> {
    /// Its registers.
    pub context: A::Context,
    /// The space that it runs in.
    pub space: TaskSpace<A>,
}

/// The bodies of all tasks.
pub struct Bodies<A: Arch>([UnsafeCell<Body<A>>; TASKS]);

// SAFETY: 1. A body is used by one CPU at a time, see `Kernel::body`. Spaces and registers have no
// ties to a CPU.
unsafe impl<A: Arch> Sync for Bodies<A> {}

impl<A: Arch> Bodies<A> {
    /// Makes empty ones.
    pub const fn new() -> Self {
        Bodies([const { UnsafeCell::new(Body { context: A::Context::NEW, space: TaskSpace::None }) }; TASKS])
    }
}

impl<A: Arch> Kernel<A> {
    /// Returns the body of a task.
    ///
    /// # Safety
    ///
    /// 1. The task runs on the calling CPU; or the caller holds the kernel lock, and the task does
    ///    not run.
    /// 2. The caller has no other reference to this body.
    #[expect(clippy::mut_from_ref, reason = "the caller answers for its being the only one")]
    #[inline]
    pub(crate) unsafe fn body(&self, slot: usize) -> &mut Body<A> {
        // SAFETY: 1. Nobody else uses the body (point 1): CPUs give tasks up, and take them, with
        // the kernel lock held. 2. Point 2 is passed on.
        unsafe { &mut *self.bodies.0[slot % TASKS].get() }
    }
}
