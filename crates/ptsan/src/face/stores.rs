//! The hooks of stores to entries.
use crate::arch::Entry;
use crate::checks::{Change, takes_away};
use crate::cpu::Cpu;
use crate::memory::Memory;
use crate::report::{Happened, Place};
use crate::shadow::{Frame, FrameRef, Link, Told};
use crate::state::{EntryAt, Sanitizer};

impl Sanitizer {
    /// Tells that entry `index` of the table at `parent` was made to point at the table at `table`.
    ///
    /// Optional. It marks the exact moment from which hardware may walk the table, and so finds one
    /// that was linked before it was cleared
    /// ([`Kind::LinkedBeforeCleared`](crate::Kind::LinkedBeforeCleared)).
    pub fn table_linked(&mut self, memory: &(impl Memory + ?Sized), parent: u64, index: u64, table: u64) {
        let bytes = u64::from(self.config.arch.entry_bytes());
        match index.checked_mul(bytes).and_then(|offset| parent.checked_add(offset)) {
            Some(entry) => self.stored_to(memory, entry, Some(table), false),
            None => self.hook(|s| {
                let place = Place { frame: Some(parent), ..Place::default() };
                s.bad_argument(place, "table_linked needs an index that is in the table");
            }),
        }
    }

    /// Tells that the entry at physical address `entry` was stored to: like
    /// [`Sanitizer::table_linked`], for code with one place through which all entries are written.
    /// Tell either all stores or no store.
    ///
    /// An entry of a table whose level is not known yet is only recorded. It is looked at when the
    /// level becomes known: when a root above is loaded, or a table above is linked into a tree
    /// whose levels are known. An entry of a frame that is no table is ignored. The value of an
    /// entry after a told store is new, even if it held the same before.
    pub fn entry_written(&mut self, memory: &(impl Memory + ?Sized), entry: u64) {
        self.stored_to(memory, entry, None, false);
    }

    /// Tells that the entry at physical address `entry` was exchanged: stored to by an atomic
    /// instruction that returned its former value, with the bits that hardware had set. Like
    /// [`Sanitizer::entry_written`] otherwise.
    ///
    /// It makes a difference with [`Config::accessed_dirty`](crate::Config::accessed_dirty).
    pub fn entry_exchanged(&mut self, memory: &(impl Memory + ?Sized), entry: u64) {
        self.stored_to(memory, entry, None, true);
    }

    /// Checks a store, then lets the adversary act: its walks see the new entry.
    fn stored_to(&mut self, memory: &(impl Memory + ?Sized), entry: u64, told: Option<u64>, exchanged: bool) {
        self.hook(|s| {
            s.tells |= told.is_none();
            s.reports.tells = s.tells;
            s.link(memory, entry, told, exchanged);
            s.adversary_acts(memory);
        });
    }

