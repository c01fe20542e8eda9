//! Does the same as `tests/c/same.c`, in Rust and with the library itself: the same calls on the
//! same trees, printed in the same way. A test compares the two.
use std::collections::HashMap;
use std::ptr::NonNull;

use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, CpuSet, MachineId, NodeId, Pinned};
use ptarmigan::format::{Attr, Format, FormatExt, Formats};
use ptarmigan::frames::{AllocFlags, DataFrames, End, Frames, MemoryRun, NoFrame, Request, ZoneClass};
use ptarmigan::machine::{self, Machine as _, On};
use ptarmigan::page::Level;
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::{ListsConfig, Quicklists, Source};
use ptarmigan::table::{Free, KernelMap, MapError, Mapped, Tree};
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, Root, Scope, SpaceId, Structures, Tlb, TlbConfig};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};

#[cfg(target_arch = "x86_64")]
type Entries = ptarmigan::format::X86_64;
#[cfg(target_arch = "x86")]
type Entries = ptarmigan::format::X86Pae;

const BYTES: usize = 64 << 20;
const DEVICE: u64 = 0xe000_0000;
const PAGE: u64 = FRAME_SIZE as u64;

/// There is no MMU.
struct None;

// SAFETY: 1. to 7. no translation is cached, and no hook has an effect.
unsafe impl Mmu for None {
    const FORMATS: Formats = Formats::of::<Entries>();
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
}

impl Ipi for None {
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
}

type Kernel = KernelMap<Entries, DirectMap>;

struct Machine {
    frames: &'static Frames,
    data: DataFrames,
    window: DirectMap,
    lists: Quicklists<'static, DirectMap, &'static Kernel>,
    tlb: Tlb<None>,
    parking: Parking,
}

// SAFETY: 1. all are made for one name and one CPU. 2. they are fields. 3. the window reaches all
// of memory; one frame is written.
unsafe impl machine::Machine for Machine {
    type Window = DirectMap;
    type Policy = Quicklists<'static, DirectMap, &'static Kernel>;
    type Shootdown = None;
    fn frames(&self) -> &Frames {
        self.frames
    }
    fn data(&self) -> &DataFrames {
        &self.data
    }
    fn window(&self) -> &DirectMap {
        &self.window
    }
    fn policy(&self) -> &Self::Policy {
        &self.lists
    }
    fn tlb(&self) -> &Tlb<None> {
        &self.tlb
    }
    fn parking(&self) -> &Parking {
        &self.parking
    }
    unsafe fn clear_data(&self, _: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        // SAFETY: the caller owns the frame (1.), and the window reaches it.
        unsafe { self.window.open(frame.addr()).base().write_bytes(0, FRAME_SIZE) };
        Ok(())
    }
    unsafe fn copy_data(&self, _: &Pinned<'_>, _: Pfn, _: Pfn) -> Result<(), NoFrame> {
        unreachable!("nothing is copied on write")
    }
}

impl Machine {
    fn new() -> Self {
        let ram = std::alloc::Layout::from_size_align(BYTES, FRAME_SIZE).expect("a layout");
        // SAFETY: it has a size.
        let ram = unsafe { std::alloc::alloc_zeroed(ram) };
        let boot = NonNull::from(Vec::leak(vec![0u64; 1 << 20])).cast();
        // SAFETY: 1. the block is leaked: it is there for ever and used by no other code.
        let boot = &mut unsafe { BootMemory::new(boot, 8 << 20) };
        // SAFETY: 1. and 2. memory below the limit is at `ram`, and reached through this alone.
        let window = unsafe { DirectMap::new(ram, BYTES as u64) }.expect("it fits");
        let id = MachineId::new();
        let run = MemoryRun {
            start: Pfn(16),
            frames: (BYTES / FRAME_SIZE - 16) as u32,
            node: NodeId(0),
            class: ZoneClass::Low,
        };
        // SAFETY: 1. and 2. fresh memory, and a new name.
        let frames = Box::leak(Box::new(unsafe { Frames::new(boot, id, &[run]) }.expect("frames")));
        let (class, flags) = (ZoneClass::Low, AllocFlags::NORMAL);
        let request = Request { node: NodeId(0), order: 0, zero: true, class, end: End::Low, flags };
        // SAFETY: 1. the window reaches all frames.
        let kernel = Box::leak(Box::new(unsafe { Kernel::new(frames, window, request) }.expect("a frame")));
        // SAFETY: 1. the window reaches all frames. 2. made for them and this format. 3. tables are
        // frames. 4. `Kernel::new` has looked.
        let source = unsafe { Source::new(frames, window, &*kernel, Entries::LAYOUT) };
        let lists = Quicklists::new(boot, ListsConfig::new(1), source).expect("boot memory");
        let data = DataFrames::new(boot, frames, 1).expect("boot memory");
        // SAFETY: 1. the name is new.
        let tlb = unsafe { Tlb::new(boot, id, TlbConfig::new(1), None) }.expect("boot memory");
        let parking = Parking::new(boot, id, 1, 0).expect("boot memory");
        Machine { frames, data, window, lists, tlb, parking }
    }
}

/// The random numbers of `host.h`.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32 % limit
    }
}

/// The names of frames in `host.h`.
#[derive(Default)]
struct Names(HashMap<u64, usize>);

