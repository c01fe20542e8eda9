//! The hash table against the tables that software fills it from.
use crate::arch::{HashEntry, Tag};
use crate::cpu::{Fault, HashedEntry, Translation};
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::FrameRef;
use crate::state::{Owner, Sanitizer};

/// The entry of a page in the software's tree.
pub(crate) struct SoftwareEntry {
    pub(crate) says: Result<Translation, Fault>,
    /// Whether the entry has its hash bit.
    pub(crate) hashed: bool,
    /// The table that has the entry.
    pub(crate) table: FrameRef,
}

impl Sanitizer {
    /// Reads the software's entry of a page.
    pub(crate) fn software_entry(
        &self,
        memory: &(impl Memory + ?Sized),
        root: u64,
        va: u64,
    ) -> SoftwareEntry {
        let arch = &self.config.arch;
        let says = self.look(memory, root, va);
        let (mut hashed, mut table) = (false, FrameRef::UNKNOWN);
        if let Some(at) = self.leaf_table(memory, root, va) {
            let l = &arch.levels[0];
            let raw = memory.read(at.wrapping_add(l.index(va) * u64::from(l.entry_bytes)), l.entry_bytes);
            hashed = raw.is_some_and(|raw| arch.hashed.is_some_and(|bit| bit(0, raw)));
            table = self.frames.find(at).unwrap_or(FrameRef::UNKNOWN);
        }
        SoftwareEntry { says, hashed, table }
    }

    /// Checks an entry of the hash table, if it is valid and a space has its segment.
    pub(crate) fn check_hash_entry(&mut self, memory: &(impl Memory + ?Sized), number: u64) {
        let Some(table) = self.hashed.table else { return };
        let Some(entry) = table.read(memory, number) else { return };
        let Some(owner) = self.hashed.owner(entry.tag) else { return };
        let software = self.software_entry(memory, owner.root, owner.va);
        // Another CPU may have taken the page out, and its bit away, since it was read.
        if table.read(memory, number) != Some(entry) {
            return;
        }
        self.check_bit(entry, owner, software.hashed);
        // While operations are under way, a flush may be about to take it out.
        if is_stale(entry, software.says) && self.operations.len() == 0 {
            let names = self.config.arch.level_names;
            self.report_hash(Rule::HashedStale, owner, || differs(entry, software.says, names));
        }
    }

    /// Reports a page that is in the hash table without its bit.
    pub(crate) fn check_bit(&mut self, entry: HashEntry, owner: Owner, hashed: bool) {
        if !hashed {
            self.report_hash(Rule::BitMissing, owner, || format!("mapped to {:#x} there", entry.phys));
        }
    }

    /// Reports a page that the TLBs are told to forget while the hash table has it still, as memory
    /// does not map it any more.
    pub(crate) fn check_left_in_hash_table(&mut self, memory: &(impl Memory + ?Sized), tag: Tag) {
        let Some((entry, _)) = self.hashed.table.and_then(|table| table.find(memory, tag)) else { return };
        let Some(owner) = self.hashed.owner(tag) else { return };
        let says = self.look(memory, owner.root, owner.va);
        if is_stale(entry, says) {
            let names = self.config.arch.level_names;
            self.report_hash(Rule::LeftInHashTable, owner, || differs(entry, says, names));
        }
    }

    /// Reports a page that has two valid entries.
    pub(crate) fn report_twice(&mut self, owner: Owner) {
        self.report_hash(Rule::HashedTwice, owner, String::new);
    }

    fn report_hash(&mut self, rule: Rule, owner: Owner, note: impl FnOnce() -> String) {
        let place = Place { va: Some(owner.va), space: Some(owner.space), ..Place::default() };
        self.report(Kind::HashTable, rule, place, note);
    }

    /// Reports a table that is freed with hash bits left in it.
    pub(crate) fn check_bits_left(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef) {
        let arch = &self.config.arch;
        let (Some(bit), Some(f)) = (arch.hashed, self.frames.get(at)) else { return };
        let level = f.level.unwrap_or(0);
        let bytes = arch.entry_bytes();
        let (start, size) = (f.phys, f.size);
        let raw = |i: u64| memory.read(start.wrapping_add(i * u64::from(bytes)), bytes);
        let mut left = (0..size / u64::from(bytes))
            .filter_map(|i| Some((i, raw(i)?)))
            .filter(|(_, raw)| bit(level, *raw));
        if let Some((index, _)) = left.next() {
            let more = left.count();
            let place = Place { frame: Some(start), level: Some(level), ..Place::default() };
            self.report(Kind::HashTable, Rule::FreedWithBit, place, || {
                format!("entry {index} has its bit, and {more} more")
            });
        }
    }

    /// Returns a translation of a page that has its entry in the table, which a CPU holds in a
    /// segment of the space that it has loaded, and which memory no longer gives.
    pub(crate) fn held_of_hash_table(
        &self,
        memory: &(impl Memory + ?Sized),
        cpu: usize,
        at: FrameRef,
    ) -> Option<(u64, HashedEntry)> {
        let loaded = self.cpus[cpu].loaded?;
        self.cpus[cpu].hashed.read_via(at).find_map(|held| {
            let va = self.hashed.address_in(loaded.space, held.entry.tag)?;
            is_stale(held.entry, self.look(memory, loaded.root, va)).then_some((va, held))
        })
    }
}

/// Returns whether an entry of the hash table grants more than memory does.
fn is_stale(entry: HashEntry, says: Result<Translation, Fault>) -> bool {
    let writes = |t: &Translation| t.perms.contains(crate::arch::Perms::WRITE);
    !says.is_ok_and(|t| t.phys == entry.phys && (writes(&t) || !entry.user_writes()))
}

fn differs(entry: HashEntry, says: Result<Translation, Fault>, names: &[&str]) -> String {
    let memory = match says {
        Ok(t) => format!("{:#x} ({})", t.phys, t.perms),
        Err(fault) => fault.text(names),
    };
    format!("the hash table says {:#x} ({}), memory says {memory}", entry.phys, entry.perms(true))
}
