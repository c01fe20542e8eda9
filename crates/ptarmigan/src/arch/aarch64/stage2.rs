//! Flushes translations of a guest's physical addresses.
use super::code;
use super::cpu::Cpu;
use super::features::Features;
use super::instructions::{Barrier, GuestInstructions, GuestOp};
use super::operands::{self, ASID_SHIFT, MOST_NEW, Operand, VALID, page, tag};
use crate::arch::kernel_root::KernelRootCell;
use crate::cpu::Pinned;
use crate::format::{Aarch64Stage2, Formats};
use crate::tlb::{Invalidation, Ipi, KernelRoot, Mmu, NewEntry, Root, Scope, SpaceId, Structures};

/// The second stages of AArch64 CPUs, of a hypervisor at EL2: the root of
/// [`Aarch64Stage2`] in `VTTBR_EL2`, and VMIDs as ASIDs. `B` sends
/// interrupts; `I` executes instructions.
///
/// A CPU may keep a translation from an address of the guest's program to a frame, which both
/// stages went into. No instruction finds these by the guest's physical address. So a page is
/// forgotten in two steps: its own translation, by address, and then all of the guest's first stage
/// (Arm ARM, "Invalidation of TLB entries from stage 2 translations").
///
/// These instructions act on the VMID in `VTTBR_EL2`. For a guest that is not loaded, its VMID is
/// loaded with the hypervisor's root, an empty table, for as long as that takes.
///
/// `HCR_EL2.TGE` is 0 whenever a function is called.
///
/// ```
/// use ptarmigan::arch::{NoIpi, aarch64::Stage2};
/// static MMU: Stage2<NoIpi> = Stage2::new(NoIpi);
/// assert_eq!(MMU.asids(), 255);
/// ```
pub struct Stage2<B, I = Cpu> {
    board: B,
    instructions: I,
    features: Features,
    kernel_root: KernelRootCell,
}

impl<B> Stage2<B> {
    /// Makes the second stages of CPUs of which Armv8.0 is known, with VMIDs of 8 bits.
    pub const fn new(board: B) -> Self {
        Stage2 { board, instructions: Cpu, features: Features::ARMV8_0, kernel_root: KernelRootCell::new() }
    }
}

impl<B, I> Stage2<B, I> {
    /// Makes second stages with other instructions, or with features that the caller knows.
    ///
    /// # Safety
    ///
    /// 1. All CPUs have these features. [`Features::asids`] is the highest VMID that `VTCR_EL2.VS`
    ///    allows, and [`Features::granule`] what `VTCR_EL2.TG0` names. Both stay.
    pub const unsafe fn with_features(board: B, instructions: I, features: Features) -> Self {
        Stage2 { board, instructions, features, kernel_root: KernelRootCell::new() }
    }

    /// Returns how many guests can be told apart:
    /// [`TlbConfig::asids`](crate::tlb::TlbConfig::asids) is at most this, and more than there are
    /// CPUs.
    pub const fn asids(&self) -> u16 {
        self.features.asids
    }

    /// The VMID that a CPU uses for a guest. Numbers that it does not have become the hypervisor's.
    #[inline]
    const fn vmid(&self, asid: u16) -> u16 {
        if asid <= self.features.asids { asid } else { 0 }
    }
}

impl<B: Ipi, I: GuestInstructions> Stage2<B, I> {
    /// Executes `forget` with `vmid` in `VTTBR_EL2`, and completes what it has begun by `dsb`.
    fn as_guest(&self, pin: &Pinned<'_>, vmid: u16, dsb: Barrier, forget: impl FnOnce()) {
        self.instructions.barrier(pin, Barrier::DsbIshst);
        let before = self.instructions.vttbr(pin);
        let is_loaded = (before >> ASID_SHIFT) as u16 == vmid;
        if !is_loaded {
            // SAFETY: 1. It is an empty table, which stays for good.
            unsafe { self.instructions.load_vttbr(pin, tag(vmid) | self.kernel_root.get()) };
            self.instructions.barrier(pin, Barrier::Isb);
        }
        forget();
        self.instructions.barrier(pin, dsb);
        if !is_loaded {
            // SAFETY: 1. The tree that was loaded, which stays as long as it would have.
            unsafe { self.instructions.load_vttbr(pin, before) };
        }
        self.instructions.barrier(pin, Barrier::Isb);
    }

    /// Has this CPU forget what `op` names.
    fn forget_here(&self, pin: &Pinned<'_>, op: GuestOp) {
        self.instructions.tlbi_guest(pin, op, 0);
        self.instructions.barrier(pin, Barrier::DsbNsh);
        self.instructions.barrier(pin, Barrier::Isb);
    }
}

on_a_board!(
    Stage2 of GuestInstructions, "1. An empty table is at `at`, and stays so as long as the MMU is used.");

