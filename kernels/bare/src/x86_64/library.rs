//! The library on the real MMU: spaces whose pages come by page fault, lose permissions, go, and
//! come back, and at the end every frame is where it was.
//!
//! ```text
//!  run      CURRENT = state, release ── hook set ── one_space … ── hook off ── CURRENT = null
//!  fault    CURRENT: acquire ── null? not ours ──> tree: map a frame ──> the access goes on
//!  misses   space 0, 1: tables come from the allocator ── space 2 on: none does
//! ```
//!
//! # Why
//!
//! A handler of exceptions has no parameter, so it finds the state of the test in a static. The
//! pointer must go before the state does: otherwise a late fault would use a dropped tree. The test
//! runs on the real MMU because a host cannot show that an entry has a wrong bit.

use core::cell::RefCell;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use ptarmigan::addr::{FRAME_SHIFT, Pfn, VirtAddr, VirtRange};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::{Attr, X86_64};
use ptarmigan::frames::{AllocFlags, DataFrame};
use ptarmigan::machine::Machine as _;
use ptarmigan::quicklist::Policy;
use ptarmigan::table::{Free, Tree};
use ptarmigan_kernel_base::say;
use ptarmigan_kernel_mailbox as mailbox;
use ptarmigan_kernel_x86::bare::{direct, trap};
use ptarmigan_kernel_x86::memory_map::Span;
use ptarmigan_kernel_x86::table;

use super::areas;
use super::machine::{self, AnnouncedMachine, here, pin, read, write};

const VIRT: u64 = 0x40_0000_0000;
const PAGE: u64 = 4096;
const STRIDE: u64 = 2 << 20;
const PAGES: usize = 32;
const SPACES: u32 = 64;

/// The state that the fault hook uses.
struct Current<'m> {
    machine: &'m AnnouncedMachine,
    tree: RefCell<Option<Tree<X86_64>>>,
}

static CURRENT: AtomicPtr<Current<'static>> = AtomicPtr::new(ptr::null_mut());

/// A frame of zeroes for every first touch inside the test's range.
fn fault(address: u64, error: u64) -> bool {
    let current = CURRENT.load(Ordering::Acquire);
    if current.is_null() || error & trap::ERROR_PROTECTION != 0 {
        return false;
    }
    if !(VIRT..VIRT + PAGES as u64 * STRIDE).contains(&address) {
        return false;
    }
    // SAFETY: `run` stores the pointer, and clears it before the state is dropped; one CPU, so only
    // the code that faulted can hold another reference, and it is a shared one.
    let current = unsafe { &*current };
    // Busy: the library itself faulted, which it never may.
    let Ok(mut tree) = current.tree.try_borrow_mut() else { return false };
    let Some(tree) = tree.as_mut() else { return false };
    let m = current.machine;
    let pin = pin(m);
    let Ok(frame) = m.data().take(m.frames(), &pin, AllocFlags::ATOMIC) else { return false };
    // SAFETY: 1. taken just now, and not mapped yet.
    let cleared = unsafe { m.clear_data(&pin, frame.pfn()) };
    debug_assert!(cleared.is_ok(), "the direct map reaches every frame");
    let attr = Attr::READ | Attr::WRITE | Attr::USER;
    let page = VirtAddr(address & !(PAGE - 1));
    let Ok(mut tree) = tree.edit(here(m, &pin)) else { return false };
    // SAFETY: 1. the frame is a data frame of this page's own; it is given back after the page has
    // been unmapped and flushed.
    let mapped = unsafe { tree.map(page, frame.pfn(), attr, AllocFlags::ATOMIC) }.is_ok();
    if mapped {
        // The entry has the reference now.
        let _ = frame.into_raw();
    } else {
        give(m, frame);
    }
    mapped
}

/// Frames that were mapped and wait for the flush.
#[derive(Default)]
struct Waiting {
    frames: [Option<DataFrame>; PAGES],
    n: usize,
}

impl Waiting {
    /// Takes over the reference that the entry of `frame` owned.
    ///
    /// # Safety
    ///
    /// 1. [`fault`] must have made the entry, and no other call may take its reference.
    unsafe fn add(&mut self, m: &AnnouncedMachine, frame: Pfn) {
        // SAFETY: 1. `fault` left the reference to the entry, and it is taken here (1.).
        self.frames[self.n] = Some(unsafe { DataFrame::from_raw(m.id(), frame) });
        self.n += 1;
    }

    fn give(self, m: &AnnouncedMachine) {
        self.frames.into_iter().flatten().for_each(|frame| give(m, frame));
    }
}

/// Gives a frame back that has no other users.
fn give(m: &AnnouncedMachine, frame: DataFrame) {
    let pfn = frame.pfn();
    let last = m.data().release(m.frames(), &pin(m), frame);
    assert!(last.is_ok_and(|last| last), "{pfn} has other users");
}

/// The page of region `i`: at another offset in each, and in each space.
fn page(space: u32, i: usize) -> u64 {
    VIRT + i as u64 * STRIDE + (u64::from(space) * 101 + i as u64 * 37 + 11) % 512 * PAGE
}

