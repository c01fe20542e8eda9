//! The adapters raise no false alarm: ordinary correct workloads of other crates are silent.
//!
//! Two CPUs access memory all the time, and their walkers walk by themselves. What is known to be wrong in a crate
//! (`docs/defects.md`) is gone around as its user would have to, and each way around is said.
use ptsan::adapters::{FRAME, Machine};
use ptsan::{Access, Arch, Config, Expected, Kind, Perms};
use std::collections::BTreeMap;
use std::ops::Range;

const SEEDS: Range<u64> = 1..7;
const STEPS: usize = 1500;
const LARGE: u64 = 0x20_0000;
/// The addresses in use: 8 large pages in each of 3 places, with 16 small pages at the start of each.
const PLACES: [u64; 3] = [0, 0x3f_c000_0000, 0x7f00_0000_0000];

/// Hardly more than the tables that all this takes at once: frames are used again and again.
const FRAMES: usize = 40;

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// Numbers of a place and of a large page in it, and of a small page in that.
    fn page(&mut self) -> u64 {
        PLACES[self.below(3) as usize] + self.below(8) * LARGE + self.below(16) * FRAME
    }

    fn frame(&mut self, size: u64) -> u64 {
        0x1_0000_0000 + self.below(1 << 10) * size
    }
}

/// What is mapped: address to frame, size and whether it may be written.
#[derive(Default)]
struct Model(BTreeMap<u64, (u64, u64, bool)>);

impl Model {
    fn find(&self, va: u64) -> Option<(u64, (u64, u64, bool))> {
        let (&at, &page) = self.0.range(..=va).next_back()?;
        (va < at + page.1).then_some((at, page))
    }

    fn is_free(&self, va: u64, size: u64) -> bool {
        self.find(va).is_none() && self.0.range(va..va + size).next().is_none()
    }

    /// A random CPU accesses a random address, and gets what the model says.
    fn access(&self, machine: &Machine, random: &mut Random) {
        let (cpu, va) = (random.below(2) as usize, random.page() + random.below(FRAME));
        let access = if random.below(2) == 0 { Access::READ } else { Access::WRITE };
        let says = self.find(va);
        let allowed = says.is_some_and(|(_, (.., write))| write || access == Access::READ);
        let got = machine.access(cpu, va, access);
        assert_eq!(got.is_ok(), allowed, "{va:#x}: {machine}");
        let expected = says.map(|(at, (frame, size, _))| Expected::at(frame + va - at).in_page_of(size));
        machine.expect(cpu, va, expected);
        if let (Ok(t), Some((_, (.., write)))) = (got, says) {
            assert_eq!(t.perms.contains(Perms::WRITE), write, "{va:#x}");
        }
    }
}

fn machine(arch: Arch) -> Machine {
    Machine::with_frames(Config { cpus: 2, eager_walkers: true, ..Config::new(arch) }, FRAMES)
}

/// Both CPUs load the root, and their walkers look ahead.
fn load(machine: &Machine, root: u64, random: &mut Random) {
    for cpu in 0..2 {
        machine.load(cpu, root, 1);
        machine.walk_ahead(cpu, random.page());
    }
}

fn silent(machine: &Machine) {
    machine.finish();
    machine.sanitizer(|san, _| san.assert_clean());
}

mod base {
    use super::*;
    use ptsan::Content;
    use ptsan::adapters::{BASE, OLD_ENTRY};

    #[test]
    fn a_frame_is_full_of_old_entries_unless_zeroes_were_asked_for() {
        let machine = machine(Arch::x86_64());
        let word = |frame: u64| machine.sanitizer(|_, memory| memory.read(frame + 8, 8));
        let frame = machine.allocate(Content::Unknown).expect("frames");
        assert_eq!(word(frame), Some(OLD_ENTRY));
        machine.free(frame, FRAME);
        let same = machine.allocate(Content::Zero).expect("frames");
        assert_eq!((same, word(same)), (frame, Some(0)), "what was given back last comes first");
    }

    #[test]
    fn a_run_of_frames_is_aligned_and_handed_out_once() {
        let machine = machine(Arch::x86_64());
        let run = machine.allocate_run(4, 4 * FRAME).expect("frames");
        assert!(run.is_multiple_of(4 * FRAME));
        let rest: Vec<u64> = std::iter::from_fn(|| machine.allocate(Content::Zero)).collect();
        assert_eq!(rest.len(), FRAMES - 4);
        assert!(rest.iter().all(|f| !(run..run + 4 * FRAME).contains(f)));
        machine.free(run, 4 * FRAME);
        assert_eq!(machine.allocate_run(4, 4 * FRAME), Some(run));
        machine.sanitizer(|san, _| san.assert_clean());
    }

