//! The library's view of the machine.

use ptarmigan::addr::Pfn;
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::frames::{DataFrames, Frames, NoFrame};
use ptarmigan::machine::{self, Machine as _, On};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::Quicklists;
use ptarmigan::space::SpaceMachine;
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::Tlb;

use super::objects::Objects;
use crate::Kernel;
use crate::arch::Arch;
use crate::counts::Count;
use crate::without::{Part, leaves_out};

/// The kernel's half of all roots.
pub type KernelHalf<A> = KernelMap<<A as Arch>::Format, <A as Arch>::Window>;
/// Where pages for tables come from.
pub type Lists<A> = Quicklists<'static, <A as Arch>::Tables, &'static KernelHalf<A>>;

/// Bytes of the library's own arrays.
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    /// Records of frames and zones.
    pub frames: usize,
    /// Lists of data frames.
    pub data: usize,
    /// Lists of table pages.
    pub lists: usize,
    /// TLB state.
    pub tlb: usize,
}

impl Metadata {
    /// Returns all of them together.
    pub fn total(&self) -> usize {
        self.frames + self.data + self.lists + self.tlb
    }
}

/// All parts together.
pub struct Machine<A: Arch> {
    pub(super) frames: &'static Frames,
    pub(super) data: DataFrames,
    pub(super) low: A::Window,
    pub(super) tables: A::Tables,
    pub(super) lists: Lists<A>,
    pub(super) tlb: Tlb<A::Hardware>,
    pub(super) parking: Parking,
    pub(super) zero: Pfn,
    pub(super) table_share: u32,
    /// Pages of files and of shared memory.
    pub objects: Objects<A>,
    /// Free frames when all was set up.
    pub before: u32,
    /// Bytes of the library's own arrays.
    pub metadata: Metadata,
}

// SAFETY: 1. `set_up` makes all of them for the one `Frames` and the same number of CPUs and nodes.
// 2. They are fields of a static. 3. The window reaches all memory that tables may
// be in (`Arch`, point 6); both functions write to the frame that is named, through `Arch::page`
// (point 4).
unsafe impl<A: Arch> machine::Machine for Machine<A> {
    type Window = A::Tables;
    type Policy = Lists<A>;
    type Shootdown = A::Hardware;

    const HIGH_TABLES: bool = A::HIGH_TABLES;

    fn table_share(&self) -> u32 {
        self.table_share
    }

    #[inline]
    fn frames(&self) -> &Frames {
        self.frames
    }

    #[inline]
    fn data(&self) -> &DataFrames {
        &self.data
    }

    #[inline]
    fn window(&self) -> &A::Tables {
        &self.tables
    }

    #[inline]
    fn policy(&self) -> &Lists<A> {
        &self.lists
    }

    #[inline]
    fn tlb(&self) -> &Tlb<A::Hardware> {
        &self.tlb
    }

    #[inline]
    fn parking(&self) -> &Parking {
        &self.parking
    }

    #[inline]
    fn data_has_memory(&self) -> bool {
        true
    }

    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        A::kernel().count(Count::PageClears);
        if leaves_out(Part::Clear) {
            return Ok(());
        }
        A::page(pin, frame, |at| {
            // SAFETY: 1. `at` shows the frame, which the caller owns (point 1).
            unsafe { A::clear_page(at) }
        })
    }

    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        A::kernel().count(Count::PageCopies);
        if leaves_out(Part::Copy) {
            return Ok(());
        }
        A::page(pin, from, |source| {
            A::page(pin, to, |target| {
                // SAFETY: 1. `target` shows `to`, which the caller owns (point 1). 2. `source`
                // shows `from`, another frame, which stays (point 2).
                unsafe { A::copy_page(source, target) }
            })
        })?
    }
}

// SAFETY: 1. The frame was taken for this and holds zeroes; entries that show it do not let writes
// through. 2. Objects have frames of their own, taken from the zones and never handed to
// `DataFrames`, and keep them while a task has the object mapped (`Objects`, "Life").
unsafe impl<A: Arch> SpaceMachine for Machine<A> {
    #[inline]
    fn zero_frame(&self) -> Pfn {
        self.zero
    }

    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        self.objects.page_for_fault(self.frames, &self.low, object, page)
    }
}

impl<A: Arch> Machine<A> {
    /// Returns the kernel's half's lists of table pages.
    pub fn lists(&self) -> &Lists<A> {
        &self.lists
    }

    /// Returns the window on low memory.
    #[inline]
    pub fn low(&self) -> &A::Window {
        &self.low
    }

    /// Gives back the pages in this CPU's lists, and with `all` those of the nodes.
    pub fn drain(&self, all: bool) {
        let pin = A::kernel().pin();
        let Ok(on) = self.on(&pin) else { return };
        on.drain();
        if all {
            for node in 0..self.frames.nodes() {
                on.policy().reclaim(NodeId(node), u32::MAX);
            }
        }
    }
}

impl<A: Arch> Kernel<A> {
    /// Returns proof of being on this CPU.
    #[inline]
    pub fn pin(&self) -> Pinned<'static> {
        let cpu = A::cpu();
        let node = self.cpus[cpu].node.load(core::sync::atomic::Ordering::Relaxed);
        // SAFETY: 1. The kernel is not preempted: it gives its CPU up only by entering user mode or
        // by waiting for an interrupt, and handlers of interrupts return before the interrupted
        // code goes on. 2. `Arch`, point 1; `set_up` sets nodes that the machine has.
        unsafe { Pinned::assume(self.frames.get().machine(), CpuId(cpu as u16), NodeId(node)) }
    }

    /// Returns the machine, seen from where the pin says that code runs.
    #[inline]
    pub fn on<'a>(&'static self, pin: &'a Pinned<'a>) -> On<'a, Machine<A>> {
        match self.machine.get().on(pin) {
            Ok(on) => on,
            Err(_) => other_machine(),
        }
    }

    /// Counts one event on this CPU.
    #[inline]
    pub fn count(&self, what: Count) {
        self.cpus[A::cpu()].counts.add(what);
    }
}

#[cold]
#[inline(never)]
fn other_machine() -> ! {
    panic!("there is one machine, and pins are made for it")
}
