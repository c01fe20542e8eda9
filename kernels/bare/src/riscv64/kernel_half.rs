//! The page of the kernel's half that [changes](ptarmigan_kernel_base::smp::kernel_half), in tables
//! of the image's own.

use core::ptr;
use core::sync::atomic::Ordering;

use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::format::{Format, Sv39};
use ptarmigan::page::Level;
use ptarmigan::tlb::Runs;
use ptarmigan_kernel_base::direct::physical;
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::riscv::irq;
use ptarmigan_kernel_base::smp::kernel_half::{ATTR, KernelHalfPage, PAGE, check as check_with, frame};
use ptarmigan_kernel_base::tasks::Port;
use ptarmigan_kernel_mailbox as mailbox;

use super::{machine, mmu};
use crate::machine::{Board, pin};

/// The entry of all roots that leads to the page.
const ROOT_ENTRY: usize = mmu::ENTRIES - 1;

static UPPER: KernelHalfPage = KernelHalfPage::new();
static LOWER: KernelHalfPage = KernelHalfPage::new();

fn link(level: Level, to: &'static KernelHalfPage) -> u64 {
    Sv39::link(level, PhysAddr(physical(ptr::from_ref(to))))
}

fn set_page(frame: Pfn) {
    LOWER.0[0].store(Sv39::leaf(Level::PTE, frame, ATTR), Ordering::Release);
}

/// Maps the page in the kernel's own root, before other roots are made of that.
///
/// # Safety
///
/// 1. One hart runs, and the library has not been set up yet.
pub unsafe fn map() {
    set_page(frame(0));
    UPPER.0[0].store(link(Level(1), &LOWER), Ordering::Relaxed);
    // SAFETY: 1. Both tables are statics. 2. Point 1 of the caller's.
    unsafe { mmu::set_kernel_entry(ROOT_ENTRY, link(Level(2), &UPPER)) };
}

/// Begins to tell a recorder of tables: first of those of the kernel's half.
pub fn announce() {
    mailbox::begin(irq::cpu());
    mailbox::fixed_table(irq::cpu(), physical(&raw const UPPER), 1);
    mailbox::fixed_table(irq::cpu(), physical(&raw const LOWER), 0);
}

/// Changes the page while the other CPUs look, and checks the values that they see.
pub fn check() {
    check_with(Board::cpus(), |frame| {
        set_page(frame);
        if let Err(e) = machine::flush_kernel(&pin(), &Runs::one(PAGE, PAGE + FRAME_SIZE as u64, 12)) {
            fail(format_args!("a flush of the kernel's half: {e}"));
        }
    });
}
