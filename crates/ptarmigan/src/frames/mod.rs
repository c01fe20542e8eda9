//! Physical memory: nodes, zones, a record for every frame, and the allocator beneath everything
//! else.
//!
//! [`Frames`] hands out blocks of 2^n frames ([`Frame`]), keeps those that are known to be zero
//! apart from the others, and shows that in the type of a block, keeps a reserve for callers that
//! may not fail, and counts every frame. Frames that hold data of address spaces come through short
//! per-CPU lists ([`DataFrames`]). Idle CPUs clear frames ahead of their use
//! ([`Frames::refill_zero`]).
mod buddy;
mod clear;
mod data;
mod demand;
mod frame;
mod memory;
mod per_frame;
mod prezero;
mod record;
mod request;
mod reserve;
mod slab;
mod table;
mod zone;

pub use buddy::{End, ORDERS};
pub use data::{DataError, DataFrame, DataFrames, TakenData};
pub use demand::ZeroCounts;
pub use frame::{Dirty, Frame, State, Zero};
pub use memory::{MAX_NODES, MemoryRun, MemorySize, ZoneClass};
pub use per_frame::PerFrame;
pub use record::{FrameMeta, Use};
pub use request::{AllocFlags, HighUse, NoFrame, Request, Taken};
pub use slab::Slab;
pub use zone::{BadRun, FramesError, Watermarks};

use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootSlice};
use crate::cpu::{MachineId, NodeId, Refused, WrongMachine};
use crate::sync::SpinLock;
use buddy::Buddy;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use table::FrameTable;
use zone::Zone;

/// All physical memory of a machine.
///
/// ```
/// use ptarmigan::addr::Pfn;
/// use ptarmigan::bootmem::BootMemory;
/// use ptarmigan::cpu::{MachineId, NodeId};
/// use ptarmigan::frames::{AllocFlags, End, Frames, MemoryRun, MemorySize, Request, ZoneClass};
/// use std::ptr::NonNull;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let run = MemoryRun { start: Pfn(256), frames: 1024, node: NodeId(0), class: ZoneClass::Low };
/// let bytes = Frames::bytes(&MemorySize::of([run]));
/// let block = Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice());
/// // SAFETY: the block is ours, and there for ever.
/// let mut boot = unsafe { BootMemory::new(NonNull::from(block).cast(), bytes) };
/// // SAFETY: nothing reads or writes these frames; the identity is new.
/// let frames = unsafe { Frames::new(&mut boot, MachineId::new(), &[run])? };
///
/// let (class, flags) = (ZoneClass::Low, AllocFlags::NORMAL);
/// let request = Request { node: NodeId(0), order: 0, zero: false, class, end: End::Low, flags };
/// let frame = frames.take(request)?.dirty();
/// assert_eq!(frames.counts().free, 1023);
/// frames.give(frame);
/// assert_eq!(frames.counts().free, 1024);
/// # Ok(())
/// # }
/// ```
pub struct Frames {
    machine: MachineId,
    table: FrameTable,
    zones: BootSlice<Zone>,
    nodes: u8,
    /// The first frame of high memory, if there is some.
    first_high: u32,
    /// Low memory lies above high memory somewhere.
    is_mixed: bool,
    /// Some zone is below its low watermark: saves a look at all of them.
    short: AtomicBool,
    /// By size: whichever policy takes an object, and whichever gives it back.
    slabs: [Slab; slab::SIZES],
}

/// Counts of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames under management.
    pub total: u32,
    /// Free in the buddy allocator.
    pub free: u32,
    /// Those of them that are known to be zero.
    pub zero: u32,
}

impl Frames {
    /// Takes over the memory of `runs`, content unknown. Runs ascend and do not overlap; nodes are
    /// numbered from 0 on, without gaps. Holes between runs take no memory.
    ///
    /// # Errors
    ///
    /// [`FramesError::Run`] names the first run that is not so; [`FramesError::Boot`] if the
    /// records do not fit into `boot` ([`Frames::bytes`] says how much they take).
    ///
    /// # Safety
    ///
    /// 1. The memory of `runs` must be memory of `machine`, and no other code may use it.
    /// 2. No other `Frames` is made for `machine`.
    pub unsafe fn new(
        boot: &mut BootMemory,
        machine: MachineId,
        runs: &[MemoryRun],
    ) -> Result<Self, FramesError> {
        Self::with_content(boot, machine, runs, false)
    }

