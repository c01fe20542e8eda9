//! Page-table code of a small kernel for several CPUs, correct except for the defect that a test
//! asks for.
#[path = "large.rs"]
mod large;

use super::machine::Machine;
use ptsan::{
    Access, Adversary, Arch, Barrier, Config, Content, Entry, Expected, Flush, Granule, GuestPage, Memory,
    Operation, Sanitizer, Target, Tree,
};
use std::collections::{BTreeMap, BTreeSet};

pub const PAGE: u64 = 4096;
pub const CPUS: usize = 4;
/// Where programs have their pages.
pub const USER: u64 = 0x40_0000;
/// Two megabytes, one page or 512.
pub const LARGE: u64 = 0x80_0000;
const FRAMES: u64 = 1600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    None,
    NoFlushOnDowngrade,
    NoFlushOnUnmap,
    WrongPage,
    LocalOnly,
    OtherSpace,
    TableBeforeFlush,
    LazyLeftOut,
    FlushedThenUnlinked,
    FlushedBeforeCleared,
    LeafOnly,
    NumberReused,
    LinkedBeforeCleared,
    GlobalByRootLoad,
    SplitWithoutBreak,
    CollapseOnePage,
    WrongStride,
    RemapWithoutFlush,
    CopyWithoutFlush,
    DoubleFree,
    Leak,
    RootWhileLoaded,
    WrongFrame,
    DataBeforeFlush,
    DataMadeTable,
    TableMapped,
    DirtyLost,
    PromotedClean,
    PromotedUnread,
    NoBarrierBefore,
    NoBarrierAfter,
    Stage1Forgotten,
}

/// How entries are written, and how hardware caches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    X86,
    /// x86-64 with address-space numbers.
    Pcid,
    Arm,
    RiscV,
    Sv39,
    /// A hypervisor's tables; spaces are guests.
    Ept,
    Stage2,
}

impl Format {
    pub const ALL: [Self; 7] =
        [Self::X86, Self::Pcid, Self::Arm, Self::RiscV, Self::Sv39, Self::Ept, Self::Stage2];

    pub fn arch(self) -> Arch {
        match self {
            Self::X86 | Self::Pcid => Arch::x86_64(),
            Self::Arm => Arch::aarch64_4k(48),
            Self::RiscV => Arch::riscv_sv48(),
            Self::Sv39 => Arch::riscv_sv39(),
            Self::Ept => Arch::ept(),
            Self::Stage2 => Arch::aarch64_stage2(Granule::K4, 39, 1),
        }
    }

    fn has_numbers(self) -> bool {
        self != Self::X86
    }

    fn is_x86(self) -> bool {
        matches!(self, Self::X86 | Self::Pcid | Self::Ept)
    }

    fn is_arm(self) -> bool {
        matches!(self, Self::Arm | Self::Stage2)
    }

    pub fn is_riscv(self) -> bool {
        matches!(self, Self::RiscV | Self::Sv39)
    }

    pub fn is_second_stage(self) -> bool {
        matches!(self, Self::Ept | Self::Stage2)
    }

    fn table(self, phys: u64) -> u64 {
        match self {
            Self::X86 | Self::Pcid | Self::Ept => phys | 7,
            Self::Arm | Self::Stage2 => phys | 3,
            Self::RiscV | Self::Sv39 => phys >> 2 | 1,
        }
    }

    fn page(self, phys: u64, write: bool, large: bool) -> u64 {
        let bit = |n: u32, yes: bool| u64::from(yes) << n;
        match self {
            // Accessed, and dirty if it may be written and the machine does not set the bit itself.
            Self::X86 | Self::Pcid => phys | 0x25 | bit(1, write) | bit(7, large),
            // Clean, and made dirty by the machine if it may be written.
            Self::Arm => phys | 0xcc1 | bit(1, !large) | bit(51, write),
            Self::RiscV | Self::Sv39 => phys >> 2 | 0x53 | bit(2, write),
            Self::Ept => phys | 0x135 | bit(1, write) | bit(7, large),
            Self::Stage2 => phys | 0x441 | bit(1, !large) | bit(51, write),
        }
    }

