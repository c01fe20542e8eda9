//! Tables for somebody else's tree: a sparse tree made, filled and dropped, with pages of the lists
//! and without.
//!
//! ```sh
//! cargo run --release -p ptarmigan-bench --example foreign-tables
//! ```
//!
//! All trees have the entries of one released crate, `page_table_multiarch`, by its public traits:
//!
//! * *released, a stack of frames*: the crate itself on the fastest allocator that there is, a
//!   stack. It clears each table that it gets, and looks at every entry of each table that it
//!   drops, leaf tables excepted.
//! * *released, lists*: the crate itself on the lists. Its allocator hooks do not say what was
//!   written to a table, so each one is cleared as a whole before it goes back, and the crate
//!   clears it again when it comes. That loses.
//! * *lists, lines noted*: sixty lines on the same traits that note the lines of a table that they
//!   write.
//!
//! A crate whose users are to have the last of these has to promise two things in its allocator's
//! contract. **Zero when it comes**: a table that the allocator hands out is all zero, and the
//! crate does not clear it. **Zero when it goes**: a table that the crate gives back is all zero,
//! and it says which lines it has written, or clears them itself as [`ForeignTable`] does. On a
//! machine with an MMU there is a third: a table goes back only after the flush. `dealloc_frame`
//! cannot say that, so hooks would have to give tables to a chain; here no MMU walks the trees.
use memory_addr::{PhysAddr, VirtAddr};
use page_table_entry::x86_64::X64PTE;
use page_table_multiarch::x86_64::{X64PageTable, X64PagingMetaData};
use page_table_multiarch::{GenericPTE, MappingFlags, PageSize, PagingHandler, PagingMetaData};
use ptarmigan::format::{Format, X86_64};
use ptarmigan::frames::{AllocFlags, NoFrame};
use ptarmigan::page::{Clean, ForeignTable, Layout, Level, NoConstruct};
use ptarmigan::quicklist::{ListsConfig, Policy, PolicyOn, Quicklists, Source};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig};
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::marker::PhantomData;

const PAGE: usize = 4096;
/// Pages mapped in a tree, each in a leaf table of its own, at an offset of its own.
const PAGES: usize = 32;
const ROUNDS: usize = 21;
const TREES: u32 = 500;
const LAYOUT: Layout = X86_64::LAYOUT;

type Lists = Quicklists<'static, DirectMap, NoConstruct>;

/// What the hooks of the released crate find: they have no place of their own for it.
struct Machine {
    slot: CpuSlot,
    lists: &'static Lists,
    stack: RefCell<Vec<usize>>,
}

std::thread_local! {
    static MACHINE: Cell<Option<&'static Machine>> = const { Cell::new(None) };
}

fn machine() -> &'static Machine {
    MACHINE.get().expect("set in `main`")
}

fn bytes_of(frame: PhysAddr) -> *mut u8 {
    let at = ptarmigan::addr::PhysAddr(frame.as_usize() as u64);
    machine().lists.source().window().open(at).base()
}

/// A stack of frames.
struct Stack;

impl PagingHandler for Stack {
    fn alloc_frame() -> Option<PhysAddr> {
        machine().stack.borrow_mut().pop().map(PhysAddr::from_usize)
    }
    fn alloc_frames(frames: usize, _: usize) -> Option<PhysAddr> {
        if frames == 1 { Self::alloc_frame() } else { None }
    }
    fn dealloc_frame(frame: PhysAddr) {
        machine().stack.borrow_mut().push(frame.as_usize());
    }
    fn dealloc_frames(frame: PhysAddr, _: usize) {
        Self::dealloc_frame(frame);
    }
    fn phys_to_virt(frame: PhysAddr) -> VirtAddr {
        VirtAddr::from_mut_ptr_of(bytes_of(frame))
    }
}

/// The lists, by hooks that do not know what was written.
struct OnLists;

