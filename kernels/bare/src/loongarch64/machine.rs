//! The library's view of this machine: a TLB that is filled from spaces' tables, and a user program
//! that the loader has put into memory.

use ptarmigan::addr::PhysAddr;
use ptarmigan_kernel_base::program::Program;

use super::mmu::ASIDS;
use super::negative_controls::{NegativeControl, leaves_out};
use crate::machine::{Board, BoardMachine};

pub use super::mmu::OneCpuMmu as Mmus;
pub use ptarmigan::format::LoongArch64 as Format;

/// Bytes of a page.
pub const PAGE: u64 = 1 << 14;
/// Where the loader puts the user program, and its bytes at the most.
const PROGRAM: PhysAddr = PhysAddr(0x20_0000);
const PROGRAM_LEN: u64 = 4 * PAGE;
/// Numbers of spaces: fewer than there are spaces, so that they are handed out anew.
const NUMBERS: u16 = 6;
const _: () = assert!(NUMBERS <= ASIDS);

/// Returns the user program as an object that spaces map.
pub fn program() -> Program {
    // SAFETY: 1. The loader has put it there, below the image; nobody writes to it.
    unsafe { Program::in_memory(PROGRAM, PROGRAM_LEN, PAGE) }
}

impl BoardMachine for Board {
    fn mmus() -> Mmus {
        Mmus::new()
    }

    fn asids() -> u16 {
        if leaves_out(NegativeControl::Asids) { 0 } else { NUMBERS }
    }
}
