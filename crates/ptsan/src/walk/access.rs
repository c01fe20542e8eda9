//! Accesses and speculative walks: a TLB lookup, a walk on a miss, and the checks of both.
use super::walker::{Start, Walked};
use crate::arch::Access;
use crate::checks::stale;
use crate::cpu::{CpuState, Fault, Loaded, TlbEntry, Translation};
use crate::memory::Memory;
use crate::report::{Place, Rule};
use crate::state::{Sanitizer, Suspect};

impl Sanitizer {
    pub(crate) fn access(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        va: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        self.stats.translations += 1;
        let loaded = self.loaded(memory, cpu, va)?;
        if self.config.arch.hashed.is_some() {
            return self.access_hashed(memory, cpu, loaded, va, access);
        }
        if let Some(hit) = self.cached(cpu, loaded.context, va) {
            let allowed = hit.perms.allows(access);
            if allowed && self.serves(memory, (cpu, loaded), va, access.kind) {
                self.stats.tlb_hits += 1;
                let truth = self.look(memory, loaded.root, va);
                if let (true, Ok(truth)) = (self.config.arch.break_before_make, truth) {
                    self.check_beside(memory, (cpu, loaded), va, hit, truth);
                }
                self.compare(cpu, loaded, va, access, Ok(hit), truth);
                return Ok(hit);
            }
            if !allowed {
                self.stats.spurious_faults += 1;
                if self.config.arch.keeps_denied && self.is_denied_again(memory, (cpu, loaded), va, access) {
                    return Err(Fault::Permission);
                }
            }
            self.drop_translation(cpu, loaded.context, va);
        }
        if self.config.keeps_invalid
            && let Some(fault) = self.fault_on_invalid(memory, (cpu, loaded), va, access)
        {
            return Err(fault);
        }
        let walked = self.walk(memory, cpu, loaded, va, Some(access));
        if self.config.eager_walkers {
            self.others_walk(memory, cpu, loaded, va);
        }
        let mut result = walked.result;
        if !walked.cached {
            return result;
        }
        let truth = self.look(memory, loaded.root, va);
        self.check_walk_beside(memory, (cpu, loaded), va, &walked, truth);
        if result == Err(Fault::Permission)
            && self.config.arch.keeps_denied
            && self.cached(cpu, loaded.context, va).is_some()
        {
            // Walked again from a cached table; the entry that denies is cached now.
            if truth.is_ok_and(|t| t.accessed && t.perms.allows(access)) {
                self.stats.spurious_faults += 1;
                self.is_denied_again(memory, (cpu, loaded), va, access);
            }
            return result;
        }
        if result.is_err() {
            // A fault drops the entries that were used for the address (Intel SDM vol. 3,
            // 4.10.4.1).
            self.drop_translation(cpu, loaded.context, va);
            if truth.is_ok_and(|t| t.accessed && t.perms.allows(access)) {
                self.stats.spurious_faults += 1;
                result = self.walk(memory, cpu, loaded, va, Some(access)).result;
            }
        }
        self.compare(cpu, loaded, va, access, result, truth);
        result
    }

    /// Handles a fault on a cached entry that denies an access and that the fault does not drop.
    /// Returns whether the CPU goes on holding it: the handler is called, and flushes it here or
    /// has it flushed. If memory allows the access, and the CPU faults on the same entry a second
    /// time, nobody has: that is reported, and the entry is dropped.
    fn is_denied_again(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        access: Access,
    ) -> bool {
        let truth = self.look(memory, loaded.root, va);
        if !truth.is_ok_and(|t| t.accessed && t.perms.allows(access)) {
            // The fault is a true one.
            return truth.is_ok();
        }
        let under_way = self.operations.len() > 0;
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        let denied = c.contexts[loaded.context as usize].deny(arch, va).or_else(|| c.globals.deny(arch, va));
        if under_way || denied != Some(true) {
            return true;
        }
        let held = self.cached(cpu, loaded.context, va);
        let used = held.ok_or(Fault::Permission);
        self.report_stale((cpu, loaded.space), va, access, Rule::DeniedTwice, used, truth, "");
        false
    }

    /// Walks speculatively. On architectures with break-before-make, checks whether two valid
    /// translations would meet.
    pub(crate) fn probe(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, loaded: Loaded, va: u64) {
        if self.config.arch.hashed.is_some() {
            return self.probe_hashed(memory, cpu, loaded, va);
        }
        let start = self.start(cpu, loaded, va).ok();
        self.probe_from(memory, (cpu, loaded), va, start);
    }

