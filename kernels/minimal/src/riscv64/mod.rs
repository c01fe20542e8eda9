//! QEMU's `virt` with OpenSBI: Sv39, whose upper half is the kernel's.

use core::arch::global_asm;

use ptarmigan::arch::NoIpi;
use ptarmigan::arch::riscv64::SfenceVma;
use ptarmigan::format::Access;
use ptarmigan::frames::MemoryRun;
use ptarmigan_kernel_base::direct::physical;
use ptarmigan_kernel_base::riscv::virt;
use ptarmigan_kernel_base::{board, fail, fail_if, fdt};

pub use ptarmigan::format::Sv39 as Format;
pub use ptarmigan_kernel_base::direct::{DIRECT_MAP_LIMIT, direct};

/// The architecture.
pub const NAME: &str = "riscv64";

/// The MMU of the one hart.
pub type Mmu = SfenceVma<Format, NoIpi>;

/// Makes it.
pub fn mmu() -> Mmu {
    SfenceVma::new(NoIpi)
}

global_asm!(include_str!("boot.s"));
global_asm!(include_str!("trap.s"));

unsafe extern "C" {
    /// Defined by `boot.s`.
    static kernel_root: [u64; 512];
    /// Set by the link script; only its address means anything.
    static image_end: u8;
}

/// Where the hart comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(device_tree: u64) -> ! {
    board::use_board(&virt::VIRT);
    // SAFETY: 1. This is the firmware's own pointer; the memory is written to after the last look
    // at the tree.
    let Some(tree) = (unsafe { fdt::read(direct(device_tree)) }) else {
        fail(format_args!("the firmware passed no device tree"));
    };
    let end = (tree.memory + tree.bytes).min(DIRECT_MAP_LIMIT);
    crate::start(&[MemoryRun::new(physical(&raw const image_end)..end)], physical(&raw const kernel_root))
}

/// Called by the assembly for an exception.
#[unsafe(no_mangle)]
extern "C" fn kernel_exception(cause: u64, value: u64, pc: u64) {
    let access = match cause {
        12 => Access::Exec,
        13 => Access::Read,
        15 => Access::Write,
        _ => fail(format_args!("exception {cause:#x}, address {value:#x}, pc {pc:#x}")),
    };
    fail_if(!crate::user::fault(value, access), format_args!("page fault at {value:#x}, pc {pc:#x}"));
}