impl PagingHandler for OnLists {
    fn alloc_frame() -> Option<PhysAddr> {
        let m = machine();
        let pin = m.slot.pin();
        let page = PolicyOn::new(m.lists, &pin)?.alloc(Level::PTE, AllocFlags::NORMAL).ok()?;
        Some(PhysAddr::from_usize(page.into_raw().0 as usize))
    }
    fn alloc_frames(frames: usize, _: usize) -> Option<PhysAddr> {
        if frames == 1 { Self::alloc_frame() } else { None }
    }
    fn dealloc_frame(frame: PhysAddr) {
        let m = machine();
        // SAFETY: the crate gives the table away, and a frame is as long.
        unsafe { bytes_of(frame).write_bytes(0, PAGE) };
        let at = ptarmigan::addr::PhysAddr(frame.as_usize() as u64);
        // SAFETY: 1. `alloc_frame` handed it out. 2. cleared just now. 3. there is no MMU.
        let page = unsafe { Clean::from_raw(at, Level::PTE) };
        if let Some(here) = PolicyOn::new(m.lists, &m.slot.pin()) {
            // SAFETY: 1. `alloc_frame` had it from these lists.
            unsafe { here.free_unlinked(page) };
        }
    }
    fn dealloc_frames(frame: PhysAddr, _: usize) {
        Self::dealloc_frame(frame);
    }
    fn phys_to_virt(frame: PhysAddr) -> VirtAddr {
        VirtAddr::from_mut_ptr_of(bytes_of(frame))
    }
}

/// A tree that takes its tables zero, notes what it writes, and gives them back zero.
struct Noting<'a, M: PagingMetaData, P: GenericPTE> {
    here: PolicyOn<'a, Lists>,
    root: ptarmigan::addr::PhysAddr,
    _entries: PhantomData<(M, P)>,
}

impl<'a, M: PagingMetaData, P: GenericPTE> Noting<'a, M, P> {
    const ROOT: Level = Level(M::LEVELS as u8 - 1);

    fn new(here: PolicyOn<'a, Lists>) -> Result<Self, NoFrame> {
        Ok(Noting { here, root: Self::table(here, Self::ROOT)?.into_raw(), _entries: PhantomData })
    }

    fn table(here: PolicyOn<'a, Lists>, level: Level) -> Result<ForeignTable<'static>, NoFrame> {
        let frames = here.policy().source().frames();
        let page = here.alloc(level, AllocFlags::NORMAL)?;
        // SAFETY: 1. the lists make tables of this layout of these frames.
        Ok(unsafe { page.into_table(frames, &LAYOUT) })
    }

    /// Opens a table of this tree.
    fn open(&self, level: Level, at: ptarmigan::addr::PhysAddr) -> ForeignTable<'static> {
        // SAFETY: 1. all tables of the tree come from `table`, and only `drop_table` hands them
        // back. 2. it has `&mut self`.
        unsafe { ForeignTable::from_raw(self.here.policy().source().frames(), &LAYOUT, level, at) }
    }

    fn entry(&self, table: &ForeignTable<'_>, offset: usize) -> *mut P {
        let base = self.here.policy().source().window().open(table.addr()).base();
        // SAFETY: the offset of an entry lies within the table.
        unsafe { base.add(offset).cast() }
    }

    fn map(&mut self, va: usize, frame: PhysAddr, flags: MappingFlags) -> Result<(), NoFrame> {
        let mut at = self.root;
        for level in (0..M::LEVELS as u8).rev().map(Level) {
            let index = (va / PAGE) >> (9 * level.0) & 511;
            let (table, offset) = (self.open(level, at), index * size_of::<P>());
            let entry = self.entry(&table, offset);
            // SAFETY: an entry of a table of this tree, which `&mut self` has alone.
            let old = unsafe { entry.read() };
            let next = if level == Level::PTE {
                P::new_page(frame, flags, false)
            } else if old.is_unused() {
                at = Self::table(self.here, Level(level.0 - 1))?.into_raw();
                P::new_table(PhysAddr::from_usize(at.0 as usize))
            } else {
                at = ptarmigan::addr::PhysAddr(old.paddr().as_usize() as u64);
                continue;
            };
            table.touched(offset);
            // SAFETY: as above.
            unsafe { entry.write(next) };
        }
        Ok(())
    }

    /// Hands a table back, those below it first.
    fn drop_table(&mut self, level: Level, at: ptarmigan::addr::PhysAddr) {
        let table = self.open(level, at);
        if level > Level::PTE {
            for offset in table.touched_lines().flat_map(|line| line.step_by(size_of::<P>())) {
                // SAFETY: as in `map`.
                let entry = unsafe { self.entry(&table, offset).read() };
                if !entry.is_unused() {
                    let child = ptarmigan::addr::PhysAddr(entry.paddr().as_usize() as u64);
                    self.drop_table(Level(level.0 - 1), child);
                }
            }
        }
        // SAFETY: 1. the tree ends. 2. `map` notes every entry that it writes. 3. `&mut self`. 4.
        // it is the lists' window.
        let table = unsafe { table.clear_touched(self.here.policy().source().window()) };
        // SAFETY: 1. there is no MMU.
        let page = unsafe { table.never_walked() };
        // SAFETY: 1. `table` had it from these lists.
        unsafe { self.here.free_unlinked(page) };
    }
}