    /// As [`Self::probe`], from where [`Self::start`] says.
    pub(super) fn probe_from(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        start: Option<Start>,
    ) {
        let beside = self.config.arch.break_before_make;
        if let Some(hit) = self.cached(cpu, loaded.context, va) {
            if beside && let Ok(truth) = self.look(memory, loaded.root, va) {
                self.check_beside(memory, (cpu, loaded), va, hit, truth);
            }
            return;
        }
        if self.config.keeps_invalid && self.keeps_invalid(cpu, loaded, va) {
            return;
        }
        let Some(start) = start else {
            self.stats.walks += 1;
            return;
        };
        let walked = self.walk_from(memory, (cpu, loaded), va, None, start);
        if beside && walked.cached {
            let truth = self.look(memory, loaded.root, va);
            self.check_walk_beside(memory, (cpu, loaded), va, &walked, truth);
        }
    }

    /// Checks again a CPU that used an old translation while operations were under way that have
    /// all ended.
    pub(crate) fn look_again(&mut self, memory: &(impl Memory + ?Sized), suspect: &Suspect) {
        let &Suspect { cpu, space, va, access, event, .. } = suspect;
        // A CPU that has left the space, or keeps it lazily, is checked when it returns to it.
        let active = self.cpus.get(cpu).filter(|c| c.state == CpuState::Active);
        let Some(loaded) = active.and_then(|c| c.loaded).filter(|l| l.space == space) else {
            return;
        };
        if self.config.arch.hashed.is_some() {
            return self.look_again_hashed(memory, loaded, suspect);
        }
        let Some(held) = self.cached(cpu, loaded.context, va).filter(|h| h.perms.allows(access)) else {
            return;
        };
        let truth = self.look(memory, loaded.root, va);
        let Some(rule) = stale(access, Ok(held), truth) else { return };
        // Entries cached after the access belong to the operations that are under way now.
        if self.cached_since(cpu, loaded.context, va) > event
            && self.operations.suspect(cpu, space, va, access, self.event)
        {
            return;
        }
        if !self.debts.was_reported(&self.config.arch, space, va) {
            let when = format!("used at event {event}, and held still when the operation ended; ");
            self.report_stale((cpu, space), va, access, rule, Ok(held), truth, &when);
        }
    }

    /// Compares the result of a walk from a cached table with memory.
    fn check_walk_beside(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        walked: &Walked,
        truth: Result<Translation, Fault>,
    ) {
        let Ok(truth) = truth else { return };
        if !self.config.arch.break_before_make {
            return;
        }
        match (walked.result, walked.from) {
            (Ok(held), _) => self.check_beside(memory, (cpu, loaded), va, held, truth),
            (Err(_), Some((table, level))) if truth.level > level => {
                self.check_table_beside_block((cpu, loaded), va, table, truth);
            }
            _ => {}
        }
    }

    /// Makes the other CPUs with the same root walk speculatively for the same address.
    fn others_walk(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, loaded: Loaded, va: u64) {
        for other in (0..self.cpus.len()).filter(|&c| c != cpu) {
            if let Some(theirs) = self.cpus[other].loaded
                && theirs.root == loaded.root
                && self.cpus[other].settled
            {
                self.probe(memory, other, theirs, va);
            }
        }
    }

    pub(crate) fn loaded(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        va: u64,
    ) -> Result<Loaded, Fault> {
        if !self.has_cpu(cpu) {
            return Err(Fault::NoRoot);
        }
        let Some(loaded) = self.cpus[cpu].loaded else {
            self.misuse(Rule::NoRoot, Place { cpu: Some(cpu), va: Some(va), ..Place::default() });
            return Err(Fault::NoRoot);
        };
        self.cpus[cpu].settled = true;
        self.settle_return(memory, cpu);
        self.check_synchronized(cpu, loaded);
        if self.config.arch.is_canonical(va) { Ok(loaded) } else { Err(Fault::NonCanonical) }
    }

    /// Returns the TLB's translation of `va`.
    #[inline]
    fn cached(&mut self, cpu: usize, context: u32, va: u64) -> Option<Translation> {
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        let (global, (level, entry)) = match c.contexts[context as usize].lookup(arch, va) {
            Some(own) => (false, own),
            None => (true, c.globals.lookup(arch, va)?),
        };
        let offset = va & ((1 << arch.levels[level as usize].shift) - 1);
        let TlbEntry { phys, perms, memory_type, .. } = entry;
        let phys = phys.wrapping_add(offset);
        Some(Translation { phys, perms, level, global, memory_type, accessed: true, from_tlb: true })
    }

    /// Returns the event at which the CPU cached its translation of `va`; 0 without one.
    fn cached_since(&self, cpu: usize, context: u32, va: u64) -> u64 {
        let (arch, c) = (&self.config.arch, &self.cpus[cpu]);
        let own = c.contexts[context as usize].lookup(arch, va);
        own.or_else(|| c.globals.lookup(arch, va)).map_or(0, |(_, entry)| entry.since)
    }

    fn drop_translation(&mut self, cpu: usize, context: u32, va: u64) {
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        c.globals.drop_translations(arch, va, |_| true);
        c.contexts[context as usize].drop_address(arch, va);
        c.flights.retain(|f| arch.position(f.level, f.va) != arch.position(f.level, va));
    }
}
