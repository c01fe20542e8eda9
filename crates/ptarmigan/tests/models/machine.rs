//! A machine of models: memory, MMUs, and pools of table pages that each CPU has to itself.
use crate::mmu::{Lie, Memory, Mmus, Owner, Watched};
use crate::small::{ENTRIES, REAL, Small};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::JoinHandle;
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::format::{Attr, Format, FormatExt};
use ptarmigan::frames::{
    AllocFlags, DataFrame, DataFrames, End, Frame, Frames, MemoryRun, MemorySize, NoFrame, Request, Zero,
    ZoneClass,
};
use ptarmigan::gather::Gather;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::{Clean, Flushed, FlushedLeaves, Level, NoConstruct};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::{Here, Policy, PolicyCounts, Returned, Source, TakesUnhooked};
use ptarmigan::space::SpaceMachine;
use ptarmigan::table::Free;
use ptarmigan::tlb::{Tlb, TlbConfig};
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Tries `f` in every schedule with up to `preemptions` preemptions (`LOOM_MAX_PREEMPTIONS` says
/// otherwise), and says how many executions that were.
pub fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    check(preemptions, None, f);
}

/// As [`model`], but no more than `executions`: where there are too many schedules to try them all.
pub fn part_of_model(preemptions: usize, executions: usize, f: impl Fn() + Send + Sync + 'static) {
    check(preemptions, Some(executions), f);
}

fn check(preemptions: usize, executions: Option<usize>, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 50_000;
    if let Some(most) = executions {
        builder.max_permutations = Some(most);
        builder.checkpoint_interval = 1_000;
    }
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = made.clone();
    let start = std::time::Instant::now();
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        f();
    });
    let n = made.load(std::sync::atomic::Ordering::Relaxed);
    println!("{n} executions in {:.1} s", start.elapsed().as_secs_f64());
}

/// The shape of a machine.
#[derive(Clone, Copy)]
pub struct Shape {
    pub cpus: usize,
    /// Table pages in the pool of each CPU.
    pub tables: usize,
    /// Data frames on the list of each CPU (0 to 2).
    pub data: usize,
    /// Frames besides these: for areas.
    pub spare: usize,
    pub asids: u16,
    pub park: u32,
    pub lie: Lie,
    /// Entries that tables have: `REAL`, or all of them where large pages become tables.
    pub entries: usize,
}

pub const SHAPE: Shape =
    Shape { cpus: 2, tables: 2, data: 1, spare: 0, asids: 0, park: 0, lie: Lie::None, entries: REAL };

/// Pools of table pages, which do not order the CPUs' accesses.
pub struct Pool {
    frames: Arc<Frames>,
    memory: Arc<Memory>,
    lists: Vec<RefCell<Vec<PhysAddr>>>,
}

// SAFETY: an execution of a model runs on one thread of the host.
unsafe impl Sync for Pool {}
// SAFETY: as above.
unsafe impl Send for Pool {}

impl Pool {
    fn put(&self, here: Here<'_>, page: Returned<Clean>) {
        let at = page.into_inner().into_raw();
        for i in 0..REAL {
            assert_eq!(self.memory.walk(at.pfn(), i), 0, "a page is given back and is not clean");
        }
        self.memory.give(at.pfn(), Owner::Nobody);
        self.lists[here.cpu().0 as usize].borrow_mut().push(at);
    }
}

