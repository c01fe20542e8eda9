//! Describes the memory of a machine: runs, and their sizes in all.
use crate::addr::{FRAME_SIZE, Pfn};
use crate::cpu::NodeId;
use core::borrow::Borrow;
use core::fmt;
use core::ops::Range;

/// The frames of a zone, and their possible uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneClass {
    /// Always mapped: the kernel may use it at any time.
    Low,
    /// Reached through temporary mappings only.
    High,
}

/// A run of memory of one node and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl MemoryRun {
    /// Describes low memory of node 0 by its addresses, in bytes. The run has the whole frames
    /// between them: none if the end lies below the start, and no frame above [`Pfn::NONE`].
    ///
    /// ```
    /// use ptarmigan::cpu::NodeId;
    /// use ptarmigan::frames::MemoryRun;
    ///
    /// let run = MemoryRun::new(0x8020_0800..0x8800_0000);
    /// assert_eq!((run.start.0, run.frames), (0x80201, 0x7dff));
    /// let far = MemoryRun { node: NodeId(1), ..MemoryRun::new(0x1_0000_0000..0x1_8000_0000) };
    /// assert_eq!(far.frames, 0x80000);
    /// ```
    pub const fn new(bytes: Range<u64>) -> Self {
        let (first, end) = (bytes.start.div_ceil(FRAME_SIZE as u64), bytes.end / FRAME_SIZE as u64);
        let end = if end < Pfn::NONE.0 as u64 { end } else { Pfn::NONE.0 as u64 };
        let first = if first < end { first } else { end };
        let frames = (end - first) as u32;
        MemoryRun { start: Pfn(first as u32), frames, node: NodeId(0), class: ZoneClass::Low }
    }

    /// Returns the first frame number behind it; no more than [`Pfn::NONE`] in a run that is as it
    /// should be.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.start.0) + u64::from(self.frames)
    }

    #[inline]
    pub(super) fn has(&self, pfn: Pfn) -> bool {
        pfn.0.wrapping_sub(self.start.0) < self.frames
    }
}

impl fmt::Display for MemoryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frames {:#x}..{:#x} of node {}", self.start.0, self.end(), self.node.0)
    }
}

/// Nodes that a machine can have: numbers 0 to 63.
pub const MAX_NODES: usize = 64;

/// The figures on which the sizes of a machine's parts depend, known before any memory is handed
/// over.
///
/// ```
/// use ptarmigan::addr::Pfn;
/// use ptarmigan::cpu::NodeId;
/// use ptarmigan::frames::{Frames, MemoryRun, MemorySize, ZoneClass};
///
/// let run = MemoryRun { start: Pfn(256), frames: 1024, node: NodeId(0), class: ZoneClass::Low };
/// let size = MemorySize::of([run]);
/// assert_eq!((size.frames(), size.nodes()), (1024, 1));
/// assert!(Frames::bytes(&size) >= 1024 * 16); // a record for each frame
/// ```
#[derive(Clone, Debug)]
pub struct MemorySize {
    runs: usize,
    frames: usize,
    nodes: u8,
    /// By node.
    low: [u32; MAX_NODES],
    high: [u32; MAX_NODES],
}

impl MemorySize {
    /// Measures `runs`, whether [`Frames::new`](super::Frames::new) takes them or not.
    pub fn of<R: Borrow<MemoryRun>>(runs: impl IntoIterator<Item = R>) -> Self {
        let mut size = MemorySize { runs: 0, frames: 0, nodes: 1, low: [0; MAX_NODES], high: [0; MAX_NODES] };
        for run in runs {
            let run = run.borrow();
            size.runs += 1;
            size.frames = size.frames.saturating_add(run.frames as usize);
            size.nodes = size.nodes.max(run.node.0.saturating_add(1)).min(MAX_NODES as u8);
            let by_node = match run.class {
                ZoneClass::Low => &mut size.low,
                ZoneClass::High => &mut size.high,
            };
            if let Some(frames) = by_node.get_mut(usize::from(run.node.0)) {
                *frames = frames.saturating_add(run.frames);
            }
        }
        size
    }

    /// Returns the number of runs.
    pub const fn runs(&self) -> usize {
        self.runs
    }

    /// Returns the number of frames, holes left out.
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// Returns the number of nodes.
    pub const fn nodes(&self) -> usize {
        self.nodes as usize
    }

    /// Returns the number of a node's frames that the kernel can use for its own ends.
    pub fn node_frames(&self, node: NodeId) -> u32 {
        self.low.get(usize::from(node.0)).copied().unwrap_or(0)
    }

    /// Returns the number of a node's frames that are high memory.
    pub fn node_high_frames(&self, node: NodeId) -> u32 {
        self.high.get(usize::from(node.0)).copied().unwrap_or(0)
    }
}
