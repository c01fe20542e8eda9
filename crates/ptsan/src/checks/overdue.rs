//! Reports debts that are due: CPUs that still owe a flush when it must have been carried out.
use crate::arch::{Entry, Perms, StoreOrdering};
use crate::cpu::{CombinedEntry, Cpu, CpuState, GuestPage, Loaded, TlbEntry};
use crate::memory::Memory;
use crate::owed::{CpuMask, GLOBAL, PageDebt, TableDebt, is_state};
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, State, UserMapping};
use crate::state::{EntryAt, Sanitizer};

impl Sanitizer {
    /// Reports the flushes that CPUs owe now. An operation has ended, or a barrier of the user's
    /// says that everything was flushed.
    ///
    /// Lazy CPUs, and those that have another space loaded, owe theirs when they come back. Debts
    /// of an operation under way are not due.
    pub(crate) fn flushes_due(&mut self, memory: &(impl Memory + ?Sized)) {
        self.check_runs(memory);
        if self.debts.is_empty() {
            return;
        }
        let (cpus, operations) = (&self.cpus, &self.operations);
        let due = |debt: &PageDebt| match operations.ended(debt.begun) {
            true => using(cpus, debt),
            false => CpuMask::default(),
        };
        let taken = self.debts.take_pages(due);
        self.report_missing(memory, taken, None);
    }

    /// Reports the debts of a CPU that has come back to a space and does something other than
    /// flush. Debts made since then, or by an operation under way, are not due yet.
    pub(crate) fn settle_return(&mut self, memory: &(impl Memory + ?Sized), cpu: usize) {
        let c = &mut self.cpus[cpu];
        let Some(returned) = c.returned.take() else { return };
        let Some(loaded) = c.loaded else { return };
        if let Some(other) = c.other_root.take() {
            let phys = self.frames.get(other.root).map(|f| f.phys);
            let place = Place { cpu: Some(cpu), space: Some(loaded.space), frame: phys, ..Place::default() };
            let why = self.explain_flush(cpu, loaded.space, None, None, None);
            self.report(Kind::FlushMissing, Rule::NumberReused, place, || {
                format!("the root is at {:#x} now; {why}", loaded.root)
            });
            // It goes on as if it had been flushed.
            let c = &mut self.cpus[cpu];
            c.contexts[loaded.context as usize].clear();
            c.visits.flushed(loaded.space, self.event);
        }
        if self.debts.is_empty() {
            return;
        }
        let operations = &self.operations;
        let owes = |debt: &PageDebt| {
            // Debts made since it came back are due as usual.
            let due = debt.space == loaded.space && debt.since < returned && operations.ended(debt.begun);
            if due { debt.cpus.only(|c| c == cpu) } else { CpuMask::default() }
        };
        let taken = self.debts.take_pages(owes);
        self.report_missing(memory, taken, None);
    }

    /// Reports pages that CPUs may still translate, if memory has not given them back since.
    /// `other` is the rule that is broken in place of that of each debt.
    pub(crate) fn report_missing(
        &mut self,
        memory: &(impl Memory + ?Sized),
        mut taken: Vec<PageDebt>,
        other: Option<Rule>,
    ) {
        taken.retain_mut(|debt| match self.owed_rule(memory, debt) {
            Some(rule) => {
                debt.rule = other.unwrap_or(rule);
                true
            }
            None => false,
        });
        if taken.is_empty() {
            return;
        }
        // One finding of all that have the rule and the callers of the store in common.
        let stores: Vec<_> = taken.iter().map(|debt| debt.store.as_ref()).collect();
        let mut taken: Vec<_> = self.reports.sort(&stores).into_iter().zip(taken).collect();
        while let Some((group, first)) = taken.first() {
            let (group, rule) = (*group, first.rule);
            let (these, others): (Vec<_>, Vec<_>) =
                taken.into_iter().partition(|(of, debt)| *of == group && debt.rule == rule);
            let these: Vec<_> = these.into_iter().map(|(_, debt)| debt).collect();
            self.report_group(Kind::FlushMissing, rule, &these, None);
            taken = others;
        }
    }

