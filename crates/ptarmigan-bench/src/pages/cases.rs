//! The loops of the cases with one thread, and the use that every case makes of a page.
//!
//! ```text
//!  take_in_turn   alloc ── entry written ── fence: the page is in memory
//!  give_in_turn   entry cleared ── free ── fence ──> the next turn
//!                   └─ which entry: a hash of the page's number
//! ```
//!
//! # Why
//!
//! A page is used like a table that maps one page. One entry is written after the allocation and
//! cleared before the page is freed; a hash of the page's number picks the entry. So every
//! contender gets its pages back zeroed, even those that clear them again. The hash spreads the
//! used lines over the sets of the cache, as lines of tables are. More entries would cost all
//! contenders the same. The compiler's fences are there because it would otherwise free a page
//! straight out of a register, and the loop would be empty.
use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::Duration;

use super::contender::{PAGE, PageCase, Pages, Workload};
use crate::clock::thread_time;
use crate::stats::median;

/// Entries in a table.
const ENTRIES: usize = PAGE / 8;

/// Returns the entry of a page that its user writes in the given turn.
#[inline]
fn entry(pages: &impl Pages, page: NonZeroU64, turn: usize) -> *mut u64 {
    let hash = page.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENTRIES.trailing_zeros());
    pages.entries(page).wrapping_add((hash as usize + turn) % ENTRIES)
}

/// Allocates a page and writes its entry. Returns `None` if no page is left.
#[inline]
pub(super) fn take(pages: &mut impl Pages) -> Option<NonZeroU64> {
    take_in_turn(pages, 0)
}

/// As [`take`], for the entry of the given turn.
#[inline]
fn take_in_turn(pages: &mut impl Pages, turn: usize) -> Option<NonZeroU64> {
    let page = pages.alloc()?;
    // SAFETY: the entry lies in the page, which is ours (promise 1 of `Pages`).
    unsafe { entry(pages, page, turn).write_volatile(page.get() | 1) };
    // Keeps the page from being freed straight out of a register.
    compiler_fence(Ordering::SeqCst);
    Some(page)
}

/// Clears the entry and frees the page.
///
/// # Safety
///
/// 1. `page` came from [`take`] on a CPU of the same contender, and the caller owns it and gives it
///    away.
#[inline]
pub(super) unsafe fn give(pages: &mut impl Pages, page: NonZeroU64) {
    // SAFETY: 1. passed on.
    unsafe { give_in_turn(pages, page, 0) };
}

/// As [`give`], for a page taken [in a turn](take_in_turn).
///
/// # Safety
///
/// 1. As for [`give`], and the turn is the same.
#[inline]
unsafe fn give_in_turn(pages: &mut impl Pages, page: NonZeroU64, turn: usize) {
    // SAFETY: the entry lies in the page, which is ours (promise 1 of `Pages`).
    unsafe { entry(pages, page, turn).write_volatile(0) };
    // SAFETY: 1. by the contract of this function. 2. the only entry written is clear again.
    unsafe { pages.free(page) };
    compiler_fence(Ordering::SeqCst);
}

/// Allocates and frees a page, `n` times.
///
/// It is the same page every time, so each turn takes the next entry. A processor has a load wait
/// for an older store to an address with the same low 12 bits; with one entry for all, a
/// contender's whole result depends on whether its own memory lies like that.
#[inline]
pub(super) fn pairs(pages: &mut impl Pages, n: usize) -> Option<()> {
    for turn in 0..n {
        let page = take_in_turn(pages, turn)?;
        // SAFETY: 1. the page was just taken in this turn.
        unsafe { give_in_turn(pages, page, turn) };
    }
    Some(())
}

/// Fills `held` with pages and frees them, the last one first.
#[inline]
pub(super) fn batch(pages: &mut impl Pages, held: &mut [Option<NonZeroU64>]) -> Option<()> {
    for place in held.iter_mut() {
        *place = Some(take(pages)?);
    }
    for page in held.iter_mut().rev().filter_map(Option::take) {
        // SAFETY: the page was taken above and has left its place.
        unsafe { give(pages, page) };
    }
    Some(())
}

/// Replaces a pseudo-random one of the held pages by a new one, `n` times.
#[inline]
fn exchange(
    pages: &mut impl Pages,
    held: &mut [Option<NonZeroU64>],
    state: &mut u64,
    n: usize,
) -> Option<()> {
    for _ in 0..n {
        // xorshift64: the sequence only has to lack a pattern.
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let at = ((*state >> 32) as usize * held.len()) >> 32;
        if let Some(page) = held[at].take() {
            // SAFETY: the page was taken before and has left its place.
            unsafe { give(pages, page) };
        }
        held[at] = Some(take(pages)?);
    }
    Some(())
}

/// Returns the median over the windows of the nanoseconds per operation, with `operations` per
/// window. Processor time excludes waiting for a processor.
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

/// Converts a time to nanoseconds per operation.
pub(super) fn per(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations.max(1) as f64
}

/// Runs one of the cases with one thread. Returns nanoseconds per page allocated and freed, or
/// `None` if there are not enough pages or the case needs two threads.
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
                // SAFETY: the pages were taken before, each into one place.
                unsafe { give(pages, page) };
            }
            Some(ns)
        }
        PageCase::TwoThreads | PageCase::ProducerConsumer => None,
    }
}

/// Allocates `n` pages twice and checks every byte. Not timed.
///
/// # Errors
///
/// If a page is not zero, is handed out twice, or is missing.
pub(super) fn check(pages: &mut impl Pages, n: usize) -> Result<(), String> {
    for _ in 0..2 {
        let mut held = Vec::with_capacity(n);
        for _ in 0..n {
            let page = pages.alloc().ok_or("there are not enough pages")?;
            let at = pages.entries(page);
            if at.is_null() || !at.addr().is_multiple_of(PAGE) {
                return Err(format!("the page at {at:p} is misaligned"));
            }
            // SAFETY: the page is ours (promise 1 of `Pages`), and nothing writes to it meanwhile.
            let entries = unsafe { std::slice::from_raw_parts(at, ENTRIES) };
            if entries.iter().any(|e| *e != 0) {
                return Err(format!("the page at {at:p} is not zero, or was handed out twice"));
            }
            // SAFETY: as above; the slice is not used any more. If the page is handed out again,
            // this write is found there.
            unsafe { entry(pages, page, 0).write_volatile(1) };
            held.push(page);
        }
        for page in held {
            // SAFETY: the page was taken above with the same entry written.
            unsafe { give(pages, page) };
        }
    }
    Ok(())
}
