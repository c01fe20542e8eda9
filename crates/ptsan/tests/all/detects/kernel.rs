//! Page-table code of a small kernel for several CPUs, correct except for the defect that a test
//! asks for.
use ptsan::{
    Access, Adversary, Arch, Barrier, Config, Content, Entry, Expected, Flush, Operation, Sanitizer, Tree,
};
use std::collections::{BTreeMap, BTreeSet};

pub const PAGE: u64 = 4096;
pub const CPUS: usize = 4;
/// Where programs and the kernel have their pages.
pub const USER: u64 = 0x40_0000;
pub const KERNEL: u64 = 0x4000_0000;
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
    NoBarrierBefore,
    NoBarrierAfter,
}

/// How entries are written, and how hardware caches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    X86,
    /// x86-64 with address-space numbers.
    Pcid,
    Arm,
    RiscV,
}

impl Format {
    pub const ALL: [Self; 4] = [Self::X86, Self::Pcid, Self::Arm, Self::RiscV];

    pub fn arch(self) -> Arch {
        match self {
            Self::X86 | Self::Pcid => Arch::x86_64(),
            Self::Arm => Arch::aarch64_4k(48),
            Self::RiscV => Arch::riscv_sv48(),
        }
    }

    fn is_x86(self) -> bool {
        matches!(self, Self::X86 | Self::Pcid)
    }

    fn table(self, phys: u64) -> u64 {
        match self {
            Self::X86 | Self::Pcid => phys | 7,
            Self::Arm => phys | 3,
            Self::RiscV => phys >> 2 | 1,
        }
    }

    fn page(self, phys: u64, write: bool, large: bool) -> u64 {
        let bit = |n: u32, yes: bool| u64::from(yes) << n;
        match self {
            // Accessed, and dirty if it may be written and the machine does not set the bit itself.
            Self::X86 | Self::Pcid => phys | 0x25 | bit(1, write) | bit(7, large),
            // Clean, and made dirty by the machine if it may be written.
            Self::Arm => phys | 0xcc1 | bit(1, !large) | bit(51, write),
            Self::RiscV => phys >> 2 | 0x53 | bit(2, write),
        }
    }

