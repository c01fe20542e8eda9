//! Pages of the kernel's own, which the hash table holds as it does the user's: the handler of
//! faults in the kernel puts them there.

use core::sync::atomic::{AtomicU32, Ordering};

use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr};
use ptarmigan::format::{Attr, Ppc32};
use ptarmigan::frames::AllocFlags;
use ptarmigan::table::KernelRange;
use ptarmigan::window::DirectMap;

use ptarmigan_kernel_base::direct::physical;
use ptarmigan_kernel_base::{fail_if, must};

use super::trap;
use crate::machine::{machine, on, pin};

/// The first of the pages. The user program knows it.
const KERNEL_PAGE: u32 = 0xf000_0000;
const PAGE: u32 = 4096;
/// Bytes that a leaf table maps.
const LEN: u64 = 4 << 20;
const PAGES: usize = 8;
/// How often the pages change their frames.
const ROUNDS: u32 = 32;

#[repr(C, align(4096))]
struct KernelHalfTable([AtomicU32; 1024]);

/// The frames of the pages, in turn.
static SHOWN: [KernelHalfTable; PAGES] =
    [const { KernelHalfTable([const { AtomicU32::new(0) }; 1024]) }; PAGES];

type KernelHalfRange = KernelRange<'static, Ppc32, DirectMap>;

fn claim() -> KernelHalfRange {
    let pin = pin();
    must(
        "a claim of the kernel's half",
        machine().kernel_map().claim(on(&pin), VirtAddr(KERNEL_PAGE.into()), LEN),
    )
}

fn release(range: KernelHalfRange) {
    let pin = pin();
    must("the release of the kernel's half", range.release(on(&pin), |_, _| {}).map_err(|(e, _)| e));
}

fn at(page: usize) -> u32 {
    KERNEL_PAGE + page as u32 * PAGE
}

/// Maps all frames from `first` on, and those before it behind them.
fn map(range: &mut KernelHalfRange, first: usize) {
    let pin = pin();
    let on = on(&pin);
    let halves = [(0, first, PAGES - first), (PAGES - first, 0, first)];
    for (page, frame, n) in halves.into_iter().filter(|(.., n)| *n > 0) {
        let frame: Pfn = PhysAddr(physical(&raw const SHOWN[frame])).pfn();
        let attr = Attr::READ | Attr::WRITE;
        let va = VirtAddr(at(page).into());
        // SAFETY: 1. The frames are statics of atomics, and programs have no access.
        let mapped = unsafe { range.map(on, va, frame, n as u64, attr, AllocFlags::NORMAL) };
        must("a mapping of the kernel's half", mapped);
    }
}

fn load(page: usize) -> Option<u32> {
    // SAFETY: 1. Whatever is mapped there are statics of atomics.
    unsafe { trap::load(at(page)) }
}

fn store(page: usize, value: u32) -> bool {
    // SAFETY: 1. As above.
    unsafe { trap::store(at(page), value) }
}

fn expect(what: &str, got: Option<u32>, wanted: Option<u32>) {
    fail_if(got != wanted, format_args!("stale: {what}: {got:x?}, not {wanted:x?}"));
}

/// Changes the frames of the kernel's pages, and checks them through the pages' addresses.
pub fn check() {
    let mut range = claim();
    for round in 0..ROUNDS {
        let first = round as usize % PAGES;
        map(&mut range, first);
        for page in 0..PAGES {
            let frame = &SHOWN[(first + page) % PAGES].0[0];
            let value = round << 16 | page as u32;
            frame.store(value, Ordering::Relaxed);
            expect("a page of the kernel's after it was mapped", load(page), Some(value));
            fail_if(
                !store(page, !value) || frame.load(Ordering::Relaxed) != !value,
                format_args!("a page of the kernel's is not written to"),
            );
        }
        let pin = pin();
        let on = on(&pin);
        // Half of the pages are read-only for a while.
        let start = VirtAddr(KERNEL_PAGE.into());
        must(
            "protecting of the kernel's half",
            range.protect(on, start, 4, |attr| attr.without(Attr::WRITE)),
        );
        for page in 0..PAGES {
            fail_if(
                store(page, round) != (page >= 4),
                format_args!("stale: a page of the kernel's is written to as it was before"),
            );
        }
        let mut gone = 0;
        must("unmapping of the kernel's half", range.unmap(on, start, PAGES as u64, |_, _| gone += 1));
        fail_if(gone != PAGES, format_args!("{gone} pages of the kernel's were unmapped"));
        for page in 0..PAGES {
            expect("a page of the kernel's after it was unmapped", load(page), None);
        }
    }
    release(range);
    expect("a page of the kernel's after its release", load(0), None);
}

/// The content of the page that the kernel uses while programs run.
const SEED: u32 = 0x5eed;

/// Runs `f` with a page mapped that the kernel [uses](use_page), and programs may not.
pub fn with_page(f: impl FnOnce()) {
    let mut range = claim();
    map(&mut range, 0);
    fail_if(!store(0, SEED), format_args!("a page of the kernel's is not written to"));
    f();
    use_page();
    release(range);
}

/// Uses the page: the hash table holds it then. To be called in [`with_page`].
pub fn use_page() {
    expect("a page of the kernel's while programs run", load(0), Some(SEED));
}