    #[test]
    fn a_frame_given_back_twice_is_reported_and_handed_out_once() {
        let machine = machine(Arch::x86_64());
        let frame = machine.allocate(Content::Zero).expect("frames");
        machine.free(frame, FRAME);
        machine.free(frame, FRAME);
        assert_eq!(machine.sanitizer(|san, _| san.count(Kind::DoubleFree)), 1);
        let all: Vec<u64> = std::iter::from_fn(|| machine.allocate(Content::Zero)).collect();
        assert_eq!(all.len(), FRAMES);
    }

    #[test]
    fn a_frame_can_be_asked_for() {
        let machine = machine(Arch::x86_64());
        machine.hand_out_next(BASE + 7 * FRAME);
        assert_eq!(machine.allocate(Content::Zero), Some(BASE + 7 * FRAME));
    }
}

mod x86_64_crate {
    use super::*;
    use ptsan::Flush;
    use ptsan::adapters::x86_64::{Forward, Space};
    use x86_64::structures::paging::mapper::CleanUp;
    use x86_64::structures::paging::{
        FrameDeallocator, Mapper, Page, PageTableFlags as Flags, PhysFrame, Size2MiB, Size4KiB,
    };
    use x86_64::{PhysAddr, VirtAddr};

    /// Way around: `clean_up` hands tables out before a flush is possible.
    #[derive(Default)]
    struct Parked(Vec<PhysFrame>);