    fn global(self, phys: u64) -> u64 {
        match self {
            Self::X86 | Self::Pcid => phys | 0x123,
            Self::Arm => phys | 0x403,
            Self::RiscV | Self::Sv39 => phys >> 2 | 0xe7,
            Self::Ept | Self::Stage2 => unreachable!("guests have no global pages"),
        }
    }
}

/// The content of a frame that the kernel's allocator hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dirt {
    /// Zeros.
    None,
    /// Entries of somebody else.
    Foreign,
    /// The content of its last use.
    Left,
}

struct Space {
    root: u64,
    /// CPUs that flush when they load the space again.
    behind: BTreeSet<usize>,
    pages: BTreeMap<u64, u64>,
}

pub struct Kernel {
    machine: Box<dyn Machine>,
    pub format: Format,
    pub defect: Defect,
    arch: Arch,
    asids: bool,
    /// Tables are announced with their level.
    levels: bool,
    dirt: Dirt,
    free: Vec<u64>,
    spaces: BTreeMap<u64, Space>,
    pub cpus: [Option<u64>; CPUS],
    lazy: BTreeSet<usize>,
    /// CPUs that missed a flush make it up when they come back from lazy mode.
    missed: BTreeSet<usize>,
    /// The table that all spaces share for the kernel's pages.
    kernel: u64,
    random: u64,
}

impl Kernel {
    /// The bytes of memory.
    pub const BYTES: u64 = 2 * FRAMES * PAGE;

    pub fn config(format: Format, seed: u64) -> Config {
        Config {
            cpus: CPUS,
            asids: format.has_numbers(),
            barriers: !format.is_x86(),
            accessed_dirty: true,
            two_stages: format.is_second_stage(),
            // No fault is served: harts are those with Svvptc.
            keeps_invalid: false,
            adversary: Some(Adversary::new(seed)),
            // Every other run remembers told stores in the compact form.
            told: if seed.is_multiple_of(2) { 0 } else { 1 << 20 },
            ..Config::new(format.arch())
        }
    }

    pub fn on(machine: Box<dyn Machine>, format: Format, seed: u64) -> Self {
        let asids = format.has_numbers();
        let mut k = Self {
            machine,
            format,
            defect: Defect::None,
            arch: format.arch(),
            asids,
            levels: seed.is_multiple_of(2),
            dirt: [Dirt::None, Dirt::Foreign, Dirt::Left][seed as usize % 3],
            free: (1..FRAMES).rev().map(|n| n * PAGE).collect(),
            spaces: BTreeMap::new(),
            cpus: [None; CPUS],
            lazy: BTreeSet::new(),
            missed: BTreeSet::new(),
            kernel: 0,
            random: seed,
        };
        k.kernel = k.table(k.arch.top() - 1);
        k
    }

