//! The released crate `x86_64`, as it is: its mapper, its flush tokens, its root register.
use super::{Machine, WRITABLE, config, store};
use crate::PAGE;
use ptsan::watch::{Act, Watch};
use ptsan::{Access, Adversary, Config, Content, Kind, Sanitizer};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use x86_64::registers::control::{Cr3, Cr3Flags};
use x86_64::structures::paging::mapper::CleanUp;
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags, PhysFrame,
    Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

const VA: u64 = 0xffff_9000_0123_4000;
const FLAGS: PageTableFlags = PageTableFlags::PRESENT.union(PageTableFlags::WRITABLE);
const FRAMES: u64 = 32;

/// The kernel's allocator of frames: the only code that knows of the sanitizer.
struct Frames<'a> {
    watch: &'a Watch,
    next: Cell<u64>,
}

impl<'a> Frames<'a> {
    fn new(watch: &'a Watch) -> Self {
        Self { watch, next: Cell::new(watch.memory().start()) }
    }

    fn take(&self) -> u64 {
        let frame = self.next.replace(self.next.get() + PAGE);
        self.watch.with(|san, ram| san.table_allocated(ram, frame, PAGE, None, Content::Unknown));
        frame
    }
}

// SAFETY: every frame is allocated once.
unsafe impl FrameAllocator<Size4KiB> for Frames<'_> {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        PhysFrame::from_start_address(PhysAddr::new(self.take())).ok()
    }
}

impl FrameDeallocator<Size4KiB> for Frames<'_> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        self.watch.with(|san, ram| san.table_freed(ram, frame.start_address().as_u64(), PAGE));
    }
}

fn watch(config: Config) -> Watch {
    Watch::identity((FRAMES * PAGE) as usize, Sanitizer::new(config)).expect("a watch")
}

/// Runs kernel code of CPU 0.
fn kernel<R>(watch: &Watch, code: impl FnOnce() -> R) -> R {
    // SAFETY: 1. The code does not halt. 2. The tests use physical memory that is there.
    unsafe { watch.run_on(0, code) }.expect("runs").returned().expect("returns")
}

/// A kernel that relies on dirty bits must exchange an entry that another CPU may write through.
#[test]
fn only_a_plain_store_over_an_entry_loses_the_dirty_bit() {
    const ACCESSED: u64 = 1 << 5;
    let config = || Config { accessed_dirty: true, ..config() };
    let lost = |machine: &Machine| machine.watch.with(|san, _| san.count(Kind::BitLost));
    // SAFETY: the tests give addresses of words in the memory of a watch.
    let entry = |at: u64| unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at as usize)) };
    // Who stores, who else runs, whether at once, and whether a bit is lost.
    for (stores, other, atomic, is_lost) in
        [(0, 1, false, true), (0, 1, true, false), (1, 0, false, true), (0, 0, false, false)]
    {
        let machine = Machine::new(config(), VA, ACCESSED);
        let root = machine.root;
        machine.watch.with(|san, ram| {
            san.leave(0);
            san.switch(ram, other, root, root);
        });
        machine.use_both(other);
        let read_only = (root + 8 * PAGE) | (WRITABLE & !2) | ACCESSED;
        let code = || match atomic {
            true => _ = entry(machine.entry).swap(read_only, SeqCst),
            false => store(machine.entry, read_only),
        };
        // SAFETY: 1. The code does not halt. 2. It needs no more.
        let ended = unsafe { machine.watch.run_on(stores, code) };
        ended.expect("runs").returned().expect("returns");
        assert_eq!(lost(&machine), u64::from(is_lost), "{stores} {other} {atomic}: {}", machine.watch);
    }
}

/// Loads a new root. It is zero from the start.
fn boot(frames: &Frames<'_>) {
    let root = PhysFrame::from_start_address(PhysAddr::new(frames.take())).expect("a multiple of 4096");
    // SAFETY: the register is emulated.
    unsafe { Cr3::write(root, Cr3Flags::empty()) };
}

/// Makes the mapper of the loaded root, as kernels do.
fn mapper() -> OffsetPageTable<'static> {
    let root = Cr3::read().0.start_address().as_u64();
    let root = std::ptr::with_exposed_provenance_mut::<PageTable>(root as usize);
    // SAFETY: physical addresses are addresses, the root is a table, and no other code uses it
    // while the mapper lives.
    unsafe { OffsetPageTable::new(&mut *root, VirtAddr::new(0)) }
}

fn page() -> Page<Size4KiB> {
    Page::containing_address(VirtAddr::new(VA))
}

fn map(frames: &mut Frames<'_>) {
    let to = PhysFrame::containing_address(PhysAddr::new(frames.watch.memory().start() + 20 * PAGE));
    // SAFETY: no code runs on these tables.
    unsafe { mapper().map_to(page(), to, FLAGS, frames) }.expect("maps").flush();
}

fn read(watch: &Watch) -> bool {
    watch.with(|san, ram| san.translate(ram, 0, VA, Access::READ.kernel())).is_ok()
}