    fn report_group(&mut self, kind: Kind, rule: Rule, debts: &[PageDebt], frame: Option<u64>) {
        let Some(first) = debts.first() else { return };
        let mut cpus = CpuMask::default();
        debts.iter().for_each(|debt| cpus.add_all(&debt.cpus));
        let Some(cpu) = cpus.iter().next() else { return };
        let space = match first.space {
            GLOBAL => self.cpus[cpu].loaded.map(|l| l.space),
            own => Some(own),
        };
        let why = self.why_not_paid(cpu, space.unwrap_or_default(), first);
        let place = Place { frame, va: Some(first.va), cpu: Some(cpu), level: Some(first.level), space };
        let low = debts.iter().map(|d| d.va).min().unwrap_or_default();
        let size = |d: &PageDebt| 1u64 << self.config.arch.levels[usize::from(d.level)].shift;
        let high = debts.iter().map(|d| d.va.saturating_add(size(d))).max().unwrap_or_default();
        let (number, readers) = (debts.len(), self.readers(&cpus));
        self.report_of(first.store.as_ref(), (kind, rule), place, || {
            let pages = match number {
                1 => format!("{low:#x} to {:#x} ({})", first.phys, first.perms),
                n => format!("{n} pages in {low:#x}..{high:#x}"),
            };
            format!("{readers} may still translate {pages}, since event {}; {why}", first.since)
        });
    }

    /// Says why the flushes of a CPU did not pay a debt.
    fn why_not_paid(&self, cpu: usize, space: u64, debt: &PageDebt) -> String {
        if debt.combined.contains(cpu) && self.issued_stage1.contains(&(cpu, space)) {
            return "no barrier has completed its flush of stage 1".to_owned();
        }
        if debt.combined.contains(cpu) {
            return "what it combined of both stages was not flushed after that: call stage1_flushed"
                .to_owned();
        }
        self.why_owed((cpu, space), debt.va, None, (debt.since, debt.unordered))
    }

    /// Says why the flushes of a CPU or a device did not pay for a store of event `since`. `rule`
    /// is that of [`Sanitizer::explain_flush`]; `unordered` says that a flush came too early.
    fn why_owed(
        &self,
        (cpu, space): (usize, u64),
        va: u64,
        rule: Option<Rule>,
        (since, unordered): (u64, bool),
    ) -> String {
        if let Some(why) = self.not_waited_for(cpu, since) {
            return why;
        }
        if unordered && self.is_device(cpu) {
            return "its invalidation was queued before the store".to_owned();
        }
        if unordered {
            return "a flush came before a barrier that orders the store before it".to_owned();
        }
        if !self.issued.iter().any(|issued| issued.cpu == cpu && issued.event > since) {
            return self.explain_flush(cpu, space, Some(va), rule, Some(since));
        }
        let why = match self.config.errata.dsb_misses_stores {
            true => {
                "a flush and a barrier have to follow its flush and barrier: see Errata::dsb_misses_stores"
            }
            false => "no barrier has completed its flush",
        };
        why.to_owned()
    }

    /// Names CPUs and devices: `CPU 1`, `CPUs 1, 2`, `CPU 1, device 0`.
    fn readers(&self, all: &CpuMask) -> String {
        let devices = all.iter().any(|number| self.is_device(number));
        let name = |n: usize| if devices { self.reader(n) } else { n.to_string() };
        let list: Vec<String> = all.iter().map(name).collect();
        match (list.as_slice(), devices) {
            ([_], _) => self.reader(all.iter().next().unwrap_or_default()),
            (many, false) if many.len() > 8 => {
                format!("{} CPUs, the first {}", many.len(), many[..4].join(", "))
            }
            (many, false) => format!("CPUs {}", many.join(", ")),
            (many, true) => many.join(", "),
        }
    }