    pub fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % n
    }

    /// Calls a hook of the sanitizer.
    pub fn hook<R>(&mut self, body: impl FnOnce(&mut Sanitizer, &dyn Memory) -> R) -> R {
        let (mut body, mut result) = (Some(body), None);
        self.machine.hook(&mut |san, memory| {
            if let Some(body) = body.take() {
                result = Some(body(san, memory));
            }
        });
        result.expect("it was called")
    }

    fn get(&self, at: u64) -> u64 {
        self.machine.get(at)
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.machine.put(at, raw);
    }

    fn exchange(&mut self, at: u64, raw: u64) {
        match self.has(Defect::DirtyLost) {
            true => self.machine.put(at, raw),
            false => self.machine.exchange(at, raw),
        }
    }

    fn frame(&mut self) -> u64 {
        let phys = self.free.pop().unwrap();
        match self.dirt {
            Dirt::None => self.machine.fill(phys, PAGE, 0),
            Dirt::Foreign => self.machine.fill(phys, PAGE, 0x5555_5555_5555_5555),
            Dirt::Left => {}
        }
        phys
    }

    fn table(&mut self, level: u8) -> u64 {
        let phys = self.frame();
        let level_said = Some(level).filter(|_| self.levels);
        let uncleared = self.has(Defect::LinkedBeforeCleared) && level == 0;
        let first = match self.dirt {
            _ if uncleared => Some(self.format.page(0x7000, true, false)),
            Dirt::Foreign => Some(self.format.table(0x7000)),
            Dirt::None | Dirt::Left => None,
        };
        if let Some(first) = first {
            self.machine.fill(phys, 8, first);
        }
        let dirty = uncleared || self.dirt != Dirt::None;
        let content = if dirty { Content::Unknown } else { Content::Zero };
        self.hook(|san, ram| san.table_allocated(ram, phys, PAGE, level_said, content));
        if !uncleared {
            self.machine.clear(phys, PAGE);
        }
        phys
    }

    fn free_table(&mut self, phys: u64) {
        self.hook(|san, ram| san.table_freed(ram, phys, PAGE));
        if self.has(Defect::DoubleFree) {
            self.hook(|san, ram| san.table_freed(ram, phys, PAGE));
        }
        self.free.push(phys);
    }

    fn free_data(&mut self, phys: u64) {
        if !self.has(Defect::DataMadeTable) {
            self.hook(|san, ram| san.frame_freed(ram, phys, PAGE));
        }
        self.free.push(phys);
    }

    pub fn space(&mut self, space: u64) {
        let root = self.table(self.arch.top());
        self.hook(|san, _| san.space_created(space));
        let entry = self.format.table(self.kernel);
        let top = self.arch.levels[usize::from(self.arch.top())];
        self.put(root + top.index(self.kernel_address()) * 8, entry);
        self.spaces.insert(space, Space { root, behind: BTreeSet::new(), pages: BTreeMap::new() });
    }

    /// Returns the first address of the kernel's half: the root's second entry, or its third.
    fn kernel_address(&self) -> u64 {
        let top = self.arch.levels[usize::from(self.arch.top())];
        if top.shift > 30 { 1 << top.shift } else { 2 << top.shift }
    }

    fn barrier(&mut self) {
        match self.format {
            Format::X86 | Format::Pcid | Format::Ept => {}
            Format::Arm | Format::Stage2 => self.hook(|san, _| san.barrier(0, Barrier::Data)),
            Format::RiscV | Format::Sv39 => self.hook(|san, _| san.barrier(0, Barrier::Fence)),
        }
    }

    pub fn switch(&mut self, cpu: usize, space: u64) {
        let root = self.spaces[&space].root;
        if let Some(old) = self.cpus[cpu].filter(|_| self.missed.remove(&cpu) && self.asids) {
            self.spaces.get_mut(&old).unwrap().behind.insert(cpu);
        }
        self.hook(|san, ram| san.switch(ram, cpu, root, space));
        self.lazy.remove(&cpu);
        self.cpus[cpu] = Some(space);
        if self.spaces.get_mut(&space).unwrap().behind.remove(&cpu) {
            self.hook(|san, ram| san.flush(ram, cpu, Flush::space(space)));
        }
        if self.format.is_arm() {
            self.barrier();
            self.hook(|san, _| san.barrier(cpu, Barrier::Instruction));
        }
    }

    pub fn lazy(&mut self, cpu: usize) {
        if self.cpus[cpu].is_some() && self.lazy.insert(cpu) {
            self.hook(|san, _| san.lazy(cpu));
        }
    }

    pub fn resume(&mut self, cpu: usize) {
        if let Some(space) = self.cpus[cpu]
            && self.lazy.remove(&cpu)
        {
            self.hook(|san, _| san.resume(cpu));
            if self.missed.remove(&cpu) && !self.has(Defect::LazyLeftOut) {
                self.hook(|san, ram| san.flush(ram, cpu, Flush::space(space)));
                self.barrier();
            }
        }
    }

    /// Flushes on every CPU that runs in the space; with `tables`, on lazy ones, too. `by` asks.
    fn shootdown(&mut self, by: usize, space: u64, flush: Flush, tables: bool) {
        if !self.has(Defect::NoBarrierBefore) {
            self.barrier();
        }
        // On RISC-V a flush by address spares the tables.
        let one_page = self.has(Defect::CollapseOnePage) && flush == Flush::page(space, LARGE);
        let by_mistake = self.has(Defect::LeafOnly) || one_page;
        let whole = self.format.is_riscv() && tables && !by_mistake;
        let flush = match flush.target {
            _ if whole => Flush::space(space),
            Target::Page { space: of, .. } | Target::Range { space: of, .. }
                if self.format == Format::Ept =>
            {
                Flush::space(of)
            }
            _ => flush,
        };
        let mut flushed = Vec::new();
        for cpu in 0..CPUS {
            if self.cpus[cpu] == Some(space) {
                if self.has(Defect::LocalOnly) && cpu != by {
                    continue;
                }
                // On AArch64 the invalidation is broadcast, and reaches lazy CPUs.
                let spared = !self.format.is_arm() && !tables || self.has(Defect::LazyLeftOut);
                if self.lazy.contains(&cpu) && spared {
                    self.missed.insert(cpu);
                    continue;
                }
                // The flushes that it was spared before cover the table, too.
                let missed = tables && self.missed.remove(&cpu);
                let flush = if missed { Flush::space(space) } else { flush };
                self.hook(|san, ram| san.flush(ram, cpu, flush));
                flushed.push(cpu);
            } else if self.asids {
                self.spaces.get_mut(&space).unwrap().behind.insert(cpu);
            }
        }
        if !self.has(Defect::NoBarrierAfter) {
            self.barrier();
        }
        if self.format == Format::Stage2 && !self.has(Defect::Stage1Forgotten) {
            flushed.into_iter().for_each(|cpu| self.hook(|san, _| san.stage1_flushed(cpu)));
            self.barrier();
        }
    }

    fn entry_at(&self, level: u8, table: u64, va: u64) -> u64 {
        table + self.arch.levels[level as usize].index(va) * 8
    }

    /// Lists the entries on the way to `va`, down to the first that is no table.
    fn path(&self, space: u64, va: u64) -> Vec<(u8, u64, u64)> {
        let mut table = self.spaces[&space].root;
        let mut path = Vec::new();
        for level in (0..=self.arch.top()).rev() {
            let at = self.entry_at(level, table, va);
            path.push((level, table, at));
            match (self.arch.decode)(level, self.get(at)) {
                Entry::Table { phys, .. } => table = phys,
                _ => break,
            }
        }
        path
    }

    /// Returns the entry for `va` at a level, and makes missing tables.
    fn entry(&mut self, space: u64, va: u64, level: u8) -> u64 {
        loop {
            let (at_level, _, at) = *self.path(space, va).last().unwrap();
            if at_level <= level {
                return at;
            }
            let table = self.table(at_level - 1);
            self.put(at, self.format.table(table));
        }
    }

    pub fn is_mapped(&self, space: u64, va: u64) -> bool {
        self.spaces[&space].pages.contains_key(&va)
    }

    pub fn map(&mut self, space: u64, va: u64) {
        let op = self.hook(|san, _| san.operation_begins());
        let phys = self.frame();
        let at = self.entry(space, va, 0);
        let mapped = if self.has(Defect::WrongFrame) { phys + FRAMES * PAGE } else { phys };
        self.put(at, self.format.page(mapped, true, false));
        if self.has(Defect::TableMapped) {
            let (_, table, _) = *self.path(space, va).last().unwrap();
            let next = self.entry(space, va ^ PAGE, 0);
            self.put(next, self.format.page(table, true, false));
        }
        self.spaces.get_mut(&space).unwrap().pages.insert(va, phys);
        self.end(op);
        let root = self.spaces[&space].root;
        let _ = self.hook(|san, ram| san.expect(ram, Tree::Root(root), va, Some(Expected::at(phys))));
    }

    fn end(&mut self, op: Operation) {
        self.hook(|san, ram| san.operation_ends(ram, op));
    }

    /// Unmaps `n` pages, flushes, and frees them and the tables that are empty.
    pub fn unmap(&mut self, by: usize, space: u64, va: u64, n: u64) {
        let op = self.hook(|san, _| san.operation_begins());
        self.hook(|san, _| san.running_on(by));
        let end = va + n * PAGE;
        let flush = match () {
            () if self.has(Defect::WrongPage) => Flush::page(space, va + 0x40_0000),
            () if self.has(Defect::OtherSpace) => Flush::page(space + 1, va),
            () if self.has(Defect::WrongStride) => Flush::range(space, va, end, 2 * PAGE),
            () if self.has(Defect::LeafOnly) => Flush::range(space, va, end, PAGE).leaf_only(),
            () if n == 1 => Flush::page(space, va),
            () => Flush::range(space, va, end, PAGE),
        };
        if self.has(Defect::FlushedBeforeCleared) {
            self.shootdown(by, space, flush, true);
        }
        let mut frames = Vec::new();
        for page in (0..n).map(|i| va + i * PAGE) {
            let Some(phys) = self.spaces.get_mut(&space).unwrap().pages.remove(&page) else { continue };
            let at = self.path(space, page).last().unwrap().2;
            self.exchange(at, 0);
            frames.push(phys);
        }
        let mut tables = Vec::new();
        if self.has(Defect::FlushedThenUnlinked) {
            self.shootdown(by, space, flush, true);
        }
        let mut path = self.path(space, va);
        while let Some((level, table, _)) = path.pop() {
            let clear = (0..512).all(|i| self.get(table + i * 8) == 0);
            let Some(&(_, _, above)) = path.last().filter(|_| clear && level == 0) else { break };
            self.put(above, 0);
            tables.push(table);
        }
        if self.has(Defect::DataBeforeFlush) || self.has(Defect::DataMadeTable) {
            frames.drain(..).for_each(|phys| self.free_data(phys));
        }
        if self.has(Defect::DataMadeTable) {
            // The next table is the last frame that was freed.
            let table = self.table(0);
            tables.push(table);
        }
        if self.has(Defect::TableBeforeFlush) {
            std::mem::take(&mut tables).into_iter().for_each(|table| self.free_table(table));
        }
        let early = [Defect::FlushedBeforeCleared, Defect::FlushedThenUnlinked, Defect::NoFlushOnUnmap];
        if !early.contains(&self.defect) {
            self.shootdown(by, space, flush, !tables.is_empty());
        }
        frames.into_iter().for_each(|phys| self.free_data(phys));
        tables.into_iter().for_each(|table| self.free_table(table));
        self.end(op);
    }

    pub fn protect(&mut self, by: usize, space: u64, va: u64) {
        let Some(&phys) = self.spaces[&space].pages.get(&va) else { return };
        let op = self.hook(|san, _| san.operation_begins());
        self.hook(|san, _| san.running_on(by));
        let at = self.path(space, va).last().unwrap().2;
        self.exchange(at, self.format.page(phys, false, false));
        if !self.has(Defect::NoFlushOnDowngrade) {
            self.shootdown(by, space, Flush::page(space, va), false);
        }
        self.end(op);
    }

    /// Maps another frame in place of the one that is mapped; `copy` keeps the old one for others.
    pub fn remap(&mut self, by: usize, space: u64, va: u64, copy: bool) {
        let Some(&old) = self.spaces[&space].pages.get(&va) else { return };
        let op = self.hook(|san, _| san.operation_begins());
        self.hook(|san, _| san.running_on(by));
        let phys = self.frame();
        let at = self.path(space, va).last().unwrap().2;
        let missing = match copy {
            true => Defect::CopyWithoutFlush,
            false => Defect::RemapWithoutFlush,
        };
        let flush = Flush::page(space, va);
        self.exchange(at, 0);
        if self.format.is_arm() && !self.has(missing) {
            self.shootdown(by, space, flush, false);
        }
        self.put(at, self.format.page(phys, true, false));
        if !self.format.is_arm() && !self.has(missing) {
            self.shootdown(by, space, flush, false);
        }
        self.spaces.get_mut(&space).unwrap().pages.insert(va, phys);
        if !copy && !self.has(missing) {
            self.free_data(old);
        }
        self.end(op);
    }

    /// Maps a page of the kernel for all spaces, uses it, and unmaps it.
    pub fn kernel_page(&mut self, by: usize) {
        let Some(space) = self.cpus[by].filter(|_| !self.format.is_second_stage()) else { return };
        let va = self.kernel_address() + PAGE;
        let op = self.hook(|san, _| san.operation_begins());
        self.hook(|san, _| san.running_on(by));
        let phys = self.frame();
        let at = self.entry(space, va, 0);
        self.put(at, self.format.global(phys));
        self.end(op);
        for cpu in 0..CPUS {
            if self.cpus[cpu].is_some() {
                let _ = self.hook(|san, ram| san.translate(ram, cpu, va, Access::READ.kernel()));
            }
        }
        let op = self.hook(|san, _| san.operation_begins());
        self.exchange(at, 0);
        self.barrier();
        for cpu in 0..CPUS {
            match self.cpus[cpu] {
                Some(space) if self.has(Defect::GlobalByRootLoad) => {
                    self.hook(|san, ram| san.flush(ram, cpu, Flush::space(space)));
                }
                _ => self.hook(|san, ram| san.flush(ram, cpu, Flush::page_in_every_space(va))),
            }
        }
        self.barrier();
        self.free_data(phys);
        self.end(op);
    }

    pub fn touch(&mut self, cpu: usize, va: u64) {
        if self.cpus[cpu].is_some() && !self.lazy.contains(&cpu) {
            let page = GuestPage { number: 1, va };
            let _ = match self.format.is_second_stage() {
                true => self.hook(|san, ram| san.translate_combined(ram, cpu, page, va, Access::READ)),
                false => self.hook(|san, ram| san.translate(ram, cpu, va, Access::READ)),
            };
        }
    }

    /// Ends a space: all its pages, its tables and its root.
    pub fn destroy(&mut self, space: u64) {
        for cpu in 0..CPUS {
            if self.cpus[cpu] == Some(space) && !self.has(Defect::RootWhileLoaded) {
                self.hook(|san, _| san.leave(cpu));
                self.cpus[cpu] = None;
                self.lazy.remove(&cpu);
            }
        }
        let Space { root, pages, .. } = self.spaces.remove(&space).unwrap();
        if self.has(Defect::RootWhileLoaded) {
            self.free_table(root);
            return;
        }
        let mut tables = vec![(self.arch.top(), root)];
        let mut next = 0;
        while let Some(&(level, table)) = tables.get(next) {
            next += 1;
            for i in 0..512 {
                let below = match (self.arch.decode)(level, self.get(table + i * 8)) {
                    Entry::Table { phys, .. } if phys != self.kernel => phys,
                    _ => continue,
                };
                tables.push((level - 1, below));
            }
        }
        for phys in pages.into_values() {
            self.free_data(phys);
        }
        if !self.has(Defect::NumberReused) && self.asids {
            for cpu in 0..CPUS {
                self.hook(|san, ram| san.flush(ram, cpu, Flush::space(space)));
            }
            self.barrier();
        }
        if self.has(Defect::Leak) {
            tables.pop();
        }
        for (_, table) in tables.into_iter().rev() {
            self.free_table(table);
        }
    }

    pub fn finish(&mut self) {
        let kernel = self.kernel;
        let mut tables = vec![(self.arch.top() - 1, kernel)];
        let mut next = 0;
        while let Some(&(level, table)) = tables.get(next) {
            next += 1;
            for i in 0..512 {
                if let Entry::Table { phys, .. } = (self.arch.decode)(level, self.get(table + i * 8)) {
                    tables.push((level - 1, phys));
                }
            }
        }
        for cpu in 0..CPUS {
            self.hook(|san, ram| san.flush(ram, cpu, Flush::all()));
        }
        for (_, table) in tables.into_iter().rev() {
            self.hook(|san, ram| san.table_freed(ram, table, PAGE));
        }
        self.hook(|san, ram| san.finish_with(ram));
    }
}
