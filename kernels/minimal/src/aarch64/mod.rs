//! QEMU's `virt`, at EL1: pages of 4 KiB. The kernel has a root of its own, so that those of spaces
//! have no entries of it.

use core::arch::global_asm;

use ptarmigan::arch::NoIpi;
use ptarmigan::arch::aarch64::Tlbi;
use ptarmigan::format::Access;
use ptarmigan::frames::MemoryRun;
use ptarmigan_kernel_base::aarch64::virt;
use ptarmigan_kernel_base::direct::physical;
use ptarmigan_kernel_base::{board, fail, fail_if, fdt};

pub use ptarmigan::format::Aarch64 as Format;
pub use ptarmigan_kernel_base::direct::{DIRECT_MAP_LIMIT, direct};

/// The architecture.
pub const NAME: &str = "aarch64";

/// The MMU of the one CPU.
pub type Mmu = Tlbi<Format, NoIpi>;

/// Makes it.
pub fn mmu() -> Mmu {
    Tlbi::new(NoIpi)
}

global_asm!(include_str!("boot.s"), mair = const ptarmigan::format::Aarch64::MAIR);
global_asm!(include_str!("trap.s"));

unsafe extern "C" {
    /// Defined by `boot_tables.s` of base.
    static empty_root: [u64; 512];
    /// Set by the link script; only its address means anything.
    static image_end: u8;
}

/// Where the CPU comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    board::use_board(&virt::VIRT);
    // SAFETY: 1. The board has put it there, below the image; that memory is not used for anything
    // else.
    let Some(tree) = (unsafe { fdt::read(direct(virt::DEVICE_TREE)) }) else {
        fail(format_args!("the board has no device tree"));
    };
    let end = (tree.memory + tree.bytes).min(DIRECT_MAP_LIMIT);
    crate::start(&[MemoryRun::new(physical(&raw const image_end)..end)], physical(&raw const empty_root))
}

/// Called by the assembly for an exception.
#[unsafe(no_mangle)]
extern "C" fn kernel_exception(syndrome: u64, value: u64, pc: u64) {
    // A data abort of this level, for no translation, no access yet or no permission; bit 6: a
    // store.
    let access = match (syndrome >> 26, syndrome >> 2 & 0xf, syndrome >> 6 & 1) {
        (0x25, 1..=3, 1) => Access::Write,
        (0x25, 1..=3, _) => Access::Read,
        _ => fail(format_args!("exception {syndrome:#x}, address {value:#x}, pc {pc:#x}")),
    };
    fail_if(!crate::user::fault(value, access), format_args!("page fault at {value:#x}, pc {pc:#x}"));
}
