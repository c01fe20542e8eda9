//! The functions that a policy of one's own has.
use super::page::Page;

/// Decides which table pages are kept, and for which tables.
///
/// Levels count from 0, the leaf tables; CPUs are the recorded ones. Calls come one after the
/// other, from one thread or another. A panic ends the replay with an error.
///
/// # Example
///
/// ```
/// use ptarmigan_replay::{Page, PolicyOptions, TablePolicy, Trace, run_with};
///
/// /// Keeps up to 100 pages for all CPUs.
/// #[derive(Default)]
/// struct Hundred(Vec<Page>);
///
/// impl TablePolicy for Hundred {
///     fn name(&self) -> &str {
///         "hundred"
///     }
///
///     fn alloc(&mut self, level: u8, _cpu: usize) -> Option<Page> {
///         let found = self.0.iter().rposition(|page| page.serves(level))?;
///         Some(self.0.remove(found))
///     }
///
///     fn free(&mut self, page: Page, _level: u8, _cpu: usize) -> Option<Page> {
///         if self.0.len() == 100 {
///             return Some(page);
///         }
///         self.0.push(page);
///         None
///     }
/// }
///
/// let trace = Trace::open("fixture".as_ref()).expect("a shipped recording");
/// let options = PolicyOptions { memory: 256 << 20, ..PolicyOptions::default() };
/// let result = run_with(trace, Box::new(Hundred::default()), &options).expect("a replay");
/// assert!(result.hits() > 0 && result.peak_kept <= 100);
/// ```
pub trait TablePolicy: Send {
    /// Returns the name, for messages and results.
    fn name(&self) -> &str;

    /// A table of `level` is made on `cpu`. Returns a kept page that [serves](Page::serves) the
    /// level, or `None`: the table gets a new page from the allocator, which clears it.
    fn alloc(&mut self, level: u8, cpu: usize) -> Option<Page>;

    /// A table of `level` has gone, and no TLB knows it any more: `page` was its page, clean again.
    /// Keeps the page and returns `None`, or returns it, or another page that it kept: that one
    /// goes back to the allocator. So do pages that are dropped, and at the end of the replay all.
    fn free(&mut self, page: Page, level: u8, cpu: usize) -> Option<Page>;
}
