//! A CPU's stack of frames that are known to be zero.
use super::room::Room;
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::Counter;
use crate::frames::demand::Demand;
use core::sync::atomic::AtomicUsize;

/// Data frames of 4 KiB that a CPU's stack can hold: 2 MiB, the size of a second-level cache.
const CAPACITY: usize = if cfg!(loom) { 16 } else { 512 };
/// It holds at most this part of the CPU's limit.
const PART: usize = 4;

/// Returns how many data frames of an order a CPU's stack may hold, if the CPU may hold `high`.
fn most(high: usize, order: u8) -> usize {
    (CAPACITY >> order).min(high / PART)
}

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
    /// For a CPU that may hold `high` data frames of an order in all.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if there is no room for them.
    pub fn new(boot: &mut BootMemory, high: usize, order: u8) -> Result<Self, BootMemoryShort> {
        Ok(Zeros { most: most(high, order), items: Room::new(boot)?, demand: Demand::default() })
    }

    /// Returns the bytes of boot memory that `new` takes.
    pub const fn bytes() -> usize {
        Room::<CAPACITY>::bytes()
    }

    /// Binary logarithm of the data frames of an order that there is room for, if the CPU may hold
    /// `high` in all.
    pub fn batch(high: usize, order: u8) -> u8 {
        most(high, order).checked_ilog2().unwrap_or(0) as u8
    }
}
