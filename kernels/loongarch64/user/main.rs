//! The program that runs in user mode: it maps, touches, forks and unmaps memory, and checks the
//! content. It knows only the kernel's calls.
#![no_std]
#![no_main]

#[path = "../../base/user/common.rs"]
mod common;

use core::arch::asm;

use common::{PAGE, alone, check, exit, mmap, munmap, processes, read, write};

type Word = u64;

#[allow(dead_code, reason = "a program uses some of the calls")]
mod abi {
    use super::Word;
    include!("../../base/user/abi.rs");
}

/// Addresses of the kernel's half: of the windows, and beside them.
const KERNEL: [u64; 3] = [0x9000_0000_0040_0000, 0x8000_0000_1fe0_01e0, 0xffff_8000_0000_0000];
/// A place for a process's own pages: on both sides of a border of leaf tables.
const OWN: u64 = 0x1f60_0000;
/// A place for two pages that share an entry of the TLB.
const PAIR: u64 = 0x40_0000_0000;

/// The first code. The kernel has set the stack up and says how often, and a number that tells
/// processes apart.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".entry")]
extern "C" fn start(rounds: u64, seed: u64) -> ! {
    alone();
    processes(seed, |seed| {
        for round in 0..rounds {
            common::round(seed, round);
            pair(seed, round);
        }
    });
    exit(0)
}

fn call(number: u64, a0: u64, a1: u64, a2: u64) -> u64 {
    let result;
    // SAFETY: the kernel keeps all registers but a0; memory may change.
    unsafe {
        asm!("syscall 0", inlateout("$a0") a0 => result, in("$a1") a1, in("$a2") a2, in("$a7") number,
            options(nostack));
    }
    result
}

/// Others may run first.
fn between() {
    call(abi::GIVE_WAY, 0, 0, 0);
}

/// The child of a fork begins: on one CPU it need not wait.
fn child_begins(_: bool) {}

/// The parent has written.
fn parent_wrote(_: u64) {}

/// Pages of a process that may be read, and not jumped into: none that is tried. QEMU 7.2 reads the
/// instruction at which such an exception happens, for `BADI`, and never ends.
fn jumped_into() -> &'static [u64] {
    &[]
}

/// Executes the memory at an address as instructions.
fn jump(at: u64) {
    // SAFETY: the test expects the kernel to end the task before the first instruction.
    unsafe { asm!("jirl $ra, {}, 0", in(reg) at, clobber_abi("C")) };
}

/// The value of a page in a round.
fn value(seed: u64, round: u64, page: u64) -> u64 {
    (seed << 32 | round << 12 | page) ^ 0x5a5a_0000_0000_0000
}

/// What happens to one page of an entry of the TLB leaves the other alone.
fn pair(seed: u64, round: u64) {
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