    impl FrameDeallocator<Size4KiB> for Parked {
        unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
            self.0.push(frame);
        }
    }

    fn flags(write: bool) -> Flags {
        let always = Flags::PRESENT | Flags::USER_ACCESSIBLE;
        if write { always | Flags::WRITABLE } else { always }
    }

    fn page<S: x86_64::structures::paging::PageSize>(va: u64) -> Page<S> {
        Page::containing_address(VirtAddr::new(va))
    }

    fn step(machine: &Machine, space: &mut Space, model: &mut Model, random: &mut Random) {
        // Way around: tables are linked before they are cleared, so the allocator clears them.
        let mut frames = space.frames().zeroed();
        let at = random.page();
        match random.below(10) {
            0..4 => {
                let large = random.below(4) == 0;
                let size = if large { LARGE } else { FRAME };
                let at = at & !(size - 1);
                let (frame, write) = (random.frame(size), random.below(2) == 0);
                if !model.is_free(at, size) {
                    return;
                }
                let (to, flags) = (PhysAddr::new(frame), flags(write));
                let parents = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE;
                let mut mapper = space.mapper();
                // Way around: a call that fails widens the entry in its way, so calls are tried where nothing is mapped.
                // SAFETY: the frames are simulated.
                let done = unsafe {
                    if large {
                        let (page, frame) = (page::<Size2MiB>(at), PhysFrame::containing_address(to));
                        let token = mapper.map_to_with_table_flags(page, frame, flags, parents, &mut frames);
                        token.map(|token| token.forward(machine, 1)).is_ok()
                    } else {
                        let (page, frame) = (page::<Size4KiB>(at), PhysFrame::containing_address(to));
                        let token = mapper.map_to_with_table_flags(page, frame, flags, parents, &mut frames);
                        token.map(|token| token.forward(machine, 1)).is_ok()
                    }
                };
                // The place of a large page may be taken by an empty table, until the next clean-up.
                assert!(done || large, "free, and enough frames");
                if done {
                    model.0.insert(at, (frame, size, write));
                }
            }
            4..7 => {
                let Some((at, (_, size, _))) = model.find(at) else { return };
                model.0.remove(&at);
                if size == LARGE {
                    space.mapper().unmap(page::<Size2MiB>(at)).expect("mapped").1.forward(machine, 1);
                } else {
                    space.mapper().unmap(page::<Size4KiB>(at)).expect("mapped").1.forward(machine, 1);
                }
            }
            7..9 => {
                let Some((at, (frame, size, write))) = model.find(at) else { return };
                model.0.insert(at, (frame, size, !write));
                // SAFETY: the frames are simulated.
                unsafe {
                    if size == LARGE {
                        let token = space.mapper().update_flags(page::<Size2MiB>(at), flags(!write));
                        token.expect("mapped").forward(machine, 1);
                    } else {
                        let token = space.mapper().update_flags(page::<Size4KiB>(at), flags(!write));
                        token.expect("mapped").forward(machine, 1);
                    }
                }
            }
            _ => clean_up(machine, space),
        }
    }

    fn clean_up(machine: &Machine, space: &mut Space) {
        let mut parked = Parked::default();
        // SAFETY: the tables are this space's alone.
        unsafe { space.mapper().clean_up(&mut parked) };
        machine.flush_everywhere(Flush::space(1));
        let mut frames = space.frames();
        for frame in parked.0 {
            // SAFETY: unlinked and flushed.
            unsafe { frames.deallocate_frame(frame) };
        }
    }

    #[test]
    fn correct_use_of_x86_64_is_silent() {
        for seed in SEEDS {
            let (machine, mut random, mut model) = (machine(Arch::x86_64()), Random(seed), Model::default());
            let mut space = Space::new(&machine, 1).expect("frames");
            load(&machine, space.root(), &mut random);
            for _ in 0..STEPS {
                step(&machine, &mut space, &mut model, &mut random);
                model.access(&machine, &mut random);
            }
            for (&at, &(_, size, _)) in &model.0 {
                if size == LARGE {
                    space.mapper().unmap(page::<Size2MiB>(at)).expect("mapped").1.forward(&machine, 1);
                } else {
                    space.mapper().unmap(page::<Size4KiB>(at)).expect("mapped").1.forward(&machine, 1);
                }
            }
            clean_up(&machine, &mut space);
            (0..2).for_each(|cpu| machine.leave(cpu));
            space.destroy();
            silent(&machine);
        }
    }

    #[test]
    fn the_offset_mapper_reaches_the_same_tables() {
        let machine = machine(Arch::x86_64());
        let mut space = Space::new(&machine, 1).expect("frames");
        machine.load(0, space.root(), 1);
        let frame = PhysFrame::<Size4KiB>::containing_address(PhysAddr::new(0x123_4000));
        let mut frames = space.frames();
        // SAFETY: the frame is simulated.
        unsafe { space.offset_mapper().map_to(page(0x7000), frame, flags(true), &mut frames) }
            .expect("free")
            .forward(&machine, 1);
        machine.expect(0, 0x7008, Some(Expected::at(0x123_4008)));
        machine.sanitizer(|san, _| san.assert_clean());
    }

    #[test]
    fn a_forgotten_flush_is_found() {
        let machine = machine(Arch::x86_64());
        let mut space = Space::new(&machine, 1).expect("frames");
        machine.load(0, space.root(), 1);
        let frame = PhysFrame::<Size4KiB>::containing_address(PhysAddr::new(0x123_4000));
        let mut frames = space.frames();
        // SAFETY: the frame is simulated.
        let token = unsafe { space.mapper().map_to(page(0x7000), frame, flags(true), &mut frames) };
        token.expect("free").ignore();
        machine.access(0, 0x7000, Access::READ).expect("mapped");
        space.mapper().unmap(page::<Size4KiB>(0x7000)).expect("mapped").1.ignore();
        let _ = machine.access(0, 0x7000, Access::READ);
        assert_eq!(machine.sanitizer(|san, _| san.count(Kind::StaleUse)), 1, "{machine}");
    }
}

mod multiarch {
    use super::*;
    use memory_addr::{PhysAddr, VirtAddr};
    use page_table_multiarch::x86_64::X64PageTable;
    use page_table_multiarch::{
        GenericPTE, MappingFlags, PageSize, PageTable64, PagingMetaData, PagingResult,
    };
    use ptsan::adapters::page_table_multiarch::{A64, A64Entry, Handler, edit};

    fn flags(write: bool) -> MappingFlags {
        let always = MappingFlags::READ | MappingFlags::USER;
        if write { always | MappingFlags::WRITE } else { always }
    }

