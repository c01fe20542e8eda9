//! A kernel for LoongArch (16 KiB pages, 47-bit addresses): user programs in several spaces, ASIDs,
//! and a TLB that a handler of misses fills from the library's tables. QEMU keeps entries of the
//! TLB as hardware does, valid or not, so the programs notice an invalidation that is missing.
//!
//! The user has the tree below `PGDL`. The kernel is in two windows that only it may use: physical
//! memory, the image among it, and devices.

pub mod machine;
mod mmu;
pub mod negative_controls;
pub mod trap;

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use machine::{Format, PAGE};
use ptarmigan::addr::{PhysAddr, VirtAddr};
use ptarmigan::format::{Access, Attr, Format as _};
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::page::Level;
use ptarmigan::space::SharedSpace;
use ptarmigan_kernel_base::direct::direct;
use ptarmigan_kernel_base::fail_if;

use crate::cpus::BoardCpu;
use crate::machine::{Board, Machine, machine};

global_asm!(include_str!("boot.s"));

/// Where devices are reached, not cached.
const DEVICES: usize = 0x8000_0000_0000_0000;
/// The serial port, a 16550.
pub const DATA: usize = DEVICES + 0x1fe0_01e0;
/// The ACPI sleep register.
pub const END: usize = DEVICES + 0x100e_001c;
/// Sleep state 5, now: the machine ends.
pub const ENDS: u8 = 5 << 2 | 1 << 5;

/// The address of the last fault, and how many came there in a row.
static LAST: AtomicU64 = AtomicU64::new(0);
static IN_A_ROW: AtomicU64 = AtomicU64::new(0);
/// More faults in a row at one address than programs make.
const TOO_MANY: u64 = 64;

impl BoardCpu for Board {
    const NAME: &str = "LoongArch";
    const STACK_END: u64 = 0x40_0000_0000;

    /// Has misses of the TLB handled, and fills the page at physical address 0, where a walk
    /// through an empty directory ends up, with entries that show it to everybody.
    unsafe fn before_set_up(start: u64) -> u64 {
        let at: *mut u64 = direct(0);
        let attr = Attr::READ | Attr::WRITE | Attr::DIRTY | Attr::USER | Attr::EXEC;
        let entry = Format::leaf(Level(0), PhysAddr(0).pfn(), attr);
        for index in 0..PAGE as usize / size_of::<u64>() {
            // SAFETY: memory of the board below everything that is used, in the window.
            unsafe { at.add(index).write_volatile(entry) };
        }
        mmu::set_refill();
        start
    }

    fn report() {
        machine().report(format_args!("ASIDs {}", machine().tlb().config().asids));
    }

    /// The handler of misses fills the TLB, so a fault is the library's. One that comes again and
    /// again has an entry in the TLB that is older than its table's.
    fn refill(
        _: &SharedSpace<Format>,
        _: On<'_, Machine>,
        va: VirtAddr,
        _: Access,
        _protected: bool,
    ) -> bool {
        let again = LAST.swap(va.0, Ordering::Relaxed) == va.0;
        let row = if again { IN_A_ROW.load(Ordering::Relaxed) + 1 } else { 0 };
        IN_A_ROW.store(row, Ordering::Relaxed);
        fail_if(row == TOO_MANY, format_args!("a page faults for ever: {va}"));
        false
    }
}
