//! The cached translations and paging structures of one address space on one CPU.
//!
//! The TLB is one hash table by page, the paging-structure cache another by table position: "the
//! table of level L for this part of the address space". Memory goes with the entries held now, not
//! with all that was mapped once. An access, and an invalidation by address, look at one slot for
//! each level that has translations; dropping everything costs a few words. How many translations
//! were read at a position is counted, so that the usual question about a table, whether any
//! outlived it, is answered without a search.
use super::entry::{Invalid, Table, TlbEntry};
use super::flush::{Flush, Strides};
use super::slots::Slots;
use crate::arch::{Arch, MAX_LEVELS, StructureScope};
use crate::shadow::FrameRef;

/// A translation in the TLB.
#[derive(Clone, Copy)]
struct CachedTranslation {
    entry: TlbEntry,
    /// A speculative walk may have read it. No access is answered from it.
    maybe: bool,
}

/// The caches of one address space on one CPU.
pub(crate) struct Context {
    pub(crate) space: u64,
    /// Whether they are those of a device.
    device: bool,
    /// Raised whenever everything is dropped.
    pub(crate) generation: u32,
    /// The most translations, and the most tables, that are held.
    most: usize,
    pages: Slots<CachedTranslation>,
    /// The number of translations of each level that are held, or may be.
    held: [u64; MAX_LEVELS],
    /// The levels that have any, one bit each.
    levels: u8,
    /// The number of translations read from the table at each position.
    read: Slots<u32>,
    tables: Slots<Table>,
    /// Tables that a speculative walk may have read.
    maybe_tables: Slots<Table>,
    /// Entries that were not valid, by the page that each would map.
    invalid: Slots<Invalid>,
}

/// Identifies the page of `level` with `va`.
#[inline]
fn page(arch: &Arch, level: usize, va: u64) -> u64 {
    va >> arch.levels[level].shift << 3 | level as u64
}

/// Returns the level and the first address of a page.
fn place(arch: &Arch, page: u64) -> (usize, u64) {
    let level = (page & 7) as usize;
    (level, page >> 3 << arch.levels[level].shift)
}

impl Context {
    /// Makes the caches of a space of a CPU or a device, for `most` translations and as many
    /// tables.
    pub(crate) fn new(space: u64, most: usize, device: bool) -> Self {
        Self {
            space,
            device,
            generation: 0,
            most: most.max(1),
            pages: Slots::default(),
            held: [0; MAX_LEVELS],
            levels: 0,
            read: Slots::default(),
            tables: Slots::default(),
            maybe_tables: Slots::default(),
            invalid: Slots::default(),
        }
    }

    /// Returns the translation held for `va`, and its level.
    #[inline]
    pub(crate) fn lookup(&self, arch: &Arch, va: u64) -> Option<(u8, TlbEntry)> {
        self.levels().find_map(|level| {
            let held = self.pages.get(page(arch, level, va)).filter(|h| !h.maybe)?;
            Some((level as u8, held.entry))
        })
    }

    /// Notes that the translation of `va` denied an access. Returns whether it has before, or
    /// `None` if the CPU holds no translation of `va`.
    pub(crate) fn deny(&mut self, arch: &Arch, va: u64) -> Option<bool> {
        self.held_mut(arch, va).map(|entry| std::mem::replace(&mut entry.denied, true))
    }

    /// Returns the translation held for `va`, to be changed.
    pub(crate) fn held_mut(&mut self, arch: &Arch, va: u64) -> Option<&mut TlbEntry> {
        let is_held = |level: &usize| self.pages.get(page(arch, *level, va)).is_some_and(|h| !h.maybe);
        let level = self.levels().find(is_held)?;
        self.pages.get_mut(page(arch, level, va)).map(|held| &mut held.entry)
    }

