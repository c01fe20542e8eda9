//! The part that is the same on each board: a process maps, touches, forks and unmaps memory, and
//! checks its content.

use core::panic::PanicInfo;
use core::ptr;

use crate::abi::{self, Word};
use crate::arch::{KERNEL, call, jump};
use crate::cpus::{OWN, between, child_begins, jumped_into, parent_wrote};

/// Bytes of a page.
pub const PAGE: Word = if cfg!(target_arch = "loongarch64") { 0x4000 } else { 4096 };

/// Ends the task.
pub fn exit(code: Word) -> ! {
    call(abi::EXIT, code, 0, 0);
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(abi::ERROR)
}

/// Reports `got` unless it is the wanted value.
pub fn check(what: Word, got: Word, wanted: Word) {
    if got != wanted {
        call(abi::FAILED, what, got, wanted);
    }
}

/// Reports a call that failed.
pub fn must(result: Word) -> Word {
    if result == abi::ERROR {
        call(abi::FAILED, abi::CHECK_CALL, result, 0);
    }
    result
}

/// Maps anonymous memory.
pub fn mmap(at: Word, len: Word) {
    must(call(abi::MMAP, at, len, abi::READ | abi::WRITE));
}

/// Unmaps.
pub fn munmap(at: Word, len: Word) {
    must(call(abi::MUNMAP, at, len, 0));
}

/// Reads a word.
pub fn read(at: Word) -> Word {
    // SAFETY: a word of this program's test pages.
    unsafe { ptr::read_volatile(ptr::with_exposed_provenance(at as usize)) }
}

/// Writes a word.
pub fn write(at: Word, value: Word) {
    // SAFETY: a word of this program's test pages.
    unsafe { ptr::write_volatile(ptr::with_exposed_provenance_mut(at as usize), value) }
}

/// The value of a page in a round.
#[cfg(target_pointer_width = "64")]
pub fn value(seed: Word, round: Word, page: Word) -> Word {
    (seed << 32 | round << 12 | page) ^ 0x5a5a_0000_0000_0000
}

/// The value of a page in a round.
#[cfg(target_pointer_width = "32")]
pub fn value(seed: Word, round: Word, page: Word) -> Word {
    (seed << 24 | round << 16 | page) ^ 0x5a5a_5a5a
}

/// Runs the checks of a single task, before all others: they detect parts that a kernel leaves out.
pub fn alone() {
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

const OWN_PAGES: Word = 40;
/// Pages are this far apart: two or three leaf tables for all of them.
const OWN_STRIDE: Word = 33 * PAGE;
/// Bytes of a process's own pages.
pub const OWN_LEN: Word = OWN_PAGES * OWN_STRIDE;

fn own(page: Word) -> Word {
    OWN + page * OWN_STRIDE
}

/// Runs a process and two children of its own.
pub fn processes(seed: Word, process: impl Fn(Word)) {
    let mut children = [0; 2];
    for (n, child) in children.iter_mut().enumerate() {
        *child = must(call(abi::FORK, 0, 0, 0));
        if *child == 0 {
            process(seed * 8 + n as Word + 1);
            exit(0);
        }
    }
    process(seed * 8);
    for child in children {
        check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), 0);
    }
}

/// A round of a process: faults, forks and unmappings of its own.
pub fn round(seed: Word, round: Word) {
    anonymous(seed, round);
    between();
    forked(seed, round);
    if round.is_multiple_of(8) {
        denied();
    }
    munmap(OWN, OWN_LEN);
}

/// Faults on anonymous memory, and unmapping a part of it. Leaves the pages mapped and written.
fn anonymous(seed: Word, round: Word) {
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
    between();
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
fn forked(seed: Word, round: Word) {
    let parent_first = round.is_multiple_of(2);
    let child = must(call(abi::FORK, 0, 0, 0));
    if child == 0 {
        child_begins(parent_first);
        for page in 0..OWN_PAGES {
            // Written at one end, so that the other end shows whether the page was copied.
            let old = value(seed, round, page);
            if (page + round).is_multiple_of(3) {
                check(abi::CHECK_CHILD, read(own(page)), old);
            }
            write(own(page), !old);
            check(abi::CHECK_CHILD, read(own(page) + PAGE - 8), !old);
            check(abi::CHECK_CHILD, read(own(page)), !old);
            if page == OWN_PAGES / 2 {
                between();
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
        parent_wrote(child);
        check(abi::CHECK_CALL, call(abi::WAIT, child, 0, 0), round);
    }
    for page in 0..OWN_PAGES {
        check(abi::CHECK_PARENT, read(own(page)), new(page));
    }
}

/// Checks that an access without permission ends the task, and only the task.
fn denied() {
    let after = |access: &dyn Fn()| {
        let child = must(call(abi::FORK, 0, 0, 0));
        if child == 0 {
            access();
            exit(0);
        }
        check(abi::CHECK_DENIED, call(abi::WAIT, child, 0, 0), abi::KILLED);
    };
    // The page behind the mapping is not mapped.
    after(&|| {
        read(OWN + OWN_LEN);
    });
    // The kernel's half is not the user's.
    for at in KERNEL {
        after(&|| {
            read(at);
        });
        after(&|| write(at, 1));
    }
    // A page that may be read no longer be written, and still has its value; another that may not
    // even be read.
    let before = read(own(1));
    must(call(abi::MPROTECT, own(1), PAGE, abi::READ));
    must(call(abi::MPROTECT, own(2), PAGE, 0));
    after(&|| write(own(1), 1));
    // Pages that may not be jumped into, and one that was never touched.
    for page in jumped_into() {
        after(&|| jump(own(*page)));
    }
    after(&|| jump(own(1) + PAGE));
    after(&|| {
        read(own(2));
    });
    check(abi::CHECK_DENIED, read(own(1)), before);
    must(call(abi::MPROTECT, own(1), PAGE, abi::READ | abi::WRITE));
    must(call(abi::MPROTECT, own(2), PAGE, abi::READ | abi::WRITE));
    write(own(1), before);
    check(abi::CHECK_DENIED, read(own(1)), before);
}
