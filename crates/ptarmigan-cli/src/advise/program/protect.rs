//! Changes of protection that walk many pages for a few.
//!
//! # Why
//!
//! `mprotect` changes the entry of each present page in its range, and flushes them. A compiler at
//! run time that makes its whole region writable for one block, and executable again, pays for all
//! blocks twice each time:
//!
//! ```text
//!   mprotect(region, 16 MiB, RW)    4,096 entries
//!   writes one page
//!   mprotect(region, 16 MiB, RX)    4,096 entries
//! ```
use super::seen::{Finder, Happens, PAGE, SpaceOperation};
use foldhash::HashMap;
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::When;
use ptarmigan_trace::{Kind, Prot};

/// The calls of one program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Protected {
    /// Calls.
    pub calls: u64,
    /// Of these, calls that make pages executable.
    pub executable: u64,
    /// Present pages in their ranges.
    pub pages: u64,
    /// The first page and the length of the longest range.
    pub longest: (u64, u64),
}

/// Counts the pages that calls of `mprotect` walk.
#[derive(Default)]
pub struct Protections {
    /// By the number of the program.
    pub programs: HashMap<u32, Protected>,
}

impl Finder for Protections {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        let (Happens::Call(Kind::Mprotect { start, pages, prot, .. }), When::Before) = (seen.what, seen.when)
        else {
            return;
        };
        let of = self.programs.entry(seen.program).or_default();
        of.calls += 1;
        of.executable += u64::from(prot.0 & Prot::EXEC != 0);
        of.pages += seen.look.pages(VirtRange::saturating_pages(start, pages, PAGE));
        if pages > of.longest.1 {
            of.longest = (start, pages);
        }
    }
}
