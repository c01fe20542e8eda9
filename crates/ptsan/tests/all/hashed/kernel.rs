//! A small kernel for CPUs with a hashed page table, correct except for the one mistake that a test
//! asks for.
use ptsan::{Access, Adversary, Arch, Config, Content, Fault, Flush, HashLayout, HashTable, Rule, Sanitizer};
use std::collections::{BTreeMap, BTreeSet};

pub const PAGE: u64 = 4096;
const PRESENT: u32 = 1;
const BIT: u32 = 2;
const USER: u32 = 4;
const RW: u32 = 1 << 10;
/// Where tables begin, after the hash table.
const TABLES: u64 = 1 << 20;
const MEMORY: usize = 2 << 20;

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A page that goes stays in the hash table and in TLBs.
    NoFlush,
    /// It is flushed from the TLBs, and stays in the hash table.
    OnlyTlb,
    /// It is taken out of the hash table, and stays in TLBs.
    OnlyHashTable,
    /// The TLBs are told to forget its neighbour.
    WrongAddress,
    /// The handler of a miss does not set the bit.
    NoBit,
    /// The flush leaves the bit in an entry that was cleared.
    BitLeft,
    /// A miss that waited for the end of an unmap puts in the entry that it had read before.
    LateRefill,
    /// A page that is in the hash table is put in once more.
    Twice,
    /// An entry of the hash table is rewritten, and the TLBs keep the old one.
    NoFlushAtUpgrade,
    /// A space ends without a flush, and the next one has its segments.
    SegmentsReused,
    /// Tables are freed before the TLBs have forgotten their pages.
    FreedEarly,
}

pub struct Kernel {
    pub ram: Vec<u8>,
    pub san: Sanitizer,
    table: HashTable,
    defect: Option<Defect>,
    /// Whether stores are told.
    tells: bool,
    /// Whether flushes name no space, as the instruction does on some CPUs.
    by_index: bool,
    free: Vec<u64>,
    next: u64,
    turn: u64,
    /// For each space: its root, the number of its segments, its tables by upper index.
    spaces: BTreeMap<u64, (u64, u64, BTreeMap<u64, u64>)>,
    loaded: Vec<Option<u64>>,
    numbers: u64,
    spare: BTreeSet<u64>,
    pub evicted: u64,
}

