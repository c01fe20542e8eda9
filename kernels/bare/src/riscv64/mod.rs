//! A kernel for RISC-V (Sv39): a user program on two harts, with ASIDs and shootdowns.
//!
//! Every address space has the user in its lower half and the kernel in the upper one: physical
//! memory from 0 to 4 GiB at [`DIRECT_MAP`](ptarmigan_kernel_base::direct::DIRECT_MAP), the image
//! among it.

mod kernel_half;
pub mod machine;
pub mod mmu;
pub mod negative_controls;
pub mod trap;

use core::arch::global_asm;
use core::fmt::Debug;

use negative_controls::{NegativeControl, leaves_out};
use ptarmigan::arch::NoIpi;
use ptarmigan::arch::riscv64::SfenceVma;
use ptarmigan::cpu::Pinned;
use ptarmigan::machine::Machine as _;
use ptarmigan_kernel_base::fdt::DeviceTree;
use ptarmigan_kernel_base::riscv::harts;
use ptarmigan_kernel_base::riscv::sbi;
use ptarmigan_kernel_base::smp::groups::{self, Mistake};
use ptarmigan_kernel_mailbox as mailbox;

pub use ptarmigan_kernel_base::riscv::virt::VIRT;
pub use ptarmigan_kernel_base::riscv::{irq, sbi as clock};

use crate::cpus::{self, BoardCpus};
use crate::machine::{Board, machine, on, pin};

global_asm!(include_str!("../../../base/src/riscv/boot.s"));

/// Where the first hart comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(hart: u64, device_tree: u64) -> ! {
    // SAFETY: 1. This is the firmware's own pointer.
    unsafe { cpus::run(hart, device_tree) }
}

impl BoardCpus for Board {
    fn highest_asid() -> u16 {
        SfenceVma::<machine::Format, _>::detect(NoIpi).asids()
    }

    unsafe fn before_set_up(first: u64) {
        harts::set(0, first);
        // SAFETY: 1. Point 1 of the caller's.
        unsafe { kernel_half::map() };
    }

    fn after_set_up(announces: bool) {
        mmu::set_kernel_root(machine().kernel_map().root().0);
        if announces {
            kernel_half::announce();
        }
    }

    fn begin_cpu() {
        irq::allow(irq::SOFTWARE | irq::TIMER);
    }

    /// Checks groups of pages if all harts have these, and if no recorder reads tables as those of
    /// Sv39.
    fn check_assertions(board: &DeviceTree) {
        if board.napots != board.cpus || mailbox::is_on() {
            return;
        }
        groups::check::<machine::Format, _>(on(&pin()), |mistake| match mistake {
            Mistake::Size => leaves_out(NegativeControl::Size),
            Mistake::Unfold => leaves_out(NegativeControl::Unfold),
        });
    }

    fn kernel_half_check() -> impl FnOnce() {
        kernel_half::check
    }

    unsafe fn start_cpu(cpu: usize, id: u64, start: u64) -> Result<(), impl Debug> {
        harts::set(cpu, id);
        // SAFETY: 1. Point 1 of the caller's.
        unsafe { sbi::start_hart(id, start, cpu as u64) }
    }

    fn send_interrupt(cpu: usize) {
        harts::interrupt(cpu);
    }

    fn serve(pin: &Pinned<'_>) {
        mmu::set_answering(pin, true);
        machine().tlb().serve(pin);
        mmu::set_answering(pin, false);
    }

    fn left_space() {
        mmu::check_fenced("the kernel's");
    }
}
