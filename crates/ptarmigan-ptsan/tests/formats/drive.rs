//! Random operations, each made on a space and on its map.
use crate::map::{Map, Shown};
use crate::objects::{IN_BLOCKS, IN_PAGES, Store, WithObjects};
use crate::rng::Rng;
use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format, MemoryType};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{
    Access, Advice, AreaFlags, CollapseLimits, Done, EmptyTables, LargePages, Object, Space, SpaceMachine,
    Unmapping,
};
use ptarmigan::table::{Mapped as Leaf, Sizes};
use ptarmigan::tlb::{CostModel, Costs, SpaceId, TlbConfig};
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{MmuTraits, SoftMmu};
use ptsan::{Adversary, Arch, Config};
use std::ops::Range;

/// Spaces at once.
const SPACES: usize = 5;
/// Pages of an operation, at most.
const PAGES: u64 = 12;
/// The first byte of a device, beyond the memory of the host.
const DEVICE: u64 = 2 << 30;
/// Permissions that areas are given, as bits: one without any among them, and one of each alone.
const FLAGS: [u16; 8] = [3, 3, 1, 7, 5, 0, 4, 2];

/// Which operations to make.
pub struct Drive {
    pub seed: u64,
    pub steps: u32,
    /// Numbers of spaces in TLBs; 0 turns them off.
    pub asids: u16,
    pub cpus: usize,
    /// Whether areas may have large pages.
    pub large: bool,
}

/// Counts of a run.
pub struct Ran {
    /// Faults that were served.
    pub served: u64,
    /// Accesses that were let through at once.
    pub passed: u64,
    /// Accesses that an area forbids.
    pub denied: u64,
    /// Large pages that faults mapped, that were copied as a whole, and that were made of pages;
    /// then large pages of devices that faults mapped, and groups; and large pages of objects that
    /// faults mapped, that they gave the right to be written, and that they split; and blocks of
    /// zeroes that faults mapped, and that they changed for large pages.
    pub large: [u64; 10],
    /// Flushes that were left to other CPUs, and faults that these made up for them in.
    pub left: [u64; 2],
    pub findings: u64,
    /// The sanitizer's report of them.
    pub report: String,
}

/// A space and its map.
struct Mapped<F: Format> {
    space: Space<F>,
    map: Map,
}

/// Makes the operations on a machine of `F` whose MMUs are like `T`.
///
/// # Panics
///
/// If the space and its map differ, or a frame is lost.
pub fn drive<F: Format, T: MmuTraits>(arch: Arch, what: &Drive) -> Ran {
    let &Drive { seed, steps, asids, cpus, large } = what;
    let memory = HostConfig {
        cpus,
        bytes: 256 << 20,
        touch_data: true,
        prefault: 0,
        zero_block: large && seed % 2 == 0,
        ..HostConfig::default()
    };
    let host = Host::<F>::new(memory).unwrap();
    // Two blocks and a half.
    let store = Store::new(&host, if large { 3 } else { 0 });
    for page in 0..store.pages() {
        show(&host, store.page(page).unwrap().addr().0, 0);
    }
    let adversary = Some(Adversary::new(seed));
    let barriers = T::BROADCASTS;
    let config = Config {
        cpus,
        asids: asids != 0,
        adversary,
        barriers,
        keeps_invalid: false,
        walkers_set_bits: arch.used.is_some() && seed % 2 == 1,
        ..Config::new(arch)
    };
    let soft = SoftMmu::<_, T>::like(&host, config);
    let mut run = Run {
        host: &host,
        soft: &soft,
        contents: vec![0; store.pages() as usize],
        store: &store,
        rng: Rng::new(seed),
        spaces: Vec::new(),
        on_cpu: vec![None; cpus],
        ran: Ran {
            served: 0,
            passed: 0,
            denied: 0,
            large: [0; 10],
            left: [0; 2],
            findings: 0,
            report: String::new(),
        },
        next: 0,
        large,
    };
    soft.kernel_table_begins();
    soft.told(|| operations(&mut run, steps, asids, cpus));
    let Run { ran, .. } = run;
    store.end(&host);
    host.audit().unwrap();
    soft.kernel_table_ended();
    soft.with(|sanitizer, _| {
        sanitizer.finish();
        Ran { findings: sanitizer.total(), report: sanitizer.to_string(), ..ran }
    })
}

