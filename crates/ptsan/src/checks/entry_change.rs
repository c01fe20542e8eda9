//! Compares an entry before and after a told store, and lists the CPUs that owe a flush for it.
use super::contradiction::can_be_cached;
use crate::arch::{Arch, Entry, Perms, StructureScope};
use crate::memory::Memory;
use crate::owed::{CpuMask, GLOBAL, PageDebt, TableDebt, is_state};
use crate::report::Rule;
use crate::shadow::{FrameRef, Told};
use crate::state::{EntryAt, Sanitizer};

/// The most entries below one that are looked at.
const MOST_ENTRIES: u32 = 1 << 16;

/// An entry before and after a told store.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) at: EntryAt,
    /// The root below which it is walked, and the first address for which it is.
    pub(crate) root: FrameRef,
    pub(crate) va: u64,
    pub(crate) before: Told,
    pub(crate) old: Entry,
    pub(crate) new: Entry,
    /// The changed attribute of a page, if the store took no right away.
    pub(crate) state: Option<Rule>,
}

/// A translation that may be cached.
#[derive(Clone, Copy)]
pub(super) struct CachedPage {
    pub(super) va: u64,
    pub(super) level: u8,
    pub(super) phys: u64,
    pub(super) perms: Perms,
    global: bool,
    /// The entry, as it is in memory.
    pub(super) raw: u64,
}

/// The pages and tables below an entry for a table.
#[derive(Default)]
struct Below {
    pages: Vec<CachedPage>,
    /// Tables, with the first address and the level of each.
    tables: Vec<(FrameRef, u64, u8)>,
}

/// Spaces, with the CPUs that may hold an entry in each: nearly always one.
#[derive(Default)]
struct Spaces {
    first: Option<(u64, CpuMask)>,
    more: Vec<(u64, CpuMask)>,
}

impl Spaces {
    fn add(&mut self, space: u64, cpu: usize) {
        let new = || (space, CpuMask::default());
        let (first, cpus) = self.first.get_or_insert_with(new);
        if *first == space {
            return cpus.insert(cpu);
        }
        let known = self.more.iter().position(|(of, _)| *of == space);
        let at = known.unwrap_or_else(|| {
            self.more.push(new());
            self.more.len() - 1
        });
        self.more[at].1.insert(cpu);
    }

    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Lists them, in the order of their addition.
    fn iter(&self) -> impl Iterator<Item = &(u64, CpuMask)> {
        self.first.iter().chain(&self.more)
    }
}

/// Returns whether a CPU may hold something of the old entry that the new one does not give.
pub(crate) fn takes_away(old: Entry, new: Entry) -> bool {
    if !can_be_cached(old) {
        return false;
    }
    match (old, new) {
        (Entry::Leaf { phys: a, perms: p, .. }, Entry::Leaf { phys: b, perms: q, .. })
        | (Entry::Table { phys: a, perms: p }, Entry::Table { phys: b, perms: q }) => {
            a != b || !q.contains(p)
        }
        _ => true,
    }
}

impl Sanitizer {
    /// Returns the rule for an attribute of a page that a store changed without taking a right
    /// away: CPUs still cache its old value. The dirty bit counts if the code under test relies on
    /// it: a CPU that holds the page as dirty does not set the bit again.
    pub(crate) fn state_changed(
        &self,
        level: u8,
        (old, new): (u64, u64),
        pages: (Entry, Entry),
    ) -> Option<Rule> {
        let (
            Entry::Leaf { global: g, memory_type: m, accessed: true, .. },
            Entry::Leaf { global: h, memory_type: n, .. },
        ) = pages
        else {
            return None;
        };
        if g && !h {
            return Some(Rule::GlobalNotFlushed);
        }
        if m != n {
            return Some(Rule::TypeNotFlushed);
        }
        let bits = self.config.arch.hardware_bits.filter(|_| self.config.accessed_dirty)?;
        (bits(level, old).dirty && !bits(level, new).dirty).then_some(Rule::DirtyNotFlushed)
    }

