//! Machines that `Setup` makes: bad descriptions are refused before any write, and a machine serves
//! spaces and gives every frame back.
use ptarmigan::addr::{FRAME_SIZE, Pfn, VirtAddr, VirtRange};
use ptarmigan::cpu::{CpuId, CpuSet, NodeId, Pinned};
use ptarmigan::format::{Aarch64, Aarch64K16, Aarch64K64, Attr, Format, Formats, I386, Slot, X86_64, X86Pae};
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::{AutoCosts, Placement, Policy};
use ptarmigan::setup::{Kernel, KernelError, MachineParts, Objects, Place, Setup, SetupError};
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::tlb::{Invalidation, Ipi, KernelRoot, Mmu, Root, Scope, SpaceId, Structures};
use ptarmigan::window::DirectMap;
use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// A CPU that does not translate, and keeps the root that it was told of.
#[derive(Default)]
pub struct Cpu<F> {
    root: AtomicU64,
    tables: PhantomData<fn() -> F>,
}

// SAFETY: there is no TLB. A kernel root is kept as a number.
unsafe impl<F: Format> Mmu for Cpu<F> {
    const FORMATS: Formats = Formats::of::<F>();
    const WALKS_TABLES: bool = false;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
    fn set_kernel_root(&self, root: KernelRoot) {
        self.root.store(root.at.0, Ordering::Relaxed);
    }
}

impl<F: Format> Ipi for Cpu<F> {
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
}

const FIRST: u32 = 256;
/// The window reaches physical addresses below this: more than any test's memory, and no more than
/// a pointer of 32 bits can hold beside it.
const LIMIT: u64 = 1 << 26;

/// Memory from frame `FIRST` on. The last `KEPT` frames are the kernel's: its root is there.
pub struct Memory {
    base: *mut u8,
    frames: u32,
}

const KEPT: u32 = 8;

impl Memory {
    fn layout(frames: u32) -> Layout {
        Layout::from_size_align((frames + KEPT) as usize * FRAME_SIZE, 1 << 16).expect("a layout")
    }

    pub fn new(frames: u32) -> Self {
        // SAFETY: the size is not 0.
        let base = unsafe { alloc(Self::layout(frames)) };
        assert!(!base.is_null());
        // SAFETY: all of it was allocated. Memory that set-up takes is of unknown content.
        unsafe { base.write_bytes(0xa5, Self::layout(frames).size()) };
        // SAFETY: the kernel's part, which is behind the frames.
        unsafe { base.add(frames as usize * FRAME_SIZE).write_bytes(0, KEPT as usize * FRAME_SIZE) };
        Memory { base, frames }
    }

    fn zero(&self) -> *mut u8 {
        self.base.wrapping_sub(FIRST as usize * FRAME_SIZE)
    }

    pub fn run(&self) -> MemoryRun {
        MemoryRun { start: Pfn(FIRST), frames: self.frames, node: NodeId(0), class: ZoneClass::Low }
    }

    fn root(&self) -> u64 {
        u64::from((FIRST + self.frames).next_multiple_of(4)) * FRAME_SIZE as u64
    }

    fn set_entry<F: Format>(&self, index: usize, raw: u64) {
        let slot = self.zero().wrapping_add(self.root() as usize).cast::<F::Slot>().wrapping_add(index);
        // SAFETY: the root is in the kernel's part of the memory.
        unsafe { &*slot }.store(raw);
    }

    /// The machine on one run.
    pub fn setup<'a, F: Format>(&self, runs: &'a [MemoryRun]) -> Setup<'a, DirectMap, Cpu<F>> {
        let setup = Setup::direct_map(runs, self.zero(), LIMIT, Cpu::default()).expect("it fits");
        setup.kernel_root(self.root())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with that layout.
        unsafe { dealloc(self.base, Self::layout(self.frames)) };
    }
}

pub type Parts<'m, F, O = ptarmigan::setup::NoObjects> = MachineParts<'m, F, DirectMap, Cpu<F>, O>;

/// Makes a machine of `setup` in `place`.
pub fn build<'m, F: Format, O: Objects>(
    setup: Setup<'_, DirectMap, Cpu<F>, O>,
    place: &'m Place<F, DirectMap>,
) -> Result<Parts<'m, F, O>, SetupError> {
    // SAFETY: 1. and 2. each test has a memory of its own, which outlives the place. 3. No MMU
    // translates.
    unsafe { setup.build_in(place) }.map(|(parts, _)| parts)
}

