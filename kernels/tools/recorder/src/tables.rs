//! The memory of tables, as the log describes it.

use std::collections::HashMap;

/// Bytes of a page. Tables are whole pages.
pub const PAGE: u64 = 4096;

struct RecordedTable {
    /// It has been announced, and not been freed since.
    live: bool,
    bytes: [u8; PAGE as usize],
}

/// Pages that are tables, or have been.
#[derive(Default)]
pub struct RecordedTables(HashMap<u64, RecordedTable>);

impl RecordedTables {
    /// Whether the page at `phys` has ever been a table.
    pub fn knows(&self, phys: u64) -> bool {
        self.0.contains_key(&(phys / PAGE))
    }

    /// Whether it is one now.
    pub fn is_live(&self, phys: u64) -> bool {
        self.0.get(&(phys / PAGE)).is_some_and(|table| table.live)
    }

    /// A page has become a table. Calls `differs` for each run of bytes that differ from the log,
    /// with its offset.
    pub fn allocated(&mut self, phys: u64, now: &[u8; PAGE as usize], mut differs: impl FnMut(usize, &[u8])) {
        let zero = || RecordedTable { live: true, bytes: [0; PAGE as usize] };
        let table = self.0.entry(phys / PAGE).or_insert_with(zero);
        table.live = true;
        // By words, so that runs are few.
        let words = PAGE as usize / 8;
        let is_old = |word: usize| table.bytes[word * 8..][..8] == now[word * 8..][..8];
        let mut word = 0;
        while word < words {
            let begin = (word..words).find(|w| !is_old(*w)).unwrap_or(words);
            let end = (begin..words).find(|w| is_old(*w)).unwrap_or(words);
            if begin < end {
                differs(begin * 8, &now[begin * 8..end * 8]);
            }
            word = end;
        }
        table.bytes = *now;
    }

    /// A page is no table any more.
    pub fn freed(&mut self, phys: u64) {
        if let Some(table) = self.0.get_mut(&(phys / PAGE)) {
            table.live = false;
        }
    }

    /// Bytes of a page from `phys` on were stored.
    pub fn stored(&mut self, phys: u64, bytes: &[u8]) {
        let at = (phys % PAGE) as usize;
        if let Some(table) = self.0.get_mut(&(phys / PAGE))
            && let Some(to) = table.bytes.get_mut(at..at + bytes.len())
        {
            to.copy_from_slice(bytes);
        }
    }

    /// Returns the bytes of the page from `phys` on, up to its end.
    pub fn content(&self, phys: u64) -> &[u8] {
        self.0.get(&(phys / PAGE)).map_or(&[], |table| &table.bytes[(phys % PAGE) as usize..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_log_does_not_say_differs() {
        let mut tables = RecordedTables::default();
        let mut page = [0; PAGE as usize];
        let mut runs = Vec::new();
        (page[16], page[31], page[4095]) = (1, 2, 3);
        tables.allocated(0x1000, &page, |at, bytes| runs.push((at, bytes.len())));
        assert_eq!(runs, [(16, 16), (4088, 8)]);
        tables.stored(0x1010, &[9]);
        tables.freed(0x1000);
        assert!(tables.knows(0x1000) && !tables.is_live(0x1000));
        let mut runs = Vec::new();
        tables.allocated(0x1000, &page, |at, bytes| runs.push((at, bytes.len())));
        assert_eq!(runs, [(16, 8)]);
        assert_eq!(tables.content(0x101f)[..2], [2, 0]);
    }
}
