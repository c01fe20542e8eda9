//! The program that runs in user mode: it maps, touches, forks and unmaps memory, and checks what
//! it sees. It knows nothing but the kernel's calls, and runs wherever it is mapped.
#![no_std]
#![no_main]

#[path = "../src/abi.rs"]
#[allow(dead_code)]
mod abi;

use core::arch::asm;
use core::panic::PanicInfo;
use core::ptr;

const PAGE: u64 = 4096;
/// A place for a process's own pages.
const OWN: u64 = 0x08_0000_0000;
/// A place for what the tasks of one space share.
const COMMON: u64 = 0x0a_0000_0000;
/// Stacks of further tasks.
const STACKS: u64 = 0x0c_0000_0000;

/// The first code. The kernel has set the stack up and says in which way the program is to run, how
/// often, and a number that tells processes apart.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".entry")]
extern "C" fn start(mode: u64, rounds: u64, seed: u64) -> ! {
    alone();
    if mode == abi::MODE_SHARED {
        shared(rounds, seed);
    } else {
        spaces(rounds, seed);
    }
    exit(0)
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(abi::ERROR)
}

fn call(number: u64, a0: u64, a1: u64, a2: u64) -> u64 {
    let result;
    // SAFETY: the kernel keeps all registers but a0; memory may change.
    unsafe {
        asm!("ecall", inlateout("a0") a0 => result, in("a1") a1, in("a2") a2, in("a7") number, options(nostack));
    }
    result
}

fn exit(code: u64) -> ! {
    call(abi::EXIT, code, 0, 0);
    loop {}
}

fn check(what: u64, got: u64, wanted: u64) {
    if got != wanted {
        call(abi::FAILED, what, got, wanted);
    }
}

fn must(result: u64) -> u64 {
    if result == abi::ERROR {
        call(abi::FAILED, abi::CHECK_CALL, result, 0);
    }
    result
}

fn mmap(at: u64, len: u64) {
    must(call(abi::MMAP, at, len, abi::READ | abi::WRITE));
}

fn munmap(at: u64, len: u64) {
    must(call(abi::MUNMAP, at, len, 0));
}

fn read(at: u64) -> u64 {
    // SAFETY: a word of this program's test pages.
    unsafe { ptr::read_volatile(ptr::with_exposed_provenance(at as usize)) }
}

fn write(at: u64, value: u64) {
    // SAFETY: a word of this program's test pages.
    unsafe { ptr::write_volatile(ptr::with_exposed_provenance_mut(at as usize), value) }
}

/// Goes on with what lies there as instructions.
fn jump(at: u64) {
    // SAFETY: the kernel ends the task before the first of them, which is what is tried.
    unsafe { asm!("jalr {}", in(reg) at, clobber_abi("C")) };
}

/// Waits for a word to become `value`, with the other hart at work or without it.
fn await_word(at: u64, value: u64) {
    let mut turns = 0u64;
    while read(at) != value {
        core::hint::spin_loop();
        turns += 1;
        if turns & 0xfff == 0 {
            call(abi::GIVE_WAY, 0, 0, 0);
        }
    }
    fence();
}

/// Orders what the tasks of one space do to memory.
fn fence() {
    // SAFETY: a fence changes no memory.
    unsafe { asm!("fence rw, rw", options(nostack)) };
}

/// The value of a page in a round.
fn value(seed: u64, round: u64, page: u64) -> u64 {
    (seed << 32 | round << 12 | page) ^ 0x5a5a_0000_0000_0000
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

const OWN_PAGES: u64 = 40;
/// Pages are this far apart: three leaf tables for all of them.
const OWN_STRIDE: u64 = 33 * PAGE;
const OWN_LEN: u64 = OWN_PAGES * OWN_STRIDE;

fn own(page: u64) -> u64 {
    OWN + page * OWN_STRIDE
}

fn spaces(rounds: u64, seed: u64) {
    let mut children = [0; 2];
    for (n, child) in children.iter_mut().enumerate() {
        *child = must(call(abi::FORK, 0, 0, 0));
        if *child == 0 {
            process(rounds, seed * 8 + n as u64 + 1);
            exit(0);
        }
    }
    process(rounds, seed * 8);
    for child in children {
        check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), 0);
    }
}

fn process(rounds: u64, seed: u64) {
    for round in 0..rounds {
        anonymous(seed, round);
        forked(seed, round);
        if round % 8 == 0 {
            denied();
        }
        munmap(OWN, OWN_LEN);
    }
}

