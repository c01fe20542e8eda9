//! The MMUs of a host's CPUs, which look pages up in one hash table.
use crate::block::HashMemory;
use crate::mmu::SoftMmu;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Attr, Format, Formats, Ppc32};
use ptarmigan::page::Level;
use ptarmigan::space::Access;
use ptarmigan::tlb::hash::{
    HashCounts, HashSize, HashTable, Hashed32, Hashed64, Inserted, Mapping, Refill, Tag,
};
use ptarmigan::tlb::{Invalidation, Mmu, Root, Scope, SpaceId, Structures};
use ptsan::{Flush, HashLayout};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Segments of the user and of the kernel.
const USER: Range<u32> = 0..12;
const KERNEL: Range<u32> = 12..16;
/// How often an access is repeated. A TLB that knows less than was put in just now, in place of an
/// entry that had been evicted, takes two misses: the second one finds the entry, and flushes it.
const TURNS: usize = 2;
/// The context of the kernel's segments.
const KERNEL_CONTEXT: u32 = 0;

/// The table, in either layout.
enum Table {
    Bits32(HashTable<Hashed32>),
    Bits64(HashTable<Hashed64>),
}

/// Calls the same method of either.
macro_rules! of {
    ($self:expr, $table:ident => $call:expr) => {
        match &$self.table {
            Table::Bits32($table) => $call,
            Table::Bits64($table) => $call,
        }
    };
}

/// Counts of the CPUs' use of the hash table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashUse {
    /// Counts of the table's operations.
    pub table: HashCounts,
    /// Accesses that found their page in it.
    pub found: usize,
    /// Times that a page was put in.
    pub refills: usize,
    /// Pages that the TLBs were told to forget, one by one.
    pub tlbies: usize,
    /// Flushes of a whole space or half: every entry was looked at.
    pub full: usize,
    /// Valid entries.
    pub valid: usize,
    /// All entries.
    pub entries: usize,
}

/// The MMUs of all CPUs of a machine with a hash table, with a sanitizer or without.
///
/// Without one, CPUs have no TLBs: an access goes to the hash table.
pub struct HashedMmu<'s> {
    // Before the memory that it is in: fields are dropped in order.
    table: Table,
    memory: HashMemory,
    /// The number under which each CPU has its space loaded.
    numbers: Vec<AtomicU32>,
    soft: Option<&'s SoftMmu<'s, Ppc32>>,
    found: AtomicUsize,
    refills: AtomicUsize,
    tlbies: AtomicUsize,
    full: AtomicUsize,
}

/// Returns the size of a table in bytes that has this layout.
///
/// # Errors
/// [`HashSizeError`](ptarmigan::tlb::hash::HashSizeError) if there is no such table.
pub fn hash_size(layout: HashLayout, bytes: u64) -> Result<HashSize, ptarmigan::tlb::hash::HashSizeError> {
    match layout {
        HashLayout::Bits32 => HashSize::new::<Hashed32>(bytes),
        HashLayout::Bits64 => HashSize::new::<Hashed64>(bytes),
    }
}

impl<'s> HashedMmu<'s> {
    /// Makes the MMUs of `cpus` CPUs, with a table in `memory` of which the caller must make no
    /// other use.
    ///
    /// # Errors
    /// [`HashSizeError`](ptarmigan::tlb::hash::HashSizeError) if the memory is no table of the
    /// layout.
    pub fn new(
        memory: HashMemory,
        layout: HashLayout,
        cpus: usize,
    ) -> Result<Self, ptarmigan::tlb::hash::HashSizeError> {
        let (base, bytes) = (memory.base(), memory.bytes());
        // SAFETY: 1. the memory is there as long as `memory`, which is dropped after the table.
        // Another clone of it is a sanitizer's, whose MMUs read it.
        let table = unsafe {
            match layout {
                HashLayout::Bits32 => Table::Bits32(HashTable::new(base, bytes)?),
                HashLayout::Bits64 => Table::Bits64(HashTable::new(base, bytes)?),
            }
        };
        Ok(HashedMmu {
            table,
            memory,
            numbers: (0..cpus).map(|_| AtomicU32::new(0)).collect(),
            soft: None,
            found: AtomicUsize::new(0),
            refills: AtomicUsize::new(0),
            tlbies: AtomicUsize::new(0),
            full: AtomicUsize::new(0),
        })
    }

    /// Has a sanitizer watch. It reads the table in a clone of the same memory.
    #[must_use]
    pub fn watched_by(self, soft: &'s SoftMmu<'s, Ppc32>) -> Self {
        let layout = match self.table {
            Table::Bits32(_) => HashLayout::Bits32,
            Table::Bits64(_) => HashLayout::Bits64,
        };
        let bytes = self.memory.bytes();
        let table = ptsan::HashTable { phys: HashMemory::PHYS, bytes, layout };
        soft.with(|sanitizer, memory| sanitizer.hash_table(memory, table));
        HashedMmu { soft: Some(soft), ..self }
    }

    /// Returns the counts until now. The valid entries are counted now.
    pub fn usage(&self) -> HashUse {
        let load = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        HashUse {
            table: of!(self, table => table.counts()),
            found: load(&self.found),
            refills: load(&self.refills),
            tlbies: load(&self.tlbies),
            full: load(&self.full),
            valid: of!(self, table => table.valid()),
            entries: of!(self, table => table.entries()),
        }
    }

