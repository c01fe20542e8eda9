//! The library's view of the machine.

use core::sync::atomic::{AtomicU32, Ordering};

use ptarmigan::addr::{FRAME_SHIFT, Pfn};
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::format::Format as _;
use ptarmigan::frames::{DataFrames, Frames, NoFrame};
use ptarmigan::machine::{self, Machine as _, On};
use ptarmigan::parking::Parking;
use ptarmigan::setup::MachineParts;
use ptarmigan::space::{SpaceMachine, ZeroBlock};
use ptarmigan::tlb::Tlb;

use super::objects::Objects;
use crate::Kernel;
use crate::arch::Arch;
use crate::counts::Count;
use crate::negative_controls::{NegativeControl, leaves_out};
use crate::params::AROUND;

/// The parts that set-up makes.
pub type Parts<A> = MachineParts<'static, <A as Arch>::Format, <A as Arch>::Window, <A as Arch>::Hardware>;
/// Where pages for tables come from.
pub type Lists<A> = <Parts<A> as machine::Machine>::Policy;

/// All parts together.
pub struct Machine<A: Arch> {
    parts: Parts<A>,
    /// The name of the parts, which each pin is made and compared with: a copy at hand saves 7
    /// instructions a fork.
    id: MachineId,
    /// Pages that a fault which reads one of an object maps at most, a power of two.
    around: AtomicU32,
    /// Free frames when all was set up.
    pub before: u32,
}

// SAFETY: 1. and 2. They are those of the parts, and so is the name. 3. The window reaches all
// memory (`Arch`, point 5); both functions write to the frame that is named, through `Arch::page`
// (point 4).
unsafe impl<A: Arch> machine::Machine for Machine<A> {
    type Window = A::Window;
    type Policy = Lists<A>;
    type Shootdown = A::Hardware;

    const HIGH_TABLES: bool = A::HIGH_TABLES;

    fn table_share(&self) -> u32 {
        self.parts.table_share()
    }

    #[inline]
    fn frames(&self) -> &Frames {
        self.parts.frames()
    }

    #[inline]
    fn data(&self) -> &DataFrames {
        self.parts.data()
    }

    #[inline]
    fn window(&self) -> &A::Window {
        self.parts.window()
    }

    #[inline]
    fn policy(&self) -> &Lists<A> {
        self.parts.policy()
    }

    #[inline]
    fn tlb(&self) -> &Tlb<A::Hardware> {
        self.parts.tlb()
    }

    #[inline]
    fn parking(&self) -> &Parking {
        self.parts.parking()
    }

    #[inline]
    fn id(&self) -> MachineId {
        self.id
    }

    #[inline]
    fn before_executable(&self, pin: &Pinned<'_>, first: Pfn, frames: u64) {
        let Some(fetched) = A::fetched() else { return };
        let all = || (first.0..).take(frames as usize).map(Pfn);
        if !fetched.has(all()) {
            self.parts.before_executable(pin, first, frames);
            all().for_each(|frame| fetched.add(frame));
        }
    }

    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        A::kernel().count(Count::PageClears);
        if leaves_out(NegativeControl::Clear) {
            return Ok(());
        }
        A::page(pin, frame, |at| {
            // SAFETY: 1. `at` shows the frame, which the caller owns (point 1).
            unsafe { A::clear_page(at) }
            stored::<A>(frame);
        })
    }

    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        A::kernel().count(Count::PageCopies);
        if leaves_out(NegativeControl::Copy) {
            return Ok(());
        }
        A::page(pin, from, |source| {
            A::page(pin, to, |target| {
                // SAFETY: 1. `target` shows `to`, which the caller owns (point 1). 2. `source`
                // shows `from`, another frame, which stays (point 2).
                unsafe { A::copy_page(source, target) }
                stored::<A>(to);
            })
        })?
    }
}

// SAFETY: 1. They are those of the parts. 2. Objects have frames of their own, taken from the zones
// and never handed to `DataFrames`, and keep them while a task has the object mapped (`Objects`,
// "Life"). 3. Pages are frames: `Machine::new`.
unsafe impl<A: Arch> SpaceMachine for Machine<A> {
    #[inline]
    fn zero_frame(&self) -> Pfn {
        self.parts.zero_frame()
    }

    #[inline]
    fn zero_block(&self) -> Option<&ZeroBlock> {
        self.parts.zero_block()
    }

    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        self.objects().page_for_fault(object, page)
    }

    #[inline]
    fn fault_around(&self) -> u32 {
        self.around.load(Ordering::Relaxed)
    }

    /// All pages but holes are at hand: files are in memory.
    fn frames_at_hand(&self, object: u32, first: u64, frames: &mut [Pfn]) {
        self.objects().pages_at_hand(object, first, frames);
    }

    fn backing_block(&self, object: u32, page: u64, pages: u32) -> Option<Pfn> {
        let first = self.objects().block_for_fault(object, page, pages)?;
        A::kernel().count(Count::FaultBlock);
        Some(first)
    }
}

impl<A: Arch> Machine<A> {
    pub(super) fn new(parts: Parts<A>) -> Self {
        const { assert!(A::Format::PAGE_SHIFT == FRAME_SHIFT, "pages of the kernel are single frames") };
        let (id, before) = (parts.id(), parts.frames().counts().free);
        Machine { parts, id, around: AtomicU32::new(AROUND), before }
    }

    /// Has faults that read a page of an object map so many pages at most, a power of two.
    pub(crate) fn set_fault_around(&self, pages: u32) {
        self.around.store(pages, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn objects(&self) -> Objects<'_, A::Window> {
        Objects::new(&A::kernel().object_table, self.parts.frames(), self.parts.window(), A::fetched())
    }

    /// Gives back the pages in this CPU's lists, and with `all` those of the nodes.
    pub fn drain(&self, all: bool) {
        let pin = A::kernel().pin();
        let Ok(on) = self.on(&pin) else { return };
        on.drain();
        if all {
            for node in 0..self.frames().nodes() {
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
        let node = self.cpus[cpu].node.load(Ordering::Relaxed);
        // SAFETY: 1. The kernel is not preempted: it gives its CPU up only by entering user mode or
        // by waiting for an interrupt, and handlers of interrupts return before the interrupted
        // code goes on. 2. `Arch`, point 1; `set_up` sets nodes that the machine has.
        unsafe { Pinned::assume(self.machine.get().id, CpuId(cpu as u16), NodeId(node)) }
    }

    /// Returns the machine, seen from where the pin says that code runs.
    #[inline]
    pub fn on<'a>(&'static self, pin: &'a Pinned<'a>) -> On<'a, Machine<A>> {
        self.machine.get().on(pin).unwrap_or_else(|_| other_machine())
    }

    /// Returns the pages of files and of shared memory.
    #[inline]
    pub fn objects(&'static self) -> Objects<'static, A::Window> {
        self.machine.get().objects()
    }

    /// Counts one event on this CPU.
    #[inline]
    pub fn count(&self, what: Count) {
        self.cpus[A::cpu()].counts.add(what);
    }
}

/// Notes that the kernel has written to a frame.
#[inline]
pub(crate) fn stored<A: Arch>(frame: Pfn) {
    if let Some(fetched) = A::fetched() {
        fetched.remove(frame);
    }
}

#[cold]
#[inline(never)]
fn other_machine() -> ! {
    panic!("there is one machine, and pins are made for it")
}
