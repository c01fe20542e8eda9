//! The kernel's half changes while other harts use it: a page of it shows another frame each round,
//! and after the flush no hart may see the old one. The harts that look make no call and take no
//! interrupt but those of the flush.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::addr::FRAME_SIZE;
use ptarmigan::tlb::Runs;
use ptarmigan_kernel_mailbox as mailbox;

use ptarmigan_kernel_base::riscv::sbi;
use ptarmigan_kernel_base::{fail, fail_if};

use crate::irq::{self, HARTS};
use crate::machine::{self, PATIENCE, pin};
use crate::mmu;

/// The entry of all roots that leads to the page.
const ROOT_ENTRY: usize = mmu::ENTRIES - 1;
/// The page: the first one under that entry.
const PAGE: u64 = 0xffff_ffff_c000_0000;
/// How often it changes.
const ROUNDS: u64 = 32;
/// Valid: a link to a table.
const LINK: u64 = 1;
/// Valid, readable, writable, global, accessed, dirty.
const LEAF: u64 = 0xe7;

/// A table, or a page of data.
#[repr(C, align(4096))]
struct Page([AtomicU64; mmu::ENTRIES]);

static UPPER: Page = Page([const { AtomicU64::new(0) }; mmu::ENTRIES]);
static LOWER: Page = Page([const { AtomicU64::new(0) }; mmu::ENTRIES]);
/// The frames that the page shows in turn. The first word is the round.
static SHOWN: [Page; 2] = [const { Page([const { AtomicU64::new(0) }; mmu::ENTRIES]) }; 2];

/// The last round whose flush has returned.
static FLUSHED: AtomicU64 = AtomicU64::new(0);
/// The value that each hart read last, and the round that was flushed before: two halves of a word.
static SEEN: [AtomicU64; HARTS] = [const { AtomicU64::new(0) }; HARTS];

fn entry(to: &'static Page, bits: u64) -> u64 {
    mmu::physical(ptr::from_ref(to)) >> 12 << 10 | bits
}

/// Reads the page.
fn read() -> u64 {
    let page: *const u64 = ptr::with_exposed_provenance(PAGE as usize);
    // SAFETY: `map` has mapped it in every root, and it stays mapped to frames that are statics of
    // atomics.
    unsafe { page.read_volatile() }
}

/// Maps the page in the kernel's own root, before other roots are made of that.
///
/// # Safety
///
/// 1. One hart runs, and the library has not been set up yet.
pub unsafe fn map() {
    LOWER.0[0].store(entry(&SHOWN[0], LEAF), Ordering::Relaxed);
    UPPER.0[0].store(entry(&LOWER, LINK), Ordering::Relaxed);
    // SAFETY: 1. Both tables are statics. 2. Point 1 of the caller's.
    unsafe { mmu::set_kernel_entry(ROOT_ENTRY, entry(&UPPER, LINK)) };
}

/// Begins to tell a recorder of tables: first of those of the kernel's half.
pub fn announce() {
    mailbox::begin(irq::cpu());
    mailbox::fixed_table(irq::cpu(), mmu::physical(&raw const UPPER), 1);
    mailbox::fixed_table(irq::cpu(), mmu::physical(&raw const LOWER), 0);
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
            core::hint::spin_loop();
        }
    });
}

/// Changes the page while the other CPUs [`look`], and checks the values that they see.
pub fn check() {
    let others = SEEN.iter().take(machine::cpus()).skip(1);
    for round in 1..=ROUNDS {
        let shown = &SHOWN[round as usize % SHOWN.len()];
        shown.0[0].store(round, Ordering::Relaxed);
        LOWER.0[0].store(entry(shown, LEAF), Ordering::Release);
        if let Err(e) = machine::flush_kernel(&pin(), &Runs::one(PAGE, PAGE + FRAME_SIZE as u64, 12)) {
            fail(format_args!("a flush of the kernel's half: {e}"));
        }
        FLUSHED.store(round, Ordering::Release);
        let begin = sbi::time();
        for seen in others.clone() {
            while seen.load(Ordering::Acquire) >> 32 != round {
                core::hint::spin_loop();
                fail_if(sbi::time().wrapping_sub(begin) > PATIENCE, format_args!("a hart does not look"));
            }
            let value = seen.load(Ordering::Acquire) & u64::from(u32::MAX);
            fail_if(
                value != round || read() != round,
                format_args!("stale: the kernel's half shows {value}, not {round}"),
            );
        }
    }
}
