//! Break-before-make: a CPU must never hold two valid translations of one address that contradict
//! each other.
//!
//! A told store fixes the moment before it. Every CPU with a root loaded from which the entry can
//! be walked *may* hold the old entry. That is recorded beside the translations that CPUs are known
//! to hold. The same invalidations drop it, and it answers no access.
//!
//! Without told stores, walks compare memory as it is now with cached entries.
use super::contradiction::can_be_cached;
use super::held::generation_of;
use crate::arch::{Entry, StructureScope};
use crate::cpu::{Context, Cpu, Loaded, Table, TlbEntry, Translation};
use crate::memory::Memory;
use crate::owed::{GLOBAL, PageDebt};
use crate::report::{Kind, Place, Rule, Stored};
use crate::shadow::{FrameRef, Holder};
use crate::state::{EntryAt, Sanitizer};

/// The event of a store that cleared an entry, and its callers if they are remembered.
type Cleared = (u64, Option<Stored>);

impl Sanitizer {
    /// Checks a store to an entry that is walked on `ways`, and returns whether it contradicts an
    /// entry that a CPU holds. `old` is the former value, if that store was told too.
    pub(crate) fn check_store(
        &mut self,
        memory: &(impl Memory + ?Sized),
        at: EntryAt,
        ways: &[(FrameRef, u64)],
        old: Option<Entry>,
        new: Entry,
    ) -> bool {
        let mut places: Vec<(usize, u64)> = Vec::new();
        for &(root, va) in ways {
            places.extend(self.cpus_below(root).map(|cpu| (cpu, va)));
        }
        if let Some(old) = old.filter(|o| can_be_cached(*o) && *o != new) {
            for &(cpu, va) in &places {
                self.may_have_cached(cpu, va, at, old);
            }
        }
        if !can_be_cached(new) || self.frames.get(at.table).is_some_and(|f| f.old_reported) {
            return false;
        }
        for place in self.holders_of(at) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        // An entry that was cleared before and never flushed: that store made the mistake, for all
        // CPUs.
        let was_empty = old == Some(Entry::Empty);
        let cleared = |&(cpu, va): &(usize, u64)| {
            let space = self.cpus[cpu].loaded.filter(|_| was_empty)?.space;
            let debt = self.debts.owed_at(&self.config.arch, cpu, space, va)?;
            Some((debt.since, debt.store.clone()))
        };
        let cleared: Vec<_> = places.iter().map(cleared).collect();
        let mut found = false;
        for ((cpu, va), cleared) in places.into_iter().zip(cleared) {
            found |= self.check_held_against(memory, cpu, va, (at, cleared), new);
        }
        found
    }

    fn cpus_below(&self, root: FrameRef) -> impl Iterator<Item = usize> {
        let loaded = move |c: &Cpu| c.loaded.is_some_and(|l| l.frame == root);
        self.cpus.iter().enumerate().filter(move |(_, c)| loaded(c)).map(|(cpu, _)| cpu)
    }

    /// Lists the CPUs that have read the table for the space they run in, with the address for
    /// which each would use the entry.
    fn holders_of(&self, at: EntryAt) -> Vec<(usize, u64)> {
        let arch = &self.config.arch;
        let Some(f) = self.frames.get(at.table) else { return Vec::new() };
        let l = &arch.levels[usize::from(at.level)];
        let index = at.entry.saturating_sub(f.phys) / u64::from(l.entry_bytes);
        let offset = index << l.shift;
        let here = |h: &Holder| {
            let c = &self.cpus[usize::from(h.cpu)];
            let runs = c.loaded.is_some_and(|l| h.context == l.context);
            runs && generation_of(c, h.context) == Some(h.generation) && h.position & 7 == u64::from(at.level)
        };
        let used_for = |h: Holder| (usize::from(h.cpu), arch.position_start(h.position).wrapping_add(offset));
        let read = f.holders.iter().filter(here).map(used_for);
        let roots = self.cpus_below(at.table).filter(|_| at.level == arch.top());
        read.chain(roots.map(|cpu| (cpu, arch.extend(offset)))).collect()
    }