// SAFETY: 1. The `IS` forms between their barriers reach all CPUs, under the VMID that is loaded.
// `IPAS2LE1IS` drops the translation of an address of the guest's, `IPAS2E1IS`, which is taken if
// tables have gone, the links on the way to it as well, and `VMALLE1IS`, after a `DSB ISH`, all
// that the guest's own tables went into. `VMALLS12E1IS` drops everything under the VMID. `DSB
// ISHST` comes before: walks find earlier stores. A level is named for `IPAS2LE1IS` alone, and only
// if all pages have one size, which is that of the leaves of the level. Ranges name the granule of
// the tables. While another VMID is loaded for that, its root is an
// empty table, in which a walk finds nothing to keep. 2. There is no kernel's half; `ALLE1IS` drops
// everything. 3. Other guests have other VMIDs, and translations under this one are dropped after
// the load unless `keep`; the number 0, which guests may share, is never kept. `forget_all` drops
// everything of this CPU, after the load. 4. The hypervisor's root is an empty table
// (`with_kernel_root`, or a `KernelRoot`); if the guest had its number, everything under it is
// dropped. 5. Invalidations broadcast, and MMUs walk tables. They do not cache entries that are not
// valid, but those that deny an access, and stores reach walks after a barrier only. 6. A
// `KernelRoot` alone is kept. 7. No instruction unwinds; `unload` does so before it has changed
// anything, if the root is missing.
unsafe impl<B: Ipi, I: GuestInstructions> Mmu for Stage2<B, I> {
    const FORMATS: Formats = Formats::of::<Aarch64Stage2>();
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = Structures::Tagged;
    const NEEDS_ENTRY_VALID: bool = true;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let (one, range) = match what.tables_freed {
            true => (GuestOp::Ipas2e1is, GuestOp::Ripas2e1is),
            false => (GuestOp::Ipas2le1is, GuestOp::Ripas2le1is),
        };
        let cpu = &self.instructions;
        self.as_guest(pin, self.vmid(what.asid), Barrier::DsbIsh, || {
            let mut by_address = false;
            operands::of(&self.features, &what.scope, !what.tables_freed, |operand| {
                let (op, operand) = match operand {
                    Operand::Page(operand) => (one, operand),
                    Operand::Range(operand) => (range, operand),
                    Operand::All => (GuestOp::Vmalls12e1is, 0),
                };
                by_address |= op != GuestOp::Vmalls12e1is;
                cpu.tlbi_guest(pin, op, operand);
            });
            if by_address {
                cpu.barrier(pin, Barrier::DsbIsh);
                cpu.tlbi_guest(pin, GuestOp::Vmalle1is, 0);
            }
        });
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, _: &Scope) {
        self.instructions.barrier(pin, Barrier::DsbIshst);
        self.instructions.tlbi_guest(pin, GuestOp::Alle1is, 0);
        self.instructions.barrier(pin, Barrier::DsbIsh);
        self.instructions.barrier(pin, Barrier::Isb);
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let vmid = self.vmid(root.asid);
        // The root's entries may be stores of this CPU that its walks do not see yet.
        self.instructions.barrier(pin, Barrier::DsbIshst);
        // SAFETY: 1. The library's tree stays until `unload`.
        unsafe { self.instructions.load_vttbr(pin, tag(vmid) | root.at.0) };
        self.instructions.barrier(pin, Barrier::Isb);
        if root.forget_all {
            self.forget_here(pin, GuestOp::Alle1);
        } else if !root.keep || vmid == 0 {
            self.forget_here(pin, GuestOp::Vmalls12e1);
        }
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        let root = self.kernel_root.get();
        let vmid = (self.instructions.vttbr(pin) >> ASID_SHIFT) as u16;
        // SAFETY: 1. It is an empty table, which stays for good.
        unsafe { self.instructions.load_vttbr(pin, root) };
        self.instructions.barrier(pin, Barrier::Isb);
        if vmid == 0 {
            // The guest had the hypervisor's number, for want of others.
            self.forget_here(pin, GuestOp::Vmalls12e1);
        }
    }

    fn set_kernel_root(&self, root: KernelRoot) {
        self.kernel_root.set(root.at);
    }

    unsafe fn clean_code(&self, pin: &Pinned<'_>, at: *const u8, bytes: usize) {
        // SAFETY: 1. of the caller's.
        unsafe { code::clean(&self.instructions, pin, at, bytes) };
    }

    fn invalidate_code(&self, pin: &Pinned<'_>) {
        code::invalidate(&self.instructions, pin);
    }

    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        let cpu = &self.instructions;
        // A guest that never had a number is known to no CPU.
        let Some(asid) = entry.asid.filter(|_| entry.was & VALID != 0) else {
            cpu.barrier(pin, Barrier::DsbIshst);
            cpu.barrier(pin, Barrier::Isb);
            return;
        };
        self.as_guest(pin, self.vmid(asid), Barrier::DsbNsh, || {
            if entry.pages > MOST_NEW {
                cpu.tlbi_guest(pin, GuestOp::Vmalls12e1, 0);
                return;
            }
            for i in 0..entry.pages {
                let at = entry.va.wrapping_add(i << entry.shift);
                cpu.tlbi_guest(pin, GuestOp::Ipas2le1, page(at));
            }
            cpu.barrier(pin, Barrier::DsbNsh);
            cpu.tlbi_guest(pin, GuestOp::Vmalle1, 0);
        });
    }
}
