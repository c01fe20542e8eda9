//! Runs of memory, and the zones that they become.
use super::buddy::Buddy;
use super::memory::{MAX_NODES, MemoryRun, ZoneClass};
use crate::addr::Pfn;
use crate::bootmem::BootMemoryShort;
use crate::cpu::NodeId;
use crate::error::error;
use crate::sync::SpinLock;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The fault of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRun {
    /// It has no frames.
    Empty,
    /// It ends behind the last frame number. `u32::MAX` is no frame number: it ends chains.
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
        /// Its fault.
        why: BadRun,
    },
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

error!(FramesError: BootMemoryShort => Boot);

/// Checks runs of memory.
pub(super) fn check(runs: &[MemoryRun]) -> Result<(), FramesError> {
    let mut has_memory = 0u64;
    for (index, run) in runs.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|i| runs.get(i)).copied();
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
    /// Square-root scaling, as Linux sizes its reserve: four times the root of the size in kB; at
    /// most 1/16.
    pub(super) fn of(frames: u32) -> Self {
        let kib = frames as u64 * 4;
        let min = (root(16 * kib) / 4).min(frames as u64 / 16) as u32;
        Watermarks { min, low: min + min / 4, high: min + min / 2 }
    }
}

/// Returns the square root of a number below 2^62, rounded down. Bit by bit: `isqrt` is faster, and
/// ten times the code.
fn root(n: u64) -> u64 {
    let (mut left, mut root, mut bit) = (n, 0, 1 << 60);
    while bit != 0 {
        if left >= root + bit {
            left -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
        bit >>= 2;
    }
    root
}

/// A run of memory under management.
pub(super) struct Zone {
    pub run: MemoryRun,
    pub marks: Watermarks,
    /// Copies of the buddy's counts, written under its lock, for readers without it.
    pub free: AtomicU32,
    pub zero: AtomicU32,
    /// Free frames that are kept for those who [reserved](super::Frames::reserve) them. Written
    /// under the buddy's lock.
    pub reserved: AtomicU32,
    pub buddy: SpinLock<Buddy>,
}

impl Zone {
    /// Free frames that nobody has reserved.
    #[inline]
    pub fn unreserved(&self) -> u32 {
        self.free.load(Relaxed).saturating_sub(self.reserved.load(Relaxed))
    }

    /// Returns whether it is low memory, and less of it is free than should be.
    pub fn is_short(&self) -> bool {
        self.run.class == ZoneClass::Low && self.free.load(Relaxed) < self.marks.low
    }
}
