//! Work on pages that Linux does for a program, counted in the replay and priced on this host.
//!
//! The time of a replay is the library's. Linux keeps a record of 64 bytes for each page and
//! changes it at each fork and end, so that the shares of forks, ends and faults are others there.
//! These counts, times prices that are measured on this machine (`measure/page_prices`), are a
//! prediction of Linux's own time. Equal on both sides are forks and ends without memory, calls
//! without pages, and faults on files and on pages of zeroes, which have the price of a page that
//! is made writable again.
//!
//! # Range
//!
//! A prediction is a range: prices scatter, and memory that is new to a virtual machine costs its
//! host time. So the saving is priced with the prices of each round of the measurement and, for as
//! much memory as the huge pages have at once, with the prices of new memory.
use super::seen::REGION;
use foldhash::HashMap;
use ptarmigan_replay::model::page_prices::{PagePrices, PriceSet, UnitPrices};
use serde::Serialize;

/// The fate of pages of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// First writes.
    pub fresh: u64,
    /// Shown to a child by a fork.
    pub forked: u64,
    /// Shared when a space ended.
    pub dropped: u64,
    /// Given back by their only space.
    pub freed: u64,
    /// Changed by `mprotect`.
    pub protected: u64,
}

impl Units {
    fn ns(self, prices: UnitPrices) -> f64 {
        self.fresh as f64 * prices.fresh
            + self.forked as f64 * prices.forked
            + self.dropped as f64 * prices.dropped
            + self.freed as f64 * prices.freed
            + self.protected as f64 * prices.protected
    }
}

/// Counts of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages of 4 KiB.
    pub small: Units,
    /// Pages of 4 KiB of huge pages that were split.
    pub split: Units,
    /// Huge pages.
    pub huge: Units,
    /// Faults that copy a page.
    pub copied: u64,
    /// All other faults.
    pub reused: u64,
    /// Writes that split a huge page.
    pub splits: u64,
    /// Calls for a part of a huge page, which split it.
    pub cuts: u64,
    /// Calls that change permissions or take pages.
    pub calls: u64,
    /// Forks.
    pub forks: u64,
    /// Ends of spaces.
    pub ends: u64,
}

impl Work {
    /// Returns what Linux takes for it at these prices, in nanoseconds.
    fn ns(&self, prices: &PriceSet) -> f64 {
        self.small.ns(prices.small)
            + self.split.ns(prices.split)
            + self.huge.ns(prices.huge)
            + self.copied as f64 * prices.copied
            + self.reused as f64 * prices.reused
            + self.splits as f64 * prices.splits
            + self.cuts as f64 * prices.cuts
            + self.calls as f64 * prices.call
            + self.forks as f64 * prices.fork
            + self.ends as f64 * prices.exit
    }
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultWork {
    /// It clears a page of the space's own.
    Fresh,
    /// It copies a page.
    Copied,
    /// Anything else.
    Reused,
}

/// Work without a change of the program, and with it.
#[derive(Clone, Debug, Default)]
pub struct Both {
    /// As recorded.
    pub without: Work,
    /// With the change.
    pub with: Work,
    /// For each space, the number of its family: spaces that came by forks from one another.
    families: HashMap<u32, usize>,
    /// The spaces of each family that live.
    live: Vec<u32>,
    /// Pages of a space that no other one has had.
    own: HashMap<u32, u64>,
    /// The most huge pages at once that faults have filled.
    pub huge_at_once: u64,
}

impl Both {
    /// Returns whether other spaces may share pages of this one.
    fn shares(&self, space: u32) -> bool {
        self.families.get(&space).is_some_and(|family| self.live[*family] > 1)
    }

    /// Counts a fault on both sides. `present` says that a page is there, `anonymous` that it may
    /// not be a file's.
    pub fn fault(&mut self, space: u32, present: bool, anonymous: bool, write: bool) -> FaultWork {
        let work = match (present, write) {
            (false, true) if anonymous => FaultWork::Fresh,
            (true, true) if self.shares(space) => FaultWork::Copied,
            _ => FaultWork::Reused,
        };
        if work != FaultWork::Reused {
            *self.own.entry(space).or_default() += 1;
        }
        self.without.count(work, 1);
        self.with.count(work, 1);
        work
    }

