//! The hook of frees that become final at the next full flush.
use crate::cpu::Flush;
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::State;
use crate::state::Sanitizer;

impl Sanitizer {
    /// Tells that the table was given to a list from which frames are taken only after the next
    /// full flush: the allocator promises the order, not the caller.
    ///
    /// The free is checked as by [`Sanitizer::table_freed`], but later: when the frame is allocated
    /// as a table or handed out ([`Sanitizer::frame_reused`]). A flush of everything or of a space,
    /// or a load of a root, makes the free final without a finding if after it no CPU can hold the
    /// table and no entry points at it. A free that is not final at the end of the run is no leak.
    /// ```
    /// use ptsan::{Arch, Config, Content, Flush, Kind, Sanitizer};
    ///
    /// let mut memory = vec![0u8; 4 * 4096];
    /// let mut san = Sanitizer::new(Config::new(Arch::x86_64()));
    /// san.table_allocated(&memory, 0x1000, 4096, Some(3), Content::Zero);
    /// san.table_allocated(&memory, 0x2000, 4096, Some(2), Content::Zero);
    /// memory[0x1000..0x1008].copy_from_slice(&0x2007u64.to_le_bytes());
    /// san.entry_written(&memory, 0x1000);
    /// san.switch(&memory, 0, 0x1000, 1);
    /// memory[0x1000..0x1008].fill(0);
    /// san.entry_written(&memory, 0x1000);
    /// san.table_freed_at_flush(&memory, 0x2000, 4096); // before the flush, which is legal here
    /// assert_eq!(san.total(), 0);
    /// san.table_allocated(&memory, 0x2000, 4096, None, Content::Zero); // but this is not
    /// assert_eq!(san.count(Kind::FreeBeforeFlush), 1);
    /// ```
    pub fn table_freed_at_flush(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) {
        self.hook(|s| {
            s.adversary_acts(memory);
            let table = s.frames.find(phys).and_then(|at| s.frames.get(at));
            let is_whole = table.is_some_and(|f| f.phys == phys && f.size == size && f.state != State::Freed);
            if !is_whole {
                // That is wrong at any time.
                s.give_back(memory, phys, size);
            } else if s.deferred.insert(phys, size).is_some() {
                let place = Place { frame: Some(phys), ..Place::default() };
                s.report(Kind::DoubleFree, Rule::AlreadyFree, place, String::new);
            } else {
                s.numbers.release(phys);
            }
        });
    }

    /// Checks the frees of tables in memory that is used again: now they must be final. Returns
    /// whether there were any.
    pub(super) fn deferred_reused(&mut self, memory: &(impl Memory + ?Sized), phys: u64, size: u64) -> bool {
        if self.deferred.is_empty() {
            return false;
        }
        let overlaps = |(at, bytes): (&u64, &u64)| {
            (*at < phys.saturating_add(size) && at.saturating_add(*bytes) > phys).then_some((*at, *bytes))
        };
        let again: Vec<_> = self.deferred.iter().filter_map(overlaps).collect();
        for (phys, size) in &again {
            self.deferred.remove(phys);
            self.give_back(memory, *phys, *size);
        }
        !again.is_empty()
    }

    /// Makes frees final after a flush that they may have waited for.
    pub(super) fn deferred_flushed(&mut self, memory: &(impl Memory + ?Sized), flush: Flush) {
        if !self.deferred.is_empty() && flush.is_full() {
            self.settle_deferred(memory);
        }
    }

    /// Makes frees final that no CPU and no entry is in the way of.
    pub(super) fn settle_deferred(&mut self, memory: &(impl Memory + ?Sized)) {
        if self.deferred.is_empty() {
            return;
        }
        let waiting: Vec<_> = self.deferred.iter().map(|(phys, size)| (*phys, *size)).collect();
        for (phys, size) in waiting {
            let at = self.frames.find(phys).filter(|at| !self.in_use(memory, *at));
            if at.is_some() {
                self.deferred.remove(&phys);
                self.give_back(memory, phys, size);
            }
        }
    }

    /// Forgets the tables whose flush never came: nobody has taken their frames.
    pub(super) fn end_deferred(&mut self) {
        for (phys, _) in std::mem::take(&mut self.deferred) {
            if let Some(at) = self.frames.find(phys) {
                self.forgive_unlinked(at);
                self.frames.free(at, self.event);
            }
        }
    }
}
