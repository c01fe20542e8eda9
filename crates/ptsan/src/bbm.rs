//! Break before make: a CPU must not come to hold two valid translations of one address that contradict each other.
//!
//! Where stores are told, the moment before a store is known: every CPU that has a root loaded from which the entry
//! can be walked *may* hold what the entry said. That is noted beside what CPUs are known to hold, dropped by the
//! same invalidations, and answers no access. Without stores it is walks that see what memory says now and
//! what is still held.
use crate::arch::{Entry, StructureScope};
use crate::frames::FrameRef;
use crate::memory::Memory;
use crate::mmu::{Context, Loaded, Table, TlbEntry};
use crate::report::{Kind, Place, Rule};
use crate::sanitizer::Sanitizer;
use crate::tables::generation_of;
use crate::translation::Translation;

/// How much of two read-only pages is compared, and how many pairs of entries of two tables.
const MOST_BYTES: u64 = 1 << 16;
const MOST_PAIRS: u32 = 1 << 12;

/// What the last store left in an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) raw: u64,
    /// The table at that time.
    pub(crate) frame: FrameRef,
}

/// An entry, and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) entry: u64,
    pub(crate) table: FrameRef,
    pub(crate) level: u8,
}

impl Sanitizer {
    /// An entry was stored to: `old` is what it held if that store was told too.
    pub(crate) fn check_store(
        &mut self,
        memory: &(impl Memory + ?Sized),
        slot: Slot,
        old: Option<Entry>,
        new: Entry,
    ) {
        let mut places: Vec<(usize, u64)> = Vec::new();
        if let Some((root, va)) = self.way_up(memory, slot) {
            places.extend(self.cpus_below(root).map(|cpu| (cpu, va)));
        }
        if let Some(old) = old.filter(|o| can_be_cached(*o) && *o != new) {
            for &(cpu, va) in &places {
                self.may_hold(cpu, va, slot, old);
            }
        }
        if !can_be_cached(new) {
            return;
        }
        for place in self.holders_of(slot) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        for (cpu, va) in places {
            self.check_held_against(memory, cpu, va, slot, new);
        }
    }

    /// The root and the address for which the entry is walked, as far as links are known and still true.
    pub(crate) fn way_up(&self, memory: &(impl Memory + ?Sized), slot: Slot) -> Option<(FrameRef, u64)> {
        let arch = &self.config.arch;
        let Slot { mut entry, mut table, level } = slot;
        let mut va = 0;
        for (level, l) in (level..).zip(&arch.levels[usize::from(level)..]) {
            let f = self.frames.get(table).filter(|f| f.level == Some(level))?;
            let index = entry.checked_sub(f.phys)? / u64::from(l.entry_bytes);
            if index >= l.entries() as u64 {
                return None;
            }
            va |= index << l.shift;
            if level == arch.top() {
                return Some((table, arch.extend(va)));
            }
            let link = f.link.filter(|&link| self.points_at(memory, link, f))?;
            (entry, table) = (link.entry, link.parent);
        }
        None
    }

    fn cpus_below(&self, root: FrameRef) -> impl Iterator<Item = usize> {
        let loaded = move |c: &crate::mmu::Cpu| c.loaded.is_some_and(|l| l.frame == root);
        self.cpus.iter().enumerate().filter(move |(_, c)| loaded(c)).map(|(cpu, _)| cpu)
    }

