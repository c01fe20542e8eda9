//! Physical memory: nodes, zones, a record for every frame, and the allocator beneath everything else.
//!
//! [`Frames`] hands out blocks of 2^n frames ([`Frame`]), keeps those that are known to be zero apart from the
//! others and says so in the type of what it hands out, keeps a reserve for callers that may not fail, and counts
//! every frame. Frames that hold data of address spaces come through short per-CPU lists ([`DataFrames`]). Idle CPUs
//! clear frames ahead of their use ([`Frames::refill_zero`]).
mod buddy;
mod clear;
mod data;
mod frame;
mod idle;
mod meta;
mod slab;

pub use buddy::{End, ORDERS};
pub use data::{DataFrames, TakenData};
pub use frame::{Dirty, Frame, State, Zero};
pub use idle::ZeroCounts;
pub use meta::{FrameMeta, Use};
pub use slab::Slab;

use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{MachineId, NodeId};
use crate::sync::SpinLock;
use crate::window::Window;
use buddy::Buddy;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Which frames a zone holds, and what can be done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneClass {
    /// Always mapped: the kernel may use it at any time.
    Low,
    /// Reached through temporary mappings only.
    High,
}

/// A run of memory of one node and class.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRun {
    /// First frame.
    pub start: Pfn,
    /// How many.
    pub frames: u32,
    /// The node it belongs to.
    pub node: NodeId,
    /// Low or high.
    pub class: ZoneClass,
}

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocFlags {
    /// The caller may wait while memory is won back from caches.
    pub may_sleep: bool,
    /// The caller can cope with failure. If it cannot, the reserve below the minimum watermark is open to it.
    pub may_fail: bool,
}

impl AllocFlags {
    /// The ordinary request: may wait, may fail.
    pub const NORMAL: AllocFlags = AllocFlags { may_sleep: true, may_fail: true };
    /// From where sleeping is not possible.
    pub const ATOMIC: AllocFlags = AllocFlags { may_sleep: false, may_fail: true };
    /// From where failure cannot be handled (it may still happen when not one frame is left).
    pub const URGENT: AllocFlags = AllocFlags { may_sleep: true, may_fail: false };
}

/// What to allocate.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Preferred node; the others are tried after it in ascending order, beginning again at 0.
    pub node: NodeId,
    /// 2^`order` frames.
    pub order: u8,
    /// Prefer known-zero frames.
    pub zero: bool,
    /// The highest class that will do.
    pub class: ZoneClass,
    /// The end of the zone to take from.
    pub end: End,
    /// How hard to try.
    pub flags: AllocFlags,
}

/// What was allocated: known zero, or not.
#[must_use = "a dropped frame is lost: give it back"]
pub enum Taken {
    /// Known to be zero.
    Zero(Frame<Zero>),
    /// Content unknown.
    Dirty(Frame<Dirty>),
}

impl Taken {
    /// Whatever it was, its content does not matter to the caller.
    pub fn dirty(self) -> Frame<Dirty> {
        match self {
            Taken::Zero(f) => f.dirty(),
            Taken::Dirty(f) => f,
        }
    }

    /// The number of the first frame.
    pub fn pfn(&self) -> Pfn {
        match self {
            Taken::Zero(f) => f.pfn(),
            Taken::Dirty(f) => f.pfn(),
        }
    }

    /// The frame, cleared if it has to be.
    pub fn zeroed<W: Window>(self, window: &W) -> Frame<Zero> {
        match self {
            Taken::Zero(f) => f,
            Taken::Dirty(f) => f.clear(window),
        }
    }
}

/// There is no frame to be had.
///
/// One word, so that results with a page or this in them stay in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NoFrame(u64);

impl NoFrame {
    /// For lack of 2^`order` frames, preferably of `node`, where `free` frames were free.
    pub const fn new(order: u8, node: NodeId, free: u32) -> Self {
        NoFrame(order as u64 | (node.0 as u64) << 8 | (free as u64) << 32)
    }

    /// Frames asked for: 2^`order`.
    pub const fn order(self) -> u8 {
        self.0 as u8
    }

    /// The node that was preferred.
    pub const fn node(self) -> NodeId {
        NodeId((self.0 >> 8) as u8)
    }

    /// Frames that were free on that node; those below the minimum watermark are kept for urgent requests.
    pub const fn free(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for NoFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoFrame")
            .field("order", &self.order())
            .field("node", &self.node())
            .field("free", &self.free())
            .finish()
    }
}

impl fmt::Display for NoFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no memory for {} frame(s) near node {} ({} free there, the reserve included)",
            1u32 << self.order(),
            self.node().0,
            self.free()
        )
    }
}

impl core::error::Error for NoFrame {}

/// Free-frame levels of a zone, in frames.
#[derive(Clone, Copy, Debug)]
pub struct Watermarks {
    /// Below this only requests that may not fail are served.
    pub min: u32,
    /// Below this caches should shrink.
    pub low: u32,
    /// Above this they may stop shrinking.
    pub high: u32,
}