    /// The same for memory that is all zero, such as a fresh mapping of a host's.
    ///
    /// # Errors
    ///
    /// As [`Frames::new`].
    ///
    /// # Safety
    ///
    /// 1. The memory of `runs` must be memory of `machine`, and no other code may use it.
    /// 2. No other `Frames` is made for `machine`.
    /// 3. Every byte of that memory is zero.
    pub unsafe fn new_zero(
        boot: &mut BootMemory,
        machine: MachineId,
        runs: &[MemoryRun],
    ) -> Result<Self, FramesError> {
        Self::with_content(boot, machine, runs, true)
    }

    fn with_content(
        boot: &mut BootMemory,
        machine: MachineId,
        runs: &[MemoryRun],
        is_zero: bool,
    ) -> Result<Self, FramesError> {
        zone::check(runs)?;
        let table = FrameTable::new(boot, runs)?;
        let zones = boot.take(runs.len(), |i| {
            let run = runs[i];
            let mut buddy = Buddy::new(run.start.0, run.start.0 + run.frames);
            buddy.fill(&table, is_zero);
            Zone {
                run,
                marks: Watermarks::of(run.frames),
                free: AtomicU32::new(run.frames),
                zero: AtomicU32::new(if is_zero { run.frames } else { 0 }),
                reserved: AtomicU32::new(0),
                buddy: SpinLock::new(buddy),
            }
        })?;
        let nodes = runs.iter().map(|r| r.node.0 + 1).max().unwrap_or(1);
        let slabs = core::array::from_fn(|i| Slab::new(slab::SMALLEST + i as u8));
        let is_high = |run: &&MemoryRun| run.class == ZoneClass::High;
        let first_high = runs.iter().find(is_high).map_or(u32::MAX, |run| run.start.0);
        let is_mixed = runs.iter().any(|run| run.class == ZoneClass::Low && run.start.0 > first_high);
        let short = AtomicBool::new(false);
        Ok(Frames { machine, table, zones, nodes, first_high, is_mixed, short, slabs })
    }

    /// Looks at `runs` as [`new`](Self::new) does.
    ///
    /// # Errors
    ///
    /// [`FramesError::Run`].
    pub(crate) fn check(runs: &[MemoryRun]) -> Result<(), FramesError> {
        zone::check(runs)
    }

    /// Returns the bytes of boot memory that the memory of this size takes.
    pub const fn bytes(size: &MemorySize) -> usize {
        FrameTable::bytes(size).saturating_add(BootMemory::bytes::<Zone>(size.runs()))
    }

    /// The machine's objects of 2^`shift` bytes, 8 at the least and half a frame at the most.
    pub(crate) fn slab(&self, shift: u8) -> &Slab {
        &self.slabs[usize::from(shift.clamp(slab::SMALLEST, slab::LARGEST) - slab::SMALLEST)]
    }

    /// Returns the number of frames that have records; holes between runs have no records.
    pub fn records(&self) -> usize {
        self.table.len()
    }

    /// Where records are found.
    fn table(&self) -> &FrameTable {
        &self.table
    }

    /// Returns the figures on which the sizes of other parts depend.
    pub fn size(&self) -> MemorySize {
        MemorySize::of(self.runs())
    }

