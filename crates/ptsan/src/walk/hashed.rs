//! Accesses and speculation of CPUs that look pages up in a hash table.
//!
//! The tables are read for comparison, and followed as the handler of a miss follows them.
use crate::arch::{Access, Entry, HashEntry, Tag};
use crate::checks::stale;
use crate::cpu::{Fault, HashedEntry, Loaded, Translation};
use crate::memory::Memory;
use crate::report::{Place, Rule};
use crate::shadow::Link;
use crate::state::{Chance, Sanitizer, Suspect};

/// Who answered an access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Tlb,
    HashTable,
}

impl Sanitizer {
    pub(super) fn access_hashed(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        va: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        let place = Place { va: Some(va), cpu: Some(cpu), space: Some(loaded.space), ..Place::default() };
        let Some(tag) = self.hashed.tag(loaded.space, va).filter(|_| self.hashed.table.is_some()) else {
            self.misuse(Rule::NoHashTable, place);
            return Err(Fault::NotHashed);
        };
        self.follow_tables(memory, (cpu, loaded), va);
        let result = match self.answer(memory, cpu, loaded, tag, va) {
            None => Err(Fault::NotHashed),
            Some((entry, from)) => {
                self.stats.tlb_hits += u64::from(from == Source::Tlb);
                let used = as_translation(entry, va, access.user, from);
                let truth = self.look(memory, loaded.root, va);
                if used.perms.allows(access) {
                    self.compare_hashed((cpu, loaded.space), va, access, (used, from), truth);
                    Ok(used)
                } else {
                    self.check_upgrade(memory, (cpu, loaded), (tag, va), access, (used, from), truth);
                    Err(Fault::Permission)
                }
            }
        };
        if self.config.eager_walkers {
            for other in (0..self.cpus.len()).filter(|&c| c != cpu) {
                if let Some(theirs) = self.cpus[other].loaded.filter(|l| l.root == loaded.root) {
                    self.probe_hashed(memory, other, theirs, va);
                }
            }
        }
        result
    }

    /// Reads the hash table, as hardware may at any time.
    pub(super) fn probe_hashed(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        va: u64,
    ) {
        if let Some(tag) = self.hashed.tag(loaded.space, va) {
            let _ = self.answer(memory, cpu, loaded, tag, va);
        }
    }

    /// Lets a CPU speculate about a page that was used, or that the hash table has.
    pub(super) fn speculate_hashed(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        chance: &mut Chance,
    ) {
        let near = if chance.below(2) == 0 { chance.near(&self.config.arch) } else { None };
        let found = || {
            let group = chance.next();
            let mut entries = self.hashed.table?.group(memory, group);
            entries.find_map(|entry| self.hashed.address_in(loaded.space, entry.tag))
        };
        if let Some(va) = near.or_else(found) {
            self.probe_hashed(memory, cpu, loaded, va);
        }
    }

    /// Returns the entry that a CPU finds for a page in its TLB, else in the hash table, from where
    /// the TLB gets it.
    fn answer(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        loaded: Loaded,
        tag: Tag,
        va: u64,
    ) -> Option<(HashEntry, Source)> {
        if let Some(held) = self.cpus[cpu].hashed.get(tag) {
            return Some((held.entry, Source::Tlb));
        }
        self.stats.walks += 1;
        let (entry, twice) = self.hashed.table?.find(memory, tag)?;
        let software = self.software_entry(memory, loaded.root, va);
        let held = HashedEntry { entry, via: software.table, since: self.event, refused: false };
        self.cpus[cpu].hashed.insert(held);
        if let Some(owner) = self.hashed.owner(tag) {
            if twice {
                self.report_twice(owner);
            }
            // Another CPU may be in the middle of taking the page out.
            if self.hashed.table?.find(memory, tag) == Some((entry, twice)) {
                self.check_bit(entry, owner, software.hashed);
            }
        }
        Some((entry, Source::HashTable))
    }

