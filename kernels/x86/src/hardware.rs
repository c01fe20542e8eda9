//! Gives the library's MMUs of x86 their instructions, and their interrupts.

use core::marker::PhantomData;

use ptarmigan::arch::x86_64::{Cpu, Features, Instructions, Invpcid, Tables, X86Mmu};
use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::tlb::Ipi;

use crate::table;

/// The functions that an image brings.
pub trait Cpus: Sync {
    /// Whether the calling CPU forgets translations when it should: always, but in runs that leave
    /// that out on purpose.
    fn forgets() -> bool;
    /// Whether CPUs are interrupted when they should be: always, but in such runs.
    fn interrupts() -> bool;
    /// Interrupts another CPU.
    fn interrupt(cpu: usize);
    /// Counts a page that was forgotten.
    fn count_page();
    /// Counts a root that was loaded.
    fn count_load();
}

/// The instructions of a CPU, counted, and left out in runs that do so on purpose.
pub struct Counted<C>(PhantomData<C>);

// SAFETY: Each function has the CPU execute the instruction, unless the run leaves flushes out:
// then no instruction forgets, and such a run shows the effect.
unsafe impl<C: Cpus> Instructions for Counted<C> {
    #[inline]
    fn invlpg(&self, _: &Pinned<'_>, at: u64) {
        forget_page::<C>(at);
    }

    fn invpcid(&self, pin: &Pinned<'_>, what: Invpcid) {
        if C::forgets() {
            Cpu.invpcid(pin, what);
        }
    }

    #[inline]
    fn cr3(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.cr3(pin)
    }

    #[inline]
    unsafe fn load_cr3(&self, pin: &Pinned<'_>, value: u64) {
        // The root that is loaded already: a flush.
        if !C::forgets() && value == Cpu.cr3(pin) {
            return;
        }
        C::count_load();
        // SAFETY: 1. of the caller's.
        unsafe { Cpu.load_cr3(pin, value) };
    }

    fn cr4(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.cr4(pin)
    }

    fn toggle_pge(&self, pin: &Pinned<'_>) {
        if C::forgets() {
            Cpu.toggle_pge(pin);
        }
    }
}

/// Has this CPU forget a page.
#[inline]
pub fn forget_page<C: Cpus>(at: u64) {
    if C::forgets() {
        C::count_page();
        table::invalidate_page(at);
    }
}

/// The interrupts between CPUs.
pub struct Interrupts<C>(PhantomData<C>);

impl<C: Cpus> Ipi for Interrupts<C> {
    /// The interrupt controller keeps a request until the CPU takes it.
    const RESEND_AFTER: u32 = u32::MAX;

    fn send(&self, _: &Pinned<'_>, cpus: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {
        if C::interrupts() {
            for cpu in cpus.iter() {
                C::interrupt(usize::from(cpu.0));
            }
        }
    }
}

/// The library's TLBs of x86 CPUs that walk tables of `F`, without global pages and without numbers
/// of spaces.
pub type Hardware<F, C> = X86Mmu<F, Interrupts<C>, Counted<C>>;

/// Makes them.
pub fn hardware<F: Tables, C: Cpus>() -> Hardware<F, C> {
    // SAFETY: 1. No image sets CR4.PGE or CR4.PCIDE. 2. It is false.
    unsafe { X86Mmu::with_features(Interrupts(PhantomData), Counted(PhantomData), Features::NONE) }
}