    /// Returns whether memory still has the attributes that the store of the debt gave the page,
    /// and not those from before.
    fn is_state_changed(&self, memory: &(impl Memory + ?Sized), debt: &PageDebt) -> bool {
        let arch = &self.config.arch;
        let index = arch.levels[usize::from(debt.level)].index(debt.va);
        let Some(now) = memory.read(debt.entry, arch.entry_bytes()) else { return false };
        let pages = (arch.entry(debt.level, index, debt.raw), arch.entry(debt.level, index, now));
        self.state_changed(debt.level, (debt.raw, now), pages).is_some()
    }

    /// Returns the rule of a debt that is still owed, or `None` if memory has given the rights back
    /// since.
    pub(crate) fn owed_rule(&self, memory: &(impl Memory + ?Sized), debt: &PageDebt) -> Option<Rule> {
        let lost = self.lost_now(memory, debt.root, debt.va, debt.level, debt.phys, debt.perms);
        match is_state(debt.rule) {
            true => lost.or_else(|| Some(debt.rule).filter(|_| self.is_state_changed(memory, debt))),
            false => lost.map(|_| debt.rule),
        }
    }

    /// Makes debts for the CPUs that may have cached entries that the store took away.
    pub(crate) fn owe(&mut self, memory: &(impl Memory + ?Sized), change: Change) {
        let Change { at, root, va, before, old, new, .. } = change;
        let Some(phys) = self.frames.get(root).map(|f| f.phys) else { return };
        let may_hold = self.may_hold(root, before.since);
        let global = matches!(old, Entry::Leaf { global: true, .. });
        if may_hold.is_empty() && !global && !matches!(old, Entry::Table { .. }) {
            return;
        }
        let above = self.perms_above(memory, phys, at.level, va);
        let (table, perms) = match old {
            // The usual case, without lists.
            Entry::Leaf { phys: mapped, perms, global, .. } => {
                let perms = perms & above;
                let page = CachedPage { va, level: at.level, phys: mapped, perms, global, raw: before.raw };
                return self.owe_page(memory, change, page, (phys, above), &may_hold);
            }
            Entry::Table { phys, perms } => (phys, perms & above),
            Entry::Empty | Entry::Malformed => return,
        };
        let (mut below, mut left) = (Below::default(), MOST_ENTRIES);
        // With the same table only rights go.
        self.list_below(memory, table, at.level - 1, va, perms, &mut below, &mut left);
        if matches!(new, Entry::Table { phys: same, .. } if same == table) {
            below.tables.clear();
        }
        for page in below.pages {
            self.owe_page(memory, change, page, (phys, above), &may_hold);
        }
        let (since, by) = (self.event, self.running);
        let caches = self.config.arch.structures != StructureScope::None;
        for (frame, va, level) in below.tables.into_iter().filter(|_| caches) {
            for (space, cpus) in may_hold.iter() {
                let (space, cpus, store) = (*space, cpus.clone(), self.reports.stored(since));
                let unordered = false;
                let debt = TableDebt { space, frame, va, level, since, unordered, by, store, cpus };
                self.debts.add_table(debt);
            }
        }
    }

