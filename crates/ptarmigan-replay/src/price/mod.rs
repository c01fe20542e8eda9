//! Prices proposals on a recording: what a change of the machine or of Linux would save, counted.
//!
//! ```text
//!  recording ──> replay (one worker) ──> Moment: event, effects, view ──> Row ──> Answer
//!                  │ tables made, freed       ▲                           Row ──> Answer
//!                  │ flushes, copies          │                           Row ──> why not
//!                  └── areas, pages ──────────┘ of the library's spaces
//! ```
//!
//! A proposal is a [`Row`]: it sees each event of the recording with the effects that the replay
//! had at it, and answers at the end. Which pages are mapped, which areas there are and which
//! tables were made is the replay's business, which is checked against Linux's own counts; so a row
//! has no model of them, only of its proposal. [`PageSets`] keeps what a row knows of pages beyond
//! that, for instance which pages a larger block would have brought.
//!
//! A row that panics, or takes more than its share of time, costs its own answer only.
mod answer;
mod changes;
mod guard;
mod kernel;
mod moment;
mod page_sets;
mod reach;
mod regions;
mod row;
mod rows;
mod run;
mod shown;
mod tables;
#[cfg(test)]
mod tests;
mod whole;

pub use ptarmigan::space::{AreaFlags, Done};

pub use answer::{Answer, Figure, Judgement, Priced, Saving, Unit, percent};
pub use kernel::KernelTime;
pub use moment::{Effect, Moment};
pub use page_sets::PageSets;
pub use regions::{entries, regions};
pub use row::{About, Row};
pub use rows::{
    all,
    blocks::BlockSizes,
    requests::{PinnableProgram, Requests},
};
pub use run::{Pricing, price, price_under};
pub use whole::Whole;
