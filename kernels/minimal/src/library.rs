//! Sets the library up, and uses it as a kernel does: maps, serves page faults, forks, copies on
//! write, unmaps.

use ptarmigan::addr::VirtRange;
use ptarmigan::cpu::{CpuId, NodeId};
use ptarmigan::frames::MemoryRun;
use ptarmigan::setup::{Kernel, Setup};
use ptarmigan::space::{AreaFlags, Space};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::Failed;

use crate::arch::{DIRECT_MAP_LIMIT, Format, Mmu, direct, mmu};
use crate::user::{check, load, serving, store};

/// The machine.
static KERNEL: Kernel<Format, DirectMap, Mmu> = Kernel::new();

/// Sets the library up on `memory`, and uses it; the first error ends the run. `kernel_root` is the
/// physical address of the root that the machine booted on.
pub fn run(memory: &[MemoryRun], kernel_root: u64) -> Result<(), Failed> {
    let setup = Setup::direct_map(memory, direct(0), DIRECT_MAP_LIMIT, mmu())?.kernel_root(kernel_root);
    // SAFETY: 1. Boot code says that the memory is free. 2. Each root has the direct map. 3. It is
    // the kernel's own, and its tables are statics of the image.
    unsafe { KERNEL.set_up(setup)? };
    // SAFETY: 1. There is one CPU and one thread. Exceptions return before it goes on. 2. It is 0.
    let pin = unsafe { KERNEL.assume(CpuId(0)) };
    let on = KERNEL.on(&pin)?;
    let before = on.frames().counts().free;

    let mut parent = Space::<Format>::new(on)?;
    let heap = VirtRange::fixed::<0x40_0000, 0x80_0000>();
    parent.edit(on)?.mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
    parent.activate(on)?;
    serving(|at, access| parent.fault(on, at, access).is_ok(), || store(heap.start, 1));

    let mut child = parent.edit(on)?.fork()?;
    child.activate(on)?;
    serving(|at, access| child.fault(on, at, access).is_ok(), || store(heap.start, 2));
    check("the child has its own page", load(heap.start) == 2);
    parent.activate(on)?;
    check("the parent has its own page", load(heap.start) == 1);

    parent.edit(on)?.munmap(heap)?;
    child.end(on)?;
    parent.end(on)?;
    on.drain();
    on.policy().reclaim(NodeId(0), u32::MAX);
    check("all frames are back", on.frames().counts().free == before);
    Ok(())
}
