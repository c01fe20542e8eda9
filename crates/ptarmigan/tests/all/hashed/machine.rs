//! A hosted machine with a hashed page table: CPUs that find pages in their TLBs, else in the hash
//! table, else in the software's tables.
pub use ptarmigan::format::Access;

use crate::physical::{assert_zero, small};
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Attr, Format, FormatExt, Formats, Ppc32};
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::machine::On;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Layered, Policy};
use ptarmigan::space::{AreaFlags, SharedSpace, Space, SpaceMachine};
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::hash::{HashLayout, HashTable, Hashed32, Inserted, Mapping, Refill, Tag};
use ptarmigan::tlb::{CostModel, Invalidation, Mmu, Root, Scope, SpaceId, Structures, TlbConfig};
use ptarmigan_hosted::{CpuSlot, Delivery, Host, HostMachine};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

pub const PAGE: u64 = 4096;
pub const RW: AreaFlags = AreaFlags(3);
/// The bit of an entry that says that the page was hashed.
const HASHED: u64 = Ppc32::KEPT;
/// The smallest table.
pub const BYTES: usize = 64 << 10;
/// Segments of the user and of the kernel.
const USER: std::ops::Range<u32> = 0..12;
const KERNEL: std::ops::Range<u32> = 12..16;

pub fn va(at: u64) -> VirtAddr {
    VirtAddr(at)
}

pub fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start, start + n * PAGE).unwrap()
}

#[derive(Default)]
struct Cpu {
    loaded: Option<(SpaceId, u16)>,
    tlb: BTreeMap<Tag, Mapping>,
}

/// The MMUs of all CPUs, which share a hash table.
pub struct HashedMmu<L: HashLayout = Hashed32> {
    table: HashTable<L>,
    memory: (NonNull<u8>, Layout),
    cpus: Mutex<Vec<Cpu>>,
    /// Under which number a space was loaded last.
    numbers: Mutex<HashMap<SpaceId, u16>>,
    /// The next flush unwinds before it has done anything.
    fails: AtomicBool,
}

// SAFETY: `memory` is only given back.
unsafe impl<L: HashLayout> Sync for HashedMmu<L> {}

impl<L: HashLayout> Drop for HashedMmu<L> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; no code uses the table any more.
        unsafe { dealloc(self.memory.0.as_ptr(), self.memory.1) };
    }
}

