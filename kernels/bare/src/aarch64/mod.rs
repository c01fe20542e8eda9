//! A kernel for AArch64 (4 KiB granule, 48-bit addresses, EL1): a user program on two CPUs, with
//! ASIDs, break-before-make and broadcast invalidations.
//!
//! The user has the tree below `TTBR0`, the kernel that below `TTBR1`: physical memory from 0 to
//! 4 GiB at [`DIRECT_MAP`](ptarmigan_kernel_base::direct::DIRECT_MAP), the image among it.

mod device;
mod kernel_half;
pub mod machine;
pub mod mmu;
pub mod negative_controls;
pub mod trap;

use core::arch::global_asm;
use core::fmt::Debug;

use negative_controls::{NegativeControl, leaves_out};
use ptarmigan::arch::aarch64::Features;
use ptarmigan_kernel_base::aarch64::{memory, psci, virt};
use ptarmigan_kernel_base::fdt::DeviceTree;
use ptarmigan_kernel_base::say;
use ptarmigan_kernel_base::smp::groups::{self, Mistake};

pub use ptarmigan_kernel_base::aarch64::virt::VIRT;
pub use ptarmigan_kernel_base::aarch64::{clock, irq};

use crate::cpus::{self, BoardCpus};
use crate::machine::{Board, on, pin};

global_asm!(include_str!("../../../base/src/aarch64/boot.s"), mair = const machine::Format::MAIR);

/// Where the first CPU comes from the assembly. The board starts CPU 0.
#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    // SAFETY: 1. The board has put it there, below the image; that memory is not used for anything
    // else.
    unsafe { cpus::run(0, virt::DEVICE_TREE) }
}

impl BoardCpus for Board {
    fn highest_asid() -> u16 {
        Features::read().asids
    }

    unsafe fn before_set_up(_: u64) {
        say!("invalidation of {}", if Features::read().ranges { "ranges" } else { "pages" });
    }

    fn begin_cpu() {
        machine::load_tree();
        irq::allow();
    }

    fn check_assertions(_: &DeviceTree) {
        memory::check();
        groups::check::<machine::Format, _>(on(&pin()), |mistake| {
            mistake == Mistake::Unfold && leaves_out(NegativeControl::Unfold)
        });
    }

    fn kernel_half_check() -> impl FnOnce() {
        device::check();
        let range = kernel_half::Range::claim();
        || range.check()
    }

    unsafe fn start_cpu(cpu: usize, id: u64, start: u64) -> Result<(), impl Debug> {
        // SAFETY: 1. Point 1 of the caller's.
        unsafe { psci::start_cpu(id, start, cpu as u64) }
    }

    fn send_interrupt(cpu: usize) {
        irq::send(cpu);
    }
}
