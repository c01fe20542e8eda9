//! Runs of memory, and the zones that they become.
use super::buddy::Buddy;
use crate::addr::Pfn;
use crate::bootmem::BootMemoryShort;
use crate::cpu::NodeId;
use crate::sync::SpinLock;
use core::borrow::Borrow;
use core::fmt;
use core::sync::atomic::AtomicU32;

/// Which frames a zone holds, and what can be done with them.
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
    /// Returns the first frame number behind it; no more than [`Pfn::NONE`] in a run that is as it should be.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.start.0) + u64::from(self.frames)
    }

    #[inline(always)]
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

/// What the sizes of a machine's parts depend on, known before any memory is handed over.
#[derive(Clone, Debug)]
pub struct MemorySize {
    runs: usize,
    frames: usize,
    nodes: u8,
    /// By node.
    low: [u32; MAX_NODES],
}

impl MemorySize {
    /// Measures `runs`, whether [`Frames::new`](super::Frames::new) takes them or not.
    pub fn of<R: Borrow<MemoryRun>>(runs: impl IntoIterator<Item = R>) -> Self {
        let mut size = MemorySize { runs: 0, frames: 0, nodes: 1, low: [0; MAX_NODES] };
        for run in runs {
            let run = run.borrow();
            size.runs += 1;
            size.frames = size.frames.saturating_add(run.frames as usize);
            size.nodes = size.nodes.max(run.node.0.saturating_add(1)).min(MAX_NODES as u8);
            if run.class == ZoneClass::Low
                && let Some(low) = size.low.get_mut(usize::from(run.node.0))
            {
                *low = low.saturating_add(run.frames);
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
}

/// What is wrong with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRun {
    /// It has no frames.
    Empty,
    /// It ends behind the last frame number. `u32::MAX` is none: it ends chains.
    Beyond,
    /// It begins before the run that stands before it ends.
    Overlaps(MemoryRun),
    /// It lies before the run that stands before it.
    Unordered(MemoryRun),
    /// Its node is 64 or above.
    Node,
    /// It has the highest node number, and no run is of this lower one.
    Gap(NodeId),
}

/// Why frames cannot be managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramesError {
    /// The boot memory is too small for the records.
    Boot(BootMemoryShort),
    /// A run is not as it should be.
    Run {
        /// Which run, counted from 0.
        index: usize,
        /// The run.
        run: MemoryRun,
        /// What is wrong with it.
        why: BadRun,
    },
}

impl From<BootMemoryShort> for FramesError {
    fn from(e: BootMemoryShort) -> Self {
        FramesError::Boot(e)
    }
}

impl fmt::Display for FramesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, run, why) = match self {
            FramesError::Boot(e) => return e.fmt(f),
            FramesError::Run { index, run, why } => (index, run, why),
        };
        write!(f, "run {index} of memory ({run}) ")?;
        match why {
            BadRun::Empty => f.write_str("has no frames: leave it out"),
            BadRun::Beyond => {
                write!(f, "ends behind frame {:#x}, the last one: cut it there", Pfn::NONE.0 - 1)
            }
            BadRun::Overlaps(before) => {
                write!(f, "overlaps the run before it ({before}): name each frame once")
            }
            BadRun::Unordered(before) => {
                write!(f, "lies below the run before it ({before}): sort the runs by address")
            }
            BadRun::Node => write!(f, "is of no node from 0 to {}: number the nodes anew", MAX_NODES - 1),
            BadRun::Gap(node) => {
                write!(
                    f,
                    "leaves node {} without memory: number the nodes that have memory from 0 on",
                    node.0
                )
            }
        }
    }
}

impl core::error::Error for FramesError {}

/// Checks runs of memory.
pub(super) fn check(runs: &[MemoryRun]) -> Result<(), FramesError> {
    let mut has_memory = 0u64;
    for (index, run) in runs.iter().enumerate() {
        let before = index.checked_sub(1).map(|i| runs[i]);
        let why = match before {
            _ if run.frames == 0 => BadRun::Empty,
            _ if run.end() > u64::from(Pfn::NONE.0) => BadRun::Beyond,
            _ if usize::from(run.node.0) >= MAX_NODES => BadRun::Node,
            Some(before) if run.end() <= u64::from(before.start.0) => BadRun::Unordered(before),
            Some(before) if u64::from(run.start.0) < before.end() => BadRun::Overlaps(before),
            _ => {
                has_memory |= 1 << run.node.0;
                continue;
            }
        };
        return Err(FramesError::Run { index, run: *run, why });
    }
    let gap = NodeId(has_memory.trailing_ones() as u8);
    match runs.iter().enumerate().find(|(_, run)| run.node > gap) {
        Some((index, run)) => Err(FramesError::Run { index, run: *run, why: BadRun::Gap(gap) }),
        None => Ok(()),
    }
}

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
    pub(super) fn of(frames: u32) -> Self {
        let kib = frames as u64 * 4;
        let min = ((16 * kib).isqrt() / 4).min(frames as u64 / 16) as u32;
        Watermarks { min, low: min + min / 4, high: min + min / 2 }
    }
}

/// A run of memory under management.
pub(super) struct Zone {
    pub run: MemoryRun,
    pub marks: Watermarks,
    /// Copies of the buddy's counts, written under its lock, for readers without it.
    pub free: AtomicU32,
    pub zero: AtomicU32,
    pub buddy: SpinLock<Buddy>,
}
