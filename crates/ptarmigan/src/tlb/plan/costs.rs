//! Prices the work of a flush by the costs of a machine's operations.

/// The costs of a machine's operations, in picoseconds.
///
/// [`new`](Self::new) describes a machine that has an instruction for one page and one for
/// everything, and on which a loop has no cost. 2^64 - 1 is more than anything: no plan needs it.
///
/// ```
/// use ptarmigan::tlb::Costs;
/// // A bus-wide invalidation of 80 ns, or a flush of 2 us after which 300 pages are refilled.
/// let costs = Costs { refill: 30_000, resident: 300, ..Costs::new(80_000, 2_000_000) };
/// assert_eq!((costs.ranged_page, costs.window), (80_000, 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Forgetting one page by its name; if a hash table may hold it, one that it does not hold.
    pub page: u64,
    /// Forgetting one page by its name that a hash table may hold. Counts as `page` if it is less.
    pub page_hashed: u64,
    /// Going on to the next page.
    pub step: u64,
    /// Beginning a run of pages.
    pub run: u64,
    /// Forgetting one page of a run or of a window. A page that a hash table holds costs as much
    /// more as it does by its name.
    pub ranged_page: u64,
    /// Beginning a window: one range from the first to the last stale page.
    pub window: u64,
    /// Forgetting everything.
    pub full: u64,
    /// Going through one entry while everything is forgotten, where everything is the range over
    /// all entries. The stale pages among them cost as much as in a run, so such a flush is never
    /// cheaper than their run. 0 on machines that forget everything at once.
    pub full_entry: u64,
    /// Entries that are gone through, where [`Facts`](super::Facts) do not say it. A number, no
    /// price.
    pub entries: u64,
    /// Finding the translation of a page again that was forgotten without being stale.
    pub refill: u64,
    /// Pages to be found again after everything was forgotten, where [`Facts`](super::Facts) do not
    /// say it. A number, no price.
    pub resident: u64,
    /// Asking other CPUs, and waiting for their answers.
    pub ask: u64,
    /// Each CPU that is asked.
    pub ask_cpu: u64,
}

impl Costs {
    /// Describes a machine that forgets a page for `page` picoseconds and everything for `full`.
    pub const fn new(page: u64, full: u64) -> Self {
        Costs {
            page,
            page_hashed: page,
            step: 0,
            run: 0,
            ranged_page: page,
            window: 0,
            full,
            full_entry: 0,
            entries: 0,
            refill: 0,
            resident: 0,
            ask: 0,
            ask_cpu: 0,
        }
    }

    /// Returns the price of `work`, at most 2^64 - 1.
    pub fn price(&self, work: &Work) -> u64 {
        let hashed = self.page_hashed.saturating_sub(self.page);
        [
            (work.pages, self.page),
            (work.ranged, self.ranged_page),
            (work.hashed, hashed),
            (work.steps, self.step),
            (work.runs, self.run),
            (work.windows, self.window),
            (work.fulls, self.full),
            (work.entries, self.full_entry),
            (work.refills, self.refill),
            (work.rounds, self.ask),
            (work.asked, self.ask_cpu),
        ]
        .into_iter()
        .fold(0, |sum: u64, (count, price)| sum.saturating_add(count.saturating_mul(price)))
    }
}

/// Operations, counted: of a plan, or of a run that was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages that are forgotten by name.
    pub pages: u64,
    /// Pages that are forgotten as part of a run or a window.
    pub ranged: u64,
    /// Of both, those that a hash table may hold.
    pub hashed: u64,
    /// Pages that are gone on to.
    pub steps: u64,
    /// Runs that are begun.
    pub runs: u64,
    /// Windows that are begun.
    pub windows: u64,
    /// Times that everything is forgotten.
    pub fulls: u64,
    /// Entries that are gone through to forget everything.
    pub entries: u64,
    /// Pages that are found again.
    pub refills: u64,
    /// Times that other CPUs are asked.
    pub rounds: u64,
    /// CPUs that are asked.
    pub asked: u64,
}