    /// Records that a CPU may have cached an entry just before it was stored to.
    fn may_have_cached(&mut self, cpu: usize, va: u64, at: EntryAt, old: Entry) {
        let arch = &self.config.arch;
        let since = self.event;
        let c = &mut self.cpus[cpu];
        let Some(loaded) = c.loaded else { return };
        let own = &mut c.contexts[loaded.context as usize];
        match old {
            Entry::Leaf { phys, perms, global, memory_type, .. } => {
                let context = if global { &mut c.globals } else { own };
                if context.peek(arch, at.level, va).is_none() {
                    let entry = TlbEntry {
                        phys,
                        since,
                        via: at.table,
                        perms,
                        memory_type,
                        denied: false,
                        dirty: false,
                    };
                    context.insert_maybe(arch, at.level, va, entry);
                }
            }
            Entry::Table { phys, perms } if at.level > 0 && arch.structures != StructureScope::None => {
                let position = arch.position(at.level - 1, va);
                if own.peek_table(position).is_none() {
                    let frame = self.frames.find(phys).unwrap_or(FrameRef::UNKNOWN);
                    own.set_maybe_table(position, Table { phys, frame, perms });
                }
            }
            _ => {}
        }
    }

    /// Reports cached values of an entry that must not be cached beside its new value, and the
    /// store that cleared it before, if one did.
    fn check_held_against(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        va: u64,
        (at, cleared): (EntryAt, Option<Cleared>),
        new: Entry,
    ) -> bool {
        let arch = &self.config.arch;
        let c = &self.cpus[cpu];
        let Some(loaded) = c.loaded else { return false };
        let own = &c.contexts[loaded.context as usize];
        let leaves = [(own, false), (&c.globals, true)];
        let mut found = leaves.into_iter().find_map(|(context, global)| {
            let held = context.peek(arch, at.level, va).map(|e| held_leaf(e, global))?;
            self.contradiction(memory, at.level, held, new).map(|rule| (rule, held))
        });
        if found.is_none() {
            // A flush that is not complete, or that spared combined translations.
            let owed = self.debts.owed_at(arch, cpu, loaded.space, va).filter(|debt| debt.level == at.level);
            found = owed.and_then(|debt| {
                let PageDebt { phys, perms, .. } = *debt;
                let memory_type = match new {
                    Entry::Leaf { memory_type, .. } => memory_type,
                    _ => 0,
                };
                let held =
                    Entry::Leaf { phys, perms, global: debt.space == GLOBAL, accessed: true, memory_type };
                self.contradiction(memory, at.level, held, new).map(|rule| (rule, held))
            });
        }
        if found.is_none() && at.level > 0 {
            let position = arch.position(at.level - 1, va);
            let table = own.peek_table(position).filter(|t| self.is_table(t.frame));
            found = table.and_then(|t| {
                let held = Entry::Table { phys: t.phys, perms: t.perms };
                self.contradiction(memory, at.level, held, new).map(|rule| (rule, held))
            });
            // Pages of the old table may have outlived it.
            let page = |context: &Context| context.peek_any(arch, position);
            if let (None, Entry::Leaf { .. }, Some(page)) = (found, new, page(own).or(page(&c.globals))) {
                let held = own.peek(arch, at.level - 1, page).or(c.globals.peek(arch, at.level - 1, page));
                found = held.map(|e| (Rule::ChangedSize, held_leaf(e, false)));
            }
            if let (None, Entry::Leaf { .. }) = (found, new) {
                found = self.debts.owed_within(arch, (cpu, loaded.space), (va, at.level)).map(|debt| {
                    let PageDebt { phys, perms, .. } = *debt;
                    let held = Entry::Leaf { phys, perms, global: false, accessed: true, memory_type: 0 };
                    (Rule::ChangedSize, held)
                });
            }
        }
        if let Some((rule, held)) = found {
            self.report_contradiction((cpu, loaded), va, at.level, rule, (held, new), Some((at, cleared)));
        }
        found.is_some()
    }

    /// Reports an entry that was made part of a contiguous run, or no longer is, while a CPU may
    /// hold the old one. Returns whether one may.
    pub(crate) fn check_resized(
        &mut self,
        at: EntryAt,
        ways: &[(FrameRef, u64)],
        old: Entry,
        new: Entry,
    ) -> bool {
        let below = ways.iter().flat_map(|&(root, va)| self.cpus_below(root).map(move |cpu| (cpu, va)));
        let found = below.filter_map(|(cpu, va)| Some((cpu, self.cpus[cpu].loaded?, va))).next();
        let Some((cpu, loaded, va)) = found else { return false };
        self.report_contradiction(
            (cpu, loaded),
            va,
            at.level,
            Rule::ChangedRun,
            (old, new),
            Some((at, None)),
        );
        true
    }