    /// Makes the debts of a page below the entry, in the tree of the root at `phys`. The entries
    /// above allow `above`.
    fn owe_page(
        &mut self,
        memory: &(impl Memory + ?Sized),
        change: Change,
        page: CachedPage,
        (phys, above): (u64, Perms),
        may_hold: &Spaces,
    ) {
        let Change { at, root, before, new, state, .. } = change;
        let Some(rule) = self.loss(memory, phys, page, above, at, new).or(state) else { return };
        let CachedPage { va, level, phys: mapped, perms, global, .. } = page;
        let holders = if global { self.may_hold_global(root, before.since) } else { CpuMask::default() };
        if holders.is_empty() && may_hold.is_empty() {
            return;
        }
        let (begun, since, by) = (self.operations.begun(), self.event, self.running);
        let store = self.reports.stored(since);
        let debt = |space, cpus| PageDebt {
            space,
            va,
            level,
            phys: mapped,
            perms,
            rule,
            root: phys,
            entry: at.entry,
            raw: before.raw,
            since,
            begun,
            unordered: false,
            by,
            store: store.clone(),
            cpus,
            combined: CpuMask::default(),
        };
        if global && !holders.is_empty() {
            self.debts.add_page(debt(GLOBAL, holders));
        }
        // A device holds a global page under its own number.
        let cpus = self.config.cpus;
        let owing = may_hold.iter().map(|(space, all)| match global {
            // It does not care whether the page is global.
            true if rule == Rule::GlobalNotFlushed => (*space, CpuMask::default()),
            true => (*space, all.only(|reader| reader >= cpus)),
            false => (*space, all.clone()),
        });
        for (space, readers) in owing.filter(|(_, readers)| !readers.is_empty()) {
            self.debts.add_page(debt(space, readers));
        }
    }

    /// Notes the tables below an entry that no longer leads to them: readers may be in them,
    /// if CPUs hold them or not.
    pub(crate) fn leave_below(
        &mut self,
        memory: &(impl Memory + ?Sized),
        at: EntryAt,
        ways: &[(FrameRef, u64)],
        (old, new): (Entry, Entry),
    ) {
        let Entry::Table { phys, .. } = old else { return };
        if self.readers.walking.is_empty() || matches!(new, Entry::Table { phys: same, .. } if same == phys) {
            return;
        }
        let (mut below, mut left) = (Below::default(), MOST_ENTRIES);
        self.list_below(memory, phys, at.level - 1, 0, Perms::ALL, &mut below, &mut left);
        for (root, _) in ways {
            if let Some(root) = self.frames.get(*root).map(|f| f.phys) {
                self.leave_to_readers(root, below.tables.iter().map(|(table, ..)| *table));
            }
        }
    }

    /// Returns the spaces for which CPUs may hold an entry below `root` that was stored at event
    /// `since`, with these CPUs.
    fn may_hold(&self, root: FrameRef, since: u64) -> Spaces {
        let mut found = Spaces::default();
        for (cpu, c) in self.cpus.iter().enumerate() {
            for space in c.visits.spaces(root, since) {
                found.add(space, cpu);
            }
        }
        found
    }

    fn may_hold_global(&self, root: FrameRef, since: u64) -> CpuMask {
        let mut cpus = CpuMask::default();
        let held = self.cpus.iter().take(self.config.cpus).enumerate();
        let held = held.filter(|(_, c)| c.visits.may_hold_global(root, since));
        held.for_each(|(cpu, _)| cpus.insert(cpu));
        cpus
    }

    /// Returns the permissions that the entries above a table of `level` allow.
    fn perms_above(&self, memory: &(impl Memory + ?Sized), root: u64, level: u8, va: u64) -> Perms {
        let arch = &self.config.arch;
        let (mut table, mut allowed) = (root, Perms::ALL);
        for above in (level + 1..=arch.top()).rev() {
            match read(memory, arch, table, above, arch.levels[usize::from(above)].index(va)) {
                Entry::Table { phys, perms } => (table, allowed) = (phys, allowed & perms),
                _ => break,
            }
        }
        allowed
    }

