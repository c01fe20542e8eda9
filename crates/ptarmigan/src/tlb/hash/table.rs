//! Inserts, finds and removes entries of a hash table.
//!
//! ```text
//!  word with tag and valid bit           word with frame and permissions
//!  insert    1. invalid, then a fence
//!                             ────────>  2. the new mapping
//!            3. the new tag, valid  <──  (release: stored last)
//!  remove    1. invalid, 2. forget  ──>  3. read: the MMU may have set bits until then
//! ```
//!
//! # Why
//!
//! MMUs search the table at any time and take no lock, so an entry must never show the tag of one
//! page with the frame of another. It is invalid while its other words are written, and its valid
//! bit is stored last.
//!
//! Changes are made under one lock of the table, because the hardware allows one `tlbie` at a time:
//! locks for each group would only move the waiting. The lock is held while TLBs forget the page,
//! and while a refill reads the software's entry. Otherwise a flush between that and the insertion
//! would find no entry, and the old mapping would come back after it.
use super::layout::{HashLayout, MOST_WORDS, Mapping, Tag};
use super::size::{GROUP, HashSize, HashSizeError};
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

/// How a page came into a hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// Its entry was there, and has been written anew.
    Again,
    /// Into a free entry of its primary group.
    Primary,
    /// Into a free entry of its secondary group.
    Secondary,
    /// Over another page's entry in its primary group.
    Evicted,
}

/// A page that is being put into a hash table: its entry, in the software's form (`u64`) or as the
/// table has it ([`Mapping`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill<E> {
    /// The entry.
    pub entry: E,
    /// The software's entry said already that the page was put in: it may be there.
    pub was_hashed: bool,
}

impl<E> Refill<E> {
    /// The same with the entry in another form.
    pub fn map<T>(self, f: impl FnOnce(E) -> T) -> Refill<T> {
        Refill { entry: f(self.entry), was_hashed: self.was_hashed }
    }
}

/// The counts of operations on a hash table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashCounts {
    /// Entries that were looked at.
    pub probes: usize,
    /// Entries that were written, or made invalid.
    pub stores: usize,
    /// Pages put in.
    pub inserted: usize,
    /// Of these, over another page's entry.
    pub evicted: usize,
    /// Pages taken out, or not found because they had been evicted.
    pub removed: usize,
    /// Of these, not found.
    pub missing: usize,
    /// How often the whole table was wiped.
    pub wiped: usize,
}

#[derive(Default)]
struct Counters {
    probes: AtomicUsize,
    stores: AtomicUsize,
    inserted: AtomicUsize,
    evicted: AtomicUsize,
    removed: AtomicUsize,
    missing: AtomicUsize,
    wiped: AtomicUsize,
}

/// A counter that is written under the table's lock alone.
fn add(counter: &AtomicUsize, n: usize) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// A hash table in memory, for one machine and all its spaces.
///
/// All changes are made under one lock. The MMU reads without it, at any time: an entry is invalid
/// while its other words are written, and valid last.
pub struct HashTable<L> {
    base: NonNull<AtomicU32>,
    groups: usize,
    /// The place in its group that an entry was last evicted from.
    turn: SpinLock<u8>,
    counters: Counters,
    _layout: PhantomData<L>,
}

// SAFETY: the words are atomics, which any thread may use (contract of `new`, 1.).
unsafe impl<L> Send for HashTable<L> {}
// SAFETY: as above.
unsafe impl<L> Sync for HashTable<L> {}

