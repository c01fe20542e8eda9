//! Calls of the kernel, instructions, and a part of each round that is about entries of the TLB.

use core::arch::asm;

use crate::abi;
use crate::common::{PAGE, check, mmap, munmap, read, value, write};

/// Addresses of the kernel's half: of the windows, and beside them.
pub const KERNEL: [u64; 3] = [0x9000_0000_0040_0000, 0x8000_0000_1fe0_01e0, 0xffff_8000_0000_0000];
/// A place for two pages that share an entry of the TLB.
const PAIR: u64 = 0x40_0000_0000;

/// Makes a call of the kernel.
pub fn call(number: u64, a0: u64, a1: u64, a2: u64) -> u64 {
    let result;
    // SAFETY: the kernel keeps all registers but a0; memory may change.
    unsafe {
        asm!("syscall 0", inlateout("$a0") a0 => result, in("$a1") a1, in("$a2") a2, in("$a7") number,
            options(nostack));
    }
    result
}

/// Executes the memory at an address as instructions.
pub fn jump(at: u64) {
    // SAFETY: the test expects the kernel to end the task before the first instruction.
    unsafe { asm!("jirl $ra, {}, 0", in(reg) at, clobber_abi("C")) };
}

/// What happens to one page of an entry of the TLB leaves the other alone.
pub fn round(seed: u64, round: u64) {
    let (one, other) = (PAIR + (round & 1) * PAGE, PAIR + (!round & 1) * PAGE);
    mmap(PAIR, 2 * PAGE);
    write(other, value(seed, round, 0));
    check(abi::CHECK_ZERO, read(one), 0);
    write(one, value(seed, round, 1));
    check(abi::CHECK_KEPT, read(other), value(seed, round, 0));
    munmap(one, PAGE);
    mmap(one, PAGE);
    check(abi::CHECK_KEPT, read(other), value(seed, round, 0));
    check(abi::CHECK_STALE, read(one), 0);
    munmap(other, PAGE);
    write(one, value(seed, round, 2));
    mmap(other, PAGE);
    check(abi::CHECK_STALE, read(other), 0);
    check(abi::CHECK_KEPT, read(one), value(seed, round, 2));
    // All of a page is there, and no part of it twice.
    let part = |n| one + n * PAGE / 4;
    for n in 0..4 {
        write(part(n), value(seed, round, n));
    }
    for n in 0..4 {
        check(abi::CHECK_KEPT, read(part(n)), value(seed, round, n));
    }
    munmap(PAIR, 2 * PAGE);
}