pub fn pin<M: Machine>(m: &M) -> Pinned<'static> {
    // SAFETY: 1. the test is the only thread of the machine's. 2. each has CPU 0 and node 0.
    unsafe { Pinned::assume(m.id(), CpuId(0), NodeId(0)) }
}

/// Maps, faults, forks, copies, unmaps and ends; every frame is back.
fn serves<F: Format, O: Objects>(m: &Parts<'_, F, O>) {
    let pin = pin(m);
    let on = m.on(&pin).expect("its own pin");
    let before = m.frames().counts().free;
    let mut space = Space::<F>::new(on).expect("memory for a root");
    let heap = VirtRange::fixed::<0x40_0000, 0x48_0000>();
    let flags = AreaFlags::READ.with(AreaFlags::WRITE);
    space.edit(on).expect("its machine").mmap(heap, flags, 0).expect("free");
    let page = 1usize << F::PAGE_SHIFT;
    for at in (heap.start..heap.end).step_by(page) {
        space.fault(on, VirtAddr(at), Access::Write).expect("memory");
    }
    let bytes = |space: &Space<F>, at| {
        let (pfn, _) = space.tree().query(on, VirtAddr(at)).expect("a page");
        use ptarmigan::window::{OpenWindow, WindowGuard};
        m.window().open(pfn.addr()).base()
    };
    // A byte of each frame.
    let marks = (0..page).step_by(FRAME_SIZE).map(|at| at + at / FRAME_SIZE);
    // SAFETY: a page of the space's, which no other code uses.
    unsafe {
        assert!((0..page).all(|at| *bytes(&space, heap.start).add(at) == 0), "a page is not cleared");
        marks.clone().for_each(|at| *bytes(&space, heap.start).add(at) = 7 + (at / FRAME_SIZE) as u8);
    }
    let mut child = space.edit(on).expect("its machine").fork().expect("memory");
    child.fault(on, VirtAddr(heap.start), Access::Write).expect("memory");
    assert_ne!(bytes(&space, heap.start), bytes(&child, heap.start));
    for at in marks {
        // SAFETY: as above.
        let copied = unsafe { *bytes(&child, heap.start).add(at) };
        assert_eq!(copied, 7 + (at / FRAME_SIZE) as u8, "a page is not copied");
    }
    space.edit(on).expect("its machine").munmap(heap).expect("memory");
    child.end(on).expect("its machine");
    space.end(on).expect("its machine");
    on.drain();
    on.policy().reclaim(NodeId(0), u32::MAX);
    assert_eq!((m.frames().counts().free, m.policy().counts().cached()), (before, 0));
}

#[test]
fn a_machine_of_any_format_serves_spaces_and_frees_all_frames() {
    fn of<F: Format>() {
        let memory = Memory::new(2048);
        let place = Place::<F, DirectMap>::new();
        let m = build(memory.setup(&[memory.run()]), &place).expect("a machine");
        serves(&m);
        serves(&m);
    }
    of::<X86_64>();
    of::<X86Pae>();
    of::<I386>();
}

#[test]
fn pages_of_several_frames_are_cleared_copied_and_freed_whole() {
    fn of<F: Format>() {
        let memory = Memory::new(4096);
        let place = Place::<F, DirectMap>::new();
        let m = build(memory.setup(&[memory.run()]).without_kernel_half(), &place).expect("a machine");
        assert_eq!(m.data().order(), F::PAGE_ORDER);
        serves(&m);
        serves(&m);
    }
    of::<Aarch64>();
    of::<Aarch64K16>();
    of::<Aarch64K64>();
}

