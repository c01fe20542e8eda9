//! Accessed and dirty bits, which hardware may set between a load of an entry and a store to it.
use crate::arch::Entry;
use crate::cpu::{Cpu, CpuState};
use crate::report::{Kind, Place, Rule};
use crate::shadow::FrameRef;
use crate::state::{EntryAt, Sanitizer};

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
        let writes = |root, (cpu, c): (usize, &Cpu)| {
            let runs = c.state == CpuState::Active && c.loaded.is_some_and(|l| l.frame == root);
            runs && self.running != Some(cpu)
        };
        if !before.sets_dirty
            || after.dirty
            || (self.running.is_none() && self.config.cpus == 1 && self.cpus.len() == 1)
        {
            return true;
        }
        let found = ways.iter().find_map(|&(root, va)| {
            let cpu = self.cpus.iter().enumerate().position(|c| writes(root, c))?;
            Some((cpu, va))
        });
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
}