/// Makes the operations.
fn operations<F: Format, T: MmuTraits>(run: &mut Run<'_, '_, F, T>, steps: u32, asids: u16, cpus: usize) {
    let (host, soft) = (run.host, run.soft);
    let policy = Layered::new(soft, host.quicklists().unwrap()).unwrap();
    // Everything is cheaper than 64 pages, wherever these lie.
    let costs = CostModel::Costs(Costs::new(1, 64));
    let tlb = TlbConfig { asids, costs, park: 64, ..TlbConfig::new(cpus) };
    {
        let inner = HostMachine::with_tlb(host, policy, soft, tlb, Delivery::AtOnce).unwrap();
        let machine = WithObjects { inner, objects: run.store };
        let slots = host.slots();
        for step in 0..steps {
            let cpu = run.rng.below(cpus as u64) as usize;
            let pin = slots[cpu].pin();
            let on = machine.on(&pin).unwrap();
            run.step(on, cpu);
            if step % 64 == 0 {
                run.compare(on);
            }
        }
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        run.compare(on);
        run.ran.left[0] = on.tlb().counts().deferred as u64;
        run.spaces.drain(..).for_each(|mapped| mapped.space.end(on).unwrap());
        machine.inner.drain(&slots);
    }
}

struct Run<'a, 'h, F: Format, T> {
    host: &'a Host<F>,
    soft: &'a SoftMmu<'h, F, T>,
    store: &'a Store,
    /// What the pages of the objects show.
    contents: Vec<u64>,
    rng: Rng,
    spaces: Vec<Mapped<F>>,
    /// The space that each CPU has loaded.
    on_cpu: Vec<Option<SpaceId>>,
    ran: Ran,
    /// The value that is written next.
    next: u64,
    large: bool,
}

/// Binary logarithm of the pages of a leaf table.
fn leaf_bits<F: Format>() -> u32 {
    F::shift(Level(1)) - F::PAGE_SHIFT
}

fn range<F: Format>(pages: &Range<u64>) -> VirtRange {
    VirtRange::new(pages.start << F::PAGE_SHIFT, pages.end << F::PAGE_SHIFT).unwrap()
}

impl<F: Format, T: MmuTraits> Run<'_, '_, F, T> {
    /// A page of one of three leaf tables, of which two are neighbours, near their common border or
    /// the ends of all.
    fn page(&mut self) -> u64 {
        let table = 1u64 << leaf_bits::<F>();
        let tables = F::USER_END >> F::shift(Level(1));
        let (near, far) = (tables / 3 * table, (tables - 1) * table);
        let starts = [near, near + table - PAGES / 2, far + table - 2 * PAGES, 16];
        if self.large && self.rng.below(3) == 0 {
            return near + self.rng.below(2 * table);
        }
        starts[self.rng.below(4) as usize] + self.rng.below(PAGES)
    }

    fn pages(&mut self) -> Range<u64> {
        let start = self.page();
        start..(start + 1 + self.rng.below(PAGES)).min(F::USER_END >> F::PAGE_SHIFT)
    }

