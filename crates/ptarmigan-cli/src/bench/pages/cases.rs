//! The loops of the cases that one thread runs, and what every case does with a page.
//!
//! A page is used as a table is that maps one page: one entry, in the line that a hash of the page's number picks, is
//! written once the page is taken and cleared before it is given back. So every contender gets its pages back all zero, the
//! ones that clear them again all the same; and the lines in use are spread over the sets of the cache as those of
//! tables are. One entry is the least that a table has: with more of them all contenders pay the same on top.
use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Duration;

use super::contender::{PAGE, PageCase, Pages, Workload};
use crate::measure::clock::thread_time;
use crate::measure::stats::median;

/// Entries in a table.
const ENTRIES: usize = PAGE / 8;

/// The entry of a page that its user writes.
#[inline(always)]
fn entry(pages: &impl Pages, page: NonZeroU64) -> *mut u64 {
    let hash = page.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENTRIES.trailing_zeros());
    pages.entries(page).wrapping_add(hash as usize)
}

/// Takes a page and writes an entry; `None` if there is none.
#[inline(always)]
pub(super) fn take(pages: &mut impl Pages) -> Option<NonZeroU64> {
    let page = pages.alloc()?;
    // SAFETY: the entry lies in the page, which is ours (promise 1 of `Pages`).
    unsafe { entry(pages, page).write_volatile(page.get() | 1) };
    // What has just been taken is not kept in a register for the one who gives it back.
    compiler_fence(Ordering::SeqCst);
    Some(page)
}

/// Clears the entry again and gives the page back.
///
/// # Safety
///
/// 1. `page` came from [`take`] on a CPU of the same contender; the caller owns it and gives it away.
#[inline(always)]
pub(super) unsafe fn give(pages: &mut impl Pages, page: NonZeroU64) {
    // SAFETY: the entry lies in the page, which is ours (promise 1 of `Pages`).
    unsafe { entry(pages, page).write_volatile(0) };
    // SAFETY: 1. as the caller says. 2. the only entry written is clear again.
    unsafe { pages.free(page) };
    compiler_fence(Ordering::SeqCst);
}

/// `n` pairs.
#[inline(always)]
pub(super) fn pairs(pages: &mut impl Pages, n: usize) -> Option<()> {
    for _ in 0..n {
        let page = take(pages)?;
        // SAFETY: just taken.
        unsafe { give(pages, page) };
    }
    Some(())
}

/// Takes as many pages as `held` has places, and gives them back, the last one first.
#[inline(always)]
pub(super) fn batch(pages: &mut impl Pages, held: &mut [Option<NonZeroU64>]) -> Option<()> {
    for place in held.iter_mut() {
        *place = Some(take(pages)?);
    }
    for page in held.iter_mut().rev().filter_map(Option::take) {
        // SAFETY: taken above, and not in its place any more.
        unsafe { give(pages, page) };
    }
    Some(())
}

/// Gives back one of the pages held, whichever the state picks, and takes one for it; `n` times.
#[inline(always)]
fn exchange(
    pages: &mut impl Pages,
    held: &mut [Option<NonZeroU64>],
    state: &mut u64,
    n: usize,
) -> Option<()> {
    for _ in 0..n {
        // xorshift64: the quality needed is "not a pattern".
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let at = ((*state >> 32) as usize * held.len()) >> 32;
        if let Some(page) = held[at].take() {
            // SAFETY: taken before, and not in its place any more.
            unsafe { give(pages, page) };
        }
        held[at] = Some(take(pages)?);
    }
    Some(())
}

/// The median over the windows of the nanoseconds per operation, `operations` in a window; processor time, so that waiting
/// for a processor does not count.
fn windows(sizes: &Workload, operations: usize, mut work: impl FnMut() -> Option<()>) -> Option<f64> {
    work()?;
    let mut values = Vec::with_capacity(sizes.windows);
    for _ in 0..sizes.windows {
        let start = thread_time();
        work()?;
        values.push(per(thread_time().saturating_sub(start), operations));
    }
    Some(median(values))
}

/// Nanoseconds per operation.
pub(super) fn per(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations.max(1) as f64
}

/// One of the cases of one thread: nanoseconds per page taken and given back; `None` if there were not enough pages, or
/// if the case takes two threads.
#[inline(never)]
pub(super) fn run(pages: &mut impl Pages, case: PageCase, sizes: &Workload) -> Option<f64> {
    match case {
        PageCase::Pair => windows(sizes, sizes.pairs, || pairs(pages, sizes.pairs)),
        PageCase::Batch => {
            let mut held = vec![None; sizes.batch];
            let work = || (0..sizes.batches).try_for_each(|_| batch(pages, black_box(&mut held)));
            windows(sizes, sizes.batch * sizes.batches, work)
        }
        PageCase::Large => {
            let mut held = vec![None; sizes.large];
            windows(sizes, sizes.large, || batch(pages, black_box(&mut held)))
        }
        PageCase::Random => {
            let mut held = vec![None; sizes.held];
            for place in &mut held {
                *place = Some(take(pages)?);
            }
            let mut state = 0x9e37_79b9_7f4a_7c15;
            let work = || exchange(pages, black_box(&mut held), &mut state, sizes.pairs);
            let ns = windows(sizes, sizes.pairs, work)?;
            for page in held.into_iter().flatten() {
                // SAFETY: taken before, each in one place.
                unsafe { give(pages, page) };
            }
            Some(ns)
        }
        PageCase::TwoThreads | PageCase::ProducerConsumer => None,
    }
}

/// Takes `n` pages twice over and looks at every byte. Not timed.
///
/// # Errors
///
/// What is wrong with them.
pub(super) fn check(pages: &mut impl Pages, n: usize) -> Result<(), String> {
    for _ in 0..2 {
        let mut held = Vec::with_capacity(n);
        for _ in 0..n {
            let page = pages.alloc().ok_or("there are not enough pages")?;
            let at = pages.entries(page);
            if at.is_null() || !at.addr().is_multiple_of(PAGE) {
                return Err(format!("a page lies at {at:p}"));
            }
            // SAFETY: the page is ours (promise 1 of `Pages`), and nobody writes to it meanwhile.
            let entries = unsafe { std::slice::from_raw_parts(at, ENTRIES) };
            if entries.iter().any(|e| *e != 0) {
                return Err(format!(
                    "the page at {at:p} was handed out and is not zero, or is another one's"
                ));
            }
            // SAFETY: as above; the slice is not used any more. Whoever gets the page as well finds this.
            unsafe { entry(pages, page).write_volatile(1) };
            held.push(page);
        }
        for page in held {
            // SAFETY: taken above with the same entry written.
            unsafe { give(pages, page) };
        }
    }
    Ok(())
}
