//! The program that runs in user mode: it maps, touches, forks and unmaps memory, and checks the
//! content. It knows only the kernel's calls.
#![no_std]
#![no_main]

#[path = "../src/abi.rs"]
#[allow(dead_code)]
mod abi;

#[path = "../../base/user/common.rs"]
mod common;

use core::arch::{asm, global_asm};

use common::{PAGE, alone, check, exit, mmap, munmap, processes, read, write};

type Word = u32;

/// Addresses of the kernel's half: memory, and a page that the hash table may hold.
const KERNEL: [u32; 2] = [0xc001_0000, abi::KERNEL_PAGE];
/// A place for a process's own pages.
const OWN: u32 = 0x2000_0000;
/// A place for pages that share their groups in the hash table.
const CROWD: u32 = 0x4000_0000;

/// The first code. The kernel has set the stack up and says how often, and a number that tells
/// processes apart.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".entry")]
extern "C" fn start(rounds: u32, seed: u32) -> ! {
    alone();
    processes(seed, |seed| {
        for round in 0..rounds {
            common::round(seed, round);
            crowded(seed, round);
        }
    });
    exit(0)
}

// The symbols that the target expects from libc and libstd. Panics never unwind.
global_asm!(
    ".section .text.memory,\"ax\",@progbits",
    ".globl memset, rust_eh_personality",
    "memset:",
    "mr 6, 3",
    "cmpwi 5, 0",
    "beqlr",
    "mtctr 5",
    "2: stb 4, 0(6)",
    "addi 6, 6, 1",
    "bdnz 2b",
    "blr",
    "rust_eh_personality:",
    "trap",
);

fn call(number: u32, a: u32, b: u32, c: u32) -> u32 {
    let result;
    // SAFETY: the kernel keeps all registers but r3; memory may change.
    unsafe {
        asm!("sc", inout("r0") number => _, inlateout("r3") a => result, in("r4") b, in("r5") c, options(nostack));
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
fn parent_wrote(_: u32) {}

/// Pages of a process that may be read, and not jumped into: this MMU has no permission for
/// instructions of a page's own.
fn jumped_into() -> &'static [u32] {
    &[]
}

/// Executes the memory at an address as instructions.
fn jump(at: u32) {
    // SAFETY: the test expects the kernel to end the task before the first instruction.
    unsafe { asm!("mtctr {}", "bctrl", in(reg) at, clobber_abi("C")) };
}

/// The value of a page in a round.
fn value(seed: u32, round: u32, page: u32) -> u32 {
    (seed << 24 | round << 16 | page) ^ 0x5a5a_5a5a
}

// ---- more pages than their groups hold: they drive each other out of the hash table

const CROWD_PAGES: u32 = 24;
/// Pages this far apart share their groups, of which there are 1,024.
const CROWD_STRIDE: u32 = 1024 * PAGE;
const CROWD_LEN: u32 = CROWD_PAGES * CROWD_STRIDE;

fn crowd(page: u32) -> u32 {
    CROWD + page * CROWD_STRIDE
}

fn crowded(seed: u32, round: u32) {
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