    fn step<M: SpaceMachine>(&mut self, on: On<'_, M>, cpu: usize) {
        if self.spaces.len() < SPACES - 1 {
            let mut space = Space::new(on).unwrap();
            let choice = self.rng.below(4);
            if self.large {
                let large = LargePages { in_new_areas: choice != 0, copy: choice < 2 };
                space.edit(on).unwrap().set_large_pages(large);
            }
            let empty = [EmptyTables::Kept, EmptyTables::Covered, EmptyTables::Freed, EmptyTables::Freed];
            space.edit(on).unwrap().set_empty_tables(empty[choice as usize]);
            if self.rng.below(2) == 0 {
                space.edit(on).unwrap().set_unmapping(Unmapping::Deferred);
            }
            self.spaces.push(Mapped { space, map: Map::default() });
        }
        let at = self.rng.below(self.spaces.len() as u64) as usize;
        let pages = self.pages();
        let flags = AreaFlags(FLAGS[self.rng.below(FLAGS.len() as u64) as usize]);
        match self.rng.below(64) {
            0 => self.end(on, at),
            1 | 2 if self.spaces.len() < SPACES => {
                let Mapped { space, map } = &mut self.spaces[at];
                let child = Mapped { space: space.edit(on).unwrap().fork().unwrap(), map: map.clone() };
                self.spaces.push(child);
            }
            3..=8 => self.change(on, at, &pages, flags),
            9 => self.wide(on, at, flags),
            10..=12 => self.move_to(on, at, &pages),
            13..=19 => self.switch(on, cpu, at),
            20 => self.leave(on, cpu),
            21..=23 if self.large => self.wide(on, at, flags),
            26 | 27 if self.large => self.move_wide(on, at),
            24 if self.large => self.advise(on, at, &pages),
            30..=32 if self.large => self.device(on, at, pages, flags),
            33 if self.large => self.log(on, at),
            34..=37 if self.large => self.object(on, at, pages, flags),
            38 if self.large => self.resize(on),
            39 => {
                let loaded = self.loaded(cpu).filter(|_| self.next.is_multiple_of(2));
                let space = loaded.map(|at| self.spaces[at].space.tlb());
                on.tlb().catch_up(on.pin(), space).unwrap();
                on.collect();
            }
            25 | 28 | 29 if self.large => {
                let limits = CollapseLimits {
                    spans: 4,
                    missing: [4, 1 << leaf_bits::<F>()][self.rng.below(2) as usize],
                };
                let from = VirtAddr(self.rng.below(2) * F::USER_END / 2);
                let collapsed = self.spaces[at].space.edit(on).unwrap().collapse(from, limits).unwrap();
                self.ran.large[2] += u64::from(collapsed.large);
            }
            _ => self.access(on, cpu, &pages),
        }
    }

