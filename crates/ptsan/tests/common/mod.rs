//! A machine for tests: memory, a frame allocator, and a small page-table implementation that is
//! correct except for the one mistake that a test asks for.
#![allow(dead_code, reason = "every test file uses another part of it")]

use ptsan::{Access, Arch, Config, Content, Entry, Fault, Flush, Kind, Sanitizer, Translation};
use std::collections::{BTreeMap, BTreeSet};

pub const PAGE: u64 = 4096;
pub const PRESENT: u64 = 1;
pub const WRITE: u64 = 2;
pub const USER: u64 = 4;
pub const LARGE: u64 = 1 << 7;
pub const GLOBAL: u64 = 1 << 8;
pub const RW: u64 = PRESENT | WRITE | USER;
pub const RO: u64 = PRESENT | USER;

const MEMORY: usize = 1 << 20;

pub struct Machine {
    pub ram: Vec<u8>,
    pub san: Sanitizer,
    pub arch: Arch,
    pub asids: bool,
    free: BTreeMap<u64, Vec<u64>>,
    next: u64,
    spaces: BTreeMap<u64, Space>,
    cpus: Vec<Option<u64>>,
    /// The CPU that ignores every flush from now on.
    pub deaf: Option<usize>,
    /// Whether every store is told.
    pub tells: bool,
}

struct Space {
    root: u64,
    /// CPUs that must flush when they load the space again (ASIDs only).
    behind: BTreeSet<usize>,
}

impl Machine {
    pub fn new(arch: Arch, cpus: usize) -> Self {
        Self::with(Config { cpus, ..Config::new(arch) })
    }

    pub fn with(config: Config) -> Self {
        Self {
            ram: vec![0; MEMORY],
            arch: config.arch.clone(),
            asids: config.asids,
            cpus: vec![None; config.cpus],
            san: Sanitizer::new(config),
            free: BTreeMap::new(),
            next: PAGE,
            spaces: BTreeMap::new(),
            deaf: None,
            tells: false,
        }
    }

