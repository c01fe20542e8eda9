//! The crate `page-table-generic`: a [`Machine`] is its frame allocator, and [`flush`] is its TLB
//! hook.
//!
//! The crate has no entry format of its own; this module has two, [`X64`] and [`A64`]. A kernel's
//! own [`TableMeta`] calls [`flush`] in place of its TLB instruction when it is built for tests.
//!
//! ```
//! use page_table_generic::{PageTable, PhysAddr, VirtAddr};
//! use ptsan::adapters::{Machine, page_table_generic::{READ_WRITE, X64}};
//! use ptsan::{Access, Arch, Config};
//!
//! let machine = Machine::new(Config::new(Arch::x86_64()));
//! let _current = machine.enter();
//! let mut table = PageTable::<X64, _>::new(machine.clone()).unwrap();
//! machine.load(0, table.root_paddr().as_usize() as u64, 1);
//! table.map_page(VirtAddr::from_usize(0x7000), PhysAddr::from_usize(0x123_4000), 4096, READ_WRITE).unwrap();
//! assert_eq!(machine.access(0, 0x7008, Access::WRITE).unwrap().phys, 0x123_4008);
//! ```
use super::current::current;
use super::machine::Machine;
use super::ram::FRAME;
use crate::Content;
use page_table_generic::{FrameAllocator, PageTableEntry, PhysAddr, TableMeta, VirtAddr};
use std::fmt;
use std::marker::PhantomData;

impl FrameAllocator for Machine {
    fn alloc_frame(&self) -> Option<PhysAddr> {
        // The crate clears it.
        self.allocate(Content::Unknown).map(|frame| PhysAddr::from_usize(frame as usize))
    }

    fn dealloc_frame(&self, frame: PhysAddr) {
        self.free(frame.as_usize() as u64, FRAME);
    }

    fn phys_to_virt(&self, frame: PhysAddr) -> *mut u8 {
        self.pointer(frame.as_usize() as u64)
    }

    fn alloc_frames(&self, frames: usize, align: usize) -> Option<PhysAddr> {
        self.allocate_run(frames as u64, align as u64).map(|frame| PhysAddr::from_usize(frame as usize))
    }

    fn dealloc_frames(&self, start: PhysAddr, frames: usize, frame_size: usize) {
        self.free(start.as_usize() as u64, (frames * frame_size) as u64);
    }
}

/// Serves as the body of a [`TableMeta::flush`]: every CPU of the current machine drops its
/// translations of the address, or all of the space that it runs.
pub fn flush(address: Option<VirtAddr>) {
    current().flush_loaded(address.map(|va| va.as_usize() as u64));
}

/// The rights of an entry, for the formats of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allow {
    /// Stores.
    pub write: bool,
    /// User mode.
    pub user: bool,
    /// Whether the entry is valid. Without it the entry keeps its address, and the hardware faults.
    pub valid: bool,
}

/// A writable user page.
pub const READ_WRITE: Allow = Allow { write: true, user: true, valid: true };
/// A user page that is only read.
pub const READ_ONLY: Allow = Allow { write: false, ..READ_WRITE };

/// The bits of a format with four levels of 4 KiB tables.
pub trait Format: fmt::Debug + Clone + Copy + Send + Sync + 'static {
    /// The address of a page or a table.
    const ADDRESS: u64;
    /// The bit without which the hardware faults.
    const VALID: u64;
    /// The bit of user mode.
    const USER: u64;
    /// The bits of an entry that points at a table.
    const TABLE: u64;

    /// Returns the bits of an entry that maps a page, without [`Format::VALID`] and
    /// [`Format::USER`].
    fn page(write: bool, large: bool) -> u64;

    /// Returns whether stores are allowed.
    fn writes(raw: u64) -> bool;

    /// Returns whether an entry above the last level maps a page.
    fn is_large(raw: u64) -> bool;
}

/// x86-64.
#[derive(Clone, Copy, Debug)]
pub struct X64Format;

impl Format for X64Format {
    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    const VALID: u64 = 1;
    const USER: u64 = 1 << 2;
    const TABLE: u64 = 7;

    fn page(write: bool, large: bool) -> u64 {
        u64::from(write) << 1 | u64::from(large) << 7
    }

    fn writes(raw: u64) -> bool {
        raw & 1 << 1 != 0
    }

    fn is_large(raw: u64) -> bool {
        raw & 1 << 7 != 0
    }
}

/// AArch64 stage 1, 4 KiB granule, 48-bit addresses.
#[derive(Clone, Copy, Debug)]
pub struct A64Format;

impl A64Format {
    /// Accessed, inner shareable, not global, no execution.
    const ALWAYS: u64 = 1 << 10 | 3 << 8 | 1 << 11 | 3 << 53;
    const READ_ONLY: u64 = 1 << 7;
    /// A page at the last level, a table above; clear: a block.
    const TABLE_OR_PAGE: u64 = 1 << 1;
}

impl Format for A64Format {
    const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
    const VALID: u64 = 1;
    const USER: u64 = 1 << 6;
    const TABLE: u64 = Self::VALID | Self::TABLE_OR_PAGE;

    fn page(write: bool, large: bool) -> u64 {
        let read_only = if write { 0 } else { Self::READ_ONLY };
        let page = if large { 0 } else { Self::TABLE_OR_PAGE };
        Self::ALWAYS | read_only | page
    }

    fn writes(raw: u64) -> bool {
        raw & Self::READ_ONLY == 0
    }

    fn is_large(raw: u64) -> bool {
        raw & Self::TABLE_OR_PAGE == 0
    }
}

/// The crate's description of a format's tables, with [`flush`] as its hook.
#[derive(Clone, Copy, Debug)]
pub struct Tables<F>(PhantomData<F>);

/// x86-64 with 4 levels.
pub type X64 = Tables<X64Format>;
/// AArch64 with 4 levels.
pub type A64 = Tables<A64Format>;

impl<F: Format> TableMeta for Tables<F> {
    type P = Entry<F>;
    const PAGE_SIZE: usize = FRAME as usize;
    const LEVEL_BITS: &'static [usize] = &[9, 9, 9, 9];
    const MAX_BLOCK_LEVEL: usize = 3;

    fn flush(address: Option<VirtAddr>) {
        flush(address);
    }
}

/// An entry of a format.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Entry<F>(u64, PhantomData<F>);

impl<F: Format> PageTableEntry for Entry<F> {
    type PteConfig = Allow;

    fn new_page(frame: PhysAddr, allow: Allow, large: bool) -> Self {
        let bit = |yes: bool, bit: u64| if yes { bit } else { 0 };
        let flags = bit(allow.valid, F::VALID) | bit(allow.user, F::USER) | F::page(allow.write, large);
        Self(frame.as_usize() as u64 & F::ADDRESS | flags, PhantomData)
    }

    fn new_table(frame: PhysAddr) -> Self {
        Self(frame.as_usize() as u64 & F::ADDRESS | F::TABLE, PhantomData)
    }

    fn paddr(&self, _directory: bool) -> PhysAddr {
        PhysAddr::from_usize((self.0 & F::ADDRESS) as usize)
    }

    fn config(&self, _directory: bool) -> Allow {
        Allow { write: F::writes(self.0), user: self.0 & F::USER != 0, valid: self.present() }
    }

    fn present(&self) -> bool {
        self.0 & F::VALID != 0
    }

    fn huge(&self, directory: bool) -> bool {
        directory && !self.unused() && F::is_large(self.0)
    }

    fn unused(&self) -> bool {
        self.0 == 0
    }

    fn clear(&mut self) {
        self.0 = 0;
    }
}