#[test]
fn each_root_has_the_entries_of_the_boot_root() {
    let memory = Memory::new(2048);
    let link = X86_64::link(Level(3), Pfn(0xf_0000).addr());
    memory.set_entry::<X86_64>(3, link);
    memory.set_entry::<X86_64>(300, link);
    let place = Place::<X86_64, DirectMap>::new();
    let m = build(memory.setup(&[memory.run()]), &place).expect("a machine");
    let map = m.kernel_map().expect("spaces have a kernel's half");
    assert_eq!((map.get(300), map.get(301)), (Some(link), Some(0)));
    assert_eq!(m.tlb().hardware().root.load(Ordering::Relaxed), map.root().0);
    let on_pin = pin(&m);
    let on = m.on(&on_pin).expect("its own pin");
    let space = Space::<X86_64>::new(on).expect("memory");
    let at = memory.zero().wrapping_add(space.tree().root().0 as usize).cast::<u64>();
    // SAFETY: the root of the space, which no code writes to.
    let entry = |index: usize| unsafe { at.add(index).read() };
    assert_eq!((entry(3), entry(300)), (0, link), "the lower half is the user's");
    space.end(on).expect("its machine");
}

#[test]
fn a_machine_with_two_roots_has_no_kernel_half_in_its_root() {
    let memory = Memory::new(2048);
    let place = Place::<X86_64, DirectMap>::new();
    let m = build(memory.setup(&[memory.run()]).without_kernel_half(), &place).expect("a machine");
    assert!(m.kernel_map().is_none());
    let root = m.tlb().hardware().root.load(Ordering::Relaxed);
    let table = memory.zero().wrapping_add(root as usize);
    // SAFETY: a frame of the machine's, which no code writes to.
    assert!((0..FRAME_SIZE).all(|at| unsafe { *table.add(at) } == 0));
    serves(&m);
}

/// Refuses a description, as `expected` says; the same place takes a good one then.
fn refuses<'a>(
    memory: &Memory,
    describe: impl Fn(Setup<'a, DirectMap, Cpu<X86_64>>) -> Setup<'a, DirectMap, Cpu<X86_64>>,
    runs: &'a [MemoryRun],
    expected: &str,
) {
    let place = Place::<X86_64, DirectMap>::new();
    let refused = build(describe(memory.setup(runs)), &place).err().expect("it is refused");
    let said = refused.to_string();
    assert!(said.contains(expected), "{said}");
    assert!(said.starts_with("set-up: "), "{said}");
    let m = build(memory.setup(&[memory.run()]), &place).expect("nothing was kept");
    serves(&m);
}

#[test]
fn a_bad_description_is_refused_by_part_and_nothing_is_kept() {
    let memory = Memory::new(2048);
    let run = memory.run();
    let (half, other) = (MemoryRun { frames: 1024, ..run }, MemoryRun { start: Pfn(FIRST + 1000), ..run });
    let good = [run];
    refuses(&memory, |s| s, &[], "no run was named");
    refuses(&memory, |s| s, &[MemoryRun { frames: 0, ..run }], "has no frames");
    refuses(&memory, |s| s, &[half, other], "overlaps");
    refuses(&memory, |s| s, &[other, half], "run 1 of memory");
    refuses(&memory, |s| s, &[MemoryRun { node: NodeId(3), ..run }], "node");
    let beyond = [run, MemoryRun { start: Pfn((LIMIT >> 12) as u32 - 1), frames: 2, ..run }];
    refuses(&memory, |s| s, &beyond, "window: frames 0x3fff..0x4001");
    refuses(&memory, |s| s, &[MemoryRun { frames: 20, ..run }], "the largest run of low memory has 80 KiB");
    refuses(&memory, |s| s, &[MemoryRun { class: ZoneClass::High, ..run }], "has 0 KiB");
    refuses(&memory, |s| s.cpus(0), &good, "CPUs must be 1 to 65535, not 0");
    refuses(&memory, |s| s.cpus(70_000), &good, "CPUs must be 1 to 65535, not 70000");
    refuses(&memory, |s| s.cpus(257), &good, "257 CPUs");
    refuses(&memory, |s| s.magazine(65), &good, "pages per magazine must be 0 to 64, not 65");
    refuses(&memory, |s| s.extra(usize::MAX), &good, "give more memory");
    refuses(&memory, |s| s.params("userpte=high").expect("it parses"), &good, "`userpte`");
    let error = memory.setup::<X86_64>(&good).params("quicklist=maybe").err().expect("it is refused");
    assert!(error.to_string().contains("value `maybe` at byte 10"), "{error}");
    let place = Place::<X86_64, DirectMap>::new();
    let taken = memory.setup(&good).params("quicklist=off tlb.model=always-full").expect("it parses");
    let m = build(taken, &place).expect("a machine");
    assert_eq!(
        m.tlb().config().costs,
        ptarmigan::tlb::CostModel::from(ptarmigan::params::FlushModel::AlwaysFull)
    );
    serves(&m);
    refuses(&memory, |s| s.kernel_root(0x1234_5678), &good, "no root: it has to be a multiple of 4096");
    refuses(&memory, |s| s.kernel_root(LIMIT), &good, "in the window");
    refuses(&memory, |s| s.kernel_root(!0xfff), &good, "in the window");
    refuses(
        &memory,
        |s| s.kernel_root(u64::from(FIRST) << 12),
        &good,
        "lies in frames 0x100..0x900 of node 0",
    );
}

