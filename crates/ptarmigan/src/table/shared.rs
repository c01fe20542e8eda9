//! Several CPUs at work on one tree: what shared faults do to it.
//!
//! Tables come, never go: who takes tables away has the tree for itself. A table that is missing is made before the
//! lock of its parent is taken, and linked under it; who finds that another was faster gives its own back at once,
//! as no walker ever knew it (REQ-37).
//!
//! An entry is put where there is none in one step, without a lock, and without counting it: CPUs that fault in one
//! table would else take the line of its record from each other at every page. The next who has the table for itself
//! counts. An entry that is there is changed under the lock of its table, and is not none meanwhile.
use super::lock::TableLock;
use super::machine::Machine;
use super::slots::{Slots, born, born_shared, has_record};
use super::tree::{Tree, drop_path, make_path, set_link};
use crate::addr::{PhysAddr, VirtAddr};
use crate::cpu::Pinned;
use crate::format::{Attr, Format, Slot};
use crate::frames::{AllocFlags, NoFrame};
use crate::page::{Level, MAX_LEVELS};

/// The entry of one page in its leaf table, to be written; with others at work, under the table's lock.
pub(crate) struct Entry<'a, F: Format, M: Machine> {
    slots: Slots<'a, F, M::Window>,
    index: usize,
    _lock: Option<TableLock<'a>>,
}

impl<F: Format, M: Machine> Entry<'_, F, M> {
    #[inline(always)]
    fn slot(&self) -> &F::Slot {
        self.slots.at(Level::PTE, self.index)
    }

    /// The entry; 0 if there is none.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.slot().load()
    }

    /// Writes another entry in its place, with a plain store if the tree is `private`: no MMU walks it.
    #[inline(always)]
    pub fn replace(&self, raw: u64, private: bool) {
        debug_assert_ne!(raw, 0, "entries are cleared by unmapping, which counts them");
        if private {
            self.slot().store(raw);
        } else {
            self.slot().swap(raw);
        }
    }

    /// Lets no MMU use the entry until the next [`replace`](Self::replace). It is still an entry, so nobody puts another
    /// there.
    #[inline(always)]
    pub fn break_off(&self, raw: u64) {
        self.slot().swap(F::leaf(F::frame(raw), F::attr(raw).without(Attr::READ)));
    }
}

impl<F: Format> Tree<F> {
    /// Opens the entry for `va` in the leaf table at `table`.
    #[inline(always)]
    pub(crate) fn entry<'a, M: Machine, const SHARED: bool>(
        &'a self,
        m: &'a M,
        pin: &Pinned<'_>,
        table: PhysAddr,
        va: u64,
    ) -> Entry<'a, F, M> {
        let record = m.frames().meta(table.pfn());
        Entry {
            _lock: if SHARED { Some(TableLock::take(m, pin, record)) } else { None },
            slots: Slots::open(m.window(), table),
            index: F::index(Level::PTE, va),
        }
    }

    /// Puts the leaf `raw` where there is none; `va` is the user's. `table` is the leaf table as [`look`](Self::look)
    /// found it. False if another CPU has put one there meanwhile.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; nothing has changed then.
    #[inline(always)]
    pub(crate) fn put<M: Machine, const SHARED: bool>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        va: u64,
        table: Option<PhysAddr>,
        raw: u64,
    ) -> Result<bool, NoFrame> {
        let at = match table {
            Some(at) => at,
            None => self.leaf_table_in::<M, SHARED>(m, pin, va, AllocFlags::NORMAL)?,
        };
        let record = m.frames().meta(at.pfn());
        let slots = Slots::<F, _>::open(m.window(), at);
        let index = F::index(Level::PTE, va);
        let slot = slots.at(Level::PTE, index);
        if !SHARED {
            debug_assert_eq!(slot.load(), 0);
            slot.store(raw);
            born::<F>(record, Level::PTE, index);
            return Ok(true);
        }
        let _lock = (!F::Slot::FILLS_AT_ONCE).then(|| TableLock::take(m, pin, record));
        let filled = slot.fill(raw);
        if filled {
            born_shared::<F>(record, index);
        }
        Ok(filled)
    }

    /// Makes all tables that are missing below the table `parent` of `level` on the way to `va`, unless others do so
    /// first.
    #[cold]
    pub(super) fn grow_shared<M: Machine>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        va: u64,
        mut parent: PhysAddr,
        mut level: Level,
        flags: AllocFlags,
    ) -> Result<PhysAddr, NoFrame> {
        loop {
            let path = make_path::<F, M>(m, pin, va, level, flags)?;
            match self.link_shared(m, pin, va, parent, level, &path) {
                None => return Ok(path[0]),
                Some(theirs) => {
                    // SAFETY: 1. made above for this level, and not linked.
                    unsafe { drop_path::<F, M>(m, pin, va, level, &path) };
                    (parent, level) = (theirs, Level(level.0 - 1));
                }
            }
            // Theirs may be complete, or not.
            while level > Level::PTE {
                let raw = Slots::<F, _>::open(m.window(), parent).at(level, F::index(level, va)).load();
                let Some(next) = F::linked(level, raw) else { break };
                (parent, level) = (next, Level(level.0 - 1));
            }
            if level == Level::PTE {
                return Ok(parent);
            }
        }
    }

    /// Links a path that has been made for `level`; the table that is linked there already if others were faster.
    fn link_shared<M: Machine>(
        &self,
        m: &M,
        pin: &Pinned<'_>,
        va: u64,
        parent: PhysAddr,
        level: Level,
        path: &[PhysAddr; MAX_LEVELS],
    ) -> Option<PhysAddr> {
        // A top without a record has all its entries from the start.
        let record = has_record::<F>(level).then(|| m.frames().meta(parent.pfn()));
        let _lock = record.map(|record| TableLock::take(m, pin, record));
        let raw = Slots::<F, _>::open(m.window(), parent).at(level, F::index(level, va)).load();
        if let Some(theirs) = F::linked(level, raw) {
            return Some(theirs);
        }
        for below in 0..level.0 {
            self.count_shared(Level(below));
        }
        set_link::<F, M>(m, level, parent, va, path[level.at() - 1]);
        None
    }

    /// What is mapped at `va` in the tree whose top is at `root`, which may be changing. The caller is a
    /// [reader](crate::tlb::Readers) of the tree's space, which keeps tables that are found from being used again.
    pub(crate) fn query_from<M: Machine>(
        m: &M,
        root: PhysAddr,
        va: VirtAddr,
    ) -> Option<(crate::addr::Pfn, Attr)> {
        if va.0 >= F::USER_END {
            return None;
        }
        let at = Self::find_from(m, root, va.0, Level::PTE)?;
        let raw = Slots::<F, _>::open(m.window(), at).at(Level::PTE, F::index(Level::PTE, va.0)).load();
        (raw != 0).then(|| (F::frame(raw), F::attr(raw)))
    }
}
