//! The hooks of a hypervisor: invalidations of stage 1, and accesses of a guest.
//!
//! All are called on the sanitizer of stage 2. A space is a guest there: its number is the VMID,
//! the ASID of the host (AMD), or the address of the root of the EPT.
use crate::arch::{Access, AccessKind, ByGuestAddress, StoreOrdering};
use crate::checks::stale;
use crate::cpu::{CombinedEntry, Fault, Flush, GuestPage, Loaded, Target, TlbEntry, Translation};
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::FrameRef;
use crate::state::Sanitizer;

impl Sanitizer {
    /// Tells that a CPU invalidates all that it has cached of stage 1 for the guest that it runs,
    /// with its combined translations: `TLBI VMALLE1IS`, `HFENCE.VVMA` without operands,
    /// `INVVPID` of the guest's number. Translations of stage 2 alone stay.
    ///
    /// AArch64 needs it after an invalidation by intermediate physical address (`TLBI IPAS2E1IS`),
    /// which spares combined translations ([`crate::Config::two_stages`]).
    pub fn stage1_flushed(&mut self, cpu: usize) {
        self.hook(|s| {
            if s.has_cpu(cpu) {
                s.all_of_stage1_flushed(cpu);
                s.drop_stage1(cpu, None, None);
            }
        });
    }

    /// Tells that a CPU invalidates what it has cached of stage 1 for one space of the guest that
    /// it runs (`number`, or all), at one address (`va`, or all): `TLBI VAE1IS`, `INVLPGA`,
    /// `HFENCE.VVMA` with operands, `INVVPID` of an address. A guest does so itself.
    ///
    /// It helps against no change of stage 2: which addresses of the guest a frame has, the
    /// hypervisor does not know.
    pub fn stage1_part_flushed(&mut self, cpu: usize, number: Option<u64>, va: Option<u64>) {
        self.hook(|s| {
            if s.has_cpu(cpu) {
                if number.is_none() && va.is_none() {
                    s.all_of_stage1_flushed(cpu);
                }
                s.drop_stage1(cpu, number, va);
            }
        });
    }

    /// Pays debts for combined translations of the guest that the CPU runs: at once, or at a
    /// barrier.
    fn all_of_stage1_flushed(&mut self, cpu: usize) {
        let Some(loaded) = self.cpus[cpu].loaded else { return };
        let flushed = (cpu, loaded.space);
        if !self.config.barriers || self.config.arch.ordering != StoreOrdering::Completed {
            self.debts.combined_flushed(cpu, loaded.space);
        } else if !self.issued_stage1.contains(&flushed) {
            self.issued_stage1.push(flushed);
        }
    }

    fn drop_stage1(&mut self, cpu: usize, number: Option<u64>, va: Option<u64>) {
        let c = &mut self.cpus[cpu];
        if let Some(loaded) = c.loaded {
            c.combined.drop_stage1(loaded.space, number, va);
        }
    }

    /// Translates an access of a guest that stage 1 has translated to the guest-physical address
    /// `gpa`. The CPU caches the combined translation, under `page`, and answers from that
    /// until an invalidation drops it. [`crate::GuestMemory::access`] calls it.
    ///
    /// An answer that stage 2 no longer gives is a finding ([`Rule::CombinedStale`]).
    ///
    /// # Errors
    /// Returns the fault of stage 2.
    pub fn translate_combined(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        page: GuestPage,
        gpa: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        self.hook(|s| {
            s.adversary_acts(memory);
            s.notice(gpa);
            let loaded = s.loaded(memory, cpu, gpa)?;
            match s.combined(cpu, loaded, page, gpa).filter(|held| held.perms.allows(access)) {
                Some(held) => {
                    s.stats.translations += 1;
                    s.stats.tlb_hits += 1;
                    let stale = s.compare_combined(memory, (cpu, loaded), (page, gpa), access, held);
                    if !stale && s.must_set_dirty(cpu, loaded, page, access) {
                        let found = s.access(memory, cpu, gpa, access)?;
                        s.combine(cpu, loaded, (page, gpa), access, found);
                        return Ok(found);
                    }
                    Ok(held)
                }
                None => {
                    let found = s.access(memory, cpu, gpa, access)?;
                    s.combine(cpu, loaded, (page, gpa), access, found);
                    Ok(found)
                }
            }
        })
    }

