//! Accessed and dirty bits, as walkers set them. Without
//! [`Config::walkers_set_bits`](crate::Config::walkers_set_bits) memory stays as it is, and the
//! pages that were written are remembered.
use super::walker::Walk;
use crate::arch::{AccessKind, Entry, Perms};
use crate::cpu::{Context, Loaded, Table};
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, State};
use crate::state::{Sanitizer, Written};

impl Sanitizer {
    /// Returns whether it matters which bits an access sets.
    #[inline]
    pub(crate) fn keeps_bits(&self) -> bool {
        self.config.accessed_dirty | self.config.walkers_set_bits
    }

    /// Returns whether the TLB's translation of `va` serves an access that it allows. A CPU that
    /// writes through a clean one sets the bit in the entry, and walks again if it cannot.
    #[inline]
    pub(super) fn serves(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
        kind: AccessKind,
    ) -> bool {
        kind != AccessKind::Write || !self.keeps_bits() || self.writes_through(memory, (cpu, loaded), va)
    }

    #[cold]
    fn writes_through(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (cpu, loaded): (usize, Loaded),
        va: u64,
    ) -> bool {
        let sets = self.config.walkers_set_bits;
        let arch = &self.config.arch;
        let Some(bits_of) = arch.hardware_bits else { return true };
        let c = &self.cpus[cpu];
        let own = c.contexts[loaded.context as usize].lookup(arch, va);
        let Some((level, held)) = own.or_else(|| c.globals.lookup(arch, va)) else { return true };
        if held.dirty {
            return true;
        }
        let l = arch.levels[usize::from(level)];
        // In a frame of several tables a walk finds the entry.
        let most = u64::from(l.table_bytes).max(arch.granule());
        let table = self
            .frames
            .get(held.via)
            .filter(|f| f.state == State::Allocated && f.level == Some(level) && f.size <= most);
        let Some(table) = table.map(|f| f.phys) else { return !sets };
        let index = l.index(va);
        let at = table.wrapping_add(index * u64::from(l.entry_bytes));
        let Some(raw) = memory.read(at, l.entry_bytes) else { return !sets };
        let same = match arch.entry(level, index, raw) {
            Entry::Leaf { phys, perms, .. } => phys == held.phys && perms.contains(Perms::WRITE),
            _ => false,
        };
        let bits = bits_of(level, raw);
        if !same || !bits.dirty && !bits.sets_dirty {
            return !sets;
        }
        if bits.sets_dirty {
            if sets && self.set_bits(memory, (held.via, at), level, raw, true).is_none() {
                return false;
            }
            self.note_written(cpu, loaded, va & !((1 << l.shift) - 1), (at, held.phys));
        }
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        let mark = |context: &mut Context| context.held_mut(arch, va).map(|held| held.dirty = true);
        mark(&mut c.contexts[loaded.context as usize]).or_else(|| mark(&mut c.globals));
        true
    }

    /// Lets a walker set the bits of the page's entry that it has read, and returns the entry as it
    /// is then.
    #[cold]
    pub(super) fn use_page(
        &mut self,
        memory: &(impl Memory + ?Sized),
        walk: &Walk,
        (table, level): (Table, u8),
        (at, mut raw): (u64, u64),
    ) -> u64 {
        const TRIES: usize = 4;
        let &Walk { cpu, loaded, va, access } = walk;
        let l = self.config.arch.levels[usize::from(level)];
        let index = l.index(va);
        let write = access.is_some_and(|access| access.kind == AccessKind::Write);
        for _ in 0..TRIES {
            let arch = &self.config.arch;
            let Entry::Leaf { phys, perms, .. } = arch.entry(level, index, raw) else { return raw };
            if access.is_some_and(|access| !(table.perms & perms).allows(access)) {
                return raw;
            }
            let sets_dirty = write && arch.hardware_bits.is_some_and(|of| of(level, raw).sets_dirty);
            let now = match self.config.walkers_set_bits {
                true => self.set_bits(memory, (table.frame, at), level, raw, write),
                false => Some(raw),
            };
            let Some(now) = now else {
                // Another store came first.
                let Some(again) = memory.read(at, l.entry_bytes) else { return raw };
                raw = again;
                continue;
            };
            let accessed =
                matches!(self.config.arch.entry(level, index, now), Entry::Leaf { accessed: true, .. });
            if sets_dirty && accessed {
                self.note_written(cpu, loaded, va & !((1 << l.shift) - 1), (at, phys));
            }
            return now;
        }
        raw
    }

    /// Lets a walker set the accessed bit of a link that it has read.
    #[cold]
    pub(super) fn use_link(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (table, at): (FrameRef, u64),
        level: u8,
        raw: u64,
    ) {
        // If another store came first, the walk has read the link before it.
        let _ = self.set_bits(memory, (table, at), level, raw, false);
    }

    /// Sets the bits of an entry, and returns the entry after it; `None` if it is another one by
    /// now.
    fn set_bits(
        &mut self,
        memory: &(impl Memory + ?Sized),
        (table, at): (FrameRef, u64),
        level: u8,
        raw: u64,
        written: bool,
    ) -> Option<u64> {
        let new = self.config.arch.used.map_or(raw, |used| used(level, raw, written));
        if new == raw {
            return Some(raw);
        }
        let bytes = self.config.arch.entry_bytes();
        match memory.exchange(at, bytes, raw, new) {
            Some(found) if found == raw => {
                if let Some(f) = self.frames.get(table) {
                    let index = at.saturating_sub(f.phys) >> bytes.trailing_zeros();
                    // A table has at most 2^28 bytes.
                    self.frames.amend(table, index as usize, new);
                }
                Some(new)
            }
            Some(_) => None,
            None => {
                self.config.walkers_set_bits = false;
                let place = Place { frame: Some(at), level: Some(level), ..Place::default() };
                let needs = "Config::walkers_set_bits needs memory with Memory::exchange";
                self.report(Kind::Misuse, Rule::BadArgument, place, || needs.to_owned());
                Some(raw)
            }
        }
    }

    fn note_written(&mut self, cpu: usize, loaded: Loaded, va: u64, (entry, phys): (u64, u64)) {
        let event = self.event;
        self.written.note(loaded.frame, va, Written { cpu, entry, phys, event });
    }
}
