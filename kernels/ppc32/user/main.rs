//! The program that runs in user mode: it maps, touches, forks and unmaps memory, and checks what
//! it sees. It knows nothing but the kernel's calls.
#![no_std]
#![no_main]

#[path = "../src/abi.rs"]
#[allow(dead_code)]
mod abi;

use core::arch::{asm, global_asm};
use core::panic::PanicInfo;
use core::ptr;

const PAGE: u32 = 4096;
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
    let mut children = [0; 2];
    for (n, child) in children.iter_mut().enumerate() {
        *child = must(call(abi::FORK, 0, 0, 0));
        if *child == 0 {
            process(rounds, seed * 8 + n as u32 + 1);
            exit(0);
        }
    }
    process(rounds, seed * 8);
    for child in children {
        check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), 0);
    }
    exit(0)
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(abi::ERROR)
}

// What the target expects from libc and libstd. Nothing unwinds.
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

fn exit(code: u32) -> ! {
    call(abi::EXIT, code, 0, 0);
    loop {}
}

fn check(what: u32, got: u32, wanted: u32) {
    if got != wanted {
        call(abi::FAILED, what, got, wanted);
    }
}

fn must(result: u32) -> u32 {
    if result == abi::ERROR {
        call(abi::FAILED, abi::CHECK_CALL, result, 0);
    }
    result
}

fn mmap(at: u32, len: u32) {
    must(call(abi::MMAP, at, len, abi::READ | abi::WRITE));
}

fn munmap(at: u32, len: u32) {
    must(call(abi::MUNMAP, at, len, 0));
}

fn give_way() {
    call(abi::GIVE_WAY, 0, 0, 0);
}

fn read(at: u32) -> u32 {
    // SAFETY: a word of this program's test pages.
    unsafe { ptr::read_volatile(ptr::with_exposed_provenance(at as usize)) }
}

fn write(at: u32, value: u32) {
    // SAFETY: a word of this program's test pages.
    unsafe { ptr::write_volatile(ptr::with_exposed_provenance_mut(at as usize), value) }
}

/// Goes on with what lies there as instructions.
fn jump(at: u32) {
    // SAFETY: the kernel ends the task before the first of them, which is what is tried.
    unsafe { asm!("mtctr {}", "bctrl", in(reg) at, clobber_abi("C")) };
}

/// The value of a page in a round.
fn value(seed: u32, round: u32, page: u32) -> u32 {
    (seed << 24 | round << 16 | page) ^ 0x5a5a_5a5a
}

// ---- before anything else: what one task alone notices of a kernel that leaves something out

fn alone() {
    let page = |n| OWN + n * PAGE;
    mmap(OWN, 8 * PAGE);
    for n in 0..8 {
        write(page(n) + 8, n + 1);
    }
    munmap(OWN, 8 * PAGE);
    mmap(OWN, 8 * PAGE);
    for n in 0..8 {
        check(abi::CHECK_STALE, read(page(n) + 8), 0);
    }
    // The frames of before come back for these.
    for n in 0..8 {
        write(page(n), n + 1);
        check(abi::CHECK_ZERO, read(page(n) + 8), 0);
    }
    let child = must(call(abi::FORK, 0, 0, 0));
    if child == 0 {
        write(page(0) + 8, 7);
        check(abi::CHECK_CHILD, read(page(0)), 1);
        exit(7);
    }
    check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), 7);
    check(abi::CHECK_PARENT, read(page(0) + 8), 0);
    munmap(OWN, 8 * PAGE);
}

// ---- several spaces: each process has faults, forks and unmappings of its own

const OWN_PAGES: u32 = 40;
/// Pages are this far apart: two leaf tables for all of them.
const OWN_STRIDE: u32 = 33 * PAGE;
const OWN_LEN: u32 = OWN_PAGES * OWN_STRIDE;

fn own(page: u32) -> u32 {
    OWN + page * OWN_STRIDE
}

fn process(rounds: u32, seed: u32) {
    for round in 0..rounds {
        anonymous(seed, round);
        give_way();
        forked(seed, round);
        if round % 8 == 0 {
            denied();
        }
        munmap(OWN, OWN_LEN);
        crowded(seed, round);
    }
}

