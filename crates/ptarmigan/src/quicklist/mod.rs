//! Known-state pages for tables.
//!
//! A table page goes round: taken from the allocator, cleared (and constructed, for top tables), linked, unlinked
//! with all its entries cleared, flushed from every TLB, and handed out again **without** being cleared, because
//! it still is in the state in which it was handed out first. A [`Policy`] decides where it rests in between:
//!
//! * [`Quicklists`] — per-CPU magazines before a depot per node, within a budget per node;
//! * [`Plain`] — nowhere: every page is cleared when taken and given back when flushed;
//! * `Historic` (feature `hosted`) — the Linux patch of 2007 and what became of it in 2008, bit for bit, mistakes
//!   included.
//!
//! [`Charged`] around a policy charges pages to owners.
//!
//! What came back too early for any of them does not compile: a policy gets pages back as [`Flushed`], and only a
//! flush makes that out of [`Unhooked`] (REQ-4, REQ-33). The historic policies take them in [`Policy::retire`],
//! before the flush, as they did.
mod charge;
mod check;
#[cfg(feature = "hosted")]
mod historic;
mod lists;
mod meminfo;
mod plain;
mod source;
mod tally;

pub use charge::{Charge, Charged, Owner};
pub use check::{Check, CheckConfig, Checked, Event, Misuse, MisuseKind, Site, Unchecked};
#[cfg(feature = "hosted")]
pub use historic::{Historic, Rules};
pub use lists::{ListsConfig, ListsError, MAGAZINE, Quicklists};
pub use meminfo::{Memory, NodeLines, NodeMemory};
pub use plain::Plain;
pub use source::Source;
pub use tally::{LevelCounts, NodeCounts, PolicyCounts};

use crate::cpu::{NodeId, Pinned};
use crate::frames::{AllocFlags, NoFrame};
use crate::page::{Clean, Flushed, Level, Unhooked};

/// Where table pages come from and where they rest.
///
/// For code that may be preempted, not for handlers of interrupts: who comes in while a CPU's magazines are in use goes past
/// them and harms nothing, but the locks of depots and of the allocator are taken with interrupts as they are, and a handler
/// that wants one that its own CPU holds waits for ever. A kernel whose handlers need tables masks interrupts around these
/// calls, as one with the lists of 2007 had to.
pub trait Policy: Sync {
    /// A page for a table of `level`, in that level's state.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; nothing has changed then.
    fn alloc(&self, pin: &Pinned<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame>;

    /// Takes back a page that was never linked; no flush is needed (REQ-37).
    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean);

    /// Pages have been unhooked, the TLB still knows them. Policies that respect that do nothing here; the
    /// historic ones take the pages out, as they did.
    fn retire(&self, _pin: &Pinned<'_>, _pages: &mut Unhooked) {}

    /// Pages come back that no TLB knows any more.
    fn flushed(&self, pin: &Pinned<'_>, pages: Flushed);

    /// A gather has ended on this CPU: the moment for a bounded amount of trimming.
    fn gather_end(&self, _pin: &Pinned<'_>) {}

    /// This CPU has nothing to run: the other moment for it. What else an idle CPU can do is
    /// [`Machine::clear_ahead`](crate::table::Machine::clear_ahead).
    fn idle(&self, _pin: &Pinned<'_>) {}

    /// An interval has passed, a second or so: gives back a bounded number of pages that the caller's node did not need
    /// in it; how many. Whoever keeps time calls it, once for each node.
    fn age(&self, _pin: &Pinned<'_>) -> u32 {
        0
    }

    /// The node is short of memory: gives back up to `want` cached frames; returns how many it gave.
    fn reclaim(&self, _pin: &Pinned<'_>, _node: NodeId, _want: u32) -> u32 {
        0
    }

    /// This CPU goes offline, or everything ends: gives back all that the CPU holds. For a CPU that went without it, whoever
    /// took it down calls this with its proof: nothing else runs on that CPU's number then, which is what
    /// [`Pinned::assume`] asks for.
    fn drain(&self, _pin: &Pinned<'_>) {}

    /// What has been counted so far.
    fn counts(&self) -> PolicyCounts;
}
