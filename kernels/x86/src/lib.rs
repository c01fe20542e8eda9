//! Shared parts of 32-bit and 64-bit PCs: ports, the serial line, interrupt controllers, clocks,
//! nodes, maps of memory, tables and TLBs.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod acpi;
#[cfg(feature = "bare")]
pub mod bare;
#[cfg(target_arch = "x86_64")]
pub mod boot_tables;
pub mod clock;
pub mod hardware;
pub mod lapic;
pub mod loader;
pub mod memory_map;
pub mod port;
pub mod rtc;
pub mod segments;
pub mod serial;
pub mod table;
