//! Counters of each CPU; the kernel prints the sums at its end.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Defines the counters, each with the name that is printed.
macro_rules! counts {
    ($($count:ident $name:literal $what:literal)*) => {
        /// The counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Count {
            $(#[doc = $what] $count,)*
        }

        /// Names of the counts, in their order.
        pub const NAMES: [&str; COUNTS] = [$($name,)*];
    };
}

counts! {
    FaultZero         "faults zero"        "Faults that mapped the zero frame."
    FaultFresh        "faults fresh"       "Faults that mapped a fresh frame."
    FaultLarge        "faults large"       "Faults that mapped a large page of fresh frames."
    FaultBacked       "faults backed"      "Faults that mapped a page of an object."
    FaultBlock        "faults in blocks"   "Faults for which an object had a block of frames."
    FaultCopied       "faults copied"      "Faults that copied a page."
    FaultReused       "faults reused"      "Faults that gave a page back for writing."
    FaultSpurious     "faults spurious"    "Faults that found everything in order."
    Collapsed         "large pages made"   "Large pages that an idle CPU made of pages."
    PageClears        "page clears"        "Data pages cleared."
    PageCopies        "page copies"        "Data pages copied."
    Windows           "windows opened"     "Windows opened on high frames."
    PageInvalidations "page invalidations" "Single pages that a CPU forgot."
    RootLoads         "root loads"         "Roots loaded, the kernel's own included."
    Ipis              "interrupts sent"    "Interrupts sent to other CPUs."
    Calls             "system calls"       "System calls."
    Forks             "forks"              "Processes made by `fork`, `vfork` and `clone`."
    Threads           "threads"            "Threads made in a process that there was."
    Execs             "execs"              "Programs begun by `exec`."
    Switches          "task switches"      "Changes from one task to another."
    Ticks             "timer ticks"        "Timer interrupts."
}

/// How many counts there are.
pub const COUNTS: usize = 21;

/// Faults that gave a page, or a right to one.
pub const FAULTS_SERVED: [Count; 6] = [
    Count::FaultZero,
    Count::FaultFresh,
    Count::FaultLarge,
    Count::FaultBacked,
    Count::FaultCopied,
    Count::FaultReused,
];

/// The counts of one CPU, which alone adds to them. They wrap around where words have 32 bits.
#[repr(align(128))]
pub struct Counts([AtomicUsize; COUNTS]);

impl Counts {
    /// Makes counts of zero.
    pub const fn new() -> Self {
        Counts([const { AtomicUsize::new(0) }; COUNTS])
    }

    /// Returns the number of faults that were served.
    #[inline]
    pub fn faults(&self) -> usize {
        let one = |what: &Count| self.0[*what as usize].load(Ordering::Relaxed);
        FAULTS_SERVED.iter().chain([&Count::FaultSpurious]).map(one).fold(0, usize::wrapping_add)
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
