//! The harts that the firmware numbers, by the numbers of CPUs.

use core::sync::atomic::{AtomicU64, Ordering};

use super::sbi;
use crate::tasks::CPUS;

/// Numbers of harts by CPU. The assembly looks for its own, from CPU 1 on.
#[unsafe(export_name = "hart_ids")]
static HART_IDS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];

/// Says which hart a CPU is.
pub fn set(cpu: usize, hart: u64) {
    if let Some(id) = HART_IDS.get(cpu) {
        id.store(hart, Ordering::Relaxed);
    }
}

/// Interrupts a CPU.
pub fn interrupt(cpu: usize) {
    let hart = HART_IDS.get(cpu).map_or(0, |id| id.load(Ordering::Relaxed));
    let _ = sbi::interrupt(1 << hart);
}