    /// Returns whether a CPU that runs in the space may hold a table since it was unlinked.
    pub(super) fn owe_unlinked(&self, at: FrameRef) -> bool {
        self.debts.table(at).is_some_and(|(cpus, space)| cpus.iter().any(|cpu| self.cpus[cpu].runs(space)))
    }

    /// Reports a table that CPUs may hold since it was unlinked, and returns whether any does.
    pub(crate) fn check_unlinked(&mut self, at: FrameRef) -> bool {
        let cpus = &self.cpus;
        let due = |debt: &TableDebt| debt.cpus.only(|cpu| cpus[cpu].runs(debt.space));
        let Some(debt) = self.debts.take_table(at, due) else { return false };
        let Some(cpu) = debt.cpus.iter().next() else { return false };
        let phys = self.frames.get(at).map(|f| f.phys);
        let place = Place {
            frame: phys,
            va: Some(debt.va),
            cpu: Some(cpu),
            level: Some(debt.level),
            space: Some(debt.space),
        };
        let held = Some(Rule::HeldInStructureCache);
        let why = self.why_owed((cpu, debt.space), debt.va, held, (debt.since, debt.unordered));
        let readers = self.readers(&debt.cpus);
        let rule = (Kind::FreeBeforeFlush, Rule::UnlinkNotFlushed);
        self.report_of(debt.store.as_ref(), rule, place, || {
            format!("{readers} may hold it, since event {}; {why}", debt.since)
        });
        self.forgive_table(debt.space, debt.va, debt.level);
        self.blame(at);
        true
    }

    /// Forgets the debts for a table that was reported, and for its pages.
    pub(crate) fn forgive_unlinked(&mut self, at: FrameRef) {
        if let Some(debt) = self.debts.take_table(at, |debt| debt.cpus.clone()) {
            self.forgive_table(debt.space, debt.va, debt.level);
        }
    }

    fn forgive_table(&mut self, space: u64, va: u64, level: u8) {
        let l = &self.config.arch.levels[usize::from(level)];
        let span = (1u64 << l.shift).saturating_mul(l.entries() as u64);
        let start = va & !(span.wrapping_sub(1));
        self.debts.forgive(space, start, span);
    }

    /// Reports a CPU that uses a root which it loaded before a barrier synchronized it.
    pub(crate) fn check_synchronized(&mut self, cpu: usize, loaded: Loaded) {
        if self.cpus[cpu].unsynchronized && self.config.arch.ordering == StoreOrdering::Completed {
            self.cpus[cpu].unsynchronized = false;
            let (frame, space) = (Some(loaded.root), Some(loaded.space));
            let place = Place { frame, cpu: Some(cpu), space, ..Place::default() };
            self.report(Kind::FlushMissing, Rule::NotSynchronized, place, String::new);
        }
    }

    /// Reports a data frame that is given away while a page maps it, or while a CPU may translate
    /// to it. The first case breaks [`Rule::DataStillMapped`], the second `rule`.
    pub(crate) fn check_data(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (phys, size): (u64, u64),
        (kind, rule): (Kind, Rule),
    ) {
        if let Some((mapping, va, cpu)) = self.mapped_now(memory, phys, size) {
            let space = self.cpus[cpu].loaded.map(|l| l.space);
            let place =
                Place { frame: Some(phys), va: Some(va), cpu: Some(cpu), level: Some(mapping.level), space };
            self.report(kind, Rule::DataStillMapped, place, || {
                format!("the entry at {:#x} maps it ({})", mapping.entry, mapping.perms)
            });
            return;
        }
        if !self.debts.is_empty() {
            let levels = &self.config.arch.levels;
            let overlaps = |debt: &PageDebt| {
                let bytes = 1u64 << levels[usize::from(debt.level)].shift;
                debt.phys < phys.saturating_add(size) && phys < debt.phys.saturating_add(bytes)
            };
            let mut debts = std::mem::take(&mut self.debts);
            // A page that is there still, and is another than it was, may stay.
            let gone = |debt: &PageDebt| {
                !is_state(debt.rule)
                    || self.lost_now(memory, debt.root, debt.va, debt.level, debt.phys, debt.perms).is_some()
            };
            let cpus = &self.cpus;
            let due = |debt: &PageDebt| match overlaps(debt) && gone(debt) {
                true => using(cpus, debt),
                false => CpuMask::default(),
            };
            let taken = debts.take_pages(due);
            self.debts = debts;
            if !taken.is_empty() {
                return self.report_group(kind, rule, &taken, Some(phys));
            }
        }
        // A look at all that is held is too much for each table of code that tells its stores.
        if !self.tells || rule != Rule::DataMadeTable {
            self.check_data_in_tlbs(memory, (phys, size), (kind, rule));
        }
    }

