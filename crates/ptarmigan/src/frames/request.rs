//! Describes allocation requests and their results.
use super::{Dirty, End, Frame, Zero, ZoneClass};
use crate::addr::Pfn;
use crate::cpu::NodeId;
use crate::window::OpenWindow;
use core::fmt;

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocFlags {
    /// The caller may wait while memory is won back from caches.
    pub may_sleep: bool,
    /// The caller can cope with failure. If it cannot, the reserve below the minimum watermark is
    /// open to it.
    pub may_fail: bool,
    /// Whether a table may be made of high memory.
    pub high: HighUse,
}

/// Whether a table may be made of high memory, as far as the caller knows. Where it is made,
/// the policy's [placement](crate::quicklist::Placement) decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HighUse {
    /// It may not: the kernel's own tables, tables above the leaves, and all else that is used at
    /// any time.
    #[default]
    Never,
    /// It may.
    May,
    /// It may, and its space has high tables, or more tables than its share of low memory.
    Prefer,
}

impl AllocFlags {
    /// The ordinary request: may wait, may fail.
    pub const NORMAL: AllocFlags = AllocFlags { may_sleep: true, may_fail: true, high: HighUse::Never };
    /// From where sleeping is not possible.
    pub const ATOMIC: AllocFlags = AllocFlags { may_sleep: false, may_fail: true, high: HighUse::Never };
    /// From where failure cannot be handled (it may still happen when not one frame is left).
    pub const URGENT: AllocFlags = AllocFlags { may_sleep: true, may_fail: false, high: HighUse::Never };

    /// Returns the same request for a table that may be made of high memory as `high` says.
    #[inline]
    pub const fn with_high(self, high: HighUse) -> Self {
        AllocFlags { high, ..self }
    }
}

/// The block to allocate.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Preferred node; the others are tried after it in ascending order, beginning again at 0. If
    /// there is no such node, another one comes first.
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

/// An allocated block: known zero, or not.
#[must_use = "a dropped frame is lost: give it back"]
pub enum Taken {
    /// Known to be zero.
    Zero(Frame<Zero>),
    /// Content unknown.
    Dirty(Frame<Dirty>),
}

impl Taken {
    /// Forgets the state of the content.
    pub fn dirty(self) -> Frame<Dirty> {
        match self {
            Taken::Zero(f) => f.dirty(),
            Taken::Dirty(f) => f,
        }
    }

    /// Returns the number of the first frame.
    pub fn pfn(&self) -> Pfn {
        match self {
            Taken::Zero(f) => f.pfn(),
            Taken::Dirty(f) => f.pfn(),
        }
    }

    /// Returns the frame, cleared if it has to be.
    ///
    /// # Safety
    ///
    /// 1. The window must reach the memory of the frame's machine, and this frame.
    pub unsafe fn zeroed<W: OpenWindow>(self, window: &W) -> Frame<Zero> {
        match self {
            Taken::Zero(f) => f,
            // SAFETY: 1. passed on.
            Taken::Dirty(f) => unsafe { f.clear(window) },
        }
    }
}

/// There is no frame to be had.
///
/// One word, so that results with a page or this in them stay in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NoFrame(u64);

impl NoFrame {
    /// Makes the error for lack of 2^`order` frames, preferably of `node`, where `free` frames were
    /// free.
    pub const fn new(order: u8, node: NodeId, free: u32) -> Self {
        NoFrame(order as u64 | (node.0 as u64) << 8 | (free as u64) << 32)
    }

    /// Returns the order of the frames asked for: 2^`order` of them.
    pub const fn order(self) -> u8 {
        self.0 as u8
    }

    /// Returns the node that was preferred.
    pub const fn node(self) -> NodeId {
        NodeId((self.0 >> 8) as u8)
    }

    /// Returns the number of frames that were free on that node; those below the minimum watermark
    /// are kept for urgent requests.
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
        match 1u64.checked_shl(self.order().into()) {
            Some(frames) => write!(f, "no memory for {frames} frame(s)")?,
            None => write!(f, "no memory for 2^{} frames", self.order())?,
        }
        write!(f, " near node {} ({} free there, the reserve included)", self.node().0, self.free())
    }
}

impl core::error::Error for NoFrame {}
