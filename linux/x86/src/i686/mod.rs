//! The 32-bit CPU with PAE, and the PC as it boots through multiboot.

mod kmap;
pub mod registers;
pub mod segments;
pub mod sigcontext;
mod slots;
pub mod tables;
mod windows;

use core::arch::{asm, global_asm};

use ptarmigan::bootmem::BootMemory;
use ptarmigan::params::ParamError;
use ptarmigan_kernel::params;
use ptarmigan_kernel_base::Failed;
use ptarmigan_kernel_x86::lapic;
use ptarmigan_linux::FlushRule::{self, EveryRound, Stale};

use crate::cpu;
use crate::registers::Registers;

pub use ptarmigan_kernel_x86::loader::{multiboot as entries, multiboot_places as places};
pub use registers::{ABI, CALL, Format};
pub use windows::{Window, print_counts, window, with as with_high};

global_asm!(include_str!("../../../../kernels/x86/src/start.s"), include_str!("boot.s"));
global_asm!(include_str!("../../../../kernels/x86/src/stubs.s"), include_str!("trap.s"));
global_asm!(include_str!("memory.s"));
global_asm!(include_str!("../../../../kernels/x86/src/check.s"), features = const FEATURES, extended = const EXTENDED);

/// Features that the CPU must have: time-stamp counter, model-specific registers, PAE, CMPXCHG8B, a
/// local interrupt controller, FXSAVE, SSE; pages that are not executable.
const FEATURES: u32 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 24 | 1 << 25;
const EXTENDED: u32 = 1 << 20;

/// Where the stack of a program ends.
pub const STACK_END: u64 = 0xbfff_0000;
/// The name of the machine for `uname`.
pub const MACHINE: &str = "i686";
/// The name of its page tables.
pub const TABLES: &str = "x86 PAE";
/// The instructions that clear and copy pages.
pub const PAGE_INSTRUCTIONS: &str = "rep stosd and rep movsd, 1024 repetitions each";
/// Whether there may be high memory.
pub const HAS_HIGH: bool = true;
/// Registers that the stub of a trap in the kernel saves.
pub const SAVED: usize = 8;
/// Where the registers of the interrupt controller are: at their physical address.
pub const LAPIC: usize = lapic::PHYSICAL as usize;

/// The first physical address that frames cannot have: frame numbers of the library are 32 bits
/// wide, which PAE's 52-bit addresses exceed.
pub const HIGHEST: u64 = 1 << 40;

/// Returns the command line in the loader's text, whose first word is the image's name.
pub fn words(text: &[u8]) -> &[u8] {
    text.iter().position(|byte| *byte == b' ').map_or(&[], |at| &text[at + 1..])
}

/// Sets where low memory ends, by `low=` of the command line. The archive, which ends at
/// `archive_end`, is read where the loader has put it.
///
/// # Errors
///
/// [`ParamError`].
pub fn set_limit(text: &str, archive_end: u64) -> Result<(), ParamError<'_>> {
    if let Some(limit) = params::mebibytes(text, "low")? {
        tables::set_limit(limit.max(archive_end));
    }
    Ok(())
}

/// Values of `kmap=`.
const KMAP: &str = "local, linux-6.1, linux-2.4";

/// The windows on high memory that `kmap=` asks for.
pub struct Windows {
    name: &'static str,
    linux: Option<FlushRule>,
}

impl Windows {
    /// Reads the command line.
    ///
    /// # Errors
    ///
    /// [`ParamError`].
    pub fn read(text: &str) -> Result<Self, ParamError<'_>> {
        let found = params::choice(text, "kmap", KMAP, &[None, Some(Stale), Some(EveryRound)])?;
        let (name, linux) = found.unwrap_or(("local", None));
        Ok(Windows { name, linux })
    }

    /// Returns the bytes of boot memory that they take.
    pub fn bytes(&self, cpus: usize) -> usize {
        windows::bytes(cpus, self.linux) + self.linux.map_or(0, |_| kmap::bytes())
    }

    /// Makes them.
    ///
    /// # Safety
    ///
    /// 1. It is called once, while one CPU runs, after the library was set up.
    pub unsafe fn init(&self, boot: &mut BootMemory) -> Result<(), Failed> {
        // SAFETY: 1. Point 1 of the caller's.
        unsafe { windows::init(boot, self.linux)? };
        if let Some(rule) = self.linux {
            // SAFETY: 1. Point 1 of the caller's.
            unsafe { kmap::init(boot, rule)? };
        }
        Ok(())
    }

    /// Tests Linux's pool with tasks that sleep, if it is used.
    pub fn test(&self) {
        if self.linux.is_some() {
            kmap::test(self.name);
        }
    }
}

/// Sets the base of the thread's memory.
pub fn set_thread(context: &mut Registers, at: u64) -> bool {
    context.thread = at as usize;
    // The program loads the segment itself; a child of `clone` has it loaded already.
    if context.segments[0] != 0 {
        context.segments[0] = registers::USER_THREAD;
    }
    true
}

/// Makes the registers that `enter_user` leaves alone those of a context.
pub fn load(context: &Registers) {
    // SAFETY: 1. The kernel does not use the segment, which has pages of programs alone for them.
    unsafe { cpu::set_segment(registers::USER_THREAD, segments::thread(context.thread)) };
}

/// Saves the registers that `enter_user` leaves alone: none.
pub fn save(_: &mut Registers) {}

/// Clears a page.
///
/// # Safety
///
/// 1. `at` is a page-aligned page of memory, and the caller is its only user meanwhile.
#[inline]
pub unsafe fn clear_page(at: *mut u8) {
    // SAFETY: 1. 1024 words of 4 bytes are the page (point 1).
    unsafe {
        asm!("rep stosd", inout("ecx") 1024_u32 => _, inout("edi") at => _, in("eax") 0_u32,
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
    // SAFETY: 1. 1024 words of 4 bytes are the page (points 1 and 2). The compiler keeps esi for
    // itself, so that it is exchanged.
    unsafe {
        asm!("xchg esi, {from}", "rep movsd", "xchg esi, {from}", from = inout(reg) from => _,
            inout("ecx") 1024_u32 => _, inout("edi") to => _, options(nostack, preserves_flags));
    }
}
