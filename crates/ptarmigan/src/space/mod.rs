//! Address spaces: areas, and what the kernel's calls do to areas and tables.
//!
//! A [`Space`] is what Linux calls an mm: areas, one tree of tables, and its TLB state. Calls that change its
//! structure take `&mut`; each prepares what can fail first, then applies, and leaves nothing behind on failure.
//! A [`SharedSpace`] is one that several CPUs work on: faults run in parallel, other calls have it for themselves.
//! The rules followed are Linux's (semantics.md §6): which areas fork copies, which tables `munmap` frees, how
//! `execve` moves the stack.
mod area;
mod areas;
mod calls;
mod exec;
mod fault;
mod fork;
mod home;
mod lock;
mod shared;

pub use area::{Area, AreaFlags, Object};
pub use areas::{AreaError, Areas};
pub use calls::Advice;
pub use fault::{Access, Done, FaultError};
pub use shared::{Exclusive, SharedSpace};

use crate::addr::{Pfn, VirtRange};
use crate::cpu::Pinned;
use crate::format::Format;
use crate::frames::{AllocFlags, DataFrames, NoFrame};
use crate::sync::atomic::AtomicU32;
use crate::table::{GatherOf, Machine, Tree, parts};
use crate::tlb::{Gather, Refused, SpaceTlb};
use home::Home;

/// What a space needs of a machine besides what tables need.
pub trait SpaceMachine: Machine {
    /// The frame that all untouched anonymous pages show: zero, never written, not counted.
    fn zero_frame(&self) -> Pfn;

    /// The frame in which page `page` (counted in pages from its start) of backing object `object` is kept, not counted; `None` if there is none
    /// (beyond the end of a file).
    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn>;
}

/// One address space. Has to be taken down with [`Space::end`]: dropping it loses its frames.
#[must_use = "a dropped space loses its frames: end it"]
pub struct Space<F: Format> {
    tree: Tree<F>,
    tlb: Home,
    areas: Areas,
    /// Where the areas of recent faults are, by address. Written by shared faults too.
    recent: [AtomicU32; RECENT],
    /// First page of the heap and its end; equal if there is none.
    heap: VirtRange,
    /// Stacks grow no larger than this, in bytes.
    stack_limit: u64,
}

/// Areas that a space remembers from recent faults.
const RECENT: usize = 8;
/// Linux's default `RLIMIT_STACK`.
const STACK_LIMIT: u64 = 8 << 20;

impl<F: Format> Space<F> {
    /// An empty space.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; nothing has been taken then.
    pub fn new<M: SpaceMachine>(m: &M, pin: &Pinned<'_>) -> Result<Self, NoFrame> {
        Ok(Space {
            tree: Tree::new(m, pin, AllocFlags::NORMAL)?,
            tlb: Home::new(m.tlb().new_space()),
            areas: Areas::new(),
            recent: Default::default(),
            heap: VirtRange { start: 0, end: 0 },
            stack_limit: STACK_LIMIT,
        })
    }

    /// The space's tables.
    pub fn tree(&self) -> &Tree<F> {
        &self.tree
    }

    /// The space's areas.
    pub fn areas(&self) -> &Areas {
        &self.areas
    }

    /// The space's TLB state.
    pub fn tlb(&self) -> &SpaceTlb {
        self.tlb.get()
    }

    /// This CPU begins to run in the space.
    pub fn activate<M: SpaceMachine>(&self, m: &M, pin: &Pinned<'_>) {
        done(m.tlb().activate(pin, self.tlb.get(), self.tree.root()));
    }

    /// This CPU runs nothing of the space for now, but keeps its root loaded.
    pub fn rest<M: SpaceMachine>(&self, m: &M, pin: &Pinned<'_>) {
        done(m.tlb().rest(pin, self.tlb.get()));
        m.tlb().collect(parts(m, pin));
    }

    /// This CPU leaves the space.
    pub fn deactivate<M: SpaceMachine>(&self, m: &M, pin: &Pinned<'_>) {
        done(m.tlb().deactivate(pin, self.tlb.get()));
    }

    /// Takes the space down: every page unmapped, one flush, every table and frame given back. CPUs that still have
    /// it loaded are moved to another root.
    pub fn end<M: SpaceMachine>(mut self, m: &M, pin: &Pinned<'_>) {
        let Space { tree, tlb, .. } = self;
        let mut gather = Gather::ending(parts(m, pin), tlb.get(), F::PAGE_SHIFT);
        tree.end_with(m, &mut gather, |gather, _, raw| release::<F, M>(gather, raw));
        gather.finish();
        self.areas.clear(m);
    }

    #[inline(always)]
    fn pages(range: VirtRange) -> Result<VirtRange, AreaError> {
        let mask = (1u64 << F::PAGE_SHIFT) - 1;
        if range.is_empty() || range.start & mask != 0 || range.end & mask != 0 || range.end > F::USER_END {
            return Err(AreaError::BadRange(range));
        }
        Ok(range)
    }
}

/// The result of a call with a pin and a space of the same machine, made in the middle of no other.
fn done<T>(result: Result<T, Refused>) -> T {
    result.unwrap_or_else(|refused| panic!("{refused}"))
}

/// An entry is gone: its frame's reference goes, and the frame with the last one.
#[inline(always)]
fn release<F: Format, M: Machine>(gather: &mut GatherOf<'_, M>, raw: u64) {
    if F::is_special(raw) {
        return;
    }
    let pfn = F::frame(raw);
    if DataFrames::release(gather.parts().frames, pfn) {
        // SAFETY: 1. that was the last reference, so no entry refers to the frame any more.
        unsafe { gather.data(pfn) };
    }
}
