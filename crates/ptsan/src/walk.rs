//! Translating addresses: the TLB, walks through the paging-structure cache, and what memory itself says.
use crate::arch::{Access, Entry, Perms, StructureScope};
use crate::frames::{FrameRef, Holder, Link};
use crate::memory::Memory;
use crate::mmu::{Loaded, Register, Table, TlbEntry};
use crate::report::{Kind, Place, Rule};
use crate::sanitizer::Sanitizer;
use std::fmt;

/// In place of a context in a [`Holder`]: the global translations.
pub(crate) const GLOBALS: u32 = u32::MAX - 1;

/// Where an access ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Physical address of the byte accessed.
    pub phys: u64,
    /// What the translation allows.
    pub perms: Perms,
    /// The level whose entry maps the page; 0 is the smallest page size.
    pub level: u8,
    /// The same in every address space.
    pub global: bool,
    /// Whether the TLB answered.
    pub from_tlb: bool,
}

/// Why an access cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The entry at this level is empty.
    NotPresent {
        /// Level of the entry.
        level: u8,
    },
    /// The page is mapped, but not for this access.
    Permission,
    /// Reserved bits are set in an entry of this level.
    Malformed {
        /// Level of the entry.
        level: u8,
    },
    /// The table of this level lies outside memory.
    OutsideMemory {
        /// Level of the table.
        level: u8,
    },
    /// The address is not canonical.
    NonCanonical,
    /// The CPU does not exist or has no root loaded.
    NoRoot,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPresent { level } => write!(f, "not present at level {level}"),
            Self::Permission => write!(f, "not permitted"),
            Self::Malformed { level } => write!(f, "reserved bits set at level {level}"),
            Self::OutsideMemory { level } => write!(f, "table of level {level} outside memory"),
            Self::NonCanonical => write!(f, "address not canonical"),
            Self::NoRoot => write!(f, "no root loaded"),
        }
    }
}

impl std::error::Error for Fault {}

/// Where a walk begins.
struct Start {
    table: Table,
    level: u8,
    /// Not at the root in memory.
    cached: bool,
}

impl Sanitizer {
    /// An access by the code that the page tables are for: the TLB answers, else the tables are walked through the
    /// CPU's paging-structure cache, and both caches are filled.
    ///
    /// Call it between operations of the code under test: an answer that memory no longer gives is a finding
    /// ([`Kind::StaleUse`]). Memory that allows *more* than a cached entry is none: the hardware faults, drops what
    /// it used, and the handler retries.
    ///
    /// # Errors
    /// The fault that the access raises, after that retry.
    pub fn translate(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        va: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        self.event += 1;
        self.stats.translations += 1;
        let loaded = self.loaded(cpu, va)?;
        if let Some(hit) = self.cached(cpu, loaded.context, va) {
            if hit.perms.allows(access) {
                self.stats.tlb_hits += 1;
                let truth = self.look(memory, loaded.root, va);
                self.compare(cpu, loaded, va, access, Ok(hit), truth);
                return Ok(hit);
            }
            self.stats.spurious_faults += 1;
            self.drop_translation(cpu, loaded.context, va);
        }
        let (mut result, cached) = self.walk(memory, cpu, loaded, va, Some(access));
        if self.config.eager_walkers {
            self.others_walk(memory, cpu, loaded, va);
        }
        if !cached {
            return result;
        }
        let truth = self.look(memory, loaded.root, va);
        if result.is_err() {
            // A fault drops the entries that were used for the address (Intel SDM vol. 3, 4.10.4.1).
            self.drop_translation(cpu, loaded.context, va);
            if truth.is_ok_and(|t| t.perms.allows(access)) {
                self.stats.spurious_faults += 1;
                result = self.walk(memory, cpu, loaded, va, Some(access)).0;
            }
        }
        self.compare(cpu, loaded, va, access, result, truth);
        result
    }

    /// A speculative walk: fills the caches as hardware may do at any time, and raises no fault.
    ///
    /// It may come in the middle of an operation, so it does not report stale translations; what it reports are
    /// tables that no walker may ever meet.
    pub fn probe_walk(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, va: u64) {
        self.event += 1;
        let Ok(loaded) = self.loaded(cpu, va) else { return };
        if self.cached(cpu, loaded.context, va).is_none() {
            let _ = self.walk(memory, cpu, loaded, va, None);
        }
    }

