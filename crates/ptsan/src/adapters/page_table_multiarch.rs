//! The crate `page_table_multiarch`: its static handler over the current
//! [`Machine`](super::Machine).
//!
//! The crate compiles its own TLB instructions for bare metal only, so hosts do not see them.
//! [`edit`] keeps the promises of the crate's documentation, and more: when the cursor is dropped,
//! every CPU flushes the whole space. A finding is a defect whatever the crate would have flushed
//! there.
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
use super::current::current;
use super::ram::FRAME;
use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::{
    GenericPTE, MappingFlags, PageTable64, PageTable64Cursor, PagingHandler, PagingMetaData,
};

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

/// AArch64, 4 KiB granule, 48-bit addresses: the crate has its own for that target alone.
#[derive(Clone, Copy, Debug)]
pub struct A64;

impl PagingMetaData for A64 {
    const LEVELS: usize = 4;
    const PA_MAX_BITS: usize = 48;
    const VA_MAX_BITS: usize = 48;

    type VirtAddr = VirtAddr;

    fn flush_tlb(va: Option<VirtAddr>) {
        current().flush_loaded(va.map(|va| va.as_usize() as u64));
    }
}

/// A stage 1 entry of AArch64.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct A64Entry(u64);

impl A64Entry {
    const VALID: u64 = 1;
    const TABLE_OR_PAGE: u64 = 1 << 1;
    const USER: u64 = 1 << 6;
    const READ_ONLY: u64 = 1 << 7;
    /// Accessed, inner shareable, not global.
    const ALWAYS: u64 = 1 << 10 | 3 << 8 | 1 << 11;
    /// No execution, privileged or not.
    const NO_EXECUTE: u64 = 3 << 53;
    const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

    fn attributes(flags: MappingFlags, is_huge: bool) -> u64 {
        let bit = |yes: bool, bit: u64| if yes { bit } else { 0 };
        Self::ALWAYS
            | bit(!flags.is_empty(), Self::VALID)
            | bit(!is_huge, Self::TABLE_OR_PAGE)
            | bit(flags.contains(MappingFlags::USER), Self::USER)
            | bit(!flags.contains(MappingFlags::WRITE), Self::READ_ONLY)
            | bit(!flags.contains(MappingFlags::EXECUTE), Self::NO_EXECUTE)
    }
}

impl GenericPTE for A64Entry {
    fn new_page(frame: PhysAddr, flags: MappingFlags, is_huge: bool) -> Self {
        Self(frame.as_usize() as u64 & Self::ADDRESS | Self::attributes(flags, is_huge))
    }

    fn new_table(frame: PhysAddr) -> Self {
        Self(frame.as_usize() as u64 & Self::ADDRESS | Self::VALID | Self::TABLE_OR_PAGE)
    }

    fn paddr(&self) -> PhysAddr {
        PhysAddr::from_usize((self.0 & Self::ADDRESS) as usize)
    }

    fn flags(&self) -> MappingFlags {
        let mut flags = MappingFlags::empty();
        if self.is_present() {
            flags |= MappingFlags::READ;
            flags.set(MappingFlags::USER, self.0 & Self::USER != 0);
            flags.set(MappingFlags::WRITE, self.0 & Self::READ_ONLY == 0);
            flags.set(MappingFlags::EXECUTE, self.0 & Self::NO_EXECUTE == 0);
        }
        flags
    }

    fn set_paddr(&mut self, frame: PhysAddr) {
        self.0 = self.0 & !Self::ADDRESS | frame.as_usize() as u64 & Self::ADDRESS;
    }

    fn set_flags(&mut self, flags: MappingFlags, is_huge: bool) {
        self.0 = self.0 & Self::ADDRESS | Self::attributes(flags, is_huge);
    }

    fn bits(self) -> usize {
        self.0 as usize
    }

    fn is_unused(&self) -> bool {
        self.0 == 0
    }

    fn is_present(&self) -> bool {
        self.0 & Self::VALID != 0
    }

    fn is_huge(&self) -> bool {
        self.0 & Self::TABLE_OR_PAGE == 0
    }

    fn clear(&mut self) {
        self.0 = 0;
    }
}