    fn global(self, phys: u64) -> u64 {
        match self {
            Self::X86 | Self::Pcid => phys | 0x123,
            Self::Arm => phys | 0x403,
            Self::RiscV => phys >> 2 | 0xe7,
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
    pub ram: Vec<u8>,
    pub san: Sanitizer,
    pub format: Format,
    pub defect: Defect,
    arch: Arch,
    asids: bool,
    /// Each store is told.
    tells: bool,
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
    pub fn new(format: Format, seed: u64, tells: bool) -> Self {
        let asids = format != Format::X86;
        let config = Config {
            cpus: CPUS,
            asids,
            barriers: !format.is_x86(),
            accessed_dirty: true,
            adversary: Some(Adversary::new(seed)),
            // Every other run remembers told stores in the compact form.
            told: if seed.is_multiple_of(2) { 0 } else { 1 << 20 },
            ..Config::new(format.arch())
        };
        let mut k = Self {
            ram: vec![0; (2 * FRAMES * PAGE) as usize],
            san: Sanitizer::new(config),
            format,
            defect: Defect::None,
            tells,
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
        k.kernel = k.table(2);
        k
    }

    pub fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % n
    }

    fn get(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.ram[at as usize..][..8].try_into().unwrap())
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.ram[at as usize..][..8].copy_from_slice(&raw.to_le_bytes());
        if self.tells {
            self.san.entry_written(&self.ram, at);
        }
    }

    fn exchange(&mut self, at: u64, raw: u64) {
        if self.has(Defect::DirtyLost) {
            return self.put(at, raw);
        }
        self.ram[at as usize..][..8].copy_from_slice(&raw.to_le_bytes());
        if self.tells {
            self.san.entry_exchanged(&self.ram, at);
        }
    }

    fn frame(&mut self) -> u64 {
        let phys = self.free.pop().unwrap();
        let frame = &mut self.ram[phys as usize..][..PAGE as usize];
        match self.dirt {
            Dirt::None => frame.fill(0),
            Dirt::Foreign => frame.fill(0x55),
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
        let frame = &mut self.ram[phys as usize..][..PAGE as usize];
        if let Some(first) = first {
            frame[..8].copy_from_slice(&first.to_le_bytes());
        }
        let dirty = uncleared || self.dirt != Dirt::None;
        let content = if dirty { Content::Unknown } else { Content::Zero };
        self.san.table_allocated(&self.ram, phys, PAGE, level_said, content);
        if !uncleared {
            self.ram[phys as usize..][..PAGE as usize].fill(0);
        }
        phys
    }

    fn free_table(&mut self, phys: u64) {
        self.san.table_freed(&self.ram, phys, PAGE);
        if self.has(Defect::DoubleFree) {
            self.san.table_freed(&self.ram, phys, PAGE);
        }
        self.free.push(phys);
    }

    fn free_data(&mut self, phys: u64) {
        if !self.has(Defect::DataMadeTable) {
            self.san.frame_freed(&self.ram, phys, PAGE);
        }
        self.free.push(phys);
    }

    pub fn space(&mut self, space: u64) {
        let root = self.table(3);
        self.san.space_created(space);
        let entry = self.format.table(self.kernel);
        self.put(root + self.arch.levels[3].index(KERNEL_ROOT) * 8, entry);
        self.spaces.insert(space, Space { root, behind: BTreeSet::new(), pages: BTreeMap::new() });
    }

    fn barrier(&mut self) {
        match self.format {
            Format::X86 | Format::Pcid => {}
            Format::Arm => self.san.barrier(0, Barrier::Data),
            Format::RiscV => self.san.barrier(0, Barrier::Fence),
        }
    }

    pub fn switch(&mut self, cpu: usize, space: u64) {
        let root = self.spaces[&space].root;
        if let Some(old) = self.cpus[cpu].filter(|_| self.missed.remove(&cpu) && self.asids) {
            self.spaces.get_mut(&old).unwrap().behind.insert(cpu);
        }
        self.san.switch(&self.ram, cpu, root, space);
        self.lazy.remove(&cpu);
        self.cpus[cpu] = Some(space);
        if self.spaces.get_mut(&space).unwrap().behind.remove(&cpu) {
            self.san.flush(&self.ram, cpu, Flush::space(space));
        }
        if self.format == Format::Arm {
            self.barrier();
            self.san.barrier(cpu, Barrier::Instruction);
        }
    }

    pub fn lazy(&mut self, cpu: usize) {
        if self.cpus[cpu].is_some() && self.lazy.insert(cpu) {
            self.san.lazy(cpu);
        }
    }

    pub fn resume(&mut self, cpu: usize) {
        if let Some(space) = self.cpus[cpu]
            && self.lazy.remove(&cpu)
        {
            self.san.resume(cpu);
            if self.missed.remove(&cpu) && !self.has(Defect::LazyLeftOut) {
                self.san.flush(&self.ram, cpu, Flush::space(space));
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
        let whole = self.format == Format::RiscV && tables && !by_mistake;
        let flush = if whole { Flush::space(space) } else { flush };
        for cpu in 0..CPUS {
            if self.cpus[cpu] == Some(space) {
                if self.has(Defect::LocalOnly) && cpu != by {
                    continue;
                }
                // On AArch64 the invalidation is broadcast, and reaches lazy CPUs.
                let spared = self.format != Format::Arm && !tables || self.has(Defect::LazyLeftOut);
                if self.lazy.contains(&cpu) && spared {
                    self.missed.insert(cpu);
                    continue;
                }
                // The flushes that it was spared before cover the table, too.
                let missed = tables && self.missed.remove(&cpu);
                let flush = if missed { Flush::space(space) } else { flush };
                self.san.flush(&self.ram, cpu, flush);
            } else if self.asids {
                self.spaces.get_mut(&space).unwrap().behind.insert(cpu);
            }
        }
        if !self.has(Defect::NoBarrierAfter) {
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
        for level in (0..=3).rev() {
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
        let op = self.san.operation_begins();
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
        let _ = self.san.expect(&self.ram, Tree::Root(root), va, Some(Expected::at(phys)));
    }

    fn end(&mut self, op: Operation) {
        self.san.operation_ends(&self.ram, op);
    }

    /// Unmaps `n` pages, flushes, and frees them and the tables that are empty.
    pub fn unmap(&mut self, by: usize, space: u64, va: u64, n: u64) {
        let op = self.san.operation_begins();
        self.san.running_on(by);
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
        let op = self.san.operation_begins();
        self.san.running_on(by);
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
        let op = self.san.operation_begins();
        self.san.running_on(by);
        let phys = self.frame();
        let at = self.path(space, va).last().unwrap().2;
        let missing = match copy {
            true => Defect::CopyWithoutFlush,
            false => Defect::RemapWithoutFlush,
        };
        let flush = Flush::page(space, va);
        self.exchange(at, 0);
        if self.format == Format::Arm && !self.has(missing) {
            self.shootdown(by, space, flush, false);
        }
        self.put(at, self.format.page(phys, true, false));
        if self.format != Format::Arm && !self.has(missing) {
            self.shootdown(by, space, flush, false);
        }
        self.spaces.get_mut(&space).unwrap().pages.insert(va, phys);
        if !copy && !self.has(missing) {
            self.free_data(old);
        }
        self.end(op);
    }

    /// Maps 512 pages, then one page of 2 MiB in their place, then 512 again, and unmaps all.
    pub fn collapse_and_split(&mut self, by: usize, space: u64) {
        let op = self.san.operation_begins();
        self.san.running_on(by);
        let large = FRAMES * PAGE;
        let large = large.next_multiple_of(0x20_0000);
        let table = self.table(0);
        let small = large + 0x20_0000;
        for i in 0..512 {
            self.put(table + i * 8, self.format.page(small + i * PAGE, true, false));
        }
        let at = self.entry(space, LARGE, 1);
        self.put(at, self.format.table(table));
        self.end(op);
        let op = self.san.operation_begins();
        // Collapse: break, flush, make.
        let whole = Flush::range(space, LARGE, LARGE + 0x20_0000, PAGE);
        self.exchange(at, 0);
        let flush = if self.has(Defect::CollapseOnePage) { Flush::page(space, LARGE) } else { whole };
        self.shootdown(by, space, flush, true);
        self.put(at, self.format.page(large, true, true));
        self.free_table(table);
        self.end(op);
        let op = self.san.operation_begins();
        // Split.
        let table = self.table(0);
        for i in 0..512 {
            self.put(table + i * 8, self.format.page(large + i * PAGE, true, false));
        }
        if self.format == Format::Arm && !self.has(Defect::SplitWithoutBreak) {
            self.exchange(at, 0);
            self.shootdown(by, space, Flush::page(space, LARGE), true);
        }
        self.exchange(at, self.format.table(table));
        if !self.has(Defect::SplitWithoutBreak) {
            self.shootdown(by, space, Flush::page(space, LARGE), true);
        }
        self.end(op);
        let op = self.san.operation_begins();
        self.exchange(at, 0);
        self.shootdown(by, space, whole, true);
        self.free_table(table);
        self.end(op);
    }

    /// Maps a page of the kernel for all spaces, uses it, and unmaps it.
    pub fn kernel_page(&mut self, by: usize) {
        let Some(space) = self.cpus[by] else { return };
        let va = KERNEL_ROOT + KERNEL;
        let op = self.san.operation_begins();
        self.san.running_on(by);
        let phys = self.frame();
        let at = self.entry(space, va, 0);
        self.put(at, self.format.global(phys));
        self.end(op);
        for cpu in 0..CPUS {
            if self.cpus[cpu].is_some() {
                let _ = self.san.translate(&self.ram, cpu, va, Access::READ.kernel());
            }
        }
        let op = self.san.operation_begins();
        self.exchange(at, 0);
        self.barrier();
        for cpu in 0..CPUS {
            match self.cpus[cpu] {
                Some(space) if self.has(Defect::GlobalByRootLoad) => {
                    self.san.flush(&self.ram, cpu, Flush::space(space));
                }
                _ => self.san.flush(&self.ram, cpu, Flush::page_in_every_space(va)),
            }
        }
        self.barrier();
        self.free_data(phys);
        self.end(op);
    }

    pub fn touch(&mut self, cpu: usize, va: u64) {
        if self.cpus[cpu].is_some() && !self.lazy.contains(&cpu) {
            let _ = self.san.translate(&self.ram, cpu, va, Access::READ);
        }
    }

    /// Ends a space: all its pages, its tables and its root.
    pub fn destroy(&mut self, space: u64) {
        for cpu in 0..CPUS {
            if self.cpus[cpu] == Some(space) && !self.has(Defect::RootWhileLoaded) {
                self.san.leave(cpu);
                self.cpus[cpu] = None;
                self.lazy.remove(&cpu);
            }
        }
        let Space { root, pages, .. } = self.spaces.remove(&space).unwrap();
        if self.has(Defect::RootWhileLoaded) {
            self.free_table(root);
            return;
        }
        let mut tables = vec![(3, root)];
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
                self.san.flush(&self.ram, cpu, Flush::space(space));
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
        let mut tables = vec![(2, kernel)];
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
            self.san.flush(&self.ram, cpu, Flush::all());
        }
        for (_, table) in tables.into_iter().rev() {
            self.san.table_freed(&self.ram, table, PAGE);
        }
        self.san.finish_with(&self.ram);
    }
}

/// The root's entry for the kernel is the second.
const KERNEL_ROOT: u64 = 1 << 39;