    /// Counts a fork of `pages` pages, of which with the change `split` are of split huge pages and
    /// `in_huge` of `huge` huge pages.
    pub fn fork(&mut self, space: u32, child: u32, pages: u64, kinds: Kinds) {
        let family = *self.families.entry(space).or_insert_with(|| {
            self.live.push(1);
            self.live.len() - 1
        });
        self.families.insert(child, family);
        self.live[family] += 1;
        self.own.insert(space, 0);
        for work in [&mut self.without, &mut self.with] {
            work.forks += 1;
        }
        self.without.small.forked += pages;
        self.with.small.forked += pages.saturating_sub(kinds.split + kinds.in_huge);
        self.with.split.forked += kinds.split;
        self.with.huge.forked += kinds.huge;
    }

    /// Counts the end of a space with `pages` pages.
    pub fn end(&mut self, space: u32, pages: u64, kinds: Kinds) {
        let own = self.own.remove(&space).unwrap_or(0).min(pages);
        let shares = self.shares(space);
        if let Some(family) = self.families.remove(&space) {
            self.live[family] -= 1;
        }
        for work in [&mut self.without, &mut self.with] {
            work.ends += 1;
        }
        self.gone(pages, if shares { pages - own } else { 0 }, shares, kinds);
    }

    /// Counts a call that changes the permissions of pages.
    pub fn protected(&mut self, pages: u64, kinds: Kinds) {
        self.called();
        self.without.small.protected += pages;
        self.with.small.protected += pages.saturating_sub(kinds.split + kinds.in_huge);
        self.with.split.protected += kinds.split;
        self.with.huge.protected += kinds.huge;
    }

    /// Counts a call.
    fn called(&mut self) {
        for work in [&mut self.without, &mut self.with] {
            work.calls += 1;
        }
    }

    /// Counts a call and pages that it takes.
    pub fn taken(&mut self, space: u32, pages: u64, kinds: Kinds) {
        self.called();
        let shares = self.shares(space);
        self.gone(pages, if shares { pages } else { 0 }, shares, kinds);
    }

    /// Counts pages that go, `dropped` of them shared.
    fn gone(&mut self, pages: u64, dropped: u64, shares: bool, kinds: Kinds) {
        self.without.small.dropped += dropped;
        self.without.small.freed += pages - dropped;
        let small = pages.saturating_sub(kinds.split + kinds.in_huge);
        let dropped = dropped.min(small);
        self.with.small.dropped += dropped;
        self.with.small.freed += small - dropped;
        if shares {
            self.with.split.dropped += kinds.split;
            self.with.huge.dropped += kinds.huge;
        } else {
            self.with.split.freed += kinds.split;
            self.with.huge.freed += kinds.huge;
        }
    }

    /// Prices both sides.
    pub fn priced(&self, prices: PagePrices) -> LinuxWork {
        let saved = |prices: &PriceSet| self.without.ns(prices) - self.with.ns(prices);
        let (without_ns, with_ns) = (self.without.ns(&prices.middle), self.with.ns(&prices.middle));
        let middle = without_ns - with_ns;
        let more = |new: f64, usual: f64| (new - usual).max(0.0) * self.huge_at_once as f64;
        let new = middle + REGION as f64 * more(prices.new.small, prices.middle.small.fresh)
            - more(prices.new.huge, prices.middle.huge.fresh);
        let mut saved_ns = [middle.min(new), middle.max(new)];
        for round in prices.rounds.iter().map(saved) {
            saved_ns = [saved_ns[0].min(round), saved_ns[1].max(round)];
        }
        let share = (saved_ns[0] > 0.0).then(|| middle / without_ns.max(1.0));
        LinuxWork { without_ns, with_ns, saved_ns, share, prices }
    }
}

impl Work {
    /// Counts a fault `times` times.
    fn count(&mut self, work: FaultWork, times: u64) {
        match work {
            FaultWork::Fresh => self.small.fresh += times,
            FaultWork::Copied => self.copied += times,
            FaultWork::Reused => self.reused += times,
        }
    }

    /// Takes back faults that a huge page spares.
    pub fn spare(&mut self, [fresh, copied, reused]: [u64; 3]) {
        self.small.fresh = self.small.fresh.saturating_sub(fresh);
        self.copied = self.copied.saturating_sub(copied);
        self.reused = self.reused.saturating_sub(reused);
    }
}

/// The pages of a space that are parts of huge pages with a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kinds {
    /// Pages of split huge pages.
    pub split: u64,
    /// Huge pages.
    pub huge: u64,
    /// Their pages that were there without the change.
    pub in_huge: u64,
}