    fn link(&mut self, memory: &(impl Memory + ?Sized), entry: u64, told: Option<u64>, exchanged: bool) {
        let parent = self.frames.find(entry).filter(|&p| self.is_table(p));
        let (level, index) =
            parent.and_then(|p| self.frames.get(p)).map_or((None, 0), |f| (f.level, self.index_in(f, entry)));
        let raw = memory.read(entry, self.config.arch.entry_bytes());
        let seen = level.zip(raw).map(|(level, raw)| self.config.arch.entry(level, index, raw));
        if let Some(table) = parent {
            self.forget_leftover(table, entry);
        }
        if let (Some(frame), Some(raw)) = (parent, raw) {
            // A told link does not cover other stores to the entry.
            let before = if told.is_none() { self.replace_told(frame, index, raw) } else { None };
            if let (Some(level), Some(new)) = (level, seen) {
                let at = EntryAt { entry, table: frame, level };
                self.stored(memory, at, index, before, (raw, new), exchanged);
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

    /// Records the value that a told store left, and returns the one that the store before had
    /// left.
    fn replace_told(&mut self, table: FrameRef, index: u64, raw: u64) -> Option<Told> {
        let new = Told { raw, since: self.event };
        // A table has at most 2^28 bytes.
        self.tell(table, index as usize, new)
    }

    /// Records the value of an entry, and returns the one that was told before.
    pub(crate) fn tell(&mut self, table: FrameRef, index: usize, new: Told) -> Option<Told> {
        let cpus = &self.cpus;
        let departures = || {
            let mut all: Vec<u64> = cpus.iter().flat_map(|c| c.visits.departures()).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        self.frames.tell(table, index, new, (self.last_departure, &departures))
    }

    fn index_in(&self, f: &Frame, entry: u64) -> u64 {
        entry.saturating_sub(f.phys) >> self.config.arch.entry_bytes().trailing_zeros()
    }

    /// Checks a store to an entry of a table whose level is known.
    fn stored(
        &mut self,
        memory: &(impl Memory + ?Sized),
        at: EntryAt,
        index: u64,
        before: Option<Told>,
        (raw, new): (u64, Entry),
        exchanged: bool,
    ) {
        if self.config.locks {
            self.check_lock(memory, at, exchanged);
        }
        let old = before.map(|b| self.config.arch.entry(at.level, index, b.raw));
        let resized = self.touch_run(at, index, self.event, (before.map(|b| b.raw), raw));
        if let Some(Entry::Table { phys, .. }) = old
            && !matches!(new, Entry::Table { phys: same, .. } if same == phys)
            && let Some(below) = self.frames.find(phys)
            && let Some(f) = self.frames.get_mut(below)
        {
            f.history.push(self.event, Happened::Unhooked { entry: at.entry });
        }
        if at.level == self.config.arch.top() && new != Entry::Empty {
            let loaded = |c: &&mut Cpu| c.loaded.is_some_and(|l| l.frame == at.table);
            self.cpus.iter_mut().filter(loaded).for_each(|c| c.visits.has_entry());
        }
        self.map_to_user(at, old, new);
        let takes = old.is_some_and(|old| takes_away(old, new));
        let state = before
            .zip(old)
            .filter(|_| !takes)
            .and_then(|(before, old)| self.state_changed(at.level, (before.raw, raw), (old, new)));
        let beside = self.config.arch.break_before_make;
        // A large page where a table may have been.
        let promoted = self.keeps_bits()
            && at.level > 0
            && matches!(new, Entry::Leaf { .. })
            && !matches!(old, Some(Entry::Leaf { .. }));
        self.written.stored(at.entry);
        if !takes && state.is_none() && !beside && !promoted && self.chance.is_none() {
            return;
        }
        let mut ways = std::mem::take(&mut self.ways);
        self.ways_up(memory, at, &mut ways);
        if let Some(old) = old {
            self.leave_below(memory, at, &ways, (old, new));
        }
        let mut contradicts = beside && self.check_store(memory, at, &ways, old, new);
        if let Some(old) = old.filter(|_| beside && resized && !contradicts) {
            contradicts = self.check_resized(at, &ways, old, new);
        }
        if promoted && !contradicts {
            self.check_promotion(memory, at, &ways, old, (raw, new));
        }
        if let (Some(before), Some(old)) = (before.filter(|_| takes || state.is_some()), old) {
            let held = self.config.arch.hashed.is_none() && !contradicts;
            // Only a store that takes a right away may lose a bit.
            let cached = |s: &mut Self| match takes {
                true => s.check_bits(at, &ways, (before.raw, raw), (old, exchanged)),
                false => s.was_used(at.level, before.raw, exchanged),
            };
            if held && cached(self) {
                for &(root, va) in &ways {
                    self.owe(memory, Change { at, root, va, before, old, new, state });
                }
            }
        }
        if let Some(&(_, va)) = ways.first() {
            self.notice(va);
        }
        self.ways = ways;
    }

    fn level_of(&self, phys: u64) -> Option<u8> {
        self.frames.find(phys).and_then(|f| self.frames.get(f)).and_then(|f| f.level)
    }
}