    /// Reports a translation that a CPU holds beside another one that a walk would cache now.
    pub(crate) fn check_beside(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        held: Translation,
        truth: Translation,
    ) {
        let (old, new) = (self.as_entry(held), self.as_entry(truth));
        if self.debts.was_reported(&self.config.arch, loaded.space, va) {
            return;
        }
        let rule = match held.level == truth.level {
            false if truth.accessed => Some(Rule::ChangedSize),
            false => None,
            true => self.contradiction(memory, held.level, old, new),
        };
        if let Some(rule) = rule {
            self.report_contradiction((cpu, loaded), va, truth.level, rule, (old, new), None);
        }
    }

    /// Reports a table that a CPU holds where memory maps a block now.
    pub(crate) fn check_table_beside_block(
        &mut self,
        (cpu, loaded): (usize, Loaded),
        va: u64,
        held: Table,
        truth: Translation,
    ) {
        if truth.accessed && !self.debts.was_reported(&self.config.arch, loaded.space, va) {
            let held = Entry::Table { phys: held.phys, perms: held.perms };
            let new = self.as_entry(truth);
            self.report_contradiction((cpu, loaded), va, truth.level, Rule::ChangedSize, (held, new), None);
        }
    }

    fn as_entry(&self, t: Translation) -> Entry {
        let offset = (1 << self.config.arch.levels[usize::from(t.level)].shift) - 1;
        Entry::Leaf {
            phys: t.phys & !offset,
            perms: t.perms,
            global: t.global,
            accessed: t.accessed,
            memory_type: t.memory_type,
        }
    }

    fn report_contradiction(
        &mut self,
        (cpu, loaded): (usize, Loaded),
        va: u64,
        level: u8,
        rule: Rule,
        (held, new): (Entry, Entry),
        at: Option<(EntryAt, Option<Cleared>)>,
    ) {
        let (at, cleared) = at.map_or((None, None), |(at, cleared)| (Some(at), cleared));
        let (since, store) = cleared.map_or((None, None), |(since, store)| (Some(since), store));
        let frame = at.and_then(|s| self.frames.get(s.table)).map(|f| f.phys);
        let place =
            Place { frame, va: Some(va), cpu: Some(cpu), level: Some(level), space: Some(loaded.space) };
        let (reader, why) = (self.reader(cpu), self.explain_flush(cpu, loaded.space, Some(va), None, None));
        self.report_of(store.as_ref(), (Kind::BreakBeforeMake, rule), place, || {
            let entry = at.map_or_else(String::new, |s| format!(" by the entry at {:#x}", s.entry));
            let (held, new) = (show(held), show(new));
            let cleared = since.map_or_else(String::new, |event| {
                format!(" (the entry was cleared at event {event}, and not flushed since)")
            });
            format!("{reader} may hold {held}{cleared}; memory says {new}{entry} now; {why}")
        });
        // The flushes that it owes there are the same mistake.
        let bytes = 1u64 << self.config.arch.levels[usize::from(level)].shift;
        let start = va & !(bytes - 1);
        self.debts.forgive(loaded.space, start, bytes);
        if at.is_some() {
            self.debts.note_reported(loaded.space, start, level);
        }
    }
}

fn held_leaf(entry: TlbEntry, global: bool) -> Entry {
    let TlbEntry { phys, perms, memory_type, .. } = entry;
    Entry::Leaf { phys, perms, global, accessed: true, memory_type }
}

fn show(entry: Entry) -> String {
    match entry {
        Entry::Table { phys, .. } => format!("a table at {phys:#x}"),
        Entry::Leaf { phys, perms, global, memory_type, .. } => {
            let global = if global { ", global" } else { "" };
            format!("{phys:#x} ({perms}, type {memory_type}{global})")
        }
        Entry::Empty => "nothing".to_owned(),
        Entry::Malformed => "an entry with reserved bits set".to_owned(),
    }
}
