//! Calls of the kernel, instructions, and a part of each round that is about the hash table.

use core::arch::{asm, global_asm};

use crate::abi;
use crate::common::{PAGE, check, mmap, munmap, read, value, write};
use crate::cpus::between;

/// Addresses of the kernel's half: memory, and a page that the hash table may hold.
pub const KERNEL: [u32; 2] = [0xc001_0000, 0xf000_0000];
/// A place for pages that share their groups in the hash table.
const CROWD: u32 = 0x4000_0000;

// The target expects these from libc and libstd.
global_asm!(include_str!("../src/ppc32/memory.s"));

/// Makes a call of the kernel.
pub fn call(number: u32, a: u32, b: u32, c: u32) -> u32 {
    let result;
    // SAFETY: the kernel keeps all registers but r3; memory may change.
    unsafe {
        asm!("sc", inout("r0") number => _, inlateout("r3") a => result, in("r4") b, in("r5") c, options(nostack));
    }
    result
}

/// Executes the memory at an address as instructions.
pub fn jump(at: u32) {
    // SAFETY: the test expects the kernel to end the task before the first instruction.
    unsafe { asm!("mtctr {}", "bctrl", in(reg) at, clobber_abi("C")) };
}

const CROWD_PAGES: u32 = 24;
/// Pages this far apart share their groups, of which there are 1,024.
const CROWD_STRIDE: u32 = 1024 * PAGE;
const CROWD_LEN: u32 = CROWD_PAGES * CROWD_STRIDE;

fn crowd(page: u32) -> u32 {
    CROWD + page * CROWD_STRIDE
}

/// More pages than their groups hold: they drive each other out of the hash table.
pub fn round(seed: u32, round: u32) {
    mmap(CROWD, CROWD_LEN);
    for page in 0..CROWD_PAGES {
        write(crowd(page), value(seed, round, page));
    }
    for pass in 0..2 {
        between();
        for page in 0..CROWD_PAGES {
            check(abi::CHECK_EVICTED, read(crowd(page)), value(seed, round + pass, page));
            write(crowd(page), value(seed, round + pass + 1, page));
        }
    }
    // Half of them go, evicted or not, and come back empty.
    let half = CROWD_LEN / 2;
    munmap(CROWD, half);
    mmap(CROWD, half);
    for page in 0..CROWD_PAGES {
        let wanted = if page < CROWD_PAGES / 2 { 0 } else { value(seed, round + 2, page) };
        check(abi::CHECK_STALE, read(crowd(page)), wanted);
    }
    munmap(CROWD, CROWD_LEN);
}