    /// Lists the levels that have translations.
    #[inline]
    fn levels(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.levels;
        std::iter::from_fn(move || {
            let level = (left != 0).then_some(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(level)
        })
    }

    /// Returns the paging-structure entry for a position.
    #[inline]
    pub(crate) fn table(&self, position: u64) -> Option<Table> {
        self.tables.get(position).copied()
    }

    /// Returns whether there is any paging-structure entry.
    #[inline]
    pub(crate) fn has_tables(&self) -> bool {
        self.tables.len() > 0
    }

    /// Returns the table that the CPU holds for a position, or may hold.
    pub(crate) fn peek_table(&self, position: u64) -> Option<Table> {
        self.table(position).or_else(|| self.maybe_tables.get(position).copied())
    }

    /// Returns the translation of this level that the CPU holds for `va`, or may hold.
    pub(crate) fn peek(&self, arch: &Arch, level: u8, va: u64) -> Option<TlbEntry> {
        self.pages.get(page(arch, usize::from(level), va)).map(|held| held.entry)
    }

    /// Returns an address of a translation that the CPU holds, or may hold, from the table at a
    /// position.
    pub(crate) fn peek_any(&self, arch: &Arch, position: u64) -> Option<u64> {
        self.read_at(arch, position).next().map(|(va, _)| va)
    }

    /// Lists the entries that were read from the table at a position, by address.
    fn read_at<'a>(
        &'a self,
        arch: &'a Arch,
        position: u64,
    ) -> impl Iterator<Item = (u64, CachedTranslation)> + 'a {
        let level = (position & 7) as usize;
        let l = &arch.levels[level];
        let low = arch.position_start(position);
        let count = self.read.get(position).copied().unwrap_or_default() as usize;
        // Skips the search if no entry was read from the table.
        let entries = if count == 0 { 0 } else { l.entries() as u64 };
        let all = (0..entries).map(move |index| low.wrapping_add(index << l.shift));
        all.filter_map(move |va| Some((va, *self.pages.get(page(arch, level, va))?))).take(count)
    }

    /// Caches which table stands at a position.
    pub(crate) fn set_table(&mut self, position: u64, table: Table) {
        if self.tables.insert(position, table).is_none() && self.tables.len() > self.most {
            self.tables.evict();
        }
    }

    /// Notes that a speculative walk may have cached which table stood at a position.
    pub(crate) fn set_maybe_table(&mut self, position: u64, table: Table) {
        if self.maybe_tables.insert(position, table).is_none() && self.maybe_tables.len() > self.most {
            self.maybe_tables.evict();
        }
    }

    /// Caches a translation read from the entry for `va` in a table of `level`.
    pub(crate) fn insert(&mut self, arch: &Arch, level: u8, va: u64, entry: TlbEntry) {
        self.put(arch, level, va, CachedTranslation { entry, maybe: false });
    }

    /// Notes that a speculative walk may have cached a translation. The CPU must not hold one
    /// already.
    pub(crate) fn insert_maybe(&mut self, arch: &Arch, level: u8, va: u64, entry: TlbEntry) {
        self.put(arch, level, va, CachedTranslation { entry, maybe: true });
    }

    fn put(&mut self, arch: &Arch, level: u8, va: u64, held: CachedTranslation) {
        if self.pages.insert(page(arch, usize::from(level), va), held).is_some() {
            return;
        }
        self.held[usize::from(level)] += 1;
        self.levels |= 1 << level;
        let position = arch.position(level, va);
        match self.read.get_mut(position) {
            Some(count) => *count += 1,
            None => _ = self.read.insert(position, 1),
        }
        if self.pages.len() > self.most
            && let Some((old, _)) = self.pages.evict()
        {
            let (level, va) = place(arch, old);
            self.dropped(arch, level, va);
        }
    }

    /// Counts a translation that is held no more.
    fn dropped(&mut self, arch: &Arch, level: usize, va: u64) {
        self.held[level] -= 1;
        if self.held[level] == 0 {
            self.levels &= !(1 << level);
        }
        let position = arch.position(level as u8, va);
        match self.read.get_mut(position) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = self.read.remove(position),
        }
    }

    /// Caches an entry of `level` for `va` that is not valid.
    pub(crate) fn keep_invalid(&mut self, arch: &Arch, level: u8, va: u64, entry: Invalid) {
        let kept = self.invalid.insert(page(arch, usize::from(level), va), entry);
        if kept.is_none() && self.invalid.len() > self.most {
            self.invalid.evict();
        }
    }

    /// Returns a cached entry for `va` that was not valid, and its level: of several that of the
    /// highest level, which a walk meets first.
    pub(crate) fn invalid_at(&mut self, arch: &Arch, va: u64) -> Option<(u8, &mut Invalid)> {
        if self.invalid.len() == 0 {
            return None;
        }
        let mut levels = (0..=arch.top()).rev();
        let level = levels.find(|&level| self.invalid.get(page(arch, usize::from(level), va)).is_some())?;
        Some((level, self.invalid.get_mut(page(arch, usize::from(level), va))?))
    }

    /// Lists the cached entries that were not valid, each with its level and its first address.
    pub(crate) fn invalid<'a>(&'a self, arch: &'a Arch) -> impl Iterator<Item = (u8, u64, Invalid)> + 'a {
        self.invalid.iter().map(|(page, entry)| {
            let (level, va) = place(arch, page);
            (level as u8, arch.extend(va), *entry)
        })
    }

    /// Drops a cached entry that was not valid.
    pub(crate) fn forget_invalid(&mut self, arch: &Arch, level: u8, va: u64) {
        self.invalid.remove(page(arch, usize::from(level), va));
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.clear_pages();
        self.drop_tables();
    }

    /// Drops what a flush of the whole space drops.
    pub(crate) fn flush_all(&mut self, arch: &Arch, flush: &Flush) {
        match self.device && flush.spares_tables(arch.structures, true) {
            true => self.clear_pages(),
            false => self.clear(),
        }
    }

    /// Drops all translations and no table.
    fn clear_pages(&mut self) {
        self.pages.clear();
        self.read.clear();
        self.held = [0; MAX_LEVELS];
        self.levels = 0;
        self.invalid.clear();
    }

    /// Drops all paging-structure entries and no translation.
    pub(crate) fn drop_tables(&mut self) {
        self.tables.clear();
        self.maybe_tables.clear();
    }

    /// Invalidates one address of a flush, as [`StructureScope`] says.
    pub(crate) fn flush_page(&mut self, arch: &Arch, va: u64, flush: &Flush) {
        self.drop_translations(arch, va, |level| flush.drops_level(level));
        match arch.structures {
            scope if flush.spares_tables(scope, self.device) => {}
            StructureScope::AnyInvalidation => self.drop_tables(),
            StructureScope::Tagged => self.drop_path(arch, va),
            StructureScope::WholeSpace | StructureScope::None => {}
        }
    }

    /// Drops the translations of `va` of the levels that are `named`.
    pub(crate) fn drop_translations(&mut self, arch: &Arch, va: u64, named: impl Fn(u8) -> bool) {
        for level in self.levels().filter(|level| named(*level as u8)) {
            if self.pages.remove(page(arch, level, va)).is_some() {
                self.dropped(arch, level, va);
            }
        }
    }

    /// Drops the entries for one address only, as a fault does.
    pub(crate) fn drop_address(&mut self, arch: &Arch, va: u64) {
        self.drop_translations(arch, va, |_| true);
        self.drop_path(arch, va);
    }

    /// Drops the paging-structure entries on the way to `va`.
    fn drop_path(&mut self, arch: &Arch, va: u64) {
        for level in 0..arch.top() {
            let position = arch.position(level, va);
            self.tables.remove(position);
            self.maybe_tables.remove(position);
        }
    }

    /// Invalidates the addresses of a flush along a range.
    pub(crate) fn flush_range(&mut self, arch: &Arch, range: Strides, flush: &Flush) {
        let all = self.pages.len() + self.tables.len() + self.maybe_tables.len();
        if range.count() <= all as u64 {
            let mut va = range.start;
            while va < range.end {
                self.flush_page(arch, va, flush);
                let Some(next) = va.checked_add(range.stride) else { break };
                va = next;
            }
            return;
        }
        let hit = |page: u64| {
            let (level, va) = place(arch, page);
            flush.drops_level(level as u8) && range.hit(va, 1 << arch.levels[level].shift)
        };
        let mut dropped = Vec::new();
        self.pages.drop_where(hit, |page| dropped.push(place(arch, page)));
        dropped.into_iter().for_each(|(level, va)| self.dropped(arch, level, va));
        match arch.structures {
            scope if flush.spares_tables(scope, self.device) => {}
            StructureScope::AnyInvalidation if range.count() > 0 => self.drop_tables(),
            StructureScope::Tagged => {
                let hit = |position: u64| {
                    let l = &arch.levels[(position & 7) as usize];
                    let span = (1u64 << l.shift).saturating_mul(l.entries() as u64);
                    range.hit(arch.position_start(position), span)
                };
                self.tables.drop_where(hit, |_| {});
                self.maybe_tables.drop_where(hit, |_| {});
            }
            _ => {}
        }
    }

    /// Returns the answer of `choose` to a translation to any of `size` bytes at `phys`, given its
    /// address and level: of those of which it says anything, the one at the lowest address.
    pub(crate) fn translating_to<R>(
        &self,
        arch: &Arch,
        phys: u64,
        size: u64,
        choose: impl Fn(u64, u8, TlbEntry) -> Option<R>,
    ) -> Option<R> {
        if self.pages.len() == 0 {
            return None;
        }
        let end = phys.saturating_add(size);
        let mut found: Vec<_> = Vec::new();
        for (page, held) in self.pages.iter().filter(|(_, held)| !held.maybe) {
            let (level, va) = place(arch, page);
            let bytes = 1u64 << arch.levels[level].shift;
            if held.entry.phys < end && phys < held.entry.phys.saturating_add(bytes) {
                found.push((va, level as u8, held.entry));
            }
        }
        found.sort_unstable_by_key(|(va, level, _)| (*va, *level));
        found.into_iter().find_map(|(va, level, entry)| choose(va, level, entry))
    }

    /// Returns the translations read from `frame` at `position`, with their addresses.
    pub(crate) fn read_from<'a>(
        &'a self,
        arch: &'a Arch,
        position: u64,
        frame: FrameRef,
    ) -> impl Iterator<Item = (u64, TlbEntry)> + 'a {
        let read = self.read_at(arch, position).filter(move |(_, h)| !h.maybe && h.entry.via == frame);
        read.map(|(va, held)| (va, held.entry))
    }
}