    pub fn get(&self, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.ram[at..at + 8].try_into().unwrap())
    }

    pub fn put(&mut self, at: u64, entry: u64) {
        let at = at as usize;
        self.ram[at..at + 8].copy_from_slice(&entry.to_le_bytes());
        if self.tells {
            self.san.entry_written(&self.ram, at as u64);
        }
    }

    /// Allocates and announces a zeroed table of a level.
    pub fn table(&mut self, level: u8) -> u64 {
        let size = u64::from(self.arch.levels[level as usize].table_bytes);
        let phys = self.free.get_mut(&size).and_then(Vec::pop).unwrap_or_else(|| {
            let phys = self.next;
            self.next += PAGE;
            phys
        });
        self.san.table_allocated(&self.ram, phys, size, Some(level), Content::Zero);
        phys
    }

    pub fn give_back(&mut self, level: u8, phys: u64) {
        let size = u64::from(self.arch.levels[level as usize].table_bytes);
        self.san.table_freed(&self.ram, phys, size);
        self.free.entry(size).or_default().push(phys);
    }

    pub fn space(&mut self, space: u64) -> u64 {
        let root = self.table(self.arch.top());
        self.spaces.insert(space, Space { root, behind: BTreeSet::new() });
        self.san.space_created(space);
        root
    }

    pub fn root(&self, space: u64) -> u64 {
        self.spaces[&space].root
    }

    pub fn switch(&mut self, cpu: usize, space: u64) {
        let root = self.root(space);
        self.san.switch(&self.ram, cpu, root, space);
        self.cpus[cpu] = Some(space);
        if self.spaces.get_mut(&space).unwrap().behind.remove(&cpu) && self.deaf != Some(cpu) {
            self.san.flush(&self.ram, cpu, Flush::space(space));
        }
    }

    pub fn leave(&mut self, cpu: usize) {
        self.san.leave(cpu);
        self.cpus[cpu] = None;
    }

    pub fn loaded(&self, cpu: usize) -> Option<u64> {
        self.cpus[cpu]
    }

    /// Flushes on every CPU that has the space loaded. The others catch up when they load it.
    pub fn shootdown(&mut self, space: u64, flush: Flush) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu] == Some(space) {
                if self.deaf != Some(cpu) {
                    self.san.flush(&self.ram, cpu, flush);
                }
            } else if self.asids {
                self.spaces.get_mut(&space).unwrap().behind.insert(cpu);
            }
        }
    }

    fn entry_at(&self, level: u8, table: u64, va: u64) -> u64 {
        let l = &self.arch.levels[level as usize];
        table + l.index(va) * u64::from(l.entry_bytes)
    }

    /// Lists the entries on the way to `va`, from the root down to the first that is no table.
    pub fn path(&self, space: u64, va: u64) -> Vec<(u8, u64, u64)> {
        let mut table = self.root(space);
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

    /// Maps a page of the level's size and makes missing tables.
    pub fn map_at(&mut self, space: u64, level: u8, va: u64, entry: u64) {
        loop {
            let &(at_level, _, at) = self.path(space, va).last().unwrap();
            if at_level == level {
                self.put(at, entry);
                return;
            }
            let table = self.table(at_level - 1);
            let in_register = self.arch.top_registers && at_level == self.arch.top();
            self.put(at, table | if in_register { PRESENT } else { RW });
            if in_register {
                self.shootdown(space, Flush::space(space));
            }
        }
    }

    pub fn map(&mut self, space: u64, va: u64, entry: u64) {
        let old = self.lookup(space, va);
        if old != 0 && self.arch.break_before_make {
            self.map_at(space, 0, va, 0);
            self.shootdown(space, Flush::page(space, va));
        }
        self.map_at(space, 0, va, entry);
        if old != 0 {
            self.shootdown(space, Flush::page(space, va));
        }
    }

    /// Returns the raw last-level entry, or 0 if there is no such entry.
    pub fn lookup(&self, space: u64, va: u64) -> u64 {
        match self.path(space, va).last() {
            Some(&(0, _, at)) => self.get(at),
            _ => 0,
        }
    }

    /// Unmaps a page, and unhooks, flushes and frees the tables that are empty then.
    pub fn unmap(&mut self, space: u64, va: u64) {
        let mut empty = Vec::new();
        for (level, table, at) in self.path(space, va).into_iter().rev() {
            self.put(at, 0);
            let bytes = u64::from(self.arch.levels[level as usize].table_bytes);
            let clear = (table..table + bytes).step_by(8).all(|a| self.get(a) == 0);
            if level == self.arch.top() || !clear {
                break;
            }
            empty.push((level, table));
        }
        let reload = self.arch.top_registers && empty.iter().any(|&(level, _)| level + 1 == self.arch.top());
        let flush = if reload { Flush::space(space) } else { Flush::page(space, va) };
        self.shootdown(space, flush);
        for (level, table) in empty {
            self.give_back(level, table);
        }
    }

    /// Unloads and frees a whole space, tables first.
    pub fn destroy(&mut self, space: u64) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu] == Some(space) {
                self.leave(cpu);
            }
        }
        let root = self.spaces[&space].root;
        self.give_back_below(self.arch.top(), root);
        self.spaces.remove(&space);
        self.san.space_destroyed(space);
    }

    fn give_back_below(&mut self, level: u8, table: u64) {
        let l = self.arch.levels[level as usize];
        for at in (table..table + u64::from(l.table_bytes)).step_by(8) {
            let entry = (self.arch.decode)(level, self.get(at));
            self.put(at, 0);
            if let Entry::Table { phys, .. } = entry {
                self.give_back_below(level - 1, phys);
            }
        }
        self.give_back(level, table);
    }

    pub fn access(&mut self, cpu: usize, va: u64, access: Access) -> Result<Translation, Fault> {
        self.san.translate(&self.ram, cpu, va, access)
    }

    pub fn read(&mut self, cpu: usize, va: u64) -> Option<u64> {
        self.access(cpu, va, Access::READ).ok().map(|t| t.phys)
    }

    pub fn flush(&mut self, cpu: usize, flush: Flush) {
        self.san.flush(&self.ram, cpu, flush);
    }

    pub fn probe(&mut self, cpu: usize, va: u64) {
        self.san.probe_walk(&self.ram, cpu, va);
    }

    pub fn count(&self, kind: Kind) -> u64 {
        self.san.count(kind)
    }

    /// Checks that there are findings, all of this kind.
    #[track_caller]
    pub fn found_only(&self, kind: Kind) {
        assert!(self.count(kind) > 0, "no {kind} found");
        assert_eq!(self.san.total(), self.count(kind), "{}", self.san);
    }
}

/// Makes a machine with space 1 loaded on all CPUs.
pub fn ready(arch: Arch, cpus: usize) -> Machine {
    let mut m = Machine::new(arch, cpus);
    m.space(1);
    for cpu in 0..cpus {
        m.switch(cpu, 1);
    }
    m
}
