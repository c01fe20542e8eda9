//! Turns requests into instructions.
use super::code;
use super::cpu::Cpu;
use super::features::{Features, Granule};
use super::instructions::{Barrier, Instructions, Op};
use super::operands::{self, ASID_SHIFT, MOST_NEW, Operand, VALID, page, tag};
use super::tables::Tables;
use crate::arch::kernel_root::KernelRootCell;
use crate::cpu::Pinned;
use crate::format::Formats;
use crate::tlb::{Invalidation, Ipi, KernelRoot, Mmu, NewEntry, Root, Scope, SpaceId, Structures, WrongMode};
use core::marker::PhantomData;

/// The MMUs of AArch64 CPUs. `F` is the format of their tables, by the granule that `TCR_EL1`
/// names. `B` sends interrupts; `I` executes instructions.
///
/// ```
/// use ptarmigan::arch::{NoIpi, aarch64::Tlbi};
/// use ptarmigan::format::Aarch64;
/// static MMU: Tlbi<Aarch64, NoIpi> = Tlbi::new(NoIpi);
/// assert_eq!(MMU.asids(), 255);
/// ```
pub struct Tlbi<F, B, I = Cpu> {
    tables: PhantomData<fn() -> F>,
    board: B,
    instructions: I,
    features: Features,
    kernel_root: KernelRootCell,
}

impl<F: Tables, B> Tlbi<F, B> {
    /// Makes the MMUs of CPUs of which Armv8.0 is known.
    pub const fn new(board: B) -> Self {
        Self::made_of(board, Cpu, Features { granule: F::GRANULE, ..Features::ARMV8_0 })
    }

    /// Makes the MMUs of CPUs with the features of the calling one. All CPUs have the same, and
    /// keep `TCR_EL1.AS`, `TG0` and `TG1`.
    #[cfg(target_arch = "aarch64")]
    pub fn detect(board: B) -> Self {
        Self::made_of(board, Cpu, Features::read())
    }
}

impl<F: Tables, B, I> Tlbi<F, B, I> {
    const fn made_of(board: B, instructions: I, features: Features) -> Self {
        Tlbi { tables: PhantomData, board, instructions, features, kernel_root: KernelRootCell::new() }
    }

    /// Makes MMUs with other instructions, or with features that the caller knows.
    ///
    /// # Safety
    ///
    /// 1. All CPUs have these features, and keep `TCR_EL1.AS`, `TG0` and `TG1`.
    pub const unsafe fn with_features(board: B, instructions: I, features: Features) -> Self {
        Self::made_of(board, instructions, features)
    }

    /// Returns the features.
    pub const fn features(&self) -> Features {
        self.features
    }

    /// Returns how many spaces can be told apart:
    /// [`TlbConfig::asids`](crate::tlb::TlbConfig::asids) is at most this, and more than there are
    /// CPUs.
    pub const fn asids(&self) -> u16 {
        self.features.asids
    }

    /// The number that a CPU uses for a space. Numbers that it does not have become the kernel's.
    #[inline]
    const fn asid(&self, asid: u16) -> u16 {
        if asid <= self.features.asids { asid } else { 0 }
    }
}

impl<F: Tables, B: Ipi, I: Instructions> Tlbi<F, B, I> {
    #[inline]
    fn tlbi(&self, pin: &Pinned<'_>, op: Op, operand: u64) {
        self.instructions.tlbi(pin, op, operand);
    }

    #[inline]
    fn barrier(&self, pin: &Pinned<'_>, barrier: Barrier) {
        self.instructions.barrier(pin, barrier);
    }

    /// Has all CPUs forget the pages of a scope, by `one` for each or `range` for each run; by
    /// `all` if the scope is full.
    fn broadcast(&self, pin: &Pinned<'_>, scope: &Scope, asid: u16, [one, range, all]: [Op; 3]) {
        self.barrier(pin, Barrier::DsbIshst);
        let pages = one == Op::Vale1is;
        operands::of(&self.features, scope, pages, |operand| match operand {
            Operand::Page(operand) => self.tlbi(pin, one, tag(asid) | operand),
            Operand::Range(operand) => self.tlbi(pin, range, tag(asid) | operand),
            Operand::All => self.tlbi(pin, all, tag(asid)),
        });
        self.barrier(pin, Barrier::DsbIsh);
        self.barrier(pin, Barrier::Isb);
    }