impl Kinds {
    /// Adds a region with `pages` pages.
    pub fn add(&mut self, split: bool, pages: u64) {
        debug_assert!(pages <= REGION);
        if split {
            self.split += pages;
        } else {
            self.huge += 1;
            self.in_huge += pages;
        }
    }
}

/// A prediction of Linux's time on this machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LinuxWork {
    /// As recorded, in nanoseconds.
    pub without_ns: f64,
    /// With the advice followed.
    pub with_ns: f64,
    /// The least and the most that are saved, below 0 if it takes more.
    pub saved_ns: [f64; 2],
    /// The part that is saved. `None` if the range holds 0: the prices do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The prices.
    pub prices: PagePrices,
}

impl LinuxWork {
    /// Returns the saving in nanoseconds, below 0 if it takes more.
    pub fn saved(&self) -> f64 {
        self.without_ns - self.with_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prices of first writes of 1 ns and of so many for a huge page, 300 to 600 in rounds.
    fn prices(huge: f64, new: f64) -> PagePrices {
        let set = |huge| {
            let fresh = |ns| UnitPrices { fresh: ns, ..UnitPrices::default() };
            PriceSet { small: fresh(1.0), huge: fresh(huge), cuts: 50.0, ..PriceSet::default() }
        };
        let mut prices = PagePrices { middle: set(huge), ..PagePrices::default() };
        prices.rounds = [0.75, 1.0, 1.0, 1.0, 1.5].map(|part| set(part * huge));
        (prices.new.small, prices.new.huge) = (1.0, new);
        prices
    }

    /// Two regions that are filled as huge pages, of which one is cut.
    fn filled() -> Both {
        let mut both = Both { huge_at_once: 1, ..Both::default() };
        both.without.small.fresh = 1024;
        (both.with.huge.fresh, both.with.cuts) = (2, 1);
        both
    }

    #[test]
    fn a_saving_is_a_range_of_all_rounds_and_new_memory() {
        let linux = filled().priced(prices(200.0, 300.0));
        assert_eq!((linux.without_ns, linux.with_ns), (1024.0, 450.0));
        assert_eq!(linux.saved_ns, [374.0, 674.0]);
        assert_eq!(linux.share, Some(574.0 / 1024.0));
        // One of both has to be found by the host.
        assert_eq!(filled().priced(prices(200.0, 700.0)).saved_ns, [74.0, 674.0]);
    }

    #[test]
    fn a_range_that_holds_zero_has_no_share() {
        let linux = filled().priced(prices(400.0, 400.0));
        assert_eq!(linux.saved_ns, [-226.0, 374.0]);
        assert_eq!((linux.share, linux.saved()), (None, 174.0));
    }

    #[test]
    fn mprotect_changes_512_pages_or_one_huge_page() {
        let mut both = Both::default();
        both.protected(700, Kinds { split: 100, huge: 1, in_huge: 512 });
        let Both { without, with, .. } = both;
        assert_eq!((without.small.protected, without.calls, with.calls), (700, 1, 1));
        assert_eq!((with.small.protected, with.split.protected, with.huge.protected), (88, 100, 1));
    }

    #[test]
    fn pages_are_copied_while_shared_and_freed_by_the_last() {
        let mut both = Both::default();
        assert_eq!(both.fault(1, false, true, true), FaultWork::Fresh);
        assert_eq!(both.fault(1, true, true, true), FaultWork::Reused, "nobody shares it");
        both.fork(1, 2, 512, Kinds { split: 0, huge: 1, in_huge: 512 });
        assert_eq!(both.fault(1, true, true, true), FaultWork::Copied);
        assert_eq!(both.fault(2, false, false, true), FaultWork::Reused, "a file's page");
        both.end(2, 512, Kinds { split: 512, huge: 0, in_huge: 0 });
        assert_eq!(both.fault(1, true, true, true), FaultWork::Reused, "the other has ended");
        both.end(1, 512, Kinds::default());
        let Both { without, with, .. } = both;
        assert_eq!((without.small.forked, with.small.forked, with.huge.forked), (512, 0, 1));
        assert_eq!((without.small.dropped, with.small.dropped, with.split.dropped), (512, 0, 512));
        assert_eq!((without.small.freed, with.small.freed), (512, 512));
        assert_eq!((without.forks, without.ends, without.copied, without.reused), (1, 2, 1, 3));
    }
}