    fn step<M, PTE>(table: &mut PageTable64<M, PTE, Handler>, model: &mut Model, random: &mut Random)
    where
        M: PagingMetaData<VirtAddr = VirtAddr>,
        PTE: GenericPTE,
    {
        let at = random.page();
        match random.below(8) {
            0..4 => {
                let large = random.below(4) == 0;
                let size = if large { LARGE } else { FRAME };
                let at = at & !(size - 1);
                let (frame, write) = (random.frame(size), random.below(2) == 0);
                if !model.is_free(at, size) {
                    return;
                }
                let page_size = if large { PageSize::Size2M } else { PageSize::Size4K };
                let (va, pa) = (VirtAddr::from_usize(at as usize), PhysAddr::from_usize(frame as usize));
                // The place of a large page may be taken by an empty table, which the crate keeps.
                let done = edit(table, |cursor| cursor.map(va, pa, page_size, flags(write))).is_ok();
                assert!(done || large, "free, and enough frames");
                if done {
                    model.0.insert(at, (frame, size, write));
                }
            }
            4..6 => {
                let Some((at, _)) = model.find(at) else { return };
                model.0.remove(&at);
                edit(table, |cursor| cursor.unmap(VirtAddr::from_usize(at as usize))).expect("mapped");
            }
            _ => {
                let Some((at, (frame, size, write))) = model.find(at) else { return };
                model.0.insert(at, (frame, size, !write));
                let va = VirtAddr::from_usize(at as usize);
                edit(table, |cursor| cursor.protect(va, flags(!write))).expect("mapped");
            }
        }
    }

    fn run<M, PTE>(arch: &Arch, new: fn() -> PagingResult<PageTable64<M, PTE, Handler>>)
    where
        M: PagingMetaData<VirtAddr = VirtAddr>,
        PTE: GenericPTE,
    {
        for seed in SEEDS {
            let (machine, mut random, mut model) = (machine(arch.clone()), Random(seed), Model::default());
            let _current = machine.enter();
            let mut table = new().expect("frames");
            load(&machine, table.root_paddr().as_usize() as u64, &mut random);
            for _ in 0..STEPS {
                step(&mut table, &mut model, &mut random);
                model.access(&machine, &mut random);
            }
            (0..2).for_each(|cpu| machine.leave(cpu));
            drop(table);
            silent(&machine);
        }
    }

    #[test]
    fn correct_use_of_page_table_multiarch_is_silent() {
        run(&Arch::x86_64(), X64PageTable::try_new);
    }

    #[test]
    fn correct_use_of_page_table_multiarch_is_silent_on_aarch64() {
        run(&Arch::aarch64_4k(48), PageTable64::<A64, A64Entry, Handler>::try_new);
    }
}

mod generic {
    use super::*;
    use page_table_generic::{MapConfig, PageTable, PhysAddr, TableMeta, VirtAddr};
    use ptsan::adapters::page_table_generic::{A64, Allow, READ_ONLY, READ_WRITE, X64, flush};

    fn allow(write: bool) -> Allow {
        if write { READ_WRITE } else { READ_ONLY }
    }

    fn va(at: u64) -> VirtAddr {
        VirtAddr::from_usize(at as usize)
    }

    fn step<T>(table: &mut PageTable<T, Machine>, model: &mut Model, random: &mut Random)
    where
        T: TableMeta,
        T::P: page_table_generic::PageTableEntry<PteConfig = Allow>,
    {
        let at = random.page();
        match random.below(8) {
            0..4 => {
                let large = random.below(4) == 0;
                let size = if large { LARGE } else { FRAME };
                let at = at & !(size - 1);
                let (frame, write) = (random.frame(size), random.below(2) == 0);
                if !model.is_free(at, size) {
                    return;
                }
                let config = MapConfig {
                    vaddr: va(at),
                    paddr: PhysAddr::from_usize(frame as usize),
                    size: size as usize,
                    pte: allow(write),
                    allow_huge: large,
                    flush: true,
                };
                table.map(&config).expect("free: no empty table is left in the way");
                model.0.insert(at, (frame, size, write));
            }
            4..6 => {
                let Some((at, _)) = model.find(at) else { return };
                model.0.remove(&at);
                // Way around: the other calls that unmap give tables back too early.
                let (.., tables) = table.unmap_page_deferred(va(at)).expect("mapped");
                flush(None);
                // SAFETY: every CPU has flushed.
                unsafe { tables.reclaim() };
            }
            6 => {
                let Some((at, (frame, size, write))) = model.find(at) else { return };
                model.0.insert(at, (frame, size, !write));
                table.protect_page(va(at), allow(!write)).expect("mapped");
            }
            _ => {
                let Some((at, (frame, LARGE, write))) = model.find(at) else { return };
                table.split_huge_page(va(at)).expect("a large page");
                for page in (0..LARGE).step_by(FRAME as usize) {
                    model.0.insert(at + page, (frame + page, FRAME, write));
                }
            }
        }
    }

