//! The shadow state of one table frame: where it came from, which CPUs may hold it, which entry
//! points at it.
use super::history::History;
use super::holders::{Holder, Holders};
use super::leftovers::Leftovers;
use super::stored_values::ToldEntries;
use crate::report::{Origins, Trace};

/// The most entries that are remembered of a table that several trees share, beside the last one.
const MOST_LINKS: usize = 255;

/// A frame during one allocation. The next allocation of the frame has another reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FrameRef {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl FrameRef {
    /// A table that was never announced.
    pub(crate) const UNKNOWN: Self = Self { index: u32::MAX, generation: 0 };

    /// Returns a number of its own.
    pub(crate) fn key(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Allocated,
    Freed,
}

/// An entry through which a table was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Physical address of the entry.
    pub(crate) entry: u64,
    /// The table that holds the entry.
    pub(crate) parent: FrameRef,
}

/// The fields that walks and stores need lie in the first three cache lines, the nearest holders on
/// the second.
#[repr(C, align(64))]
pub(crate) struct Frame {
    pub(crate) phys: u64,
    pub(crate) size: u64,
    pub(crate) link: Option<Link>,
    pub(super) generation: u32,
    pub(crate) state: State,
    /// As announced, or as first reached.
    pub(crate) level: Option<u8>,
    /// It was announced with entries of before.
    pub(crate) was_dirty: bool,
    /// The content from before the allocation. `None` if it was not recorded or does not matter any
    /// more.
    pub(crate) leftovers: Option<Box<Leftovers>>,
    pub(crate) holders: Holders,
    /// The entries to which stores were told.
    pub(crate) told: ToldEntries,
    /// Other entries through which it was reached: several trees share the table.
    pub(super) other_links: Vec<Link>,
    pub(crate) history: History,
    /// Event of the allocation.
    pub(crate) since: u64,
    /// Event of the allocation before, if there was one.
    pub(crate) before: Option<u64>,
    /// Entries of before were reported.
    pub(crate) old_reported: bool,
    pub(crate) origins: Option<Box<Origins>>,
}

impl Frame {
    pub(crate) fn contains(&self, phys: u64) -> bool {
        phys >= self.phys && phys - self.phys < self.size
    }

    /// Records an entry through which the table was reached.
    pub(crate) fn link_through(&mut self, new: Link) {
        if let Some(old) = self.link.replace(new)
            && old != new
        {
            self.other_links.retain(|other| *other != new && *other != old);
            if self.other_links.len() >= MOST_LINKS {
                self.other_links.remove(0);
            }
            self.other_links.push(old);
        }
    }

    /// Lists the entries through which the table was reached, the last one first.
    pub(crate) fn links(&self) -> impl Iterator<Item = Link> + '_ {
        self.link.iter().chain(&self.other_links).copied()
    }

    /// Returns the entry through which the table was reached, if there is only one.
    #[inline]
    pub(crate) fn only_link(&self) -> Option<Link> {
        self.link.filter(|_| self.other_links.is_empty())
    }

    /// Records the callers that allocated the table.
    pub(crate) fn remember_owner(&mut self, callers: Trace) {
        self.origins = Some(Box::new(Origins { allocated: Some(callers), freed: None }));
    }

    /// Records the callers that freed the table.
    pub(crate) fn remember_giver(&mut self, callers: Trace) {
        self.origins.get_or_insert_default().freed = Some(callers);
    }

    /// Records that a CPU may hold this table from now on, and returns whether that is news.
    /// `valid` says which old holders still count.
    #[inline]
    pub(crate) fn hold(&mut self, new: Holder, valid: impl Fn(&Holder) -> bool) -> bool {
        self.holders.hold(new, valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_holders_that_are_near_begin_a_cache_line() {
        // Behind the position that they share.
        assert_eq!(offset_of!(Frame, holders) + size_of::<u64>(), 64);
        assert_eq!((offset_of!(Frame, other_links) <= 192, size_of::<Frame>()), (true, 320));
    }
}
