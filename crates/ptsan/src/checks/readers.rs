//! Tables that software reads without a lock.
use crate::arch::Entry;
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::FrameRef;
use crate::state::{Chance, EntryAt, Reader, Sanitizer};

impl Sanitizer {
    /// Notes that tables were taken out of the tree below a root: readers of it may be in them.
    pub(super) fn leave_to_readers(&mut self, root: u64, tables: impl Iterator<Item = FrameRef> + Clone) {
        let event = self.event;
        for walking in self.readers.walking.values_mut().filter(|w| w.root == root) {
            tables.clone().for_each(|table| walking.hold(table, event));
        }
    }

    /// Notes that a reader reads a table, and reports one that was freed.
    pub(crate) fn read_by_software(&mut self, reader: Reader, table: u64) {
        if !self.hold_for(reader, table)
            && self.frames.find(table).is_some_and(|at| !self.blamed.contains_key(&at))
        {
            let place = Place { frame: Some(table), ..Place::default() };
            self.report(Kind::UseAfterFree, Rule::ReadAfterFree, place, String::new);
        }
    }

    /// Notes that a reader may be in the table at an address. Returns whether there is one.
    fn hold_for(&mut self, reader: Reader, table: u64) -> bool {
        let Some(at) = self.frames.find(table).filter(|at| self.is_table(*at)) else { return false };
        if let Some(walking) = self.readers.get(reader) {
            walking.hold(at, self.event);
        }
        true
    }

    /// Reports a table that is freed while a reader may be in it.
    pub(crate) fn check_readers(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef) {
        if self.readers.walking.is_empty() {
            return;
        }
        let root = self.frames.get(at).map(|f| f.phys);
        let level = self.frames.get(at).and_then(|f| f.level);
        // The roots from which it is linked still.
        let mut ways = Vec::new();
        if let (Some(entry), Some(level)) = (root, level) {
            self.ways_up(memory, EntryAt { entry, table: at, level }, &mut ways);
        }
        let reached =
            |root: u64| ways.iter().any(|(way, _)| self.frames.get(*way).is_some_and(|f| f.phys == root));
        let found = self.readers.walking.values().find_map(|w| {
            let since =
                w.holds(at).or_else(|| Some(w.since).filter(|_| root == Some(w.root) || reached(w.root)))?;
            Some((w.root, w.since, since))
        });
        let Some((of, began, since)) = found else { return };
        self.readers.walking.values_mut().for_each(|w| w.forget(at));
        let place = Place { frame: root, level, ..Place::default() };
        self.report(Kind::FreeUnderReader, Rule::HeldByReader, place, || {
            format!("a reader of the tables at {of:#x} began at event {began}, and may be in it since event {since}")
        });
        self.blame(at);
    }

    /// Lets a reader go on, to any table below its root.
    pub(crate) fn reader_wanders(&mut self, memory: &(impl Memory + ?Sized), chance: &mut Chance) {
        let which = chance.below(self.readers.walking.len() as u64) as usize;
        let Some(walking) = self.readers.walking.values().nth(which) else { return };
        let (reader, mut table) = (walking.reader, walking.root);
        for level in (0..=self.config.arch.top()).rev() {
            if !self.hold_for(reader, table) || level == 0 {
                return;
            }
            let l = self.config.arch.levels[usize::from(level)];
            let (entries, first) = (l.entries() as u64, chance.next());
            let below = (0..entries.min(512)).map(|n| first.wrapping_add(n) % entries).find_map(|index| {
                let at = table.wrapping_add(index * u64::from(l.entry_bytes));
                match (self.config.arch.decode)(level, memory.read(at, l.entry_bytes)?) {
                    Entry::Table { phys, .. } => Some(phys),
                    _ => None,
                }
            });
            let Some(below) = below else { return };
            table = below;
        }
    }
}