impl<L: HashLayout> HashTable<L> {
    /// Takes over the memory at `base`, aligned to the table's size, and clears it. `bytes` is its
    /// size.
    ///
    /// # Errors
    ///
    /// [`HashSizeError`] if that is no size of a table, or `base` is not aligned to it; the memory
    /// is unchanged then.
    ///
    /// # Safety
    ///
    /// 1. The memory must be valid for reads and writes as long as the table is there, and only the
    ///    MMU may use it otherwise.
    pub unsafe fn new(base: NonNull<u8>, bytes: u64) -> Result<Self, HashSizeError> {
        let size = HashSize::new::<L>(bytes)?;
        if !(base.as_ptr() as usize).is_multiple_of(size.bytes()) {
            return Err(HashSizeError { bytes, least: (L::LEAST_GROUPS * GROUP * L::WORDS * 4) as u64 });
        }
        // SAFETY: the memory is the table's (1.), and is aligned.
        unsafe { base.write_bytes(0, size.bytes()) };
        Ok(HashTable {
            base: base.cast(),
            groups: size.groups(),
            turn: SpinLock::new(0),
            counters: Counters::default(),
            _layout: PhantomData,
        })
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> usize {
        self.groups * GROUP
    }

    /// Returns the counts so far. While others change it, the numbers may lag behind.
    pub fn counts(&self) -> HashCounts {
        let [probes, stores, inserted, evicted, removed, missing, wiped] = {
            let c = &self.counters;
            [&c.probes, &c.stores, &c.inserted, &c.evicted, &c.removed, &c.missing, &c.wiped]
                .map(|counter| counter.load(Ordering::Relaxed))
        };
        HashCounts { probes, stores, inserted, evicted, removed, missing, wiped }
    }

    /// Word `word` of entry `entry`, counted over the whole table.
    fn word(&self, entry: usize, word: usize) -> &AtomicU32 {
        debug_assert!(entry < self.entries() && word < L::WORDS);
        // SAFETY: the table has that entry, and the entry has that word; the memory is valid as
        // long as `self` is there, and used as atomics only (contract of `new`).
        unsafe { self.base.add(entry * L::WORDS + word).as_ref() }
    }

    /// The first entry of the primary or secondary group of a page.
    fn group(&self, tag: Tag, secondary: bool) -> usize {
        let hash = if secondary { !tag.hash() } else { tag.hash() };
        (hash as usize & (self.groups - 1)) * GROUP
    }

    /// Finds the entry of a page: which one, and whether it is in the secondary group. `probes`
    /// counts the entries that were looked at.
    fn find(&self, tag: Tag, probes: &mut usize) -> Option<(usize, bool)> {
        for secondary in [false, true] {
            let wanted = L::encode(tag, secondary, Mapping(0));
            let first = self.group(tag, secondary);
            for entry in first..first + GROUP {
                *probes += 1;
                // The words up to the one with the valid bit are the tag.
                let matches = (0..=L::VALID_WORD)
                    .all(|word| self.word(entry, word).load(Ordering::Acquire) == wanted[word]);
                if matches {
                    return Some((entry, secondary));
                }
            }
        }
        None
    }

    /// The first free entry of a page's primary or secondary group.
    fn free(&self, tag: Tag, secondary: bool, probes: &mut usize) -> Option<usize> {
        let first = self.group(tag, secondary);
        (first..first + GROUP).find(|entry| {
            *probes += 1;
            !self.is_valid(*entry)
        })
    }

    fn is_valid(&self, entry: usize) -> bool {
        self.word(entry, L::VALID_WORD).load(Ordering::Relaxed) & L::VALID != 0
    }

    fn invalidate(&self, entry: usize) {
        self.word(entry, L::VALID_WORD).store(0, Ordering::Relaxed);
        // Before the other words are written.
        fence(Ordering::SeqCst);
    }

    fn write(&self, entry: usize, words: [u32; MOST_WORDS]) {
        for (word, value) in words.iter().enumerate().take(L::WORDS) {
            if word != L::VALID_WORD {
                self.word(entry, word).store(*value, Ordering::Relaxed);
            }
        }
        // Last: it makes the others known to the MMU.
        self.word(entry, L::VALID_WORD).store(words[L::VALID_WORD], Ordering::Release);
    }

    /// Puts a page in, or writes its entry anew: into its own entry, a free one of its primary
    /// group, a free one of its secondary group, or over an entry of its primary group, each time
    /// the next one in turn, beginning with the second. Its own entry is searched only if the page
    /// was hashed before.
    ///
    /// The page that has to go is not flushed: translations in TLBs stay true, and the entry in the
    /// tree still says that a flush is needed.
    ///
    /// An entry that is written anew may be known to TLBs as it was. The caller flushes it where
    /// that matters.
    ///
    /// The MMU believes the table, so code that may write to it reaches all memory:
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::tlb::hash::{HashTable, Hashed32, Mapping, Refill, Tag};
    /// fn show(table: &HashTable<Hashed32>, page: Tag) {
    ///     table.insert(page, Refill { entry: Mapping(0x1000 | 2), was_hashed: false }); // whose frame?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// 1. Until the page is taken out, code that runs in the segment of `tag` may access the frame
    ///    as the mapping allows.
    /// 2. If `page` says that the page was not hashed, it has not been put in since it was last
    ///    taken out.
    pub unsafe fn insert(&self, tag: Tag, page: Refill<Mapping>) -> Inserted {
        self.insert_locked(&mut self.turn.lock(), tag, page)
    }

    fn insert_locked(&self, turn: &mut u8, tag: Tag, page: Refill<Mapping>) -> Inserted {
        let mut probes = 0;
        let own = if page.was_hashed { self.find(tag, &mut probes) } else { None };
        let (entry, secondary, how) = if let Some((entry, secondary)) = own {
            (entry, secondary, Inserted::Again)
        } else if let Some(entry) = self.free(tag, false, &mut probes) {
            (entry, false, Inserted::Primary)
        } else if let Some(entry) = self.free(tag, true, &mut probes) {
            (entry, true, Inserted::Secondary)
        } else {
            *turn = turn.wrapping_add(1);
            let place = usize::from(*turn) % GROUP;
            (self.group(tag, false) + place, false, Inserted::Evicted)
        };
        if self.is_valid(entry) {
            self.invalidate(entry);
        }
        self.write(entry, L::encode(tag, secondary, page.entry));
        add(&self.counters.probes, probes);
        add(&self.counters.stores, 1);
        add(&self.counters.inserted, 1);
        add(&self.counters.evicted, usize::from(how == Inserted::Evicted));
        how
    }

    /// Puts a page in for a CPU that has missed it, as [`insert`](Self::insert) does, if `entry`
    /// returns its mapping. `entry` runs under the table's lock: it reads the software's entry, and
    /// notes in it that the page is hashed. So a flush that comes between the two, after the entry
    /// has changed, does not leave the old one in the table.
    ///
    /// Returns the outcome; `None` if `entry` did.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::tlb::hash::{HashTable, Hashed32, Mapping, Refill, Tag};
    /// fn show(table: &HashTable<Hashed32>, page: Tag) {
    ///     table.refill(page, || Some(Refill { entry: Mapping(0x1000 | 2), was_hashed: false }));
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// The result of `entry` must be as for [`insert`](Self::insert), 1. and 2.
    pub unsafe fn refill(
        &self,
        tag: Tag,
        entry: impl FnOnce() -> Option<Refill<Mapping>>,
    ) -> Option<Inserted> {
        let mut turn = self.turn.lock();
        Some(self.insert_locked(&mut turn, tag, entry()?))
    }

    /// Takes a page out, and has the TLBs forget it: `forget` runs with the entry invalid, under
    /// the table's lock, as hardware allows one `tlbie` at a time. It runs also if the page was not
    /// found: its entry had to go, and TLBs may know it all the same.
    ///
    /// Returns the page's last mapping, with the bits that the MMU has set since; `None` if it was
    /// not found.
    pub fn remove(&self, tag: Tag, forget: impl FnOnce()) -> Option<Mapping> {
        let _turn = self.turn.lock();
        let mut probes = 0;
        let found = self.find(tag, &mut probes);
        if let Some((entry, _)) = found {
            self.invalidate(entry);
        }
        forget();
        add(&self.counters.probes, probes);
        add(&self.counters.stores, usize::from(found.is_some()));
        add(&self.counters.removed, 1);
        add(&self.counters.missing, usize::from(found.is_none()));
        // Read after the TLBs have forgotten it: they may write these bits until then.
        found.map(|(entry, _)| self.mapping(entry))
    }

    /// Takes all pages of some segments of a context out, and has the TLBs forget everything:
    /// `forget` runs with these entries invalid. Every entry of the table is looked at. Returns the
    /// number of entries that were valid.
    pub fn remove_segments(&self, context: u32, segments: Range<u32>, forget: impl FnOnce()) -> usize {
        let mut gone = [None; 16];
        for (segment, vsid) in gone.iter_mut().enumerate() {
            let segment = segment as u32;
            *vsid = segments.contains(&segment).then(|| Tag::of(context, segment << 28).vsid());
        }
        let _turn = self.turn.lock();
        let mut n = 0;
        for entry in 0..self.entries() {
            let words = core::array::from_fn(|word| {
                if word < L::WORDS { self.word(entry, word).load(Ordering::Relaxed) } else { 0 }
            });
            if words[L::VALID_WORD] & L::VALID != 0 && gone.contains(&Some(L::vsid(words))) {
                self.word(entry, L::VALID_WORD).store(0, Ordering::Relaxed);
                n += 1;
            }
        }
        fence(Ordering::SeqCst);
        forget();
        add(&self.counters.probes, self.entries());
        add(&self.counters.stores, n);
        n
    }

    /// Takes all pages out, and has the TLBs forget everything: `forget` runs with all entries
    /// invalid. Returns the number of entries that were valid.
    pub fn wipe(&self, forget: impl FnOnce()) -> usize {
        let _turn = self.turn.lock();
        let mut n = 0;
        for entry in 0..self.entries() {
            n += usize::from(self.is_valid(entry));
            self.word(entry, L::VALID_WORD).store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        forget();
        add(&self.counters.stores, self.entries());
        add(&self.counters.wiped, 1);
        n
    }

    /// Takes all pages out one by one, as has to be done while MMUs search the table: each valid
    /// entry is made invalid and synchronised, and `forget` has the TLBs forget its page, before
    /// the next one is looked at. Returns the number of entries that were valid.
    ///
    /// [`wipe`](Self::wipe) synchronises once, after its last store. That is enough where no CPU
    /// uses the table meanwhile, as when it is emptied at a switch with no number in use.
    pub fn wipe_synchronised(&self, mut forget: impl FnMut()) -> usize {
        let _turn = self.turn.lock();
        let mut n = 0;
        for entry in 0..self.entries() {
            if self.is_valid(entry) {
                self.invalidate(entry);
                forget();
                n += 1;
            }
        }
        add(&self.counters.probes, self.entries());
        add(&self.counters.stores, n);
        add(&self.counters.wiped, 1);
        n
    }

    /// Looks a page up as the MMU does, without the lock.
    pub fn look_up(&self, tag: Tag) -> Option<Mapping> {
        let (entry, _) = self.find(tag, &mut 0)?;
        Some(self.mapping(entry))
    }

    /// Returns the number of valid entries.
    pub fn valid(&self) -> usize {
        (0..self.entries()).filter(|entry| self.is_valid(*entry)).count()
    }

    fn mapping(&self, entry: usize) -> Mapping {
        Mapping(self.word(entry, L::WORDS - 1).load(Ordering::Relaxed))
    }
}
