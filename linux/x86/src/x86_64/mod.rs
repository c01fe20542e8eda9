//! The 64-bit CPU, and the PC as it boots through PVH.

pub mod registers;
pub mod segments;
pub mod sigcontext;
pub mod tables;

use core::arch::{asm, global_asm};

use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format as _;
use ptarmigan::frames::NoFrame;
use ptarmigan::params::ParamError;
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::Failed;
use ptarmigan_kernel_x86::lapic;

use crate::mmu;
use crate::registers::Registers;

pub use ptarmigan_kernel_x86::loader::{pvh as entries, pvh_places as places};
pub use registers::{ABI, CALL, Format};

global_asm!(include_str!("../../../../kernels/x86/src/start.s"), include_str!("boot.s"));
global_asm!(include_str!("../../../../kernels/x86/src/stubs.s"), include_str!("trap.s"));
global_asm!(
    ".code32", include_str!("../../../../kernels/x86/src/check.s"), ".code64",
    features = const FEATURES, extended = const EXTENDED
);

/// Features that the CPU must have: time-stamp counter, model-specific registers, PAE, a local
/// interrupt controller, FXSAVE, SSE, SSE2; SYSCALL, pages that are not executable, long mode.
const FEATURES: u32 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 24 | 1 << 25 | 1 << 26;
const EXTENDED: u32 = 1 << 11 | 1 << 20 | 1 << 29;

/// Where the stack of a program ends.
pub const STACK_END: u64 = 0x7fff_ffff_0000;
/// The name of the machine for `uname`.
pub const MACHINE: &str = "x86_64";
/// The name of its page tables.
pub const TABLES: &str = "x86-64";
/// The instructions that clear and copy pages.
pub const PAGE_INSTRUCTIONS: &str = "rep stosq and rep movsq, 512 repetitions each";
/// Whether there may be high memory.
pub const HAS_HIGH: bool = false;
/// Registers that the stub of a trap in the kernel saves.
pub const SAVED: usize = 10;
/// Where the registers of the interrupt controller are: in the direct map.
pub const LAPIC: usize = (tables::DIRECT_MAP + lapic::PHYSICAL) as usize;

/// The window on memory.
pub type Window = DirectMap;

/// Makes it.
///
/// # Safety
///
/// 1. It is called once, while one CPU runs.
pub unsafe fn window() -> Window {
    mmu::direct_map()
}

/// Prints the image's own counts: there are none.
pub fn print_counts() {}

/// The first physical address that frames cannot have.
pub const HIGHEST: u64 = tables::DIRECT_MAP_END;

/// Returns the command line in the loader's text: all of it.
pub fn words(text: &[u8]) -> &[u8] {
    text
}

/// Sets where low memory ends: all memory is low.
///
/// # Errors
///
/// None.
pub fn set_limit(_: &str, _: u64) -> Result<(), ParamError<'_>> {
    Ok(())
}

/// Windows on high memory: there is none.
pub struct Windows;

impl Windows {
    /// Reads the command line.
    ///
    /// # Errors
    ///
    /// None.
    pub fn read(_: &str) -> Result<Self, ParamError<'_>> {
        Ok(Windows)
    }

    /// Returns the bytes of boot memory that they take.
    pub fn bytes(&self, _: usize) -> usize {
        0
    }

    /// Makes them.
    ///
    /// # Safety
    ///
    /// 1. It is called once, while one CPU runs, after the library was set up.
    pub unsafe fn init(&self, _: &mut BootMemory) -> Result<(), Failed> {
        Ok(())
    }

    /// Tests them.
    pub fn test(&self) {}
}

/// Runs `f` with a pointer to a high frame.
///
/// # Errors
///
/// [`NoFrame`]: there is none.
pub fn with_high<R>(pin: &Pinned<'_>, _: Pfn, _: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame> {
    Err(NoFrame::new(0, pin.node(), 0))
}

/// Sets the base of the thread's memory; false if `at` is no address of programs.
pub fn set_thread(registers: &mut Registers, at: u64) -> bool {
    let is_user = at < Format::USER_END;
    if is_user {
        registers.thread = at as usize;
    }
    is_user
}

/// Makes the registers that `enter_user` leaves alone those of a context.
pub fn load(context: &Registers) {
    // SAFETY: 1. The base is an address of programs. 2. The bytes were written by `fxsave`, or
    // checked by `set_vectors`; they are aligned to 16.
    unsafe {
        segments::write_msr(segments::FS_BASE, context.thread as u64);
        asm!("fxrstor64 [{}]", in(reg) &raw const context.vectors, options(nostack, preserves_flags));
    }
}

/// Saves the registers that `enter_user` leaves alone.
pub fn save(context: &mut Registers) {
    // SAFETY: 1. The place has 512 bytes and is aligned to 16.
    unsafe {
        asm!("fxsave64 [{}]", in(reg) &raw mut context.vectors, options(nostack, preserves_flags));
    }
}

/// Clears a page.
///
/// # Safety
///
/// 1. `at` is a page-aligned page of memory, and the caller is its only user meanwhile.
#[inline]
pub unsafe fn clear_page(at: *mut u8) {
    // SAFETY: 1. 512 words of 8 bytes are the page (point 1).
    unsafe {
        asm!("rep stosq", inout("rcx") 512_u64 => _, inout("rdi") at => _, in("rax") 0_u64,
            options(nostack, preserves_flags));
    }
}

/// Copies a page.
///
/// # Safety
///
/// 1. `to` is a page-aligned page of memory, and the caller is its only user meanwhile.
/// 2. `from` is another page-aligned page of memory.
#[inline]
pub unsafe fn copy_page(from: *const u8, to: *mut u8) {
    // SAFETY: 1. 512 words of 8 bytes are the page (points 1 and 2).
    unsafe {
        asm!("rep movsq", inout("rcx") 512_u64 => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
}