    /// CPUs that have read the table for the space that they run in, and the addresses for which they would use the entry.
    fn holders_of(&self, slot: Slot) -> Vec<(usize, u64)> {
        let arch = &self.config.arch;
        let Some(f) = self.frames.get(slot.table) else { return Vec::new() };
        let l = &arch.levels[usize::from(slot.level)];
        let index = slot.entry.saturating_sub(f.phys) / u64::from(l.entry_bytes);
        let offset = index << l.shift;
        let here = |h: &&crate::frames::Holder| {
            let c = &self.cpus[usize::from(h.cpu)];
            let runs = c.loaded.is_some_and(|l| h.context == l.context);
            runs && generation_of(c, h.context) == Some(h.generation)
                && h.position & 7 == u64::from(slot.level)
        };
        let at = |h: &crate::frames::Holder| {
            (usize::from(h.cpu), arch.position_start(h.position).wrapping_add(offset))
        };
        let read = f.holders.iter().filter(here).map(at);
        let roots = self.cpus_below(slot.table).filter(|_| slot.level == arch.top());
        read.chain(roots.map(|cpu| (cpu, arch.extend(offset)))).collect()
    }

    /// Notes that a CPU may have cached an entry just before it was stored to.
    fn may_hold(&mut self, cpu: usize, va: u64, slot: Slot, old: Entry) {
        let arch = &self.config.arch;
        let since = self.event;
        let c = &mut self.cpus[cpu];
        let Some(loaded) = c.loaded else { return };
        let own = &mut c.contexts[loaded.context as usize];
        match old {
            Entry::Leaf { phys, perms, global, memory_type, .. } => {
                let context = if global { &mut c.globals } else { own };
                if context.peek(arch, slot.level, va).is_none() {
                    let entry = TlbEntry { phys, since, via: slot.table, perms, memory_type };
                    context.insert_maybe(arch, slot.level, va, entry);
                }
            }
            Entry::Table { phys, perms } if slot.level > 0 && arch.structures != StructureScope::None => {
                let position = arch.position(slot.level - 1, va);
                if own.peek_table(position).is_none() {
                    let frame = self.frames.find(phys).unwrap_or(FrameRef::UNKNOWN);
                    own.set_maybe_table(arch, position, Table { phys, frame, perms });
                }
            }
            _ => {}
        }
    }

    /// Reports what the CPU holds for the place of an entry and may not be cached beside its new value.
    fn check_held_against(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        va: u64,
        slot: Slot,
        new: Entry,
    ) {
        let arch = &self.config.arch;
        let c = &self.cpus[cpu];
        let Some(loaded) = c.loaded else { return };
        let own = &c.contexts[loaded.context as usize];
        let leaves = [(own, false), (&c.globals, true)];
        let mut found = leaves.into_iter().find_map(|(context, global)| {
            let held = context.peek(arch, slot.level, va).map(|e| held_leaf(e, global))?;
            self.contradiction(memory, slot.level, held, new).map(|rule| (rule, held))
        });
        if found.is_none() && slot.level > 0 {
            let position = arch.position(slot.level - 1, va);
            let table = own.peek_table(position).filter(|t| self.is_table(t.frame));
            found = table.and_then(|t| {
                let held = Entry::Table { phys: t.phys, perms: t.perms };
                self.contradiction(memory, slot.level, held, new).map(|rule| (rule, held))
            });
            // Pages of the old table that outlived it.
            let page = |context: &Context| context.peek_any(arch, position);
            if let (None, Entry::Leaf { .. }, Some(page)) = (found, new, page(own).or(page(&c.globals))) {
                let held =
                    own.peek(arch, slot.level - 1, page).or(c.globals.peek(arch, slot.level - 1, page));
                found = held.map(|e| (Rule::ChangedSize, held_leaf(e, false)));
            }
        }
        if let Some((rule, held)) = found {
            self.report_contradiction((cpu, loaded), va, slot.level, rule, (held, new), Some(slot));
        }
    }

