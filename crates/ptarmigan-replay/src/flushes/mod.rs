//! Flushes of TLBs by cause: those of Linux in a recording, and those of the library in a replay.
//!
//! Both sides count a flush once, at the CPU that asks for it. So a row of one side can be compared
//! with the same row of the other. Two causes have one side only: Linux's tracepoint does not
//! report the flush at the end of a space, and no correction at a stop happened in Linux.
mod compare;
mod library;
mod linux;
mod remarks;

pub use compare::{FlushRow, compare};
pub use library::{CauseFlushes, FlushesByCause, LibraryFlushes};
pub use linux::{CallFlushes, FlushSurvey, LinuxCauseFlushes, LinuxFlushes, ProgramRequests};

use ptarmigan::tlb::FlushCounts;
use serde::Serialize;
use std::ops::{AddAssign, Sub};

/// Flushes by size.
#[derive(Serialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushes {
    /// Flushes of one page.
    pub page: u64,
    /// Flushes of several pages.
    pub range: u64,
    /// Flushes of a whole space.
    pub full: u64,
}

impl Flushes {
    /// Returns one flush of so many pages, 0 for all.
    pub fn one(pages: u64) -> Self {
        let is = |yes: bool| u64::from(yes);
        Flushes { page: is(pages == 1), range: is(pages > 1), full: is(pages == 0) }
    }

    /// Returns their number.
    pub fn total(&self) -> u64 {
        self.page + self.range + self.full
    }

    /// Returns the numbers by size: of one page, of a range, full.
    pub fn by_size(&self) -> [u64; 3] {
        [self.page, self.range, self.full]
    }
}

impl AddAssign for Flushes {
    fn add_assign(&mut self, other: Self) {
        self.page += other.page;
        self.range += other.range;
        self.full += other.full;
    }
}

impl Sub for Flushes {
    type Output = Self;

    /// Returns the flushes since an earlier count.
    fn sub(self, before: Self) -> Self {
        Flushes {
            page: self.page.saturating_sub(before.page),
            range: self.range.saturating_sub(before.range),
            full: self.full.saturating_sub(before.full),
        }
    }
}

impl From<FlushCounts> for Flushes {
    fn from(c: FlushCounts) -> Self {
        Flushes { page: c.page as u64, range: c.range as u64, full: c.full as u64 }
    }
}
