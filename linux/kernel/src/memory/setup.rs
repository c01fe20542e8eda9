//! Sets the library up.

use core::hint::black_box;

use ptarmigan::bootmem::BootMemory;
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan::quicklist::AutoCosts;
use ptarmigan::setup::{Setup, SetupError};
use ptarmigan::tlb::Mmu;
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_kernel_base::say;

use super::machine::Machine;
use crate::Kernel;
use crate::arch::Arch;
use crate::params::{self, Shootdown};

/// Sets the library up, as the command line says; returns the rest of boot memory, for the image.
///
/// # Errors
///
/// [`SetupError`]: the memory is too small, or not as it should be.
///
/// # Safety
///
/// 1. No other code uses the memory of the runs, now or later; it is reached by the window in every
///    space, and so is the root.
/// 2. It is called once, while one CPU runs.
/// 3. The root maps the kernel, without access for programs; its tables stay for good, and no code
///    writes to it meanwhile.
pub unsafe fn set_up<A: Arch>(
    kernel: &'static Kernel<A>,
    cpus: usize,
    setup: Setup<'_, A::Window, A::Hardware>,
    text: &str,
) -> Result<BootMemory, SetupError> {
    let broadcasts = <A::Hardware as Mmu>::BROADCASTS;
    let shootdown = params::shootdown(text, broadcasts).unwrap_or_else(|e| {
        say!("kernel: command line: {e}; it is left out");
        Shootdown::of_machine(broadcasts)
    });
    let setup = setup.cpus(cpus).park(shootdown.park());
    // SAFETY: 1. and 2. Point 1 of the caller's; the place is a static. 3. Point 3.
    let (parts, left) = unsafe { setup.build_in(&kernel.place)? };
    kernel.set_cpus(cpus);
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { kernel.machine.set(Machine::new(parts)) };
    Ok(left)
}

/// Returns the costs of tables in high memory, for which it measures the time to open a high frame
/// and to close it again.
pub fn costs<A: Arch>(runs: &[MemoryRun], window: &A::Window) -> AutoCosts {
    const TIMES: u64 = 256;
    let mut costs = AutoCosts::default();
    if let Some(run) = runs.iter().find(|run| run.class == ZoneClass::High) {
        let begin = A::now();
        for _ in 0..TIMES {
            black_box(window.open(run.start.addr()).base());
        }
        costs.map_ns = ((A::now() - begin) / TIMES) as u32;
    }
    costs
}
