//! Images with several CPUs: how CPUs start and wait for each other, the programs that they run,
//! checks of groups of pages and of the kernel's half, stacks and what calls take of them.
//!
//! ```text
//!  CPU 0   boots ── starts the others ── wait_until_up(n) ── run_programs ──> `kernel_half`: check
//!  CPU 1   starts ── up: UP + 1, release ──────────────────── tasks ────────> look
//!  wait    spin, 10 s ── no answer ──> fail
//! ```
//!
//! # Why
//!
//! A CPU that does not start, or does not answer, must fail the run with a line that says so.
//! Without a limit the run would end by the timeout of the emulator, minutes later, and no line
//! would tell which CPU it was. So every wait ends after ten seconds of the machine's clock.

pub mod groups;
pub mod kernel_half;
pub mod measure;
pub mod stack;

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ptarmigan::cpu::Pinned;

#[cfg(target_arch = "aarch64")]
use crate::aarch64::{clock, irq};
#[cfg(target_arch = "riscv64")]
use crate::riscv::{irq, sbi as clock};
use crate::tasks::{CPUS, Port, Tasks};
use crate::user::{MODE_SHARED, MODE_SPACES};
use crate::{fail_if, say};

const PAGE: u64 = 4096;
const STACK_END: u64 = 0x3f_0000_0000;
const STACK: u64 = 16 * PAGE;

/// CPUs that run.
static UP: AtomicUsize = AtomicUsize::new(1);

/// Another CPU runs.
pub fn up() {
    UP.fetch_add(1, Ordering::Release);
}

/// Waits until `cpus` CPUs run.
pub fn wait_until_up(cpus: usize) {
    let begin = clock::time();
    while UP.load(Ordering::Acquire) < cpus {
        ptarmigan::sync::spin();
        fail_if(is_long(begin), format_args!("a CPU does not start"));
    }
}

/// Returns whether a wait that began at `begin` has taken ten seconds.
fn is_long(begin: u64) -> bool {
    clock::time().wrapping_sub(begin) > 10_000 * clock::ticks_per_ms()
}

/// Waits a moment for other CPUs to answer; ends the run if they do not. `turn` is as for
/// [`Ipi::wait`](ptarmigan::tlb::Ipi::wait).
pub fn wait(pin: &Pinned<'_>, turn: u32) {
    static SINCE: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
    ptarmigan::sync::spin();
    if turn % 1024 != 1 {
        return;
    }
    let Some(since) = SINCE.get(usize::from(pin.cpu().0)) else { return };
    if turn == 1 {
        since.store(clock::time(), Ordering::Relaxed);
    } else {
        fail_if(is_long(since.load(Ordering::Relaxed)), format_args!("a CPU does not answer"));
    }
}

/// Runs the program of `bytes` bytes: one space on two CPUs; then several programs at once, each in
/// other pages than the next.
pub fn run_programs<P: Port>(tasks: &'static Tasks<P>, bytes: u64) {
    let run = |what: &str, programs: &[(u64, u64, u64)]| {
        let begin = clock::time();
        for (mode, rounds, at) in programs {
            tasks.start_program((*at, bytes), (STACK_END, STACK), [*mode, *rounds, *at >> 12]);
        }
        tasks.run();
        say!("{what} on {} CPUs: {} ms", P::cpus(), (clock::time() - begin) / clock::ticks_per_ms());
    };
    run("one space", &[(MODE_SHARED, 200, 0x10_0000_0000)]);
    let several = [
        (MODE_SPACES, 40, 0x11_0000_0000),
        (MODE_SPACES, 40, 0x12_3456_7000),
        (MODE_SHARED, 40, 0x13_0000_0000),
    ];
    run("several spaces", &several);
}
