//! The crate `aarch64-paging`: the machine's frames as its [`Translation`].
//!
//! The crate compiles its TLB instructions for AArch64 alone, so other hosts do not see them. It
//! documents two places for them, and the adapter flushes there:
//!
//! * [`Frames::flushing`] flushes just before a table is freed. Since 0.12.3, `Mapping` invalidates
//!   all that was cached from a table before it frees it.
//! * [`edit`] flushes when a call on a live `Mapping` returns.
//!
//! A finding is a defect whatever the crate invalidates there. `RootTable` never flushes, and says
//! so: use [`Frames::new`] for it.
//!
//! ```
//! use aarch64_paging::Mapping;
//! use aarch64_paging::descriptor::{El1Attributes as A, PhysicalAddress};
//! use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, VaRange};
//! use ptsan::adapters::{Machine, aarch64_paging::{Frames, edit}};
//! use ptsan::{Access, Arch, Config};
//!
//! let machine = Machine::new(Config::new(Arch::aarch64_4k(48)));
//! let frames = Frames::flushing(&machine);
//! let mut mapping = Mapping::with_asid_and_va_range(frames, 1, 0, El1And0, VaRange::Lower);
//! machine.load(0, mapping.root_address().0 as u64, 1);
//! mapping.mark_active();
//! let flags = A::VALID | A::ACCESSED | A::NON_GLOBAL | A::INNER_SHAREABLE | A::USER;
//! let page = MemoryRegion::new(0x7000, 0x8000);
//! edit(&machine, || mapping.map_range(&page, PhysicalAddress(0x123_4000), flags, Constraints::empty())).unwrap();
//! assert_eq!(machine.access(0, 0x7008, Access::WRITE).unwrap().phys, 0x123_4008);
//! mapping.mark_inactive();
//! ```
use super::machine::Machine;
use super::ram::FRAME;
use crate::Content;
use aarch64_paging::descriptor::{PagingAttributes, PhysicalAddress};
use aarch64_paging::paging::{PageTable, Translation};
use std::ptr::NonNull;

/// The machine's frames, as the crate's allocator and translation.
#[derive(Clone, Debug)]
pub struct Frames {
    machine: Machine,
    flushing: bool,
}

impl Frames {
    /// Creates an allocator that does not flush: for `RootTable`, whose user flushes.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        Self { machine: machine.clone(), flushing: false }
    }

    /// Creates an allocator for `Mapping`: every CPU flushes the space that it runs before a frame
    /// is freed.
    #[must_use]
    pub fn flushing(machine: &Machine) -> Self {
        Self { machine: machine.clone(), flushing: true }
    }

    fn pointer<A: PagingAttributes>(&self, phys: u64) -> NonNull<PageTable<A>> {
        match NonNull::new(self.machine.pointer(phys).cast()) {
            Some(pointer) => pointer,
            // `Machine::pointer` points into an allocation.
            None => unreachable!("memory at address zero"),
        }
    }
}

impl<A: PagingAttributes> Translation<A> for Frames {
    /// # Panics
    /// Panics if no frame is left: the crate's interface has no error for it.
    fn allocate_table(&mut self) -> (NonNull<PageTable<A>>, PhysicalAddress) {
        // The crate requires that the allocator clears.
        let Some(frame) = self.machine.allocate(Content::Zero) else {
            panic!("the machine has no frame left")
        };
        (self.pointer(frame), PhysicalAddress(frame as usize))
    }

    unsafe fn deallocate_table(&mut self, table: NonNull<PageTable<A>>) {
        if self.flushing {
            self.machine.flush_loaded(None);
        }
        match self.machine.phys(table.as_ptr().cast()) {
            Some(frame) => self.machine.free(frame, FRAME),
            None => panic!("a table at {table:p} goes back that is none of this machine's"),
        }
    }

    fn physical_to_virtual(&self, table: PhysicalAddress) -> NonNull<PageTable<A>> {
        self.pointer(table.0 as u64)
    }
}

/// Runs `body`, a call on a live `Mapping`, and flushes when the call returns, as the crate does.
pub fn edit<R>(machine: &Machine, body: impl FnOnce() -> R) -> R {
    let result = body();
    machine.flush_loaded(None);
    result
}
