//! Page-table code without a single hook.
use crate::PAGE;
use ptsan::watch::{FoundAt, Ram, Watch};
use ptsan::{Access, Adversary, Arch, Config, Content, Flush, Kind, Sanitizer};
use std::cell::Cell;
use x86_64::structures::paging::mapper::{MappedPageTable, PageTableFrameMapping};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, Page, PageTable, PageTableFlags, PhysFrame, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

const FRAMES: u64 = 16;
const ROOT: u64 = 0;
const WRITABLE: u64 = 7;
/// Entry 1 of the top, 2 and 3 of the tables below it.
const VA: u64 = 1 << 39 | 2 << 30 | 3 << 21 | 0x7000;

/// Makes memory full of old entries. The root is clear and loaded.
fn machine() -> Watch {
    machine_with(Config::new(Arch::x86_64()))
}

fn machine_with(config: Config) -> Watch {
    let watch = Watch::new((FRAMES * PAGE) as usize, Sanitizer::new(config)).expect("a watch");
    for at in (PAGE..FRAMES * PAGE).step_by(8) {
        assert!(watch.memory().store(at, ((at % FRAMES) * PAGE) | WRITABLE));
    }
    watch.with(|san, ram| {
        san.table_allocated(ram, ROOT, PAGE, Some(3), Content::Zero);
        san.switch(ram, 0, ROOT, 1);
    });
    watch
}

/// The allocator of frames: the only code that tells the sanitizer of anything.
struct Frames<'a> {
    watch: &'a Watch,
    next: Cell<u64>,
}

impl<'a> Frames<'a> {
    fn new(watch: &'a Watch) -> Self {
        Self { watch, next: Cell::new(PAGE) }
    }

    fn take(&self) -> u64 {
        let frame = self.next.replace(self.next.get() + PAGE);
        self.watch.with(|san, ram| san.table_allocated(ram, frame, PAGE, None, Content::Unknown));
        frame
    }
}

fn clear(ram: &Ram, table: u64) {
    for at in (table..table + PAGE).step_by(8) {
        assert!(ram.store(at, 0));
    }
}

#[inline(never)]
fn link_then_clear(ram: &Ram, entry: u64, table: u64) {
    assert!(ram.store(entry, table | WRITABLE));
    clear(ram, table);
}

#[inline(never)]
fn clear_then_link(ram: &Ram, entry: u64, table: u64) {
    clear(ram, table);
    assert!(ram.store(entry, table | WRITABLE));
}

/// Maps a page, without any hook.
fn map(ram: &Ram, frames: impl Fn() -> u64, link: fn(&Ram, u64, u64), va: u64, phys: u64) {
    let mut table = ROOT;
    for shift in [39, 30, 21] {
        let entry = table + (va >> shift) % 512 * 8;
        if ram.load(entry) == Some(0) {
            link(ram, entry, frames());
        }
        table = ram.load(entry).expect("in memory") & !0xfff;
    }
    assert!(ram.store(table + (va >> 12) % 512 * 8, phys | WRITABLE));
}

fn findings_of(link: fn(&Ram, u64, u64)) -> (Watch, Vec<FoundAt>) {
    let watch = machine();
    let frames = Frames::new(&watch);
    watch.run(|| map(watch.memory(), || frames.take(), link, VA, 0x9000)).expect("runs");
    let translated = watch.with(|san, ram| san.translate(ram, 0, VA + 8, Access::WRITE));
    assert_eq!(translated.expect("mapped").phys, 0x9008);
    let found = watch.found();
    (watch, found)
}

/// Stores at a known line. The registers are loaded before, and other instructions stand on the
/// lines around.
///
/// # Safety
/// `entry` is the last entry of the root.
unsafe fn store_at_a_known_line(entry: *mut u8, raw: u64, repeated: bool) -> u32 {
    use std::arch::asm;
    let mut ends = (2, entry);
    // SAFETY: one or two words of the memory, which go from the root to the next frame.
    unsafe {
        if repeated {
            asm!("nop", in("rax") raw, inout("rcx") ends.0, inout("rdi") ends.1);
            asm!("rep stosq", in("rax") raw, inout("rcx") ends.0, inout("rdi") ends.1);
            asm!("nop", in("rax") raw, inout("rcx") ends.0, inout("rdi") ends.1);
            assert_eq!(ends, (0, entry.wrapping_add(16)));
            return line!() - 3;
        }
        asm!("nop", in("rax") raw, in("rdi") entry);
        asm!("mov [rdi], rax", in("rax") raw, in("rdi") entry);
        asm!("nop", in("rax") raw, in("rdi") entry);
    }
    line!() - 3
}

#[test]
fn exactly_the_line_of_the_store_is_named() {
    for repeated in [false, true] {
        let watch = machine();
        let frames = Frames::new(&watch);
        let entry = watch.memory().base().wrapping_add(4088);
        // SAFETY: the last entry of the root.
        let store = || unsafe { store_at_a_known_line(entry, frames.take() | WRITABLE, repeated) };
        let line = watch.run(store).expect("runs");
        let text = watch.found()[0].to_string();
        let first = text.lines().find(|l| l.contains("tables.rs:")).expect("a line of this file");
        assert!(first.contains(&format!("tables.rs:{line}:")), "line {line}: {text}");
        assert!(!text.contains("__restore_rt") && !text.contains("<unknown>"), "{text}");
    }
}