#[test]
fn entries_of_the_kernel_are_looked_at() {
    let memory = Memory::new(2048);
    let user = X86_64::leaf(Level(0), Pfn(0), Attr::READ | Attr::USER);
    let runs = [memory.run()];
    let bad = [
        (user | 1 << 7, "entry 256 of the root"),
        (X86_64::link(Level(3), Pfn(FIRST + 5).addr()), "the table at 0x105000 lies in frames"),
        (1 << 40, "entry 256 of the root"),
    ];
    for (raw, expected) in bad {
        memory.set_entry::<X86_64>(256, raw);
        let place = Place::<X86_64, DirectMap>::new();
        let refused = build(memory.setup(&runs), &place).err().expect("it is refused");
        assert!(refused.to_string().contains(expected), "{raw:#x}: {refused}");
        memory.set_entry::<X86_64>(256, 0);
        assert!(build(memory.setup(&runs), &place).is_ok());
    }
}

#[test]
fn tables_are_placed_high_if_allowed_and_there_is_high_memory() {
    let memory = Memory::new(2048);
    let low = MemoryRun { frames: 1024, ..memory.run() };
    let high = MemoryRun { start: Pfn(FIRST + 1024), class: ZoneClass::High, ..low };
    let placed = |runs: &[MemoryRun], text: &str| {
        let place = Place::<X86Pae, DirectMap>::new();
        let setup = memory.setup(runs).params(text).expect("it parses");
        // SAFETY: 1. the window reaches all of the memory.
        let m = build(unsafe { setup.high_tables(AutoCosts::default()) }, &place).expect("a machine");
        serves(&m);
        let name = match m.policy().source().placement() {
            Placement::Low => "low",
            Placement::High => "high",
            Placement::Auto(_) => "auto",
        };
        (name, m.table_share() < u32::MAX)
    };
    assert_eq!(placed(&[low, high], ""), ("high", false));
    assert_eq!(placed(&[low, high], "userpte=high"), ("high", false));
    assert_eq!(placed(&[low, high], "userpte=nohigh"), ("low", false));
    assert_eq!(placed(&[low, high], "userpte=auto"), ("auto", true));
    assert_eq!(placed(&[low], "userpte=high"), ("low", false));
    assert_eq!(placed(&[low], "userpte=auto"), ("low", false));
}

#[test]
fn without_a_root_it_says_what_to_call() {
    let memory = Memory::new(2048);
    let runs = [memory.run()];
    let place = Place::<X86_64, DirectMap>::new();
    let setup = Setup::direct_map(&runs, memory.zero(), LIMIT, Cpu::default()).expect("it fits");
    let refused = build(setup, &place).err();
    assert_eq!(refused, Some(SetupError::NoKernelRoot));
}

/// As small as it may be: either the memory is refused, or all parts are made and a space lives.
#[test]
fn nothing_fails_after_the_first_part_at_any_size() {
    fn of<F: Format>(cpus: usize) -> u32 {
        let memory = Memory::new(4096);
        let (mut smallest, mut step) = (0, 1);
        let mut frames = 1;
        while frames <= 4096 {
            let run = MemoryRun { frames, ..memory.run() };
            // The root is behind all of it.
            let place = Place::<F, DirectMap>::new();
            match build(memory.setup(&[run]).cpus(cpus), &place) {
                Ok(m) => {
                    smallest = if smallest == 0 { frames } else { smallest };
                    // Above the smallest a few sizes will do.
                    step = 97;
                    let pin = pin(&m);
                    let on = m.on(&pin).expect("its own pin");
                    if let Ok(space) = Space::<F>::new(on) {
                        space.end(on).expect("its machine");
                    }
                }
                Err(SetupError::TooSmall { .. }) => assert_eq!(smallest, 0, "{frames} frames are refused"),
                Err(e) => panic!("{frames} frames, {cpus} CPUs: {e}"),
            }
            frames += step;
        }
        smallest
    }
    for cpus in [1, 2, 7, 64] {
        let smallest = of::<X86_64>(cpus);
        assert!(smallest > 0 && smallest < 4096, "{cpus} CPUs take {smallest} frames");
    }
    for smallest in [of::<X86Pae>(2), of::<I386>(2)] {
        assert!(smallest > 0);
    }
}

