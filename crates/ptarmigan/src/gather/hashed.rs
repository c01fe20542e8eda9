//! Gathers where the MMU walks no tables: pages that were hashed, and their bits in entries.
use super::Gather;
use super::end::{End, Scrub};
use crate::addr::FRAME_SIZE;
use crate::format::Format;
use crate::machine::{Machine, On};
use crate::page::{Level, Unhooked};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::tlb::Mmu;
use crate::window::{OpenWindow, WindowGuard};

/// Clears the bits that formats have left in leaf tables of `tables`: lines that were touched, and
/// no others. All entries are empty, and no code fills them any more.
pub(crate) fn scrub_unhooked<M: Machine>(on: On<'_, M>, tables: &Unhooked) {
    tables.each(on.frames(), |level, at| {
        if level != Level::PTE {
            return;
        }
        let record = on.frames().meta(at.pfn());
        let guard = on.window().open(at);
        let mut lines = record.touched();
        while lines != 0 {
            let line = lines.trailing_zeros() as usize;
            lines &= lines - 1;
            // SAFETY: the guard is valid for the frame (contract of `Window`, point 1), of which
            // this is one of 64 lines; frames are aligned to more than a word. The chain owns the
            // table, and whatever still reads it does so by atomics.
            let words = unsafe {
                let first = guard.base().add(line * LINE).cast::<AtomicU32>();
                core::slice::from_raw_parts(first, LINE / size_of::<u32>())
            };
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        record.set_lines(0, 0);
        record.set_lines(1, 0);
    });
}

/// Bytes of a leaf table that one bit of its record stands for.
const LINE: usize = FRAME_SIZE / u64::BITS as usize;

impl<'a, M: Machine> Gather<'a, M> {
    /// Says that all changes are told by [`changed_entry`](Self::changed_entry), and how bits are
    /// taken away from empty entries.
    pub(crate) fn keep_exact(&mut self, scrub: Scrub<M>) {
        debug_assert!(matches!(self.ends, End::Operation));
        self.ends = End::Hashed(scrub);
    }

    /// For the tables of a format whose entries keep bits, which are not given up: stale are the
    /// pages that were hashed, and no others.
    #[inline(always)]
    fn scrub(&self) -> Option<Scrub<M>> {
        match self.ends {
            End::Hashed(scrub) if const { !<M::Shootdown as Mmu>::WALKS_TABLES } => Some(scrub),
            _ => None,
        }
    }

    /// Notes that the entry of the page at `va` was changed or cleared, and was `old` before. If
    /// the format says that the page was not hashed, no TLB knows it.
    #[inline(always)]
    pub(crate) fn changed_entry<F: Format>(&mut self, va: u64, old: u64) {
        if const { F::KEPT != 0 } {
            if F::cleared(old) == 0 {
                return;
            }
            self.runs.add_hashed();
        }
        self.changed_run(va, va + (1 << F::PAGE_SHIFT));
    }

    /// Returns whether the stale pages are known one by one, and no software reads the tables
    /// either.
    #[inline(always)]
    pub(super) fn is_exact(&self) -> bool {
        !<M::Shootdown as Mmu>::WALKS_TABLES && self.scrub().is_some() && !self.may_be_read
    }

    /// Returns whether no entry in this gather was ever hashed, so the flush can be skipped.
    #[inline(always)]
    pub(super) fn was_not_hashed(&self) -> bool {
        !<M::Shootdown as Mmu>::WALKS_TABLES
            && self.scrub().is_some()
            && !(self.has_changes() || self.flags.reload_root || self.space.owes_flush())
            && !(self.flags.tables_freed && self.may_be_read)
    }

    /// Takes the bits that stay away from empty entries of pages that have just been flushed.
    #[inline(always)]
    pub(super) fn scrub_stale(&self) {
        if const { !<M::Shootdown as Mmu>::WALKS_TABLES }
            && let Some(scrub) = self.scrub()
        {
            scrub(self.on, self.space, &self.runs);
        }
    }
}
