//! Turns requests into instructions.
use super::cpu::Cpu;
use super::features::Features;
use super::instructions::{Instructions, Invpcid};
use super::tables::Tables;
use crate::arch::kernel_root::KernelRootCell;
use crate::cpu::Pinned;
use crate::format::Formats;
use crate::tlb::{Invalidation, Ipi, KernelRoot, Mmu, Root, Scope, SpaceId, Structures, WrongMode};
use core::marker::PhantomData;

/// CR3: the translations of its PCID stay.
const KEEP: u64 = 1 << 63;
/// CR3: the PCID.
const PCID: u64 = (1 << 12) - 1;
/// CR4: more than two levels, with entries of 64 bits.
const PAE: u32 = 5;
/// CR4: five levels; read in long mode alone.
const LA57: u32 = 12;

/// The MMUs of x86 CPUs. `F` is the format of their tables, as CPUs are set up at boot: four levels
/// or five, with a C-bit or without. `B` sends interrupts; `I` executes instructions.
///
/// ```
/// # #[cfg(target_arch = "x86_64")] {
/// use ptarmigan::arch::{NoIpi, x86_64::X86Mmu};
/// use ptarmigan::format::X86_64;
/// // Spaces have no numbers; works on every x86-64 CPU.
/// static MMU: X86Mmu<X86_64, NoIpi> = X86Mmu::new(NoIpi);
/// # let _ = &MMU;
/// # }
/// ```
///
/// Other formats than those that [x86 CPUs walk](Tables) do not compile:
///
/// ```compile_fail,E0277
/// # use ptarmigan::arch::{NoIpi, x86_64::{Cpu, Features, X86Mmu}};
/// # use ptarmigan::format::Sv48;
/// # // SAFETY: not executed.
/// let mmu = unsafe { X86Mmu::<Sv48, _, _>::with_features(NoIpi, Cpu, Features::NONE) };
/// ```
///
/// Nor does a space without encryption on CPUs that encrypt:
///
/// ```compile_fail,E0080
/// # use ptarmigan::arch::{NoIpi, x86_64::{Instructions, Invpcid, X86Mmu}};
/// # use ptarmigan::cpu::Pinned;
/// # use ptarmigan::format::{Sev, X86_64};
/// # use ptarmigan::{machine::On, setup::MachineParts, space::Space, window::DirectMap};
/// # struct Cpu;
/// # // SAFETY: not executed.
/// # unsafe impl Instructions for Cpu {
/// #     fn invlpg(&self, _: &Pinned<'_>, _: u64) {}
/// #     fn invpcid(&self, _: &Pinned<'_>, _: Invpcid) {}
/// #     fn cr3(&self, _: &Pinned<'_>) -> u64 { 0 }
/// #     unsafe fn load_cr3(&self, _: &Pinned<'_>, _: u64) {}
/// #     fn cr4(&self, _: &Pinned<'_>) -> u64 { 0 }
/// #     fn toggle_pge(&self, _: &Pinned<'_>) {}
/// # }
/// type Guest = MachineParts<'static, Sev<X86_64, 47>, DirectMap, X86Mmu<Sev<X86_64, 47>, NoIpi, Cpu>>;
/// fn space(on: On<'_, Guest>) {
///     let _ = Space::<X86_64>::new(on);
/// }
/// # let _ = space as fn(On<'_, Guest>);
/// ```
pub struct X86Mmu<F, B, I = Cpu> {
    tables: PhantomData<fn() -> F>,
    board: B,
    instructions: I,
    features: Features,
    kernel_root: KernelRootCell,
}

impl<F: Tables, B> X86Mmu<F, B> {
    /// Makes the MMUs of x86-64 CPUs, without numbers of spaces.
    #[cfg(not(target_arch = "x86"))]
    pub const fn new(board: B) -> Self {
        Self::made_of(board, Cpu, Features::X86_64)
    }

    /// Makes the MMUs of x86-64 CPUs with the features that the calling CPU has enabled. All CPUs
    /// have the same ones enabled, and keep them so.
    #[cfg(target_arch = "x86_64")]
    pub fn detect(board: B) -> Self {
        Self::made_of(board, Cpu, Features::read())
    }
}

impl<F: Tables, B, I> X86Mmu<F, B, I> {
    const fn made_of(board: B, instructions: I, features: Features) -> Self {
        X86Mmu { tables: PhantomData, board, instructions, features, kernel_root: KernelRootCell::new() }
    }

    /// Makes MMUs with other instructions, or with features that the caller knows.
    ///
    /// # Safety
    ///
    /// 1. All CPUs have these features and no others enabled, and keep them so. A kernel that has
    ///    set CR4.PCIDE may leave `pcid` out.
    /// 2. `global_kernel` is false, or true of the kernel.
    pub const unsafe fn with_features(board: B, instructions: I, features: Features) -> Self {
        Self::made_of(board, instructions, features)
    }

    /// Returns the features.
    pub const fn features(&self) -> Features {
        self.features
    }

    /// Returns how many spaces can be told apart:
    /// [`TlbConfig::asids`](crate::tlb::TlbConfig::asids) is at most this.
    pub const fn asids(&self) -> u16 {
        if self.features.pcid { PCID as u16 } else { 0 }
    }

    /// The PCID of a number. Spaces whose numbers no PCID has share the kernel's, 0, which is
    /// flushed whenever it changes hands.
    #[inline]
    const fn pcid(&self, asid: u16) -> u16 {
        if asid <= self.asids() { asid } else { 0 }
    }
}