    /// Returns the combined translation of a page of the guest. What stage 1 maps elsewhere now
    /// was invalidated there.
    fn combined(&self, cpu: usize, loaded: Loaded, page: GuestPage, gpa: u64) -> Option<Translation> {
        let held = self.cpus[cpu].combined.get(loaded.space, page).filter(|held| held.gpa == gpa & !0xfff)?;
        let TlbEntry { phys, perms, memory_type, .. } = held.entry;
        let phys = phys | gpa & 0xfff;
        let (global, accessed, from_tlb) = (false, true, true);
        Some(Translation { phys, perms, level: held.level, global, memory_type, accessed, from_tlb })
    }

    /// Returns whether the CPU has to set the dirty bit of stage 2 for an access through a combined
    /// translation.
    fn must_set_dirty(&self, cpu: usize, loaded: Loaded, page: GuestPage, access: Access) -> bool {
        access.kind == AccessKind::Write
            && self.keeps_bits()
            && self.cpus[cpu].combined.get(loaded.space, page).is_some_and(|held| !held.entry.dirty)
    }

    fn combine(
        &mut self,
        cpu: usize,
        loaded: Loaded,
        (page, gpa): (GuestPage, u64),
        access: Access,
        found: Translation,
    ) {
        let Translation { phys, perms, level, memory_type, .. } = found;
        let (phys, since, via) = (phys & !0xfff, self.event, FrameRef::UNKNOWN);
        let entry = TlbEntry {
            phys,
            since,
            via,
            perms,
            memory_type,
            denied: false,
            dirty: access.kind == AccessKind::Write,
        };
        let held = CombinedEntry { gpa: gpa & !0xfff, entry, level };
        self.cpus[cpu].combined.insert(loaded.space, page, held, self.config.tlb);
    }

    /// Reports a combined translation that stage 2 no longer gives, and returns whether it is one.
    fn compare_combined(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        (page, gpa): (GuestPage, u64),
        access: Access,
        used: Translation,
    ) -> bool {
        let truth = self.look(memory, loaded.root, gpa);
        let stale = stale(access, Ok(used), truth).is_some();
        if stale
            && !self.debts.was_reported(&self.config.arch, loaded.space, gpa)
            && !self.operations.suspect(cpu, loaded.space, gpa, access, self.event)
        {
            let when = format!(
                "combined of both stages for {:#x} in space {:#x} of the guest; ",
                page.va & !0xfff,
                page.number
            );
            let rule = Rule::CombinedStale;
            self.report_stale((cpu, loaded.space), gpa, access, rule, Ok(used), truth, &when);
        }
        stale
    }

    /// Returns whether the format has such an invalidation, and reports one that it has not.
    pub(super) fn is_possible(&mut self, cpu: usize, flush: Flush) -> bool {
        // An IOMMU invalidates by address in every format.
        if let Target::Range { start, end, stride, .. } | Target::EverySpace { start, end, stride } =
            flush.target
            && (stride == 0 || end < start)
        {
            let place = Place { cpu: Some(cpu), va: Some(start), ..Place::default() };
            self.bad_argument(place, "flush needs a range with start <= end and a stride above 0");
            return false;
        }
        let levels = self.config.arch.levels.len();
        if flush.level.is_some_and(|level| usize::from(level) >= levels) {
            let place = Place { cpu: Some(cpu), ..Place::default() };
            self.bad_argument(place, &format!("flush needs a level below {levels}, counted from the leaves"));
            return false;
        }
        let never = !self.is_device(cpu)
            && self.config.arch.second_stage.is_some_and(|s| s.by_address == ByGuestAddress::Never);
        if !never || matches!(flush.target, Target::All | Target::Space(_)) {
            return true;
        }
        let place = Place { cpu: Some(cpu), ..Place::default() };
        self.report(Kind::Misuse, Rule::NoSuchFlush, place, || format!("{flush}"));
        false
    }
}
