//! The CPUs and devices of a log, and the entries that devices read.
use super::error::RecordError;
use super::memory::END;
use std::collections::HashMap;

/// The most entries that are known.
const MOST_ENTRIES: usize = 1 << 16;

/// The numbers of CPUs, and of devices behind them.
#[derive(Clone, Copy)]
pub(super) struct Readers {
    pub(super) cpus: u16,
    pub(super) devices: u16,
}

impl Readers {
    fn is_device(self, number: u16) -> bool {
        number >= self.cpus && number - self.cpus < self.devices
    }

    /// Returns `CPU 3`, or `device 0`.
    pub(super) fn name(self, number: u16) -> String {
        match self.is_device(number) {
            true => format!("device {}", number - self.cpus),
            false => format!("CPU {number}"),
        }
    }

    fn all(self) -> String {
        let plural = |n: u16| if n == 1 { "" } else { "s" };
        let Self { cpus, devices } = self;
        match devices {
            0 => format!("{cpus} CPU{}", plural(cpus)),
            _ => format!("{cpus} CPU{} and {devices} device{}", plural(cpus), plural(devices)),
        }
    }

    /// Checks a number that stands for a CPU.
    pub(super) fn cpu(self, number: u16) -> Result<(), RecordError> {
        if number < self.cpus {
            return Ok(());
        }
        if self.is_device(number) {
            return Err((
                format!("{number} stands for {}, and only a CPU does this", self.name(number)),
                "record the number of the CPU; those of devices follow those of CPUs",
            ));
        }
        Err((
            format!("CPU {number}, and the header says {}", self.all()),
            "number CPUs from 0, and give the header their number",
        ))
    }

    /// Checks a number that stands for a CPU or a device.
    pub(super) fn any(self, number: u16) -> Result<(), RecordError> {
        if self.is_device(number) { Ok(()) } else { self.cpu(number) }
    }

    /// Checks a number that stands for a device.
    pub(super) fn device(self, number: u16) -> Result<(), RecordError> {
        if self.is_device(number) {
            return Ok(());
        }
        Err((
            format!("{number} stands for no device, and the header says {}", self.all()),
            "give the header the number of devices, and number them from the number of CPUs on",
        ))
    }
}

/// The entries that devices read: the bytes of each, and its device.
#[derive(Default)]
pub(super) struct Entries(HashMap<u64, (u8, u16)>);

impl Entries {
    /// Adds an entry. The decoder has checked its size and its alignment.
    pub(super) fn add(&mut self, device: u16, phys: u64, bytes: u8) -> Result<(), RecordError> {
        if phys >= END {
            return Err((format!("an entry at {phys:#x}"), "record the physical address of the entry"));
        }
        let end = phys + u64::from(bytes);
        let first = phys - phys % 64;
        let over = (first..end)
            .step_by(8)
            .find(|at| *at != phys && self.0.get(at).is_some_and(|(bytes, _)| at + u64::from(*bytes) > phys));
        if let Some(at) = over {
            return Err((
                format!("the entry at {at:#x} lies in the same bytes"),
                "record device-entry once for each entry, with its first address and its size",
            ));
        }
        if self.0.len() >= MOST_ENTRIES && !self.0.contains_key(&phys) {
            return Err((
                format!("{MOST_ENTRIES} entries are known"),
                "record only entries of devices that are in use",
            ));
        }
        self.0.insert(phys, (bytes, device));
        Ok(())
    }

    /// Returns the device that reads the entry in which bytes lie.
    fn device_of(&self, phys: u64, bytes: u64) -> Result<u16, RecordError> {
        let found = [8, 16, 32, 64].into_iter().find_map(|size| {
            let start = phys - phys % size;
            self.0.get(&start).filter(|(known, _)| phys - start + bytes <= u64::from(*known))
        });
        found.map(|(_, device)| *device).ok_or_else(|| {
            (
                format!("no device reads an entry of which {bytes} bytes lie at {phys:#x}"),
                "record device-entry before the first store to an entry",
            )
        })
    }

    /// Checks a store of at most 64 bytes.
    pub(super) fn written(&self, phys: u64, bytes: usize) -> Result<(), RecordError> {
        self.device_of(phys, bytes as u64).map(|_| ())
    }

    /// Checks that the entry at an address is one of a device.
    pub(super) fn flushed(&self, device: u16, phys: u64, readers: Readers) -> Result<(), RecordError> {
        let own = self.device_of(phys, 1)?;
        if own == device {
            return Ok(());
        }
        Err((
            format!("{} reads the entry at {phys:#x}", readers.name(own)),
            "record the device that forgot the entry",
        ))
    }
}
