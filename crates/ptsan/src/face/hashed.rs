//! The hooks of machines with a hash table.
use crate::arch::{HashTable, Tag};
use crate::cpu::{Flush, Target};
use crate::memory::Memory;
use crate::report::{Place, Rule};
use crate::state::Sanitizer;

const PAGE: u64 = 1 << 12;
/// The first address after those that are translated.
const MOST_VA: u64 = 1 << 32;

impl Sanitizer {
    /// Tells that the CPUs look pages up in this hash table from now on. It is read from memory
    /// when they do. One that hardware cannot search is a misuse.
    ///
    /// For formats with [`Arch::hashed`](crate::Arch::hashed).
    pub fn hash_table(&mut self, memory: &(impl Memory + ?Sized), table: HashTable) {
        self.hook(|s| {
            let place = Place { frame: Some(table.phys), ..Place::default() };
            if s.config.arch.hashed.is_none() || !table.is_usable() || memory.read(table.phys, 8).is_none() {
                s.misuse(Rule::BadHashTable, place);
            } else {
                s.hashed.table = Some(table);
            }
        });
    }

    /// Tells the virtual segments (VSIDs) of a space, whose tree has its root at `root`: the
    /// content of a CPU's segment registers while it runs in the space. Call it before the space is
    /// loaded, and again when its segments change. Segments of the kernel are in all spaces.
    ///
    /// TLBs know pages by virtual segment. A segment that stands for another space before its pages
    /// were flushed is found ([`Kind::StaleUse`](crate::Kind::StaleUse)).
    pub fn segments(&mut self, space: u64, root: u64, vsids: [u64; 16]) {
        self.hook(|s| {
            s.spaces.insert(space, ());
            s.hashed.announce(space, root, vsids);
        });
    }

    /// Tells that the entry of the hash table that holds the byte at `phys` was stored to, and is
    /// valid if the store made it so.
    ///
    /// Optional: without it, an entry of the hash table is checked when a CPU finds it. This hook
    /// marks the exact moment at which a page was put in without its bit, or as memory did not map
    /// it any more ([`Kind::HashTable`](crate::Kind::HashTable)).
    pub fn hash_written(&mut self, memory: &(impl Memory + ?Sized), phys: u64) {
        self.hook(|s| {
            match s.hashed.table.and_then(|table| table.entry_at(phys)) {
                Some(number) => s.check_hash_entry(memory, number),
                None => s.bad_argument(
                    Place { frame: Some(phys), ..Place::default() },
                    "hash_written needs the address of an entry of the table told with hash_table",
                ),
            }
            s.adversary_acts(memory);
        });
    }

    /// Checks all entries of the hash table as [`hash_written`](Self::hash_written) checks one, and
    /// returns how many of them are valid. To be called when no flush is under way.
    pub fn check_hash_table(&mut self, memory: &(impl Memory + ?Sized)) -> u64 {
        self.hook(|s| {
            let Some(table) = s.hashed.table else {
                s.misuse(Rule::NoHashTable, Place::default());
                return 0;
            };
            let valid = |n: &u64| table.read(memory, *n).is_some();
            let valid: Vec<u64> = (0..table.entries()).filter(valid).collect();
            valid.iter().for_each(|n| s.check_hash_entry(memory, *n));
            valid.len() as u64
        })
    }
}

impl Sanitizer {
    /// Has a CPU with a hashed page table forget the entries that the flush covers. A flush by
    /// address in one space is one of its virtual segment, else of all segments.
    pub(super) fn invalidate_hashed(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, flush: Flush) {
        let event = self.event;
        self.cpus[cpu].note_flush(event, flush);
        let (space, start, end, stride) = match flush.target {
            Target::All => return self.cpus[cpu].hashed.clear(),
            Target::Space(space) => {
                let hashed = &self.hashed;
                self.cpus[cpu].hashed.drop_segments(|vsid| hashed.is_own(space, vsid));
                return self.count_unknown(Some(space));
            }
            Target::Page { space, va } => (Some(space), va, va.saturating_add(1), PAGE),
            Target::Range { space, start, end, stride } => (Some(space), start, end, stride),
            Target::EverySpace { start, end, stride } => (None, start, end, stride),
        };
        if stride == 0 || end < start {
            let place = Place { cpu: Some(cpu), space, va: Some(start), ..Place::default() };
            return self.bad_argument(place, "flush needs a range with start <= end and a stride above 0");
        }
        // Smaller steps come to each page all the same.
        let (start, stride) = if stride < PAGE { (start & !(PAGE - 1), PAGE) } else { (start, stride) };
        let pages = end.min(MOST_VA).saturating_sub(start).div_ceil(stride);
        for va in (0..pages).map(|page| start + page * stride) {
            match space {
                None => self.cpus[cpu].hashed.drop_index(Tag::page_of(va)),
                Some(space) => {
                    if let Some(tag) = self.hashed.tag(space, va) {
                        self.cpus[cpu].hashed.drop_tag(tag);
                        self.check_left_in_hash_table(memory, tag);
                    }
                }
            }
        }
        self.count_unknown(space);
    }

    /// Forgets the entries of a space that is gone, and its segments.
    pub(super) fn forget_hashed(&mut self, space: u64) {
        if self.config.arch.hashed.is_some() {
            let hashed = &self.hashed;
            for cpu in &mut self.cpus {
                cpu.hashed.drop_segments(|vsid| hashed.is_own(space, vsid));
            }
            self.hashed.forget(space);
        }
    }
}
