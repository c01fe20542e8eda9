//! Linux's own code for page tables, rule by rule, as parts for the crate `ptarmigan`: models to
//! compare with, not to use.
//!
//! * [`Historic`]: the lists of table pages of Linux 2.4 to 2.6.27, the patch of 2007 among them,
//!   as a [`Policy`](ptarmigan::quicklist::Policy). Mistakes are included: it takes tables before
//!   their flush.
//! * [`Plain`]: no lists, as Linux since 5.4. Each page is cleared when it is taken.
//! * [`LinuxPool`]: the pool of slots for high memory, in place of
//!   [`Pool`](ptarmigan::highmem::pool::Pool).
#![no_std]
mod kmap;
mod plain;
mod quicklist;
mod tally;

pub use kmap::{FlushRule, LinuxPool};
pub use plain::Plain;
pub use quicklist::{Historic, HistoricError, ListsRefused, Rules, Trim};
