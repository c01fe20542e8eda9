//! Sets up the memory of both sources: boot memory, frames, and a direct map.
use core::mem::forget;
use core::ops::Range;
use core::ptr::NonNull;

use ostd::cpu::PinCurrentCpu;
use ostd::irq::disable_local;
use ostd::mm::io::util::HasVmReaderWriter;
use ostd::mm::{Paddr, Segment};
use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::frames::{Frames, MemoryRun, MemorySize, ZoneClass};
use ptarmigan::window::DirectMap;
use spin::Once;

/// CPUs that run.
pub const CPUS: usize = 1;

/// The parts that a source is made of.
pub struct Memory {
    /// The frames.
    pub frames: &'static Frames,
    /// The rest of boot memory.
    pub boot: BootMemory,
    /// Where ostd has the frames mapped.
    pub window: DirectMap,
}

impl Memory {
    /// Makes the parts of all of `own`, and keeps the frames in `place`. `more` returns the bytes
    /// of the source's own arrays.
    ///
    /// # Safety
    ///
    /// 1. No other code may use the memory, now or later.
    pub unsafe fn new(
        place: &'static Once<Frames>,
        own: Range<Paddr>,
        more: impl Fn(&MemorySize) -> usize,
    ) -> Self {
        let run = |own: Range<Paddr>| MemoryRun {
            start: Pfn((own.start / FRAME_SIZE) as u32),
            frames: (own.len() / FRAME_SIZE) as u32,
            node: NodeId(0),
            class: ZoneClass::Low,
        };
        let size = MemorySize::of([run(own.clone())]);
        let bytes = (Frames::bytes(&size) + more(&size)).next_multiple_of(FRAME_SIZE);
        let arrays = own.start..own.start + bytes;
        // ostd notes that these frames are in use, and says where it has mapped them.
        let Ok(segment) = Segment::from_unused(arrays.clone(), |_| ()) else {
            panic!("frames that ostd has handed over are in use");
        };
        let base = segment.writer().cursor();
        forget(segment);
        let Some(start) = NonNull::new(base) else { panic!("the direct map begins at 0") };
        // SAFETY: 1. the segment is memory that ostd has mapped for good, and is never given back;
        // no other code uses it by the caller (1.).
        let mut boot = unsafe { BootMemory::new(start, bytes) };
        let zero = base.wrapping_sub(arrays.start);
        // SAFETY: 1. ostd has all memory that it hands over mapped at one distance, for good.
        // 2. ostd reaches a frame at the same addresses, and only while the frame is handed out.
        let window = match unsafe { DirectMap::new(zero, own.end as u64) } {
            Ok(window) => window,
            Err(e) => panic!("{e}"),
        };
        // SAFETY: 1. by the caller (1.); boot memory is cut off. 2. the name is new.
        let frames = match unsafe { Frames::new(&mut boot, MachineId::new(), &[run(arrays.end..own.end)]) } {
            Ok(frames) => frames,
            Err(e) => panic!("{e}"),
        };
        Memory { frames: place.call_once(|| frames), boot, window }
    }
}

/// Calls `f` with the proof of where the caller is, while interrupts are off.
#[inline]
pub fn with_pin<R>(machine: MachineId, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
    let guard = disable_local();
    let cpu = u32::from(guard.current_cpu());
    assert!(cpu < CPUS as u32, "one CPU runs");
    // SAFETY: 1. interrupts are off, so that no other code runs on this CPU. 2. just checked; there
    // is one node.
    f(&unsafe { Pinned::assume(machine, CpuId(cpu as u16), NodeId(0)) })
}
