//! The hooks of accesses and of walks that hardware makes by itself.
use crate::arch::Access;
use crate::cpu::{Fault, Translation};
use crate::memory::Memory;
use crate::state::Sanitizer;

impl Sanitizer {
    /// An access by the code that the page tables are for: the TLB answers, else the tables are walked through the
    /// CPU's paging-structure cache, and both caches are filled.
    ///
    /// Call it between operations of the code under test (or tell of these, see
    /// [`Sanitizer::operation_begins`]): an answer that memory no longer gives is a finding ([`Kind::StaleUse`]). Memory that allows *more* than a cached entry is none: the hardware faults, drops what
    /// it used, and the handler retries.
    ///
    /// # Errors
    /// The fault that the access raises, after that retry.
    pub fn translate(
        &mut self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        va: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        self.hook(|s| {
            s.adversary_acts(memory);
            s.notice(va);
            s.access(memory, cpu, va, access)
        })
    }

    /// A speculative walk: fills the caches as hardware may do at any time, and raises no fault.
    ///
    /// It may come in the middle of an operation, so it does not report stale translations; what it reports are
    /// tables that no walker may ever meet.
    pub fn probe_walk(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, va: u64) {
        self.hook(|s| {
            s.notice(va);
            if let Ok(loaded) = s.loaded(cpu, va) {
                s.probe(memory, cpu, loaded, va);
            }
        });
    }

    /// The adversary may act now, if there is one ([`crate::Config::adversary`]). It does so at every hook that sees
    /// memory; code that can call this between two stores gives it more to attack.
    pub fn adversary_step(&mut self, memory: &(impl Memory + ?Sized)) {
        self.hook(|s| s.adversary_acts(memory));
    }
}
