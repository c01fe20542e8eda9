//! The crate `page_table_multiarch`: its static handler over the current [`Machine`].
//!
//! The crate compiles its own TLB instructions for bare metal only, so that nothing is seen of them here. [`edit`] does
//! what its documentation promises instead, generously: when the cursor is dropped, every CPU flushes the whole space.
//! What is found is wrong whatever the crate would have flushed there.
//!
//! ```
//! use memory_addr::{PhysAddr, VirtAddr};
//! use page_table_multiarch::{MappingFlags, PageSize, x86_64::X64PageTable};
//! use ptsan::adapters::{Machine, page_table_multiarch::{Handler, edit}};
//! use ptsan::{Access, Arch, Config};
//!
//! let machine = Machine::new(Config::new(Arch::x86_64()));
//! let _current = machine.enter();
//! let mut table = X64PageTable::<Handler>::try_new().unwrap();
//! machine.load(0, table.root_paddr().as_usize() as u64, 1);
//! let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
//! edit(&mut table, |cursor| {
//!     cursor.map(VirtAddr::from_usize(0x7000), PhysAddr::from_usize(0x123_4000), PageSize::Size4K, flags)
//! })
//! .unwrap();
//! assert_eq!(machine.access(0, 0x7008, Access::WRITE).unwrap().phys, 0x123_4008);
//! ```
use super::{FRAME, current};
use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::{GenericPTE, PageTable64, PageTable64Cursor, PagingHandler, PagingMetaData};

/// The current machine's frames.
#[derive(Clone, Copy, Debug)]
pub struct Handler;

impl PagingHandler for Handler {
    fn alloc_frames(frames: usize, align: usize) -> Option<PhysAddr> {
        // The crate clears them.
        current().allocate_run(frames as u64, align as u64).map(|frame| PhysAddr::from_usize(frame as usize))
    }

    fn dealloc_frames(frame: PhysAddr, frames: usize) {
        current().free(frame.as_usize() as u64, frames as u64 * FRAME);
    }

    fn phys_to_virt(frame: PhysAddr) -> VirtAddr {
        VirtAddr::from_mut_ptr_of(current().pointer(frame.as_usize() as u64))
    }
}

/// Runs `body` with the table's cursor, drops the cursor, and flushes.
pub fn edit<M: PagingMetaData, PTE: GenericPTE, R>(
    table: &mut PageTable64<M, PTE, Handler>,
    body: impl FnOnce(&mut PageTable64Cursor<'_, M, PTE, Handler>) -> R,
) -> R {
    let mut cursor = table.cursor();
    let result = body(&mut cursor);
    drop(cursor);
    current().flush_loaded(None);
    result
}
