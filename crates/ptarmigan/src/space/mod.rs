//! Address spaces: areas, and the effects of system calls on areas and tables.
//!
//! A [`Space`] is Linux's mm: areas, one tree of tables, and its TLB state (`state`).
//! [`Space::edit`] leads to the calls that change its structure ([`SpaceMut`]). A [`SharedSpace`]
//! is one that several CPUs work on: faults run in parallel, and [`SharedSpace::lock`] leads to the
//! same [`SpaceMut`] for one caller at a time. [`SpaceRef`] is either of them.
//!
//! The rules are Linux's (docs/linux.md): which areas fork copies, which tables `munmap` frees, how
//! `execve` moves the stack.
//!
//! # The protocol of a call
//!
//! ```text
//!  SpaceMut   check, reserve, allocate ──> apply: areas, tables ──> gather: flush, give back
//!               │ fails: the space is as it was                  │ unwinds: a flush is owed
//!  new space  LooseAreas ──> Unfinished ──> finish: Space ──> end
//!               └── dropped before that ──> areas and tables are given back
//! ```
//!
//! # Why
//!
//! Each call does first the steps that can fail, then applies, so that a program that gets `ENOMEM`
//! has the memory that it had before. A half-applied `mremap` could not be undone: undoing would
//! need memory too. A space that is not finished is held by a value whose end takes it down,
//! because each of the steps of fork and `execve` can fail or unwind.
mod area;
mod areas;
mod around;
mod dirty;
mod empty;
mod exec;
mod fault;
mod fork;
mod large;
mod lock;
mod mmap;
mod physical;
mod protect;
mod shared;
mod space_ref;
mod state;
mod unmapping;
mod zero_block;

pub use crate::format::Access;
pub use area::{Area, AreaFlags, LargePages, Object};
pub use areas::{AreaError, AreasRef, MAX_AREAS};
pub use empty::EmptyTables;
pub use fault::{Done, FaultError};
pub use large::{CollapseLimits, Collapsed};
pub use lock::LockError;
pub use mmap::Advice;
pub use shared::{Exclusive, SharedSpace};
pub use space_ref::SpaceRef;
pub use state::{Space, SpaceMut};
pub use unmapping::Unmapping;
pub use zero_block::ZeroBlock;

use crate::addr::{FRAME_SHIFT, Pfn};
use crate::machine::Machine;

/// The requirements of a space on a machine, beyond the requirements of its tables.
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. Programs may read the page that [`zero_frame`](Self::zero_frame) names, and nobody ever
///    writes to it. [`zero_block`](Self::zero_block) is always the same one, which no other machine
///    has.
/// 2. Programs may access the pages that [`backing_frame`](Self::backing_frame),
///    [`frames_at_hand`](Self::frames_at_hand) and [`backing_block`](Self::backing_block) name, all
///    pages of a block, as the area that shows them allows, as long as any space shows them; no
///    data frame of [`Machine::data`] is among them.
/// 3. Pages of 2^[`PAGE_SHIFT`](Self::PAGE_SHIFT) bytes are what [data](Machine::data) frames are,
///    and the blocks of frames that these calls name.
pub unsafe trait SpaceMachine: Machine {
    /// Binary logarithm of the bytes in a page. Spaces of formats with other pages do not compile:
    ///
    /// ```compile_fail,E0080
    /// use ptarmigan::{format::Aarch64K16, machine::On, space::{Space, SpaceMachine}};
    /// fn space<M: SpaceMachine>(on: On<'_, M>) {
    ///     let _ = Space::<Aarch64K16>::new(on);
    /// }
    /// # use ptarmigan::{format::X86_64, machine::Machine};
    /// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
    /// # let host = Host::<X86_64>::new(HostConfig::default()).unwrap();
    /// # let machine = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    /// # let cpus = host.slots();
    /// space(machine.on(&cpus[0].pin()).unwrap()); // pages of a machine for x86-64 have 4 KiB
    /// ```
    const PAGE_SHIFT: u32 = FRAME_SHIFT;

    /// Returns the first frame of the page that all untouched anonymous pages show: zero, never
    /// written, not counted.
    fn zero_frame(&self) -> Pfn;

    /// Returns the large page of zeroes of the machine, which untouched anonymous memory shows
    /// where it may have large pages ([`AreaFlags::LARGE`]). Without one, a read there maps a page
    /// of [`zero_frame`](Self::zero_frame).
    fn zero_block(&self) -> Option<&ZeroBlock> {
        None
    }

    /// Returns the first frame of the page in which page `page` (counted from its start) of backing
    /// object `object` is kept, not counted; `None` beyond the end of a file.
    ///
    /// It is called while a fault is served: an implementation must not work on the space that
    /// faults.
    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn>;

    /// Returns how many pages a fault that reads a page of a backing object maps at most, a power
    /// of two: those around it that are [at hand](Self::frames_at_hand), in the aligned block of so
    /// many pages (Linux's `fault_around_bytes`, 16 pages). 1 if it maps that page alone.
    fn fault_around(&self) -> u32 {
        1
    }

    /// As [`backing_frame`](Self::backing_frame), for the pages from `first` on, one for each of
    /// `frames`, as far as that takes no wait and no other work. A page that has to be read from a
    /// disk first, or that is beyond the end of a file, keeps the [`Pfn::NONE`] that is there.
    fn frames_at_hand(&self, _object: u32, _first: u64, _frames: &mut [Pfn]) {}

    /// Returns the first frame of the block in which the `pages` pages of backing object `object`
    /// from page `page` on are kept: frames that follow each other as the pages do. `None` if they
    /// are kept otherwise, or one is beyond the end: they are mapped one by one then, and so are
    /// those of a block that is not aligned to its size.
    ///
    /// `pages` is the number of pages in a large page. A fault asks in areas that may have large
    /// pages ([`AreaFlags::LARGE`]), once for each span that it finds empty, under the rules of
    /// [`backing_frame`](Self::backing_frame), which must name the same frames.
    ///
    /// An object that loses pages, or moves them to other frames, must take three steps in this
    /// order, with blocks and without: no call names the old frames any more; each space that shows
    /// them unmaps the pages ([`Advice::DontNeed`], which splits a large page for a part of it and
    /// needs no memory); the frames are used for something else. A fault that was told of a frame
    /// before the first step has mapped it when the second one begins.
    fn backing_block(&self, _object: u32, _page: u64, _pages: u32) -> Option<Pfn> {
        None
    }
}