impl Watermarks {
    /// Square-root scaling, as Linux sizes its reserve: four times the root of the size in kB; at most 1/16.
    fn of(frames: u32) -> Self {
        let kib = frames as u64 * 4;
        let min = ((16 * kib).isqrt() / 4).min(frames as u64 / 16) as u32;
        Watermarks { min, low: min + min / 4, high: min + min / 2 }
    }
}

/// The records of all frames.
pub(crate) struct FrameTable {
    base: u32,
    records: BootSlice<FrameMeta>,
}

impl FrameTable {
    #[inline(always)]
    pub fn meta(&self, pfn: Pfn) -> &FrameMeta {
        &self.records[pfn.0.wrapping_sub(self.base) as usize]
    }
}

struct Zone {
    run: MemoryRun,
    marks: Watermarks,
    /// Copies of the buddy's counts, written under its lock, for readers without it.
    free: AtomicU32,
    zero: AtomicU32,
    buddy: SpinLock<Buddy>,
}

/// All physical memory of a machine.
pub struct Frames {
    machine: MachineId,
    table: FrameTable,
    zones: BootSlice<Zone>,
    nodes: u8,
    /// Some zone is below its low watermark: saves a look at all of them.
    short: AtomicBool,
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
    /// Takes over the memory of `runs`, content unknown. Runs must not overlap and must ascend.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the records do not fit into `boot` ([`Frames::bytes`] says how much they take).
    ///
    /// # Safety
    ///
    /// 1. The memory of `runs` is memory of `machine`, and nothing else uses it.
    /// 2. No other `Frames` is made for `machine`.
    pub unsafe fn new(
        boot: &mut BootMemory,
        machine: MachineId,
        runs: &[MemoryRun],
    ) -> Result<Self, BootMemoryShort> {
        Self::with_content(boot, machine, runs, false)
    }

    /// The same for memory that is all zero, such as a fresh mapping of a host's.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`], as with [`Frames::new`].
    ///
    /// # Safety
    ///
    /// 1. The memory of `runs` is memory of `machine`, and nothing else uses it.
    /// 2. No other `Frames` is made for `machine`.
    /// 3. Every byte of that memory is zero.
    pub unsafe fn new_zero(
        boot: &mut BootMemory,
        machine: MachineId,
        runs: &[MemoryRun],
    ) -> Result<Self, BootMemoryShort> {
        Self::with_content(boot, machine, runs, true)
    }

    fn with_content(
        boot: &mut BootMemory,
        machine: MachineId,
        runs: &[MemoryRun],
        is_zero: bool,
    ) -> Result<Self, BootMemoryShort> {
        let base = runs.first().map_or(0, |r| r.start.0);
        let end = runs.last().map_or(0, |r| r.start.0 + r.frames);
        let table = FrameTable { base, records: boot.take((end - base) as usize, |_| FrameMeta::default())? };
        let zones = boot.take(runs.len(), |i| {
            let run = runs[i];
            let mut buddy = Buddy::new(run.start.0, run.start.0 + run.frames);
            buddy.fill(&table, is_zero);
            Zone {
                run,
                marks: Watermarks::of(run.frames),
                free: AtomicU32::new(run.frames),
                zero: AtomicU32::new(if is_zero { run.frames } else { 0 }),
                buddy: SpinLock::new(buddy),
            }
        })?;
        let nodes = runs.iter().map(|r| r.node.0 + 1).max().unwrap_or(1);
        Ok(Frames { machine, table, zones, nodes, short: AtomicBool::new(false) })
    }

    /// Boot memory needed for `runs` runs that span `frames` frames, holes included.
    pub const fn bytes(frames: usize, runs: usize) -> usize {
        BootMemory::bytes::<FrameMeta>(frames) + BootMemory::bytes::<Zone>(runs)
    }

    /// The first frame number that has a record, and how many have: holes included.
    pub fn span(&self) -> (u32, u32) {
        (self.table.base, self.table.records.len() as u32)
    }

    /// Returns the machine whose memory this is.
    #[inline(always)]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// Number of nodes.
    #[inline(always)]
    pub fn nodes(&self) -> u8 {
        self.nodes
    }

    /// The record of a frame.
    ///
    /// # Panics
    ///
    /// If `pfn` lies outside the memory under management: an entry was followed that this library did not write.
    #[inline(always)]
    pub fn meta(&self, pfn: Pfn) -> &FrameMeta {
        self.table.meta(pfn)
    }

    /// The home node of a frame.
    #[inline]
    pub fn node_of(&self, pfn: Pfn) -> NodeId {
        if self.nodes == 1 {
            return NodeId(0);
        }
        let zone = self.zone_of(pfn);
        zone.map_or(NodeId(0), |z| z.run.node)
    }

