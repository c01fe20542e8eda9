//! Recording processes that run already.
//!
//! # The protocol
//!
//! 1. Events of all tasks are switched on.
//! 2. The state of each address space is read from `/proc` ([`state`](super::state)), between two
//!    marks in the stream of events.
//! 3. The builder decides by the events between the marks whether the state is of one moment. If
//!    not, a later one counts.
//!
//! ```text
//!  events    ── on ── … ── mark ───────── mark ── … ── mmap ── …
//!  reading                 │ maps, pagemap │  no change of this space between: the state counts
//!                          └ a change ─────┴──> read again; `still` stops one that never rests
//! ```
//!
//! # Why
//!
//! `/proc` is read in many calls, and the process runs meanwhile: a state with half of a change
//! would make every later event wrong. Stopping each process would be simple, and it would stop a
//! database for as long as its page map takes to read. With events on first, no change is missed,
//! and the marks tell whether one came in between.
pub(crate) mod seize;
pub(crate) mod session;
mod still;
pub(crate) mod tree;
pub(crate) mod watch;