#[test]
fn a_failed_tests_message_has_the_report_and_the_code() {
    let watch = machine();
    let frames = Frames::new(&watch);
    watch.run(|| link_then_clear(watch.memory(), ROOT, frames.take())).expect("runs");
    let check = std::panic::AssertUnwindSafe(|| watch.assert_clean());
    let message = std::panic::catch_unwind(check).expect_err("panics").downcast::<String>().expect("a text");
    for part in ["1 finding", "table frame 0x1000", "finding 1 (linked-before-cleared): ", "link_then_clear"]
    {
        assert!(message.contains(part), "{part} is not in {message}");
    }
}

#[test]
fn a_mapper_without_hooks_that_clears_before_it_links_is_silent() {
    let (watch, found) = findings_of(clear_then_link);
    assert!(found.is_empty());
    watch.assert_clean();
    assert_eq!(watch.stores(), 3 * 513 + 1);
}

#[test]
fn a_mapper_that_links_before_it_clears_is_caught_at_the_link() {
    let (watch, found) = findings_of(link_then_clear);
    // One instruction stored the entries of the top, of the second and of the third table: one
    // cause.
    assert_eq!(found.iter().map(|f| (f.phys, f.finding)).collect::<Vec<_>>(), [(8, 0)]);
    watch.with(|san, _| {
        assert_eq!(san.count(Kind::LinkedBeforeCleared), 3, "{san}");
        assert_eq!(san.total(), 3, "{san}");
        let [finding] = san.findings() else { panic!("{san}") };
        let levels: Vec<_> = finding.consequences.iter().map(|c| (c.kind, c.place.level, c.count)).collect();
        assert_eq!(levels, [1, 0].map(|level| (Kind::LinkedBeforeCleared, Some(level), 1)), "{san}");
        assert_eq!(finding.place.frame, Some(PAGE));
    });
    assert_eq!(watch.to_string(), watch.with(|san, _| san.to_string()), "each store is returned once");
    let text = found[0].to_string();
    let innermost = text.lines().find(|line| line.contains("watch::tables::")).expect("a frame of this file");
    assert!(innermost.contains("link_then_clear"), "{text}");
    assert!(
        !text.contains("on_trap") && !text.contains("Watch::run") && !text.contains("Watch>::run"),
        "only the code under test: {text}"
    );
}

#[test]
fn walks_between_stores_find_a_missing_flush_without_access() {
    for seed in 0..4 {
        for flush_first in [true, false] {
            let adversary = Some(Adversary { seed, rate: 1000 });
            let watch = machine_with(Config { cpus: 2, adversary, ..Config::new(Arch::x86_64()) });
            let frames = Frames::new(&watch);
            let ram = watch.memory();
            watch
                .run(|| {
                    map(ram, || frames.take(), clear_then_link, VA, 0x9000);
                    // The last table and the entry that leads to it.
                    let (table, entry) = (3 * PAGE, 2 * PAGE + 24);
                    assert_eq!(ram.load(entry), Some(table | WRITABLE));
                    clear(ram, table);
                    assert!(ram.store(entry, 0));
                    let flush = || watch.with(|san, ram| san.flush_everywhere(ram, Flush::space(1)));
                    if flush_first {
                        flush();
                    }
                    watch.with(|san, ram| san.table_freed(ram, table, PAGE));
                    flush();
                })
                .expect("runs");
            let (found, total) = watch.with(|san, _| (san.count(Kind::FreeBeforeFlush), san.total()));
            assert_eq!((found == 0, total == 0), (flush_first, flush_first), "seed {seed}: {watch}");
        }
    }
}

struct Offset(*mut u8);

// SAFETY: frames of the tests lie in the memory of the watch, which begins at physical address 0.
unsafe impl PageTableFrameMapping for Offset {
    fn frame_to_pointer(&self, frame: PhysFrame) -> *mut PageTable {
        self.0.wrapping_add(frame.start_address().as_u64() as usize).cast()
    }
}

// SAFETY: every frame is allocated once.
unsafe impl FrameAllocator<Size4KiB> for Frames<'_> {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        PhysFrame::from_start_address(PhysAddr::new(self.take())).ok()
    }
}

#[test]
fn the_x86_64_crates_link_before_clear_is_found_and_named() {
    let watch = machine();
    let mut frames = Frames::new(&watch);
    let base = watch.memory().base();
    // SAFETY: the root is a cleared table in the memory, and no other code stores there.
    let mut mapper = unsafe { MappedPageTable::new(&mut *base.cast::<PageTable>(), Offset(base)) };
    let page = Page::<Size4KiB>::containing_address(VirtAddr::new(VA));
    let frame = PhysFrame::containing_address(PhysAddr::new(0x9000));
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE | PageTableFlags::USER_ACCESSIBLE;
    watch
        .run(|| {
            // SAFETY: no code runs on these tables.
            unsafe { mapper.map_to(page, frame, flags, &mut frames) }.expect("maps").ignore();
        })
        .expect("runs");
    let found = watch.found();
    watch.with(|san, _| {
        assert_eq!((san.count(Kind::LinkedBeforeCleared), san.total()), (3, 3), "{san}");
    });
    assert_eq!(found.iter().map(|f| f.phys).collect::<Vec<_>>(), [8, PAGE + 16, 2 * PAGE + 24]);
    for found in &found {
        let text = found.to_string();
        assert!(text.contains("create_next_table"), "{text}");
    }
}
