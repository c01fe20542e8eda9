//! Checks the kernel's half while other CPUs use it: a page of it shows another frame each round,
//! and after the flush no CPU may see the old one.
//!
//! ```text
//!  CPU 0   show(frame of round 8) ── flush ── FLUSHED = 8 ──┐            ┌─> value 8? else: stale
//!  CPU 1   look: reads the page … reads the page ───────────┴─ SEEN = 8, value ─┘
//!                                 └─ between frames: a fault, the access is made again
//! ```
//!
//! # Why
//!
//! An emulator's TLB forgets at many instructions, and so would hide a missing flush. So the CPUs
//! that look make no call and take no interrupt but those of the flush. Each writes the round and
//! the value in one word, because two words could be of two rounds.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::Attr;

use super::{CPUS, clock, irq, is_long};
use crate::direct::physical;
use crate::fail_if;

/// Where the page is: the first one of the last GiB.
pub const PAGE: u64 = 0xffff_ffff_c000_0000;
/// Its attributes.
pub const ATTR: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::GLOBAL.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);
/// How often it changes.
const ROUNDS: u64 = 32;

/// A table, or a page of data.
#[repr(C, align(4096))]
pub struct KernelHalfPage(pub [AtomicU64; 512]);

impl KernelHalfPage {
    /// Makes one of zeroes.
    pub const fn new() -> Self {
        KernelHalfPage([const { AtomicU64::new(0) }; 512])
    }
}

/// The frames that the page shows in turn. The first word is the round.
static SHOWN: [KernelHalfPage; 2] = [const { KernelHalfPage::new() }; 2];

/// The last round whose flush has returned.
static FLUSHED: AtomicU64 = AtomicU64::new(0);
/// The value that each CPU read last, and the round that was flushed before: two halves of a word.
static SEEN: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];

/// Returns the frame that the page shows in a round; before the first, that of round 0.
pub fn frame(round: u64) -> Pfn {
    PhysAddr(physical(&raw const SHOWN[round as usize % SHOWN.len()])).pfn()
}

/// Reads the page.
fn read() -> u64 {
    let page: *const u64 = ptr::with_exposed_provenance(PAGE as usize);
    // SAFETY: the image has mapped it in every root, to frames that are statics of atomics. While
    // it changes from one to the other, the handler of faults has the access made again.
    unsafe { page.read_volatile() }
}

/// Looks at the page again and again, until the last round. Every CPU calls it but the one that
/// calls [`check`].
pub fn look() {
    let Some(seen) = SEEN.get(irq::cpu()) else { return };
    irq::enabled(|| {
        loop {
            let flushed = FLUSHED.load(Ordering::Acquire);
            seen.store(flushed << 32 | read(), Ordering::Release);
            if flushed == ROUNDS {
                return;
            }
            ptarmigan::sync::spin();
        }
    });
}

/// Changes the page while the other of `cpus` CPUs [`look`], and checks the values that they see.
/// `show` has the page show a frame, and all CPUs forget the one before.
pub fn check(cpus: usize, mut show: impl FnMut(Pfn)) {
    let others = SEEN.iter().take(cpus).skip(1);
    for round in 1..=ROUNDS {
        SHOWN[round as usize % SHOWN.len()].0[0].store(round, Ordering::Relaxed);
        show(frame(round));
        FLUSHED.store(round, Ordering::Release);
        let begin = clock::time();
        for seen in others.clone() {
            while seen.load(Ordering::Acquire) >> 32 != round {
                ptarmigan::sync::spin();
                fail_if(is_long(begin), format_args!("a CPU does not look"));
            }
            let value = seen.load(Ordering::Acquire) & u64::from(u32::MAX);
            fail_if(
                value != round || read() != round,
                format_args!("stale: the kernel's half shows {value}, not {round}"),
            );
        }
    }
}
