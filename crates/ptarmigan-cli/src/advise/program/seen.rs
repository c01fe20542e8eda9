//! The view of a replay that the finders of advice get.
use ptarmigan_replay::{Look, When};
pub use ptarmigan_replay::{REGION, RegionPages};
use ptarmigan_trace::{FaultFlags, Kind};

/// Binary logarithm of the size of a page in bytes.
pub const PAGE: u32 = 12;

/// An operation on a space.
#[derive(Clone, Copy, Debug)]
pub enum Happens {
    /// A fault on a page.
    Fault {
        /// The page.
        page: u64,
        /// Access bits.
        flags: FaultFlags,
    },
    /// A call.
    Call(Kind),
    /// It is copied.
    Fork {
        /// The number of the copy.
        child: u32,
    },
    /// It ends. This is seen before only.
    End,
}

/// One operation on a space, before or after it is carried out.
pub struct SpaceOperation<'s> {
    /// The number of the event in the recording.
    pub event: u32,
    /// The number of the space.
    pub space: u32,
    /// The number of the program that the task runs.
    pub program: u32,
    /// The operation.
    pub what: Happens,
    /// Before or after.
    pub when: When,
    /// The space.
    pub look: &'s dyn Look,
}

/// Looks for something that could be better.
pub trait Finder: Send {
    /// Sees one operation. Operations come in order.
    fn see(&mut self, seen: &SpaceOperation<'_>);

    /// The fault of an event has mapped all of a block: its first page, and how many. Comes before
    /// the operation is seen to be done.
    fn block(&mut self, _event: u32, _start: u64, _pages: u64) {}
}

/// Shows each operation to all finders.
pub struct All<'f>(pub Vec<&'f mut dyn Finder>);

impl Finder for All<'_> {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        self.0.iter_mut().for_each(|finder| finder.see(seen));
    }

    fn block(&mut self, event: u32, start: u64, pages: u64) {
        self.0.iter_mut().for_each(|finder| finder.block(event, start, pages));
    }
}
