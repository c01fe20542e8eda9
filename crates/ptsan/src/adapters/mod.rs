//! Other page-table crates under the sanitizer, each behind the cargo feature of its name.
//!
//! A [`Machine`] combines simulated physical memory, an allocator of table frames and a
//! [`Sanitizer`](crate::Sanitizer). The module of a crate implements that crate's traits on it. The
//! test does the rest, as a kernel would: it loads the root ([`Machine::load`]), accesses memory
//! ([`Machine::access`]), and forwards the flushes that the crate asks for.
//!
//! Three rules make a finding the crate's and not the test's:
//!
//! * a frame is allocated full of old entries ([`OLD_ENTRY`]), unless the crate requires that the
//!   allocator clears;
//! * a flush is carried out on every CPU at the moment at which the crate asks for it, so no
//!   shootdown is missing;
//! * [`Machine::walk_ahead`] names addresses for which a CPU's walker walks by itself, whenever the
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