    /// Ends a space, wherever it is loaded.
    fn end<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize) {
        let Mapped { space, .. } = self.spaces.swap_remove(at);
        let id = space.tlb().id();
        self.on_cpu.iter_mut().filter(|loaded| **loaded == Some(id)).for_each(|loaded| *loaded = None);
        space.end(on).unwrap();
    }

    /// Maps, unmaps, protects or discards some pages.
    fn change<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize, pages: &Range<u64>, flags: AreaFlags) {
        let what = self.rng.below(8);
        let Mapped { space, map } = &mut self.spaces[at];
        let mut edit = space.edit(on).unwrap();
        let place = range::<F>(pages);
        match what {
            0..=3 => {
                edit.mmap(place, flags, 0).unwrap();
                map.mmap(pages.clone(), flags);
            }
            4 => {
                edit.munmap(place).unwrap();
                map.munmap(pages.clone());
            }
            5 | 6 => {
                let done = edit.mprotect(place, flags).is_ok();
                assert_eq!(done, !map.has_none(pages.clone()), "mprotect of {place:?}");
                if done {
                    map.mprotect(pages.clone(), flags);
                }
            }
            _ => {
                if edit.madvise(place, Advice::DontNeed).is_ok() {
                    map.discard(pages.clone());
                }
            }
        }
    }

    /// Maps or unmaps two whole leaf tables and more.
    fn wide<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize, flags: AreaFlags) {
        let table = 1u64 << leaf_bits::<F>();
        let near = (F::USER_END >> F::shift(Level(1))) / 3 * table;
        let pages = near - 3..near + 2 * table + 3;
        let again = self.rng.below(2) == 0;
        let Mapped { space, map } = &mut self.spaces[at];
        let mut edit = space.edit(on).unwrap();
        edit.munmap(range::<F>(&pages)).unwrap();
        map.munmap(pages.clone());
        if again {
            let pages = near..near + if self.large { 2 * table } else { PAGES };
            edit.mmap(range::<F>(&pages), flags, 0).unwrap();
            map.mmap(pages, flags);
        }
    }

    /// Maps memory of a device, with leaves of some sizes: some pages, or about a leaf table of
    /// them. Mostly the memory is aligned as the addresses are.
    fn device<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize, pages: Range<u64>, flags: AreaFlags) {
        let table = 1u64 << leaf_bits::<F>();
        let [whole, _] = self.tables();
        let group = 1u64 << F::GROUP_BITS[0];
        let first = whole.start + self.rng.below(table / group) * group;
        let pages = match self.rng.below(4) {
            0 => pages,
            1 => first - self.rng.below(3)..first + group + self.rng.below(2 * group + 1),
            _ => whole.start - self.rng.below(3)..whole.end + self.rng.below(3),
        };
        let apart = if self.rng.below(4) == 0 { 1 + self.rng.below(group) } else { 0 };
        let memory: Vec<_> = MemoryType::ALL.into_iter().filter(|m| F::RIGHTS.has_memory(*m)).collect();
        let memory = memory[self.rng.below(memory.len() as u64) as usize];
        let levels: Vec<_> = (0..3).filter(|level| F::LEAF_LEVELS >> level & 1 != 0).map(Level).collect();
        let sizes = Sizes::up_to(levels[self.rng.below(levels.len() as u64) as usize]);
        let sizes = if self.rng.below(2) == 0 { sizes.with_groups() } else { sizes };
        let first = (DEVICE >> F::PAGE_SHIFT) + pages.start % table + apart;
        let Mapped { space, map } = &mut self.spaces[at];
        let mut edit = space.edit(on).unwrap();
        let phys = PhysAddr(first << F::PAGE_SHIFT);
        // SAFETY: 1. no program runs in the space.
        unsafe { edit.map_physical_large(range::<F>(&pages), flags, phys, memory, sizes).unwrap() };
        map.map_physical(pages.clone(), flags, first, memory);
        if self.rng.below(4) == 0 {
            edit.populate(range::<F>(&pages), Access::Read).unwrap();
        }
    }

    /// Maps an object, shared or private: some pages, or about two leaf tables of them. Mostly the
    /// object's blocks are aligned as the addresses are.
    fn object<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize, pages: Range<u64>, flags: AreaFlags) {
        let table = 1u64 << leaf_bits::<F>();
        let [whole, _] = self.tables();
        let pages = match self.rng.below(4) {
            0 => pages,
            1 => whole.start - self.rng.below(3)..whole.end + self.rng.below(3),
            _ => whole,
        };
        let apart = if self.rng.below(4) == 0 { 1 + self.rng.below(4) } else { 0 };
        let first = self.rng.below(3) * table + pages.start % table + apart;
        let shared = self.rng.below(2) == 0;
        let kind = if shared { AreaFlags::SHARED } else { AreaFlags::BACKED };
        let kind = if self.rng.below(4) == 0 { kind } else { kind.with(AreaFlags::LARGE) };
        let id = if self.rng.below(4) == 0 { IN_PAGES } else { IN_BLOCKS };
        let object = Object { id, offset: first << F::PAGE_SHIFT };
        let Mapped { space, map } = &mut self.spaces[at];
        let mut edit = space.edit(on).unwrap();
        edit.mmap(range::<F>(&pages), flags.with(kind), object).unwrap();
        map.map_object(pages.clone(), flags, first, shared);
        if self.rng.below(4) == 0 {
            edit.populate(range::<F>(&pages), Access::Read).unwrap();
        }
    }

    /// Cuts the objects short, or gives them pages of zeroes again. The frames of pages that are
    /// gone get other contents.
    fn resize<M: SpaceMachine>(&mut self, on: On<'_, M>) {
        let (old, most) = (self.store.pages(), self.store.most());
        if old < most {
            self.store.resize(most);
            for page in old..most {
                self.contents[page as usize] = 0;
                show(self.host, self.store.page(page).unwrap().addr().0, 0);
            }
            return;
        }
        let new = self.rng.below(most);
        let gone: Vec<_> = (new..most).map(|page| self.store.page(page).unwrap()).collect();
        self.store.resize(new);
        for Mapped { space, map } in &mut self.spaces {
            for pages in map.of_objects(new) {
                space.edit(on).unwrap().madvise(range::<F>(&pages), Advice::DontNeed).unwrap();
                map.discard(pages);
            }
        }
        gone.iter().for_each(|frame| show(self.host, frame.addr().0, u64::MAX));
    }

    /// Returns whether an access to a page is one that the area allows and the object has.
    fn allows(&self, at: usize, page: u64, access: Access) -> bool {
        let map = &self.spaces[at].map;
        let there = map.object(page).is_none_or(|shown| shown.page < self.store.pages());
        there && map.allows::<F>(page, access)
    }

    /// Returns what a page shows.
    fn shows(&self, map: &Map, page: u64) -> u64 {
        map.object(page).map_or_else(|| map.shows(page), |shown| self.contents[shown.page as usize])
    }

    /// Takes the dirty bits of a leaf table, and splits what maps it down to some size.
    fn log<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize) {
        let [whole, _] = self.tables();
        let largest = Level(self.rng.below(2) as u8);
        let mut edit = self.spaces[at].space.edit(on).unwrap();
        match self.rng.below(3) {
            0 => edit.take_accessed(range::<F>(&whole), |_| {}).unwrap(),
            1 => edit.write_protect(range::<F>(&whole), largest, |_| {}).unwrap(),
            _ => edit.take_dirty(range::<F>(&whole), largest, |_| {}).unwrap(),
        }
    }

    /// Moves pages to a place that is free.
    fn move_to<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize, from: &Range<u64>) {
        let start = self.page();
        let to = start..start + (from.end - from.start);
        let Mapped { space, map } = &mut self.spaces[at];
        if to.end > F::USER_END >> F::PAGE_SHIFT || !map.has_all(from.clone()) || !map.has_none(to.clone()) {
            return;
        }
        // Neighbours may be areas of their own, which one call does not move.
        if space.edit(on).unwrap().mremap(range::<F>(from), range::<F>(&to), false).is_ok() {
            map.mremap(from.clone(), to.start);
        }
    }

    /// The numbers of the pages of two whole leaf tables, one of them behind the pages of
    /// [`wide`](Self::wide).
    fn tables(&mut self) -> [Range<u64>; 2] {
        let table = 1u64 << leaf_bits::<F>();
        let near = (F::USER_END >> F::shift(Level(1))) / 3 * table;
        let first = near + self.rng.below(2) * table;
        [first..first + table, near + 3 * table..near + 4 * table]
    }

    /// Moves the pages of a whole leaf table there or back, or to a place that large pages do not
    /// fit.
    fn move_wide<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize) {
        let [mut from, mut to] = self.tables();
        if self.rng.below(3) == 0 {
            (from, to) = (to, from);
        }
        if self.rng.below(4) == 0 {
            to = to.start + 1..to.end + 1;
        }
        let Mapped { space, map } = &mut self.spaces[at];
        if map.has_all(from.clone()) && map.has_none(to.clone()) {
            let moved = space.edit(on).unwrap().mremap(range::<F>(&from), range::<F>(&to), false);
            if moved.is_ok() {
                map.mremap(from.clone(), to.start);
            }
        }
    }

    /// Lets areas have large pages, or not.
    fn advise<M: SpaceMachine>(&mut self, on: On<'_, M>, at: usize, pages: &Range<u64>) {
        let large = self.rng.below(3) != 0;
        let [whole, _] = self.tables();
        let place = if self.rng.below(2) == 0 { pages } else { &whole };
        let mut edit = self.spaces[at].space.edit(on).unwrap();
        edit.madvise(range::<F>(place), Advice::Large(large)).unwrap();
    }

    fn loaded(&self, cpu: usize) -> Option<usize> {
        let id = self.on_cpu[cpu]?;
        self.spaces.iter().position(|mapped| mapped.space.tlb().id() == id)
    }

    fn switch<M: SpaceMachine>(&mut self, on: On<'_, M>, cpu: usize, at: usize) {
        if self.loaded(cpu).is_some_and(|old| old != at) {
            self.leave(on, cpu);
        }
        self.spaces[at].space.activate(on).unwrap();
        self.on_cpu[cpu] = Some(self.spaces[at].space.tlb().id());
    }

    fn leave<M: SpaceMachine>(&mut self, on: On<'_, M>, cpu: usize) {
        if let Some(at) = self.loaded(cpu) {
            self.spaces[at].space.deactivate(on).unwrap();
        }
        self.on_cpu[cpu] = None;
    }

    /// A program on the CPU reads, writes or executes a page; faults are served.
    fn access<M: SpaceMachine>(&mut self, on: On<'_, M>, cpu: usize, pages: &Range<u64>) {
        let Some(at) = self.loaded(cpu) else { return };
        let mapped = self.spaces[at].map.any(self.rng.below(1 << 16));
        let mapped = if self.large && self.rng.below(2) == 0 { None } else { mapped };
        let page = mapped.filter(|_| self.rng.below(8) != 0).unwrap_or(pages.start);
        let va = page << F::PAGE_SHIFT;
        let later = self.spaces[at].space.edit(on).unwrap().unmapping() == Unmapping::Deferred;
        if later && self.spaces[at].map.has_none(page..page + 1) {
            // The CPU may know it still.
            return;
        }
        let kinds = [
            (Access::Read, ptsan::Access::READ),
            (Access::Write, ptsan::Access::WRITE),
            (Access::Write, ptsan::Access::WRITE),
            (Access::Exec, ptsan::Access::EXEC),
        ];
        let (access, kind) = kinds[self.rng.below(4) as usize];
        let allowed = self.allows(at, page, access);
        let large_before = self.large_object(on, at, page);
        let leaf_before = self.spaces[at].space.tree().query_leaf(on, VirtAddr(va));
        let zeroes_before = leaf_before.is_some_and(|leaf| leaf.attr.has(Attr::SPECIAL)) && !large_before;
        let mut found = self.translate(cpu, va, kind);
        if found.is_some() {
            // Some formats have no permission to execute: what may be read may be executed.
            assert!(
                allowed || access == Access::Exec && executes_all::<F>(),
                "{}: {access:?} of {va:#x} is let through",
                F::NAME
            );
            self.ran.passed += 1;
        } else {
            let served = self.spaces[at].space.fault(on, VirtAddr(va), access);
            assert_eq!(served.is_ok(), allowed, "{}: {access:?} of {va:#x}: {served:?}", F::NAME);
            if !allowed {
                self.ran.denied += 1;
                return;
            }
            self.ran.served += 1;
            self.ran.large[0] += u64::from(served == Ok(Done::Large));
            let leaf = self.spaces[at].space.tree().query_leaf(on, VirtAddr(va)).expect("it is mapped");
            let (is_large, is_group) = (leaf.level > Level::PTE, leaf.shift != F::shift(leaf.level));
            self.ran.large[1] += u64::from(served == Ok(Done::Copied) && is_large);
            let object = self.spaces[at].map.object(page).is_some();
            self.ran.large[3] += u64::from(served == Ok(Done::Backed) && is_large && !object);
            self.ran.large[4] += u64::from(served == Ok(Done::Backed) && is_group && !object);
            self.ran.large[5] += u64::from(served == Ok(Done::Backed) && is_large && object);
            self.ran.large[6] += u64::from(served == Ok(Done::Reused) && is_large && large_before);
            self.ran.large[8] += u64::from(served == Ok(Done::Zero) && is_large);
            self.ran.large[9] += u64::from(served == Ok(Done::Large) && zeroes_before);
            self.ran.large[7] += u64::from(served == Ok(Done::Copied) && !is_large && large_before);
            found = self.translate(cpu, va, kind);
            if later && found.is_none() {
                // It knows a link of a table that has gone, and forgets it when it faults again.
                let again = self.spaces[at].space.fault(on, VirtAddr(va), access);
                assert_eq!(again, Ok(Done::Spurious), "{}: {access:?} of {va:#x}", F::NAME);
                self.ran.left[1] += 1;
                found = self.translate(cpu, va, kind);
            }
        }
        let Some(phys) = found else {
            panic!("{}: served, and faults again: {access:?} of {va:#x}", F::NAME)
        };
        let map = &self.spaces[at].map;
        if let Some((device, _)) = map.device(page) {
            assert_eq!(phys >> F::PAGE_SHIFT, device, "{}: {va:#x}", F::NAME);
            return;
        }
        if let Some(Shown { page: number, shared }) = map.object(page) {
            let own = self.store.page(number).unwrap().addr().0;
            let copied = access == Access::Write && !shared;
            assert_eq!(phys >> F::PAGE_SHIFT != own >> F::PAGE_SHIFT, copied, "{}: {va:#x}", F::NAME);
        }
        let map = &self.spaces[at].map;
        assert_eq!(shown(self.host, phys), [self.shows(map, page); 2], "{}: {va:#x}", F::NAME);
        if access == Access::Write {
            self.next += 1;
            match map.object(page) {
                Some(Shown { page, shared: true }) => self.contents[page as usize] = self.next,
                _ => self.spaces[at].map.write(page, self.next),
            }
            show(self.host, phys, self.next);
        }
    }

    /// Returns whether a large page of an object is mapped at `page`.
    fn large_object<M: SpaceMachine>(&self, on: On<'_, M>, at: usize, page: u64) -> bool {
        let Mapped { space, map } = &self.spaces[at];
        let leaf = space.tree().query_leaf(on, VirtAddr(page << F::PAGE_SHIFT));
        map.object(page).is_some() && leaf.is_some_and(|leaf| leaf.level > Level::PTE)
    }

    fn translate(&self, cpu: usize, va: u64, kind: ptsan::Access) -> Option<u64> {
        let answer = self.soft.with(|sanitizer, memory| sanitizer.translate(memory, cpu, va, kind));
        answer.ok().map(|translation| translation.phys)
    }

    /// Compares the tables of all spaces with their maps: every page that was written is there and
    /// shows what it should, no page is there that should not, and there are as many leaf tables as
    /// the pages' numbers demand.
    fn compare<M: SpaceMachine>(&self, on: On<'_, M>) {
        for Mapped { space, map } in &self.spaces {
            let mut there = Vec::new();
            let all = VirtRange::up_to(F::USER_END);
            let mut visit = |va: VirtAddr, pfn, attr| there.push((va.0 >> F::PAGE_SHIFT, pfn, attr));
            space.tree().walk(on, all, &mut visit).unwrap();
            for (page, pfn, attr) in &there {
                assert!(!map.has_none(*page..page + 1), "{}: page {page:#x} is there", F::NAME);
                assert_eq!(pfn.0 % (1 << F::PAGE_ORDER), 0, "{}: a page is aligned", F::NAME);
                if let Some((device, memory)) = map.device(*page) {
                    let shown = (pfn.addr().0 >> F::PAGE_SHIFT, attr.memory());
                    assert_eq!(shown, (device, memory), "{}: page {page:#x}", F::NAME);
                    continue;
                }
                if let Some(Shown { page: number, .. }) = map.object(*page) {
                    assert_eq!(Some(*pfn), self.store.page(number), "{}: page {page:#x}", F::NAME);
                }
                let shown = shown(self.host, pfn.addr().0);
                assert_eq!(shown, [self.shows(map, *page); 2], "{}: page {page:#x}", F::NAME);
            }
            let pages: Vec<u64> = there.iter().map(|(page, ..)| *page).collect();
            let missing =
                map.written().find(|(page, value)| *value != 0 && pages.binary_search(page).is_err());
            assert_eq!(missing, None, "{}: a page that was written is gone", F::NAME);
            let least = Map::tables(pages.into_iter(), leaf_bits::<F>());
            let mut has = space.tree().count(Level::PTE) as usize;
            let tables = |leaf: Leaf| 1 << (leaf.shift - F::shift(Level(1)));
            let large = |leaf: Leaf| if leaf.level > Level::PTE { tables(leaf) } else { 0 };
            space.tree().walk_leaves(on, all, |leaf| has += large(leaf)).unwrap();
            assert!(has >= least, "{}: {has} leaf tables for pages of {least}", F::NAME);
        }
    }
}