    /// Has this CPU forget what `op` names.
    fn forget_here(&self, pin: &Pinned<'_>, op: Op, operand: u64) {
        self.tlbi(pin, op, operand);
        self.barrier(pin, Barrier::DsbNsh);
        self.barrier(pin, Barrier::Isb);
    }
}

on_a_board!(
    Tlbi<F: Tables> of Instructions, "1. An empty table is at `at`, and stays so as long as the MMU is used.");

// SAFETY: 1. The `IS` forms between their barriers reach all CPUs. `VALE1IS` drops the page under
// the number, `VAE1IS`, which is taken if tables have gone, the links on the way to it as well,
// `ASIDE1IS` everything under the number that is not global. `DSB ISHST` comes before: walks find
// earlier stores. A level is named for `VALE1IS` alone, and only if all pages have one size, which
// is that of the leaves of the level. Ranges name the granule of the tables. 2. `VAAE1IS` drops the
// page and the links to it under all numbers, global or not; `VMALLE1IS` everything. 3. Other
// spaces have other numbers, and translations under this one are dropped after the load unless
// `keep`; the number 0, which spaces may share, is never kept. `forget_all` drops everything of
// this CPU, after the load: no walk of the tables before is left.
// 4. The kernel's root is an empty table (`with_kernel_root`, or a `KernelRoot`); if the space had
// its number, everything under it is dropped. 5. CPUs walk `F` (`Tables`). Invalidations of spaces
// and of the kernel's half broadcast, and MMUs walk tables. They do not cache entries that are not
// valid, but those that deny an access, and stores reach walks after a barrier only. 6. A
// `KernelRoot` alone is kept. 7. No instruction unwinds; `unload` does so before it has changed
// anything, if the kernel's root is missing.
unsafe impl<F: Tables, B: Ipi, I: Instructions> Mmu for Tlbi<F, B, I> {
    const FORMATS: Formats = Formats::of_halves::<F, F::Upper>();
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = Structures::Tagged;
    const NEEDS_ENTRY_VALID: bool = true;

    #[inline]
    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let ops = match what.tables_freed {
            true => [Op::Vae1is, Op::Rvae1is, Op::Aside1is],
            false => [Op::Vale1is, Op::Rvale1is, Op::Aside1is],
        };
        self.broadcast(pin, &what.scope, self.asid(what.asid), ops);
    }

    #[inline]
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.broadcast(pin, scope, 0, [Op::Vaae1is, Op::Rvaae1is, Op::Vmalle1is]);
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let asid = self.asid(root.asid);
        // The root's entries may be stores of this CPU that its walks do not see yet.
        self.barrier(pin, Barrier::DsbIshst);
        // SAFETY: 1. The library's tree stays until `unload`.
        unsafe { self.instructions.load_ttbr0(pin, tag(asid) | root.at.0) };
        self.barrier(pin, Barrier::Isb);
        if root.forget_all {
            self.forget_here(pin, Op::Vmalle1, 0);
        } else if !root.keep || asid == 0 {
            self.forget_here(pin, Op::Aside1, tag(asid));
        }
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        let root = self.kernel_root.get();
        let asid = (self.instructions.ttbr0(pin) >> ASID_SHIFT) as u16;
        // SAFETY: 1. It is an empty table, which stays for good.
        unsafe { self.instructions.load_ttbr0(pin, root) };
        self.barrier(pin, Barrier::Isb);
        if asid == 0 {
            // The space had the kernel's number, for want of others.
            self.forget_here(pin, Op::Aside1, 0);
        }
    }

    fn check_mode(&self, _: &Pinned<'_>) -> Result<(), WrongMode> {
        let shift = |granule: Granule| granule.shift().into();
        WrongMode::unless("the granule's shift in TCR_EL1", shift(self.features.granule), shift(F::GRANULE))
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
        self.barrier(pin, Barrier::DsbIshst);
        if entry.was & VALID != 0 {
            let (op, all, tag) = match entry.asid {
                Some(asid) => (Op::Vale1, Op::Aside1, tag(self.asid(asid))),
                None => (Op::Vaale1, Op::Vmalle1, 0),
            };
            if entry.pages > MOST_NEW {
                self.tlbi(pin, all, tag);
            } else {
                for i in 0..entry.pages {
                    self.tlbi(pin, op, tag | page(entry.va.wrapping_add(i << entry.shift)));
                }
            }
            self.barrier(pin, Barrier::DsbNsh);
        }
        self.barrier(pin, Barrier::Isb);
    }
}
