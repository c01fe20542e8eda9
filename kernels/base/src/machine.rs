//! The machine of an image that tests: the library's parts, a layer that listens to its lists of
//! tables, and pages that are not cleared or copied in runs that leave that out.

use core::fmt;

use ptarmigan::addr::Pfn;
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::format::Format;
use ptarmigan::frames::{DataFrames, Frames, MemoryRun, MemorySize, NoFrame};
use ptarmigan::machine::{self, Machine as _, On};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::{Layer, Layered, ListsConfig, Policy, Quicklists};
use ptarmigan::setup::{KernelHalf, MachineParts, NoObjects, Objects};
use ptarmigan::space::SpaceMachine;
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{FlushCounts, Shootdown, Tlb};
use ptarmigan::window::DirectMap;

use crate::board::fail;
use crate::negative_controls::leaves_out;
use crate::say;

/// The parts that [`Setup`](ptarmigan::setup::Setup) makes.
pub type Parts<F, S, O = NoObjects> = MachineParts<'static, F, DirectMap, S, O>;
/// Their lists of tables.
pub type Lists<F, S, O = NoObjects> = &'static <Parts<F, S, O> as machine::Machine>::Policy;

/// The number of the part [left out](crate::negative_controls) in which fresh pages are not
/// cleared.
pub const CLEAR: u32 = 0;
/// The number of the part in which copy-on-write does not copy the content.
pub const COPY: u32 = 1;

/// A layer that has no effect.
pub struct NoLayer;

// SAFETY: 1. The default passes the page on.
unsafe impl<P: Policy> Layer<P> for NoLayer {
    fn frames(&self) -> Option<&Frames> {
        None
    }
}

/// The machine. `L` is a layer around the lists of tables.
pub struct Machine<F: Format, S: 'static, O: 'static = NoObjects, L = NoLayer>
where
    Parts<F, S, O>: machine::Machine,
{
    parts: &'static Parts<F, S, O>,
    lists: Layered<L, Lists<F, S, O>>,
    /// Free frames when all was set up.
    before: u32,
}

impl<F: Format, S: Shootdown, O: Objects, L: Layer<Lists<F, S, O>>> Machine<F, S, O, L> {
    /// Makes the machine of parts. A layer of another machine ends the run.
    pub fn new(parts: &'static Parts<F, S, O>, layer: L) -> Self {
        let lists = Layered::new(layer, parts.policy());
        let lists = lists.unwrap_or_else(|refused| fail(format_args!("{}", refused.error)));
        Machine { parts, lists, before: parts.frames().counts().free }
    }

    /// Returns the kernel's half of all spaces.
    pub fn kernel_map(&self) -> &'static KernelMap<F, DirectMap> {
        self.parts.kernel_map().unwrap_or_else(|| fail(format_args!("spaces have no kernel's half")))
    }

    /// Returns the machine, seen from where the pin says that code runs.
    pub fn here<'a>(&'a self, pin: &'a Pinned<'a>) -> On<'a, Self> {
        self.on(pin).unwrap_or_else(|e| fail(format_args!("{e}")))
    }

    /// Prints the counts of tables and of flushes, and `more` behind those.
    pub fn report(&self, more: fmt::Arguments<'_>) {
        let (levels, flushes) = (self.lists.counts().levels, self.tlb().counts());
        let misses: usize = levels.iter().map(|level| level.misses).sum();
        let allocs: usize = levels.iter().map(|level| level.allocs).sum();
        say!("tables: {allocs} handed out, {misses} of them from the allocator");
        let FlushCounts { page, range, full, kernel, .. } = flushes;
        say!("flushes: {page} page, {range} range, {full} full, {kernel} of the kernel's half; {more}");
    }

    /// Prints the bytes of the library's own arrays for the memory from `start` to `end`.
    pub fn report_bytes(&self, start: u64, end: u64) {
        type OfLists<F> = Quicklists<'static, DirectMap, &'static KernelHalf<F, DirectMap>>;
        let size = MemorySize::of([MemoryRun::new(start..end)]);
        let cpus = self.tlb().config().cpus;
        let (frames, data) = (Frames::bytes(&size), DataFrames::bytes(cpus, size.nodes()));
        let lists = OfLists::<F>::bytes(&size, &ListsConfig::new(cpus));
        let tlb = Tlb::<S>::bytes(self.tlb().config()) + Parking::bytes(cpus);
        let total = self.frames().counts().total;
        say!(
            "metadata: {frames} bytes for {total} frames, {data} data lists, {lists} table lists, {tlb} TLBs"
        );
    }

    /// Gives back the pages on this CPU's lists, and with `all` also those on the node's.
    pub fn drain(on: On<'_, Self>, all: bool) {
        on.drain();
        if all {
            on.policy().reclaim(NodeId(0), u32::MAX);
        }
    }

    /// Checks, after every CPU has drained its lists, that every frame is back, but for `kept`
    /// tables of the kernel's half that stay.
    pub fn check_balance(&self, kept: usize) {
        let (live, cached) = (self.lists.counts().live(), self.lists.counts().cached());
        let free = self.parts.frames().counts().free;
        if (live, cached, free as usize + kept) != (kept, 0, self.before as usize) {
            fail(format_args!(
                "frames: {free} free, {} before; {live} tables live, {kept} the kernel's, {cached} cached",
                self.before
            ));
        }
    }
}

// SAFETY: 1. and 2. They are those of the parts, with a layer around the lists: this has the same
// parts as the machine that it is made of. 3. Both functions are the parts', or have no effect.
unsafe impl<F: Format, S: Shootdown, O: Objects, L: Layer<Lists<F, S, O>>> machine::Machine
    for Machine<F, S, O, L>
{
    type Window = DirectMap;
    type Policy = Layered<L, Lists<F, S, O>>;
    type Shootdown = S;

    fn frames(&self) -> &Frames {
        self.parts.frames()
    }

    fn data(&self) -> &DataFrames {
        self.parts.data()
    }

    fn window(&self) -> &DirectMap {
        self.parts.window()
    }

    fn policy(&self) -> &Self::Policy {
        &self.lists
    }

    fn tlb(&self) -> &Tlb<S> {
        self.parts.tlb()
    }

    fn parking(&self) -> &Parking {
        self.parts.parking()
    }

    fn before_executable(&self, pin: &Pinned<'_>, first: Pfn, frames: u64) {
        self.parts.before_executable(pin, first, frames);
    }

    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        if leaves_out(CLEAR) {
            return Ok(());
        }
        // SAFETY: 1. of the caller's.
        unsafe { self.parts.clear_data(pin, frame) }
    }

    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        if leaves_out(COPY) {
            return Ok(());
        }
        // SAFETY: 1. and 2. of the caller's.
        unsafe { self.parts.copy_data(pin, from, to) }
    }
}

// SAFETY: 1. to 3. They are those of the parts.
unsafe impl<F: Format, S: Shootdown, O: Objects, L: Layer<Lists<F, S, O>>> SpaceMachine
    for Machine<F, S, O, L>
{
    const PAGE_SHIFT: u32 = F::PAGE_SHIFT;

    fn zero_frame(&self) -> Pfn {
        self.parts.zero_frame()
    }

    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        self.parts.backing_frame(object, page)
    }

    fn fault_around(&self) -> u32 {
        self.parts.fault_around()
    }

    fn frames_at_hand(&self, object: u32, first: u64, frames: &mut [Pfn]) {
        self.parts.frames_at_hand(object, first, frames);
    }

    fn backing_block(&self, object: u32, page: u64, pages: u32) -> Option<Pfn> {
        self.parts.backing_block(object, page, pages)
    }
}
