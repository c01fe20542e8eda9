//! Names the parts of the machine that reports are about.
use crate::arch::level_name;

/// The names of a format's levels, and of CPUs and devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineNames {
    pub(crate) level_names: &'static [&'static str],
    /// The number of CPUs. So many numbers from it on stand for devices.
    pub(crate) cpus: usize,
    pub(crate) devices: usize,
}

impl MachineNames {
    pub(super) fn is_device(&self, number: usize) -> bool {
        (self.cpus..self.cpus.saturating_add(self.devices)).contains(&number)
    }

    /// Returns `CPU 3`, or `device 0`.
    pub(crate) fn reader(&self, number: usize) -> String {
        match self.is_device(number) {
            true => format!("device {}", number - self.cpus),
            false => format!("CPU {number}"),
        }
    }

    /// Returns the format's name of a level.
    pub(super) fn level(&self, level: u8) -> String {
        level_name(self.level_names, level)
    }
}
