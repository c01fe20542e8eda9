//! The entries that a frame held when it was announced as a table.

/// The entries that were not zero at the allocation, except those that were stored to since.
#[derive(Clone, Debug)]
pub(crate) struct Leftovers {
    /// Index and content, sorted by index. Content 0 marks an entry that was stored to.
    entries: Box<[(u32, u64)]>,
}

impl Leftovers {
    /// Records entries, given with rising indices.
    pub(crate) fn new(entries: impl Iterator<Item = (u32, u64)>) -> Self {
        Self { entries: entries.filter(|&(_, raw)| raw != 0).collect() }
    }

    /// Removes an entry that was stored to: its value is no older than the allocation.
    pub(crate) fn overwritten(&mut self, index: u32) {
        if let Ok(at) = self.entries.binary_search_by_key(&index, |&(index, _)| index) {
            self.entries[at].1 = 0;
        }
    }

    /// Returns the entries to which no store was told.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.entries.iter().copied().filter(|&(_, raw)| raw != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_entry_is_no_leftover_and_the_others_are() {
        let mut leftovers = Leftovers::new([(0, 7), (3, 0), (5, 9), (511, 1)].into_iter());
        leftovers.overwritten(5);
        leftovers.overwritten(5);
        leftovers.overwritten(4);
        assert_eq!(leftovers.iter().collect::<Vec<_>>(), [(0, 7), (511, 1)]);
    }
}
