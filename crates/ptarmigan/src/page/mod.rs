//! The life of a table page.
//!
//! # The protocol
//!
//! 1. A table page is [`Clean`] while it is owned and linked nowhere: all zero, or as the
//!    constructor of root tables ([`Construct`]) left it.
//! 2. Linked, it belongs to an entry.
//! 3. Unlinked with all its entries cleared, it goes onto a chain of [`Unhooked`] pages.
//! 4. Only a flush makes [`Flushed`] pages of these ([`FlushProof`]), and only flushed pages become
//!    clean pages again.
//!
//! ```text
//!               linked into an entry            unlinked, entries cleared
//!    Clean ───────────────────────> (a table) ───────────────────────────> Unhooked
//!      ^                                                                      │
//!      └──────────── pop ──────────── Flushed <──────── FlushProof ───────────┘
//! ```
//!
//! Trees that are not the library's take and bring back tables as [`ForeignTable`]s.
//!
//! # Why
//!
//! Each step is a type, because the wrong order is a bug that no test finds reliably: a table that
//! is handed out before the flush is wrong only if an MMU walks it in that moment. Each chain is
//! linked through the frames' records, not through the pages, so that a page that was known to be
//! zero still is.
mod chain;
mod clean;
mod construct;
mod foreign;
mod level;

pub(crate) use chain::TOGETHER;
pub use chain::{FlushProof, Flushed, FlushedLeaves, Unhooked};
pub use clean::Clean;
pub use construct::{Construct, NoConstruct};
pub use foreign::{ClearedTable, ForeignTable, LINE};
pub use level::{Layout, Level, MAX_LEVELS};
