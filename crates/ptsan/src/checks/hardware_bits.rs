//! Accessed and dirty bits, which hardware may set between a load of an entry and a store to it.
use crate::arch::{Entry, Perms};
use crate::cpu::{Cpu, CpuState};
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::FrameRef;
use crate::state::{EntryAt, Sanitizer, Written};

impl Sanitizer {
    /// Returns whether CPUs may hold an entry that was stored over: not if it was exchanged, and
    /// had not been used.
    pub(crate) fn was_used(&self, level: u8, old: u64, exchanged: bool) -> bool {
        let bits = self.config.arch.hardware_bits.filter(|_| self.config.accessed_dirty && exchanged);
        bits.is_none_or(|bits| bits(level, old).accessed)
    }

    /// Checks a store that takes a right away, and returns whether CPUs may hold the old entry.
    ///
    /// An entry whose accessed bit was clear when it was exchanged is in no cache. A plain store
    /// over an entry through which another CPU may write loses the dirty bit.
    pub(crate) fn check_bits(
        &mut self,
        at: EntryAt,
        ways: &[(FrameRef, u64)],
        (old, new): (u64, u64),
        (held, exchanged): (Entry, bool),
    ) -> bool {
        let Some(bits) = self.config.arch.hardware_bits.filter(|_| self.config.accessed_dirty) else {
            return true;
        };
        let (before, after) = (bits(at.level, old), bits(at.level, new));
        if !matches!(held, Entry::Leaf { .. }) {
            return true;
        }
        if exchanged {
            return before.accessed;
        }
        if !before.sets_dirty || after.dirty {
            return true;
        }
        let found = ways.iter().find_map(|&(root, va)| Some((self.writer(root)?, va)));
        let Some((cpu, va)) = found else { return true };
        let space = self.cpus[cpu].loaded.map(|l| l.space);
        let frame = self.frames.get(at.table).map(|f| f.phys);
        let place = Place { frame, va: Some(va), cpu: Some(cpu), level: Some(at.level), space };
        let reader = self.reader(cpu);
        self.report(Kind::BitLost, Rule::DirtyLost, place, || {
            format!("{reader} may write the page; the entry at {:#x} held {old:#x}", at.entry)
        });
        true
    }

    /// Returns another CPU than the one that stores, or a device, that may write to pages below a
    /// root now.
    fn writer(&self, root: FrameRef) -> Option<usize> {
        let writes = |(cpu, c): (usize, &Cpu)| {
            let runs = c.state == CpuState::Active && c.loaded.is_some_and(|l| l.frame == root);
            runs && self.running != Some(cpu)
        };
        let alone = self.running.is_none() && self.config.cpus == 1 && self.cpus.len() == 1;
        self.cpus.iter().enumerate().position(writes).filter(|_| !alone)
    }

    /// Checks a large page that was stored clean where a table was, or where one was before the
    /// entry was cleared: bits of its entries must not be lost.
    ///
    /// A page that a CPU has written is known. Other CPUs may write as long as the table is linked;
    /// where walkers set the bits in memory, code may read them after the flush.
    pub(crate) fn check_promotion(
        &mut self,
        memory: &(impl Memory + ?Sized),
        at: EntryAt,
        ways: &[(FrameRef, u64)],
        old: Option<Entry>,
        (raw, new): (u64, Entry),
    ) {
        let Entry::Leaf { phys: large, .. } = new else { return };
        let Some(bits) = self.config.arch.hardware_bits else { return };
        let bytes = 1u64 << self.config.arch.levels[usize::from(at.level)].shift;
        let clean = !bits(at.level, raw).dirty;
        for &(root, start) in ways {
            let same = |va: u64, phys: u64| phys == large.wrapping_add(va.wrapping_sub(start));
            let mut written = self.written.take(root, start, bytes);
            written.retain(|(va, written)| clean && same(*va, written.phys));
            if let Some(&(va, Written { cpu, entry, event, .. })) = written.first() {
                let reader = self.reader(cpu);
                return self.report_left_behind(at, (cpu, va), || {
                    format!("{reader} wrote the page through the entry at {entry:#x} at event {event}")
                });
            }
            let Some(Entry::Table { phys, perms }) = old.filter(|_| clean && !self.config.walkers_set_bits)
            else {
                continue;
            };
            let Some(cpu) = self.writer(root) else { continue };
            let below = self.pages_below(memory, (phys, at.level - 1), start, perms);
            let found = below.into_iter().find(|page| {
                let writes = page.perms.contains(Perms::WRITE) && bits(page.level, page.raw).sets_dirty;
                writes && same(page.va, page.phys)
            });
            if let Some(page) = found {
                let reader = self.reader(cpu);
                return self.report_left_behind(at, (cpu, page.va), || {
                    format!("{reader} may write the page through its entry in the table, {:#x}", page.raw)
                });
            }
        }
    }

    fn report_left_behind(&mut self, at: EntryAt, (cpu, va): (usize, u64), note: impl FnOnce() -> String) {
        let space = self.cpus[cpu].loaded.map(|l| l.space);
        let frame = self.frames.get(at.table).map(|f| f.phys);
        let place = Place { frame, va: Some(va), cpu: Some(cpu), level: Some(at.level), space };
        self.report(Kind::BitLost, Rule::DirtyLeftBehind, place, note);
    }
}