impl<M: PagingMetaData, P: GenericPTE> Drop for Noting<'_, M, P> {
    fn drop(&mut self) {
        self.drop_table(Self::ROOT, self.root);
    }
}

/// Processor time of the calling thread, in nanoseconds.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds for one of `TREES` trees.
fn each<E>(mut tree: impl FnMut(u32) -> Result<(), E>) -> Result<f64, E> {
    let start = now();
    (0..TREES).try_for_each(&mut tree)?;
    Ok((now() - start) as f64 / f64::from(TREES))
}

/// The pages of tree number `n`: one in each of 32 regions of 2 MiB, at an offset of its own.
fn pages(n: u32) -> impl Iterator<Item = (usize, PhysAddr)> {
    (0..PAGES).map(move |i| {
        let offset = (((n as usize * 31 + i * 97) * 2654435761) >> 7) & 511;
        (0x40_0000_0000 + (i << 21) + offset * PAGE, PhysAddr::from_usize(0x1_0000_0000 + i * PAGE))
    })
}

fn flags() -> MappingFlags {
    MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER
}

fn released<H: PagingHandler>(n: u32) -> Result<(), Box<dyn Error>> {
    let mut table = X64PageTable::<H>::try_new().map_err(|e| format!("{e:?}"))?;
    let mut cursor = table.cursor();
    for (va, frame) in pages(n) {
        cursor
            .map(VirtAddr::from_usize(va), frame, PageSize::Size4K, flags())
            .map_err(|e| format!("{e:?}"))?;
    }
    Ok(())
}

fn noting(here: PolicyOn<'_, Lists>, n: u32) -> Result<(), Box<dyn Error>> {
    let mut tree = Noting::<X64PagingMetaData, X64PTE>::new(here)?;
    for (va, frame) in pages(n) {
        tree.map(va, frame, flags())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    // Leaked: the crate wants allocators that live for ever.
    let host: &'static Host<X86_64> =
        Box::leak(Box::new(Host::new(HostConfig { cpus: 2, ..HostConfig::default() })?));
    let config = ListsConfig::new(host.config().cpus);
    let mut boot = host.boot(Lists::bytes(&host.frames().size(), &config))?;
    // SAFETY: 1. the window is the host's, which reaches all of its frames. 2. nothing is
    // constructed. 3. four levels, whose tables are frames. 4. entries have 64 bits.
    let source = unsafe { Source::new(host.frames(), host.window(), NoConstruct, LAYOUT) };
    let lists: &'static Lists = Box::leak(Box::new(Lists::new(&mut boot, config, source)?));
    let slot = host.slot(0).ok_or("the CPU is taken")?;
    let pin = slot.pin();
    let here = PolicyOn::new(lists, &pin).ok_or("the lists are this host's")?;
    let stack =
        (0..64).map(|_| Ok::<_, NoFrame>(here.alloc(Level::PTE, AllocFlags::NORMAL)?.into_raw().0 as usize));
    let stack = RefCell::new(stack.collect::<Result<_, _>>()?);
    let second = host.slot(1).ok_or("the CPU is taken")?;
    MACHINE.set(Some(Box::leak(Box::new(Machine { slot: second, lists, stack }))));

    let names = ["released, a stack of frames", "released, lists", "lists, lines noted"];
    let mut figures = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        figures[0].push(each(released::<Stack>)?);
        figures[1].push(each(released::<OnLists>)?);
        figures[2].push(each(|n| noting(here, n))?);
    }
    let medians = figures.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!("a tree of {PAGES} pages, each in a table of its own, made, filled and dropped");
    for (name, time) in names.iter().zip(medians) {
        println!("{name:<28} {time:>8.0} ns {:>5.1} x", medians[0] / time);
    }
    let counts = lists.counts();
    if counts.live() != 64 {
        return Err(format!("{} pages did not come back", counts.live() as i64 - 64).into());
    }
    Ok(())
}
