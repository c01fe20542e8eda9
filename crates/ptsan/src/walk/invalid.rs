//! Entries that a walker keeps although they were not valid when it read them.
//!
//! RISC-V lets a hart do so: "implementations are permitted to cache invalid entries" until an
//! `SFENCE.VMA` (privileged manual, "Supervisor Memory-Management Fence Instruction"). The access
//! then faults on an address that memory maps. The handler of the fault finds a good entry, and has
//! to fence: by address if the entry leads to a page, and everything of the space if it is a link,
//! which a fence by address does not cover.
//!
//! So a fault on a kept entry is no finding by itself. A second one is, because nobody has fenced.
//! So is the first one, if the entry is still kept when the kernel says that all is flushed:
//!
//! ```text
//! hart 1                    hart 0
//! load  VA  -> fault        |            keeps the empty entry
//! |                         store entry
//! load  VA  -> fault        |            spurious: the handler is called
//! sfence.vma VA             |            nothing is due
//! load  VA  -> data         flushes_done
//! ```
use super::walker::Walk;
use crate::arch::{Access, Entry};
use crate::cpu::{Fault, Flush, Invalid, Loaded, Translation};
use crate::memory::Memory;
use crate::report::Rule;
use crate::state::Sanitizer;

impl Sanitizer {
    /// Caches an entry of a level that is not valid, if the walkers keep such entries.
    pub(super) fn keep_invalid(&mut self, walk: &Walk, level: u8, entry: u64) {
        if !self.config.keeps_invalid {
            return;
        }
        let (arch, met) = (&self.config.arch, walk.access.is_some());
        let context = &mut self.cpus[walk.cpu].contexts[walk.loaded.context as usize];
        match context.invalid_at(arch, walk.va) {
            // It may have faulted already.
            Some((kept_level, kept)) if kept_level == level => kept.met |= met,
            _ => {
                let invalid = Invalid { entry, since: self.event, met, faulted: None };
                context.keep_invalid(arch, level, walk.va, invalid);
            }
        }
    }

    /// Returns whether the CPU keeps an entry for `va` that was not valid.
    pub(super) fn keeps_invalid(&mut self, cpu: usize, loaded: Loaded, va: u64) -> bool {
        let context = &mut self.cpus[cpu].contexts[loaded.context as usize];
        context.invalid_at(&self.config.arch, va).is_some()
    }

    /// Returns the fault of an access that meets a kept entry and that memory allows. If it is the
    /// second one on that entry, nobody has fenced: that is reported, and the entry is dropped.
    pub(super) fn fault_on_invalid(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        access: Access,
    ) -> Option<Fault> {
        if !self.keeps_invalid(cpu, loaded, va) {
            return None;
        }
        let truth = self.look(memory, loaded.root, va);
        if !truth.is_ok_and(|t| t.accessed && t.perms.allows(access)) {
            // The fault is a true one, which the walk finds.
            return None;
        }
        self.stats.spurious_faults += 1;
        let under_way = self.operations.len() > 0;
        let arch = &self.config.arch;
        let context = &mut self.cpus[cpu].contexts[loaded.context as usize];
        let (level, kept) = context.invalid_at(arch, va)?;
        let fault = Fault::NotPresent { level };
        if under_way || kept.faulted.is_none() {
            kept.faulted = kept.faulted.or(Some((va, access)).filter(|_| !under_way));
            return Some(fault);
        }
        let since = kept.since;
        self.report_kept((cpu, loaded), va, access, (level, since), truth);
        None
    }

    /// Reports a fault on an entry that is kept since an event and that memory has made good, and
    /// drops the entries that are kept for `va`: the CPU goes on as if it had been flushed.
    fn report_kept(
        &mut self,
        (cpu, loaded): (usize, Loaded),
        va: u64,
        access: Access,
        (level, since): (u8, u64),
        truth: Result<Translation, Fault>,
    ) {
        let arch = &self.config.arch;
        let context = &mut self.cpus[cpu].contexts[loaded.context as usize];
        while let Some((level, _)) = context.invalid_at(arch, va) {
            context.forget_invalid(arch, level, va);
        }
        let when = format!("on an entry that it read at event {since}; ");
        let used = Err(Fault::NotPresent { level });
        self.report_stale((cpu, loaded.space), va, access, Rule::InvalidKept, used, truth, &when);
    }

    /// Drops the kept entries that a flush of a CPU by address covers. One that is a link by now
    /// stays: a fence by address is about entries that map pages.
    pub(crate) fn drop_invalid(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, flush: Flush) {
        let Some((space, range)) = flush.addresses().filter(|_| self.config.keeps_invalid) else { return };
        let (arch, asids) = (&self.config.arch, self.is_tagged(cpu));
        let is_link = |level: u8, entry: u64| {
            let raw = memory.read(entry, arch.levels[usize::from(level)].entry_bytes);
            raw.is_some_and(|raw| matches!((arch.decode)(level, raw), Entry::Table { .. }))
        };
        let c = &mut self.cpus[cpu];
        let contexts = match space {
            Some(space) => c.context_of(space, asids).map(std::slice::from_mut).unwrap_or_default(),
            None => &mut c.contexts,
        };
        for context in contexts {
            let covered = context.invalid(arch).filter(|(level, va, kept)| {
                let bytes = 1u64 << arch.levels[usize::from(*level)].shift;
                flush.drops_level(*level) && range.hit(*va, bytes) && !is_link(*level, kept.entry)
            });
            let covered: Vec<_> = covered.map(|(level, va, _)| (level, va)).collect();
            covered.into_iter().for_each(|(level, va)| context.forget_invalid(arch, level, va));
        }
    }

    /// Reports faults on kept entries that nobody has fenced for, and drops these entries. Tests
    /// without a handler for faults of programs are spared the entries that a CPU has kept by
    /// walking ahead: they did not see it.
    pub(crate) fn invalid_due(&mut self, memory: &(impl Memory + ?Sized)) {
        for cpu in 0..self.cpus.len() {
            let Some(loaded) = self.cpus[cpu].loaded.filter(|_| self.config.keeps_invalid) else { continue };
            let context = &self.cpus[cpu].contexts[loaded.context as usize];
            let faulted = context.invalid(&self.config.arch);
            let faulted = faulted.filter_map(|(level, _, kept)| {
                let (va, access) = kept.faulted?;
                let due = kept.met || !access.user || self.is_device(cpu);
                due.then_some((va, level, access, kept.since))
            });
            let mut faulted: Vec<_> = faulted.collect();
            faulted.sort_unstable_by_key(|(va, level, ..)| (*va, *level));
            for (va, level, access, since) in faulted {
                let truth = self.look(memory, loaded.root, va);
                if truth.is_ok_and(|t| t.accessed && t.perms.allows(access)) {
                    self.report_kept((cpu, loaded), va, access, (level, since), truth);
                }
            }
        }
    }
}
