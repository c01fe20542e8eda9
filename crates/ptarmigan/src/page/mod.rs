//! The life of a table page.
//!
//! A table page is [`Clean`] while it is owned and linked nowhere: all zero, or as the constructor
//! of root tables ([`Construct`]) left it. Linked, it belongs to an entry. Unlinked with all its
//! entries cleared, it goes onto a chain of [`Unhooked`] pages; only a flush makes [`Flushed`]
//! pages of these ([`FlushProof`]), and only flushed pages become clean pages again.
//!
//! Trees that are not the library's take and bring back tables as [`ForeignTable`]s.
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
