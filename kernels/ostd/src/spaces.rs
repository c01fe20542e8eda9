//! Checks sparse spaces, and counts their instructions.
use alloc::sync::Arc;
use alloc::vec::Vec;

use ostd::arch::read_tsc;
use ostd::early_println;
use ostd::irq::disable_local;
use ostd::mm::{
    CachePolicy, FrameAllocOptions, PAGE_SIZE, PageFlags, PageProperty, UFrame, Vaddr, VmIo, VmSpace,
};
use ostd::task::{Task, disable_preempt};

use crate::FRAMES;
use crate::frames::Source;

/// Pages of a space.
const PAGES: usize = 32;
/// Tables of a space: one for each page, and one of each higher level.
const TABLES: usize = PAGES + 3;
/// Bytes from one page to the next.
const APART: usize = 2 << 20;
/// Address of the first page.
const BASE: Vaddr = 1 << 32;
/// End of the range that the first entry of a root maps: all pages lie in it.
const END: Vaddr = 1 << 39;
/// Spaces of a round.
const SPACES: u64 = 64;
/// Rounds that are counted.
const ROUNDS: usize = 15;
/// Spaces that are checked, before the count and after it.
const CHECKED: u64 = 64;

fn address(page: usize) -> Vaddr {
    BASE + page * APART
}

/// Maps each page by itself, as faults do.
fn map(space: &VmSpace, frames: &[UFrame]) {
    let property = PageProperty::new_user(PageFlags::RW, CachePolicy::Writeback);
    let guard = disable_preempt();
    for (page, frame) in frames.iter().enumerate() {
        let at = address(page);
        let mut cursor = space.cursor_mut(&guard, &(at..at + PAGE_SIZE)).expect("a cursor");
        cursor.map(frame.clone(), property);
    }
}

/// Unmaps all pages by one call, and lets the grace period pass.
fn unmap(space: &VmSpace) {
    {
        let guard = disable_preempt();
        let mut cursor = space.cursor_mut(&guard, &(0..END)).expect("a cursor");
        assert_eq!(cursor.unmap(END), PAGES, "pages of a space");
        cursor.flusher().sync_tlb_flush();
    }
    Task::yield_now();
}

/// Checks that each page of a space shows its frame, both ways, and that no other page is mapped.
fn check(frames: &[UFrame], seed: u64) {
    let space = Arc::new(VmSpace::new());
    map(&space, frames);
    space.activate();
    for (page, frame) in frames.iter().enumerate() {
        let (at, value) = (address(page), seed << 32 | page as u64);
        space.writer(at, 8).expect("user memory").write_val(&value).expect("a write");
        assert_eq!(frame.read_val::<u64>(0).expect("a frame"), value, "page {page}: another frame");
        frame.write_val(8, &!value).expect("a frame");
        let read = space.reader(at + 8, 8).expect("user memory").read_val::<u64>();
        assert_eq!(read.expect("a read"), !value, "page {page}: another frame");
    }
    let guard = disable_preempt();
    let mut mapped = Vec::new();
    let mut cursor = space.cursor(&guard, &(0..END)).expect("a cursor");
    while let Some(at) = cursor.find_next(END - cursor.virt_addr()) {
        mapped.push(at);
        if at + PAGE_SIZE == END || cursor.jump(at + PAGE_SIZE).is_err() {
            break;
        }
    }
    assert!(mapped.iter().copied().eq((0..PAGES).map(address)), "something else is mapped: {mapped:x?}");
}

/// Instructions to make a space, to map its pages, and to end it.
#[derive(Clone, Copy, Default)]
struct SpaceCosts([u64; 3]);

