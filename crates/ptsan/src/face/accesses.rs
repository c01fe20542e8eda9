//! The hooks of accesses and of speculative walks.
use crate::arch::Access;
use crate::cpu::{Fault, Translation};
use crate::memory::Memory;
use crate::state::Sanitizer;

impl Sanitizer {
    /// Translates an access. The TLB answers, or the tables are walked through the CPU's
    /// paging-structure cache and both caches are filled.
    ///
    /// Call it between operations of the code under test, or tell of these
    /// ([`Sanitizer::operation_begins`]): an answer that memory no longer gives is a finding
    /// ([`Kind::StaleUse`](crate::Kind::StaleUse)). It is no finding if memory allows *more* than a
    /// cached entry: the hardware faults, drops the entry, and the handler retries.
    ///
    /// # Errors
    /// Returns the fault that the access raises, after that retry.
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

    /// Walks speculatively: fills the caches as hardware may at any time, and raises no fault.
    ///
    /// It may run in the middle of an operation, so it reports no stale translations. It reports
    /// tables that no walker may ever meet.
    pub fn probe_walk(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, va: u64) {
        self.hook(|s| {
            s.notice(va);
            if let Ok(loaded) = s.loaded(memory, cpu, va) {
                s.probe(memory, cpu, loaded, va);
            }
        });
    }

    /// Lets the adversary act now, if there is one ([`crate::Config::adversary`]). It acts at every
    /// hook that sees memory. Calling this between two stores gives it more to attack.
    /// ```
    /// use ptsan::{Adversary, Arch, Config, Sanitizer};
    ///
    /// // Four actions at each hook.
    /// let adversary = Some(Adversary { rate: 4000, ..Adversary::new(7) });
    /// let mut san = Sanitizer::new(Config { adversary, ..Config::new(Arch::x86_64()) });
    /// san.adversary_step(&vec![0u8; 1 << 16]);
    /// assert_eq!(san.summary().seed, Some(7));
    /// ```
    pub fn adversary_step(&mut self, memory: &(impl Memory + ?Sized)) {
        self.hook(|s| s.adversary_acts(memory));
    }
}