#[test]
fn a_mapper_that_unmaps_without_a_flush_is_found() {
    for flush in [true, false] {
        let watch = watch(config());
        let mut frames = Frames::new(&watch);
        kernel(&watch, || {
            boot(&frames);
            map(&mut frames);
        });
        // The crate links tables before it clears them; frames that were never used hide that.
        assert_eq!(watch.with(|san, _| san.total()), 0, "{watch}");
        assert!(read(&watch));
        kernel(&watch, || {
            let (_, token) = mapper().unmap(page()).expect("mapped");
            if flush {
                token.flush();
            } else {
                token.ignore();
            }
        });
        assert_eq!(read(&watch), !flush);
        let counts = watch.with(|san, _| (san.count(Kind::StaleUse), san.total()));
        assert_eq!(counts, (u64::from(!flush), u64::from(!flush)), "{watch}");
    }
}

#[test]
fn only_tables_freed_before_a_flush_are_found() {
    for flush in [true, false] {
        let adversary = Some(Adversary { seed: 1, rate: 1000 });
        let watch = watch(Config { adversary, ..config() });
        let mut frames = Frames::new(&watch);
        kernel(&watch, || {
            boot(&frames);
            map(&mut frames);
        });
        assert!(read(&watch));
        kernel(&watch, || {
            let mut mapper = mapper();
            mapper.unmap(page()).expect("mapped").1.ignore();
            if flush {
                // Unhooks by hand, flushes, and frees.
                let (root, table) = (Cr3::read().0, frames.watch.memory().start() + PAGE);
                let entry = root.start_address().as_u64() + (VA >> 39 & 511) * 8;
                store(entry, 0);
                x86_64::instructions::tlb::flush_all();
                (0..3).for_each(|n| {
                    let frame = PhysFrame::containing_address(PhysAddr::new(table + n * PAGE));
                    // SAFETY: no entry points at it any more.
                    unsafe { frames.deallocate_frame(frame) };
                });
            } else {
                // SAFETY: the crate says that tables may be freed while they are unused. It frees
                // them before anything is flushed.
                unsafe { mapper.clean_up(&mut frames) };
            }
        });
        let count = watch.with(|san, _| san.count(Kind::FreeBeforeFlush));
        assert_eq!(count == 0, flush, "{watch}");
        assert_eq!(watch.with(|san, _| san.total()) == 0, flush, "{watch}");
    }
}

#[test]
fn old_entries_are_found_at_the_link_and_of_a_root_at_its_load() {
    let watch = watch(config());
    let mut frames = Frames::new(&watch);
    for at in (watch.memory().start()..watch.memory().start() + 3 * PAGE).step_by(8) {
        store(at, (watch.memory().start() + 9 * PAGE) | 7);
    }
    kernel(&watch, || boot(&frames));
    let found = watch.found();
    assert_eq!(found.len(), 1, "{watch}");
    assert_eq!((found[0].act, found[0].phys), (Act::Loaded, watch.memory().start()));
    let text = found[0].to_string();
    assert!(text.contains("loaded the root") && text.contains("::boot"), "{text}");
    assert!(
        !text.contains("on_trap") && !text.contains("Watch::run") && !text.contains("Watch>::run"),
        "only the code under test: {text}"
    );
    kernel(&watch, || {
        let root = Cr3::read().0.start_address().as_u64();
        (root..root + PAGE).step_by(8).for_each(|at| store(at, 0));
        map(&mut frames);
    });
    let found = watch.found();
    assert_eq!(
        found.iter().map(|f| f.phys - watch.memory().start()).collect::<Vec<_>>(),
        [(VA >> 39 & 511) * 8, PAGE + (VA >> 30 & 511) * 8]
    );
    let text = found[0].to_string();
    assert!(text.contains("stored to") && text.contains("create_next_table"), "{text}");
}

#[test]
fn a_flush_on_one_cpu_does_nothing_on_another() {
    for shootdown in [false, true] {
        let machine = Machine::plain(0x4020_4000);
        let on = |cpu, code: &dyn Fn()| {
            // SAFETY: 1. The code does not halt. 2. The tests use physical memory that is there.
            unsafe { machine.watch.run_on(cpu, code) }.expect("runs").returned().expect("returns");
        };
        let load = || {
            let root = PhysFrame::containing_address(PhysAddr::new(machine.root));
            // SAFETY: the register is emulated.
            unsafe { Cr3::write(root, Cr3Flags::empty()) };
        };
        on(1, &load);
        machine.use_both(0);
        machine.use_both(1);
        let flush = || {
            x86_64::instructions::tlb::flush(VirtAddr::new(machine.va));
            x86_64::instructions::tlb::flush(VirtAddr::new(machine.va + PAGE));
        };
        machine.run(|| {
            store(machine.entry, 0);
            store(machine.entry + 8, 0);
            flush();
            if shootdown {
                // The interrupt on the other CPU.
                on(1, &flush);
            }
            // This is CPU 0 again.
            flush();
        });
        assert_eq!(machine.held(0), [false; 2]);
        assert_eq!(machine.held(1), [!shootdown; 2]);
        assert_eq!(machine.total(), if shootdown { 0 } else { 2 }, "{}", machine.watch);
    }
}
