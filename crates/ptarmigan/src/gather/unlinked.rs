//! The tables and data frames that wait for the flush.
use super::released::release_large_flushed;
use super::{Gather, GatherError};
use crate::addr::{Pfn, PhysAddr};
use crate::format::Format;
use crate::frames::{FrameMeta, Use};
use crate::machine::Machine;
use crate::page::Level;
use crate::quicklist::Policy;
use crate::tlb::Mmu;

impl<'a, M: Machine> Gather<'a, M> {
    /// Takes over a table that has just been unlinked; it mapped 2^`span` bytes of addresses from
    /// `at` on.
    ///
    /// The flush says that tables were freed, so that the hardware drops links of them as well.
    /// Where it does so by address ([`Structures::Tagged`]), an address of the table is noted, if
    /// no page of its own is stale. Elsewhere the stale range need not grow to the table's span if
    /// any page changed.
    ///
    /// # Safety
    ///
    /// 1. No entry points to the table at `pfn` any more, the caller gives it away, and it was one
    ///    of the gather's space.
    /// 2. It must be in the state of its level: no live entries.
    /// 3. `record` must be the record of `pfn`, and say the level.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) unsafe fn table(&mut self, pfn: Pfn, record: &FrameMeta, at: u64, span: u32) {
        debug_assert!(
            !<M::Shootdown as Mmu>::WALKS_TABLES || record.touched() == 0,
            "table {pfn} unhooked with touched lines"
        );
        if const { names_tables::<M>() } {
            self.flags.tables_freed = true;
            self.name_table(at, span);
        } else if !self.flags.tables_freed {
            self.flags.tables_freed = true;
            if !self.has_changes() && !self.is_exact() {
                self.changed_pages(at, at.wrapping_add(1 << self.runs.shift()));
            }
        }
        // SAFETY: points 1 to 3 are those of `push`.
        unsafe { self.tables.push(pfn, record) };
    }

    /// Notes an address of a table that mapped 2^`span` bytes from `at` on, if no page of it is
    /// stale.
    #[inline]
    fn name_table(&mut self, at: u64, span: u32) {
        let last = at.wrapping_add((1 << span) - 1);
        // Operations go along ascending addresses: mostly the run that grows has its last pages.
        let grows = self.start != self.end && self.start <= last && self.end > at;
        if !grows && !self.runs.meets(at, last) {
            self.changed_pages(at, at.wrapping_add(1 << self.runs.shift()));
        }
    }

    /// Takes over a table that has just been unlinked, of tables that are not the library's own; it
    /// mapped addresses from `va` on. The policy gets it after the flush, as a page of `level`.
    ///
    /// # Errors
    ///
    /// [`GatherError::Root`] for a root table, which is not taken.
    ///
    /// # Safety
    ///
    /// 1. No entry points to the table at `at` any more, the caller gives it away, and it was one
    ///    of the gather's space.
    /// 2. It must have come from the machine's policy as a page of `level`, and be one frame or
    ///    more.
    /// 3. It must be in the state of its level: no live entries.
    /// 4. The pages that its entries mapped were no smaller than those that the gather was made
    ///    for.
    /// 5. If the policy does not say the level of its [roots](Policy::root), it is no root table.
    pub unsafe fn foreign_table(&mut self, at: PhysAddr, level: Level, va: u64) -> Result<(), GatherError> {
        if self.on.policy().policy().root() == Some(level) {
            return Err(GatherError::Root(at));
        }
        let record = self.on.frames().meta(at.pfn());
        record.set_usage(Use::Table);
        record.set_order(level.0);
        // Which addresses it mapped besides is not known here: its first one is noted.
        let span = self.runs.shift();
        // SAFETY: 1. and 2. passed on (1., 3.). 3. looked up above, and it says of which level the
        // table is.
        unsafe { self.table(at.pfn(), record, va, span) };
        Ok(())
    }

    /// Takes over the root of a space that ends.
    ///
    /// # Safety
    ///
    /// 1. As for [`table`](Self::table), for the root at `at`; it is the only root that the gather
    ///    is given.
    pub(crate) unsafe fn root(&mut self, at: PhysAddr, level: Level) {
        self.flags.tables_freed = true;
        // SAFETY: points 1 to 3 are passed on.
        unsafe { self.tables.push_root(at, level) };
    }

    /// Takes over the reference that the leaf `raw` of format `F` of a table of `level`, which has
    /// just been cleared, held on its frame, or on the block of its frames.
    ///
    /// # Safety
    ///
    /// 1. Unless it is special, the entry owned a reference to a data frame of this machine, and
    ///    the caller gives it away.
    /// 2. [`changed`](Self::changed) is told of the entry before the flush. Its page is no smaller
    ///    than those that the gather was made for.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub unsafe fn release<F: Format>(&mut self, level: Level, raw: u64) {
        if F::is_special(level, raw) {
            return;
        }
        let pfn = F::frame(level, raw);
        let record = self.on.frames().meta(pfn);
        if self.unknown {
            if record.drop_reference() {
                self.unused(pfn, record);
            }
        } else if record.is_sole_reference() {
            self.unused(pfn, record);
        } else {
            self.defer(pfn, record);
        }
    }

    /// Takes over a frame that nobody refers to: the field of its count becomes the link.
    #[cfg_attr(not(feature = "small"), inline(always))]
    fn unused(&mut self, pfn: Pfn, record: &FrameMeta) {
        record.set_link(self.data.unused);
        self.data.unused = pfn;
        self.data.len += 1;
    }

    /// Drops the reference to a frame that other spaces refer to as well after the flush.
    #[cold]
    fn defer(&mut self, pfn: Pfn, record: &FrameMeta) {
        if record.try_claim() {
            record.set_next(self.data.shared);
            self.data.shared = pfn;
            self.data.len += 1;
            return;
        }
        if !self.data.put_aside(pfn) {
            // Two spaces are giving up the same frames at the same time: flush the gather so far.
            // The table that is being cleared may not have been noted yet, so everything is
            // flushed.
            self.runs.insert(0, 0);
            self.flush_between();
            self.data.put_aside(pfn);
        }
    }

    /// Takes over the reference that the large page `raw` of format `F`, a leaf of a table of
    /// `level` which has just been cleared, held to its data frame as a whole
    /// (`frames/data/large.rs`).
    ///
    /// # Safety
    ///
    /// 1. Unless it is special, the entry owned a reference to the whole of a large data frame of
    ///    this machine, and the caller gives it away.
    /// 2. The gather is told of the entry before the flush.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn release_large<F: Format>(&mut self, level: Level, raw: u64) {
        if F::is_special(level, raw) {
            return;
        }
        let (on, pfn) = (self.on, F::frame(level, raw));
        let large = on.data().large(on.frames(), pfn);
        if self.unknown || large.is_sole() {
            // SAFETY: 1. and 2. by the caller (1.).
            unsafe {
                on.data().release_large(on.frames(), pfn, |pfn| {
                    let record = on.frames().meta(pfn);
                    self.unused(pfn, record);
                    self.data.len += (1 << record.order()) - 1;
                });
            }
            return;
        }
        if !large.try_claim() {
            // Another space is giving it up at the same time: flush the gather so far, as in
            // `defer`.
            self.runs.insert(0, 0);
            self.flush_between();
            if !self.space.owes_flush() {
                // SAFETY: 1. and 2. by the caller (1.), and all has just been flushed.
                unsafe { release_large_flushed(on, pfn) };
            }
            return;
        }
        large.set_next(self.data.large);
        self.data.large = pfn;
        self.data.len += 1;
    }
}

/// Whether flushes name an address of each table that was freed.
const fn names_tables<M: Machine>() -> bool {
    <M::Shootdown as Mmu>::WALKS_TABLES && <M::Shootdown as Mmu>::STRUCTURES.is_tagged()
}