/// Faults on anonymous memory, and unmapping a part of it. Leaves the pages mapped and written.
fn anonymous(seed: u64, round: u64) {
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
fn forked(seed: u64, round: u64) {
    let parent_first = round % 2 == 0;
    let child = must(call(abi::FORK, 0, 0, 0));
    if child == 0 {
        if parent_first {
            call(abi::PAUSE, 0, 0, 0);
        }
        for page in 0..OWN_PAGES {
            // Written at one end, so that the other end shows whether the page was copied.
            let old = value(seed, round, page);
            if (page + round) % 3 == 0 {
                check(abi::CHECK_CHILD, read(own(page)), old);
            }
            write(own(page), !old);
            check(abi::CHECK_CHILD, read(own(page) + PAGE - 8), !old);
            check(abi::CHECK_CHILD, read(own(page)), !old);
        }
        exit(round);
    }
    let new = |page| value(seed, round + 1000, page);
    if !parent_first {
        check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), round);
    }
    for page in 0..OWN_PAGES {
        check(abi::CHECK_PARENT, read(own(page)), value(seed, round, page));
        write(own(page), new(page));
        check(abi::CHECK_PARENT, read(own(page) + PAGE - 8), !value(seed, round, page));
    }
    if parent_first {
        must(call(abi::POST, child, 0, 0));
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
    // The kernel's half is not the user's.
    after(|| {
        read(0xffff_ffc0_8020_0000);
    });
    // A page that may be read no longer be written, and still has its value; another that may not
    // even be read.
    let before = read(own(1));
    must(call(abi::MPROTECT, own(1), PAGE, abi::READ));
    must(call(abi::MPROTECT, own(2), PAGE, 0));
    after(|| write(own(1), 1));
    // No page of memory may be jumped into: neither one that is there nor one that is not.
    after(|| jump(own(1)));
    after(|| jump(own(3)));
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

// ---- one space: two tasks in it, on two harts

/// What the tasks call a page of [`BOTH`].
fn both(page: u64) -> u64 {
    BOTH + page * PAGE
}

/// Writes every second page of [`BOTH`], from page `first` on. Each write copies a page, and has
/// the other hart flush.
fn write_half(first: u64, value: u64) {
    for page in (first..BOTH_PAGES).step_by(2) {
        write(both(page), value);
    }
}

/// Checks all pages of [`BOTH`].
fn check_both(check_of: u64, value: u64) {
    for page in 0..BOTH_PAGES {
        check(check_of, read(both(page)), value);
    }
}

/// The page that is unmapped and mapped again, and one that stays.
const TARGET: u64 = COMMON + 16 * PAGE;
const OTHER: u64 = COMMON + 17 * PAGE;
/// Pages that both tasks write after a fork, at the same time: the even ones the first task, the
/// odd ones its partner.
const BOTH: u64 = COMMON + 18 * PAGE;
const BOTH_PAGES: u64 = 4;
/// Shared words by which the tasks synchronise; the page is never unmapped.
const STEP: u64 = COMMON;
const SEEN: u64 = COMMON + 64;
const PARTNER_CPU: u64 = COMMON + 128;
const SEED: u64 = COMMON + 192;

const STACK_LEN: u64 = 4 * PAGE;

fn shared(rounds: u64, seed: u64) {
    mmap(COMMON, 32 * PAGE);
    mmap(STACKS, STACK_LEN);
    write(STEP, 0);
    write(SEEN, 0);
    write(SEED, seed);
    fence();
    let begin = partner as extern "C" fn() -> ! as *const () as u64;
    let partner = must(call(abi::SPAWN, begin, STACKS + STACK_LEN, 0));
    let mut together = 0;
    for round in 0..rounds {
        let (old, new) = (value(seed, round, 0), value(seed, round, 1));
        let step = round * 4;
        // The partner caches the page, and goes on without a call or a fault until the next step.
        write(TARGET, old);
        write(OTHER, old);
        fence();
        write(STEP, step + 1);
        await_word(SEEN, step + 1);
        if read(PARTNER_CPU) != call(abi::CPU, 0, 0, 0) {
            together += 1;
        }
        if round % 3 == 2 {
            // Fork takes the right to write from both tasks.
            write_half(0, old);
            write_half(1, old);
            let child = must(call(abi::FORK, 0, 0, 0));
            if child == 0 {
                call(abi::PAUSE, 0, 0, 0);
                check(abi::CHECK_CHILD, read(TARGET), old);
                check(abi::CHECK_CHILD, read(OTHER), old);
                check_both(abi::CHECK_CHILD, old);
                exit(0);
            }
            write(STEP, step + 2);
            write_half(0, !old);
            await_word(SEEN, step + 2);
            check_both(abi::CHECK_STALE, !old);
            must(call(abi::POST, child, 0, 0));
            check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), 0);
            check(abi::CHECK_STALE, read(TARGET), !old);
        } else {
            munmap(TARGET, PAGE);
            mmap(TARGET, PAGE);
            if round % 3 == 1 {
                write(TARGET, new);
            }
            fence();
            write(STEP, step + 3);
            await_word(SEEN, step + 3);
        }
    }
    write(STEP, u64::MAX);
    check(abi::CHECK_CALL, call(abi::WAIT, partner, 0, 0), 0);
    check(abi::CHECK_HARTS, (together >= rounds / 8) as u64, 1);
    munmap(COMMON, 32 * PAGE);
    munmap(STACKS, STACK_LEN);
}

/// The other task: does what the step says, and in between runs in user mode all the time.
extern "C" fn partner() -> ! {
    let seed = read(SEED);
    let mut done = 0;
    loop {
        let (mut step, mut turns) = (read(STEP), 0u64);
        while step == done {
            core::hint::spin_loop();
            step = read(STEP);
            turns += 1;
            // Long enough for what the other task does between two steps, if it runs at all.
            if turns & 0xffff == 0 {
                call(abi::GIVE_WAY, 0, 0, 0);
            }
        }
        fence();
        if step == u64::MAX {
            exit(0);
        }
        done = step;
        let round = step / 4;
        let (old, new) = (value(seed, round, 0), value(seed, round, 1));
        match step % 4 {
            1 => {
                // Read and written: cached with all rights that it has.
                check(abi::CHECK_STALE, read(TARGET), old);
                write(TARGET, old);
                check(abi::CHECK_STALE, read(OTHER), old);
                write(PARTNER_CPU, call(abi::CPU, 0, 0, 0));
                check(abi::CHECK_KEPT, read(TARGET), old);
                write(TARGET, old);
            }
            2 => {
                write(TARGET, !old);
                write_half(1, !old);
            }
            _ => {
                let wanted = if round % 3 == 1 { new } else { 0 };
                check(abi::CHECK_STALE, read(TARGET), wanted);
                check(abi::CHECK_KEPT, read(OTHER), old);
            }
        }
        fence();
        write(SEEN, step);
    }
}