impl SpaceCosts {
    fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Makes a space, maps its pages and drops it, after it has unmapped them if that is asked for.
fn space(frames: &[UFrame], counts: &mut SpaceCosts, unmaps: bool) {
    let begin = read_tsc();
    let space = VmSpace::new();
    let made = read_tsc();
    map(&space, frames);
    let mapped = read_tsc();
    if unmaps {
        unmap(&space);
    }
    drop(space);
    let spans = [made - begin, mapped - made, read_tsc() - mapped];
    counts.0.iter_mut().zip(spans).for_each(|(sum, span)| *sum += span);
}

/// Counts rounds of spaces and prints the one in the middle.
fn count(source: Source, frames: &[UFrame], unmaps: bool) {
    let mut rounds: Vec<SpaceCosts> = (0..ROUNDS)
        .map(|_| {
            let mut counts = SpaceCosts::default();
            // The timer's interrupts would be counted too. A grace period needs them on.
            let _guard = (!unmaps).then(disable_local);
            (0..SPACES).for_each(|_| space(frames, &mut counts, unmaps));
            SpaceCosts(counts.0.map(|sum| sum / SPACES))
        })
        .collect();
    rounds.sort_unstable_by_key(SpaceCosts::total);
    let [least, middle, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|round| rounds[round]);
    let [make, map, end] = middle.0;
    early_println!(
        "{}: {} {} instructions a space: {} make, {} map, {} end; {} to {}",
        source.name(),
        if unmaps { "unmapped" } else { "dropped" },
        middle.total(),
        make,
        map,
        end,
        least.total(),
        most.total()
    );
}

/// Counts the instructions to get as many frames as a space has tables, and to give them back.
fn count_frames(source: Source, zeroed: bool) {
    let mut frames: Vec<UFrame> = Vec::with_capacity(TABLES);
    let _guard = disable_local();
    let mut begin = 0;
    // The first time is not counted: its cached frames are another phase's.
    for round in 0..=SPACES {
        if round == 1 {
            begin = read_tsc();
        }
        for _ in 0..TABLES {
            frames.push(FrameAllocOptions::new().zeroed(zeroed).alloc_frame().expect("a frame").into());
        }
        frames.clear();
    }
    let each = (read_tsc() - begin) / (SPACES * TABLES as u64);
    let content = if zeroed { "cleared" } else { "as it is" };
    early_println!("{}: {} instructions a frame, {}", source.name(), each, content);
}

/// Counts the same for table pages; an entry is written, and entries that are clear are not
/// cleared.
fn count_known() {
    let tables = FRAMES.tables().expect("the library's table pages");
    let _guard = disable_local();
    tables.write_entries(TABLES);
    let begin = read_tsc();
    (0..SPACES).for_each(|_| tables.write_entries(TABLES));
    let each = (read_tsc() - begin) / (SPACES * TABLES as u64);
    early_println!("{}: {} instructions a frame, known to be zero", Source::Tables.name(), each);
}

/// Checks that the counter counts instructions.
fn check_counter() {
    const TIMES: u64 = 10_000;
    let spin = |times: u64| {
        let begin = read_tsc();
        // SAFETY: it counts a register of its own down to 0, by two instructions each time.
        unsafe { core::arch::asm!("2: dec {0}", "jnz 2b", inout(reg) times => _) };
        read_tsc() - begin
    };
    let _guard = disable_local();
    assert_eq!(spin(2 * TIMES) - spin(TIMES), 2 * TIMES, "the counter does not count instructions");
}

/// Checks and counts, with frames of each source.
pub fn run() {
    check_counter();
    let frame = |_| FrameAllocOptions::new().alloc_frame().expect("a frame").into();
    let frames: Vec<UFrame> = (0..PAGES).map(frame).collect();
    // A CPU keeps the space that was active last.
    let idle = Arc::new(VmSpace::new());
    for source in Source::ALL {
        FRAMES.choose(source);
        run_with(source, &frames, &idle);
    }
    count_known();
}

fn run_with(source: Source, frames: &[UFrame], idle: &Arc<VmSpace>) {
    let before = FRAMES.counts();
    space(frames, &mut SpaceCosts::default(), false);
    let after = FRAMES.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (TABLES, TABLES), "tables of a space");
    (0..CHECKED).for_each(|seed| check(frames, seed));
    idle.activate();

    let before = FRAMES.counts();
    count(source, frames, false);
    count(source, frames, true);
    let after = FRAMES.counts();
    let least = 2 * ROUNDS * SPACES as usize * TABLES;
    assert!(after.0 - before.0 >= least, "frames that were taken: {}", after.0 - before.0);
    // The heap keeps a few pages.
    let kept = (after.0 - before.0).abs_diff(after.1 - before.1);
    assert!(kept < TABLES, "frames that did not come back: {kept}");

    (CHECKED..2 * CHECKED).for_each(|seed| check(frames, seed));
    idle.activate();
    count_frames(source, true);
    count_frames(source, false);
}