impl<L: HashLayout> HashedMmu<L> {
    fn new(cpus: usize, bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, bytes).expect("a power of two");
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc(layout) }).expect("there is memory");
        // SAFETY: 1. allocated above, and freed when the table has gone.
        let table = unsafe { HashTable::new(base, bytes as u64) }.expect("a size that there is");
        let cpus = Mutex::new((0..cpus).map(|_| Cpu::default()).collect());
        HashedMmu {
            table,
            memory: (base, layout),
            cpus,
            numbers: Mutex::default(),
            fails: AtomicBool::new(false),
        }
    }

    pub fn table(&self) -> &HashTable<L> {
        &self.table
    }

    /// Has the next flush unwind before it does anything.
    pub fn fail_next(&self) {
        self.fails.store(true, Ordering::Relaxed);
    }

    /// The space that a CPU has loaded.
    pub fn loaded(&self, cpu: usize) -> Option<SpaceId> {
        self.cpus.lock().unwrap()[cpu].loaded.map(|(space, _)| space)
    }

    /// Has all CPUs forget a page: `tlbie`.
    fn forget(&self, tag: Tag) {
        self.cpus.lock().unwrap().iter_mut().for_each(|cpu| _ = cpu.tlb.remove(&tag));
    }

    fn forget_all(&self) {
        self.cpus.lock().unwrap().iter_mut().for_each(|cpu| cpu.tlb.clear());
    }

    fn flush(&self, context: u16, scope: &Scope, segments: std::ops::Range<u32>) {
        if self.fails.swap(false, Ordering::Relaxed) {
            std::panic::panic_any("planted");
        }
        let context = u32::from(context);
        match scope.pages() {
            Some(pages) => pages.for_each(|va| {
                let tag = Tag::of(context, va as u32);
                self.table.remove(tag, || self.forget(tag));
            }),
            None => _ = self.table.remove_segments(context, segments, || self.forget_all()),
        }
    }

    /// An access on a CPU, for which `refill` reads the software's entry: the frame that it goes
    /// to, `None` for a fault.
    fn translate(
        &self,
        cpu: usize,
        tag: Tag,
        access: Access,
        refill: impl Fn() -> Option<Refill<u64>>,
    ) -> Option<Pfn> {
        let allows = |m: Mapping| access != Access::Write || m.0 & 3 == 2;
        let known = self.cpus.lock().unwrap()[cpu].tlb.get(&tag).copied();
        let mut found = known.or_else(|| self.table.look_up(tag));
        if !found.is_some_and(allows) {
            // SAFETY: 1. no code reaches memory through the table. 2. the tables say it.
            let how = unsafe { self.table.refill(tag, || refill().map(|page| page.map(mapping))) }?;
            if how == Inserted::Again {
                self.forget(tag);
            }
            found = self.table.look_up(tag);
        }
        let found = found.expect("it has just been put in");
        assert!(allows(found), "{tag:?} was refilled with {found:?}");
        self.cpus.lock().unwrap()[cpu].tlb.insert(tag, found);
        Some(Pfn(found.0 >> 12))
    }

    /// An access of the user's to `va` in `space`, which the CPU has loaded.
    pub fn access<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        space: &Space<Ppc32>,
        va: u64,
        access: Access,
    ) -> Option<Pfn> {
        let cpu = usize::from(on.cpu().0);
        let (loaded, number) = self.cpus.lock().unwrap()[cpu].loaded.expect("a space is loaded");
        assert_eq!(loaded, space.tlb().id());
        let tree = space.tree().on(on).expect("of this machine");
        self.translate(cpu, Tag::of(number.into(), va as u32), access, || tree.refill(VirtAddr(va), access))
    }

    /// As [`access`](Self::access), while others are at work on the space. The access ends before
    /// the flush of earlier changes, as that of a CPU does.
    pub fn access_shared<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        space: &SharedSpace<Ppc32>,
        va: u64,
        access: Access,
    ) -> Option<Inserted> {
        let cpu = usize::from(on.cpu().0);
        let (loaded, number) = self.cpus.lock().unwrap()[cpu].loaded.expect("a space is loaded");
        assert_eq!(loaded, space.id());
        let tag = Tag::of(number.into(), va as u32);
        let how = space.refill(on, VirtAddr(va), access, |entry| {
            let page = || {
                let entry = entry();
                // The lock is held: an access in between would be seen.
                std::thread::yield_now();
                entry.map(|page| page.map(mapping))
            };
            // SAFETY: 1. no code reaches memory through the table. 2. the tables say it.
            unsafe { self.table.refill(tag, page) }
        });
        let how = how.expect("of this machine");
        if how == Some(Inserted::Again) {
            self.forget(tag);
        }
        how
    }

    /// As [`access`](Self::access); it reaches the frame in the tables.
    pub fn check_access<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        space: &Space<Ppc32>,
        va: u64,
        access: Access,
    ) {
        let got = self.access(on, space, va, access);
        let want = space
            .tree()
            .query(on, VirtAddr(va))
            .filter(|(_, attr)| attr.has(Attr::READ) && (access != Access::Write || attr.has(Attr::WRITE)));
        assert_eq!(got, want.map(|(pfn, _)| pfn), "{access:?} at {va:#x} of {:?}", space.tlb().id());
    }

    /// An access of the kernel's own.
    pub fn access_kernel<M: SpaceMachine, W: ptarmigan::window::OpenWindow>(
        &self,
        on: On<'_, M>,
        kernel: &KernelMap<Ppc32, W>,
        va: u64,
        access: Access,
    ) -> Option<Pfn> {
        let cpu = usize::from(on.cpu().0);
        self.translate(cpu, Tag::of(0, va as u32), access, || kernel.refill(on, VirtAddr(va), access))
    }
}

