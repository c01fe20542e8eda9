//! Turns requests into instructions.
use super::cpu::Cpu;
use super::instructions::Instructions;
use super::tables::Tables;
use crate::addr::{FRAME_SHIFT, PhysAddr};
use crate::arch::kernel_root::KernelRootCell;
use crate::cpu::Pinned;
use crate::format::Formats;
use crate::tlb::{Invalidation, Ipi, KernelRoot, Mmu, NewEntry, Root, Scope, SpaceId, Structures, WrongMode};
use core::marker::PhantomData;

/// `satp`: the mode.
const MODE_SHIFT: u32 = 60;
const MODE: u64 = 0xf << MODE_SHIFT;
/// `satp`: the first bit of the ASID, and its width.
const ASID_SHIFT: u32 = 44;
const ASID: u64 = 0xffff;

/// Pages that became valid at once and are fenced one by one; more are fenced with everything, as
/// Linux does.
const MOST_NEW: u64 = 64;

/// The MMUs of RISC-V harts. `F` is the format of their tables, which the mode in `satp` names. `B`
/// sends interrupts; `I` executes instructions.
///
/// ```
/// use ptarmigan::arch::{NoIpi, riscv64::SfenceVma};
/// use ptarmigan::format::Sv39;
/// // Spaces have no numbers; works on every hart.
/// static MMU: SfenceVma<Sv39, NoIpi> = SfenceVma::new(NoIpi);
/// # let _ = &MMU;
/// ```
pub struct SfenceVma<F, B, I = Cpu> {
    tables: PhantomData<fn() -> F>,
    board: B,
    instructions: I,
    /// The highest ASID that may be used.
    asids: u16,
    kernel_root: KernelRootCell,
}

impl<F: Tables, B> SfenceVma<F, B> {
    /// Makes the MMUs of harts, without numbers of spaces.
    pub const fn new(board: B) -> Self {
        Self::made_of(board, Cpu, 0)
    }

    /// Makes the MMUs of harts with as many numbers of spaces as the calling hart has; all harts
    /// have as many. It writes `satp` and restores it.
    #[cfg(target_arch = "riscv64")]
    pub fn detect(board: B) -> Self {
        Self::made_of(board, Cpu, super::cpu::highest_asid())
    }
}

impl<F: Tables, B, I> SfenceVma<F, B, I> {
    const fn made_of(board: B, instructions: I, asids: u16) -> Self {
        SfenceVma { tables: PhantomData, board, instructions, asids, kernel_root: KernelRootCell::new() }
    }

    /// Makes MMUs with other instructions, or with a number of ASIDs that the caller knows; 0 for
    /// none.
    ///
    /// # Safety
    ///
    /// 1. All harts have ASIDs up to `asids`.
    pub const unsafe fn with_asids(board: B, instructions: I, asids: u16) -> Self {
        Self::made_of(board, instructions, asids)
    }

    /// Returns how many spaces can be told apart:
    /// [`TlbConfig::asids`](crate::tlb::TlbConfig::asids) is at most this.
    pub const fn asids(&self) -> u16 {
        self.asids
    }

    /// The number that a hart uses for a space. Numbers that it does not have become the kernel's.
    #[inline]
    const fn asid(&self, asid: u16) -> u16 {
        if asid <= self.asids { asid } else { 0 }
    }
}

impl<F: Tables, B: Ipi, I: Instructions> SfenceVma<F, B, I> {
    /// Loads a root in the mode that is set.
    ///
    /// # Safety
    ///
    /// 1. The tree maps the kernel as the current one does, and stays until the next load.
    #[inline]
    unsafe fn load_root(&self, pin: &Pinned<'_>, satp: u64, root: u64, asid: u16) {
        let satp = satp & MODE | u64::from(asid) << ASID_SHIFT | root >> FRAME_SHIFT;
        // SAFETY: 1. of the caller's.
        unsafe { self.instructions.load_satp(pin, satp) };
    }
}

on_a_board!(
    SfenceVma<F: Tables> of Instructions,
    "1. A root is at `at` that maps the kernel as all roots do, and has no entries of programs. It stays",
    "   as long as the MMU is used."
);

