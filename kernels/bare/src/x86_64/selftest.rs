//! Tests the machine itself before the library runs: the image's mappings, the MMU, and faults that
//! reach the hook. The emulator must keep stale translations; without them no kernel test could
//! detect a missing flush.

use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan_kernel_base::say;
use ptarmigan_kernel_x86::bare::{DIRECT_MAP, direct, kernel_root, trap};
use ptarmigan_kernel_x86::memory_map::Span;
use ptarmigan_kernel_x86::table::{self, TablePage};

/// Slot 2 of the root table, in the user's half.
const VIRT: u64 = 2 << 39;
const PAGE: u64 = 4096;

/// Entry bit: present.
const PRESENT: u64 = 1;
/// Entry bit: writable.
const WRITABLE: u64 = 1 << 1;
/// Entry bit, set by the MMU: used.
const ACCESSED: u64 = 1 << 5;
/// Entry bit, set by the MMU: written through.
const DIRTY: u64 = 1 << 6;
/// Entry bit: not executable.
const NO_EXECUTE: u64 = 1 << 63;

/// A tree of this module's own: a top with the kernel's entries, and one path down to `VIRT`.
static TOP: TablePage<512> = TablePage::new();
static UPPER: TablePage<512> = TablePage::new();
static DIRECTORY: TablePage<512> = TablePage::new();
static LEAF: TablePage<512> = TablePage::new();

/// The frame the hook maps next, and how often it did.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Reads a word which is known to be mapped.
fn word(address: u64) -> u64 {
    // SAFETY: this module only reads its own test pages, whose content is never anything but
    // integers.
    match unsafe { trap::read(address) } {
        Some(value) => value,
        None => panic!("{address:#x} is not mapped"),
    }
}

fn store(address: u64, value: u64) {
    // SAFETY: this module only writes to its own test frames.
    assert!(unsafe { trap::write(address, value) }, "{address:#x} is not mapped");
}

/// Maps the next frame at the faulting page, if it is one of the test's and is not mapped yet.
fn fault(address: u64, error: u64) -> bool {
    let index = address.wrapping_sub(VIRT) / PAGE;
    if address < VIRT || index >= 512 || error & trap::ERROR_PROTECTION != 0 {
        return false;
    }
    let frame = NEXT.fetch_add(PAGE, Ordering::Relaxed);
    LEAF.set(index as usize, frame | PRESENT | WRITABLE | NO_EXECUTE);
    true
}

/// Runs the checks on frames from the start of `memory`; panics at the first that fails. Leaves no
/// page of the test mapped.
pub fn run(memory: Span) {
    let frame = |i: u64| memory.start + i * PAGE;
    assert!(memory.bytes() >= 16 * PAGE, "no memory to test with");

    let boot = table::current_root();
    assert_eq!(boot, kernel_root().physical(DIRECT_MAP));
    assert_eq!(kernel_root().get(0), 0, "the user's half is not empty");
    for slot in 256..512 {
        TOP.set(slot, kernel_root().get(slot));
    }
    TOP.set(2, UPPER.physical(DIRECT_MAP) | PRESENT | WRITABLE);
    UPPER.set(0, DIRECTORY.physical(DIRECT_MAP) | PRESENT | WRITABLE);
    DIRECTORY.set(0, LEAF.physical(DIRECT_MAP) | PRESENT | WRITABLE);
    // SAFETY: 1. the top has all kernel entries of the boot table, and its tables are statics.
    unsafe { table::load_root(TOP.physical(DIRECT_MAP)) };
    say!("root table switched");

    // One frame at two pages and in the direct map.
    LEAF.set(0, frame(0) | PRESENT | WRITABLE | NO_EXECUTE);
    LEAF.set(1, frame(0) | PRESENT | WRITABLE | NO_EXECUTE);
    store(VIRT, 0x1122_3344_5566_7788);
    assert_eq!(word(VIRT + PAGE), 0x1122_3344_5566_7788);
    assert_eq!(word(direct::<u64>(frame(0)).addr() as u64), 0x1122_3344_5566_7788);
    assert_eq!(LEAF.get(0) & (ACCESSED | DIRTY), ACCESSED | DIRTY);
    assert_eq!(LEAF.get(1) & (ACCESSED | DIRTY), ACCESSED);
    say!("alias and direct map agree; the MMU set accessed and dirty");

    // Without invlpg the old translation has to be seen, or this emulator cannot show a missing
    // flush.
    store(direct::<u64>(frame(1)).addr() as u64, 0xf1);
    LEAF.set(1, frame(1) | PRESENT | WRITABLE);
    let stale = word(VIRT + PAGE);
    table::invalidate_page(VIRT + PAGE);
    let fresh = word(VIRT + PAGE);
    assert_eq!(fresh, 0xf1);
    assert_eq!(stale, 0x1122_3344_5566_7788, "no stale translation was kept: flushes are not tested here");
    say!("stale before invlpg, fresh after");

    // Unmapped: the probe fails, with the right address and error code.
    LEAF.set(0, 0);
    table::invalidate_page(VIRT);
    let before = trap::page_faults();
    // SAFETY: a test page.
    assert_eq!(unsafe { trap::read(VIRT + 8) }, None);
    assert_eq!(trap::last_page_fault(), (VIRT + 8, 0));
    // SAFETY: a test page.
    assert!(!unsafe { trap::write(VIRT + 16, 1) });
    assert_eq!(trap::last_page_fault(), (VIRT + 16, trap::ERROR_WRITE));
    assert_eq!(trap::page_faults(), before + 2);
    say!("faults fixed up");

    // A read-only page: the hook declines, the frame keeps its value.
    LEAF.set(1, frame(1) | PRESENT);
    table::invalidate_page(VIRT + PAGE);
    // SAFETY: a test page.
    assert!(!unsafe { trap::write(VIRT + PAGE, 7) });
    assert_eq!(trap::last_page_fault().1, trap::ERROR_WRITE | trap::ERROR_PROTECTION);
    assert_eq!(word(VIRT + PAGE), 0xf1);
    say!("read-only holds");

    // Demand mapping: each first access faults once, the next does not.
    NEXT.store(frame(2), Ordering::Relaxed);
    trap::set_page_fault_hook(Some(fault));
    let before = trap::page_faults();
    for i in 0..8 {
        store(VIRT + (16 + i) * PAGE, i);
    }
    for i in 0..8 {
        assert_eq!(word(VIRT + (16 + i) * PAGE), i);
        assert_eq!(word(direct::<u64>(frame(2 + i)).addr() as u64), i);
    }
    assert_eq!(trap::page_faults(), before + 8);
    trap::set_page_fault_hook(None);
    say!("8 pages mapped on demand by the hook");

    // SAFETY: 1. the table the machine booted on, which maps the same kernel.
    unsafe { table::load_root(boot) };
    for index in 0..512 {
        LEAF.set(index, 0);
    }
}
