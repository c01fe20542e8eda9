//! What 32-bit and 64-bit PCs have in common: ports, the serial line, interrupt controllers,
//! clocks and nodes.
#![no_std]

pub mod acpi;
pub mod clock;
pub mod lapic;
pub mod port;
pub mod serial;
