//! A hash table and the pages of many programs, in a random order that is the same in each run.
use ptarmigan::tlb::hash::{HashCounts, HashLayout, HashSize, HashTable, Inserted, Mapping, Refill, Tag};
use ptarmigan_ptsan::HashMemory;

/// Pages of each program: its text, its heap and its stack.
const AREAS: [(u32, u32); 3] = [(0x1000_0000, 200), (0x1010_0000, 700), (0xbff0_0000, 124)];
const PAGE_SHIFT: u32 = 12;

/// A table and its pages.
pub(super) struct Load<L> {
    // Before the memory that it is in: fields are dropped in order.
    table: HashTable<L>,
    _memory: HashMemory,
    /// All pages, and the order of the next pass.
    pages: Vec<Tag>,
    random: u64,
    /// All pages have been put in since they were last flushed: software's entries say so.
    was_hashed: bool,
    /// Pages that TLBs were told to forget.
    pub tlbies: u64,
}

impl<L: HashLayout> Load<L> {
    /// Makes an empty table of `bytes` bytes, for `resident` pages.
    ///
    /// # Errors
    /// If there is no such table, or the host has no memory for it.
    pub fn new(bytes: u64, resident: usize) -> Result<Self, String> {
        let size = HashSize::new::<L>(bytes).map_err(|e| e.to_string())?;
        let memory = HashMemory::new(size).ok_or("no memory for the hash table")?;
        // SAFETY: 1. The memory is `bytes` long and freed after the table; nothing else uses it.
        let table = unsafe { HashTable::new(memory.base(), bytes) }.map_err(|e| e.to_string())?;
        let of_program = |context: u32| {
            let pages = AREAS.into_iter().flat_map(|(start, pages)| (0..pages).map(move |n| (start, n)));
            pages.map(move |(start, n)| Tag::of(context, start + (n << PAGE_SHIFT)))
        };
        let pages = (1..).flat_map(of_program).take(resident).collect();
        let random = 0x9e37_79b9_7f4a_7c15;
        Ok(Load { table, _memory: memory, pages, random, was_hashed: false, tlbies: 0 })
    }

    /// Calls `visit` for every page, each time in another order.
    fn each(&mut self, mut visit: impl FnMut(&mut Self, Tag)) {
        let mut pages = std::mem::take(&mut self.pages);
        for at in (1..pages.len()).rev() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            pages.swap(at, (self.random % (at as u64 + 1)) as usize);
        }
        pages.iter().for_each(|tag| visit(self, *tag));
        self.pages = pages;
    }

    /// Uses every page once: those that are missed are put in. Returns how many were missed, and
    /// how many went to the secondary group.
    pub fn use_all(&mut self) -> (u64, u64) {
        let (mut missed, mut secondary) = (0, 0);
        self.each(|load, tag| {
            if load.table.look_up(tag).is_none() {
                missed += 1;
                let entry = Mapping(tag.vsid() << PAGE_SHIFT | 2);
                // SAFETY: 1. no MMU reads the table. 2. every page is used once in a pass.
                let how = unsafe { load.table.insert(tag, Refill { entry, was_hashed: load.was_hashed }) };
                secondary += u64::from(how == Inserted::Secondary);
            }
        });
        self.was_hashed = true;
        (missed, secondary)
    }

    /// Flushes every page by name.
    pub fn flush_all(&mut self) {
        self.each(|load, tag| {
            let mut told = 0;
            load.table.remove(tag, || told += 1);
            load.tlbies += told;
        });
        self.was_hashed = false;
    }

    /// Clears the table. Returns the number of entries that were valid.
    pub fn wipe(&mut self) -> u64 {
        self.was_hashed = false;
        self.table.wipe(|| ()) as u64
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Returns the counts of the table's operations.
    pub fn counts(&self) -> HashCounts {
        self.table.counts()
    }

    /// Returns the number of valid entries.
    pub fn valid(&self) -> u64 {
        self.table.valid() as u64
    }
}
