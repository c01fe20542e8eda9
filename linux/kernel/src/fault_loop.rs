//! Detects faults that come back although no page is missing.
//!
//! A fault that finds everything in order is served by returning: the CPU's translation was stale.
//! If the CPU does not see the tables where they are, that never ends. Emulators have had such
//! defects: `qemu-system-i386` 7.2 does not reach leaf tables above 4 GiB.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ptarmigan_kernel_base::fail;

use crate::Kernel;
use crate::arch::Arch;
use crate::counts::{Count, FAULTS_SERVED};

/// Such faults in a row that end the machine. A program that finds stale translations for all pages
/// of 4 GiB has as many.
const MOST: u32 = 1 << 20;

/// A CPU's record of its last such faults, which it alone writes.
pub struct FaultLoop {
    in_a_row: AtomicU32,
    progress: AtomicU64,
}

impl FaultLoop {
    /// Makes the record of a CPU that has had no such fault.
    pub const fn new() -> Self {
        FaultLoop { in_a_row: AtomicU32::new(0), progress: AtomicU64::new(0) }
    }
}

impl<A: Arch> Kernel<A> {
    /// Counts a fault that found everything in order. Ends the machine after [`MOST`] between which
    /// this CPU served no other fault and no call.
    #[cold]
    #[inline(never)]
    pub(crate) fn fault_came_back(&self) {
        let cpu = &self.cpus[A::cpu()];
        let counts = FAULTS_SERVED.iter().chain([&Count::Calls]);
        let progress = counts.map(|count| cpu.counts.get(*count as usize)).sum();
        let before = cpu.stuck.progress.swap(progress, Ordering::Relaxed);
        let in_a_row = if before == progress { cpu.stuck.in_a_row.load(Ordering::Relaxed) + 1 } else { 1 };
        cpu.stuck.in_a_row.store(in_a_row, Ordering::Relaxed);
        if in_a_row >= MOST {
            fail(format_args!(
                "{MOST} faults in a row on pages that are mapped: the CPU does not see tables where they are; \
                 with tables above 4 GiB start with userpte=nohigh, less memory or another emulator"
            ));
        }
    }
}
