//! Walks that start at a CPU's paging-structure cache and fill its caches.
use crate::arch::{Access, Contiguous, Entry, Perms, StructureScope};
use crate::cpu::{Fault, Loaded, Register, Table, TlbEntry, Translation};
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, GLOBALS, Holder, Link};
use crate::state::Sanitizer;

/// Where a walk begins.
pub(super) struct Start {
    pub(super) table: Table,
    pub(super) level: u8,
    /// Whether it begins at a cached table, not at the root in memory.
    pub(super) cached: bool,
}

/// The result of one entry.
pub(super) enum Next {
    /// The table of the level below, which is cached now.
    Down(Table),
    End(Result<Translation, Fault>),
}

/// The result of a walk.
pub(super) struct Walked {
    pub(super) result: Result<Translation, Fault>,
    /// The table at which it began, if that was cached.
    pub(super) from: Option<(Table, u8)>,
    pub(super) cached: bool,
}

impl Sanitizer {
    /// Returns the deepest table for `va` that the CPU has cached.
    pub(super) fn start(&self, cpu: usize, loaded: Loaded, va: u64) -> Result<Start, Fault> {
        let arch = &self.config.arch;
        let c = &self.cpus[cpu];
        let top = arch.top();
        if arch.structures != StructureScope::None {
            let context = &c.contexts[loaded.context as usize];
            let levels = if context.has_tables() { 0..top } else { 0..0 };
            for level in levels {
                if let Some(table) = context.table(arch.position(level, va)) {
                    return Ok(Start { table, level, cached: true });
                }
            }
        }
        if arch.top_registers && top > 0 {
            let index = arch.levels[top as usize].index(va) as usize;
            return match c.registers.get(index) {
                Some(&Register::Table { phys, perms, frame }) => {
                    Ok(Start { table: Table { phys, frame, perms }, level: top - 1, cached: true })
                }
                _ => Err(Fault::NotPresent { level: top }),
            };
        }
        let table = Table { phys: loaded.root, frame: loaded.frame, perms: Perms::ALL };
        Ok(Start { table, level: top, cached: false })
    }

    /// Walks the tables for `va` through the CPU's caches. `None` is a speculative walk.
    pub(super) fn walk(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        va: u64,
        access: Option<Access>,
    ) -> Walked {
        match self.start(cpu, loaded, va) {
            Ok(start) => self.walk_from(memory, (cpu, loaded), va, access, start),
            Err(fault) => {
                self.stats.walks += 1;
                Walked { result: Err(fault), from: None, cached: true }
            }
        }
    }

    /// As [`Self::walk`], from where [`Self::start`] says.
    pub(super) fn walk_from(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        access: Option<Access>,
        Start { table, level, cached }: Start,
    ) -> Walked {
        self.stats.walks += 1;
        self.stats.structure_hits += u64::from(cached);
        if cached {
            self.check_cached_table(cpu, loaded, va, table, level);
        }
        let result = self.descend(memory, (cpu, loaded), va, access, (table, level));
        Walked { result, from: cached.then_some((table, level)), cached }
    }

    /// Reads entries from a table downwards, and caches them.
    pub(super) fn descend(
        &mut self,
        memory: &(impl Memory + ?Sized),
        on: (usize, Loaded),
        va: u64,
        access: Option<Access>,
        (mut table, mut level): (Table, u8),
    ) -> Result<Translation, Fault> {
        loop {
            match self.step(memory, on, va, access, (table, level)) {
                Next::Down(below) => (table, level) = (below, level - 1),
                Next::End(result) => return result,
            }
        }
    }

    /// Reads the entry for `va` in a table of a level, and caches it.
    #[inline]
    pub(super) fn step(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        access: Option<Access>,
        (table, level): (Table, u8),
    ) -> Next {
        let l = self.config.arch.levels[level as usize];
        let at = table.phys.wrapping_add(l.index(va) * u64::from(l.entry_bytes));
        let place = || Place {
            frame: Some(table.phys),
            va: Some(va),
            cpu: Some(cpu),
            level: Some(level),
            space: Some(loaded.space),
        };
        let Some(raw) = memory.read(at, l.entry_bytes) else {
            self.report(Kind::OutsideMemory, Rule::NoMemory, place(), || format!("read of {at:#x}"));
            return Next::End(Err(Fault::OutsideMemory { level }));
        };
        match self.config.arch.entry(level, l.index(va), raw) {
            Entry::Empty => Next::End(Err(Fault::NotPresent { level })),
            Entry::Leaf { accessed: false, .. } => Next::End(Err(Fault::NotAccessed { level })),
            Entry::Leaf { phys, perms, global, memory_type, accessed } => {
                let perms = table.perms & perms;
                let denied = access.is_some_and(|a| !perms.allows(a));
                if denied && !self.config.arch.keeps_denied {
                    return Next::End(Err(Fault::Permission));
                }
                let (since, via) = (self.event, table.frame);
                let entry = TlbEntry { phys, since, via, perms, memory_type, denied: false };
                self.fill(cpu, loaded, va, level, entry, global);
                let run = self.config.arch.run_of(level, raw);
                if run.entries_log2 > 0 {
                    self.fill_run(memory, (cpu, loaded), va, level, (table, entry, global), run);
                }
                if denied {
                    return Next::End(Err(Fault::Permission));
                }
                let phys = phys.wrapping_add(va & ((1 << l.shift) - 1));
                let from_tlb = false;
                Next::End(Ok(Translation { phys, perms, level, global, memory_type, accessed, from_tlb }))
            }
            Entry::Table { phys, perms } if level > 0 => {
                let link = Link { entry: at, parent: table.frame };
                let frame = self.frames.reached_before(phys, link, level - 1).unwrap_or_else(|| {
                    let place = Place { frame: Some(phys), level: Some(level - 1), ..place() };
                    self.reached(memory, phys, Some(link), place, true)
                });
                let table = Table { phys, frame, perms: table.perms & perms };
                self.cache_table(cpu, loaded, va, level - 1, table);
                Next::Down(table)
            }
            Entry::Table { .. } | Entry::Malformed => {
                self.report(Kind::MalformedEntry, Rule::Reserved, place(), || {
                    format!("the entry at {at:#x} is {raw:#x}")
                });
                Next::End(Err(Fault::Malformed { level }))
            }
        }
    }

