//! Puts a hosted machine of the library under the sanitizer.
//!
//! Tests of a format by hand begin with [`conform`], which compares it with the sanitizer's
//! decoder.
//!
//! A [`SoftMmu`] owns the sanitizer. It stands between the library and the sanitizer twice:
//!
//! * as the machine's [`Mmu`](ptarmigan::tlb::Mmu), it makes the software MMU of a CPU forget
//!   exactly the translations that the library tells that CPU to forget;
//! * as a [`Layer`](ptarmigan::quicklist::Layer) around a policy, it tells the sanitizer which
//!   pages are tables. A page is *allocated* when the policy hands it out. It is *freed* when the
//!   policy gets it back from where it may be handed out again: in `flushed`, in `free_unlinked`,
//!   and in `unhooked` if the policy takes it there.
//!
//! ```
//! use ptarmigan::format::X86_64;
//! use ptarmigan_hosted::{Host, HostConfig, HostMachine};
//! use ptarmigan::machine::Machine;
//! use ptarmigan::quicklist::Layered;
//! use ptarmigan::space::Space;
//! use ptarmigan_ptsan::{SoftMmu, Watchable};
//!
//! let host = Host::<X86_64>::new(HostConfig { cpus: 1, ..HostConfig::default() })?;
//! let mmu = SoftMmu::new(&host, ptsan::Config::new(X86_64::arch()));
//! let machine = HostMachine::new(&host, Layered::new(&mmu, host.quicklists()?).map_err(|e| e.error)?, &mmu)?;
//! let slots = host.slots();
//! let pin = slots[0].pin();
//! let on = machine.on(&pin)?;
//!
//! let space = Space::<X86_64>::new(on)?;
//! space.activate(on)?;
//! mmu.with(|sanitizer, _| sanitizer.assert_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Ports to other architectures
//!
//! The software MMUs cache everything that the architecture of the configuration allows
//! ([`ptsan::Arch`]). [`SoftMmu::like`] takes, as a type, the description of them that the library
//! gets: [`Broadcasting`] for machines like AArch64, with barriers around each invalidation
//! ([`ptsan::Config::barriers`]), [`Fencing`] for those like RISC-V, [`Refilled`] for TLBs that
//! software fills, or an [`MmuTraits`] of the caller's own. A format needs [`Watchable`] only where
//! its [`ptsan::Arch`] is to be found by its type.
//!
//! # Stores
//!
//! The sanitizer compares tables with their last known contents at each walk and each flush. With
//! [`Told`] around the format, it is told of each store as well, and sees a live entry that is
//! replaced without the break that the architecture demands:
//!
//! ```
//! use ptarmigan::format::X86_64;
//! use ptarmigan_hosted::{Host, HostConfig, HostMachine};
//! use ptarmigan::machine::Machine;
//! use ptarmigan::quicklist::Layered;
//! use ptarmigan::space::Space;
//! use ptarmigan_ptsan::{SoftMmu, Told};
//!
//! type Format = Told<X86_64>;
//! let host = Host::<Format>::new(HostConfig { cpus: 1, ..HostConfig::default() })?;
//! let mmu = SoftMmu::new(&host, ptsan::Config::new(ptsan::Arch::x86_64()));
//! mmu.told(|| {
//!     let policy = Layered::new(&mmu, host.quicklists()?).map_err(|e| e.error)?;
//!     let machine = HostMachine::new(&host, policy, &mmu)?;
//!     let slots = host.slots();
//!     let pin = slots[0].pin();
//!     let on = machine.on(&pin)?;
//!     Space::<Format>::new(on)?.end(on)?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! mmu.with(|sanitizer, _| sanitizer.assert_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod arch;
mod block;
mod conform;
mod hashed;
mod memory;
mod mmu;
mod pages;
mod store_hook;

pub use arch::Watchable;
pub use block::HashMemory;
pub use conform::{Nonconforming, conform, conforms_to};
pub use hashed::{HashUse, HashedMmu, hash_size};
pub use memory::HostMemory;
pub use mmu::SoftMmu;
pub use ptarmigan_hosted::test::{Broadcasting, Fencing, Interrupting, MmuTraits, Refilled};
pub use store_hook::{Told, ToldSlot};
