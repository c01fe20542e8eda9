//! The registers and instructions that address translation is about.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ptarmigan::arch::riscv64::{Cpu, Instructions};
use ptarmigan::cpu::Pinned;
use ptarmigan_kernel_base::direct::{direct, physical};
use ptarmigan_kernel_base::riscv::{irq, sbi};
use ptarmigan_kernel_base::tasks::CPUS;
use ptarmigan_kernel_base::{fail, fail_if};
use ptarmigan_kernel_mailbox as mailbox;

use super::negative_controls::{NegativeControl, leaves_out};

/// The format of all tables.
#[cfg(not(debug_assertions))]
pub use ptarmigan::format::Sv39 as Format;
/// The format of all tables. An image that checks groups has Svnapot's entries in its spaces too:
/// they are Sv39's, but for groups.
#[cfg(debug_assertions)]
pub use ptarmigan::format::Sv39Napot as Format;

/// Entries of a root.
pub const ENTRIES: usize = 512;

/// The address of a root, of `satp` shifted by the size of a frame.
const ROOT: u64 = ((1 << 44) - 1) << 12;
const ASID_SHIFT: u32 = 44;
const ASID_MASK: u64 = 0xffff;

/// The physical address of the root that the kernel boots on.
pub fn kernel_root() -> u64 {
    unsafe extern "C" {
        /// Defined by `boot.s`.
        static kernel_root: [u64; ENTRIES];
    }
    physical(&raw const kernel_root)
}

/// The root that harts load when they leave a space.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// Says which root harts load when they leave a space.
pub fn set_kernel_root(at: u64) {
    KERNEL_ROOT.store(at, Ordering::Relaxed);
}

/// Sets an entry of the kernel's root that was empty.
///
/// # Safety
///
/// 1. The memory that the entry leads to must be the kernel's own, and stay for good.
/// 2. One hart runs.
pub unsafe fn set_kernel_entry(index: usize, entry: u64) {
    // SAFETY: the table is a static of 512 entries, which no other hart reads or writes now (point
    // 2); the index is cut to size.
    unsafe { direct::<u64>(kernel_root()).add(index % ENTRIES).write_volatile(entry) };
    // SAFETY: a fence changes no memory. This hart may have cached the empty entry.
    unsafe { asm!("sfence.vma", options(nostack, preserves_flags)) };
}

/// Harts that have loaded a root under the number of the one before, and have not fenced since:
/// entries that they have cached of the old tables serve the new ones.
static UNFENCED: [AtomicBool; CPUS] = [const { AtomicBool::new(false) }; CPUS];

fn set_unfenced(to: bool) {
    if let Some(unfenced) = UNFENCED.get(irq::cpu()) {
        unfenced.store(to, Ordering::Relaxed);
    }
}

/// Whether this hart may go on with the root that it has loaded. QEMU drops everything when a root
/// is loaded, so that no program can notice a fence that is missing.
fn is_fenced() -> bool {
    UNFENCED.get(irq::cpu()).is_none_or(|unfenced| !unfenced.load(Ordering::Relaxed))
}

/// Ends the run if this hart may still use cached entries of the tables that were loaded before.
pub fn check_fenced(whose: &str) {
    fail_if(!is_fenced(), format_args!("no fence after {whose} root was loaded"));
}

/// Tells the recorder, if there is one, the operands of the next instruction of address
/// translation. The instruction must come before the guard is dropped.
#[inline]
fn operands(first: u64, second: u64) -> Option<irq::Masked> {
    if !mailbox::is_on() {
        return None;
    }
    let masked = irq::Masked::new();
    mailbox::send(irq::cpu(), mailbox::code::OPERAND, [first, second, 0, 0]);
    Some(masked)
}

/// The instructions of a hart, announced to a recorder; in runs that do so on purpose, some are
/// left out.
pub struct Announcing;

/// Whether a fence is left out on purpose.
fn leaves_fence_out(pin: &Pinned<'_>, of_space: bool) -> bool {
    // The root has just been loaded under the number of the one before.
    let loads = of_space && !is_fenced();
    let part = if current_root() == KERNEL_ROOT.load(Ordering::Relaxed) {
        NegativeControl::UnloadFence
    } else {
        NegativeControl::LoadFence
    };
    leaves_out(NegativeControl::Flush)
        || leaves_out(NegativeControl::Remote) && is_answering(pin)
        || loads && leaves_out(part)
}

// SAFETY: Each function has the hart execute the instruction, or the firmware have all harts
// execute it. A run that leaves it out does so on purpose, to show that the checks detect stale
// entries.
unsafe impl Instructions for Announcing {
    fn sfence_vma(&self, pin: &Pinned<'_>, at: Option<u64>, asid: Option<u16>) {
        if leaves_fence_out(pin, at.is_none() && asid.is_some()) {
            return;
        }
        let masked = operands(at.unwrap_or(0), asid.unwrap_or(0).into());
        Cpu.sfence_vma(pin, at, asid);
        drop(masked);
        if at.is_none() && asid.is_none_or(|asid| asid == current_asid()) {
            set_unfenced(false);
        }
    }

    fn satp(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.satp(pin)
    }

    unsafe fn load_satp(&self, pin: &Pinned<'_>, value: u64) {
        let asid = value >> ASID_SHIFT & ASID_MASK;
        if u64::from(current_asid()) == asid {
            set_unfenced(true);
        }
        let _masked = operands(value << 12 & ROOT, asid);
        // SAFETY: 1. of the caller's.
        unsafe { Cpu.load_satp(pin, value) };
    }

    fn can_load(&self, pin: &Pinned<'_>, at: *const u8) -> bool {
        Cpu.can_load(pin, at)
    }

    fn fence_i_everywhere(&self, _: &Pinned<'_>) {
        if let Err(e) = sbi::fence_instructions() {
            fail(format_args!("no fence of instructions on other harts: {e:?}"));
        }
    }
}

fn satp() -> u64 {
    let satp: u64;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("csrr {}, satp", out(reg) satp, options(nomem, nostack, preserves_flags)) };
    satp
}

/// Returns the number under which this hart tags the translations that it caches now.
fn current_asid() -> u16 {
    (satp() >> ASID_SHIFT & ASID_MASK) as u16
}

fn current_root() -> u64 {
    satp() << 12 & ROOT
}

/// Has this hart fetch the instructions that are in memory now.
pub fn instructions_changed() {
    // SAFETY: a fence changes no memory.
    unsafe { asm!("fence.i", options(nostack, preserves_flags)) };
}

/// This hart is answering an interrupt.
static ANSWERING: [AtomicBool; CPUS] = [const { AtomicBool::new(false) }; CPUS];

/// Says whether a hart is answering an interrupt.
pub fn set_answering(pin: &Pinned<'_>, to: bool) {
    if let Some(answering) = ANSWERING.get(usize::from(pin.cpu().0)) {
        answering.store(to, Ordering::Relaxed);
    }
}

/// Whether a hart is answering an interrupt.
pub fn is_answering(pin: &Pinned<'_>) -> bool {
    ANSWERING.get(usize::from(pin.cpu().0)).is_some_and(|answering| answering.load(Ordering::Relaxed))
}
