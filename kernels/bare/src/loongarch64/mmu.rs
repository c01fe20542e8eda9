//! The MMU: the TLB that the handler in `boot.s` fills, `INVTLB`, and the registers that it walks
//! by (Reference Manual volume 1, 4.2.4.7, 5.4, 7.5).

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::format::{Formats, LoongArch64};
use ptarmigan::tlb::{Invalidation, Ipi, KernelRoot, Mmu, NewEntry, Root, Scope, SpaceId, Structures};
use ptarmigan_kernel_base::direct::physical;

use super::negative_controls::{NegativeControl, leaves_out};

/// Numbers of spaces at the most: as many as `ASID` has bits for, less the kernel's 0.
pub const ASIDS: u16 = (1 << 10) - 1;
/// Pages from which on a whole space is forgotten rather than each of them.
const MOST_NEW: u64 = 64;

/// Registers.
const ASID: u32 = 0x18;
const PGDL: u32 = 0x19;
const PGDH: u32 = 0x1a;
const TLBRENTRY: u32 = 0x88;

/// Writes a register.
///
/// # Safety
///
/// 1. The kernel, in its windows, goes on as before with the value.
unsafe fn write<const REGISTER: u32>(value: u64) {
    // SAFETY: point 1 of the caller's.
    unsafe { asm!("csrwr {}, {}", inout(reg) value => _, const REGISTER, options(nostack)) };
}

/// Forgets translations, by the manual's `OP`: 0 all; 4 those of a space, 5 that pair of pages of
/// it, that are not global.
fn invtlb<const OP: u32>(asid: u16, at: u64) {
    // SAFETY: it drops translations that the tables have as well.
    unsafe {
        asm!("invtlb {}, {}, {}", const OP, in(reg) u64::from(asid), in(reg) at, options(nostack));
    }
}

fn forget(asid: u16, pages: Option<impl Iterator<Item = u64>>) {
    match pages {
        Some(pages) => pages.for_each(|at| invtlb::<5>(asid, at)),
        None => invtlb::<4>(asid, 0),
    }
}

/// Has misses of the TLB handled, by tests of directories that are empty or without.
pub fn set_refill() {
    unsafe extern "C" {
        /// Defined by `boot.s`; only their addresses mean anything.
        static refill_tested: u8;
        static refill_untested: u8;
    }
    let tested = !leaves_out(NegativeControl::Test);
    let handler = if tested { &raw const refill_tested } else { &raw const refill_untested };
    // SAFETY: 1. The kernel runs in windows, without the TLB.
    unsafe { write::<TLBRENTRY>(physical(handler)) };
}

/// The one CPU's MMU, and its way to others, of which there are none. In runs that do so on
/// purpose, instructions are left out.
pub struct OneCpuMmu {
    /// A root without entries.
    empty: AtomicU64,
}

impl OneCpuMmu {
    /// Makes it.
    pub const fn new() -> Self {
        OneCpuMmu { empty: AtomicU64::new(0) }
    }
}

impl Ipi for OneCpuMmu {
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
}

// SAFETY: 1. `INVTLB` 5 drops the pair that a page is in under an ASID, 4 all of an ASID; pages of
// spaces are not global. It is finished before later accesses of this CPU, and there is no other.
// The refill keeps no links, and its loads see the CPU's earlier stores. 2. `INVTLB` 0 drops all,
// global or not. 3. Other spaces have other ASIDs, and translations under this one are dropped
// after the load unless `keep`; 0, which spaces may share, is never kept. `forget_all` drops all.
// 4. `PGDL` is the empty root's then. 5. It does not broadcast. The refill walks tables whenever
// the user misses a page, by no lock and as no reader: as an MMU that does it by itself. It puts
// entries that are not valid, or not dirty, into the TLB, and faults leave them there. Nothing but
// whole translations is kept. 6. The `KernelRoot` alone is kept. 7. Nothing unwinds here.
unsafe impl Mmu for OneCpuMmu {
    const FORMATS: Formats = Formats::of::<LoongArch64>();
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = true;

    fn invalidate(&self, _: &Pinned<'_>, what: &Invalidation) {
        if !leaves_out(NegativeControl::Flush) {
            forget(what.asid, what.scope.pages());
        }
    }

    /// The kernel's half is in windows, and the refill finds nothing in it but pages that are not
    /// valid.
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {
        invtlb::<0>(0, 0);
    }

    fn load(&self, _: &Pinned<'_>, root: &Root) {
        // SAFETY: 1. The root is the user's alone.
        unsafe {
            write::<PGDL>(root.at.0);
            write::<ASID>(root.asid.into());
        }
        if root.forget_all {
            invtlb::<0>(0, 0);
        } else if (!root.keep || root.asid == 0) && !leaves_out(NegativeControl::Load) {
            invtlb::<4>(root.asid, 0);
        }
    }

    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {
        // SAFETY: 1. As above.
        unsafe {
            write::<PGDL>(self.empty.load(Ordering::Relaxed));
            write::<ASID>(0);
        }
    }

    fn set_kernel_root(&self, root: KernelRoot) {
        self.empty.store(root.at.0, Ordering::Relaxed);
        // SAFETY: 1. What is beside the windows in the upper half, the kernel does not use.
        unsafe {
            write::<PGDL>(root.at.0);
            write::<PGDH>(root.at.0);
        }
    }

    fn invalidate_code(&self, _: &Pinned<'_>) {
        // SAFETY: it orders the CPU's fetches behind its stores.
        unsafe { asm!("ibar 0", options(nostack)) };
    }

    fn entry_became_valid(&self, _: &Pinned<'_>, entry: &NewEntry) {
        if leaves_out(NegativeControl::Valid) {
            return;
        }
        let pages = (0..entry.pages).map(|page| entry.va.wrapping_add(page << entry.shift));
        match entry.asid {
            Some(asid) => forget(asid, (entry.pages <= MOST_NEW).then_some(pages)),
            None => invtlb::<0>(0, 0),
        }
    }
}