    /// Reports the frame if a CPU holds a translation to it, whatever stores were told: one of the
    /// space that it runs in, or a global one.
    fn check_data_in_tlbs(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (phys, size): (u64, u64),
        (kind, rule): (Kind, Rule),
    ) {
        let Some(found) = (0..self.cpus.len()).find_map(|cpu| {
            self.own_to(memory, cpu, phys, size).or_else(|| self.global_to(memory, cpu, phys, size))
        }) else {
            return self.check_data_combined(memory, (phys, size), (kind, rule));
        };
        let InTlb { cpu, space, global, va, level, entry, stale } = found;
        let place = Place { frame: Some(phys), va: Some(va), cpu: Some(cpu), level: Some(level), space };
        let why = self.explain_flush(cpu, space.unwrap_or_default(), Some(va), None, Some(entry.since));
        let reader = self.reader(cpu);
        let rule = if stale { rule } else { Rule::DataStillMapped };
        self.report(kind, rule, place, || {
            let (perms, since) = (entry.perms, entry.since);
            let global = if global { ", global" } else { "" };
            format!("{reader} translates {va:#x} to it ({perms}{global}), since event {since}; {why}")
        });
        if self.tells {
            let space = if global { Some(GLOBAL) } else { space };
            self.debts.note_reported(space.unwrap_or(GLOBAL), va, level);
        }
    }

    /// Reports the frame if a CPU has combined a translation to it of both stages, for the guest
    /// that it runs, and stage 2 no longer gives it.
    fn check_data_combined(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (phys, size): (u64, u64),
        rule: (Kind, Rule),
    ) {
        let held = |cpu: usize| {
            let c = &self.cpus[cpu];
            let loaded = c.loaded.filter(|_| c.state == CpuState::Active)?;
            let stale = |held: &(GuestPage, CombinedEntry)| {
                let CombinedEntry { gpa, entry, .. } = held.1;
                let inside = entry.phys >= phys && entry.phys < phys.saturating_add(size);
                let gives = || self.look(memory, loaded.root, gpa).is_ok_and(|now| now.phys == entry.phys);
                inside && !self.is_reported(loaded.space, gpa) && !gives()
            };
            let found = c.combined.of(loaded.space).filter(stale);
            let (page, held) = found.min_by_key(|(page, held)| (held.gpa, page.number, page.va))?;
            Some((cpu, loaded, page, held))
        };
        let Some((cpu, loaded, page, held)) = (0..self.cpus.len()).find_map(held) else { return };
        let CombinedEntry { gpa, level, entry } = held;
        let (frame, space) = (Some(phys), Some(loaded.space));
        let place = Place { frame, va: Some(gpa), cpu: Some(cpu), level: Some(level), space };
        let why = self.explain_flush(cpu, loaded.space, Some(gpa), None, Some(entry.since));
        let reader = self.reader(cpu);
        self.report(rule.0, rule.1, place, || {
            let GuestPage { number, va } = page;
            format!(
                "{reader} has combined {va:#x} of the guest's space {number:#x} and {gpa:#x} to it; {why}"
            )
        });
        if self.tells {
            self.debts.note_reported(loaded.space, gpa, level);
        }
    }

