//! The shape of a pool, and what goes wrong.
use crate::addr::Pfn;
use crate::bootmem::BootMemoryShort;
use crate::cpu::WrongMachine;
use crate::error::error;
use crate::highmem::slots::{MAX_SLOTS, SlotError};
use crate::tlb::TlbRefusal;
use core::fmt;

/// The shape of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// CPUs of the machine.
    pub cpus: usize,
    /// Colours: slot `i` has colour `i % colors`. 1 where caches do not care.
    pub colors: usize,
    /// The colour of a frame, taken modulo [`colors`](Self::colors).
    pub color_of: fn(Pfn) -> usize,
    /// Slots that a CPU takes from the shared set at once, 1 to 64.
    pub batch: u32,
    /// Free slots of a colour below which a CPU sweeps a chunk ahead of need; 0: never.
    pub low_water: usize,
}

impl PoolConfig {
    /// Describes a pool of `slots` slots without colours. CPUs keep an eighth of it at hand at
    /// most.
    pub fn new(cpus: usize, slots: usize) -> Self {
        let batch = (slots / (8 * cpus.max(1))).clamp(1, 64) as u32;
        PoolConfig { cpus, colors: 1, color_of: |_| 0, batch, low_water: 0 }
    }
}

/// Who asks for a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::highmem) enum Turn {
    /// A caller that has just come: callers that wait are served first.
    Newcomer,
    /// The first of those that wait.
    First,
}

/// Why a pool cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSetupError {
    /// The number of slots is 0, above [`MAX_SLOTS`], or no multiple of the number of colours.
    Slots {
        /// Slots that there are.
        slots: usize,
        /// Colours asked for.
        colors: usize,
    },
    /// The batch is not 1 to 64.
    Batch(u32),
    /// There are more colours than entries in a leaf table.
    Colors(usize),
    /// It was made for fewer CPUs than the TLBs.
    TooFewCpus {
        /// CPUs asked for.
        cpus: usize,
        /// CPUs that there are.
        machine: usize,
    },
    /// The parts are of different machines.
    WrongMachine(WrongMachine),
    /// The arrays do not fit into boot memory.
    Boot(BootMemoryShort),
}

impl fmt::Display for PoolSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolSetupError::Slots { slots, colors } => {
                write!(f, "{slots} slots in {colors} colours: 1 to {MAX_SLOTS} will do, as many of each")
            }
            PoolSetupError::Batch(batch) => write!(f, "a batch of {batch} slots: 1 to 64 will do"),
            PoolSetupError::Colors(colors) => write!(f, "{colors} colours: 1 to 16 will do"),
            PoolSetupError::TooFewCpus { cpus, machine } => {
                write!(f, "a pool for {cpus} CPUs, the machine has {machine}")
            }
            PoolSetupError::WrongMachine(e) => e.fmt(f),
            PoolSetupError::Boot(e) => e.fmt(f),
        }
    }
}

error!(PoolSetupError: BootMemoryShort => Boot);

/// Why a frame was not mapped. Nothing has changed then, but that stale slots may have been
/// flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// There is no such frame.
    NoSuchFrame(Pfn),
    /// No slot of the frame's colour is to be had without sleeping: all are in use, or callers that
    /// sleep come first.
    Exhausted {
        /// Slots of that colour.
        slots: usize,
    },
    /// The caller slept for a slot as long as it wanted to.
    TimedOut {
        /// Slots of the frame's colour.
        slots: usize,
    },
    /// The frame has as many users as can be counted.
    TooManyUsers(Pfn),
    /// The pin is of another machine.
    WrongMachine(WrongMachine),
    /// Slots are stale, and the CPU cannot flush now.
    Refused(TlbRefusal),
    /// The machine beneath could not change a slot.
    Slot(SlotError),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::NoSuchFrame(pfn) => write!(f, "frame {pfn} is not under management"),
            PoolError::Exhausted { slots } => {
                write!(f, "none of {slots} slots is free: unmap frames, or map where sleeping is allowed")
            }
            PoolError::TimedOut { slots } => {
                write!(f, "none of {slots} slots became free in time: make the pool larger")
            }
            PoolError::TooManyUsers(pfn) => write!(f, "frame {pfn} has {} users already", u16::MAX - 1),
            PoolError::WrongMachine(e) => e.fmt(f),
            PoolError::Refused(e) => e.fmt(f),
            PoolError::Slot(e) => e.fmt(f),
        }
    }
}

error!(PoolError: WrongMachine => WrongMachine, TlbRefusal => Refused, SlotError => Slot);