impl<F: Tables, B: Ipi, I: Instructions> X86Mmu<F, B, I> {
    /// The PCID that is loaded.
    #[inline]
    fn current(&self, pin: &Pinned<'_>) -> u16 {
        if self.features.pcid { (self.instructions.cr3(pin) & PCID) as u16 } else { 0 }
    }

    /// Forgets everything that is not global under the PCID that is loaded.
    #[inline]
    fn reload(&self, pin: &Pinned<'_>) {
        let cr3 = self.instructions.cr3(pin);
        // SAFETY: 1. The tree that is loaded already.
        unsafe { self.instructions.load_cr3(pin, cr3 & !KEEP) };
    }

    /// Carries out an invalidation of more than a page of the PCID that is loaded.
    #[inline(never)]
    fn invalidate_more(&self, pin: &Pinned<'_>, what: &Invalidation, pcid: u16, is_loaded: bool) {
        let pages = if what.reload_root { None } else { what.scope.pages() };
        match pages {
            Some(pages) if is_loaded => pages.for_each(|at| self.instructions.invlpg(pin, at)),
            None if is_loaded => self.reload(pin),
            _ if !self.features.invpcid => self.forget_all(pin),
            Some(pages) if !what.tables_freed => {
                pages.for_each(|at| self.instructions.invpcid(pin, Invpcid::Page { pcid, at }));
            }
            _ => self.instructions.invpcid(pin, Invpcid::Context(pcid)),
        }
    }

    /// Carries out an invalidation of more than a page of the kernel's.
    #[inline(never)]
    fn invalidate_more_of_kernel(&self, pin: &Pinned<'_>, scope: &Scope, one_pcid: bool) {
        match scope.pages() {
            Some(pages) if one_pcid => pages.for_each(|at| self.instructions.invlpg(pin, at)),
            _ => self.forget_all(pin),
        }
    }

    /// Forgets everything.
    fn forget_all(&self, pin: &Pinned<'_>) {
        let Features { global, pcid, invpcid, .. } = self.features;
        if !global && !pcid {
            self.reload(pin);
        } else if invpcid {
            self.instructions.invpcid(pin, Invpcid::All);
        } else {
            self.instructions.toggle_pge(pin);
        }
    }
}

on_a_board!(
    X86Mmu<F: Tables> of Instructions,
    "1. A root is at `at` that maps the kernel as all roots do, and has no entries of programs. It stays",
    "   as long as the MMU is used."
);

// SAFETY: 1. If the PCID is loaded, INVLPG drops the page and all links under it, and a load of CR3
// without bit 63 drops all of the PCID that is not global; under PAE it also reads the root's
// entries again. If another one is loaded, INVPCID of type 0 drops the page, and type 1, which is
// taken if tables have gone, all of the PCID; without INVPCID everything goes. Walks find the CPU's
// earlier stores without a barrier. 2. INVLPG drops a page that is global, and one that is not
// under the PCID that is loaded, which is the only one unless PCIDs are used; if they are and pages
// need not be global, everything goes, as it does for a full scope. 3. A load of CR3 without bit 63
// drops what is not global under the new PCID, which no other space has but 0, and that is never
// kept. 4. The kernel's root has no entries of programs (`with_kernel_root`, or a `KernelRoot`). 5.
// CPUs walk `F` (`Tables`) in the mode that `check_mode` wants. All instructions act on the calling
// CPU. It walks tables by itself, and drops an entry that denied an access before it faults. 6. A
// `KernelRoot` alone is kept. 7. No instruction unwinds; `unload` does so before it has changed
// anything, if the kernel's root is missing.
unsafe impl<F: Tables, B: Ipi, I: Instructions> Mmu for X86Mmu<F, B, I> {
    const FORMATS: Formats = Formats::of::<F>();
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    #[inline]
    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let pcid = self.pcid(what.asid);
        let is_loaded = pcid == self.current(pin);
        if let Scope::Page { at, .. } = what.scope
            && is_loaded
            && !what.reload_root
        {
            return self.instructions.invlpg(pin, at);
        }
        self.invalidate_more(pin, what, pcid, is_loaded);
    }

    #[inline]
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        let one_pcid = !self.features.pcid || self.features.global_kernel;
        match scope {
            Scope::Page { at, .. } if one_pcid => self.instructions.invlpg(pin, *at),
            _ => self.invalidate_more_of_kernel(pin, scope, one_pcid),
        }
    }

    #[inline]
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let pcid = self.pcid(root.asid);
        let keep = if root.keep && pcid != 0 { KEEP } else { 0 };
        // SAFETY: 1. The library's roots carry the kernel's half, and stay until `unload`.
        unsafe { self.instructions.load_cr3(pin, root.at.0 | u64::from(pcid) | keep) };
        if root.forget_all {
            self.forget_all(pin);
        }
    }

    #[inline]
    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        let root = self.kernel_root.get();
        // A space that had the kernel's number is forgotten by the load.
        let keep = if self.current(pin) == 0 { 0 } else { KEEP };
        // SAFETY: 1. It maps the kernel as all roots do, and stays for good.
        unsafe { self.instructions.load_cr3(pin, root | keep) };
    }

    fn check_mode(&self, pin: &Pinned<'_>) -> Result<(), WrongMode> {
        let (cr4, levels) = (self.instructions.cr4(pin), F::LAYOUT.levels);
        WrongMode::unless("CR4.PAE", cr4 >> PAE & 1, (levels > 2).into())?;
        if levels < 4 {
            return Ok(());
        }
        WrongMode::unless("CR4.LA57", cr4 >> LA57 & 1, (levels > 4).into())
    }

    fn set_kernel_root(&self, root: KernelRoot) {
        self.kernel_root.set(root.at);
    }
}
