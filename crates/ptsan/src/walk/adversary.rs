//! The adversary: hardware walkers that walk at the worst moments.
//!
//! A CPU that has a root loaded, active or lazy, may walk for any address at any time. It may have
//! read an entry long before it uses it. A seeded generator decides which CPU walks, when, where
//! to, and how far it gets before it pauses. The same seed and the same hooks give the same
//! findings.
//!
//! Walks keep to announced tables. Tables behind other entries are not the sanitizer's.
use super::walker::{Descent, Start, Walk};
use crate::arch::Entry;
use crate::cpu::{Flight, Loaded};
use crate::memory::Memory;
use crate::state::{Chance, Sanitizer};
use std::ops::Range;

/// The most walks of a CPU in flight.
const FLIGHTS: usize = 4;
/// The number of entries of a table that are searched for one that leads on: usually, and at times.
const LOOKS: u64 = 32;
const LONG_LOOKS: u64 = 512;
/// The number of bytes of entries that are compared with zero at once.
const LINE: u64 = 64;

impl Sanitizer {
    #[inline]
    pub(crate) fn adversary_acts(&mut self, memory: &(impl Memory + ?Sized)) {
        // Taken out meanwhile, because these walks are not hooks.
        let Some(mut chance) = self.chance.take() else { return };
        let times =
            u64::from(chance.rate) / 1000 + u64::from(chance.below(1000) < u64::from(chance.rate % 1000));
        for _ in 0..times {
            self.adversary_acts_once(memory, &mut chance);
        }
        self.chance = Some(chance);
    }

    fn adversary_acts_once(&mut self, memory: &(impl Memory + ?Sized), chance: &mut Chance) {
        if !self.readers.walking.is_empty() && chance.below(4) == 0 {
            self.stats.adversary_steps += 1;
            return self.reader_wanders(memory, chance);
        }
        let cpus = self.cpus.len();
        let first = chance.below(cpus as u64) as usize;
        let can_walk = |cpu: usize| Some((cpu, self.cpus[cpu].loaded.filter(|_| self.cpus[cpu].settled)?));
        let found = (first..cpus).chain(0..first).find_map(can_walk);
        let Some((cpu, loaded)) = found else { return };
        self.stats.adversary_steps += 1;
        if self.config.arch.hashed.is_some() {
            return self.speculate_hashed(memory, cpu, loaded, chance);
        }
        let choice = chance.below(8);
        if choice >= 6 && !self.cpus[cpu].flights.is_empty() {
            let which = chance.below(self.cpus[cpu].flights.len() as u64) as usize;
            let flight = self.cpus[cpu].flights.swap_remove(which);
            self.land(memory, cpu, loaded, flight);
            return;
        }
        let va = match chance.below(2) {
            0 => chance.near(&self.config.arch),
            _ => None,
        };
        let Some(va) = va.or_else(|| self.wander(memory, loaded, chance)) else { return };
        if !self.config.arch.is_canonical(va) {
            return;
        }
        let Some(start) = self.known_start(memory, cpu, loaded, va) else { return };
        if choice >= 4 && start.level > 0 && self.cpus[cpu].flights.len() < FLIGHTS {
            let stop = chance.below(u64::from(start.level)) as u8;
            self.take_off(memory, cpu, loaded, va, start, stop);
        } else {
            self.probe_from(memory, (cpu, loaded), va, Some(start));
        }
    }

    /// Returns where a walk for `va` would begin, if it keeps to announced tables and well-formed
    /// entries. Reports a cached table that was freed.
    fn known_start(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        va: u64,
    ) -> Option<Start> {
        let start = self.start(cpu, loaded, va).ok()?;
        if start.cached {
            self.check_cached_table(cpu, loaded, va, start.table, start.level);
        }
        self.is_known_way(memory, start.table.phys, start.level, va).then_some(start)
    }

    fn is_known_way(&self, memory: &(impl Memory + ?Sized), mut table: u64, level: u8, va: u64) -> bool {
        let arch = &self.config.arch;
        for level in (0..=level).rev() {
            if !self.frames.is_known(table) {
                return false;
            }
            let l = &arch.levels[usize::from(level)];
            let at = table.wrapping_add(l.index(va) * u64::from(l.entry_bytes));
            match memory.read(at, l.entry_bytes).map(|raw| (arch.decode)(level, raw)) {
                Some(Entry::Table { phys, .. }) if level > 0 => table = phys,
                Some(Entry::Empty | Entry::Leaf { .. }) => return true,
                _ => return false,
            }
        }
        true
    }

