//! Changes entries for shared faults, with several CPUs at work on the tables of one space.
//!
//! # The protocol
//!
//! 1. Tables come, never go: code that takes tables away has them all for itself. A table that is
//!    missing is made before the lock of its parent is taken, and linked under it; a CPU that finds
//!    that another was faster gives its own back at once, as no walker ever knew it (REQ-37).
//! 2. An empty entry is filled in one step, without a lock.
//! 3. An entry in use is changed under the lock of its table, and is not empty meanwhile.
//!
//! ```text
//!  CPU 0   descend ── no leaf table ── makes a table ── link_shared: linked
//!  CPU 1   descend ── no leaf table ── makes a table ── link_shared: theirs ──> gives its own back
//!  CPU 0   put ── fill(0 -> leaf): true
//!  CPU 1   put ── fill(0 -> leaf): false ──> another CPU has served the fault
//! ```
//!
//! The lock of a table is a bit in its frame's record. Its holder may flush while it holds it, so a
//! CPU that waits for it serves the requests of others meanwhile. A CPU that is in the middle of a
//! flush does not wait: it may be the holder itself, called back.
//!
//! # Why
//!
//! Most faults of a program with several threads are of different tables, so a lock of the space
//! would make them wait for each other without need. Most of them fill an empty entry, for which
//! one compare-exchange does. Copy-on-write must hold the lock: it replaces an entry by another
//! frame's, and a fault in between would see an empty entry and fill it. Tables never go under
//! shared faults, because a walk without a lock would need a reader's epoch at each step down
//! otherwise.
use super::grow::Path;
use super::node::{NeedsBreak, Node, Use};
use super::tables::{Descent, Tables};
use crate::addr::PhysAddr;
use crate::error::from;
use crate::format::{Entry, Format, Slot};
use crate::frames::{AllocFlags, FrameMeta, NoFrame};
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::tlb::TlbRefusal;

/// A locked table; unlocked when dropped.
pub(super) struct TableLock<'a> {
    record: &'a FrameMeta,
}

impl<'a> TableLock<'a> {
    /// Waits for the lock of the leaf table whose record this is.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if it is held, and this CPU is in the middle of a flush.
    #[inline]
    fn take<M: Machine>(on: On<'_, M>, record: &'a FrameMeta) -> Result<Self, TlbRefusal> {
        if !record.try_lock() {
            on.tlb().may_flush(on.pin())?;
            wait(on, record);
        }
        Ok(TableLock { record })
    }

    /// Waits for the lock of a table above the leaves, whose holder does not flush.
    pub(super) fn take_above<M: Machine>(on: On<'_, M>, record: &'a FrameMeta) -> Self {
        if !record.try_lock() {
            wait(on, record);
        }
        TableLock { record }
    }
}

/// The reason for which an entry could not be put; the table is unchanged.
pub(crate) enum PutError {
    /// There was no memory for a table.
    NoFrame(NoFrame),
    /// The table is locked, and this CPU cannot wait.
    Refused(TlbRefusal),
}

from!(PutError: NoFrame => NoFrame, TlbRefusal => Refused);

#[cold]
fn wait<M: Machine>(on: On<'_, M>, record: &FrameMeta) {
    on.tlb().wait_until(on.pin(), || !record.is_locked() && record.try_lock());
}

impl Drop for TableLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.record.unlock();
    }
}

/// The leaf table of one page, as a fault found it.
pub(crate) struct Leaf<'a, F: Format, M: Machine> {
    node: Node<'a, F, M::Window>,
    index: usize,
}

/// The entry of one page, to be changed; with other CPUs at work, under the lock of its table.
pub(crate) struct Locked<'l, 'a, F: Format, M: Machine> {
    leaf: &'l Leaf<'a, F, M>,
    _lock: Option<TableLock<'a>>,
}

impl<'a, F: Format, M: Machine> Leaf<'a, F, M> {
    /// The entry.
    #[inline]
    pub fn load(&self) -> u64 {
        self.node.load(self.index)
    }

    /// Returns whether the entry of another address that the table maps is empty.
    #[inline]
    pub fn is_empty_at(&self, va: u64) -> bool {
        F::is_none(self.node.load(F::index(Level::PTE, va)))
    }

    /// Puts the leaf `raw` into the empty entry of `va`, an address that the table maps. False if
    /// another CPU has put one there meanwhile.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the table is locked, and this CPU is in the middle of a flush.
    #[inline]
    pub fn put_at<const SHARED: bool>(&self, on: On<'_, M>, va: u64, raw: u64) -> Result<bool, TlbRefusal> {
        self.put_entry::<SHARED>(on, F::index(Level::PTE, va), raw)
    }

