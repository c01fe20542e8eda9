//! The registers and instructions that address translation is about, and where physical memory is
//! mapped.

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use ptarmigan_kernel_mailbox as mailbox;

use crate::irq::{self, HARTS};

/// Where physical memory from 0 to 4 GiB is mapped in every space: entries 256 to 259 of every
/// root.
pub const DIRECT_MAP: u64 = 0xffff_ffc0_0000_0000;
/// First physical address that is not mapped there.
pub const DIRECT_MAP_LIMIT: u64 = 4 << 30;
/// The first entry of a root that is the kernel's.
pub const KERNEL_FIRST: usize = 256;
/// Entries of a root.
pub const ENTRIES: usize = 512;

const SV39: u64 = 8 << 60;
const ASID_SHIFT: u32 = 44;
const ASID_MASK: u64 = 0xffff;

/// Where a physical address below 4 GiB is reached for good, whatever the current space maps.
pub fn direct<T>(physical: u64) -> *mut T {
    ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}

/// The physical address of something in the image.
pub fn physical<T>(of: *const T) -> u64 {
    (of.addr() as u64).wrapping_sub(DIRECT_MAP)
}

/// The physical address of the root that maps the kernel alone.
pub fn kernel_root() -> u64 {
    unsafe extern "C" {
        /// Defined by `boot.s`.
        static kernel_root: [u64; ENTRIES];
    }
    physical(&raw const kernel_root)
}

/// The entries of the kernel's root.
pub fn kernel_entry(index: usize) -> u64 {
    // SAFETY: the table is a static of 512 entries, which is written only while one hart runs; the
    // index is cut to size.
    unsafe { direct::<u64>(kernel_root()).add(index % ENTRIES).read() }
}

/// Sets an entry of the kernel's root that was none.
///
/// # Safety
///
/// 1. What the entry leads to stays for good, and is the kernel's own.
/// 2. One hart runs.
pub unsafe fn set_kernel_entry(index: usize, entry: u64) {
    // SAFETY: the table is a static of 512 entries, which nothing else reads or writes now (point
    // 2); the index is cut to size.
    unsafe { direct::<u64>(kernel_root()).add(index % ENTRIES).write_volatile(entry) };
    // This hart may have cached that there was none.
    forget_all();
}

/// Harts that have loaded a root under the number of the one before, and have not fenced since: what
/// they have cached of the old tables serves the new ones.
static UNFENCED: [AtomicBool; HARTS] = [const { AtomicBool::new(false) }; HARTS];

fn set_unfenced(to: bool) {
    if let Some(unfenced) = UNFENCED.get(irq::cpu()) {
        unfenced.store(to, Ordering::Relaxed);
    }
}

/// Whether this hart may go on with the root that it has loaded. QEMU drops everything when a root
/// is loaded, so that no program can notice a fence that is missing.
pub fn is_fenced() -> bool {
    UNFENCED.get(irq::cpu()).is_none_or(|unfenced| !unfenced.load(Ordering::Relaxed))
}

/// Tells the recorder, if there is one, what the next instruction of address translation uses. That
/// has to come before the guard goes.
#[inline(always)]
fn operands(first: u64, second: u64) -> Option<irq::Masked> {
    if !mailbox::is_on() {
        return None;
    }
    let masked = irq::Masked::new();
    mailbox::send(irq::cpu(), mailbox::code::OPERAND, [first, second, 0, 0]);
    Some(masked)
}

/// Switches to another root. Translations stay, walk caches included: if both roots have the same
/// `asid`, a fence has to follow ([`is_fenced`]).
///
/// # Safety
///
/// 1. The tree at `root` maps the kernel as the current one does, and stays valid until the next
///    switch.
pub unsafe fn load_root(root: u64, asid: u16) {
    if current_asid() == asid {
        set_unfenced(true);
    }
    let satp = SV39 | u64::from(asid) << ASID_SHIFT | root >> 12;
    let _masked = operands(root, asid.into());
    // SAFETY: point 1 is passed on.
    unsafe { asm!("csrw satp, {}", in(reg) satp, options(nostack, preserves_flags)) };
}

/// The number under which this hart tags what it finds now.
pub fn current_asid() -> u16 {
    let satp: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("csrr {}, satp", out(reg) satp, options(nomem, nostack, preserves_flags)) };
    (satp >> ASID_SHIFT & ASID_MASK) as u16
}

/// How many bits the ASID field of `satp` has on this hart.
pub fn asid_bits() -> u32 {
    let (before, tried): (u64, u64);
    // SAFETY: the root stays the one that is loaded, and the kernel's pages are global; the last
    // instruction drops what may have been cached under the number that was tried.
    unsafe {
        asm!(
            "csrr {before}, satp",
            "or {tried}, {before}, {mask}",
            "csrw satp, {tried}",
            "csrr {tried}, satp",
            "csrw satp, {before}",
            "sfence.vma",
            before = out(reg) before,
            tried = out(reg) tried,
            mask = in(reg) ASID_MASK << ASID_SHIFT,
            options(nostack, preserves_flags)
        );
    }
    let _ = before;
    (tried >> ASID_SHIFT & ASID_MASK).count_ones()
}

/// Forgets the leaf entry for one address under `asid`, on this hart. Nothing that is cached of
/// entries which link tables.
pub fn forget_page(at: u64, asid: u16) {
    let _masked = operands(at, asid.into());
    // SAFETY: forgetting a translation changes no memory; the walk that follows reads the current
    // tables.
    unsafe {
        asm!("sfence.vma {}, {}", in(reg) at, in(reg) u64::from(asid), options(nostack, preserves_flags))
    };
}

/// Forgets the leaf entry for one address under every ASID, global or not, on this hart.
pub fn forget_page_of_all(at: u64) {
    let _masked = operands(at, 0);
    // SAFETY: as above.
    unsafe { asm!("sfence.vma {}, zero", in(reg) at, options(nostack, preserves_flags)) };
}

/// Forgets everything under `asid` but what is global, links of tables included, on this hart.
pub fn forget_space(asid: u16) {
    let masked = operands(0, asid.into());
    // SAFETY: as above.
    unsafe { asm!("sfence.vma zero, {}", in(reg) u64::from(asid), options(nostack, preserves_flags)) };
    drop(masked);
    if asid == current_asid() {
        set_unfenced(false);
    }
}

/// Forgets everything, global translations and links of tables included, on this hart.
pub fn forget_all() {
    let masked = operands(0, 0);
    // SAFETY: as above.
    unsafe { asm!("sfence.vma", options(nostack, preserves_flags)) };
    drop(masked);
    set_unfenced(false);
}

/// What this hart fetches from here on is what is in memory.
pub fn instructions_changed() {
    // SAFETY: a fence changes no memory.
    unsafe { asm!("fence.i", options(nostack, preserves_flags)) };
}