    /// An access of a program on a CPU to `va` in the space that it has loaded: the page is looked
    /// up, and put in if it is missed. `entry` notes in the software's entry that the page is being
    /// put in, and returns it; `None` is a fault. It is called with the table's lock held.
    ///
    /// Returns whether the access succeeds.
    pub fn access(
        &self,
        cpu: usize,
        va: u64,
        access: Access,
        entry: &dyn Fn() -> Option<Refill<u64>>,
    ) -> bool {
        let tag = Tag::of(self.numbers[cpu].load(Ordering::Relaxed), va as u32);
        for turn in 0..TURNS {
            if self.finds(cpu, tag, va, access) {
                self.found.fetch_add(usize::from(turn == 0), Ordering::Relaxed);
                return true;
            }
            let entry = || entry().map(|page| page.map(mapping));
            // SAFETY: 1. and 2. no code reaches memory through the table: the CPUs are models,
            // which compare frames.
            let Some(how) = of!(self, table => unsafe { table.refill(tag, entry) }) else {
                return false;
            };
            self.refills.fetch_add(1, Ordering::Relaxed);
            if how == Inserted::Again {
                // TLBs may know the entry as it was.
                self.forget(cpu, va);
            }
        }
        self.finds(cpu, tag, va, access)
    }

    /// Whether a CPU finds a page, so that the access succeeds: in its TLB, if it has one, else in
    /// the table.
    fn finds(&self, cpu: usize, tag: Tag, va: u64, access: Access) -> bool {
        if let Some(soft) = self.soft {
            let access = match access {
                Access::Read => ptsan::Access::READ,
                Access::Write => ptsan::Access::WRITE,
                Access::Exec => ptsan::Access::EXEC,
            };
            return soft.with(|sanitizer, memory| sanitizer.translate(memory, cpu, va, access).is_ok());
        }
        let allows = |m: Mapping| access != Access::Write || m.0 & 3 == 2;
        of!(self, table => table.look_up(tag)).is_some_and(allows)
    }

    /// `tlbie`: has all CPUs forget a page of the space that a CPU has loaded.
    fn forget(&self, cpu: usize, va: u64) {
        self.tlbies.fetch_add(1, Ordering::Relaxed);
        if let Some(soft) = self.soft
            && let Some(space) = soft.loaded(cpu)
        {
            soft.with(|sanitizer, memory| {
                sanitizer.flush_everywhere(memory, Flush::page(space.number(), va));
            });
        }
    }

    fn watch(&self, flush: Flush) {
        if let Some(soft) = self.soft {
            soft.with(|sanitizer, memory| sanitizer.flush_everywhere(memory, flush));
        }
    }

    /// Takes pages out of the table and the TLBs. `flush` says it to the sanitizer.
    fn flush(&self, context: u32, scope: &Scope, segments: Range<u32>, flush: impl Fn(u64) -> Flush) {
        let Some(pages) = scope.pages() else {
            self.full.fetch_add(1, Ordering::Relaxed);
            of!(self, table => table.remove_segments(context, segments, || self.watch(Flush::all())));
            return;
        };
        for va in pages {
            self.tlbies.fetch_add(1, Ordering::Relaxed);
            let tag = Tag::of(context, va as u32);
            of!(self, table => table.remove(tag, || self.watch(flush(va))));
        }
    }
}

/// Returns the mapping in the hash table for an entry: writable once the page was written to.
fn mapping(raw: u64) -> Mapping {
    let attr = Ppc32::attr(Level::PTE, raw);
    let writable = attr.has(Attr::WRITE) && attr.has(Attr::DIRTY);
    Mapping(Ppc32::frame(Level::PTE, raw).addr().0 as u32 | if writable { 2 } else { 3 })
}

/// The virtual segments of a context, those of the kernel included.
fn segments(context: u32) -> [u64; 16] {
    std::array::from_fn(|segment| {
        let segment = segment as u32;
        let context = if USER.contains(&segment) { context } else { KERNEL_CONTEXT };
        Tag::of(context, segment << 28).vsid().into()
    })
}

// SAFETY: 1. and 2. pages are taken out of the one table and of all TLBs, or all of the context's
// are and the TLBs are emptied. 3. TLBs know pages by context, so that no translation of another
// space is used; if numbers are handed out anew, table and TLBs are emptied. 4. the CPU walks no
// tables. 5. one invalidation reaches all CPUs, and no CPU walks tables. 6. No root is kept beyond
// the call. 7. `load` finds no translations.
unsafe impl Mmu for &HashedMmu<'_> {
    const FORMATS: Formats = Formats::of::<Ppc32>();
    const BROADCASTS: bool = true;
    const WALKS_TABLES: bool = false;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, _: &Pinned<'_>, what: &Invalidation) {
        let space = what.space.number();
        self.flush(what.asid.into(), &what.scope, USER, |va| Flush::page(space, va));
    }

    fn invalidate_kernel(&self, _: &Pinned<'_>, scope: &Scope) {
        self.flush(KERNEL_CONTEXT, scope, KERNEL, Flush::page_in_every_space);
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        if root.forget_all {
            of!(self, table => table.wipe(|| self.watch(Flush::all())));
        }
        self.numbers[usize::from(pin.cpu().0)].store(root.asid.into(), Ordering::Relaxed);
        if let Some(soft) = self.soft {
            soft.with(|sanitizer, _| {
                sanitizer.segments(root.space.number(), root.at.0, segments(root.asid.into()));
            });
            soft.load(pin, root);
        }
    }

    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        if let Some(soft) = self.soft {
            soft.lazy(pin, space);
        }
    }

    fn resume(&self, pin: &Pinned<'_>, space: SpaceId) {
        if let Some(soft) = self.soft {
            soft.resume(pin, space);
        }
    }

    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        if let Some(soft) = self.soft {
            soft.unload(pin, space);
        }
    }
}