    /// Lists the tables and pages below an entry, the table it points at included.
    #[allow(clippy::too_many_arguments, reason = "a position in a tree")]
    fn list_below(
        &self,
        memory: &(impl Memory + ?Sized),
        table: u64,
        level: u8,
        va: u64,
        allowed: Perms,
        below: &mut Below,
        left: &mut u32,
    ) {
        let arch = &self.config.arch;
        let l = arch.levels[usize::from(level)];
        // Memory behind other entries holds no announced table.
        let Some(frame) = self.frames.find(table).filter(|&f| self.is_table(f)) else { return };
        below.tables.push((frame, va, level));
        if memory.is_zero(table, u64::from(l.table_bytes)) == Some(true) {
            return;
        }
        for index in 0..l.entries() as u64 {
            let Some(one_less) = left.checked_sub(1) else { return };
            *left = one_less;
            let va = va.wrapping_add(index << l.shift);
            let raw = read_raw(memory, arch, table, level, index).unwrap_or_default();
            match arch.entry(level, index, raw) {
                Entry::Leaf { phys, perms, global, accessed: true, .. } => {
                    below.pages.push(CachedPage { va, level, phys, perms: perms & allowed, global, raw });
                }
                Entry::Table { phys, perms } if level > 0 => {
                    self.list_below(memory, phys, level - 1, va, perms & allowed, below, left);
                }
                _ => {}
            }
        }
    }

    /// Lists the pages below an entry for a table of `level`.
    pub(super) fn pages_below(
        &self,
        memory: &(impl Memory + ?Sized),
        (table, level): (u64, u8),
        va: u64,
        perms: Perms,
    ) -> Vec<CachedPage> {
        let (mut below, mut left) = (Below::default(), MOST_ENTRIES);
        self.list_below(memory, table, level, va, perms, &mut below, &mut left);
        below.pages
    }

    /// Returns the rule for a page that memory does not give any more, or `None` if it does.
    fn loss(
        &self,
        memory: &(impl Memory + ?Sized),
        root: u64,
        page: CachedPage,
        above: Perms,
        at: EntryAt,
        new: Entry,
    ) -> Option<Rule> {
        match new {
            // The usual case, without a walk.
            Entry::Leaf { phys, perms, .. } if page.level == at.level => {
                lost((page.phys, page.perms), (phys, perms & above))
            }
            Entry::Empty | Entry::Malformed => Some(Rule::UnmapNotFlushed),
            _ => self.lost_now(memory, root, page.va, page.level, page.phys, page.perms),
        }
    }

    /// Returns the rule for a right that memory no longer gives to a translation of a page, or
    /// `None` if it gives all rights still.
    pub(crate) fn lost_now(
        &self,
        memory: &(impl Memory + ?Sized),
        root: u64,
        va: u64,
        level: u8,
        phys: u64,
        perms: Perms,
    ) -> Option<Rule> {
        let arch = &self.config.arch;
        let bytes = 1u64.checked_shl(u32::from(arch.levels[usize::from(level)].shift)).unwrap_or(0);
        let (mut offset, mut left) = (0, MOST_ENTRIES);
        // A large page may have become many small ones.
        while offset < bytes && left > 0 {
            left -= 1;
            let Ok(now) = self.look(memory, root, va.wrapping_add(offset)) else {
                return Some(Rule::UnmapNotFlushed);
            };
            if let Some(rule) = lost((phys.wrapping_add(offset), perms), (now.phys, now.perms)) {
                return Some(rule);
            }
            offset += 1u64 << arch.levels[usize::from(now.level)].shift;
        }
        None
    }
}

/// Returns the rule for a translation that is given no more: the address and the permissions then
/// and now.
fn lost((was, had): (u64, Perms), (phys, perms): (u64, Perms)) -> Option<Rule> {
    if was != phys {
        return Some(Rule::RemapNotFlushed);
    }
    (!perms.contains(had)).then_some(Rule::RestrictNotFlushed)
}

fn read(memory: &(impl Memory + ?Sized), arch: &Arch, table: u64, level: u8, index: u64) -> Entry {
    read_raw(memory, arch, table, level, index).map_or(Entry::Empty, |raw| arch.entry(level, index, raw))
}

fn read_raw(memory: &(impl Memory + ?Sized), arch: &Arch, table: u64, level: u8, index: u64) -> Option<u64> {
    let bytes = arch.levels[usize::from(level)].entry_bytes;
    memory.read(table.wrapping_add(index * u64::from(bytes)), bytes)
}
