//! The pages that a policy of one's own keeps: real ones in a store, and tokens for the policy.
use ptarmigan::page::{Clean, Level, MAX_LEVELS};
use std::sync::{Arc, Mutex, PoisonError};

/// A clean page-table page that a policy keeps.
///
/// It stands for a page that the replay holds, so a policy can neither copy nor lose one. A policy
/// that drops it gives the page up: it goes back to the allocator at the next call.
///
/// ```compile_fail,E0599
/// fn twice(page: ptarmigan_replay::Page) -> [ptarmigan_replay::Page; 2] {
///     [page.clone(), page] // one page for two tables
/// }
/// ```
#[derive(Debug)]
#[must_use = "a page that is dropped goes back to the allocator"]
pub struct Page {
    /// The place in the store; `None` once the store has its page back.
    place: Option<usize>,
    level: u8,
    root: u8,
    home: Arc<Home>,
}

/// The places of pages that were dropped.
#[derive(Debug, Default)]
struct Home(Mutex<Vec<usize>>);

impl Home {
    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Page {
    /// Returns the level of the table that the page was: 0 for leaf tables.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Returns whether the page can be a table of `level`. Root tables hold the kernel's entries,
    /// so they stay root tables. All other pages are zero, and serve every level but the root's.
    #[must_use]
    pub fn serves(&self, level: u8) -> bool {
        level <= self.root && (level == self.root) == (self.level == self.root)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        }
    }
}

/// The pages that one policy keeps.
pub(super) struct KeptPages {
    pages: Vec<Option<Clean>>,
    /// Places without a page.
    free: Vec<usize>,
    root: Level,
    home: Arc<Home>,
    /// Pages by the level that they had.
    kept: [u64; MAX_LEVELS],
    /// The most of each.
    peaks: [u64; MAX_LEVELS],
    /// The most of all.
    peak: u64,
}

impl KeptPages {
    /// Makes a store for tables of trees whose root is at `root`.
    pub fn new(root: Level) -> Self {
        KeptPages {
            pages: Vec::new(),
            free: Vec::new(),
            root,
            home: Arc::default(),
            kept: [0; MAX_LEVELS],
            peaks: [0; MAX_LEVELS],
            peak: 0,
        }
    }

    /// Stores a page.
    pub fn put(&mut self, page: Clean) -> Page {
        let level = page.level();
        let place = self.free.pop().unwrap_or_else(|| {
            self.pages.push(None);
            self.pages.len() - 1
        });
        self.pages[place] = Some(page);
        self.kept[level.at()] += 1;
        Page { place: Some(place), level: level.0, root: self.root.0, home: Arc::clone(&self.home) }
    }

    /// Returns the page that `token` stands for; `None` if it is a page of another store.
    pub fn take(&mut self, mut token: Page) -> Option<Clean> {
        if !Arc::ptr_eq(&token.home, &self.home) {
            return None;
        }
        let place = token.place.take()?;
        self.at(place)
    }

    /// Returns the pages that the policy has dropped.
    pub fn dropped(&mut self) -> Vec<Clean> {
        let places = self.home.take();
        places.into_iter().filter_map(|place| self.at(place)).collect()
    }

    /// Returns all pages. Tokens that the policy still holds stand for no page then.
    pub fn all(&mut self) -> Vec<Clean> {
        // Tokens of this store must not name pages that come later.
        self.home = Arc::default();
        self.free.clear();
        self.kept = [0; MAX_LEVELS];
        std::mem::take(&mut self.pages).into_iter().flatten().collect()
    }

    /// Notes how many pages there are, when a call has ended.
    pub fn note(&mut self) {
        self.peaks.iter_mut().zip(self.kept).for_each(|(peak, kept)| *peak = kept.max(*peak));
        self.peak = self.peak.max(self.kept.iter().sum());
    }

    /// Returns the most pages at once that had been tables of each level.
    pub fn peaks(&self) -> [u64; MAX_LEVELS] {
        self.peaks
    }

    /// Returns the most pages at once.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    fn at(&mut self, place: usize) -> Option<Clean> {
        let page = self.pages.get_mut(place)?.take()?;
        self.free.push(place);
        self.kept[page.level().at()] -= 1;
        Some(page)
    }
}
