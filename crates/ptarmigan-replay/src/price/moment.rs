//! One event of a replay, as a row sees it.
use crate::flushes::Flushes;
use crate::workers::look::Look;
use ptarmigan::space::Done;
use ptarmigan_trace::Event;

/// What the replay did at an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A table was made, of this level: 0 for leaf tables.
    TableMade {
        /// The level.
        level: u8,
        /// The number of its frame.
        frame: u32,
    },
    /// A table was freed.
    TableFreed {
        /// The level.
        level: u8,
        /// The number of its frame.
        frame: u32,
    },
    /// A fault was served.
    Served(Done),
    /// The fault mapped a block of several pages, as the recorded kernel did.
    Block {
        /// The first page.
        start: u64,
        /// How many.
        pages: u64,
    },
    /// Pages that were not mapped are mapped now: by a fault one page, or a block.
    Mapped {
        /// The first page.
        start: u64,
        /// How many.
        pages: u64,
    },
    /// All pages of a range went, those that were not mapped as well: a row may have thought of
    /// them. Comes before the effects on the pages that were mapped.
    Emptied {
        /// The first page.
        start: u64,
        /// How many.
        pages: u64,
    },
    /// Pages are not mapped any more. Those of a space that ends are not listed.
    Unmapped {
        /// The first page.
        start: u64,
        /// How many.
        pages: u64,
    },
    /// Mapped pages moved to another place, at which there was none any more.
    Moved {
        /// The first page before.
        from: u64,
        /// The first page now.
        to: u64,
        /// How many.
        pages: u64,
    },
    /// The library flushed TLBs. Linux's flushes are events of the recording.
    Flushed(Flushes),
    /// The space was copied.
    Forked {
        /// The number of the copy.
        child: u32,
    },
    /// The copy got its own table for one of the parent's leaf tables. Follows `Forked`.
    TableCopied {
        /// The first page of the table.
        start: u64,
        /// The pages in it.
        entries: u32,
    },
    /// The space ended.
    Ended,
}

/// An event, and its effects.
pub struct Moment<'a> {
    /// The number of the event's step; flushes of Linux have that of the event that comes next.
    pub step: u32,
    /// The event.
    pub event: Event,
    /// The number of the space that it concerns. For an `execve`, that is the space of the new
    /// program; the end of the old one is a moment of its own, before.
    pub space: Option<u32>,
    /// The number of the program of that space, an index of [`Whole::programs`](super::Whole).
    pub program: u32,
    /// What the replay did.
    pub effects: &'a [Effect],
    /// The space. `None` if it has ended, or there is none.
    pub view: Option<&'a dyn Look>,
}

impl Moment<'_> {
    /// Returns how a fault was served. `None` for other events, and for faults outside all areas.
    pub fn served(&self) -> Option<Done> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Served(done) => Some(*done),
            _ => None,
        })
    }
}
