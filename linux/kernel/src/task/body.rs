//! The part of a task that its CPU alone uses.

use crate::Kernel;
use crate::arch::{Arch, Context};
use crate::memory::TaskSpace;

/// Registers and space of a task.
#[repr(C)]
pub struct Body<A: Arch> {
    /// Its registers.
    pub context: A::Context,
    /// The space that it runs in.
    pub space: TaskSpace<A>,
    /// The CPU's count of faults when the task's were last counted.
    pub faults_before: usize,
}

impl<A: Arch> Body<A> {
    /// The body of no task.
    pub const NONE: Self = Body { context: A::Context::NEW, space: TaskSpace::None, faults_before: 0 };
}

impl<A: Arch> Kernel<A> {
    /// Begins to count the faults of a task that goes on on this CPU.
    #[inline]
    pub(super) fn begin_faults(&self, body: &mut Body<A>) {
        body.faults_before = self.cpus[A::cpu()].counts.faults();
    }

    /// Returns the faults of a task that runs on this CPU, since they were asked for last.
    #[inline]
    pub(crate) fn take_faults(&self, body: &mut Body<A>) -> u64 {
        let before = body.faults_before;
        self.begin_faults(body);
        body.faults_before.wrapping_sub(before) as u64
    }

    /// Returns the body of a task.
    ///
    /// # Safety
    ///
    /// 1. The task runs on the calling CPU; or the caller holds the kernel lock, and the task does
    ///    not run.
    /// 2. The caller has no other reference to this body.
    /// 3. The slot is taken, and stays so as long as the reference is used.
    #[expect(clippy::mut_from_ref, reason = "the caller answers for its being the only one")]
    #[inline]
    pub(crate) unsafe fn body(&self, slot: usize) -> &mut Body<A> {
        // SAFETY: 1. `claim` has set the pointer to a body, which stays until the slot is given
        // back (point 3). 2. Nobody else uses the body (point 1): CPUs give tasks up, and take
        // them, with the kernel lock held. 3. Point 2 is passed on.
        unsafe { &mut *self.bodies.get(slot) }
    }
}
