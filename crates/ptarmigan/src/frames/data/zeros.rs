//! A CPU's stack of frames that are known to be zero.
use super::room::Room;
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::Counter;
use crate::frames::demand::Demand;
use core::sync::atomic::AtomicUsize;

/// Frames that a CPU's stack can hold: 2 MiB, the size of a second-level cache.
pub(super) const CAPACITY: usize = if cfg!(loom) { 16 } else { 512 };
/// It holds at most this part of the CPU's limit.
const PART: usize = 4;

/// Zero frames of one CPU.
pub(super) struct Zeros {
    /// So many at most.
    pub most: usize,
    pub items: Room<CAPACITY>,
    pub demand: Demand,
}

/// The counts of a CPU that others read. Only the CPU writes them.
#[derive(Default)]
pub(super) struct Shown {
    /// Frames in its list, without the zero frames.
    pub n: AtomicUsize,
    /// Frames that are known to be zero.
    pub zero: AtomicUsize,
    pub asked: Counter,
    pub found: Counter,
    pub ahead: Counter,
    pub wasted: Counter,
}

impl Zeros {
    /// For a CPU that may hold `high` frames in all.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if there is no room for them.
    pub fn new(boot: &mut BootMemory, high: usize) -> Result<Self, BootMemoryShort> {
        let most = CAPACITY.min(high / PART);
        Ok(Zeros { most, items: Room::new(boot)?, demand: Demand::default() })
    }

    /// Returns the bytes of boot memory that `new` takes.
    pub const fn bytes() -> usize {
        Room::<CAPACITY>::bytes()
    }

    /// Order of the largest block that there is room for, if it may hold `high` frames in all.
    pub fn order(high: usize) -> u8 {
        CAPACITY.min(high / PART).checked_ilog2().unwrap_or(0) as u8
    }
}
