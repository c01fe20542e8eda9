//! Sets the library up.

use core::hint::black_box;

use ptarmigan::bootmem::BootMemory;
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan::params::Params;
use ptarmigan::quicklist::AutoCosts;
use ptarmigan::setup::{Setup, SetupError};
use ptarmigan::window::{OpenWindow, WindowGuard};

use super::machine::Machine;
use crate::Kernel;
use crate::arch::Arch;

/// An image's description of its machine.
pub struct Board<'a, A: Arch> {
    /// Memory, ascending. The library's own arrays are cut off the largest low run.
    pub runs: &'a [MemoryRun],
    /// CPUs, all of which will run.
    pub cpus: usize,
    /// How memory is reached.
    pub window: A::Window,
    /// TLBs.
    pub hardware: A::Hardware,
    /// The physical address of the root that the machine booted on.
    pub kernel_root: u64,
    /// Bytes that the image itself wants of boot memory.
    pub extra: usize,
    /// The library's boot parameters.
    pub params: Params,
}

/// Sets the library up; returns the rest of boot memory, for the image.
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
    board: Board<'_, A>,
) -> Result<BootMemory, SetupError> {
    let Board { runs, cpus, window, hardware, kernel_root, extra, params } = board;
    let costs = AutoCosts { map_ns: map_ns::<A>(runs, &window), ..AutoCosts::default() };
    let setup = Setup::new(runs, window, hardware).cpus(cpus).kernel_root(kernel_root).extra(extra);
    // SAFETY: 1. `Arch`, point 5.
    let setup = unsafe { setup.parsed(&params).high_tables(costs) };
    // SAFETY: 1. and 2. Point 1 of the caller's; the place is a static. 3. Point 3.
    let (parts, left) = unsafe { setup.build_in(&kernel.place)? };
    kernel.set_cpus(cpus);
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { kernel.machine.set(Machine::new(parts)) };
    Ok(left)
}

/// Measures the time to open a high frame and to close it again, in nanoseconds.
fn map_ns<A: Arch>(runs: &[MemoryRun], window: &A::Window) -> u32 {
    const TIMES: u64 = 256;
    let Some(run) = runs.iter().find(|run| run.class == ZoneClass::High) else {
        return AutoCosts::default().map_ns;
    };
    let begin = A::now();
    for _ in 0..TIMES {
        black_box(window.open(run.start.addr()).base());
    }
    ((A::now() - begin) / TIMES) as u32
}
