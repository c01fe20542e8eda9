//! All debts.
use super::cover::Cover;
use super::debt::{GLOBAL, PageDebt, TableDebt};
use super::mask::CpuMask;
use crate::arch::{Arch, MAX_LEVELS};
use crate::hash::FastMap;
use crate::report::Stored;
use crate::shadow::FrameRef;

/// The space, and the address with the level in its low bits.
type DebtKey = (u64, u64);

/// The most debts of one place.
const MOST_BESIDE: usize = 64;

/// The debts of one place: nearly always one.
struct PlaceDebts {
    first: PageDebt,
    more: Vec<PageDebt>,
}

/// All debts that are not paid.
#[derive(Default)]
pub(crate) struct Debts {
    pages: FastMap<DebtKey, PlaceDebts>,
    counts: Counts,
    tables: Vec<TableDebt>,
    /// The most debts that are kept.
    most: usize,
    dropped: u64,
    /// Places that were reported, and stay stale until a flush.
    reported: FastMap<DebtKey, ()>,
}

/// The number of places of each level, of spaces and of global translations. A flush skips levels
/// without places.
#[derive(Default)]
struct Counts {
    places: [[usize; MAX_LEVELS]; 2],
    /// The levels that have any, one bit each.
    levels: [u8; 2],
}

impl Counts {
    fn place(&mut self, (space, at): DebtKey) -> (&mut usize, &mut u8, u8) {
        let (global, level) = (usize::from(space == GLOBAL), (at & 7) as usize);
        (&mut self.places[global][level], &mut self.levels[global], 1 << level)
    }

    fn add(&mut self, key: DebtKey) {
        let (count, levels, bit) = self.place(key);
        *count += 1;
        *levels |= bit;
    }

    fn remove(&mut self, key: DebtKey) {
        let (count, levels, bit) = self.place(key);
        *count -= 1;
        if *count == 0 {
            *levels &= !bit;
        }
    }
}

fn key(space: u64, va: u64, level: u8) -> DebtKey {
    (space, va | u64::from(level))
}

