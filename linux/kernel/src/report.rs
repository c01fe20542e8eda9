//! Prints the kernel's results at its end.

use ptarmigan::machine::Machine as _;
use ptarmigan::quicklist::Policy as _;
use ptarmigan::space::SpaceMachine as _;
use ptarmigan::tlb::FlushCounts;
use ptarmigan_kernel_base::{fail, pass, say};

use crate::Kernel;
use crate::arch::Arch;
use crate::counts::NAMES;

/// The port of QEMU's isa-debug-exit device, which programs that asked for ports may write to.
pub const EXIT_PORT: u16 = 0xf4;
/// The value for the exit device if all is well: QEMU's exit status is 33.
pub const PASS: u8 = 0x10;
/// The value for it if not: 35.
pub const FAIL: u8 = 0x11;

/// How the kernel ends.
#[derive(Clone, Copy)]
pub struct Ending {
    /// The value for the exit device.
    pub outcome: u8,
    /// The status of process 1.
    pub status: i32,
    /// The CPU that sees to it.
    pub cpu: usize,
}

impl<A: Arch> Kernel<A> {
    /// Returns the sum of a count over all CPUs.
    pub fn sum(&self, index: usize) -> u64 {
        self.cpus.iter().map(|cpu| cpu.counts.get(index)).sum()
    }

    /// Returns the library's counts of flushes that concern other CPUs, with their names.
    pub(crate) fn flushes(&'static self) -> [(&'static str, usize); 10] {
        let counts = self.machine.get().tlb().counts();
        [
            ("flushes", counts.page + counts.range + counts.full),
            ("full flushes", counts.full),
            ("flushed pages", counts.pages),
            ("flushes that asked CPUs", counts.remote),
            ("CPUs asked", counts.asked),
            ("CPUs asked to load a root", counts.asked_for_root),
            ("flushes left to CPUs", counts.deferred),
            ("CPUs that caught up", counts.caught_up),
            ("chains parked", counts.parked),
            ("chains flushed by force", counts.forced),
        ]
    }

    /// Prints the counts.
    fn print_counts(&'static self) {
        for (i, name) in NAMES.iter().enumerate() {
            say!("kernel: {name}: {}", self.sum(i));
        }
        say!("kernel: pages are cleared and copied by {}", A::PAGE_INSTRUCTIONS);
        let machine = self.machine.get();
        let FlushCounts { page, range, full, asked, skipped, .. } = machine.tlb().counts();
        say!(
            "kernel: flushes: {page} page, {range} range, {full} full; {asked} requests to other CPUs, {skipped} too late"
        );
        self.flushes().iter().filter(|(_, n)| *n > 0).for_each(|(name, n)| say!("kernel: {name}: {n}"));
        let counts = machine.policy().counts();
        let allocs: usize = counts.levels.iter().map(|level| level.allocs).sum();
        let misses: usize = counts.levels.iter().map(|level| level.misses).sum();
        say!("kernel: tables: {allocs} handed out, {misses} from the allocator");
        A::print_counts();
    }

    /// A program has written to the exit device: prints the counts, and writes the value.
    pub(crate) fn end_by_port(&'static self, value: u8) -> ! {
        say!("kernel: a program ends the machine with {value:#x}");
        self.print_counts();
        A::exit(value)
    }

    /// All is taken down: checks that every frame is back, and ends the machine.
    pub(crate) fn finish(&'static self, ending: Ending) -> ! {
        self.print_counts();
        let machine = self.machine.get();
        let counts = machine.policy().counts();
        // Reads may have made the block of zeroes, which stays.
        let zeroes = machine.zero_block().map_or(0, |block| block.frames(machine.frames()));
        let free = machine.frames().counts().free + zeroes;
        let (live, cached) = (counts.live(), counts.cached());
        say!("kernel: process 1 has ended with {:#x}", ending.status);
        if (live, cached, free) != (0, 0, machine.before) {
            let before = machine.before;
            fail(format_args!("frames: {free} free, {before} before; {live} tables live, {cached} cached"));
        }
        say!("kernel: all {free} frames are back");
        match ending.outcome {
            PASS => pass(),
            outcome => A::exit(outcome),
        }
    }
}
