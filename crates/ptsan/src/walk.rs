//! Translating addresses: the TLB, walks through the paging-structure cache, and what memory itself says.
use crate::arch::{Access, Entry, Perms, StructureScope};
use crate::frames::{FrameRef, Holder, Link};
use crate::memory::Memory;
use crate::mmu::{Loaded, Register, Table, TlbEntry};
use crate::operations::Suspect;
use crate::report::{Kind, Place, Rule};
use crate::sanitizer::Sanitizer;
use crate::translation::{Fault, Translation};

/// In place of a context in a [`Holder`]: the global translations.
pub(crate) const GLOBALS: u32 = u32::MAX - 1;

/// Where a walk begins.
pub(crate) struct Start {
    pub(crate) table: Table,
    pub(crate) level: u8,
    /// Not at the root in memory.
    pub(crate) cached: bool,
}

/// What one entry led to.
pub(crate) enum Step {
    /// The table of the level below, cached by now.
    Down(Table),
    End(Result<Translation, Fault>),
}

/// How a walk ended.
struct Walked {
    result: Result<Translation, Fault>,
    /// What it began with, if that was cached.
    from: Option<(Table, u8)>,
    cached: bool,
}

impl Sanitizer {
    /// An access by the code that the page tables are for: the TLB answers, else the tables are walked through the
    /// CPU's paging-structure cache, and both caches are filled.
    ///
    /// Call it between operations of the code under test (or tell of these, see
    /// [`Sanitizer::operation_begins`]): an answer that memory no longer gives is a finding ([`Kind::StaleUse`]). Memory that allows *more* than a cached entry is none: the hardware faults, drops what
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
        self.hook(|s| {
            s.adversary_acts(memory);
            s.notice(va);
            s.access(memory, cpu, va, access)
        })
    }

    fn access(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        va: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        self.stats.translations += 1;
        let loaded = self.loaded(cpu, va)?;
        if let Some(hit) = self.cached(cpu, loaded.context, va) {
            if hit.perms.allows(access) {
                self.stats.tlb_hits += 1;
                let truth = self.look(memory, loaded.root, va);
                if let (true, Ok(truth)) = (self.config.arch.break_before_make, truth) {
                    self.check_beside(memory, (cpu, loaded), va, hit, truth);
                }
                self.compare(cpu, loaded, va, access, Ok(hit), truth);
                return Ok(hit);
            }
            self.stats.spurious_faults += 1;
            self.drop_translation(cpu, loaded.context, va);
        }
        let walked = self.walk(memory, cpu, loaded, va, Some(access));
        if self.config.eager_walkers {
            self.others_walk(memory, cpu, loaded, va);
        }
        let mut result = walked.result;
        if !walked.cached {
            return result;
        }
        let truth = self.look(memory, loaded.root, va);
        self.check_walk_beside(memory, (cpu, loaded), va, &walked, truth);
        if result.is_err() {
            // A fault drops the entries that were used for the address (Intel SDM vol. 3, 4.10.4.1).
            self.drop_translation(cpu, loaded.context, va);
            if truth.is_ok_and(|t| t.accessed && t.perms.allows(access)) {
                self.stats.spurious_faults += 1;
                result = self.walk(memory, cpu, loaded, va, Some(access)).result;
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
        self.hook(|s| {
            s.notice(va);
            if let Ok(loaded) = s.loaded(cpu, va) {
                s.probe(memory, cpu, loaded, va);
            }
        });
    }

    /// A speculative walk. Where two valid translations must not meet, it finds out whether they would.
    pub(crate) fn probe(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, loaded: Loaded, va: u64) {
        let beside = self.config.arch.break_before_make;
        if let Some(hit) = self.cached(cpu, loaded.context, va) {
            if beside && let Ok(truth) = self.look(memory, loaded.root, va) {
                self.check_beside(memory, (cpu, loaded), va, hit, truth);
            }
            return;
        }
        let walked = self.walk(memory, cpu, loaded, va, None);
        if beside && walked.cached {
            let truth = self.look(memory, loaded.root, va);
            self.check_walk_beside(memory, (cpu, loaded), va, &walked, truth);
        }
    }

    /// What a walk from a cached table found, beside what memory says.
    fn check_walk_beside(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        walked: &Walked,
        truth: Result<Translation, Fault>,
    ) {
        let Ok(truth) = truth else { return };
        if !self.config.arch.break_before_make {
            return;
        }
        match (walked.result, walked.from) {
            (Ok(held), _) => self.check_beside(memory, (cpu, loaded), va, held, truth),
            (Err(_), Some((table, level))) if truth.level > level => {
                self.check_table_beside_block((cpu, loaded), va, table, truth);
            }
            _ => {}
        }
    }

    /// The other CPUs with the same root walk for the same address, speculatively.
    fn others_walk(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, loaded: Loaded, va: u64) {
        for other in (0..self.cpus.len()).filter(|&c| c != cpu) {
            if let Some(theirs) = self.cpus[other].loaded
                && theirs.root == loaded.root
                && self.cpus[other].settled
            {
                self.probe(memory, other, theirs, va);
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
        self.cpus[cpu].settled = true;
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
        let TlbEntry { phys, perms, memory_type, .. } = entry;
        let phys = phys.wrapping_add(offset);
        Some(Translation { phys, perms, level, global, memory_type, accessed: true, from_tlb: true })
    }

    fn drop_translation(&mut self, cpu: usize, context: u32, va: u64) {
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        c.globals.flush_page(arch, va, true);
        c.contexts[context as usize].drop_address(arch, va);
        c.flights.retain(|f| arch.position(f.level, f.va) != arch.position(f.level, va));
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
                Entry::Leaf { phys, perms, global, accessed, memory_type } => {
                    let phys = phys.wrapping_add(va & ((1 << l.shift) - 1));
                    let perms = allowed & perms;
                    let from_tlb = false;
                    return Ok(Translation { phys, perms, level, global, memory_type, accessed, from_tlb });
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

    /// Reports an answer from the caches that memory does not give, or suspects it while operations are under way.
    fn compare(
        &mut self,
        cpu: usize,
        loaded: Loaded,
        va: u64,
        access: Access,
        used: Result<Translation, Fault>,
        truth: Result<Translation, Fault>,
    ) {
        if let Some(rule) = contradiction(access, used, truth)
            && !self.operations.suspect(cpu, loaded.space, va, access, self.event)
        {
            self.report_stale((cpu, loaded.space), va, access, rule, used, truth, "");
        }
    }

    /// A CPU used an old translation while operations were under way, and all of these have ended.
    pub(crate) fn look_again(&mut self, memory: &(impl Memory + ?Sized), suspect: &Suspect) {
        let &Suspect { cpu, space, va, access, event, .. } = suspect;
        // A CPU that has left the space will be looked at when it comes back.
        let Some(loaded) = self.cpus.get(cpu).and_then(|c| c.loaded).filter(|l| l.space == space) else {
            return;
        };
        let Some(held) = self.cached(cpu, loaded.context, va).filter(|h| h.perms.allows(access)) else {
            return;
        };
        let truth = self.look(memory, loaded.root, va);
        if let Some(rule) = contradiction(access, Ok(held), truth) {
            let when = format!("used at event {event}, and held still when the operation ended; ");
            self.report_stale((cpu, space), va, access, rule, Ok(held), truth, &when);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all of it is the report")]
    fn report_stale(
        &mut self,
        (cpu, space): (usize, u64),
        va: u64,
        access: Access,
        rule: Rule,
        used: Result<Translation, Fault>,
        truth: Result<Translation, Fault>,
        when: &str,
    ) {
        let level = used.or(truth).ok().map(|t| t.level);
        let place = Place { va: Some(va), cpu: Some(cpu), level, space: Some(space), frame: None };
        let why = self.explain_flush(cpu, space, Some(va), None, None);
        self.report(Kind::StaleUse, rule, place, || {
            let show = |t: Result<Translation, Fault>| match t {
                Ok(t) => format!("{:#x} ({})", t.phys, t.perms),
                Err(fault) => fault.to_string(),
            };
            format!("{:?}: {when}CPU used {}, memory says {}; {why}", access.kind, show(used), show(truth))
        });
    }

    /// The deepest table for `va` that the CPU has cached.
    pub(crate) fn start(&self, cpu: usize, loaded: Loaded, va: u64) -> Result<Start, Fault> {
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

    /// Walks the tables for `va`, through the CPU's caches; `None` is a speculative walk.
    fn walk(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        va: u64,
        access: Option<Access>,
    ) -> Walked {
        self.stats.walks += 1;
        match self.start(cpu, loaded, va) {
            Err(fault) => Walked { result: Err(fault), from: None, cached: true },
            Ok(start) => {
                let Start { table, level, cached } = start;
                self.stats.structure_hits += u64::from(cached);
                if cached {
                    self.check_cached_table(cpu, loaded, va, table, level);
                }
                let result = self.descend(memory, (cpu, loaded), va, access, (table, level));
                Walked { result, from: cached.then_some((table, level)), cached }
            }
        }
    }

    /// Reads entries from a table of a level on downwards, and caches what they say.
    pub(crate) fn descend(
        &mut self,
        memory: &(impl Memory + ?Sized),
        on: (usize, Loaded),
        va: u64,
        access: Option<Access>,
        (mut table, mut level): (Table, u8),
    ) -> Result<Translation, Fault> {
        loop {
            match self.step(memory, on, va, access, (table, level)) {
                Step::Down(below) => (table, level) = (below, level - 1),
                Step::End(result) => return result,
            }
        }
    }

    /// Reads the entry for `va` in a table of a level, and caches what it says.
    #[inline]
    pub(crate) fn step(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        access: Option<Access>,
        (table, level): (Table, u8),
    ) -> Step {
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
            return Step::End(Err(Fault::OutsideMemory { level }));
        };
        match (self.config.arch.decode)(level, raw) {
            Entry::Empty => Step::End(Err(Fault::NotPresent { level })),
            Entry::Leaf { accessed: false, .. } => Step::End(Err(Fault::NotAccessed { level })),
            Entry::Leaf { phys, perms, global, memory_type, accessed } => {
                let perms = table.perms & perms;
                if access.is_some_and(|a| !perms.allows(a)) {
                    return Step::End(Err(Fault::Permission));
                }
                let entry = TlbEntry { phys, since: self.event, via: table.frame, perms, memory_type };
                self.fill(cpu, loaded, va, level, entry, global);
                let phys = phys.wrapping_add(va & ((1 << l.shift) - 1));
                let from_tlb = false;
                Step::End(Ok(Translation { phys, perms, level, global, memory_type, accessed, from_tlb }))
            }
            Entry::Table { phys, perms } if level > 0 => {
                let link = Some(Link { entry: at, parent: table.frame });
                let place = Place { frame: Some(phys), level: Some(level - 1), ..place };
                let frame = self.reached(memory, phys, link, place, true);
                let table = Table { phys, frame, perms: table.perms & perms };
                self.cache_table(cpu, loaded, va, level - 1, table);
                Step::Down(table)
            }
            Entry::Table { .. } | Entry::Malformed => {
                self.report(Kind::MalformedEntry, Rule::Reserved, place, || {
                    format!("the entry at {at:#x} is {raw:#x}")
                });
                Step::End(Err(Fault::Malformed { level }))
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

    pub(crate) fn cache_table(&mut self, cpu: usize, loaded: Loaded, va: u64, level: u8, table: Table) {
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
    pub(crate) fn check_cached_table(
        &mut self,
        cpu: usize,
        loaded: Loaded,
        va: u64,
        table: Table,
        level: u8,
    ) {
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

/// What is wrong with an answer, if anything is, when memory says `truth`.
fn contradiction(
    access: Access,
    used: Result<Translation, Fault>,
    truth: Result<Translation, Fault>,
) -> Option<Rule> {
    match (used, truth) {
        (Ok(u), Ok(t)) if u.phys != t.phys => Some(Rule::Remapped),
        (Ok(_), Ok(t)) if !t.perms.allows(access) => Some(Rule::PermissionRemoved),
        (Ok(_), Err(_)) => Some(Rule::Unmapped),
        (Err(_), Ok(t)) if t.accessed && t.perms.allows(access) => Some(Rule::NotReloaded),
        _ => None,
    }
}
