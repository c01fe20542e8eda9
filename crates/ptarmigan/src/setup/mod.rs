//! A machine from a description of it: what a kernel calls once, at boot.
//!
//! [`Setup`] says what memory there is, how it is reached, which hardware invalidates, and which
//! root maps the kernel. [`Kernel::set_up`] makes all parts of it in their order, in a static:
//!
//! | part | made of |
//! |---|---|
//! | boot memory | the beginning of the largest run of memory, as much as all parts need |
//! | [`Frames`](crate::frames::Frames) | the rest of the memory |
//! | the kernel's half of all roots | the entries of the root that the machine booted on |
//! | the frame of zeroes | a frame |
//! | [`Quicklists`](crate::quicklist::Quicklists) and [`DataFrames`](crate::frames::DataFrames) | boot memory |
//! | [`Tlb`](crate::tlb::Tlb) and [`Parking`](crate::parking::Parking) | boot memory |
//!
//! All sizes are checked first. Nothing is kept if set-up fails, so that a kernel may try again
//! with less. [`Kernel::on`] then leads to everything else.
//!
//! A machine that ends before its program does (an emulator's guest, a test) is made in a [`Place`]
//! on the stack or the heap, by [`Setup::build_in`]. One with [high memory](crate::highmem) allows
//! tables in it ([`Setup::high_tables`]) and is a layer around the [`MachineParts`]: it clears and
//! copies data through slots. One that wants other parts than these (another
//! [policy](crate::quicklist::Policy)) puts them together as a
//! [`Machine`](crate::machine::Machine) of its own.
mod error;
mod half;
mod kernel;
mod objects;
mod parts;
mod place;
mod plan;
mod root;

pub use error::{KernelError, SetupError};
pub use half::KernelHalf;
pub use kernel::Kernel;
pub use objects::{NoObjects, Objects};
pub use parts::MachineParts;
pub use place::Place;
pub use plan::Setup;
pub use root::check_kernel_root;
