//! Software that walks tables without a lock.
use crate::hash::FastMap;
use crate::shadow::FrameRef;
use std::collections::BTreeMap;

/// The most tables that one is remembered to have.
const MOST_HELD: usize = 1 << 16;

/// A walk by software that holds no lock: from [`crate::Sanitizer::reader_begins`] to
/// [`crate::Sanitizer::reader_ends`].
/// ```
/// use ptsan::{Arch, Content, Config, Reader, Sanitizer};
///
/// let (mut san, memory) = (Sanitizer::new(Config::new(Arch::x86_64())), vec![0u8; 1 << 16]);
/// san.table_allocated(&memory, 0x1000, 4096, Some(3), Content::Zero);
/// let reader = san.reader_begins(&memory, 0x1000);
/// san.reader_reads(&memory, reader, 0x1000);
/// san.reader_ends(Reader::of_number(reader.number()));
/// san.assert_clean();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reader(pub(crate) u64);

impl Reader {
    /// Returns a number that stands for the reader, for interfaces to other languages.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the reader that has a number. A number that no reader has is refused by the hooks.
    #[must_use]
    pub const fn of_number(number: u64) -> Self {
        Self(number)
    }
}

/// A reader under way.
pub(crate) struct Walking {
    pub(crate) reader: Reader,
    pub(crate) root: u64,
    /// Event at which it began.
    pub(crate) since: u64,
    /// The tables that it has read an entry to, or may have: with the event at which they were
    /// taken out of the tree, or read.
    held: FastMap<FrameRef, u64>,
}

impl Walking {
    pub(crate) fn hold(&mut self, table: FrameRef, event: u64) {
        if self.held.len() < MOST_HELD {
            self.held.entry(table).or_insert(event);
        }
    }

    pub(crate) fn holds(&self, table: FrameRef) -> Option<u64> {
        self.held.get(&table).copied()
    }

    /// Forgets a table that was reported.
    pub(crate) fn forget(&mut self, table: FrameRef) {
        self.held.remove(&table);
    }
}

/// All readers under way, in the order in which they began.
#[derive(Default)]
pub(crate) struct Readers {
    pub(crate) walking: BTreeMap<u64, Walking>,
    next: u64,
}

impl Readers {
    pub(crate) fn begin(&mut self, root: u64, since: u64) -> Reader {
        self.next += 1;
        let reader = Reader(self.next);
        self.walking.insert(self.next, Walking { reader, root, since, held: FastMap::default() });
        reader
    }

    /// Ends a reader. Returns whether it was under way.
    pub(crate) fn end(&mut self, reader: Reader) -> bool {
        self.walking.remove(&reader.0).is_some()
    }

    pub(crate) fn get(&mut self, reader: Reader) -> Option<&mut Walking> {
        self.walking.get_mut(&reader.0)
    }
}