    /// Reports a translation that a CPU holds beside another one that memory gives now: what a walk at this moment
    /// would cache.
    pub(crate) fn check_beside(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        held: Translation,
        truth: Translation,
    ) {
        let (old, new) = (self.as_entry(held), self.as_entry(truth));
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
        if truth.accessed {
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

    /// Why two valid entries of a level may not be cached beside each other; `None` if they may.
    fn contradiction(
        &self,
        memory: &(impl Memory + ?Sized),
        level: u8,
        old: Entry,
        new: Entry,
    ) -> Option<Rule> {
        let mut pairs = MOST_PAIRS;
        self.contradiction_within(memory, level, old, new, &mut pairs)
    }

    fn contradiction_within(
        &self,
        memory: &(impl Memory + ?Sized),
        level: u8,
        old: Entry,
        new: Entry,
        pairs: &mut u32,
    ) -> Option<Rule> {
        let arch = &self.config.arch;
        if !can_be_cached(old) || !can_be_cached(new) {
            return None;
        }
        match (old, new) {
            (
                Entry::Leaf { phys: a, perms: p, global: g, memory_type: m, .. },
                Entry::Leaf { phys: b, perms: q, global: h, memory_type: n, .. },
            ) => {
                let writable = (p | q).contains(crate::Perms::WRITE);
                let bytes = 1 << arch.levels[usize::from(level)].shift;
                if a != b && (writable || differ(memory, a, b, bytes)) {
                    Some(Rule::ChangedOutput)
                } else if m != n {
                    Some(Rule::ChangedType)
                } else {
                    (g != h).then_some(Rule::ChangedReach)
                }
            }
            // Another table with the same entries is no contradiction.
            (Entry::Table { phys: a, .. }, Entry::Table { phys: b, .. }) if a != b && level > 0 => {
                let is_table = |phys| self.frames.find(phys).is_some_and(|f| self.is_table(f));
                if !is_table(a) || !is_table(b) {
                    return None;
                }
                let l = &arch.levels[usize::from(level) - 1];
                (0..l.entries() as u64).find_map(|i| {
                    *pairs = pairs.checked_sub(1)?;
                    let read = |table: u64| {
                        let at = table.wrapping_add(i * u64::from(l.entry_bytes));
                        memory.read(at, l.entry_bytes).map(|raw| (arch.decode)(level - 1, raw))
                    };
                    self.contradiction_within(memory, level - 1, read(a)?, read(b)?, pairs)
                })
            }
            (Entry::Table { .. }, Entry::Table { .. }) => None,
            _ => Some(Rule::ChangedSize),
        }
    }

    fn report_contradiction(
        &mut self,
        (cpu, loaded): (usize, Loaded),
        va: u64,
        level: u8,
        rule: Rule,
        (held, new): (Entry, Entry),
        slot: Option<Slot>,
    ) {
        let frame = slot.and_then(|s| self.frames.get(s.table)).map(|f| f.phys);
        let place =
            Place { frame, va: Some(va), cpu: Some(cpu), level: Some(level), space: Some(loaded.space) };
        let why = self.explain_flush(cpu, loaded.space, Some(va), None, None);
        self.report(Kind::BreakBeforeMake, rule, place, || {
            let entry = slot.map_or_else(String::new, |s| format!(" by the entry at {:#x}", s.entry));
            let (held, new) = (show(held), show(new));
            format!("CPU {cpu} may hold {held}; memory says {new}{entry} now; {why}")
        });
    }
}

/// Valid, and nothing keeps a walk from caching it.
fn can_be_cached(entry: Entry) -> bool {
    matches!(entry, Entry::Table { .. } | Entry::Leaf { accessed: true, .. })
}

fn held_leaf(entry: TlbEntry, global: bool) -> Entry {
    let TlbEntry { phys, perms, memory_type, .. } = entry;
    Entry::Leaf { phys, perms, global, accessed: true, memory_type }
}

/// Whether two pages are known to differ. A copy of a read-only page may take its place (Arm ARM: only if the contents
/// do not match); pages that cannot be read get the benefit of the doubt.
fn differ(memory: &(impl Memory + ?Sized), a: u64, b: u64, bytes: u64) -> bool {
    (0..bytes.min(MOST_BYTES)).step_by(8).any(|offset| {
        let read = |page: u64| memory.read(page.wrapping_add(offset), 8);
        read(a).zip(read(b)).is_some_and(|(a, b)| a != b)
    })
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