    /// Returns a translation to the frame that the CPU holds of the space that it runs in.
    fn own_to(&self, memory: &(impl Memory + ?Sized), cpu: usize, phys: u64, size: u64) -> Option<InTlb> {
        let c = &self.cpus[cpu];
        let loaded = c.loaded.filter(|_| c.state == CpuState::Active)?;
        let context = &c.contexts[loaded.context as usize];
        let space = Some(loaded.space);
        context.translating_to(&self.config.arch, phys, size, |va, level, entry| {
            // A CPU that has come back flushes before it uses its old entries.
            if !c.uses(loaded.space, entry.since) || self.is_reported(loaded.space, va) {
                return None;
            }
            let stale = self.lost_now(memory, loaded.root, va, level, entry.phys, entry.perms).is_some();
            let counts = stale || entry.perms.contains(Perms::USER) || !self.tells;
            counts.then_some(InTlb { cpu, space, global: false, va, level, entry, stale })
        })
    }

    /// Returns a global translation to the frame that the CPU holds, in whatever space it runs.
    fn global_to(&self, memory: &(impl Memory + ?Sized), cpu: usize, phys: u64, size: u64) -> Option<InTlb> {
        let c = &self.cpus[cpu];
        let space = c.loaded.map(|l| l.space);
        c.globals.translating_to(&self.config.arch, phys, size, |va, level, entry| {
            if self.is_reported(GLOBAL, va) {
                return None;
            }
            // The kernel's own mapping of all memory stays.
            let stale = !self.is_read_from(memory, va, level, entry);
            let counts = stale || entry.perms.contains(Perms::USER);
            counts.then_some(InTlb { cpu, space, global: true, va, level, entry, stale })
        })
    }

    /// With told stores, each place is reported once.
    fn is_reported(&self, space: u64, va: u64) -> bool {
        self.tells && self.debts.was_reported(&self.config.arch, space, va)
    }

    /// Returns whether the entry from which a translation was read still says the same. Roots that
    /// share the table need not be known.
    fn is_read_from(&self, memory: &(impl Memory + ?Sized), va: u64, level: u8, held: TlbEntry) -> bool {
        let arch = &self.config.arch;
        let Some(table) = self.frames.get(held.via).filter(|f| f.state == State::Allocated) else {
            // It was announced never, or freed since.
            return held.via == FrameRef::UNKNOWN;
        };
        let l = &arch.levels[usize::from(level)];
        let entry = table.phys.wrapping_add(l.index(va) * u64::from(l.entry_bytes));
        let now = memory.read(entry, l.entry_bytes).map(|raw| arch.entry(level, l.index(va), raw));
        matches!(now, Some(Entry::Leaf { phys, perms, .. }) if phys == held.phys && perms.contains(held.perms))
    }

    /// Returns an entry that maps the frame to user mode in a space that a CPU runs in, with the
    /// address and the CPU.
    pub(crate) fn mapped_now(
        &self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        size: u64,
    ) -> Option<(UserMapping, u64, usize)> {
        let mappings = self.mappings.of(&self.config.arch, phys, size);
        mappings.into_iter().find_map(|mapping| {
            let at = EntryAt { entry: mapping.entry, table: mapping.table, level: mapping.level };
            let mut ways = Vec::new();
            self.ways_up(memory, at, &mut ways);
            ways.into_iter().find_map(|(root, va)| {
                let runs = |c: &Cpu| c.state == CpuState::Active && c.loaded.is_some_and(|l| l.frame == root);
                let cpu = self.cpus.iter().position(runs)?;
                Some((mapping, va, cpu))
            })
        })
    }
}

/// A translation that a CPU holds to a frame that is given away.
struct InTlb {
    cpu: usize,
    space: Option<u64>,
    global: bool,
    va: u64,
    level: u8,
    entry: TlbEntry,
    /// Memory no longer gives it.
    stale: bool,
}

/// Returns those of the owing CPUs that can use the translation now: that run in its space, or any
/// if it is global.
pub(super) fn using(cpus: &[Cpu], debt: &PageDebt) -> CpuMask {
    debt.cpus.only(|cpu| debt.space == GLOBAL || cpus[cpu].uses(debt.space, debt.since))
}
