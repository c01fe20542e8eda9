//! Defines the errors of local maps.
use super::MapsId;
use super::stack::MAX_DEPTH;
use crate::addr::Pfn;
use crate::bootmem::BootMemoryShort;
use crate::cpu::{CpuId, WrongMachine};
use crate::highmem::slots::SlotError;
use crate::tlb::TlbRefusal;
use core::fmt;

/// Why local maps cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalSetupError {
    /// The depth is not 1 to [`MAX_DEPTH`], or there are not as many slots for each CPU.
    Depth {
        /// Slots for each CPU that were asked for.
        depth: usize,
        /// Slots in all.
        slots: usize,
    },
    /// The parts are of different machines.
    WrongMachine(WrongMachine),
    /// The stacks do not fit into boot memory.
    Boot(BootMemoryShort),
}

impl fmt::Display for LocalSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalSetupError::Depth { depth, slots } => write!(
                f,
                "{depth} slots for each CPU, of {slots} in all: 1 to {MAX_DEPTH} will do, for all CPUs"
            ),
            LocalSetupError::WrongMachine(e) => e.fmt(f),
            LocalSetupError::Boot(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for LocalSetupError {}

/// The reason for which a frame was not mapped; the maps are unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalError {
    /// There is no such frame.
    NoSuchFrame(Pfn),
    /// All slots of the CPU are in use.
    Overflow {
        /// Which CPU.
        cpu: CpuId,
        /// Its slots.
        depth: usize,
    },
    /// The pin is of another machine.
    WrongMachine(WrongMachine),
    /// The next slot is stale, and the CPU cannot flush now.
    Refused(TlbRefusal),
    /// The machine beneath could not change a slot.
    Slot(SlotError),
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalError::NoSuchFrame(pfn) => write!(f, "frame {pfn} is not under management"),
            LocalError::Overflow { cpu, depth } => {
                write!(f, "CPU {} has {depth} local maps already: configure a greater depth", cpu.0)
            }
            LocalError::WrongMachine(e) => e.fmt(f),
            LocalError::Refused(e) => e.fmt(f),
            LocalError::Slot(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for LocalError {}

/// Why a task switch is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchError {
    /// Guards of the task were forgotten. Their slots have been given back, and the switch is done
    /// otherwise.
    Forgotten {
        /// How many.
        guards: usize,
        /// The frame of the lowest one.
        first: Pfn,
    },
    /// The task has maps that were saved already, and nothing has changed.
    Saved,
    /// The CPU has local maps of another task, and nothing has changed.
    InUse {
        /// How many.
        maps: usize,
    },
    /// The task's maps belong to another CPU; they are unchanged.
    WrongCpu {
        /// The CPU that they are of.
        of: CpuId,
        /// The CPU of the pin.
        on: CpuId,
    },
    /// The task's maps were saved by other local maps, and nothing has changed.
    OtherMaps {
        /// The maps that saved them.
        of: MapsId,
        /// The maps that were to show them.
        called: MapsId,
    },
    /// The pin is of another machine, and nothing has changed.
    WrongMachine(WrongMachine),
    /// The CPU cannot flush now, and nothing has changed.
    Refused(TlbRefusal),
    /// The machine beneath could not change a slot, and the task's maps stay saved.
    Slot(SlotError),
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchError::Forgotten { guards, first } => {
                write!(
                    f,
                    "{guards} local map(s) were forgotten, the first of frame {first}: drop their guards"
                )
            }
            SwitchError::Saved => f.write_str("the task's local maps are saved already: switch it in first"),
            SwitchError::InUse { maps } => {
                write!(f, "the CPU has {maps} local map(s) of another task: switch that out first")
            }
            SwitchError::WrongCpu { of, on } => {
                write!(f, "the task's local maps are CPU {}'s; it cannot go on on CPU {}", of.0, on.0)
            }
            SwitchError::OtherMaps { of, called } => {
                write!(f, "{called:?} was given a task's maps that {of:?} saved; switch it in there")
            }
            SwitchError::WrongMachine(e) => e.fmt(f),
            SwitchError::Refused(e) => e.fmt(f),
            SwitchError::Slot(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for SwitchError {}