    /// As [`put_at`](Self::put_at), into the entry with an index.
    #[inline]
    fn put_entry<const SHARED: bool>(
        &self,
        on: On<'_, M>,
        index: usize,
        raw: u64,
    ) -> Result<bool, TlbRefusal> {
        if !SHARED {
            self.node.put(index, raw);
            return Ok(true);
        }
        let _lock = match self.node.record() {
            Some(record) if !F::Slot::FILLS_AT_ONCE => Some(TableLock::take(on, record)?),
            _ => None,
        };
        Ok(self.node.fill(index, raw))
    }

    /// Makes the entry ready for being changed.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the table is locked, and this CPU is in the middle of a flush.
    #[inline]
    pub fn lock<const SHARED: bool>(&self, on: On<'_, M>) -> Result<Locked<'_, 'a, F, M>, TlbRefusal> {
        let lock = match self.node.record() {
            Some(record) if SHARED => Some(TableLock::take(on, record)?),
            _ => None,
        };
        Ok(Locked { leaf: self, _lock: lock })
    }
}

impl<F: Format, M: Machine> Locked<'_, '_, F, M> {
    /// The entry.
    #[inline]
    pub fn load(&self) -> u64 {
        self.leaf.load()
    }

    /// Writes `new` in the place of the entry, which the caller has just `seen`, or the result of
    /// `change`; the one that was there.
    ///
    /// # Errors
    ///
    /// [`NeedsBreak`], see [`Node::update_seen`].
    #[inline]
    pub fn update_seen(
        &self,
        seen: u64,
        new: u64,
        others: Use,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, NeedsBreak> {
        self.leaf.node.update_seen(self.leaf.index, seen, new, others, change).map(|(was, _)| was)
    }

    /// Writes another entry in its place where that needs no break, see [`Node::replace`].
    #[inline]
    pub fn replace(&self, others: Use, change: impl Fn(u64) -> u64) -> u64 {
        self.leaf.node.replace(self.leaf.index, others, change)
    }

    /// Lets no MMU use the entry until the next [`replace`](Self::replace). It is still an entry,
    /// so no fault puts another there. Returns its former value.
    #[inline]
    pub fn break_off(&self) -> u64 {
        self.leaf.node.break_off(self.leaf.index)
    }
}

impl<F: Format> Tables<F> {
    /// The leaf table that maps `va`, a user address, opened; if it is missing, the place where the
    /// way to it ends.
    #[inline]
    pub fn leaf<'a, M: Machine>(&self, on: On<'a, M>, va: u64) -> Result<Leaf<'a, F, M>, Descent> {
        let end = self.descend(on, va);
        if end.level > Level::PTE {
            return Err(end);
        }
        Ok(Leaf { node: self.node(on, Level::PTE, end.at), index: F::index(Level::PTE, va) })
    }

    /// Puts the leaf `raw` for `va`, a user address, into an empty entry. `leaf` is the leaf table
    /// as [`leaf`](Self::leaf) found it. False if another CPU has put one there meanwhile.
    ///
    /// # Errors
    ///
    /// [`PutError`]; the table is unchanged then.
    #[inline]
    pub fn put<'a, M: Machine, const SHARED: bool>(
        &self,
        on: On<'a, M>,
        va: u64,
        leaf: Result<Leaf<'a, F, M>, Descent>,
        raw: u64,
    ) -> Result<bool, PutError> {
        let leaf = match leaf {
            Ok(leaf) => leaf,
            Err(end) if !SHARED => {
                self.put_in_new(on, va, end, raw)?;
                return Ok(true);
            }
            Err(end) => {
                let node = match self.leaf_table_from::<M, SHARED>(on, va, end, AllocFlags::NORMAL) {
                    Ok(node) => node,
                    Err(e) => return e.no_frame().map_or(Ok(false), |e| Err(e.into())),
                };
                Leaf { node, index: F::index(Level::PTE, va) }
            }
        };
        Ok(leaf.put_entry::<SHARED>(on, leaf.index, raw)?)
    }

    /// Links a path that has been made for `level`; the entry that is there already if others were
    /// faster.
    pub(super) fn link_shared<M: Machine>(
        &self,
        on: On<'_, M>,
        va: u64,
        parent: PhysAddr,
        level: Level,
        path: &Path<F>,
    ) -> Entry {
        let node = self.node(on, level, parent);
        // A root without a record has all its entries from the start.
        let _lock = node.record().map(|record| TableLock::take_above(on, record));
        let index = F::index(level, va);
        let theirs = node.entry(index);
        if theirs != Entry::None {
            return theirs;
        }
        for below in 0..level.0 {
            self.add_shared(Level(below));
        }
        node.put(index, F::link(level, path.first()));
        self.note_linked::<M>(level.0);
        Entry::None
    }
}
