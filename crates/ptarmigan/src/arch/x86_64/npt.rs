//! Flushes translations of a guest's physical addresses on AMD's CPUs.
use crate::arch::kernel_root::KernelRootCell;
use crate::cpu::Pinned;
use crate::format::{Formats, Npt};
use crate::tlb::{Invalidation, Ipi, KernelRoot, Mmu, Root, Scope, SpaceId, Structures};

/// The field `TLB_CONTROL` of a VMCB: what `VMRUN` forgets before the guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TlbControl {
    /// Nothing.
    Keep = 0,
    /// Everything, of the host and of all guests.
    All = 1,
    /// Everything under the guest's ASID, on a CPU that has flushes by ASID.
    Guest = 3,
}

/// What a CPU has to forget before it runs guests. The CPU's own: no other uses it.
///
/// ```
/// use ptarmigan::arch::x86_64::{PendingFlush, TlbControl};
/// let mut pending = PendingFlush::default();
/// pending.add(Some(5));
/// assert_eq!(pending.at_entry(4), TlbControl::Keep);
/// assert_eq!(pending.at_entry(5), TlbControl::Guest);
/// assert_eq!(pending.at_entry(5), TlbControl::Keep);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingFlush(Pending);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pending {
    #[default]
    Nothing,
    Guest(u16),
    All,
}

impl PendingFlush {
    /// Adds everything under an ASID; `None` is everything. Two ASIDs become everything.
    pub fn add(&mut self, asid: Option<u16>) {
        self.0 = match (self.0, asid) {
            (Pending::Nothing, Some(asid)) => Pending::Guest(asid),
            (Pending::Guest(before), Some(asid)) if before == asid => Pending::Guest(asid),
            _ => Pending::All,
        };
    }

    /// Returns the field for a `VMRUN` under `asid`, which is to follow at once. What that does not
    /// forget stays pending.
    pub fn at_entry(&mut self, asid: u16) -> TlbControl {
        match self.0 {
            Pending::All => {
                self.0 = Pending::Nothing;
                TlbControl::All
            }
            Pending::Guest(of) if of == asid => {
                self.0 = Pending::Nothing;
                TlbControl::Guest
            }
            _ => TlbControl::Keep,
        }
    }
}

/// What a hypervisor does with nested pages on the CPU that the pin says code runs on. It keeps the
/// root and the ASID beside the VMCB of the guest that the CPU runs next.
///
/// # Safety
///
/// An implementation promises that the CPU runs no guest with another root or ASID than it loaded
/// last, and that it forgets before that what [`forget`](Self::forget) was given ([`PendingFlush`]
/// says when).
pub unsafe trait NptCpu: Sync {
    /// Has the CPU forget everything under an ASID before it runs a guest under it, or everything
    /// before it runs any.
    fn forget(&self, pin: &Pinned<'_>, asid: Option<u16>);

    /// Loads a root, the VMCB's `N_CR3`, and an ASID.
    ///
    /// # Safety
    ///
    /// 1. A tree is at that address that stays until the next load.
    unsafe fn load(&self, pin: &Pinned<'_>, root: u64, asid: u16);
}

/// The second stages of AMD's CPUs: the root of [`Npt`] in `N_CR3`. `B` sends
/// interrupts, which end a guest's turn on the other CPUs; `I` is the hypervisor's.
///
/// No instruction forgets translations of a guest's physical addresses: `VMRUN` does, as the VMCB
/// says (AMD APM volume 2, "TLB Flush"). A CPU uses none of them in between. Each request flushes
/// all of the guest. ASID 0 is the host's, and guests without a number share 1, so the library's
/// number *n* is ASID *n* + 1.
///
/// A nested page fault is taken after a walk of the tables as they are, so entries that become
/// valid need nothing.
pub struct NptMmu<B, I> {
    board: B,
    instructions: I,
    asids: u16,
    kernel_root: KernelRootCell,
}

impl<B, I> NptMmu<B, I> {
    /// Makes second stages. `asids` is the number of ASIDs that all CPUs have, the host's included,
    /// as `CPUID` says (function 8000_000A, `EBX`).
    pub const fn new(board: B, instructions: I, asids: u16) -> Self {
        NptMmu { board, instructions, asids, kernel_root: KernelRootCell::new() }
    }

    /// Returns how many guests can be told apart:
    /// [`TlbConfig::asids`](crate::tlb::TlbConfig::asids) is at most this.
    pub const fn asids(&self) -> u16 {
        self.asids.saturating_sub(2)
    }

    /// Returns the ASID of a number. Numbers that CPUs do not have share the ASID of guests without
    /// one.
    #[inline]
    const fn asid(&self, number: u16) -> u16 {
        if number <= self.asids() { number + 1 } else { NO_NUMBER }
    }
}

/// The ASID of guests without a number.
const NO_NUMBER: u16 = 1;

on_a_board!(
    NptMmu of NptCpu, "1. An empty table is at `at`, and stays so as long as the MMU is used.");

// SAFETY: 1. A CPU uses translations of a guest from `VMRUN` on, and has forgotten all of the guest
// before that, or everything. Walks find the CPU's earlier stores without a barrier. 2. There is no
// kernel's half; everything is forgotten. 3. Other guests have other ASIDs, but for the one of
// guests without a number, which is never kept: everything under it goes at each load. `forget_all`
// forgets everything. 4. The hypervisor's root is an empty table (`with_kernel_root`, or a
// `KernelRoot`). 5. All calls act on the calling CPU. It walks tables by itself, and again before a
// fault. 6. A `KernelRoot` alone is kept. 7. No call unwinds by itself; `unload` does so before it
// has changed anything, if the root is missing.
unsafe impl<B: Ipi, I: NptCpu> Mmu for NptMmu<B, I> {
    const FORMATS: Formats = Formats::of::<Npt>();
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        self.instructions.forget(pin, Some(self.asid(what.asid)));
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, _: &Scope) {
        self.instructions.forget(pin, None);
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let asid = self.asid(root.asid);
        // SAFETY: 1. The library's tree stays until `unload`.
        unsafe { self.instructions.load(pin, root.at.0, asid) };
        if root.forget_all {
            self.instructions.forget(pin, None);
        } else if !root.keep || asid == NO_NUMBER {
            self.instructions.forget(pin, Some(asid));
        }
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        // SAFETY: 1. It is an empty table, which stays for good.
        unsafe { self.instructions.load(pin, self.kernel_root.get(), NO_NUMBER) };
        self.instructions.forget(pin, Some(NO_NUMBER));
    }

    fn set_kernel_root(&self, root: KernelRoot) {
        self.kernel_root.set(root.at);
    }
}
