//! Prints the kernel's results at its end.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};

use ptarmigan::machine::Machine as _;
use ptarmigan::quicklist::Policy as _;

use crate::Kernel;
use crate::arch::Arch;
use crate::counts::NAMES;
use crate::say;

/// The port of QEMU's isa-debug-exit device, which programs that asked for ports may write to.
pub const EXIT_PORT: u16 = 0xf4;
/// The value for the exit device if all is well: QEMU's exit status is 33.
pub const PASS: u8 = 0x10;
/// The value for it if not: 35.
pub const FAIL: u8 = 0x11;

/// Ends the machine before there is a process: prints the reason and the remedy.
#[cold]
#[inline(never)]
pub fn refuse<A: Arch>(why: core::fmt::Arguments<'_>) -> ! {
    say!(A, "FAIL {why}");
    A::exit(FAIL)
}

/// How the kernel ends.
pub struct Ending {
    outcome: AtomicU8,
    status: AtomicI32,
    cpu: AtomicUsize,
}

impl Ending {
    /// Makes one that has not begun.
    pub const fn new() -> Self {
        Ending { outcome: AtomicU8::new(FAIL), status: AtomicI32::new(0), cpu: AtomicUsize::new(usize::MAX) }
    }

    /// Says how, and which CPU sees to it.
    pub(crate) fn set(&self, outcome: u8, status: i32, cpu: usize) {
        self.outcome.store(outcome, Ordering::SeqCst);
        self.status.store(status, Ordering::SeqCst);
        self.cpu.store(cpu, Ordering::SeqCst);
    }

    /// Returns the CPU that sees to the end.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu.load(Ordering::SeqCst)
    }
}

impl<A: Arch> Kernel<A> {
    /// Returns the sum of a count over all CPUs.
    pub fn sum(&self, index: usize) -> u64 {
        self.cpus.iter().map(|cpu| cpu.counts.get(index)).sum()
    }

    /// Prints the counts.
    fn print_counts(&'static self) {
        for (i, name) in NAMES.iter().enumerate() {
            say!(A, "kernel: {name}: {}", self.sum(i));
        }
        say!(A, "kernel: pages are cleared and copied by {}", A::PAGE_INSTRUCTIONS);
        let machine = self.machine.get();
        let flushes = machine.tlb().counts();
        say!(
            A,
            "kernel: flushes: {} page, {} range, {} full; {} requests to other CPUs, {} too late",
            flushes.page,
            flushes.range,
            flushes.full,
            flushes.asked,
            flushes.skipped
        );
        let counts = machine.policy().counts();
        let allocs: usize = counts.levels.iter().map(|level| level.allocs).sum();
        let misses: usize = counts.levels.iter().map(|level| level.misses).sum();
        say!(A, "kernel: tables: {allocs} handed out, {misses} from the allocator");
        if A::HIGH_TABLES {
            let (high, opened) = (counts.high.allocs, A::tables_opened());
            say!(A, "kernel: tables in high memory: {high} handed out; windows on them: {opened}");
        }
        A::print_counts();
    }

    /// A program has written to the exit device: prints the counts, and writes the value.
    pub(crate) fn end_by_port(&'static self, value: u8) -> ! {
        say!(A, "kernel: a program ends the machine with {value:#x}");
        self.print_counts();
        A::exit(value)
    }

    /// All is taken down: checks that every frame is back, and ends the machine.
    pub(crate) fn finish(&'static self) -> ! {
        self.print_counts();
        let machine = self.machine.get();
        let status = self.ending.status.load(Ordering::SeqCst);
        let counts = machine.policy().counts();
        let free = machine.frames().counts().free;
        let (live, cached) = (counts.live(), counts.cached());
        say!(A, "kernel: process 1 has ended with {status:#x}");
        let mut outcome = self.ending.outcome.load(Ordering::SeqCst);
        if (live, cached, free) == (0, 0, machine.before) {
            say!(A, "kernel: all {free} frames are back");
        } else {
            let before = machine.before;
            say!(A, "FAIL frames: {free} free, {before} before; {live} tables live, {cached} cached");
            outcome = FAIL;
        }
        if outcome == PASS {
            say!(A, "PASS");
        }
        A::exit(outcome)
    }
}