// SAFETY: 1. they are fields. 2. the page is of the level that is asked for, as there is but one
// kind. 3. a page is on one list, and only pages that `put` finds clean are put there. 4. proofs go
// to no other policy.
unsafe impl Policy for Pool {
    fn machine(&self) -> MachineId {
        self.frames.machine()
    }
    fn cpus(&self) -> usize {
        self.lists.len()
    }
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        None
    }
    fn alloc(&self, here: Here<'_>, level: Level, _: AllocFlags) -> Result<Clean, NoFrame> {
        let at = self.lists[here.cpu().0 as usize].borrow_mut().pop().expect("the pool is large enough");
        self.memory.give(at.pfn(), Owner::Table);
        for i in 0..REAL {
            assert_eq!(self.memory.walk(at.pfn(), i), 0, "a page in the pool is not clean");
        }
        // SAFETY: 1. it was in the pool. 2. as just seen. 3. only flushed and unused pages come
        // here.
        Ok(unsafe { Clean::from_raw(at, level) })
    }
    fn alloc_at_hand(&self, _: Here<'_>, _: Level, _: AllocFlags) -> Option<Clean> {
        None
    }
    fn adopt(&self, _: Here<'_>, page: &Clean) {
        self.memory.give(page.addr().pfn(), Owner::Table);
    }
    fn free_unlinked(&self, here: Here<'_>, page: Returned<Clean>) {
        self.put(here, page);
    }
    fn flushed(&self, here: Here<'_>, mut pages: Returned<Flushed>) {
        // SAFETY: 1. the pool's tables are of its frames.
        while let Some(page) = unsafe { pages.pop(&self.frames) } {
            self.put(here, page);
        }
    }
    fn flushed_leaves<'t>(
        &self,
        _: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        Err(pages)
    }
    fn gather_end(&self, _: Here<'_>) {}
    fn idle(&self, _: Here<'_>) {}
    fn end_interval(&self, _: Here<'_>) -> u32 {
        0
    }
    fn reclaim(&self, _: Here<'_>, _: NodeId, _: u32) -> u32 {
        0
    }
    fn drain(&self, _: Here<'_>) {}
    fn counts(&self) -> PolicyCounts {
        PolicyCounts::default()
    }
}

pub struct World<const L: u8, const B: bool = false> {
    pub memory: Arc<Memory>,
    frames: Arc<Frames>,
    data: DataFrames,
    window: Watched,
    policy: Pool,
    tlb: Tlb<Mmus<L, B>>,
    parking: Parking,
    zero: Pfn,
    tables: usize,
    /// Data frames and spare frames that are to be back in the end.
    free: u32,
    /// CPUs that still have something to do.
    busy: AtomicUsize,
    _boot: Vec<MaybeUninit<u64>>,
}

// SAFETY: an execution of a model runs on one thread of the host.
unsafe impl<const L: u8, const B: bool> Send for World<L, B> {}
// SAFETY: as above.
unsafe impl<const L: u8, const B: bool> Sync for World<L, B> {}

std::thread_local! {
    /// The machine of the execution that this thread of the host is at: all threads of the model
    /// run on it.
    static MACHINE: Cell<Option<MachineId>> = const { Cell::new(None) };
}

/// The proof of being on a CPU.
pub fn pin(cpu: usize) -> Pinned<'static> {
    // SAFETY: 1. each thread of a model is one CPU, and the first is all of them while it is alone.
    // 2. models use no other numbers than their machines have.
    let machine = MACHINE.get().expect("a model makes its world first");
    unsafe { Pinned::assume(machine, CpuId(cpu as u16), NodeId(0)) }
}

impl<const L: u8, const B: bool> World<L, B> {
    pub fn new(shape: Shape) -> Arc<Self> {
        let Shape { cpus, .. } = shape;
        let tables = shape.tables * cpus;
        // Frame 0 is not used; one is the zero frame.
        let total = 1 + tables + shape.data * cpus + shape.spare;
        let memory = Arc::new(Memory::new(total + 1, 1 + tables as u32));
        let config = TlbConfig { asids: shape.asids, park: shape.park, ..TlbConfig::new(cpus) };
        // Tables have a node to themselves: only their frames are furnished.
        let run = |start: usize, frames: usize, node| MemoryRun {
            start: Pfn(start as u32),
            frames: frames as u32,
            node: NodeId(node),
            class: ZoneClass::Low,
        };
        let runs = [run(1, tables, 1), run(1 + tables, total - tables, 0)];
        let bytes = Frames::bytes(&MemorySize::of(&runs))
            + DataFrames::bytes(cpus, 2)
            + Tlb::<Mmus<L, B>>::bytes(&config)
            + Parking::bytes(cpus);
        let mut block: Vec<MaybeUninit<u64>> = Vec::with_capacity(bytes / 8 + 1);
        // SAFETY: 1. the block is kept in the world beside the parts made of it, which is used
        // through the world only.
        let mut boot =
            unsafe { BootMemory::new(core::ptr::NonNull::new(block.as_mut_ptr().cast()).unwrap(), bytes) };
        let machine = MachineId::new();
        MACHINE.set(Some(machine));
        // SAFETY: 1. the memory was made above for these frames. 2. the identity is new.
        let frames = Arc::new(unsafe { Frames::new(&mut boot, machine, &runs) }.unwrap());
        let data = DataFrames::new(&mut boot, &frames, cpus).unwrap();
        let request = |node| Request {
            node: NodeId(node),
            order: 0,
            zero: false,
            class: ZoneClass::Low,
            end: End::Low,
            flags: AllocFlags::URGENT,
        };
        let pages: Vec<Pfn> =
            (0..tables).map(|_| frames.take(request(1)).unwrap().dirty().into_raw()).collect();
        for pfn in pages {
            memory.furnish(pfn, shape.entries);
            // SAFETY: 1. taken above. 2. it has no entries, which is zero here.
            frames.give(unsafe { Frame::<Zero>::from_raw(machine, pfn, 0) });
        }
        // SAFETY: 1. all frames lie in the memory. 2. no page is constructed. 3. tables are frames.
        // 4. their numbers are small.
        let source =
            unsafe { Source::new(&frames, Watched(memory.clone()), NoConstruct, Small::<L>::LAYOUT) };
        let mut pages =
            (0..tables).map(|_| source.make(NodeId(1), Level(0), AllocFlags::URGENT).unwrap().into_raw());
        let lists = (0..cpus).map(|_| RefCell::new(pages.by_ref().take(shape.tables).collect())).collect();
        drop(pages);
        drop(source);
        let zero = frames.take(request(0)).unwrap().dirty().into_raw();
        memory.give(zero, Owner::Data);
        for cpu in 0..cpus {
            let mine: Vec<_> =
                (0..shape.data).map(|_| data.take(&frames, &pin(cpu), AllocFlags::URGENT).unwrap()).collect();
            for frame in mine {
                assert!(data.release(&frames, &pin(cpu), frame).unwrap());
            }
        }
        let mmus = Mmus::new(memory.clone(), cpus, shape.lie);
        // SAFETY: 1. the identity is new.
        let tlb = unsafe { Tlb::new(&mut boot, machine, config, mmus) }.unwrap();
        let parking = Parking::new(&mut boot, machine, cpus, config.park).unwrap();
        let policy = Pool { frames: frames.clone(), memory: memory.clone(), lists };
        let free = (shape.data * cpus + shape.spare) as u32;
        Arc::new(World {
            window: Watched(memory.clone()),
            memory,
            frames,
            data,
            policy,
            tlb,
            parking,
            zero,
            tables,
            free,
            busy: AtomicUsize::new(cpus),
            _boot: block,
        })
    }

    /// The machine, seen from a CPU.
    pub fn seen<'a>(&'a self, pin: &'a Pinned<'a>) -> On<'a, Self> {
        Machine::on(self, pin).expect("pins are of the execution's machine")
    }

    /// Has a thread of its own be a CPU until all CPUs are done.
    pub fn cpu(
        self: &Arc<Self>,
        cpu: usize,
        f: impl FnOnce(&Self, On<'_, Self>) + 'static,
    ) -> JoinHandle<()> {
        let world = self.clone();
        loom::thread::spawn(move || {
            let pin = pin(cpu);
            f(&world, world.seen(&pin));
            world.attend(&pin);
        })
    }

    /// As [`cpu`](Self::cpu), for a CPU that nobody asks.
    pub fn beside(
        self: &Arc<Self>,
        cpu: usize,
        f: impl FnOnce(&Self, On<'_, Self>) + 'static,
    ) -> JoinHandle<()> {
        let world = self.clone();
        loom::thread::spawn(move || {
            f(&world, world.seen(&pin(cpu)));
            world.leave();
        })
    }

    /// This CPU has finished.
    pub fn leave(&self) {
        // Relaxed: the order must come from the library.
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// This CPU has finished, but others may need it.
    pub fn attend(&self, pin: &Pinned<'_>) {
        self.leave();
        while self.busy.load(Ordering::Relaxed) > 0 {
            self.tlb.serve(pin);
            loom::thread::yield_now();
        }
    }

    /// Two CPUs of one thread look after their mail until those of other threads have left.
    pub fn until_all_left(&self, pins: &[&Pinned<'_>; 2]) {
        while self.busy.load(Ordering::Relaxed) > 2 {
            pins.iter().for_each(|pin| self.tlb.serve(pin));
            loom::thread::yield_now();
        }
        self.leave();
    }

    /// The MMU of a CPU acts on its own; then an interrupt that is waiting comes in.
    pub fn step(&self, pin: &Pinned<'_>, va: u64) {
        self.mmu().look(pin, va);
        self.tlb.serve(pin);
    }

    pub fn mmu(&self) -> &Mmus<L, B> {
        self.tlb.hardware()
    }

    /// Gives the frames that this CPU has got back to their next users.
    pub fn reuse(&self, pin: &Pinned<'_>) {
        let at = self.policy.lists[pin.cpu().0 as usize].borrow().clone();
        for at in at {
            self.memory.give(at.pfn(), Owner::Nobody);
        }
        // It may be parked still.
        let Ok(frame) = self.data.take(&self.frames, pin, AllocFlags::URGENT) else { return };
        self.memory.give(frame.pfn(), Owner::Nobody);
        assert!(self.data.release(&self.frames, pin, frame).unwrap());
    }

    /// Takes a block of as many frames as a table has entries.
    pub fn block(&self) -> DataFrame {
        let order = ENTRIES.trailing_zeros() as u8;
        self.data.take_block(&self.frames, &pin(0), order, AllocFlags::URGENT).unwrap()
    }

    /// Gives a block back.
    pub fn give_block(&self, block: DataFrame) {
        assert!(self.data.release(&self.frames, &pin(0), block).unwrap());
    }

    /// All CPUs are done: every page is back.
    pub fn audit(&self) {
        let tables: usize = self.policy.lists.iter().map(|l| l.borrow().len()).sum();
        assert_eq!(tables, self.tables, "table pages are missing");
        for cpu in 0..self.policy.lists.len() {
            self.data.drain(&self.frames, &pin(cpu));
        }
        assert_eq!(self.frames.counts().free, self.free, "frames are missing");
    }
}

/// A root of a space, and leaf tables of one page each, that are not the library's: gathers and
/// flushes are tried on them alone.
pub struct Tables {
    root: PhysAddr,
}

const ROOT: Level = Level(1);
type Two = Small<2>;

impl Tables {
    /// A root, with a page of the CPU's own at `va`.
    pub fn new<const B: bool>(on: On<'_, World<2, B>>, va: u64) -> Self {
        let memory = &on.machine().memory;
        let take = |level| on.alloc(level, AllocFlags::URGENT).unwrap().into_raw();
        let (root, leaf) = (take(ROOT), take(Level::PTE));
        let pfn = on.data().take(on.frames(), on.pin(), AllocFlags::URGENT).unwrap().into_raw();
        memory.give(pfn, Owner::Data);
        let raw = Two::leaf(Level::PTE, pfn, Attr::READ | Attr::WRITE);
        memory.swap(leaf.pfn(), Two::index(Level::PTE, va), raw);
        memory.swap(root.pfn(), Two::index(ROOT, va), Two::link(ROOT, leaf));
        Tables { root }
    }

    /// Returns the root that MMUs load.
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// Unmaps the page at `va`, and its table if `free` says so; the gather has the frame.
    pub fn unmap<const B: bool>(&mut self, va: u64, free: Free, gather: &mut Gather<'_, World<2, B>>) {
        let memory = &gather.on().machine().memory;
        let index = Two::index(ROOT, va);
        let leaf = Two::linked(ROOT, memory.walk(self.root.pfn(), index)).expect("the page is mapped");
        let raw = memory.swap(leaf.pfn(), Two::index(Level::PTE, va), 0);
        gather.changed(va, va + 4096);
        // SAFETY: 1. the entry held the only reference. 2. done.
        unsafe { gather.release::<Two>(Level::PTE, raw) };
        if free == Free::Empty {
            memory.swap(self.root.pfn(), index, 0);
            // SAFETY: 1. the link was the only one; `new` took the table. 2. its only entry is
            // gone. 3. done. 4. pages of one size. 5. it is a leaf table.
            unsafe { gather.foreign_table(leaf, Level::PTE, va).expect("it is no root") };
        }
    }
}

// SAFETY: 1. all parts are made for the machine in `new`. 2. they are fields. 3. the window is the
// memory's; data is kept apart from frames.
unsafe impl<const L: u8, const B: bool> Machine for World<L, B> {
    type Window = Watched;
    type Policy = Pool;
    type Shootdown = Mmus<L, B>;

    fn frames(&self) -> &Frames {
        &self.frames
    }
    fn data(&self) -> &DataFrames {
        &self.data
    }
    fn window(&self) -> &Watched {
        &self.window
    }
    fn policy(&self) -> &Pool {
        &self.policy
    }
    fn tlb(&self) -> &Tlb<Mmus<L, B>> {
        &self.tlb
    }
    fn parking(&self) -> &Parking {
        &self.parking
    }
    unsafe fn clear_data(&self, _: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        self.memory.give(frame, Owner::Data);
        self.memory.write(frame, 0);
        Ok(())
    }
    unsafe fn copy_data(&self, _: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        self.memory.reach(from, Owner::Data);
        self.memory.give(to, Owner::Data);
        self.memory.write(to, self.memory.read(from));
        Ok(())
    }
}

// SAFETY: 1. and 2. the zero frame is taken in `new` and stays.
unsafe impl<const L: u8, const B: bool> SpaceMachine for World<L, B> {
    fn zero_frame(&self) -> Pfn {
        self.zero
    }
    fn backing_frame(&self, _: u32, _: u64) -> Option<Pfn> {
        None
    }
}
