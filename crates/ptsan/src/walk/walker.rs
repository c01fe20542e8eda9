//! Walks that start at a CPU's paging-structure cache and fill its caches.
use crate::arch::{Access, AccessKind, Contiguous, Entry, Perms, StructureScope};
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

/// The end of a descent.
pub(super) enum Descent {
    /// The table of the level at which to stop, which is cached now.
    Paused(Table),
    Ended(Result<Translation, Fault>),
}

/// A walk of a CPU for an address. Without an access, it is a speculative one.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    pub(super) cpu: usize,
    pub(super) loaded: Loaded,
    pub(super) va: u64,
    pub(super) access: Option<Access>,
}

impl Walk {
    /// Returns the place of a table of a level.
    fn place(&self, table: u64, level: u8) -> Place {
        Place {
            frame: Some(table),
            va: Some(self.va),
            cpu: Some(self.cpu),
            level: Some(level),
            space: Some(self.loaded.space),
        }
    }
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
        let result = self.descend_to_end(memory, &Walk { cpu, loaded, va, access }, (table, level));
        Walked { result, from: cached.then_some((table, level)), cached }
    }

    /// Reads entries from a table downwards, and caches them.
    pub(super) fn descend_to_end(
        &mut self,
        memory: &(impl Memory + ?Sized),
        walk: &Walk,
        from: (Table, u8),
    ) -> Result<Translation, Fault> {
        match self.descend(memory, walk, from, None) {
            Descent::Ended(result) => result,
            // It does not stop before the end.
            Descent::Paused(_) => Err(Fault::NotPresent { level: from.1 }),
        }
    }

    /// As [`Self::descend_to_end`], to the table of level `stop` at most.
    pub(super) fn descend(
        &mut self,
        memory: &(impl Memory + ?Sized),
        walk: &Walk,
        (mut table, mut level): (Table, u8),
        stop: Option<u8>,
    ) -> Descent {
        while stop != Some(level) {
            let l = self.config.arch.levels[usize::from(level)];
            let at = table.phys.wrapping_add(l.index(walk.va) * u64::from(l.entry_bytes));
            let Some(raw) = memory.read(at, l.entry_bytes) else {
                let place = walk.place(table.phys, level);
                self.report(Kind::OutsideMemory, Rule::NoMemory, place, || format!("read of {at:#x}"));
                return Descent::Ended(Err(Fault::OutsideMemory { level }));
            };
            // Only pages need more than the decoder says.
            match (self.config.arch.decode)(level, raw) {
                Entry::Table { phys, perms } if level > 0 => {
                    if self.config.walkers_set_bits {
                        self.use_link(memory, (table.frame, at), level, raw);
                    }
                    level -= 1;
                    let link = Link { entry: at, parent: table.frame };
                    let frame = match self.frames.reached_before(phys, link, level) {
                        Some(frame) => frame,
                        None => self.reached_by(memory, walk, link, (phys, level)),
                    };
                    table = Table { phys, frame, perms: table.perms & perms };
                    self.cache_table(walk.cpu, walk.loaded.context, walk.va, level, table);
                }
                _ => return Descent::Ended(self.end_walk(memory, walk, (table, level), (at, raw))),
            }
        }
        Descent::Paused(table)
    }

    /// Checks a table of a level that a walk reaches in another way than before.
    #[cold]
    fn reached_by(
        &mut self,
        memory: &(impl Memory + ?Sized),
        walk: &Walk,
        link: Link,
        (phys, level): (u64, u8),
    ) -> FrameRef {
        self.reached(memory, phys, Some(link), walk.place(phys, level), true)
    }

    /// Ends a walk at an entry that leads to no other table, and caches the page that it maps.
    /// Apart, so that the loop above keeps what it needs in registers.
    #[inline(never)]
    fn end_walk(
        &mut self,
        memory: &(impl Memory + ?Sized),
        walk: &Walk,
        (table, level): (Table, u8),
        (at, mut raw): (u64, u64),
    ) -> Result<Translation, Fault> {
        let &Walk { cpu, loaded, va, access } = walk;
        if self.keeps_bits() {
            raw = self.use_page(memory, walk, (table, level), (at, raw));
        }
        let l = self.config.arch.levels[usize::from(level)];
        match self.config.arch.entry(level, l.index(va), raw) {
            Entry::Empty => {
                self.keep_invalid(walk, level, at);
                Err(Fault::NotPresent { level })
            }
            Entry::Leaf { accessed: false, .. } => Err(Fault::NotAccessed { level }),
            Entry::Leaf { phys, perms, global, memory_type, accessed } => {
                let perms = table.perms & perms;
                let denied = access.is_some_and(|a| !perms.allows(a));
                if denied && !self.config.arch.keeps_denied {
                    return Err(Fault::Permission);
                }
                let (since, via) = (self.event, table.frame);
                let written = access.is_some_and(|access| !denied && access.kind == AccessKind::Write);
                let dirty = || self.config.arch.hardware_bits.is_some_and(|of| of(level, raw).dirty);
                let dirty = self.keeps_bits() && (written || dirty());
                let entry = TlbEntry { phys, since, via, perms, memory_type, denied: false, dirty };
                self.fill(cpu, loaded, va, level, entry, global);
                let run = self.config.arch.run_of(level, raw);
                if run.entries_log2 > 0 {
                    self.fill_run(memory, (cpu, loaded), va, level, (table, entry, global), run);
                }
                if denied {
                    return Err(Fault::Permission);
                }
                let phys = phys.wrapping_add(va & ((1 << l.shift) - 1));
                Ok(Translation { phys, perms, level, global, memory_type, accessed, from_tlb: false })
            }
            Entry::Table { .. } | Entry::Malformed => {
                self.report(Kind::MalformedEntry, Rule::Reserved, walk.place(table.phys, level), || {
                    format!("the entry at {at:#x} is {raw:#x}")
                });
                Err(Fault::Malformed { level })
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
            self.fill(cpu, loaded, va, level, TlbEntry { phys, dirty: false, ..entry }, global);
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

    /// Caches the table of a level for `va`.
    pub(super) fn cache_table(&mut self, cpu: usize, context: u32, va: u64, level: u8, table: Table) {
        let arch = &self.config.arch;
        if arch.structures == StructureScope::None {
            return;
        }
        let position = arch.position(level, va);
        let caches = &mut self.cpus[cpu].contexts[context as usize];
        caches.set_table(position, table);
        let (generation, since) = (caches.generation, self.event);
        let holder = Holder { cpu: cpu as u16, context, generation, position, since };
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