    fn run<T>(arch: &Arch)
    where
        T: TableMeta,
        T::P: page_table_generic::PageTableEntry<PteConfig = Allow>,
    {
        for seed in SEEDS {
            let (machine, mut random, mut model) = (machine(arch.clone()), Random(seed), Model::default());
            let _current = machine.enter();
            let mut table = PageTable::<T, _>::new(machine.clone()).expect("frames");
            load(&machine, table.root_paddr().as_usize() as u64, &mut random);
            for _ in 0..STEPS {
                step(&mut table, &mut model, &mut random);
                model.access(&machine, &mut random);
            }
            (0..2).for_each(|cpu| machine.leave(cpu));
            drop(table);
            silent(&machine);
        }
    }

    #[test]
    fn correct_use_of_page_table_generic_is_silent() {
        run::<X64>(&Arch::x86_64());
    }

    #[test]
    fn correct_use_of_page_table_generic_is_silent_on_aarch64() {
        run::<A64>(&Arch::aarch64_4k(48));
    }
}

mod a64 {
    use super::*;
    use aarch64_paging::Mapping;
    use aarch64_paging::descriptor::{El1Attributes as Attributes, PhysicalAddress};
    use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, RootTable, VaRange};
    use ptsan::adapters::aarch64_paging::{Frames, edit};

    fn flags(write: bool) -> Attributes {
        let always = Attributes::VALID
            | Attributes::ACCESSED
            | Attributes::NON_GLOBAL
            | Attributes::INNER_SHAREABLE
            | Attributes::USER;
        if write { always } else { always | Attributes::READ_ONLY }
    }

    type Live = Mapping<Frames, El1And0>;

    fn map(mapping: &mut Live, at: u64, size: u64, frame: u64, flags: Attributes) -> bool {
        let range = MemoryRegion::new(at as usize, (at + size) as usize);
        let frame = PhysicalAddress(frame as usize);
        mapping.map_range(&range, frame, flags, Constraints::empty()).is_ok()
    }

    fn step(machine: &Machine, mapping: &mut Live, model: &mut Model, random: &mut Random) {
        let at = random.page();
        match random.below(9) {
            0..4 => {
                let size = if random.below(4) == 0 { LARGE } else { FRAME };
                let at = at & !(size - 1);
                let (frame, write) = (random.frame(size), random.below(2) == 0);
                if model.is_free(at, size) {
                    let done = edit(machine, || map(mapping, at, size, frame, flags(write)));
                    assert!(done, "the range is free");
                    // A table that is there already gets small pages.
                    let level = machine
                        .sanitizer(|san, memory| {
                            san.expect(memory, ptsan::Tree::Cpu(0), at, Some(Expected::at(frame)))
                        })
                        .expect("mapped")
                        .level;
                    let unit = if level == 0 { FRAME } else { LARGE };
                    for page in (0..size).step_by(unit as usize) {
                        model.0.insert(at + page, (frame + page, unit, write));
                    }
                }
            }
            4..6 => {
                let Some((at, (frame, size, _))) = model.find(at) else { return };
                model.0.remove(&at);
                assert!(edit(machine, || map(mapping, at, size, frame, Attributes::empty())));
            }
            6..8 => {
                let Some((at, (frame, size, write))) = model.find(at) else { return };
                model.0.insert(at, (frame, size, !write));
                assert!(edit(machine, || map(mapping, at, size, frame, flags(!write))));
            }
            _ => edit(machine, || mapping.compact_subtables()),
        }
    }

    #[test]
    fn correct_use_of_aarch64_paging_is_silent() {
        for seed in SEEDS {
            let (machine, mut random, mut model) =
                (machine(Arch::aarch64_4k(48)), Random(seed), Model::default());
            let frames = Frames::flushing(&machine);
            let mut mapping = Mapping::with_asid_and_va_range(frames, 1, 0, El1And0, VaRange::Lower);
            load(&machine, mapping.root_address().0 as u64, &mut random);
            mapping.mark_active();
            for _ in 0..STEPS {
                step(&machine, &mut mapping, &mut model, &mut random);
                model.access(&machine, &mut random);
            }
            (0..2).for_each(|cpu| machine.leave(cpu));
            mapping.mark_inactive();
            drop(mapping);
            silent(&machine);
        }
    }

    #[test]
    fn a_root_table_that_is_not_loaded_needs_no_flush() {
        let machine = machine(Arch::aarch64_4k(48));
        let mut table = RootTable::with_va_range(Frames::new(&machine), 0, El1And0, VaRange::Lower);
        let range = MemoryRegion::new(0, 4 * LARGE as usize);
        table
            .map_range(&range, PhysicalAddress(0x4000_0000), flags(true), Constraints::NO_BLOCK_MAPPINGS)
            .expect("free");
        drop(table);
        silent(&machine);
    }
}
