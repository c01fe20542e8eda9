//! The hooks of software that walks tables without a lock: a fast `get_user_pages`, a handler of
//! faults that looks first, a profiler.
use crate::memory::Memory;
use crate::report::Place;
use crate::state::{Reader, Sanitizer};

impl Sanitizer {
    /// Tells that software begins to walk the tables at `root` without their lock. Until it
    /// [ends](Self::reader_ends), a table that it can have reached is not to be freed
    /// ([`Kind::FreeUnderReader`](crate::Kind::FreeUnderReader)): the code that frees waits for a
    /// grace period, or interrupts the reader's CPU.
    ///
    /// Which tables it can have reached is known where stores are told: those that were linked
    /// below `root` at any time since it began. Else tell of each that it reads
    /// ([`reader_reads`](Self::reader_reads)).
    /// ```
    /// use ptsan::{Arch, Kind, Session};
    ///
    /// let mut s = Session::new(Arch::x86_2level(), vec![0u8; 1 << 16]);
    /// for (table, entry) in [(0x1000, 0x2007), (0x2000, 0x9007)] {
    ///     s.alloc(table);
    ///     s.put(table, entry);
    /// }
    /// let reader = s.sanitizer.reader_begins(&s.memory, 0x1000);
    /// s.put(0x1000, 0);                           // no CPU has the root loaded: no flush is needed,
    /// s.free(0x2000);                             // but the reader may be in the table
    /// s.sanitizer.reader_ends(reader);
    /// assert_eq!(s.sanitizer.count(Kind::FreeUnderReader), 1);
    /// ```
    pub fn reader_begins(&mut self, memory: &(impl Memory + ?Sized), root: u64) -> Reader {
        self.hook(|s| {
            let level = Some(s.config.arch.top());
            let place = Place { frame: Some(root), level, ..Place::default() };
            // Tables that were announced without a level get theirs.
            if !s.config.arch.levels.is_empty() {
                s.reached(memory, root, None, place, false);
            }
            s.readers.begin(root, s.event)
        })
    }

    /// Tells that a reader reads an entry of the table at `table`. One that was freed is
    /// [`Kind::UseAfterFree`](crate::Kind::UseAfterFree).
    pub fn reader_reads(&mut self, memory: &(impl Memory + ?Sized), reader: Reader, table: u64) {
        self.hook(|s| {
            s.adversary_acts(memory);
            if s.readers.get(reader).is_none() {
                let place = Place { frame: Some(table), ..Place::default() };
                return s.bad_argument(place, "reader_reads needs a reader that has begun and not ended");
            }
            s.read_by_software(reader, table);
        });
    }

    /// Tells that a reader has ended.
    pub fn reader_ends(&mut self, reader: Reader) {
        self.hook(|s| {
            if !s.readers.end(reader) {
                let needs = "reader_ends needs a reader that has begun and not ended";
                s.bad_argument(Place::default(), needs);
            }
        });
    }
}
