//! The locks of tables: stores without them, and locks released too early.
use crate::memory::Memory;
use crate::owed::{CpuMask, GLOBAL, PageDebt};
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, Link};
use crate::state::{EntryAt, Guard, Held, Hold, Sanitizer};

/// The most tables above one that are looked at.
const MOST_SEEN: usize = 1 << 10;

impl Sanitizer {
    /// Reports a store to an entry without the lock of its table.
    pub(crate) fn check_lock(&mut self, memory: &(impl Memory + ?Sized), at: EntryAt, exchanged: bool) {
        let place = Place {
            frame: self.frames.get(at.table).map(|f| f.phys),
            cpu: self.running,
            level: Some(at.level),
            ..Place::default()
        };
        let Some(guard) = self.guard_above(memory, at.table, &mut Vec::new()) else {
            let mut ways = Vec::new();
            self.ways_up(memory, at, &mut ways);
            let loaded = |root: FrameRef| self.cpus.iter().any(|c| c.loaded.is_some_and(|l| l.frame == root));
            if ways.iter().any(|(root, _)| loaded(*root)) {
                self.report(Kind::UnlockedWrite, Rule::NoLock, place, String::new);
            }
            return;
        };
        let lock = guard.lock;
        match self.locks.holder(lock, self.running) {
            Some(Held { hold: Hold::Exclusive, .. }) => {}
            Some(_) if exchanged => {}
            Some(_) => {
                self.report(Kind::UnlockedWrite, Rule::SharedLock, place, || format!("lock {lock:#x}"))
            }
            None => {
                let other = self.locks.holder(lock, None).map(|held| held.cpu);
                self.report(Kind::UnlockedWrite, Rule::NotLocked, place, || match other {
                    Some(other) => format!("CPU {other} holds lock {lock:#x}"),
                    None => format!("nobody holds lock {lock:#x}"),
                });
            }
        }
    }

    /// Returns the lock of a table, or of the nearest table above it that has one. A table that no
    /// entry points at is its maker's alone, unless it is a root.
    fn guard_above(
        &self,
        memory: &(impl Memory + ?Sized),
        table: FrameRef,
        seen: &mut Vec<FrameRef>,
    ) -> Option<Guard> {
        let f = self.frames.get(table)?;
        if seen.len() >= MOST_SEEN || seen.contains(&table) {
            return None;
        }
        seen.push(table);
        let own = self.locks.guard_of(f.phys);
        if own.is_some() && f.level == Some(self.config.arch.top()) {
            return own;
        }
        let linked = |link: &Link| self.points_at(memory, *link, f);
        match own {
            Some(own) => f.links().any(|link| linked(&link)).then_some(own),
            None => f.links().filter(linked).find_map(|link| self.guard_above(memory, link.parent, seen)),
        }
    }

    /// Reports the flushes that CPUs owe for stores made under a lock that is released.
    pub(crate) fn check_released(&mut self, memory: &(impl Memory + ?Sized), held: Held) {
        if !self.config.locks || self.debts.is_empty() {
            return;
        }
        let Held { lock, cpu, since, .. } = held;
        let mut debts = std::mem::take(&mut self.debts);
        let cpus = &self.cpus;
        let due = |debt: &PageDebt| {
            let made = debt.since > since && debt.by.is_none_or(|by| by == cpu);
            let guard = || {
                let table = self.frames.find(debt.entry)?;
                let own = self.guard_above(memory, table, &mut Vec::new());
                own.or_else(|| self.locks.guard_of(debt.root))
            };
            match made && guard().is_some_and(|g| g.lock == lock && g.flush_first) {
                true => debt.cpus.only(|of| debt.space == GLOBAL || cpus[of].uses(debt.space, debt.since)),
                false => CpuMask::default(),
            }
        };
        let taken = debts.take_pages(due);
        self.debts = debts;
        self.report_missing(memory, taken, Some(Rule::ReleasedBeforeFlush));
    }
}
