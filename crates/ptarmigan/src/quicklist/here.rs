//! Proofs that a policy's methods take: where the caller is, and that tables come back to the
//! policy that handed them out.
use crate::cpu::Pinned;
use crate::frames::Frames;
use crate::page::{Clean, Flushed};
use core::ops::Deref;

/// Proof that the caller runs on a CPU of the called policy's machine, below its number of
/// [`cpus`](super::Policy::cpus).
///
/// [`PolicyOn`](super::PolicyOn) alone makes one, of the pin that it was checked with, and hands it
/// to its policy. A policy around another one passes it on, as the contract of
/// [`Policy`](super::Policy) allows. So an implementation may reach the values of the caller's CPU
/// by its number, unchecked: with [`PerCpu::enter_unchecked`](crate::cpu::PerCpu::enter_unchecked)
/// for instance.
///
/// It is one word, which goes in a register. Other code cannot make one:
///
/// ```compile_fail,E0624
/// use ptarmigan::{cpu::Pinned, quicklist::Here};
/// fn anywhere<'a>(pin: &'a Pinned<'_>) -> Here<'a> {
///     unsafe { Here::new(pin) } // private: of which policy's machine is it?
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Here<'a>(&'a Pinned<'a>);

impl<'a> Here<'a> {
    /// Notes that `pin` is of the policy's machine.
    ///
    /// # Safety
    ///
    /// 1. The result must go to policies of the pin's machine only, which were made for its CPU.
    #[inline]
    pub(super) unsafe fn new(pin: &'a Pinned<'a>) -> Self {
        Here(pin)
    }

    /// Returns the pin.
    #[inline]
    pub fn pin(self) -> &'a Pinned<'a> {
        self.0
    }

    /// Copies the pin, for a path whose slow parts take it by value.
    #[inline]
    pub(super) fn copied(self) -> HereCopy<'a> {
        HereCopy(self.0.again())
    }
}

impl<'a> Deref for Here<'a> {
    type Target = Pinned<'a>;
    #[inline]
    fn deref(&self) -> &Pinned<'a> {
        self.0
    }
}

/// The proof with its pin in it: a slow path takes it in a register, where a reference would need
/// the pin in memory.
pub(super) struct HereCopy<'a>(Pinned<'a>);

impl HereCopy<'_> {
    /// Returns the same proof once more, for a callee that takes it by value.
    #[inline]
    pub fn again(&self) -> HereCopy<'_> {
        HereCopy(self.0.again())
    }
}

impl<'a> Deref for HereCopy<'a> {
    type Target = Pinned<'a>;
    #[inline]
    fn deref(&self) -> &Pinned<'a> {
        &self.0
    }
}

/// The proof in either shape: by reference on a path that only needs the CPU's number, which a slow
/// part need not find in registers then.
pub(super) trait Proof<'a>: Deref<Target = Pinned<'a>> {}

impl<'a> Proof<'a> for Here<'a> {}
impl<'a> Proof<'a> for HereCopy<'a> {}

/// A table, or a chain of tables, that comes back to the policy that handed it out.
///
/// [`PolicyOn`](super::PolicyOn) makes it where the caller promises so. A policy around another one
/// passes it on, as the contract of [`Policy`](super::Policy) allows.
#[must_use = "dropped tables are lost"]
#[repr(transparent)]
pub struct Returned<T>(T);

impl<T> Returned<T> {
    /// Says that tables come back: for policies that have kept them apart meanwhile.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::{page::Clean, quicklist::Returned};
    /// fn back(page: Clean) -> Returned<Clean> {
    ///     Returned::new(page) // to which policy?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// 1. The policy that gets the result must have handed these tables out.
    #[inline]
    pub unsafe fn new(tables: T) -> Self {
        Returned(tables)
    }

    /// Returns the tables.
    #[inline]
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Returned<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl Returned<Flushed> {
    /// Takes the next table.
    ///
    /// # Safety
    ///
    /// 1. The policy's pages must be of `frames`.
    #[inline]
    pub unsafe fn pop(&mut self, frames: &Frames) -> Option<Returned<Clean>> {
        // SAFETY: 1. the tables are the policy's, so of these frames (1.).
        unsafe { self.0.pop(frames) }.map(Returned)
    }
}
