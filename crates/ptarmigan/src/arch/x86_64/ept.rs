//! Flushes translations of a guest's physical addresses on Intel's CPUs.
use crate::arch::kernel_root::KernelRootCell;
use crate::cpu::Pinned;
use crate::format::{Ept, Formats};
use crate::tlb::{Invalidation, Ipi, KernelRoot, Mmu, Root, Scope, SpaceId, Structures};

/// EPT pointer: write-back memory, four levels.
const WRITE_BACK_4_LEVELS: u64 = 6 | 3 << 3;
/// EPT pointer: the CPU keeps accessed and dirty bits.
const ACCESSED_DIRTY: u64 = 1 << 6;

/// An `INVEPT` and its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invept {
    /// Type 1: what was found below the root of an EPT pointer.
    Context(u64),
    /// Type 2: what was found below any root.
    All,
}

/// What a hypervisor does with EPT on the CPU that the pin says code runs on. It keeps the pointer
/// and a number beside the VMCS of the guest that the CPU runs next.
///
/// # Safety
///
/// An implementation promises that [`invept`](Self::invept) executes that instruction on that CPU
/// ([`Cpu::invept`](super::Cpu::invept) does), that the CPU runs no guest with another pointer than
/// the last one that it loaded, and that [`loaded`](Self::loaded) returns the last values.
pub unsafe trait EptCpu: Sync {
    /// `INVEPT`.
    fn invept(&self, pin: &Pinned<'_>, what: Invept);

    /// Returns the pointer and the number that were loaded last.
    fn loaded(&self, pin: &Pinned<'_>) -> (u64, u16);

    /// Loads an EPT pointer, the VMCS's field 0x201A, and notes the number.
    ///
    /// # Safety
    ///
    /// 1. A tree is at that address that stays until the next load.
    unsafe fn load(&self, pin: &Pinned<'_>, pointer: u64, number: u16);
}

/// The second stages of Intel's CPUs: the root of [`Ept`] in the EPT pointer.
/// `B` sends interrupts, which end a guest's turn on the other CPUs; `I` is the hypervisor's.
///
/// CPUs tell guests apart by the pointer. `INVEPT` names no address: whatever is to be forgotten,
/// all of the guest is, combined translations of both stages among it. So
/// [`CostModel`](crate::tlb::CostModel) does best to prefer one flush of everything. A guest that
/// is not loaded has no pointer that is known here; for it, everything of all guests is forgotten.
///
/// An EPT violation drops the translations of its address, so entries that become valid need
/// nothing (Intel SDM volume 3, "Caching translation information", "Operations that invalidate
/// cached mappings").
pub struct EptMmu<B, I> {
    board: B,
    instructions: I,
    flags: u64,
    kernel_root: KernelRootCell,
}

impl<B, I> EptMmu<B, I> {
    /// Makes second stages. `accessed_dirty` says that the CPU keeps these bits in entries, which
    /// `IA32_VMX_EPT_VPID_CAP` must allow.
    pub const fn new(board: B, instructions: I, accessed_dirty: bool) -> Self {
        let flags = WRITE_BACK_4_LEVELS | if accessed_dirty { ACCESSED_DIRTY } else { 0 };
        EptMmu { board, instructions, flags, kernel_root: KernelRootCell::new() }
    }
}

on_a_board!(
    EptMmu of EptCpu, "1. An empty table is at `at`, and stays so as long as the MMU is used.");

// SAFETY: 1. `INVEPT` drops everything of the guest that is loaded, links and combined translations
// among it, or everything of all guests if another one is meant. Walks find the CPU's earlier
// stores without a barrier. 2. There is no kernel's half; everything is dropped. 3. Other guests
// have other roots. What was found below this one before the load is dropped after it unless
// `keep`, and so if the number is 0. `forget_all` drops everything. 4. The hypervisor's root is an
// empty table (`with_kernel_root`, or a `KernelRoot`). 5. All instructions act on the calling CPU.
// It walks tables by itself, and a violation drops the translations of its address. 6. A
// `KernelRoot` alone is kept. 7. No instruction unwinds; `unload` does so before it has changed
// anything, if the root is missing.
unsafe impl<B: Ipi, I: EptCpu> Mmu for EptMmu<B, I> {
    const FORMATS: Formats = Formats::of::<Ept>();
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        let (pointer, number) = self.instructions.loaded(pin);
        let is_loaded = number != 0 && number == what.asid;
        self.instructions.invept(pin, if is_loaded { Invept::Context(pointer) } else { Invept::All });
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, _: &Scope) {
        self.instructions.invept(pin, Invept::All);
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let pointer = root.at.0 | self.flags;
        // SAFETY: 1. The library's tree stays until `unload`.
        unsafe { self.instructions.load(pin, pointer, root.asid) };
        if root.forget_all {
            self.instructions.invept(pin, Invept::All);
        } else if !root.keep || root.asid == 0 {
            self.instructions.invept(pin, Invept::Context(pointer));
        }
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        // SAFETY: 1. It is an empty table, which stays for good.
        unsafe { self.instructions.load(pin, self.kernel_root.get() | self.flags, 0) };
    }

    fn set_kernel_root(&self, root: KernelRoot) {
        self.kernel_root.set(root.at);
    }
}