/// Returns the mapping in the hash table for an entry: writable once it was written to.
fn mapping(raw: u64) -> Mapping {
    let writable =
        Ppc32::attr(Level::PTE, raw).has(Attr::WRITE) && Ppc32::attr(Level::PTE, raw).has(Attr::DIRTY);
    Mapping(Ppc32::frame(Level::PTE, raw).addr().0 as u32 | if writable { 2 } else { 3 })
}

// SAFETY: 1. and 2. pages are taken out of the one table and of all TLBs, or all of the context's.
// 3. translations under another number are not used; everything goes if numbers are handed out
// anew. 4. and 5. no table is walked by any of them. 6. neither is kept. 7. a test in which
// something unwinds has failed.
unsafe impl<L: HashLayout> Mmu for &HashedMmu<L> {
    const FORMATS: Formats = Formats::of::<Ppc32>();
    const BROADCASTS: bool = true;
    const WALKS_TABLES: bool = false;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, _: &Pinned<'_>, what: &Invalidation) {
        self.flush(what.asid, &what.scope, USER);
    }
    fn invalidate_kernel(&self, _: &Pinned<'_>, scope: &Scope) {
        self.flush(0, scope, KERNEL);
    }
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        assert!(root.asid != 0 && root.keep, "the machine has numbers");
        if root.forget_all {
            self.table.wipe(|| self.forget_all());
        }
        self.cpus.lock().unwrap()[usize::from(pin.cpu().0)].loaded = Some((root.space, root.asid));
        let mut numbers = self.numbers.lock().unwrap();
        // The number's translations of another space have been forgotten.
        numbers.retain(|_, number| *number != root.asid);
        numbers.insert(root.space, root.asid);
    }
    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.cpus.lock().unwrap()[usize::from(pin.cpu().0)].loaded = None;
    }
}

/// Sees that tables are handed out all zero, and come back so.
pub struct ZeroTables<'r>(&'r Host<Ppc32>);

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy> Layer<P> for ZeroTables<'_> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.0.frames())
    }

    fn alloc(
        &self,
        _: &P,
        _: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let page = inner()?;
        if level == Level::PTE {
            assert_zero(self.0, page.addr());
        }
        Ok(page)
    }

    fn freeing(&self, _: &Pinned<'_>, level: Level, at: PhysAddr) {
        if level == Level::PTE {
            assert_zero(self.0, at);
        }
    }
}

type Lists<'r> = ptarmigan::quicklist::Quicklists<
    'r,
    ptarmigan::window::DirectMap,
    &'r KernelMap<Ppc32, ptarmigan::window::DirectMap>,
>;
type RigMachine<'r, L> = HostMachine<'r, Ppc32, Layered<ZeroTables<'r>, Lists<'r>>, &'r HashedMmu<L>>;

/// A host and its MMUs.
pub struct Rig<L: HashLayout = Hashed32> {
    pub host: Host<Ppc32>,
    mmu: HashedMmu<L>,
    asids: u16,
}

impl Rig {
    /// A machine with the smallest table, and numbers for more spaces than tests have.
    pub fn new(cpus: usize) -> Self {
        Self::sized(cpus, 1000, BYTES)
    }
}

impl<L: HashLayout> Rig<L> {
    pub fn sized(cpus: usize, asids: u16, bytes: usize) -> Self {
        Rig { host: Host::new(small(cpus, 1, 32)).unwrap(), mmu: HashedMmu::new(cpus, bytes), asids }
    }