impl Kernel {
    pub fn new(cpus: usize, layout: HashLayout, defect: Option<Defect>, seed: u64) -> Self {
        let adversary = seed.is_multiple_of(2).then(|| Adversary::new(seed));
        let config =
            Config { cpus, adversary, keep: 10_000, backtraces: false, ..Config::new(Arch::ppc32()) };
        let bytes = if layout == HashLayout::Bits32 { 64 << 10 } else { 256 << 10 };
        let table = HashTable { phys: bytes, bytes, layout };
        let mut kernel = Kernel {
            ram: vec![0; MEMORY],
            san: Sanitizer::new(config),
            table,
            defect,
            tells: !seed.is_multiple_of(3),
            by_index: seed % 5 == 4,
            free: Vec::new(),
            next: TABLES,
            turn: 0,
            spaces: BTreeMap::new(),
            loaded: vec![None; cpus],
            numbers: 0,
            spare: BTreeSet::new(),
            evicted: 0,
        };
        kernel.san.hash_table(&kernel.ram, table);
        kernel
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn get(&self, at: u64) -> u32 {
        u32::from_be_bytes(self.ram[at as usize..at as usize + 4].try_into().unwrap())
    }

    fn put(&mut self, at: u64, word: u32) {
        self.ram[at as usize..at as usize + 4].copy_from_slice(&word.to_be_bytes());
    }

    fn store(&mut self, entry: u64, raw: u32) {
        self.put(entry, raw);
        if self.tells {
            self.san.entry_written(&self.ram, entry);
        }
    }

    fn alloc(&mut self, level: u8) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.next += PAGE;
            self.next - PAGE
        });
        self.san.table_allocated(&self.ram, at, PAGE, Some(level), Content::Zero);
        at
    }

    fn give_back(&mut self, at: u64) {
        self.san.table_freed(&self.ram, at, PAGE);
        self.ram[at as usize..(at + PAGE) as usize].fill(0);
        self.free.push(at);
    }

    pub fn spaces(&self) -> Vec<u64> {
        self.spaces.keys().copied().collect()
    }

    /// Makes a space. Numbers of segments are used again when their space has been flushed.
    pub fn create(&mut self, space: u64) {
        let root = self.alloc(1);
        let number = self.spare.pop_first().unwrap_or(self.numbers + 1);
        self.numbers = self.numbers.max(number);
        self.spaces.insert(space, (root, number, BTreeMap::new()));
        let vsids = std::array::from_fn(|n| if n < 12 { number * 0x100 + n as u64 } else { 0xf0 + n as u64 });
        self.san.segments(space, root, vsids);
    }

    pub fn load(&mut self, cpu: usize, space: u64) {
        self.loaded[cpu] = Some(space);
        self.san.switch(&self.ram, cpu, self.spaces[&space].0, space);
    }

    /// The address of the entry of `va`.
    fn entry(&mut self, space: u64, va: u64) -> u64 {
        let (root, _, tables) = &self.spaces[&space];
        let (root, known) = (*root, tables.get(&(va >> 22)).copied());
        let table = known.unwrap_or_else(|| {
            let table = self.alloc(0);
            self.store(root + 4 * (va >> 22), table as u32 | PRESENT);
            self.spaces.get_mut(&space).unwrap().2.insert(va >> 22, table);
            table
        });
        table + 4 * (va >> 12 & 0x3ff)
    }

    pub fn map(&mut self, space: u64, va: u64, frame: u64, write: bool) {
        let entry = self.entry(space, va);
        let old = self.get(entry);
        if old & PRESENT != 0 && (old & !0xfff != frame as u32 || old & RW != 0 && !write) {
            self.unmap(space, va);
        }
        let kept = self.get(entry) & BIT;
        self.store(entry, frame as u32 | PRESENT | USER | kept | if write { RW } else { 0 });
    }

    pub fn unmap(&mut self, space: u64, va: u64) {
        let entry = self.entry(space, va);
        let kept = self.get(entry) & BIT;
        self.store(entry, kept);
        self.flush(space, va);
    }

    /// Flushes a page whose entry was cleared, if it was in the hash table.
    fn flush(&mut self, space: u64, va: u64) {
        let entry = self.entry(space, va);
        if self.get(entry) & BIT == 0 {
            return;
        }
        let defect = self.defect;
        let skips = |defects: &[Defect]| defect.is_some_and(|d| defects.contains(&d));
        if !skips(&[Defect::NoFlush, Defect::OnlyTlb]) {
            self.take_out(space, va);
        }
        if !skips(&[Defect::NoFlush, Defect::OnlyHashTable, Defect::FreedEarly]) {
            let wrong = if skips(&[Defect::WrongAddress]) { PAGE } else { 0 };
            self.tlbie(space, va + wrong);
        }
        if !skips(&[Defect::BitLeft]) {
            let raw = self.get(entry) & !BIT;
            self.store(entry, raw);
        }
    }

    fn tlbie(&mut self, space: u64, va: u64) {
        let flush = if self.by_index { Flush::page_in_every_space(va) } else { Flush::page(space, va) };
        self.san.flush_everywhere(&self.ram, flush);
    }

    fn tag(&self, space: u64, va: u64) -> (u64, u64) {
        (self.spaces[&space].1 * 0x100 + (va >> 28), va >> 12 & 0xffff)
    }

    /// The addresses of the entries of the primary or secondary group, and the word that names the
    /// page there.
    fn group(&self, space: u64, va: u64, secondary: bool) -> (Vec<u64>, u64) {
        let (vsid, page) = self.tag(space, va);
        let hash = if secondary { !(vsid ^ page) } else { vsid ^ page };
        let (bytes, name) = match self.table.layout {
            HashLayout::Bits32 => (8, 1 << 31 | vsid << 7 | u64::from(secondary) << 6 | page >> 10),
            HashLayout::Bits64 => (16, vsid << 12 | page >> 11 << 7 | u64::from(secondary) << 1 | 1),
        };
        let group = self.table.phys + (hash % (self.table.bytes / (8 * bytes))) * 8 * bytes;
        ((0..8).map(|n| group + n * bytes).collect(), name)
    }

    fn name_at(&self, at: u64) -> u64 {
        match self.table.layout {
            HashLayout::Bits32 => u64::from(self.get(at)),
            HashLayout::Bits64 => u64::from(self.get(at)) << 32 | u64::from(self.get(at + 4)),
        }
    }

    fn is_valid(&self, at: u64) -> bool {
        match self.table.layout {
            HashLayout::Bits32 => self.get(at) >> 31 != 0,
            HashLayout::Bits64 => self.get(at + 4) & 1 != 0,
        }
    }

    fn find(&self, space: u64, va: u64) -> Option<u64> {
        [false, true].into_iter().find_map(|secondary| {
            let (group, name) = self.group(space, va, secondary);
            group.into_iter().find(|at| self.name_at(*at) == name)
        })
    }

    fn take_out(&mut self, space: u64, va: u64) {
        if let Some(at) = self.find(space, va) {
            self.write(at, 0, 0);
        }
    }

    fn write(&mut self, at: u64, name: u64, mapping: u32) {
        match self.table.layout {
            HashLayout::Bits32 => {
                self.put(at, 0);
                self.put(at + 4, mapping);
                self.put(at, name as u32);
            }
            HashLayout::Bits64 => {
                self.put(at + 4, 0);
                self.put(at + 8, 0);
                self.put(at + 12, mapping);
                self.put(at, (name >> 32) as u32);
                self.put(at + 4, name as u32);
            }
        }
        if self.tells {
            self.san.hash_written(&self.ram, at);
        }
    }

    /// The handler of a miss. `false` is a fault.
    fn refill(&mut self, space: u64, va: u64, write: bool) -> bool {
        let entry = self.entry(space, va);
        let raw = self.get(entry);
        if raw & PRESENT == 0 || write && raw & RW == 0 {
            return false;
        }
        if self.has(Defect::LateRefill) && self.turn.is_multiple_of(7) {
            self.unmap(space, va);
        }
        if !self.has(Defect::NoBit) {
            let now = self.get(entry);
            self.store(entry, now | BIT);
        }
        let mapping = raw & !0xfff | if write { 2 } else { 3 };
        self.turn += 1;
        let old = self.find(space, va);
        if let Some(at) = old.filter(|_| !self.has(Defect::Twice)) {
            let name = self.name_at(at);
            self.write(at, name, mapping);
            if !self.has(Defect::NoFlushAtUpgrade) {
                self.tlbie(space, va);
            }
            return true;
        }
        let places = [false, true].map(|secondary| self.group(space, va, secondary));
        let mut free = places.iter().flat_map(|(group, name)| group.iter().map(move |at| (*at, *name)));
        let (at, name) = free.find(|(at, _)| !self.is_valid(*at)).unwrap_or_else(|| {
            self.evicted += 1;
            (places[0].0[self.turn as usize % 8], places[0].1)
        });
        self.write(at, name, mapping);
        true
    }

    /// An access by a program: where it goes, `None` for a fault.
    pub fn access(&mut self, cpu: usize, va: u64, write: bool) -> Option<u64> {
        let space = self.loaded[cpu]?;
        let access = if write { Access::WRITE } else { Access::READ };
        for _ in 0..4 {
            match self.san.translate(&self.ram, cpu, va, access) {
                Ok(translation) => return Some(translation.phys),
                Err(Fault::NotHashed | Fault::Permission) => {}
                Err(fault) => panic!("{fault}"),
            }
            if !self.refill(space, va, write) {
                return None;
            }
        }
        None
    }

    /// Ends a space: its pages are flushed, its tables freed.
    pub fn exit(&mut self, space: u64) {
        for cpu in 0..self.loaded.len() {
            // One CPU stays in it if tables are freed early.
            if self.loaded[cpu] == Some(space) && !self.has(Defect::FreedEarly) {
                self.loaded[cpu] = None;
                self.san.leave(cpu);
            }
        }
        let tables = self.spaces[&space].2.clone();
        for (upper, table) in &tables {
            for index in 0..1024 {
                let raw = self.get(table + 4 * index);
                if raw == 0 {
                    continue;
                }
                self.store(table + 4 * index, raw & BIT);
                match self.defect {
                    Some(Defect::SegmentsReused) => self.store(table + 4 * index, 0),
                    _ => self.flush(space, upper << 22 | index << 12),
                }
            }
        }
        let (root, number, _) = self.spaces[&space].clone();
        for (upper, table) in tables {
            self.store(root + 4 * upper, 0);
            self.give_back(table);
        }
        for cpu in 0..self.loaded.len() {
            if self.loaded[cpu] == Some(space) {
                self.loaded[cpu] = None;
                self.san.leave(cpu);
            }
        }
        self.give_back(root);
        self.spaces.remove(&space);
        self.spare.insert(number);
    }

    /// Whether a rule was broken.
    pub fn broke(&self, rule: Rule) -> bool {
        self.san.findings().iter().any(|finding| finding.rule == rule)
    }

    /// Checks that the hash table agrees with the tables, and returns the number of valid entries.
    pub fn check(&mut self) -> u64 {
        self.san.check_hash_table(&self.ram)
    }
}
