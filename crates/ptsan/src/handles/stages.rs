//! Two stages of translation: a guest's tables under those of its hypervisor.
//!
//! Each stage has a sanitizer of its own. The tables of stage 1 lie in intermediate physical
//! memory, which [`GuestMemory`] reads through stage 2, as the walker does.
use super::shared::Shared;
use crate::arch::Access;
use crate::cpu::{Fault, GuestPage};
use crate::memory::Memory;
use crate::state::Sanitizer;

/// The memory of a guest: each read is translated by stage 2 first, on a CPU, with whatever that
/// CPU has cached.
///
/// Give it to the hooks of the sanitizer of stage 1. A table of the guest that lies in a frame
/// which the hypervisor took away without a flush is then found where the walker reads it
/// ([`Kind::StaleUse`](crate::Kind::StaleUse), of stage 2).
/// ```
/// use ptsan::{Access, Arch, Config, Content, Granule, GuestMemory, Sanitizer, Shared};
///
/// let mut ram = vec![0u8; 1 << 16];
/// let mut put = |at: usize, raw: u64| ram[at..at + 8].copy_from_slice(&raw.to_le_bytes());
/// put(0x1000, 0x2000 | 3);                           // stage 2: block 0 of 1 GiB is a table,
/// put(0x2000, 0x3000 | 3);                           // whose first entry is one, too:
/// put(0x3000 + 8, 0x9000 | 0x4c3);                   // page 1 of the guest lies at 0x9000
/// put(0x9000 + 8 * 5, 0x1000 | 0xc43);               // stage 1 has one level: page 5 is page 1
/// let stage2 = Shared::new(Config::new(Arch::aarch64_stage2(Granule::K4, 39, 1)));
/// for (level, table) in [(2, 0x1000), (1, 0x2000), (0, 0x3000)] {
///     stage2.table_allocated(&ram, table, 0x1000, Some(level), Content::Unchecked);
/// }
/// stage2.switch(&ram, 0, 0x1000, 7);                 // VMID 7
/// let guest = GuestMemory::new(&stage2, 0, &ram);
/// let mut stage1 = Sanitizer::new(Config::new(Arch::aarch64_4k(21)));
/// stage1.table_allocated(&guest, 0x1000, 0x1000, Some(0), Content::Unchecked);
/// stage1.switch(&guest, 0, 0x1000, 1);
/// let ipa = stage1.translate(&guest, 0, 0x5123, Access::READ).unwrap().phys;
/// assert_eq!(stage2.translate(&ram, 0, ipa, Access::READ).unwrap().phys, 0x9123);
/// assert_eq!(guest.access(&mut stage1, 1, 0x5123, Access::READ), Ok(0x9123)); // both, and cached as one
/// ```
#[derive(Debug)]
pub struct GuestMemory<'a, M: ?Sized> {
    stage2: &'a Shared,
    cpu: usize,
    memory: &'a M,
}

impl<'a, M: Memory + ?Sized> GuestMemory<'a, M> {
    /// Makes the memory of the guest that runs on a CPU of stage 2. `memory` is that of the
    /// machine.
    pub fn new(stage2: &'a Shared, cpu: usize, memory: &'a M) -> Self {
        Self { stage2, cpu, memory }
    }

    /// Accesses `va` as a program of the guest does, through both stages: the tables of stage 1, of
    /// the sanitizer `stage1`, and those of stage 2. The CPU caches the combined translation.
    /// Returns the physical address. `number` is that of the guest's space (ASID, PCID).
    ///
    /// # Errors
    /// Returns the fault, of whichever stage.
    pub fn access(&self, stage1: &mut Sanitizer, number: u64, va: u64, access: Access) -> Result<u64, Fault> {
        let gpa = stage1.translate(self, self.cpu, va, access)?.phys;
        let page = GuestPage { number, va };
        let mut stage2 = self.stage2.lock();
        // All accesses of a guest are those of a user to stage 2.
        let access = Access { user: true, ..access };
        stage2.translate_combined(self.memory, self.cpu, page, gpa, access).map(|found| found.phys)
    }

    fn at(&self, address: u64) -> Option<u64> {
        let found = self.stage2.translate(self.memory, self.cpu, address, Access::READ);
        found.ok().map(|translation| translation.phys)
    }
}

impl<M: Memory + ?Sized> Memory for GuestMemory<'_, M> {
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        self.memory.read(self.at(phys)?, bytes)
    }

    fn exchange(&self, phys: u64, bytes: u8, old: u64, new: u64) -> Option<u64> {
        self.memory.exchange(self.at(phys)?, bytes, old, new)
    }

    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        // Pages of stage 2 are 4 KiB or larger.
        let (mut at, end) = (phys, phys.checked_add(bytes)?);
        while at < end {
            let next = (at | 0xfff).saturating_add(1).min(end);
            if !self.memory.is_zero(self.at(at)?, next - at)? {
                return Some(false);
            }
            at = next;
        }
        Some(true)
    }
}