#[test]
fn boot_memory_that_was_reserved_is_left() {
    let memory = Memory::new(2048);
    let (place, runs) = (Place::<X86_64, DirectMap>::new(), [memory.run()]);
    // SAFETY: as in `build`.
    let made = unsafe { memory.setup(&runs).extra(10_000).build_in(&place) };
    let (m, boot) = made.expect("a machine");
    assert!(boot.left() >= 10_000 && boot.left() < 10_000 + 2 * FRAME_SIZE, "{}", boot.left());
    serves(&m);
}

#[test]
fn a_place_holds_one_machine() {
    let memory = Memory::new(2048);
    let (place, runs) = (Place::<X86_64, DirectMap>::new(), [memory.run()]);
    let m = build(memory.setup(&runs), &place).expect("a machine");
    assert_eq!(build(memory.setup(&runs), &place).err(), Some(SetupError::Twice));
    serves(&m);
}

/// An object of two pages.
struct File<'a> {
    first: Pfn,
    asked: &'a Cell<u64>,
}

// SAFETY: the tests have one thread.
unsafe impl Sync for File<'_> {}
// SAFETY: 1. the frames are the kernel's part of the memory.
unsafe impl Objects for File<'_> {
    fn frame(&self, object: u32, page: u64) -> Option<Pfn> {
        self.asked.set(self.asked.get() + 1);
        (object == 3 && page < 2).then_some(Pfn(self.first.0 + page as u32))
    }
}

#[test]
fn areas_show_the_kernels_objects() {
    let memory = Memory::new(2048);
    let (asked, runs) = (Cell::new(0), [memory.run()]);
    let place = Place::<X86_64, DirectMap>::new();
    let file = File { first: Pfn(FIRST + 2048 + 4), asked: &asked };
    let m = build(memory.setup(&runs).objects(file), &place).expect("a machine");
    let pin = pin(&m);
    let on = m.on(&pin).expect("its own pin");
    let mut space = Space::<X86_64>::new(on).expect("memory");
    let at = VirtRange::fixed::<0x10_0000, 0x10_3000>();
    let object = ptarmigan::space::Object { id: 3, offset: 0 };
    space
        .edit(on)
        .expect("its machine")
        .mmap(at, AreaFlags::READ.with(AreaFlags::BACKED), object)
        .expect("free");
    assert!(space.fault(on, VirtAddr(0x10_1000), Access::Read).is_ok());
    let (pfn, _) = space.tree().query(on, VirtAddr(0x10_1000)).expect("a page");
    assert_eq!(pfn, Pfn(FIRST + 2048 + 5));
    assert!(space.fault(on, VirtAddr(0x10_2000), Access::Read).is_err(), "beyond the end");
    assert!(asked.get() >= 2);
    space.end(on).expect("its machine");
}

/// An object of 40 pages, which has its frames several times over; every third page is not at hand.
struct Cached(Pfn);

// SAFETY: 1. the frames are the kernel's part of the memory.
unsafe impl Objects for Cached {
    fn frame(&self, _: u32, page: u64) -> Option<Pfn> {
        (page < 40).then_some(Pfn(self.0.0 + page as u32 % KEPT))
    }
    fn fault_around(&self) -> u32 {
        16
    }
    fn frames_at_hand(&self, object: u32, first: u64, frames: &mut [Pfn]) {
        for (page, frame) in (first..).zip(frames).filter(|(page, _)| !page.is_multiple_of(3)) {
            *frame = self.frame(object, page).unwrap_or(Pfn::NONE);
        }
    }
}