impl Names {
    fn dump(&mut self, window: &DirectMap, level: Level, table: PhysAddr) {
        const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
        let root = level == Entries::LAYOUT.root();
        let n = if root { Entries::USER_ROOT_ENTRIES } else { Entries::entries(level) };
        let entries = window.open(table).base().cast::<u64>();
        for i in 0..n {
            // SAFETY: a table of the tree, which no code changes.
            let entry = unsafe { entries.add(i).read() };
            let frame = entry & ADDRESS;
            if entry == 0 {
                continue;
            }
            print!("{} {i} {:016x} ", level.0, entry & !ADDRESS);
            if frame >= BYTES as u64 {
                println!("device {frame:x}");
            } else {
                let next = self.0.len() + 1;
                println!("frame {}", self.0.entry(frame).or_insert(next));
            }
            if level > Level::PTE {
                self.dump(window, Level(level.0 - 1), PhysAddr(frame));
            }
        }
    }
}

struct Run {
    random: Random,
    names: Names,
    sum: u64,
}

impl Run {
    fn seen(&mut self, pages: &mut u64, va: VirtAddr, attr: Attr) {
        *pages += 1;
        self.sum = self.sum.wrapping_mul(31).wrapping_add(va.0).wrapping_add(attr.0.into());
    }

    fn one(&mut self, on: On<'_, Machine>, number: u32) {
        let mut tree = Tree::<Entries>::new(on, AllocFlags::NORMAL).expect("memory");
        if number % 2 == 1 {
            tree.activate(on).expect("this CPU's");
        }
        let mut refused = 0;
        for _ in 0..4000 {
            let [what, gib, mib, page, bits] = [10, 3, 64, 512, 8].map(|n| self.random.below(n));
            let va = u64::from(gib) << 30 | u64::from(mib) << 21 | u64::from(page) << 12;
            let range = VirtRange::new(va, va + u64::from(self.random.below(64) + 1) * PAGE).unwrap();
            let attr = Attr::READ | Attr::USER | Attr((bits & 3) << 1);
            let mut pages = 0;
            macro_rules! edit {
                () => {
                    tree.edit(on).expect("nothing else is going on")
                };
            }
            match what {
                0..5 => {
                    let (frame, is_zero) =
                        on.data().take_zero(on.frames(), on.pin(), AllocFlags::NORMAL).expect("memory");
                    if !is_zero {
                        // SAFETY: 1. taken just now.
                        unsafe { on.machine().clear_data(on.pin(), frame.pfn()) }.expect("it is reached");
                    }
                    // SAFETY: 1. no CPU runs in the space.
                    match unsafe { edit!().map(VirtAddr(va), frame.pfn(), attr, AllocFlags::NORMAL) } {
                        Ok(()) => {
                            let _ = frame.into_raw();
                        }
                        Err(MapError::Occupied { .. }) => {
                            refused += 1;
                            on.data().release(on.frames(), on.pin(), frame).expect("its own");
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
                5 => {
                    let owns = |page: Mapped| {
                        self.seen(&mut pages, page.at, page.attr);
                        page.frame.addr().0 < BYTES as u64
                    };
                    // SAFETY: 1. frames of memory were taken above, and left to their entries.
                    unsafe { edit!().unmap_owned(range, Free::Empty, owns) };
                }
                6 => {
                    let attr = if bits & 4 != 0 { attr } else { attr.without_access() };
                    let keep = Attr::ACCESSED | Attr::DIRTY | Attr::SPECIAL;
                    edit!().change_range(range, |old| attr | Attr(old.0 & keep.0)).expect("it can be said");
                }
                7 => {
                    if let Some((_, attr)) = tree.query(on, VirtAddr(va)) {
                        self.seen(&mut pages, VirtAddr(va), attr);
                    }
                }
                8 => {
                    let first = PhysAddr(DEVICE + va % (1 << 21)).pfn();
                    // SAFETY: 1. no CPU runs in the space.
                    refused += u32::from(unsafe { edit!().map_range(range, first, attr) }.is_err());
                }
                _ => {
                    let seen = |va, _, attr| self.seen(&mut pages, va, attr);
                    tree.view().walk(on, range, seen).expect("its machine");
                }
            }
            self.sum = self.sum.wrapping_add(pages);
        }
        print!("tree {number}: sum {:016x}, {refused} refused, tables", self.sum);
        Entries::LAYOUT.each_level().for_each(|level| print!(" {}", tree.count(level)));
        println!();
        self.names.dump(on.window(), Entries::LAYOUT.root(), tree.root());
        let give = |_, pfn: Pfn, _| {
            if pfn.addr().0 < BYTES as u64 {
                // SAFETY: as in the unmapping. The space has been left.
                unsafe {
                    DataFrames::release_raw(on.frames(), pfn);
                    on.data().give_raw(on.frames(), on.pin(), pfn);
                }
            }
        };
        assert!(tree.end(on, give).is_ok());
    }
}

fn main() {
    let machine = Machine::new();
    // SAFETY: 1. there is one thread. 2. one CPU and one node.
    let pin = unsafe { Pinned::assume(machine.id(), CpuId(0), NodeId(0)) };
    let on = machine.on(&pin).expect("its own pin");
    let mut run = Run { random: Random(1), names: Names::default(), sum: 0 };
    (0..4).for_each(|number| run.one(on, number));
}