    /// The other CPUs with the same root walk for the same address, speculatively.
    fn others_walk(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, loaded: Loaded, va: u64) {
        for other in (0..self.cpus.len()).filter(|&c| c != cpu) {
            if let Some(theirs) = self.cpus[other].loaded
                && theirs.root == loaded.root
                && self.cached(other, theirs.context, va).is_none()
            {
                let _ = self.walk(memory, other, theirs, va, None);
            }
        }
    }

    fn loaded(&mut self, cpu: usize, va: u64) -> Result<Loaded, Fault> {
        if !self.has_cpu(cpu) {
            return Err(Fault::NoRoot);
        }
        let Some(loaded) = self.cpus[cpu].loaded else {
            self.misuse(Rule::NoRoot, Place { cpu: Some(cpu), va: Some(va), ..Place::default() });
            return Err(Fault::NoRoot);
        };
        if self.config.arch.is_canonical(va) { Ok(loaded) } else { Err(Fault::NonCanonical) }
    }

    /// What the TLB holds for `va`.
    #[inline]
    fn cached(&mut self, cpu: usize, context: u32, va: u64) -> Option<Translation> {
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        let (global, (level, entry)) = match c.contexts[context as usize].lookup(arch, va) {
            Some(own) => (false, own),
            None => (true, c.globals.lookup(arch, va)?),
        };
        let offset = va & ((1 << arch.levels[level as usize].shift) - 1);
        Some(Translation { phys: entry.phys + offset, perms: entry.perms, level, global, from_tlb: true })
    }

    fn drop_translation(&mut self, cpu: usize, context: u32, va: u64) {
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        c.globals.flush_page(arch, va, true);
        c.contexts[context as usize].drop_address(arch, va);
    }

    /// What memory says, read from the root.
    pub(crate) fn look(
        &self,
        memory: &(impl Memory + ?Sized),
        root: u64,
        va: u64,
    ) -> Result<Translation, Fault> {
        let arch = &self.config.arch;
        let mut table = root;
        let mut allowed = Perms::ALL;
        for (level, l) in arch.levels.iter().enumerate().rev() {
            let level = level as u8;
            let at = table.wrapping_add(l.index(va) * u64::from(l.entry_bytes));
            let raw = memory.read(at, l.entry_bytes).ok_or(Fault::OutsideMemory { level })?;
            match (arch.decode)(level, raw) {
                Entry::Empty => return Err(Fault::NotPresent { level }),
                Entry::Malformed => return Err(Fault::Malformed { level }),
                Entry::Leaf { phys, perms, global } => {
                    let phys = phys + (va & ((1 << l.shift) - 1));
                    return Ok(Translation { phys, perms: allowed & perms, level, global, from_tlb: false });
                }
                Entry::Table { phys, perms } => {
                    table = phys;
                    allowed = allowed & perms;
                }
            }
        }
        // An entry of level 0 that claims to be a table.
        Err(Fault::Malformed { level: 0 })
    }

    /// Reports an answer from the caches that memory does not give.
    fn compare(
        &mut self,
        cpu: usize,
        loaded: Loaded,
        va: u64,
        access: Access,
        used: Result<Translation, Fault>,
        truth: Result<Translation, Fault>,
    ) {
        let rule = match (used, truth) {
            (Ok(u), Ok(t)) if u.phys != t.phys => Rule::Remapped,
            (Ok(_), Ok(t)) if !t.perms.allows(access) => Rule::PermissionRemoved,
            (Ok(_), Err(_)) => Rule::Unmapped,
            (Err(_), Ok(t)) if t.perms.allows(access) => Rule::NotReloaded,
            _ => return,
        };
        let level = used.or(truth).ok().map(|t| t.level);
        let place = Place { va: Some(va), cpu: Some(cpu), level, space: Some(loaded.space), frame: None };
        let last = self.cpus[cpu].contexts[loaded.context as usize].last_flush();
        self.report(Kind::StaleUse, rule, place, || {
            let show = |t: Result<Translation, Fault>| match t {
                Ok(t) => format!("{:#x} ({})", t.phys, t.perms),
                Err(fault) => fault.to_string(),
            };
            let flush = last.map_or_else(
                || "it has flushed nothing since".to_owned(),
                |(event, flush)| format!("its last flush: {flush} at event {event}"),
            );
            format!("{:?}: CPU used {}, memory says {}; {flush}", access.kind, show(used), show(truth))
        });
    }

