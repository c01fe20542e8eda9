//! A kernel for PowerPC's hashed page table (604): user programs in several spaces, pages of the
//! kernel's own, and a hash table of 64 KiB that handlers of faults fill from the library's tables.
//! QEMU never looks at the tables, so the programs notice stale entries in the hash table or in the
//! TLB.
//!
//! Every address space has the user in segments 0 to 11 and the kernel in the others: physical
//! memory at [`DIRECT_MAP`](ptarmigan_kernel_base::direct::DIRECT_MAP) and devices at
//! [`mmu::DEVICES`], both by block translation, and pages from 0xe0000000 on.

mod hashed;
mod kernel_half;
pub mod machine;
mod mmu;
pub mod negative_controls;
pub mod trap;

use core::arch::global_asm;

use hashed::HASH_TABLE;
use machine::Format;
use negative_controls::{NegativeControl, leaves_out};
use ptarmigan::addr::VirtAddr;
use ptarmigan::format::Access;
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::space::SharedSpace;
use ptarmigan_kernel_base::{Failed, fail, fail_if, say};

use crate::cpus::BoardCpu;
use crate::machine::{Board, Machine, machine};

global_asm!(include_str!("boot.s"));
// The target expects these from libc and libstd.
global_asm!(include_str!("memory.s"));

/// The serial port, a 16550.
pub const DATA: usize = mmu::DEVICES + 0x3f8;
/// The keyboard controller's port for commands.
pub const END: usize = mmu::DEVICES + 0x64;
/// The command that resets the machine.
pub const ENDS: u8 = 0xfe;

impl BoardCpu for Board {
    const NAME: &str = "PowerPC";
    const STACK_END: u64 = 0xb000_0000;

    /// Sets the hash table up, aligned to its size.
    unsafe fn before_set_up(start: u64) -> u64 {
        let at = start.next_multiple_of(HASH_TABLE);
        // SAFETY: 1. Point 1 of the caller's; all else begins behind it. 2. Point 2.
        let Ok(()) = unsafe { hashed::set_up(at) }.map_err(Failed::from);
        at + HASH_TABLE
    }

    fn check_kernel_half() {
        kernel_half::check();
    }

    fn check_balance() {
        let hashed = hashed::table().valid();
        fail_if(hashed != 0, format_args!("stale: {hashed} pages are hashed, and none is mapped"));
    }

    /// The kernel has a page of its own meanwhile.
    fn around_programs(f: impl FnOnce()) {
        kernel_half::with_page(f);
    }

    /// The kernel uses its page, so the hash table holds it.
    fn before_turn() {
        kernel_half::use_page();
    }

    /// Pages have to be evicted from the hash table.
    fn report() {
        let hash = hashed::table().counts();
        machine().report(format_args!("{} hashed pages", machine().tlb().counts().hashed));
        say!(
            "hash table: {} inserted, {} over another page; {} removed, {} not found; wiped {} times; {} probes",
            hash.inserted,
            hash.evicted,
            hash.removed,
            hash.missing,
            hash.wiped,
            hash.probes
        );
        fail_if(
            hash.evicted < 1000 || hash.wiped == 0 || hash.missing == 0,
            format_args!("too little happened in the hash table"),
        );
    }

    /// Puts a page that was missed into the hash table, as its entry says. After a fault the page
    /// is not hashed yet, so the access misses once more.
    fn refill(
        space: &SharedSpace<Format>,
        on: On<'_, Machine>,
        va: VirtAddr,
        access: Access,
        protected: bool,
    ) -> bool {
        if leaves_out(NegativeControl::Bit) {
            // As a handler does it that only reads the software's entry.
            return match space.query(on, va) {
                Ok(Some((frame, attr))) => hashed::insert_unmarked(va, protected, frame, attr, access),
                _ => false,
            };
        }
        space
            .refill(on, va, access, |entry| hashed::refill_user(va.0 as u32, protected, entry))
            .unwrap_or_else(|e| fail(format_args!("{e}")))
    }
}
