//! What 32-bit and 64-bit PCs have in common: ports, the serial line, interrupt controllers,
//! clocks, nodes, tables and TLBs.
#![no_std]

pub mod acpi;
pub mod clock;
pub mod hardware;
pub mod lapic;
pub mod port;
pub mod serial;
pub mod table;
