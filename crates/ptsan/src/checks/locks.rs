//! The locks of tables: stores without them, and locks released too early.
use super::overdue::using;
use crate::memory::Memory;
use crate::owed::{CpuMask, PageDebt};
use crate::report::{Kind, Place, Rule};
use crate::shadow::FrameRef;
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
        let mut ways = Vec::new();
        self.ways_up(memory, at, &mut ways);
        if ways.is_empty() {
            // No walk can reach it: it is its maker's alone.
            return;
        }
        let mut guards = Vec::new();
        self.guards_above(memory, at.table, &mut Vec::new(), &mut guards);
        let Some(guard) = guards.first() else {
            let loaded = |root: FrameRef| self.cpus.iter().any(|c| c.loaded.is_some_and(|l| l.frame == root));
            if ways.iter().any(|(root, _)| loaded(*root)) {
                self.report(Kind::UnlockedWrite, Rule::NoLock, place, String::new);
            }
            return;
        };
        // Trees that share the table may have a lock each: any of them will do.
        let held = |guard: &Guard| self.locks.holder(guard.lock, self.running);
        let right = |held: Held| exchanged || held.hold == Hold::Exclusive;
        if guards.iter().any(|guard| held(guard).is_some_and(right)) {
            return;
        }
        let shared = guards.iter().find(|guard| held(guard).is_some());
        let lock = shared.unwrap_or(guard).lock;
        if shared.is_some() {
            return self.report(Kind::UnlockedWrite, Rule::SharedLock, place, || format!("lock {lock:#x}"));
        }
        let other = self.locks.holder(lock, None).map(|held| self.reader(held.cpu));
        self.report(Kind::UnlockedWrite, Rule::NotLocked, place, || match other {
            Some(other) => format!("{other} holds lock {lock:#x}"),
            None => format!("nobody holds lock {lock:#x}"),
        });
    }

    /// Lists the lock of a table, or those of the nearest tables above it that have one.
    fn guards_above(
        &self,
        memory: &(impl Memory + ?Sized),
        table: FrameRef,
        seen: &mut Vec<FrameRef>,
        guards: &mut Vec<Guard>,
    ) {
        let Some(f) = self.frames.get(table) else { return };
        if seen.len() >= MOST_SEEN || seen.contains(&table) {
            return;
        }
        seen.push(table);
        match self.locks.guard_of(f.phys) {
            Some(own) => guards.push(own),
            None => {
                for link in f.links().filter(|link| self.points_at(memory, *link, f)) {
                    self.guards_above(memory, link.parent, seen, guards);
                }
            }
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
            let guarded = || {
                let mut guards = Vec::new();
                if let Some(table) = self.frames.find(debt.entry) {
                    self.guards_above(memory, table, &mut Vec::new(), &mut guards);
                }
                if guards.is_empty() {
                    guards.extend(self.locks.guard_of(debt.root));
                }
                guards.iter().any(|g| g.lock == lock && g.flush_first)
            };
            match made && guarded() {
                true => using(cpus, debt),
                false => CpuMask::default(),
            }
        };
        let taken = debts.take_pages(due);
        self.debts = debts;
        self.report_missing(memory, taken, Some(Rule::ReleasedBeforeFlush));
    }
}