/// Faults on anonymous memory, and unmapping a part of it. Leaves the pages mapped and written.
fn anonymous(seed: u32, round: u32) {
    mmap(OWN, OWN_LEN);
    for page in 0..OWN_PAGES {
        // Half of them are read first, and show the zero page then.
        if (page ^ round) & 1 == 0 {
            check(abi::CHECK_ZERO, read(own(page) + 8), 0);
        }
        write(own(page), value(seed, round, page));
        check(abi::CHECK_ZERO, read(own(page) + 8), 0);
        check(abi::CHECK_ZERO, read(own(page) + PAGE - 8), 0);
        write(own(page) + PAGE - 8, !value(seed, round, page));
    }
    give_way();
    for page in 0..OWN_PAGES {
        check(abi::CHECK_KEPT, read(own(page)), value(seed, round, page));
        check(abi::CHECK_KEPT, read(own(page) + PAGE - 8), !value(seed, round, page));
    }
    // A few in the middle go and come back; their neighbours stay.
    let (first, last) = (10 + round % 5, 16 + round % 7);
    munmap(own(first), (last - first) * OWN_STRIDE);
    mmap(own(first), (last - first) * OWN_STRIDE);
    for page in first - 1..last + 1 {
        if (first..last).contains(&page) {
            check(abi::CHECK_STALE, read(own(page)), 0);
            write(own(page), value(seed, round, page));
            check(abi::CHECK_STALE, read(own(page) + PAGE - 8), 0);
            write(own(page) + PAGE - 8, !value(seed, round, page));
        } else {
            check(abi::CHECK_KEPT, read(own(page)), value(seed, round, page));
        }
    }
}

/// Fork, and copy-on-write in both directions: in even rounds the parent writes first, in odd ones
/// the child.
fn forked(seed: u32, round: u32) {
    let parent_first = round % 2 == 0;
    let child = must(call(abi::FORK, 0, 0, 0));
    if child == 0 {
        for page in 0..OWN_PAGES {
            // Written at one end, so that the other end shows whether the page was copied.
            let old = value(seed, round, page);
            if (page + round) % 3 == 0 {
                check(abi::CHECK_CHILD, read(own(page)), old);
            }
            write(own(page), !old);
            check(abi::CHECK_CHILD, read(own(page) + PAGE - 8), !old);
            check(abi::CHECK_CHILD, read(own(page)), !old);
            if page == OWN_PAGES / 2 {
                give_way();
            }
        }
        exit(round);
    }
    let new = |page| value(seed, round + 100, page);
    if !parent_first {
        check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), round);
    }
    for page in 0..OWN_PAGES {
        check(abi::CHECK_PARENT, read(own(page)), value(seed, round, page));
        write(own(page), new(page));
        check(abi::CHECK_PARENT, read(own(page) + PAGE - 8), !value(seed, round, page));
    }
    if parent_first {
        check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), round);
    }
    for page in 0..OWN_PAGES {
        check(abi::CHECK_PARENT, read(own(page)), new(page));
    }
}

/// What nothing allows ends the task, and only the task.
fn denied() {
    let after = |access: fn()| {
        let child = must(call(abi::FORK, 0, 0, 0));
        if child == 0 {
            access();
            exit(0);
        }
        check(abi::CHECK_DENIED, call(abi::WAIT, child, 0, 0), abi::KILLED);
    };
    // Nothing is mapped there.
    after(|| {
        read(OWN + OWN_LEN);
    });
    // The kernel's half is not the user's: neither memory nor a page that the hash table may hold.
    after(|| {
        read(0xc001_0000);
    });
    after(|| {
        read(abi::KERNEL_PAGE);
    });
    after(|| write(abi::KERNEL_PAGE, 1));
    // A page that may be read no longer be written, and still has its value; another that may not
    // even be read.
    let before = read(own(1));
    must(call(abi::MPROTECT, own(1), PAGE, abi::READ));
    must(call(abi::MPROTECT, own(2), PAGE, 0));
    after(|| write(own(1), 1));
    // A page that was never touched may not be jumped into. One that may be read may: this MMU has
    // no permission for instructions of a page's own.
    after(|| jump(own(1) + PAGE));
    after(|| {
        read(own(2));
    });
    check(abi::CHECK_DENIED, read(own(1)), before);
    must(call(abi::MPROTECT, own(1), PAGE, abi::READ | abi::WRITE));
    must(call(abi::MPROTECT, own(2), PAGE, abi::READ | abi::WRITE));
    write(own(1), before);
    check(abi::CHECK_DENIED, read(own(1)), before);
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
        give_way();
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