    /// Chooses a random path down the tree in memory, along entries that lead on.
    fn wander(&self, memory: &(impl Memory + ?Sized), loaded: Loaded, chance: &mut Chance) -> Option<u64> {
        let arch = &self.config.arch;
        let looks = if chance.below(16) == 0 { LONG_LOOKS } else { LOOKS };
        let (mut table, mut va, mut mapped) = (loaded.root, 0, false);
        for (level, l) in arch.levels.iter().enumerate().rev() {
            if !self.frames.is_known(table) {
                return None;
            }
            let first = chance.next() & (l.entries() as u64 - 1);
            let way = self.way_on(memory, (table, level as u8), first, looks);
            let (index, below) = way.unwrap_or((first, None));
            va |= index << l.shift;
            mapped = way.is_some();
            let Some(below) = below else { break };
            table = below;
        }
        let va = arch.extend(va);
        if mapped {
            chance.remember(va);
        }
        Some(va)
    }

    /// Returns the first of `looks` entries of a table from `first` on, in a circle, that leads on:
    /// its index, and the table to which it leads.
    fn way_on(
        &self,
        memory: &(impl Memory + ?Sized),
        (table, level): (u64, u8),
        first: u64,
        looks: u64,
    ) -> Option<(u64, Option<u64>)> {
        let l = &self.config.arch.levels[usize::from(level)];
        let entries = l.entries() as u64;
        let end = first + looks.min(entries);
        let before = self.way_on_between(memory, (table, level), first..end.min(entries));
        before.or_else(|| self.way_on_between(memory, (table, level), 0..end.saturating_sub(entries)))
    }

    fn way_on_between(
        &self,
        memory: &(impl Memory + ?Sized),
        (table, level): (u64, u8),
        entries: Range<u64>,
    ) -> Option<(u64, Option<u64>)> {
        let arch = &self.config.arch;
        let bytes = arch.levels[usize::from(level)].entry_bytes;
        let at = |index: u64| table.wrapping_add(index * u64::from(bytes));
        // Most entries are zero, and many of them are quickly compared.
        let line = LINE >> bytes.trailing_zeros();
        let zero = |from: u64, count: u64| {
            let (at, size) = (at(from), count * u64::from(bytes));
            (at | size).is_multiple_of(8) && memory.is_zero(at, size) == Some(true)
        };
        if self.zero_is_empty && zero(entries.start, entries.end - entries.start) {
            return None;
        }
        let mut index = entries.start;
        while index < entries.end {
            let whole = at(index).is_multiple_of(LINE) && entries.end - index >= line;
            if self.zero_is_empty && whole && zero(index, line) {
                index += line;
                continue;
            }
            match memory.read(at(index), bytes).map(|raw| (arch.decode)(level, raw)) {
                Some(Entry::Table { phys, .. }) if self.frames.is_known(phys) => {
                    return Some((index, Some(phys)));
                }
                Some(Entry::Leaf { .. }) => return Some((index, None)),
                _ => index += 1,
            }
        }
        None
    }

    /// Begins a walk, and pauses it when it has read the entry for the table of level `stop`.
    fn take_off(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        va: u64,
        start: Start,
        stop: u8,
    ) {
        let walk = Walk { cpu, loaded, va, access: None };
        let descent = self.descend(memory, &walk, (start.table, start.level), Some(stop));
        let Descent::Paused(table) = descent else { return };
        let since = self.event;
        self.cpus[cpu].flights.push(Flight { va, level: stop, table, since });
    }

    /// Continues a walk in flight, whatever happened to the tables since.
    fn land(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, loaded: Loaded, flight: Flight) {
        let Flight { va, level, table, .. } = flight;
        self.check_cached_table(cpu, loaded, va, table, level);
        let is_table = self.is_table(table.frame);
        if is_table && self.is_known_way(memory, table.phys, level, va) {
            self.cache_table(cpu, loaded.context, va, level, table);
            let walk = Walk { cpu, loaded, va, access: None };
            let _ = self.descend_to_end(memory, &walk, (table, level));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use crate::state::Config;

    #[test]
    fn a_search_that_skips_zeros_equals_a_linear_one() {
        for arch in [Arch::x86_64(), Arch::x86_2level()] {
            let san = Sanitizer::new(Config::new(arch.clone()));
            let (entries, bytes) = (arch.levels[0].entries() as u64, usize::from(arch.entry_bytes()));
            let mut chance = Chance::new(crate::state::Adversary::new(7));
            for round in 0..2000 {
                let mut memory = vec![0u8; 4096];
                for _ in 0..chance.below(4) {
                    // A page, or an entry that is neither zero nor present.
                    let at = chance.below(entries) as usize * bytes;
                    memory[at] = chance.below(2) as u8 | 2;
                }
                let (first, looks) = (chance.below(entries), chance.below(entries + 9));
                let present = |index: u64| memory[index as usize * bytes] & 1 != 0;
                let circle = (0..looks.min(entries)).map(|step| (first + step) % entries);
                let want = circle.into_iter().find(|&index| present(index));
                let found = san.way_on(&memory, (0, 0), first, looks);
                assert_eq!(found, want.map(|index| (index, None)), "{} round {round}", arch.name);
            }
        }
    }
}
