//! The TLB of a CPU that looks pages up in a hash table.
//!
//! It knows pages by virtual segment, so that a switch to another space does not drop them. Entries
//! are kept by the index of their page, by which hardware invalidates them.
use crate::arch::{HashEntry, Tag};
use crate::hash::FastMap;
use crate::shadow::FrameRef;

/// A cached translation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashedEntry {
    /// The answer of the hash table.
    pub(crate) entry: HashEntry,
    /// The table of the software's tree that has the page's entry.
    pub(crate) via: FrameRef,
    /// Event at which it was read.
    pub(crate) since: u64,
    /// It refused an access that the hash table allowed.
    pub(crate) refused: bool,
}

/// Everything that a CPU has found in the hash table and was not told to forget.
#[derive(Default)]
pub(crate) struct HashedTlb {
    pages: FastMap<u64, Vec<HashedEntry>>,
    /// The number of entries by table.
    tables: FastMap<u64, u32>,
}

impl HashedTlb {
    /// Returns the translation held for a page.
    pub(crate) fn get(&self, tag: Tag) -> Option<HashedEntry> {
        self.pages.get(&u64::from(tag.page))?.iter().find(|held| held.entry.tag == tag).copied()
    }

    /// Holds an entry, in place of one for the same page.
    pub(crate) fn insert(&mut self, new: HashedEntry) {
        let tag = new.entry.tag;
        self.drop_tag(tag);
        self.pages.entry(u64::from(tag.page)).or_default().push(new);
        *self.tables.entry(new.via.key()).or_default() += 1;
    }

    /// Records that the translation of a page refused an access that the hash table allows. Returns
    /// whether it did so before.
    pub(crate) fn refuse(&mut self, tag: Tag) -> bool {
        let held = self.pages.get_mut(&u64::from(tag.page));
        let held = held.and_then(|all| all.iter_mut().find(|held| held.entry.tag == tag));
        held.is_some_and(|held| std::mem::replace(&mut held.refused, true))
    }

    /// Forgets a page.
    pub(crate) fn drop_tag(&mut self, tag: Tag) {
        self.drop_where(tag.page, |held| held.entry.tag == tag);
    }

    /// Forgets the pages with an index in all segments.
    pub(crate) fn drop_index(&mut self, page: u16) {
        self.drop_where(page, |_| true);
    }

    fn drop_where(&mut self, page: u16, gone: impl Fn(&HashedEntry) -> bool) {
        if let Some(held) = self.pages.get_mut(&u64::from(page)) {
            let tables = &mut self.tables;
            held.retain(|one| keep(tables, one, &gone));
        }
    }

    /// Forgets the pages of virtual segments.
    pub(crate) fn drop_segments(&mut self, gone: impl Fn(u64) -> bool) {
        let tables = &mut self.tables;
        for held in self.pages.values_mut() {
            held.retain(|one| keep(tables, one, |held| gone(held.entry.tag.vsid)));
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.tables.clear();
    }

    /// Returns the translations of pages that have their entries in a table.
    pub(crate) fn read_via(&self, table: FrameRef) -> impl Iterator<Item = HashedEntry> {
        // Every entry is looked at only if there are some of that table.
        let some = self.tables.contains_key(&table.key());
        let all = some.then(|| self.pages.values().flatten());
        all.into_iter().flatten().filter(move |held| held.via == table).copied()
    }
}

/// Returns whether an entry stays, and counts it off if it does not.
fn keep(tables: &mut FastMap<u64, u32>, held: &HashedEntry, gone: impl FnOnce(&HashedEntry) -> bool) -> bool {
    let gone = gone(held);
    if gone && let Some(count) = tables.get_mut(&held.via.key()) {
        *count -= 1;
        if *count == 0 {
            tables.remove(&held.via.key());
        }
    }
    !gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(vsid: u64, page: u16) -> HashedEntry {
        let entry = HashEntry { tag: Tag { vsid, page }, phys: 0x1000, protection: 2 };
        HashedEntry { entry, via: FrameRef::UNKNOWN, since: 0, refused: false }
    }

    #[test]
    fn what_is_forgotten_is_counted_off_its_table() {
        let mut tlb = HashedTlb::default();
        for (vsid, page) in [(1, 5), (2, 5), (1, 6), (1, 5)] {
            tlb.insert(held(vsid, page));
        }
        let read = |tlb: &HashedTlb| tlb.read_via(FrameRef::UNKNOWN).count();
        assert_eq!(read(&tlb), 3, "one of a page");
        tlb.drop_tag(Tag { vsid: 2, page: 5 });
        assert!(tlb.get(Tag { vsid: 2, page: 5 }).is_none() && tlb.get(Tag { vsid: 1, page: 5 }).is_some());
        tlb.drop_index(5);
        assert_eq!(read(&tlb), 1);
        tlb.drop_segments(|vsid| vsid == 1);
        assert_eq!((read(&tlb), tlb.tables.len()), (0, 0));
    }
}