impl Debts {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Returns the number of debts that were not kept, because there were too many.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.tables.is_empty()
    }

    /// Adds the debt of a translation.
    pub(crate) fn add_page(&mut self, new: PageDebt) {
        let full = self.pages.len() >= self.most;
        let key = key(new.space, new.va, new.level);
        if !self.reported.is_empty() {
            self.reported.remove(&key);
        }
        match self.pages.get_mut(&key) {
            None if full => self.dropped += 1,
            None => {
                self.counts.add(key);
                self.pages.insert(key, PlaceDebts { first: new, more: Vec::new() });
            }
            Some(place) => {
                let room = place.more.len() < MOST_BESIDE;
                let mut all = std::iter::once(&mut place.first).chain(&mut place.more);
                match all.find(|old| old.is_same(&new)) {
                    Some(old) => {
                        old.cpus.add_all(&new.cpus);
                        let cpus = std::mem::take(&mut old.cpus);
                        *old = PageDebt { cpus, perms: old.perms | new.perms, ..new };
                    }
                    None if room => place.more.push(new),
                    None => self.dropped += 1,
                }
            }
        }
    }

    /// Adds the debt of a table.
    pub(crate) fn add_table(&mut self, new: TableDebt) {
        let same =
            |old: &&mut TableDebt| old.frame == new.frame && old.space == new.space && old.va == new.va;
        if let Some(old) = self.tables.iter_mut().find(same) {
            old.cpus.add_all(&new.cpus);
            (old.since, old.store) = (new.since, new.store);
        } else if self.tables.len() < self.most {
            self.tables.push(new);
        } else {
            self.dropped += 1;
        }
    }

    /// Pays the debts that a flush of a CPU covers. A store that was not ordered before the flush
    /// stays owed.
    pub(crate) fn pay(&mut self, cpu: usize, cover: Cover<'_>) {
        if self.is_empty() {
            return;
        }
        self.settle_tables(cpu, |debt| {
            let covered = cover.covers_table(debt);
            let ordered = cover.is_ordered(cpu, debt.since, debt.by);
            debt.unordered |= covered && !ordered;
            covered && ordered
        });
        let Some((space, range)) = cover.addresses(self.pages.len()) else {
            return self.settle_pages(|debt| {
                if cover.covers_page(debt) {
                    cover.settle(cpu, debt);
                }
            });
        };
        let global = (Some(space) == cover.loaded).then_some(GLOBAL);
        let named = cover.flush.level.map_or(u8::MAX, |level| 1u8.checked_shl(level.into()).unwrap_or(0));
        let mut va = range.start;
        while va < range.end && !self.pages.is_empty() {
            for (which, space) in std::iter::once(space).chain(global).enumerate() {
                let mut levels = self.counts.levels[which] & named;
                while levels != 0 {
                    let level = levels.trailing_zeros() as u8;
                    levels &= levels - 1;
                    let shift = cover.arch.levels[usize::from(level)].shift;
                    let key = key(space, va & !((1u64 << shift) - 1), level);
                    if let Some(place) = self.pages.get_mut(&key)
                        && !place.settle(|debt| cover.settle(cpu, debt))
                    {
                        self.pages.remove(&key);
                        self.counts.remove(key);
                    }
                }
            }
            let Some(next) = va.checked_add(range.stride) else { break };
            va = next;
        }
    }

    /// Pays debts that a CPU has flushed by address in stage 2: its combined translations
    /// of the space are gone now.
    pub(crate) fn combined_flushed(&mut self, cpu: usize, space: u64) {
        self.settle_pages(|debt| {
            if debt.space == space && debt.combined.contains(cpu) {
                debt.combined.remove(cpu);
                debt.cpus.remove(cpu);
            }
        });
    }

    fn keep_pages(&mut self, mut keep: impl FnMut(DebtKey, &mut PlaceDebts) -> bool) {
        let counts = &mut self.counts;
        self.pages.retain(|&key, place| {
            let kept = keep(key, place);
            if !kept {
                counts.remove(key);
            }
            kept
        });
    }

    fn settle_pages(&mut self, mut settle: impl FnMut(&mut PageDebt)) {
        self.keep_pages(|_, place| place.settle(&mut settle));
    }

    fn settle_tables(&mut self, cpu: usize, paid: impl Fn(&mut TableDebt) -> bool) {
        if self.tables.is_empty() {
            return;
        }
        self.tables.retain_mut(|debt| {
            if paid(debt) {
                debt.cpus.remove(cpu);
            }
            !debt.cpus.is_empty()
        });
    }

    /// Pays the debts of a CPU that loads a root without address-space numbers: all but debts for
    /// global translations.
    pub(crate) fn root_changed(&mut self, cpu: usize) {
        if !self.is_empty() {
            self.settle_tables(cpu, |_| true);
            self.settle_pages(|debt| {
                if debt.space != GLOBAL {
                    debt.cpus.remove(cpu);
                }
            });
        }
    }

    /// Forgets the debts of a space that is gone.
    pub(crate) fn forget(&mut self, space: u64) {
        if !self.is_empty() {
            self.tables.retain(|debt| debt.space != space);
            self.keep_pages(|(of, _), _| of != space);
        }
    }

    /// Forgets the debts for the pages in `bytes` bytes at `va`: another finding reports them.
    pub(crate) fn forgive(&mut self, space: u64, va: u64, bytes: u64) {
        let end = va.saturating_add(bytes);
        self.keep_pages(|(of, _), place| {
            !((of == space || of == GLOBAL) && place.first.va >= va && place.first.va < end)
        });
    }

    /// Returns a page in the block of `level` at `va`, smaller than it, for which a CPU owes a
    /// flush.
    pub(crate) fn owed_within(
        &self,
        arch: &Arch,
        (cpu, space): (usize, u64),
        (va, level): (u64, u8),
    ) -> Option<&PageDebt> {
        let end = va.saturating_add(1 << arch.levels[usize::from(level)].shift);
        let within = |debt: &&PageDebt| {
            let inside = debt.va >= va && debt.va < end && debt.level < level;
            debt.space == space && inside && debt.cpus.contains(cpu)
        };
        self.pages.values().map(|place| &place.first).filter(within).min_by_key(|debt| debt.va)
    }

    /// Returns the page at an address of which a CPU owes a flush.
    pub(crate) fn owed_at(&self, arch: &Arch, cpu: usize, space: u64, va: u64) -> Option<&PageDebt> {
        if self.pages.is_empty() {
            return None;
        }
        arch.levels.iter().enumerate().find_map(|(level, l)| {
            let start = va & !((1u64 << l.shift) - 1);
            let at = |space| self.pages.get(&key(space, start, level as u8));
            let place = at(space).or_else(|| at(GLOBAL))?;
            std::iter::once(&place.first).chain(&place.more).find(|debt| debt.cpus.contains(cpu))
        })
    }

    /// Returns the store that unlinked a table which CPUs may hold.
    pub(crate) fn store_of_table(&self, frame: FrameRef) -> Option<&Stored> {
        self.tables.iter().find(|debt| debt.frame == frame)?.store.as_ref()
    }

    /// Notes that a page was reported.
    pub(crate) fn note_reported(&mut self, space: u64, va: u64, level: u8) {
        if self.reported.len() < self.most {
            self.reported.insert(key(space, va, level), ());
        }
    }

    /// Returns whether a stale translation of the page was reported before.
    pub(crate) fn was_reported(&self, arch: &Arch, space: u64, va: u64) -> bool {
        !self.reported.is_empty()
            && arch.levels.iter().enumerate().any(|(level, l)| {
                let start = va & !((1u64 << l.shift) - 1);
                let key = |space| key(space, start, level as u8);
                self.reported.contains_key(&key(space)) || self.reported.contains_key(&key(GLOBAL))
            })
    }

    /// Takes the debts that are due, with the CPUs of each that `due` names.
    pub(crate) fn take_pages(&mut self, due: impl Fn(&PageDebt) -> CpuMask) -> Vec<PageDebt> {
        let mut taken = Vec::new();
        self.keep_pages(|_, place| {
            place.settle(|debt| {
                let cpus = due(debt);
                if !cpus.is_empty() {
                    taken.push(PageDebt { cpus, ..debt.clone() });
                    debt.cpus = CpuMask::default();
                }
            })
        });
        for debt in &taken {
            self.note_reported(debt.space, debt.va, debt.level);
        }
        taken.sort_by_key(|debt| (debt.since, debt.va, debt.level));
        taken
    }

    /// Returns the CPUs that owe a flush of a table, and the space.
    pub(crate) fn table(&self, frame: FrameRef) -> Option<(&CpuMask, u64)> {
        self.tables.iter().find(|debt| debt.frame == frame).map(|debt| (&debt.cpus, debt.space))
    }

    /// Takes the debt of a table.
    pub(crate) fn take_table(
        &mut self,
        frame: FrameRef,
        due: impl Fn(&TableDebt) -> CpuMask,
    ) -> Option<TableDebt> {
        let at = self.tables.iter().position(|debt| debt.frame == frame)?;
        let mut debt = self.tables.swap_remove(at);
        debt.cpus = due(&debt);
        (!debt.cpus.is_empty()).then_some(debt)
    }
}

impl PlaceDebts {
    /// Changes each debt, and drops those that nobody owes. Returns whether any is left.
    fn settle(&mut self, mut change: impl FnMut(&mut PageDebt)) -> bool {
        change(&mut self.first);
        if !self.more.is_empty() {
            self.more.iter_mut().for_each(&mut change);
            self.more.retain(|debt| !debt.cpus.is_empty());
        }
        if !self.first.cpus.is_empty() {
            return true;
        }
        match self.more.pop() {
            Some(other) => {
                self.first = other;
                true
            }
            None => false,
        }
    }
}