/// Whether the MMU lets every page be executed that may be read.
fn executes_all<F: Format>() -> bool {
    let leaf = F::leaf(Level::PTE, ptarmigan::addr::Pfn(0), Attr::USER | Attr::READ | Attr::ACCESSED);
    F::allows(Level::PTE, leaf, Access::Exec)
}

/// The first and the last word of the page in which `at` lies, memory of the host's.
fn ends<F: Format>(host: &Host<F>, at: u64) -> [*mut u64; 2] {
    let bytes = 1u64 << F::PAGE_SHIFT;
    let first = at & !(bytes - 1);
    let limit = host.config().bytes;
    assert!(first + bytes <= limit, "{at:#x} is no memory");
    [first, first + bytes - 8].map(|at| host.window().open(PhysAddr(at)).base().cast())
}

/// What the page in which `at` lies shows at both ends.
fn shown<F: Format>(host: &Host<F>, at: u64) -> [u64; 2] {
    // SAFETY: memory of the host's, which no other code uses meanwhile: there is one thread.
    ends(host, at).map(|word| unsafe { word.read_volatile() })
}

/// Writes to both ends of the page in which `at` lies.
fn show<F: Format>(host: &Host<F>, at: u64, value: u64) {
    // SAFETY: as in `shown`.
    ends(host, at).iter().for_each(|word| unsafe { word.write_volatile(value) });
}