/// Runs the checks on `memory`, which is the library's from here on; panics at the first that
/// fails.
pub fn run(memory: Span) {
    // SAFETY: 1. The memory is nobody else's: the self test is over.
    let Ok((machine, mut boot)) = unsafe { machine::set_up(memory) };
    let (m, pin, frames) = (&machine, pin(&machine), machine.frames());
    let (before, tables) = (frames.counts(), m.kernel_map().tables());
    say!("library: {} frames, {} free", before.total, before.free);

    let current = Current { machine: m, tree: RefCell::new(None) };
    CURRENT.store((&raw const current).cast_mut().cast(), Ordering::Release);
    trap::set_page_fault_hook(Some(fault));
    let mut misses = 0;
    for number in 0..SPACES {
        one_space(&current, number);
        let counts = m.policy().counts();
        assert_eq!(counts.live(), 0, "tables of space {number} are still out");
        let now = counts.levels.iter().map(|l| l.misses).sum::<usize>();
        assert!(number < 2 || now == misses, "space {number} took tables from the allocator");
        misses = now;
    }
    trap::set_page_fault_hook(None);
    CURRENT.store(ptr::null_mut(), Ordering::Release);

    areas::check(m, &mut boot);
    let flushes = m.tlb().counts();
    say!("{SPACES} spaces, {misses} tables from the allocator, {} page faults", trap::page_faults());
    say!("flushes: {} page, {} range, {} full", flushes.page, flushes.range, flushes.full);
    let on = here(m, &pin);
    on.drain();
    on.policy().reclaim(NodeId(0), u32::MAX);
    assert_eq!(m.policy().counts().cached(), 0, "tables are still cached");
    // A table that hangs in the kernel's root stays as long as the kernel's half.
    let kept = (m.kernel_map().tables() - tables) as u32;
    assert_eq!((frames.counts().free + kept, kept), (before.free, 1), "frames are missing");
    mailbox::send(0, mailbox::code::END, [0; 4]);
    say!("all frames are back");
}

/// The life of one space.
fn one_space(current: &Current<'_>, number: u32) {
    let m = current.machine;
    let pin = pin(m);
    let on = here(m, &pin);
    let tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL);
    let tree = tree.unwrap_or_else(|e| panic!("no root table: {e}"));
    assert!(tree.activate(on).is_ok());
    assert_eq!(table::current_root(), tree.root().0);
    *current.tree.borrow_mut() = Some(tree);

    // Every page takes one fault, reads as zero, and keeps its value.
    let faults = trap::page_faults();
    let value = |i: usize| u64::from(number) << 32 | i as u64 | 1 << 63;
    for i in 0..PAGES {
        assert_eq!(read(page(number, i)), Some(0), "a new page is not zero");
        assert!(write(page(number, i), value(i)));
    }
    assert_eq!(trap::page_faults(), faults + PAGES as u64);
    for i in 0..PAGES {
        assert_eq!(read(page(number, i)), Some(value(i)));
        let mapped = current.tree.borrow().as_ref().and_then(|t| t.query(on, VirtAddr(page(number, i))));
        let Some((frame, attr)) = mapped else { panic!("page {i} is not in the tree") };
        assert!(attr.has(Attr::ACCESSED | Attr::DIRTY), "the MMU did not use the library's entry: {attr}");
        assert_eq!(read(direct::<u64>(frame.addr().0).addr() as u64), Some(value(i)));
    }
    assert_eq!(trap::page_faults(), faults + PAGES as u64, "mapped pages faulted");

    // Without write permission, flushed: writes fault for protection, the value stays.
    change(current, |attr| attr.without(Attr::WRITE));
    assert!(!write(page(number, 3), 0));
    assert_eq!(trap::last_page_fault(), (page(number, 3), trap::ERROR_PROTECTION | trap::ERROR_WRITE));
    assert_eq!(read(page(number, 3)), Some(value(3)));
    change(current, |attr| attr | Attr::WRITE);
    assert!(write(page(number, 3), value(3)));

    // A page unmapped and flushed faults again and comes back as another, zeroed; its neighbours
    // stay.
    let faults = trap::page_faults();
    let gone = VirtRange::saturating_pages(page(number, 5) / PAGE, 1, FRAME_SHIFT);
    let mut waiting = Waiting::default();
    if let Some(tree) = current.tree.borrow_mut().as_mut() {
        if let Ok(mut changes) = tree.edit(on) {
            // SAFETY: 1. all pages come by `fault`, and their entries go by this alone.
            changes.unmap_range(gone, Free::Empty, |_, frame, _| unsafe { waiting.add(m, frame) });
            changes.flush();
        }
        assert_eq!(tree.tables_below_root(), 2 + PAGES as u32 - 1, "the emptied table is still there");
    }
    assert_eq!(waiting.n, 1);
    waiting.give(m);
    trap::set_page_fault_hook(None);
    assert_eq!(read(page(number, 5)), None, "an unmapped page can be read");
    trap::set_page_fault_hook(Some(fault));
    assert_eq!(read(page(number, 5)), Some(0), "an old translation or an old page");
    assert_eq!(read(page(number, 6)), Some(value(6)));
    assert_eq!(trap::page_faults(), faults + 2);

    // The end: back on the kernel's own table, every table and frame given back.
    let mut waiting = Waiting::default();
    if let Some(tree) = current.tree.borrow_mut().take() {
        // SAFETY: 1. all pages come by `fault`, and their entries go by this alone.
        assert!(tree.end(on, |_, frame, _| unsafe { waiting.add(m, frame) }).is_ok());
    }
    assert_eq!(table::current_root(), m.kernel_map().root().0, "a dead top is still loaded");
    assert_eq!(waiting.n, PAGES);
    waiting.give(m);
    trap::set_page_fault_hook(None);
    assert_eq!(read(page(number, 0)), None, "a page outlived its space");
    trap::set_page_fault_hook(Some(fault));
}

/// Changes the attributes of all pages and flushes.
fn change(current: &Current<'_>, to: impl Fn(Attr) -> Attr) {
    let m = current.machine;
    let pin = pin(m);
    let all = VirtRange::fixed::<VIRT, { VIRT + PAGES as u64 * STRIDE }>();
    if let Some(tree) = current.tree.borrow_mut().as_mut()
        && let Ok(mut changes) = tree.edit(here(m, &pin))
    {
        assert_eq!(changes.change_range(all, to), Ok(()));
        changes.flush();
    }
}
