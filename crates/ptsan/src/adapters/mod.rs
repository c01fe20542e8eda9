//! Other people's page-table crates under the sanitizer, each behind the cargo feature of its name.
//!
//! A [`Machine`] is simulated physical memory, an allocator of table frames and a [`Sanitizer`] in one; the module of a
//! crate implements that crate's traits on it. What is left to write is what a kernel would do: load the root
//! ([`Machine::load`]), access memory ([`Machine::access`]), and forward the flushes that the crate asks for.
//!
//! Three rules make a finding the crate's and not the test's:
//!
//! * a frame is handed out full of old entries ([`OLD_ENTRY`]) unless the crate's contract asks the allocator for zeroes;
//! * a flush is carried out on every CPU at the moment at which the crate asks for it: nobody forgets a shootdown;
//! * [`Machine::walk_ahead`] names addresses that a CPU's walker may walk for by itself, and it does so whenever the
//!   crate calls a hook, as hardware may between any two instructions.
#[cfg(feature = "aarch64-paging")]
#[allow(unsafe_code)]
pub mod aarch64_paging;
#[cfg(feature = "page-table-generic")]
pub mod page_table_generic;
#[cfg(feature = "page_table_multiarch")]
pub mod page_table_multiarch;
#[cfg(feature = "x86_64")]
#[allow(unsafe_code)]
pub mod x86_64;

mod ahead;
mod backing;
mod current;
mod locked;
mod machine;
mod ram;

pub use current::{Current, current};
pub use machine::{Machine, OLD_ENTRY};
pub use ram::{BASE, FRAME};
