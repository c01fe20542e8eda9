//! On boards with several CPUs: one space with two tasks in it, or several processes.

use crate::abi;
use crate::arch::{call, fence};
use crate::common::{self, PAGE, alone, check, exit, mmap, munmap, must, processes, read, value, write};

/// A place for a process's own pages.
pub const OWN: u64 = 0x08_0000_0000;
/// A place for memory that the tasks of one space share.
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
        processes(seed, |seed| (0..rounds).for_each(|round| common::round(seed, round)));
    }
    exit(0)
}

/// Several CPUs run the tasks, so no task has to give way.
pub fn between() {}

/// The child of a fork begins. It waits for its parent's writes if those come first.
pub fn child_begins(parent_first: bool) {
    if parent_first {
        call(abi::PAUSE, 0, 0, 0);
    }
}

/// The parent has written: its child may go on.
pub fn parent_wrote(child: u64) {
    must(call(abi::POST, child, 0, 0));
}

/// Pages of a process that may be read, and not jumped into.
pub fn jumped_into() -> &'static [u64] {
    &[1, 3]
}

/// Waits for a word to become `value`, with the other CPU at work or without it.
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

// ---- one space: two tasks in it, on two CPUs

/// Returns the address of a page of [`BOTH`].
fn both(page: u64) -> u64 {
    BOTH + page * PAGE
}

/// Writes every second page of [`BOTH`], from page `first` on. Each write copies a page, and has
/// the other CPU flush.
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
    let (mut together, mut round) = (0, 0);
    // A host that is busy may run one emulated CPU at a time for a while: there are more rounds
    // then.
    while round < rounds || together < rounds / 8 && round < 4 * rounds {
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
        round += 1;
    }
    write(STEP, u64::MAX);
    check(abi::CHECK_CALL, call(abi::WAIT, partner, 0, 0), 0);
    check(abi::CHECK_CPUS, (together >= rounds / 8) as u64, 1);
    munmap(COMMON, 32 * PAGE);
    munmap(STACKS, STACK_LEN);
}

/// The other task: carries out each step, and runs in user mode in between all the time.
extern "C" fn partner() -> ! {
    let seed = read(SEED);
    let mut done = 0;
    loop {
        let (mut step, mut turns) = (read(STEP), 0u64);
        while step == done {
            core::hint::spin_loop();
            step = read(STEP);
            turns += 1;
            // Long enough for the other task's work between two steps, if it runs at all.
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