#[test]
fn a_fault_that_reads_maps_the_pages_around_that_are_at_hand() {
    let memory = Memory::new(2048);
    let (place, runs) = (Place::<X86_64, DirectMap>::new(), [memory.run()]);
    let first = Pfn(FIRST + 2048);
    let m = build(memory.setup(&runs).objects(Cached(first)), &place).expect("a machine");
    let pin = pin(&m);
    let on = m.on(&pin).expect("its own pin");
    for shared in [false, true] {
        let mut space = Space::<X86_64>::new(on).expect("memory");
        // Page 5 of the object lies at page 7 of a block of 16 pages.
        let all = VirtRange::new(0x10_2000, 0x10_2000 + (60 << 12)).unwrap();
        let kind = if shared { AreaFlags::SHARED } else { AreaFlags::BACKED };
        let flags = AreaFlags::READ.with(AreaFlags::WRITE).with(kind);
        space.edit(on).expect("its machine").mmap(all, flags, 1).expect("free");
        let mapped = |space: &Space<X86_64>| {
            let there = |page: u64| space.tree().query(on, VirtAddr(0x10_2000u64 + (page << 12)));
            (0..60).filter(|page| there(*page).is_some()).collect::<Vec<u64>>()
        };
        space.fault(on, VirtAddr(0x10_2000 + (20 << 12)), Access::Write).expect("memory");
        assert_eq!(mapped(&space), [20], "a write is of one page");
        space.fault(on, VirtAddr(0x10_2000 + (6 << 12)), Access::Read).expect("memory");
        let around = [1, 2, 4, 5, 6, 7, 8, 10, 11, 13, 20];
        assert_eq!(mapped(&space), around, "not before the area, not what has to be fetched");
        let (pfn, attr) = space.tree().query(on, VirtAddr(0x10_2000 + (7 << 12))).expect("around");
        assert_eq!(pfn, Pfn(first.0 + 7));
        assert!(!attr.has(ptarmigan::format::Attr::WRITE), "a write has to fault");
        space.fault(on, VirtAddr(0x10_2000 + (35 << 12)), Access::Read).expect("memory");
        assert_eq!(mapped(&space).last(), Some(&38), "not beyond the end of the object");
        space.end(on).expect("its machine");
    }
}

static FIRST_KERNEL: Kernel<X86_64, DirectMap, Cpu<X86_64>> = Kernel::new();
static SECOND_KERNEL: Kernel<X86_64, DirectMap, Cpu<X86_64>> = Kernel::new();

#[test]
fn a_kernel_in_a_static_is_set_up_once_and_refuses_foreign_pins() {
    // Statics stay, so their memory does.
    let (first, second) = (Box::leak(Box::new(Memory::new(2048))), Box::leak(Box::new(Memory::new(2048))));
    // SAFETY: 1. this thread is the CPU's only one. 2. there is a CPU 0.
    let early = unsafe { FIRST_KERNEL.assume(CpuId(0)) };
    assert_eq!(FIRST_KERNEL.on(&early).err(), Some(KernelError::NotSetUp));

    // SAFETY: 1. and 2. the memory is leaked for this. 3. No MMU translates.
    let refused = unsafe { FIRST_KERNEL.set_up(first.setup(&[])) };
    assert_eq!(refused.err(), Some(SetupError::NoMemory));
    for (kernel, memory) in [(&FIRST_KERNEL, &first), (&SECOND_KERNEL, &second)] {
        let runs = [memory.run()];
        // SAFETY: as above.
        assert!(unsafe { kernel.set_up(memory.setup(&runs).cpus(2)) }.is_ok());
    }
    let runs = [first.run()];
    // SAFETY: as above.
    let twice = unsafe { FIRST_KERNEL.set_up(first.setup(&runs)) };
    assert_eq!(twice.err(), Some(SetupError::Twice));

    assert!(matches!(FIRST_KERNEL.on(&early), Err(KernelError::WrongMachine(_))), "a pin from before");
    // SAFETY: as above.
    let (one, two) = unsafe { (FIRST_KERNEL.assume(CpuId(0)), SECOND_KERNEL.assume(CpuId(0))) };
    assert!(matches!(FIRST_KERNEL.on(&two), Err(KernelError::WrongMachine(_))));
    assert!(FIRST_KERNEL.on(&one).is_ok() && SECOND_KERNEL.on(&two).is_ok());
    serves(FIRST_KERNEL.parts().expect("set up"));
}
