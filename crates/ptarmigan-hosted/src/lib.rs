//! Makes a machine of threads and `mmap`, for tests, emulators and the workbench. Needs std.
//!
//! [`Host`] owns the memory and all else that policies share; [`HostMachine`] adds a policy and a
//! TLB.
//!
//! ```
//! use ptarmigan::addr::{VirtAddr, VirtRange};
//! use ptarmigan::format::X86_64;
//! use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
//! use ptarmigan::machine::Machine;
//! use ptarmigan::space::{Access, AreaFlags, Space};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
//! let cpus = host.slots();
//! let pin = cpus[0].pin();
//! let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
//! let on = machine.on(&pin)?; // the machine, seen from that CPU
//!
//! let mut space = Space::<X86_64>::new(on)?;
//! let heap = VirtRange::new(0x40_0000, 0x50_0000)?;
//! space.edit(on)?.mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
//! space.fault(on, VirtAddr(0x40_0123), Access::Write)?;
//! assert_eq!(space.tree().tables_below_root(), 3); // a PTE, a PMD and a PUD page
//!
//! let child = space.edit(on)?.fork()?;
//! child.end(on)?;
//! space.end(on)?;
//! machine.drain(&cpus);
//! host.audit()?; // every frame is back
//! # Ok(())
//! # }
//! ```
mod highmem;
mod host;
mod ipi;
mod machine;
mod mapping;
mod slots;
pub mod test;

pub use highmem::{
    HighConfig, HighError, HighMachine, HighMemory, HighSlots, HostTables, Kmap, KmapCounts, RealSlots,
    Sleeper, SlotKind, StoreSlots,
};
pub use host::{Host, HostConfig, HostError, HostWords, Missing};
pub use ipi::{Delivery, Messages, Wired};
pub use machine::{HostMachine, NoTlb, TableReach};
pub use slots::CpuSlot;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
