//! Lists all watches, for the signal handlers.
//!
//! ```text
//!  add (lock)       region, Release ──> start ──> end, Release
//!  handler          is_watched_address: start..end, no lock ── no ──> the handler from before
//!                      └─ yes ──> lock ──> find: region, Acquire ──> step
//!  remove (lock)    end = 0 ──> start = 0 ──> region = null
//! ```
//!
//! # Why
//!
//! A fault that is no watch's must go to the program's own handler without a wait, because that
//! handler may be a crash handler of a thread that holds the lock. So the addresses are compared
//! without the lock. The region behind them is used with the lock only. Otherwise a watch could
//! end, and free its region, while a handler on another thread follows the pointer.
//!
//! The list has a fixed number of places: a handler must not allocate.
use super::lock;
use super::region::Region;
use crate::watch::error::Error;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// The most watches at once.
pub(super) const LIMIT: usize = 64;

/// A place in the list. The addresses may be compared without the lock; following the pointer needs
/// it.
struct Listed {
    start: AtomicUsize,
    end: AtomicUsize,
    region: AtomicPtr<Region>,
}

static ALL: [Listed; LIMIT] = [const {
    Listed {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        region: AtomicPtr::new(std::ptr::null_mut()),
    }
}; LIMIT];

/// Returns whether a watch has the address, as far as the lock-free part of the list tells.
pub(super) fn is_watched_address(address: usize) -> bool {
    ALL.iter().any(|p| (p.start.load(Relaxed)..p.end.load(Relaxed)).contains(&address))
}

/// Returns the watch that has the address.
pub(super) fn find(_: &lock::WatchLock, address: usize) -> Option<*const Region> {
    let place = ALL.iter().find(|p| (p.start.load(Relaxed)..p.end.load(Relaxed)).contains(&address))?;
    Some(place.region.load(Acquire)).filter(|r| !r.is_null()).map(<*mut Region>::cast_const)
}

/// Delivers the recorded stores of all watches.
pub(super) fn deliver_all(_: &lock::WatchLock) {
    for place in &ALL {
        let region = place.region.load(Acquire);
        if !region.is_null() {
            // SAFETY: regions in the list are alive, because `remove` needs the lock, which the
            // caller holds.
            unsafe { (*region).deliver(true) };
        }
    }
}

/// Puts a region into the list.
///
/// # Safety
/// `region` is valid until [`remove`] returns.
pub(super) unsafe fn add(_: &lock::WatchLock, region: *mut Region) -> Result<(), Error> {
    let free = ALL.iter().find(|p| p.region.load(Relaxed).is_null());
    let place = free.ok_or(Error::TooMany { limit: LIMIT })?;
    // SAFETY: the caller guarantees that `region` is valid.
    let ram = unsafe { &(*region).ram };
    place.region.store(region, Release);
    place.start.store(ram.base().addr(), Relaxed);
    place.end.store(ram.base().addr() + ram.bytes(), Release);
    Ok(())
}

/// Takes a region out of the list. The caller holds the lock, so no handler uses the region any
/// more.
pub(super) fn remove(_: &lock::WatchLock, region: *const Region) {
    for place in ALL.iter().filter(|p| p.region.load(Relaxed).cast_const() == region) {
        place.end.store(0, Relaxed);
        place.start.store(0, Relaxed);
        place.region.store(std::ptr::null_mut(), Release);
    }
}
