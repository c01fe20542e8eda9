//! The adversary: hardware walkers that walk at the worst moments.
//!
//! A CPU that has a root loaded, active or lazy, may walk for any address at any time. It may have
//! read an entry long before it uses it. A seeded generator decides which CPU walks, when, where
//! to, and how far it gets before it pauses. The same seed and the same hooks give the same
//! findings.
//!
//! Walks keep to announced tables. Tables behind other entries are not the sanitizer's.
use super::walker::{Next, Start};
use crate::arch::Entry;
use crate::cpu::{Flight, Loaded};
use crate::memory::Memory;
use crate::state::{Chance, Sanitizer};

/// The most walks of a CPU in flight.
const FLIGHTS: usize = 4;
/// The number of entries of a table that are searched for one that leads on: usually, and at times.
const LOOKS: u64 = 32;
const LONG_LOOKS: u64 = 512;

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
        let cpus = self.cpus.len();
        let first = chance.below(cpus as u64) as usize;
        let can_walk = |cpu: usize| Some((cpu, self.cpus[cpu].loaded.filter(|_| self.cpus[cpu].settled)?));
        let found = (0..cpus).map(|i| (first + i) % cpus).find_map(can_walk);
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
            self.probe(memory, cpu, loaded, va);
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
            if self.frames.find(table).is_none() {
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
            self.frames.find(table)?;
            let (entries, first) = (l.entries() as u64, chance.next());
            let way = (0..looks.min(entries)).map(|i| first.wrapping_add(i) % entries).find_map(|index| {
                let raw = memory.read(table.wrapping_add(index * u64::from(l.entry_bytes)), l.entry_bytes)?;
                match (arch.decode)(level as u8, raw) {
                    Entry::Table { phys, .. } => {
                        self.frames.find(phys).is_some().then_some((index, Some(phys)))
                    }
                    Entry::Leaf { .. } => Some((index, None)),
                    Entry::Empty | Entry::Malformed => None,
                }
            });
            let (index, below) = way.unwrap_or((first % entries, None));
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
        let (mut table, mut level) = (start.table, start.level);
        while level > stop {
            match self.step(memory, (cpu, loaded), va, None, (table, level)) {
                Next::Down(below) => (table, level) = (below, level - 1),
                Next::End(_) => return,
            }
        }
        let since = self.event;
        self.cpus[cpu].flights.push(Flight { va, level, table, since });
    }

    /// Continues a walk in flight, whatever happened to the tables since.
    fn land(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, loaded: Loaded, flight: Flight) {
        let Flight { va, level, table, .. } = flight;
        self.check_cached_table(cpu, loaded, va, table, level);
        let is_table = self.is_table(table.frame);
        if is_table && self.is_known_way(memory, table.phys, level, va) {
            self.cache_table(cpu, loaded, va, level, table);
            let _ = self.descend(memory, (cpu, loaded), va, None, (table, level));
        }
    }
}