    /// The deepest table for `va` that the CPU has cached.
    fn start(&self, cpu: usize, loaded: Loaded, va: u64) -> Result<Start, Fault> {
        let arch = &self.config.arch;
        let c = &self.cpus[cpu];
        let top = arch.top();
        if arch.structures != StructureScope::None {
            let context = &c.contexts[loaded.context as usize];
            for level in 0..top {
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

    /// Walks the tables for `va`, through the CPU's caches; `None` is a speculative walk. Says too whether anything
    /// cached was used.
    fn walk(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        va: u64,
        access: Option<Access>,
    ) -> (Result<Translation, Fault>, bool) {
        self.stats.walks += 1;
        let Start { mut table, mut level, cached } = match self.start(cpu, loaded, va) {
            Ok(start) => start,
            Err(fault) => return (Err(fault), true),
        };
        self.stats.structure_hits += u64::from(cached);
        if cached {
            self.check_cached_table(cpu, loaded, va, table, level);
        }
        let decode = self.config.arch.decode;
        loop {
            let l = self.config.arch.levels[level as usize];
            let at = table.phys.wrapping_add(l.index(va) * u64::from(l.entry_bytes));
            let place = Place {
                frame: Some(table.phys),
                va: Some(va),
                cpu: Some(cpu),
                level: Some(level),
                space: Some(loaded.space),
            };
            let Some(raw) = memory.read(at, l.entry_bytes) else {
                self.report(Kind::OutsideMemory, Rule::NoMemory, place, || format!("read of {at:#x}"));
                return (Err(Fault::OutsideMemory { level }), cached);
            };
            match decode(level, raw) {
                Entry::Empty => return (Err(Fault::NotPresent { level }), cached),
                Entry::Leaf { phys, perms, global } => {
                    let perms = table.perms & perms;
                    if access.is_some_and(|a| !perms.allows(a)) {
                        return (Err(Fault::Permission), cached);
                    }
                    let entry = TlbEntry { phys, since: self.event, via: table.frame, perms };
                    self.fill(cpu, loaded, va, level, entry, global);
                    let phys = phys + (va & ((1 << l.shift) - 1));
                    return (Ok(Translation { phys, perms, level, global, from_tlb: false }), cached);
                }
                Entry::Table { phys, perms } if level > 0 => {
                    let link = Some(Link { entry: at, parent: table.frame });
                    level -= 1;
                    let place = Place { frame: Some(phys), level: Some(level), ..place };
                    let frame = self.reached(memory, phys, link, place, true);
                    table = Table { phys, frame, perms: table.perms & perms };
                    self.cache_table(cpu, loaded, va, level, table);
                }
                Entry::Table { .. } | Entry::Malformed => {
                    self.report(Kind::MalformedEntry, Rule::Reserved, place, || {
                        format!("the entry at {at:#x} is {raw:#x}")
                    });
                    return (Err(Fault::Malformed { level }), cached);
                }
            }
        }
    }

    fn fill(&mut self, cpu: usize, loaded: Loaded, va: u64, level: u8, entry: TlbEntry, global: bool) {
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
        // A valid paging-structure entry for the same table has made the CPU a holder already.
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

    fn cache_table(&mut self, cpu: usize, loaded: Loaded, va: u64, level: u8, table: Table) {
        let arch = &self.config.arch;
        if arch.structures == StructureScope::None {
            return;
        }
        let position = arch.position(level, va);
        let context = &mut self.cpus[cpu].contexts[loaded.context as usize];
        context.set_table(arch, position, table);
        let (generation, since) = (context.generation, self.event);
        let holder = Holder { cpu: cpu as u16, context: loaded.context, generation, position, since };
        self.hold(table.frame, holder, va);
    }

    /// A table that was cached when it was one may be none any more.
    fn check_cached_table(&mut self, cpu: usize, loaded: Loaded, va: u64, table: Table, level: u8) {
        if table.frame == FrameRef::UNKNOWN || self.is_table(table.frame) {
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
