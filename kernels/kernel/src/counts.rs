//! Counters of each CPU; the kernel prints the sums at its end.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Faults that mapped the zero frame.
    FaultZero,
    /// Faults that mapped a fresh frame.
    FaultFresh,
    /// Faults that mapped a page of an object.
    FaultBacked,
    /// Faults that copied a page.
    FaultCopied,
    /// Faults that gave a page back for writing.
    FaultReused,
    /// Faults that found everything in order.
    FaultSpurious,
    /// Data pages cleared.
    PageClears,
    /// Data pages copied.
    PageCopies,
    /// Windows opened on high frames.
    Windows,
    /// Single pages that a CPU forgot.
    PageInvalidations,
    /// Roots loaded, the kernel's own included.
    RootLoads,
    /// Interrupts sent to other CPUs.
    Ipis,
    /// System calls.
    Calls,
    /// Processes made by `fork`, `vfork` and `clone`.
    Forks,
    /// Threads made in a process that there was.
    Threads,
    /// Programs begun by `exec`.
    Execs,
    /// Changes from one task to another.
    Switches,
    /// Timer interrupts.
    Ticks,
}

/// Names of the counts, in their order.
pub const NAMES: [&str; COUNTS] = [
    "faults zero",
    "faults fresh",
    "faults backed",
    "faults copied",
    "faults reused",
    "faults spurious",
    "page clears",
    "page copies",
    "windows opened",
    "page invalidations",
    "root loads",
    "interrupts sent",
    "system calls",
    "forks",
    "threads",
    "execs",
    "task switches",
    "timer ticks",
];

/// How many counts there are.
pub const COUNTS: usize = 18;

/// The counts of one CPU, which alone adds to them. They wrap around where words have 32 bits.
#[repr(align(128))]
pub struct Counts([AtomicUsize; COUNTS]);

impl Counts {
    /// Makes counts of zero.
    pub const fn new() -> Self {
        Counts([const { AtomicUsize::new(0) }; COUNTS])
    }

    /// Adds one. The calling CPU is the one whose counts these are.
    #[inline]
    pub fn add(&self, what: Count) {
        let count = &self.0[what as usize];
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns a count by its place in [`NAMES`]; 0 beyond them.
    pub fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |count| count.load(Ordering::Relaxed) as u64)
    }
}

impl Default for Counts {
    fn default() -> Self {
        Counts::new()
    }
}