    /// Iterates over the runs of memory.
    pub fn runs(&self) -> impl Iterator<Item = MemoryRun> + '_ {
        self.zones.iter().map(|zone| zone.run)
    }

    /// Returns the machine whose memory this is.
    #[inline]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// Returns the number of nodes.
    #[inline]
    pub fn nodes(&self) -> u8 {
        self.nodes
    }

    /// Returns the record of a frame, if it is under management.
    #[cfg_attr(not(feature = "small"), inline)]
    pub fn record(&self, pfn: Pfn) -> Option<&FrameMeta> {
        self.table.get(pfn)
    }

    /// Returns the record of a frame that is known to be under management.
    ///
    /// # Panics
    ///
    /// If it is not: an entry was followed that this library did not write.
    #[cfg_attr(not(feature = "small"), inline)]
    pub fn meta(&self, pfn: Pfn) -> &FrameMeta {
        self.table.meta(pfn)
    }

    /// Returns the record of a frame, if that takes no more than a few instructions.
    #[inline(always)]
    pub(crate) fn meta_at_hand(&self, pfn: Pfn) -> Option<&FrameMeta> {
        self.table.meta_at_hand(pfn)
    }

    /// Returns the home node of a frame.
    #[inline]
    pub fn node_of(&self, pfn: Pfn) -> NodeId {
        if self.nodes == 1 {
            return NodeId(0);
        }
        let zone = self.zone_of(pfn);
        zone.map_or(NodeId(0), |z| z.run.node)
    }

    /// Returns whether a frame is high memory.
    #[cfg_attr(not(feature = "small"), inline)]
    pub fn is_high(&self, pfn: Pfn) -> bool {
        pfn.0 >= self.first_high && (!self.is_mixed || self.is_in_high_zone(pfn))
    }

    #[cold]
    fn is_in_high_zone(&self, pfn: Pfn) -> bool {
        self.zone_of(pfn).is_some_and(|zone| zone.run.class == ZoneClass::High)
    }

    /// Returns whether the machine has high memory.
    pub fn has_high(&self) -> bool {
        self.first_high != u32::MAX
    }

    fn zone_of(&self, pfn: Pfn) -> Option<&Zone> {
        self.zones.iter().find(|z| z.run.has(pfn))
    }

    /// Takes 2^order frames; see [`Request`].
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then. Blocks of 2^[`ORDERS`] frames or more do not
    /// exist.
    pub fn take(&self, request: Request) -> Result<Taken, NoFrame> {
        let none = || NoFrame::new(request.order, request.node, self.node_free(request.node));
        if usize::from(request.order) >= ORDERS {
            return Err(none());
        }
        for turn in 0..self.nodes {
            let node = NodeId(((u16::from(request.node.0) + u16::from(turn)) % u16::from(self.nodes)) as u8);
            // High memory first where it will do: low memory is the scarcer kind.
            for zone in self.zones.iter().rev() {
                if zone.run.node != node || zone.run.class > request.class {
                    continue;
                }
                let kept = if request.flags.may_fail { zone.marks.min } else { 0 };
                let wanted = kept + (1 << request.order);
                if zone.unreserved() < wanted {
                    continue;
                }
                let mut buddy = zone.buddy.lock();
                // Frames that are reserved stay, however many CPUs take some at the same time.
                if zone.unreserved() < 1 << request.order {
                    continue;
                }
                let Some(block) = buddy.take(&self.table, request.order, request.zero, request.end) else {
                    continue;
                };
                self.note(zone, &buddy);
                // SAFETY: 1. the block came off the lists of the zone just now, so it is the
                // caller's alone. 2. all its frames are known to be zero by the buddy's count
                // (`Dirty` makes no promise).
                return Ok(unsafe {
                    if block.zero == 1 << request.order {
                        Taken::Zero(Frame::from_raw(self.machine, block.pfn, request.order))
                    } else {
                        Taken::Dirty(Frame::from_raw(self.machine, block.pfn, request.order))
                    }
                });
            }
        }
        Err(none())
    }

    /// Takes frames back, with the state of their content. Frames of another machine are lost,
    /// which the counts of that machine show; debug builds panic. [`try_give`](Self::try_give)
    /// gives such frames back.
    pub fn give<S: State>(&self, frame: Frame<S>) {
        if let Err(refused) = self.try_give(frame)
            && cfg!(debug_assertions)
        {
            panic!("{refused}");
        }
    }

    /// Takes frames back, with the state of their content.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the frames, if they are of another machine.
    pub fn try_give<S: State>(&self, frame: Frame<S>) -> Result<(), Refused<Frame<S>>> {
        if !self.machine.matches(frame.machine()) {
            let error = WrongMachine { called: self.machine, given: frame.machine() };
            return Err(Refused { value: frame, error });
        }
        let order = frame.order();
        let pfn = frame.into_raw();
        // A frame is only ever made from a zone of this allocator.
        if let Some(zone) = self.zone_of(pfn) {
            let mut buddy = zone.buddy.lock();
            buddy.give(&self.table, pfn, order, S::ZERO);
            self.note(zone, &buddy);
        }
        Ok(())
    }

    /// Takes blocks of 2^`order` frames back, content unknown, with one turn of each zone's lock
    /// for a run of blocks of it.
    #[inline]
    pub(crate) fn give_all(&self, order: u8, mut blocks: impl Iterator<Item = Pfn>) {
        if cfg!(feature = "small") {
            self.give_each::<dyn Iterator<Item = Pfn>>(order, &mut blocks);
        } else {
            self.give_each(order, &mut blocks);
        }
    }

    fn give_each<I: Iterator<Item = Pfn> + ?Sized>(&self, order: u8, frames: &mut I) {
        let mut next = frames.next();
        while let Some(first) = next {
            let Some(zone) = self.zone_of(first) else {
                next = frames.next();
                continue;
            };
            let mut buddy = zone.buddy.lock();
            while let Some(pfn) = next {
                if !zone.run.has(pfn) {
                    break;
                }
                buddy.give(&self.table, pfn, order, false);
                next = frames.next();
            }
            self.note(zone, &buddy);
        }
    }

    /// Returns the number of free frames of a node that the kernel can use for its own ends (low
    /// memory): the `F` of the quicklist trim rule.
    #[inline]
    pub fn node_free(&self, node: NodeId) -> u32 {
        let its_low = |z: &&Zone| z.run.node == node && z.run.class == ZoneClass::Low;
        self.zones.iter().filter(its_low).map(|z| z.free.load(Relaxed)).sum()
    }

    /// Returns the number of frames of a node that the kernel can use for its own ends, free or
    /// not.
    pub fn node_frames(&self, node: NodeId) -> u32 {
        self.zones
            .iter()
            .filter(|z| z.run.node == node && z.run.class == ZoneClass::Low)
            .map(|z| z.run.frames)
            .sum()
    }

    /// Returns the number of free frames of a node that are high memory.
    #[inline]
    pub fn node_high_free(&self, node: NodeId) -> u32 {
        let its_high = |z: &&Zone| z.run.node == node && z.run.class == ZoneClass::High;
        self.zones.iter().filter(its_high).map(|z| z.free.load(Relaxed)).sum()
    }

    /// Returns the number of a node's frames that are high memory, free or not.
    pub fn node_high_frames(&self, node: NodeId) -> u32 {
        let its_high = |z: &&Zone| z.run.node == node && z.run.class == ZoneClass::High;
        self.zones.iter().filter(its_high).map(|z| z.run.frames).sum()
    }

    /// Returns the numbers of low frames: free ones, and all.
    pub fn low_frames(&self) -> (u32, u32) {
        let low = self.zones.iter().filter(|z| z.run.class == ZoneClass::Low);
        low.fold((0, 0), |(free, all), z| (free + z.free.load(Relaxed), all + z.run.frames))
    }

    /// Returns whether a node's free low memory is below its low watermark: caches should shrink.
    /// High memory that runs out is no such case: low memory does in its place.
    #[inline]
    pub fn pressed(&self, node: NodeId) -> bool {
        self.short.load(Relaxed) && self.is_short(node)
    }

    #[cold]
    fn is_short(&self, node: NodeId) -> bool {
        self.zones.iter().any(|z| z.run.node == node && z.is_short())
    }

    /// Publishes a zone's counts; its lock is held.
    fn note(&self, zone: &Zone, buddy: &Buddy) {
        let free = buddy.free_frames();
        let was_short = zone.is_short();
        zone.free.store(free, Relaxed);
        zone.zero.store(buddy.zero_frames(), Relaxed);
        if was_short != zone.is_short() {
            self.short.store(self.zones.iter().any(Zone::is_short), Relaxed);
        }
    }

    /// Returns the number of frames that are cut into smaller objects, such as roots of x86 PAE.
    pub fn slab_frames(&self) -> u32 {
        self.slabs.iter().map(Slab::frames).sum()
    }

    /// Returns the counts of the whole machine.
    pub fn counts(&self) -> FrameCounts {
        self.zones.iter().fold(FrameCounts::default(), |c, z| FrameCounts {
            total: c.total + z.run.frames,
            free: c.free + z.free.load(Relaxed),
            zero: c.zero + z.zero.load(Relaxed),
        })
    }
}
