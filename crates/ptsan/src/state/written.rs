//! The pages that CPUs wrote through clean entries: hardware has set the dirty bit there.
use crate::hash::FastMap;
use crate::shadow::FrameRef;
use std::collections::BTreeMap;

/// The most pages that are remembered.
const MOST: usize = 1 << 16;

/// A page that a CPU wrote through an entry that was clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) cpu: usize,
    /// Physical address of the entry.
    pub(crate) entry: u64,
    /// Physical address of the page.
    pub(crate) phys: u64,
    /// Event of the write.
    pub(crate) event: u64,
}

/// The written pages to whose entries no store was told since.
#[derive(Default)]
pub(crate) struct WrittenPages {
    /// By root and address of the page.
    pages: BTreeMap<(FrameRef, u64), Written>,
    by_entry: FastMap<u64, (FrameRef, u64)>,
}

impl WrittenPages {
    /// Notes that a page at an address below a root was written.
    pub(crate) fn note(&mut self, root: FrameRef, va: u64, written: Written) {
        if self.pages.len() >= MOST {
            *self = Self::default();
        }
        self.pages.insert((root, va), written);
        self.by_entry.insert(written.entry, (root, va));
    }

    /// Forgets the page of an entry that is stored to.
    #[inline]
    pub(crate) fn stored(&mut self, entry: u64) {
        if !self.by_entry.is_empty()
            && let Some(page) = self.by_entry.remove(&entry)
        {
            self.pages.remove(&page);
        }
    }

    /// Takes the pages in `bytes` bytes at an address below a root.
    pub(crate) fn take(&mut self, root: FrameRef, va: u64, bytes: u64) -> Vec<(u64, Written)> {
        let all = self.pages.range((root, va)..=(root, va.saturating_add(bytes - 1)));
        let taken: Vec<_> = all.map(|(&(_, va), &written)| (va, written)).collect();
        taken.iter().for_each(|(_, written)| self.stored(written.entry));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::FrameTable;

    #[test]
    fn written_pages_are_taken_by_root_and_range() {
        let mut frames = FrameTable::default();
        let [a, b] = [0x1000, 0x2000].map(|phys| frames.insert(phys, 0x1000, None, 1));
        let written = |entry| Written { cpu: 0, entry, phys: entry << 8, event: entry };
        let mut pages = WrittenPages::default();
        for (root, va, entry) in [(a, 0x1000, 1), (a, 0x2000, 2), (a, 0x3000, 3), (b, 0x2000, 4)] {
            pages.note(root, va, written(entry));
        }
        pages.stored(2);
        pages.stored(9);
        assert_eq!(pages.take(a, 0x1000, 0x2000), [(0x1000, written(1))]);
        assert_eq!(pages.take(a, 0, 1 << 40), [(0x3000, written(3))]);
        assert_eq!(pages.take(b, 0x2000, u64::MAX), [(0x2000, written(4))]);
        assert!(pages.pages.is_empty() && pages.by_entry.is_empty());
    }
}