    /// Reports an answer that memory does not give, or suspects it while operations are under way.
    fn compare_hashed(
        &mut self,
        (cpu, space): (usize, u64),
        va: u64,
        access: Access,
        (used, from): (Translation, Source),
        truth: Result<Translation, Fault>,
    ) {
        if let Some(rule) = stale(access, Ok(used), truth)
            && !self.operations.suspect(cpu, space, va, access, self.event)
        {
            self.report_stale((cpu, space), va, access, of_source(rule, from), Ok(used), truth, "");
        }
    }

    /// Reports a translation that the TLB was not told to forget when its page's entry was made to
    /// allow more: the handler of the fault would be called again for ever. Once is legal: a
    /// handler that finds no entry in the hash table puts one in, and forgets no translation.
    fn check_upgrade(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        (tag, va): (Tag, u64),
        access: Access,
        (used, from): (Translation, Source),
        truth: Result<Translation, Fault>,
    ) {
        let Some(table) = self.hashed.table.filter(|_| from == Source::Tlb) else { return };
        let now = table.find(memory, tag).map(|(entry, _)| entry.perms(access.user));
        let allowed = now.is_some_and(|perms| perms.allows(access));
        let agreed = truth.is_ok_and(|t| t.perms.allows(access));
        if allowed && agreed && self.cpus[cpu].hashed.refuse(tag) && self.operations.len() == 0 {
            let rule = Rule::UpgradeNotFlushed;
            self.report_stale((cpu, loaded.space), va, access, rule, Ok(used), truth, "");
        }
    }

    /// Checks again a CPU that used an old translation: see [`Sanitizer::look_again`].
    pub(super) fn look_again_hashed(
        &mut self,
        memory: &(impl Memory + ?Sized),
        loaded: Loaded,
        suspect: &Suspect,
    ) {
        let &Suspect { cpu, space, va, access, event, .. } = suspect;
        let Some(tag) = self.hashed.tag(space, va) else { return };
        let Some((entry, from)) = self.answer(memory, cpu, loaded, tag, va) else { return };
        let used = as_translation(entry, va, access.user, from);
        let truth = self.look(memory, loaded.root, va);
        if let Some(rule) = stale(access, Ok(used), truth).filter(|_| used.perms.allows(access)) {
            let when = format!("used at event {event}, and found still when the operation ended; ");
            self.report_stale((cpu, space), va, access, of_source(rule, from), Ok(used), truth, &when);
        }
    }

    /// Follows the tables to the entry of `va`, as the handler of a miss does, and checks those
    /// that are reached.
    fn follow_tables(&mut self, memory: &(impl Memory + ?Sized), on: (usize, Loaded), va: u64) {
        let (cpu, loaded) = on;
        let (mut table, mut frame) = (loaded.root, loaded.frame);
        for level in (1..=self.config.arch.top()).rev() {
            let l = self.config.arch.levels[usize::from(level)];
            let entry = table.wrapping_add(l.index(va) * u64::from(l.entry_bytes));
            let raw = memory.read(entry, l.entry_bytes);
            let Some(Entry::Table { phys, .. }) = raw.map(|raw| (self.config.arch.decode)(level, raw)) else {
                return;
            };
            let place = Place {
                frame: Some(phys),
                va: Some(va),
                cpu: Some(cpu),
                level: Some(level - 1),
                space: Some(loaded.space),
            };
            frame = self.reached(memory, phys, Some(Link { entry, parent: frame }), place, true);
            table = phys;
        }
    }
}

/// Names the rule after the structure that has to be flushed.
fn of_source(rule: Rule, from: Source) -> Rule {
    if from == Source::HashTable { Rule::StaleInHashTable } else { rule }
}

fn as_translation(entry: HashEntry, va: u64, user: bool, from: Source) -> Translation {
    Translation {
        phys: entry.phys | va & 0xfff,
        perms: entry.perms(user),
        level: 0,
        global: false,
        memory_type: 0,
        accessed: true,
        from_tlb: from == Source::Tlb,
    }
}