    /// Caches the other pages of a run, as far as their entries say the same.
    fn fill_run(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        level: u8,
        (table, entry, global): (Table, TlbEntry, bool),
        run: Contiguous,
    ) {
        let arch = &self.config.arch;
        let l = arch.levels[usize::from(level)];
        let index = l.index(va);
        let first = index & !((1 << run.entries_log2) - 1);
        let others = (first..first + (1 << run.entries_log2)).filter(|&other| other != index);
        let fits = |other: u64| {
            let raw =
                memory.read(table.phys.wrapping_add(other * u64::from(l.entry_bytes)), l.entry_bytes)?;
            let distance = other.wrapping_sub(index) << l.shift;
            let same = match self.config.arch.entry(level, other, raw) {
                Entry::Leaf { phys, perms, global: g, memory_type, accessed: true } => {
                    phys == entry.phys.wrapping_add(distance)
                        && table.perms & perms == entry.perms
                        && (g, memory_type) == (global, entry.memory_type)
                        && self.config.arch.run_of(level, raw) == run
                }
                _ => false,
            };
            same.then(|| (va.wrapping_add(distance), entry.phys.wrapping_add(distance)))
        };
        let found: Vec<_> = others.filter_map(fits).collect();
        for (va, phys) in found {
            self.fill(cpu, loaded, va, level, TlbEntry { phys, ..entry }, global);
        }
    }

    fn fill(&mut self, cpu: usize, loaded: Loaded, va: u64, level: u8, entry: TlbEntry, global: bool) {
        // For a device the number is the tag of every entry.
        let global = global && !self.is_device(cpu);
        let arch = &self.config.arch;
        let position = arch.position(level, va);
        let c = &mut self.cpus[cpu];
        let (context, number) = if global {
            (&mut c.globals, GLOBALS)
        } else {
            (&mut c.contexts[loaded.context as usize], loaded.context)
        };
        context.insert(arch, level, va, entry);
        let generation = context.generation;
        // A valid paging-structure entry for the same table has already made the CPU a holder.
        let known =
            !global && context.table(position).is_some_and(|t| t.frame == entry.via) && level < arch.top();
        if !known {
            let since = self.event;
            self.hold(
                entry.via,
                Holder { cpu: cpu as u16, context: number, generation, position, since },
                va,
            );
        }
    }

    pub(super) fn cache_table(&mut self, cpu: usize, loaded: Loaded, va: u64, level: u8, table: Table) {
        let arch = &self.config.arch;
        if arch.structures == StructureScope::None {
            return;
        }
        let position = arch.position(level, va);
        let context = &mut self.cpus[cpu].contexts[loaded.context as usize];
        context.set_table(position, table);
        let (generation, since) = (context.generation, self.event);
        let holder = Holder { cpu: cpu as u16, context: loaded.context, generation, position, since };
        self.hold(table.frame, holder, va);
    }

    /// Reports a cached table that was freed since.
    pub(super) fn check_cached_table(
        &mut self,
        cpu: usize,
        loaded: Loaded,
        va: u64,
        table: Table,
        level: u8,
    ) {
        if table.frame == FrameRef::UNKNOWN
            || self.is_table(table.frame)
            || self.blamed.contains_key(&table.frame)
        {
            return;
        }
        let place = Place {
            frame: Some(table.phys),
            va: Some(va),
            cpu: Some(cpu),
            level: Some(level),
            space: Some(loaded.space),
        };
        self.report(Kind::UseAfterFree, Rule::WalkedAfterFree, place, || {
            "reached through the CPU's paging-structure cache".to_owned()
        });
    }
}
