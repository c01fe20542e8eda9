//! The crate `page-table-generic`: a [`Machine`] is its frame allocator, and [`flush`] its TLB hook.
//!
//! The crate brings no entry format: two are here, [`X64`] and [`A64`]. A kernel's own [`TableMeta`] calls [`flush`] in
//! place of its TLB instruction when it is built for tests.
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
use super::{FRAME, Machine, current};
use crate::Content;
use page_table_generic::{FrameAllocator, PageTableEntry, PhysAddr, TableMeta, VirtAddr};

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

/// The body of a [`TableMeta::flush`]: every CPU of the current machine drops what it holds for the address, or all of
/// the space that it runs.
pub fn flush(address: Option<VirtAddr>) {
    current().flush_loaded(address.map(|va| va.as_usize() as u64));
}

/// What an entry allows, for the formats of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allow {
    /// Stores.
    pub write: bool,
    /// User mode.
    pub user: bool,
    /// Translation itself: without it the entry keeps its address, and the hardware faults.
    pub valid: bool,
}

/// A writable user page.
pub const READ_WRITE: Allow = Allow { write: true, user: true, valid: true };
/// A user page that is only read.
pub const READ_ONLY: Allow = Allow { write: false, ..READ_WRITE };

macro_rules! format {
    ($(#[doc = $doc:literal])* $meta:ident, $entry:ident, address $address:literal, table $table:literal, valid $valid:literal,
     page |$allow:ident, $huge_page:ident| $flags:expr, huge |$raw:ident| $huge:expr, write $write:expr, user $user:literal) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $meta;

        impl TableMeta for $meta {
            type P = $entry;
            const PAGE_SIZE: usize = FRAME as usize;
            const LEVEL_BITS: &'static [usize] = &[9, 9, 9, 9];
            const MAX_BLOCK_LEVEL: usize = 3;

            fn flush(address: Option<VirtAddr>) {
                flush(address);
            }
        }

        /// An entry of the format.
        #[derive(Clone, Copy, Debug)]
        #[repr(transparent)]
        pub struct $entry(u64);

        impl PageTableEntry for $entry {
            type PteConfig = Allow;

            fn new_page(frame: PhysAddr, $allow: Allow, $huge_page: bool) -> Self {
                let valid = if $allow.valid { $valid } else { 0 };
                Self(frame.as_usize() as u64 & $address | valid | $flags)
            }

            fn new_table(frame: PhysAddr) -> Self {
                Self(frame.as_usize() as u64 & $address | $table)
            }

            fn paddr(&self, _directory: bool) -> PhysAddr {
                PhysAddr::from_usize((self.0 & $address) as usize)
            }

            fn config(&self, _directory: bool) -> Allow {
                let $raw = self.0;
                Allow { write: $write, user: $raw & $user != 0, valid: $raw & $valid != 0 }
            }

            fn present(&self) -> bool {
                self.0 & $valid != 0
            }

            fn huge(&self, directory: bool) -> bool {
                let $raw = self.0;
                directory && $raw != 0 && $huge
            }

            fn unused(&self) -> bool {
                self.0 == 0
            }

            fn clear(&mut self) {
                self.0 = 0;
            }
        }
    };
}

format! {
    /// x86-64 with 4 levels: present, writable, user, and bit 7 for a large page.
    X64, X64Entry,
    address 0x000f_ffff_ffff_f000, table 7, valid 1,
    page |allow, huge| (u64::from(allow.write) << 1) | (u64::from(allow.user) << 2) | (u64::from(huge) << 7),
    huge |raw| raw & 1 << 7 != 0, write raw & 1 << 1 != 0, user 4
}

format! {
    /// AArch64, 4 KiB granule, 48-bit addresses, stage 1: accessed, inner shareable, not global, no execution.
    A64, A64Entry,
    address 0x0000_ffff_ffff_f000, table 3, valid 1,
    page |allow, huge| {
        let attributes = 1 << 10 | 3 << 8 | 1 << 11 | 1 << 53 | 1 << 54;
        let read_only = u64::from(!allow.write) << 7;
        attributes | read_only | (u64::from(allow.user) << 6) | (u64::from(!huge) << 1)
    },
    huge |raw| raw & 2 == 0, write raw & 1 << 7 == 0, user 0x40
}
