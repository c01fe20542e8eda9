//! Decides whether two valid entries may be cached beside each other.
use crate::arch::{Entry, Perms};
use crate::memory::Memory;
use crate::report::Rule;
use crate::state::Sanitizer;

/// The number of bytes of two read-only pages that are compared, and of pairs of entries of two
/// tables.
const MOST_BYTES: u64 = 1 << 16;
const MOST_PAIRS: u32 = 1 << 12;

impl Sanitizer {
    /// Returns why two valid entries of a level must not be cached beside each other, or `None` if
    /// they may.
    pub(super) fn contradiction(
        &self,
        memory: &(impl Memory + ?Sized),
        level: u8,
        old: Entry,
        new: Entry,
    ) -> Option<Rule> {
        let mut pairs = MOST_PAIRS;
        self.contradiction_within(memory, level, old, new, &mut pairs)
    }

    fn contradiction_within(
        &self,
        memory: &(impl Memory + ?Sized),
        level: u8,
        old: Entry,
        new: Entry,
        pairs: &mut u32,
    ) -> Option<Rule> {
        let arch = &self.config.arch;
        if !can_be_cached(old) || !can_be_cached(new) {
            return None;
        }
        match (old, new) {
            (
                Entry::Leaf { phys: a, perms: p, global: g, memory_type: m, .. },
                Entry::Leaf { phys: b, perms: q, global: h, memory_type: n, .. },
            ) => {
                let writable = (p | q).contains(Perms::WRITE);
                let bytes = 1 << arch.levels[usize::from(level)].shift;
                if a != b && (writable || differ(memory, a, b, bytes)) {
                    Some(Rule::ChangedOutput)
                } else if m != n {
                    Some(Rule::ChangedType)
                } else {
                    // Making a page global needs a break; the reverse needs a flush after it alone.
                    (!g && h).then_some(Rule::ChangedReach)
                }
            }
            // Another table with the same entries is no contradiction.
            (Entry::Table { phys: a, .. }, Entry::Table { phys: b, .. }) if a != b && level > 0 => {
                let is_table = |phys| self.frames.find(phys).is_some_and(|f| self.is_table(f));
                if !is_table(a) || !is_table(b) {
                    return None;
                }
                let l = &arch.levels[usize::from(level) - 1];
                (0..l.entries() as u64).find_map(|i| {
                    *pairs = pairs.checked_sub(1)?;
                    let read = |table: u64| {
                        let at = table.wrapping_add(i * u64::from(l.entry_bytes));
                        memory.read(at, l.entry_bytes).map(|raw| arch.entry(level - 1, i, raw))
                    };
                    self.contradiction_within(memory, level - 1, read(a)?, read(b)?, pairs)
                })
            }
            (Entry::Table { .. }, Entry::Table { .. }) => None,
            _ => Some(Rule::ChangedSize),
        }
    }
}

/// Returns whether the entry is valid and a walk may cache it.
pub(super) fn can_be_cached(entry: Entry) -> bool {
    matches!(entry, Entry::Table { .. } | Entry::Leaf { accessed: true, .. })
}

/// Returns whether two pages are known to differ. A copy of a read-only page may take its place
/// (Arm ARM: only if the contents do not match). Unreadable pages count as equal.
fn differ(memory: &(impl Memory + ?Sized), a: u64, b: u64, bytes: u64) -> bool {
    (0..bytes.min(MOST_BYTES)).step_by(8).any(|offset| {
        let read = |page: u64| memory.read(page.wrapping_add(offset), 8);
        read(a).zip(read(b)).is_some_and(|(a, b)| a != b)
    })
}
