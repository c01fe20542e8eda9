//! Who looks on while a program is carried out.
use ptarmigan::space::Access;

/// Sees what happens as it happens; [`Unwatched`] sees nothing and costs nothing.
pub trait Watch {
    /// Something that may change tables begins; [`done`](Self::done) says that it has ended.
    #[inline(always)]
    fn begins(&mut self) {}

    /// A fault has been served on a CPU of the machine.
    fn served(&mut self, cpu: usize, va: u64, access: Access);

    /// The thing at this place in the program is done.
    #[inline(always)]
    fn done(&mut self, _at: usize) {}
}

/// Nobody watches.
#[derive(Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {
    #[inline(always)]
    fn served(&mut self, _: usize, _: u64, _: Access) {}
}