// SAFETY: 1. `SFENCE.VMA` with an address drops the leaf entry of that page under that ASID;
// without one, everything of the ASID that is not global, links included, which is what is done if
// tables have gone. Fences order earlier stores before later walks. 2. With an address and no ASID
// it drops the leaf entry under all of them, global or not; with neither, everything. 3. Other
// spaces have other ASIDs, and translations under this one are dropped after the load unless
// `keep`; the number 0, which spaces may share, is never kept. `forget_all` drops everything. 4.
// The kernel's root has no entries of programs (`with_kernel_root`, or a `KernelRoot`); if the
// space had its number, the links of the space under it are dropped. 5. Harts walk `F` (`Tables`)
// in the mode that `check_mode` wants. `SFENCE.VMA` acts on the
// calling hart. Harts may cache entries that are not valid. A fence with an address says nothing
// about links of tables: if some were linked, the fence has none. 6. A `KernelRoot` alone is kept.
// 7. No instruction of these unwinds; `unload` does so before it has changed anything, if the
// kernel's root is missing.
unsafe impl<F: Tables, B: Ipi, I: Instructions> Mmu for SfenceVma<F, B, I> {
    const FORMATS: Formats = Formats::of::<F>();
    const STRUCTURES: Structures = Structures::WholeSpace;
    const NEEDS_ENTRY_VALID: bool = true;

    #[inline]
    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let asid = Some(self.asid(what.asid));
        match what.scope.pages() {
            Some(pages) if !what.tables_freed => {
                pages.for_each(|at| self.instructions.sfence_vma(pin, Some(at), asid));
            }
            _ => self.instructions.sfence_vma(pin, None, asid),
        }
    }

    #[inline]
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        match scope.pages() {
            Some(pages) => pages.for_each(|at| self.instructions.sfence_vma(pin, Some(at), None)),
            None => self.instructions.sfence_vma(pin, None, None),
        }
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let asid = self.asid(root.asid);
        let forget = !root.keep || asid == 0;
        if forget {
            // The root's entries may be stores of this hart that its walks do not see yet.
            self.instructions.sfence_vma(pin, None, Some(asid));
        }
        let satp = self.instructions.satp(pin);
        // SAFETY: 1. The library's roots carry the kernel's half, and stay until `unload`.
        unsafe { self.load_root(pin, satp, root.at.0, asid) };
        if root.forget_all {
            self.instructions.sfence_vma(pin, None, None);
        } else if forget {
            self.instructions.sfence_vma(pin, None, Some(asid));
        }
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        let root = self.kernel_root.get();
        let satp = self.instructions.satp(pin);
        // SAFETY: 1. It maps the kernel as all roots do, and stays for good.
        unsafe { self.load_root(pin, satp, root, 0) };
        if satp >> ASID_SHIFT & ASID == 0 {
            // The space had the kernel's number, for want of others. The hart may have links of its
            // tables, which would do for the kernel's root as well.
            self.instructions.sfence_vma(pin, None, Some(0));
        }
    }

    fn check_mode(&self, pin: &Pinned<'_>) -> Result<(), WrongMode> {
        let mode = self.instructions.satp(pin) >> MODE_SHIFT;
        WrongMode::unless("satp.MODE", mode, F::MODE.into())
    }

    fn may_show(&self, pin: &Pinned<'_>, at: *const u8, _: PhysAddr) -> bool {
        self.instructions.can_load(pin, at)
    }

    fn set_kernel_root(&self, root: KernelRoot) {
        self.kernel_root.set(root.at);
    }

    fn invalidate_code(&self, pin: &Pinned<'_>) {
        self.instructions.fence_i_everywhere(pin);
    }

    #[inline]
    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        let asid = entry.asid.map(|asid| self.asid(asid));
        if entry.pages > MOST_NEW || entry.linked > 0 {
            self.instructions.sfence_vma(pin, None, asid);
            return;
        }
        for page in 0..entry.pages {
            self.instructions.sfence_vma(pin, Some(entry.va.wrapping_add(page << entry.shift)), asid);
        }
    }
}