    fn zone_of(&self, pfn: Pfn) -> Option<&Zone> {
        self.zones.iter().find(|z| pfn.0.wrapping_sub(z.run.start.0) < z.run.frames)
    }

    /// Takes 2^order frames; see [`Request`].
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; nothing has changed then.
    pub fn take(&self, request: Request) -> Result<Taken, NoFrame> {
        for turn in 0..self.nodes {
            let node = NodeId((request.node.0 + turn) % self.nodes);
            // High memory first where it will do: low memory is the scarcer kind.
            for zone in self.zones.iter().rev() {
                if zone.run.node != node || zone.run.class > request.class {
                    continue;
                }
                let reserve = if request.flags.may_fail { zone.marks.min } else { 0 };
                if zone.free.load(Relaxed) < reserve + (1 << request.order) {
                    continue;
                }
                let mut buddy = zone.buddy.lock();
                let Some(block) = buddy.take(&self.table, request.order, request.zero, request.end) else {
                    continue;
                };
                self.note(zone, &buddy);
                // SAFETY: 1. the block came off the lists of the zone just now, so it is the caller's alone.
                // 2. all its frames are known to be zero by the buddy's count (`Dirty` promises nothing).
                return Ok(unsafe {
                    if block.zero == 1 << request.order {
                        Taken::Zero(Frame::from_raw(block.pfn, request.order))
                    } else {
                        Taken::Dirty(Frame::from_raw(block.pfn, request.order))
                    }
                });
            }
        }
        Err(NoFrame::new(request.order, request.node, self.node_free(request.node)))
    }

    /// Takes frames back, with what is known of their content.
    pub fn give<S: State>(&self, frame: Frame<S>) {
        let order = frame.order();
        let pfn = frame.into_raw();
        // A frame is only ever made from a zone of this allocator.
        if let Some(zone) = self.zone_of(pfn) {
            let mut buddy = zone.buddy.lock();
            buddy.give(&self.table, pfn, order, S::ZERO);
            self.note(zone, &buddy);
        }
    }

    /// Takes single frames back, content unknown, with one turn of each zone's lock for a run of frames of it.
    pub(crate) fn give_all(&self, mut frames: impl Iterator<Item = Pfn>) {
        let mut next = frames.next();
        while let Some(first) = next {
            let Some(zone) = self.zone_of(first) else {
                next = frames.next();
                continue;
            };
            let mut buddy = zone.buddy.lock();
            while let Some(pfn) = next {
                if pfn.0.wrapping_sub(zone.run.start.0) >= zone.run.frames {
                    break;
                }
                buddy.give(&self.table, pfn, 0, false);
                next = frames.next();
            }
            self.note(zone, &buddy);
        }
    }

    /// Free frames of a node that the kernel can use for its own ends (low memory), the `F` of the quicklist
    /// trim rule.
    #[inline]
    pub fn node_free(&self, node: NodeId) -> u32 {
        self.node_free_up_to(node, ZoneClass::Low)
    }

    /// Free frames of a node in zones of `class` and below.
    #[inline]
    pub fn node_free_up_to(&self, node: NodeId, class: ZoneClass) -> u32 {
        self.zones
            .iter()
            .filter(|z| z.run.node == node && z.run.class <= class)
            .map(|z| z.free.load(Relaxed))
            .sum()
    }

    /// Frames of a node that the kernel can use for its own ends, free or not.
    pub fn node_frames(&self, node: NodeId) -> u32 {
        self.zones
            .iter()
            .filter(|z| z.run.node == node && z.run.class == ZoneClass::Low)
            .map(|z| z.run.frames)
            .sum()
    }

    /// Whether a node's free memory is below its low watermark: caches should shrink.
    #[inline]
    pub fn pressed(&self, node: NodeId) -> bool {
        self.short.load(Relaxed) && self.is_short(node)
    }

    #[cold]
    fn is_short(&self, node: NodeId) -> bool {
        self.zones.iter().any(|z| z.run.node == node && z.free.load(Relaxed) < z.marks.low)
    }

    /// Publishes a zone's counts; its lock is held.
    fn note(&self, zone: &Zone, buddy: &Buddy) {
        let free = buddy.free_frames();
        let was_short = zone.free.load(Relaxed) < zone.marks.low;
        zone.free.store(free, Relaxed);
        zone.zero.store(buddy.zero_frames(), Relaxed);
        let is_short = free < zone.marks.low;
        if was_short != is_short {
            self.short.store(self.zones.iter().any(|z| z.free.load(Relaxed) < z.marks.low), Relaxed);
        }
    }

    /// The counts of the whole machine.
    pub fn counts(&self) -> FrameCounts {
        self.zones.iter().fold(FrameCounts::default(), |c, z| FrameCounts {
            total: c.total + z.run.frames,
            free: c.free + z.free.load(Relaxed),
            zero: c.zero + z.zero.load(Relaxed),
        })
    }
}
