//! Passes levels down to tables that were built before they were reachable.
//!
//! The level of a table that is announced without one follows from the entry above it. A tree that
//! is built before its root is loaded therefore has no levels until then, and its stores are only
//! recorded. When a table gets its level, the entries that were told are looked at as if they were
//! stored now, and the tables that they point at get theirs. No step depends on a walk.
use crate::arch::Entry;
use crate::memory::Memory;
use crate::report::{Happened, Place};
use crate::shadow::{FrameRef, Link, Told};
use crate::state::{EntryAt, Sanitizer};

impl Sanitizer {
    /// Looks at the entries of a table whose level has just become known.
    ///
    /// Where stores are told, entries that are older than the first told one are followed too,
    /// unless a walk (`walk`) has led here: tables of the time before the sanitizer was there.
    pub(super) fn level_learned(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef, walk: bool) {
        let Some(f) = self.frames.get(at) else { return };
        let Some(level) = f.level else { return };
        let (phys, clean, since) = (f.phys, !f.was_dirty, f.since);
        let told: Vec<_> = if f.told.is_empty() { Vec::new() } else { f.told.iter().collect() };
        for &(index, told) in &told {
            // A compact entry has an event of before.
            let told = Told { since: told.since.max(since), ..told };
            self.look_at_recorded(memory, at, (phys, level), index as u64, told);
        }
        if level == 0 || walk || !self.tells || !clean {
            return;
        }
        let l = self.config.arch.levels[usize::from(level)];
        if memory.is_zero(phys, u64::from(l.table_bytes)) != Some(false) {
            return;
        }
        for index in 0..l.entries() as u64 {
            if told.binary_search_by_key(&(index as usize), |&(index, _)| index).is_ok() {
                continue;
            }
            let entry = phys.wrapping_add(index * u64::from(l.entry_bytes));
            // Memory behind other entries holds no announced table.
            if let Some(below) = self.table_at(memory, level, entry)
                && self.frames.find(below).is_some_and(|f| self.is_table(f))
            {
                self.reach_from(memory, at, entry, below, level - 1);
            }
        }
    }

    /// Looks at an entry that was told before the level of its table was known.
    fn look_at_recorded(
        &mut self,
        memory: &(impl Memory + ?Sized),
        table: FrameRef,
        (phys, level): (u64, u8),
        index: u64,
        told: Told,
    ) {
        let arch = &self.config.arch;
        let entry = phys.wrapping_add(index * u64::from(arch.entry_bytes()));
        let now = arch.entry(level, index, told.raw);
        let at = EntryAt { entry, table, level };
        self.touch_run(at, index, told.since, (None, told.raw));
        self.map_to_user(at, None, now);
        if let Entry::Table { phys: below, .. } = now
            && level > 0
            && self.table_at(memory, level, entry) == Some(below)
        {
            let place = Place { frame: Some(below), level: Some(level - 1), ..Place::default() };
            if let Some(at) = self.frames.find(below) {
                self.check_leftovers(memory, at, place);
                if let Some(f) = self.frames.get_mut(at) {
                    f.history.push(told.since, Happened::Linked { entry });
                }
            }
            self.reach_from(memory, table, entry, below, level - 1);
        }
    }

    fn reach_from(
        &mut self,
        memory: &(impl Memory + ?Sized),
        parent: FrameRef,
        entry: u64,
        below: u64,
        level: u8,
    ) {
        let place = Place { frame: Some(below), level: Some(level), ..Place::default() };
        self.reached(memory, below, Some(Link { entry, parent }), place, false);
    }

    /// Returns the table at which the entry points now.
    fn table_at(&self, memory: &(impl Memory + ?Sized), level: u8, entry: u64) -> Option<u64> {
        let arch = &self.config.arch;
        let raw = memory.read(entry, arch.entry_bytes())?;
        match (arch.decode)(level, raw) {
            Entry::Table { phys, .. } => Some(phys),
            _ => None,
        }
    }
}
