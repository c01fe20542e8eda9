//! The hooks of stores to entries.
use crate::arch::Entry;
use crate::memory::Memory;
use crate::report::{Happened, Place};
use crate::shadow::{FrameRef, Link};
use crate::state::{EntryAt, Sanitizer, Told};

impl Sanitizer {
    /// Tells that entry `index` of the table at `parent` was made to point at the table at `table`.
    ///
    /// Optional. It marks the exact moment from which hardware may walk the table, and so finds one
    /// that was linked before it was cleared
    /// ([`Kind::LinkedBeforeCleared`](crate::Kind::LinkedBeforeCleared)).
    pub fn table_linked(&mut self, memory: &(impl Memory + ?Sized), parent: u64, index: u64, table: u64) {
        let bytes = u64::from(self.config.arch.entry_bytes());
        match index.checked_mul(bytes).and_then(|offset| parent.checked_add(offset)) {
            Some(entry) => self.stored_to(memory, entry, Some(table)),
            None => self.hook(|s| {
                let place = Place { frame: Some(parent), ..Place::default() };
                s.bad_argument(place, "table_linked needs an index that is in the table");
            }),
        }
    }

    /// Tells that the entry at physical address `entry` was stored to: like
    /// [`Sanitizer::table_linked`], for code with one place through which all entries are written.
    /// Either tell all stores or none.
    ///
    /// An entry of a table whose level is not known yet is only recorded. One of a frame that is no
    /// table is ignored. What an entry holds after a told store is new, even if it held the same
    /// before.
    pub fn entry_written(&mut self, memory: &(impl Memory + ?Sized), entry: u64) {
        self.stored_to(memory, entry, None);
    }

    /// Checks a store, then lets the adversary act: its walks see the new entry.
    fn stored_to(&mut self, memory: &(impl Memory + ?Sized), entry: u64, told: Option<u64>) {
        self.hook(|s| {
            s.link(memory, entry, told);
            s.adversary_acts(memory);
        });
    }

    fn link(&mut self, memory: &(impl Memory + ?Sized), entry: u64, told: Option<u64>) {
        let parent = self.frames.find(entry).filter(|&p| self.is_table(p));
        let level = parent.and_then(|p| self.frames.get(p)).and_then(|f| f.level);
        let decode = self.config.arch.decode;
        let raw = memory.read(entry, self.config.arch.entry_bytes());
        let seen = level.zip(raw).map(|(l, raw)| decode(l, raw));
        if let Some(table) = parent {
            self.forget_leftover(table, entry);
        }
        if let (Some(frame), Some(raw)) = (parent, raw) {
            // A told link says nothing of other stores to the entry.
            let before = if told.is_none() { self.told.insert(entry, Told { raw, frame }) } else { None };
            let before = before.filter(|b| b.frame == frame).map(|b| b.raw);
            if let (Some(level), Some(new)) = (level, seen) {
                let at = EntryAt { entry, table: frame, level };
                self.stored(memory, at, before.map(|raw| decode(level, raw)), new);
            }
        }
        let table = match (told, seen) {
            (Some(table), _) => table,
            (None, Some(Entry::Table { phys, .. })) => phys,
            _ => return,
        };
        let place = Place {
            frame: Some(table),
            level: level.and_then(|l| l.checked_sub(1)).or_else(|| self.level_of(table)),
            ..Place::default()
        };
        let link = Link { entry, parent: parent.unwrap_or(FrameRef::UNKNOWN) };
        if let Some(at) = self.frames.find(table) {
            self.check_leftovers(memory, at, place);
            if let Some(f) = self.frames.get_mut(at) {
                f.history.push(self.event, Happened::Linked { entry });
            }
        }
        self.reached(memory, table, Some(link), place, false);
    }

    /// Checks a store to an entry of a table whose level is known.
    fn stored(&mut self, memory: &(impl Memory + ?Sized), at: EntryAt, old: Option<Entry>, new: Entry) {
        if let Some(Entry::Table { phys, .. }) = old
            && !matches!(new, Entry::Table { phys: same, .. } if same == phys)
            && let Some(below) = self.frames.find(phys)
            && let Some(f) = self.frames.get_mut(below)
        {
            f.history.push(self.event, Happened::Unhooked { entry: at.entry });
        }
        if self.config.arch.break_before_make {
            self.check_store(memory, at, old, new);
        }
        if self.chance.is_some()
            && let Some((_, va)) = self.way_up(memory, at)
        {
            self.notice(va);
        }
    }

    fn level_of(&self, phys: u64) -> Option<u8> {
        self.frames.find(phys).and_then(|f| self.frames.get(f)).and_then(|f| f.level)
    }
}
