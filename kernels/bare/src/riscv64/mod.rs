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

use negative_controls::{NegativeControl, leaves_out};
use ptarmigan_kernel_base::fdt::DeviceTree;
use ptarmigan_kernel_base::riscv::harts;
use ptarmigan_kernel_base::riscv::sbi::{self, SbiError};
use ptarmigan_kernel_base::smp::groups::{self, Mistake};
use ptarmigan_kernel_mailbox::{self as mailbox, Operation};

pub use harts::interrupt;
pub use ptarmigan_kernel_base::riscv::virt::VIRT;
pub use ptarmigan_kernel_base::riscv::{irq, sbi as clock};

use crate::cpus;
use crate::machine::{machine, on, pin};

global_asm!(include_str!("../../../base/src/riscv/boot.s"));

/// Where the first hart comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(hart: u64, device_tree: u64) -> ! {
    // SAFETY: 1. This is the firmware's own pointer.
    unsafe { cpus::run(hart, device_tree) }
}

/// Maps the page of the kernel's half. Returns the step after set-up: the root that harts load when
/// they leave a space, and the first messages to a recorder if the boot arguments ask for it.
///
/// # Safety
///
/// 1. No other hart runs, and the library has not been set up yet.
pub unsafe fn before_set_up(first: u64, arguments: &str) -> impl FnOnce() + use<> {
    let announces = arguments.split_ascii_whitespace().any(|word| word == mailbox::WORD);
    harts::set(0, first);
    // SAFETY: 1. Point 1 of the caller's.
    unsafe { kernel_half::map() };
    move || {
        mmu::set_kernel_root(machine().kernel_map().root().0);
        if announces {
            kernel_half::announce();
        }
    }
}

/// Has this hart take interrupts.
pub fn begin_cpu() {
    irq::allow(irq::SOFTWARE | irq::TIMER);
}

/// Runs the checks of images with the library's own checks: on groups of pages, if all harts have
/// these, and if no recorder reads tables as those of Sv39.
pub fn check_assertions(board: &DeviceTree) {
    if board.napots != board.cpus || mailbox::is_on() {
        return;
    }
    groups::check::<machine::Format, _>(on(&pin()), |mistake| match mistake {
        Mistake::Size => leaves_out(NegativeControl::Size),
        Mistake::Unfold => leaves_out(NegativeControl::Unfold),
    });
}

/// Returns the check of the kernel's half, which is made while other harts look on.
pub fn kernel_half_check() -> impl FnOnce() {
    kernel_half::check
}

/// Starts a hart at physical address `start`.
///
/// # Safety
///
/// 1. The code at `start` may be run by that hart, which is CPU `cpu`.
pub unsafe fn start_cpu(cpu: usize, id: u64, start: u64) -> Result<(), SbiError> {
    harts::set(cpu, id);
    // SAFETY: 1. Point 1 of the caller's.
    unsafe { sbi::start_hart(id, start, cpu as u64) }
}

/// Runs a change of tables. A recorder learns when it begins and ends.
pub fn change<R>(f: impl FnOnce() -> R) -> R {
    let _operation = Operation::begin(irq::cpu());
    f()
}

/// This hart has left a space.
pub fn left() {
    mmu::check_fenced("the kernel's");
}

/// The run ends.
pub fn ends() {
    mailbox::send(irq::cpu(), mailbox::code::END, [0; 4]);
}