    /// Runs `test` on the machine. Afterwards all frames are back.
    pub fn run(&self, costs: CostModel, test: impl FnOnce(&RigMachine<'_, L>, &HashedMmu<L>, &[CpuSlot])) {
        self.run_on(costs, usize::MAX, test);
    }

    /// As [`run`](Self::run), with the slots of no more than `here` CPUs; other threads of the test
    /// may take the others.
    pub fn run_on(
        &self,
        costs: CostModel,
        here: usize,
        test: impl FnOnce(&RigMachine<'_, L>, &HashedMmu<L>, &[CpuSlot]),
    ) {
        let mut slots = self.host.slots();
        let policy = Layered::new(ZeroTables(&self.host), self.host.quicklists().unwrap()).unwrap();
        let config = TlbConfig { costs, asids: self.asids, ..TlbConfig::new(slots.len()) };
        let m = HostMachine::with_tlb(&self.host, policy, &self.mmu, config, Delivery::AtOnce).unwrap();
        slots.truncate(here);
        test(&m, &self.mmu, &slots);
        drop(slots);
        m.drain(&self.host.slots());
        drop(m);
        self.host.audit().unwrap();
    }

    /// The entry of a page as it is in memory; 0 if it has no table.
    pub fn entry(&self, space: &Space<Ppc32>, va: u64) -> u64 {
        // SAFETY: 1. no other thread is at work on the host.
        let word = |at: u64| unsafe { self.host.read(PhysAddr(at), 4) }.expect("within memory") as u32;
        let read = |at: PhysAddr, level: Level| {
            u64::from(word(at.0 + 4 * Ppc32::index(level, va) as u64).swap_bytes())
        };
        let link = read(space.tree().root(), Level(1));
        Ppc32::linked(Level(1), link).map_or(0, |table| read(table, Level::PTE))
    }

    /// Every entry of the hash table is one of these pages of a space that is there, agrees with
    /// the software's entry, which has its bit; an empty entry has no bit left.
    #[track_caller]
    pub fn check_entries(
        &self,
        mmu: &HashedMmu<L>,
        spaces: &[Space<Ppc32>],
        pages: impl Iterator<Item = u64> + Clone,
    ) {
        let numbers = mmu.numbers.lock().unwrap();
        let mut found = 0;
        for space in spaces {
            let number = numbers.get(&space.tlb().id()).copied();
            for va in pages.clone() {
                let raw = self.entry(space, va);
                assert_ne!(raw, HASHED, "{va:#x}: a bit is left of a page that was flushed");
                let Some(number) = number else { continue };
                if let Some(in_table) = mmu.table.look_up(Tag::of(number.into(), va as u32)) {
                    found += 1;
                    assert!(raw & HASHED != 0, "{va:#x} is in the hash table without its bit");
                    assert_eq!(in_table.0 >> 12, Ppc32::frame(Level::PTE, raw).0, "{va:#x}");
                }
            }
        }
        assert_eq!(found, mmu.table.valid(), "entries of pages that are not there");
    }

    /// Returns the error if an entry of the hash table or of a TLB is not that of one of these
    /// pages of the space, or allows more than the tables.
    pub fn check_shared<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        mmu: &HashedMmu<L>,
        space: &SharedSpace<Ppc32>,
        pages: impl Iterator<Item = u64>,
    ) -> Result<(), String> {
        let Some(number) = mmu.numbers.lock().unwrap().get(&space.id()).copied() else { return Ok(()) };
        let cpus = mmu.cpus.lock().unwrap();
        let mut found = 0;
        for va in pages {
            let tag = Tag::of(number.into(), va as u32);
            let hashed = mmu.table.look_up(tag);
            found += usize::from(hashed.is_some());
            let known = cpus.iter().filter_map(|cpu| cpu.tlb.get(&tag).copied());
            for mapping in hashed.into_iter().chain(known) {
                let page = space.query(on, VirtAddr(va)).expect("of this machine");
                let is_right = page.is_some_and(|(frame, attr)| {
                    mapping.0 >> 12 == frame.0 && (mapping.0 & 3 != 2 || attr.has(Attr::WRITE))
                });
                if !is_right {
                    return Err(format!("{va:#x} is known as {mapping:x?}, and is {page:?}"));
                }
            }
        }
        if found != mmu.table.valid() {
            return Err("entries of pages that are not there".into());
        }
        Ok(())
    }
}
