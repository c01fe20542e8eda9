//! The lock of one table, in its frame's record.
//!
//! Who holds a tree exclusively needs none. Shared faults take the lock of the table in which they link a table or change
//! an entry, one at a time; and they may flush while they hold it, so whoever waits for it looks after its own mail
//! meanwhile.
use super::machine::Machine;
use crate::cpu::Pinned;
use crate::frames::FrameMeta;

/// A locked table; unlocked when dropped.
pub(super) struct TableLock<'a> {
    record: &'a FrameMeta,
}

impl<'a> TableLock<'a> {
    /// Waits for the lock of the table whose record this is.
    #[inline(always)]
    pub fn take<M: Machine>(m: &M, pin: &Pinned<'_>, record: &'a FrameMeta) -> Self {
        if !record.try_lock() {
            wait(m, pin, record);
        }
        TableLock { record }
    }
}

#[cold]
fn wait<M: Machine>(m: &M, pin: &Pinned<'_>, record: &FrameMeta) {
    let mut turn = 0u32;
    while record.is_locked() || !record.try_lock() {
        turn = turn.wrapping_add(1);
        m.tlb().pause(pin, turn);
    }
}

impl Drop for TableLock<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.record.unlock();
    }
}
