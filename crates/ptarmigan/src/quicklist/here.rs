//! A pin whose machine is known to be right.
use crate::cpu::Pinned;
use core::ops::Deref;

/// A pin that is of the machine, and of one of the CPUs, that the policy was made for: the contract
/// of each method of [`Policy`](super::Policy), kept as a type, so that the functions behind the
/// methods are safe.
pub(super) struct Here<'a>(Pinned<'a>);

impl<'a> Here<'a> {
    /// Notes that `pin` is of the policy's machine.
    ///
    /// # Safety
    ///
    /// 1. `pin` must be of the machine that the policy at work was made for, and of one of the CPUs
    ///    that it was made for.
    #[inline]
    pub unsafe fn new(pin: &'a Pinned<'_>) -> Self {
        Here(pin.again())
    }

    /// Returns the same proof once more, for a callee that takes it by value: in a register, where
    /// a reference would want it in memory.
    #[inline]
    pub fn again(&self) -> Here<'_> {
        Here(self.0.again())
    }
}

impl<'a> Deref for Here<'a> {
    type Target = Pinned<'a>;
    #[inline]
    fn deref(&self) -> &Pinned<'a> {
        &self.0
    }
}
