//! Memory, and MMUs that use every freedom of hardware when it is most harmful.
use crate::small::{ENTRIES, Place, Small};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Mutex, MutexGuard};
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::format::{Access, Format, FormatExt, Formats, Slot};
use ptarmigan::page::Level;
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, Root, Scope, SpaceId, Structures};
use ptarmigan::window::{DirectGuard, DirectMap, OpenWindow, Window, WindowGuard};
use std::alloc;
use std::cell::{Cell, RefCell, RefMut};
use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The owner of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Owner {
    Nobody,
    Table,
    Data,
}

/// Physical memory, with an owner written into each frame.
pub struct Memory {
    base: *mut u8,
    layout: alloc::Layout,
    owners: Vec<UnsafeCell<Owner>>,
    /// Values that users have written into data frames: the models ignore races of these.
    values: Vec<AtomicU64>,
    /// Frames below this one and above 0 are those that tables may be in.
    tables_end: u32,
}

// SAFETY: an execution of a model runs on one thread of the host.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(frames: usize, tables_end: u32) -> Self {
        assert!(size_of::<Place>() * ENTRIES <= FRAME_SIZE);
        let layout = alloc::Layout::from_size_align(frames * FRAME_SIZE, FRAME_SIZE).unwrap();
        // SAFETY: the size is not 0.
        let base = unsafe { alloc::alloc(layout) };
        assert!(!base.is_null());
        let owners = (0..frames).map(|_| UnsafeCell::new(Owner::Nobody)).collect();
        let values = (0..frames).map(|_| AtomicU64::new(0)).collect();
        Memory { base, layout, owners, values, tables_end }
    }

    fn map(&self) -> DirectMap {
        // SAFETY: 1. all frames lie in the block, which is kept until the memory is dropped. 2. its
        // address is not given to anybody else.
        unsafe { DirectMap::new(self.base, self.layout.size() as u64) }.unwrap()
    }

    /// Prepares a frame for tables, of which models use the first `entries` entries: all are empty.
    pub fn furnish(&self, pfn: Pfn, entries: usize) {
        let first = self.map().open(pfn.addr()).base().cast::<Place>();
        for i in 0..ENTRIES {
            let place =
                if i < entries { Place::Real(ptarmigan::format::Slot64::new()) } else { Place::Nothing };
            // SAFETY: within the frame, which nobody uses yet.
            unsafe { first.add(i).write(place) };
        }
    }

    /// An entry of a table, as a walker reads it.
    pub fn walk(&self, table: Pfn, index: usize) -> u64 {
        let first = self.map().open(table.addr()).base().cast::<Place>();
        // SAFETY: only frames that were furnished ever become tables.
        unsafe { &*first.add(index) }.walk()
    }

    /// Writes an entry of a table of the models' own, and returns the old value.
    pub fn swap(&self, table: Pfn, index: usize, raw: u64) -> u64 {
        let first = self.map().open(table.addr()).base().cast::<Place>();
        // SAFETY: only frames that were furnished ever become tables.
        unsafe { &*first.add(index) }.swap(raw)
    }

    /// The frame changes hands.
    pub fn give(&self, pfn: Pfn, to: Owner) {
        // SAFETY: loom checks that nobody else is at it.
        self.owners[pfn.0 as usize].with_mut(|p| unsafe { *p = to });
    }

    /// Somebody reaches the frame, taking it for `what`.
    pub fn reach(&self, pfn: Pfn, what: Owner) {
        // SAFETY: loom checks that nobody is writing.
        let owner = self.owners[pfn.0 as usize].with(|p| unsafe { *p });
        assert_eq!(owner, what, "{pfn:?} is reached through an old translation");
    }

    pub fn read(&self, pfn: Pfn) -> u64 {
        self.values[pfn.0 as usize].load(Ordering::Relaxed)
    }

    pub fn write(&self, pfn: Pfn, value: u64) {
        self.values[pfn.0 as usize].store(value, Ordering::Relaxed);
    }
}

/// The library's way to memory: a call that opens a table must find one there.
pub struct Watched(pub Arc<Memory>);

// SAFETY: a direct map, and looking on.
unsafe impl Window for Watched {
    type Guard<'a> = DirectGuard;
    type Error = Infallible;

    fn map(&self, at: PhysAddr) -> Result<DirectGuard, Infallible> {
        if at.pfn().0 < self.0.tables_end {
            self.0.reach(at.pfn(), Owner::Table);
        }
        self.0.map().map(at)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { alloc::dealloc(self.base, self.layout) };
    }
}

/// The fault of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Lie {
    #[default]
    None,
    /// A CPU answers without an invalidation.
    ForgetsNothing,
    /// A CPU answers first, and forgets when it next runs.
    ForgetsLate,
    /// A CPU forgets pages but not the entries of its paging-structure caches.
    KeepsTables,
    /// A load of another root keeps all translations of the TLB, told or not.
    KeepsAtLoad,
    /// The kernel's root is not loaded.
    StaysLoaded,
}

/// Something a TLB holds.
#[derive(Clone, Copy, Debug)]
struct Cached {
    asid: u16,
    /// The level of the table that was found; `None` for a page.
    level: Option<u8>,
    /// The number of the page or of the table's range.
    number: u64,
    pfn: Pfn,
    writable: bool,
}

#[derive(Default)]
struct State {
    root: Option<Root>,
    /// No code of the space runs: pages are not used, but walks go on.
    lazy: bool,
    cached: Vec<Cached>,
    late: Option<Invalidation>,
}

/// The MMU of each CPU. It belongs to the CPU's thread: whatever it does on its own it does between
/// two steps of that, and before it obeys.
///
/// If it broadcasts, an invalidation acts on all CPUs at once, as hardware does it: in one order
/// with the actions of each MMU, and without any other order.
pub struct Mmus<const L: u8, const B: bool = false> {
    memory: Arc<Memory>,
    cpus: Vec<RefCell<State>>,
    /// Held, for each CPU, by the actions of its MMU and by broadcasts to it.
    order: Vec<Mutex<()>>,
    lie: Lie,
    /// An interrupt that comes in the middle of an MMU function that the library calls.
    interrupt: RefCell<Option<Interrupt>>,
    /// Waits for answers unwind.
    gives_up: Cell<bool>,
}

/// The state of one CPU's MMU: on machines that broadcast, no broadcast reaches it meanwhile.
struct Held<'a> {
    state: RefMut<'a, State>,
    _order: Option<MutexGuard<'a, ()>>,
}

impl Deref for Held<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Runs in the middle of something.
pub type Interrupt = Box<dyn Fn(&Pinned<'_>)>;

// SAFETY: an execution of a model runs on one thread of the host.
unsafe impl<const L: u8, const B: bool> Send for Mmus<L, B> {}
// SAFETY: as above; each CPU's state is used by its thread alone.
unsafe impl<const L: u8, const B: bool> Sync for Mmus<L, B> {}

impl<const L: u8, const B: bool> Mmus<L, B> {
    pub fn new(memory: Arc<Memory>, cpus: usize, lie: Lie) -> Self {
        let order = (0..cpus).map(|_| Mutex::new(())).collect();
        let interrupt = RefCell::new(None);
        Mmus {
            memory,
            cpus: (0..cpus).map(|_| RefCell::default()).collect(),
            order,
            lie,
            interrupt,
            gives_up: Cell::new(false),
        }
    }

    /// Has interrupts come in wherever the library calls the MMU.
    pub fn interrupt_with(&self, interrupt: impl Fn(&Pinned<'_>) + 'static) {
        *self.interrupt.borrow_mut() = Some(Box::new(interrupt));
    }

    /// Has waits for answers end by unwinding.
    pub fn give_up_waits(&self) {
        self.gives_up.set(true);
    }

    fn interrupted(&self, pin: &Pinned<'_>) {
        if let Some(interrupt) = self.interrupt.borrow().as_ref() {
            interrupt(pin);
        }
    }

    fn state(&self, pin: &Pinned<'_>) -> Held<'_> {
        self.state_of(pin.cpu().0 as usize)
    }

    fn state_of(&self, cpu: usize) -> Held<'_> {
        let order = B.then(|| self.order[cpu].lock().unwrap());
        Held { state: self.cpus[cpu].borrow_mut(), _order: order }
    }

    /// Looks `va` up as far as it goes, keeps all that is found, and reaches for all that is kept.
    fn speculate(&self, state: &mut State, va: u64) -> Option<Cached> {
        let root = state.root?;
        let page = |c: &Cached| c.asid == root.asid && c.level.is_none() && c.number == va >> 12;
        if !state.cached.iter().any(page) {
            let mut at = (L - 1, root.at.pfn());
            for c in &state.cached {
                if let Some(level) = c.level
                    && c.asid == root.asid
                    && level < at.0
                    && c.number == va >> Small::<L>::shift(Level(level + 1))
                {
                    at = (level, c.pfn);
                }
            }
            loop {
                let (level, table) = at;
                self.memory.reach(table, Owner::Table);
                let raw = self.memory.walk(table, Small::<L>::index(Level(level), va));
                let Some(next) = Small::<L>::linked(Level(level), raw).map(|a| a.pfn()) else { break };
                let number = va >> Small::<L>::shift(Level(level));
                let found = level.checked_sub(1);
                let writable = Small::<L>::allows(Level::PTE, raw, Access::Write);
                state.cached.push(Cached { asid: root.asid, level: found, number, pfn: next, writable });
                let Some(below) = found else { break };
                at = (below, next);
            }
        }
        for c in state.cached.iter().filter(|c| c.asid == root.asid) {
            match c.level {
                Some(_) => self.memory.reach(c.pfn, Owner::Table),
                None if !state.lazy => self.memory.reach(c.pfn, Owner::Data),
                None => {}
            }
        }
        state.cached.iter().find(|c| page(c)).copied()
    }

    /// The MMU walks on its own.
    pub fn look(&self, pin: &Pinned<'_>, va: u64) {
        let mut state = self.state(pin);
        self.speculate(&mut state, va);
        self.late(&mut state);
        drop(state);
    }

    /// The user reads; `None` for a fault.
    pub fn read(&self, pin: &Pinned<'_>, va: u64) -> Option<u64> {
        let mut state = self.state(pin);
        let page = self.speculate(&mut state, va);
        let value = page.map(|page| self.memory.read(page.pfn));
        drop(state);
        value
    }

    /// The user writes; whether there was no fault. A fault drops the page from the TLB, as
    /// hardware does.
    pub fn write(&self, pin: &Pinned<'_>, va: u64, value: u64) -> bool {
        let mut state = self.state(pin);
        let mut done = false;
        for _ in 0..2 {
            match self.speculate(&mut state, va) {
                Some(page) if page.writable => {
                    self.memory.write(page.pfn, value);
                    done = true;
                    break;
                }
                _ => state.cached.retain(|c| c.level.is_some() || c.number != va >> 12),
            }
        }
        drop(state);
        done
    }

    fn late(&self, state: &mut State) {
        if let Some(what) = state.late.take() {
            forget(state, &what, false);
        }
    }
}

fn forget(state: &mut State, what: &Invalidation, keep_tables: bool) {
    state.cached.retain(|c| {
        c.asid != what.asid
            || match (c.level, what.scope) {
                // Paging-structure caches are as stubborn as the contract allows.
                (Some(_), _) => !what.tables_freed || keep_tables,
                (None, scope) => !scope.covers(c.number << 12),
            }
    });
}

/// Addresses that MMUs look at when they do so on their own.
const HABIT: u64 = 0;

// SAFETY: each function follows the contract, unless the machine lies.
unsafe impl<const L: u8, const B: bool> Mmu for Mmus<L, B> {
    const FORMATS: Formats = Formats::ANY;
    const BROADCASTS: bool = B;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        if B {
            for cpu in 0..self.cpus.len() {
                forget(&mut self.state_of(cpu), what, self.lie == Lie::KeepsTables);
            }
            self.interrupted(pin);
            return;
        }
        let mut state = self.state(pin);
        self.speculate(&mut state, HABIT);
        match self.lie {
            Lie::ForgetsNothing => {}
            Lie::ForgetsLate => state.late = Some(*what),
            lie => forget(&mut state, what, lie == Lie::KeepsTables),
        }
        self.speculate(&mut state, HABIT);
        drop(state);
        self.interrupted(pin);
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, _: &Scope) {
        self.interrupted(pin);
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let mut state = self.state(pin);
        self.speculate(&mut state, HABIT);
        if root.forget_all {
            state.cached.clear();
        } else if self.lie != Lie::KeepsAtLoad {
            state.cached.retain(|c| root.asid != 0 && (c.asid != root.asid || root.keep));
        }
        drop(state);
        self.interrupted(pin);
        let mut state = self.state(pin);
        state.root = Some(*root);
        state.lazy = false;
        self.speculate(&mut state, HABIT);
        drop(state);
        self.interrupted(pin);
    }

    fn lazy(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.state(pin).lazy = true;
        self.look(pin, HABIT);
        self.interrupted(pin);
    }

    fn resume(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.state(pin).lazy = false;
        self.look(pin, HABIT);
        self.interrupted(pin);
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.interrupted(pin);
        let mut state = self.state(pin);
        self.speculate(&mut state, HABIT);
        if self.lie == Lie::StaysLoaded {
            return;
        }
        if let Some(root) = state.root.take()
            && root.asid == 0
        {
            state.cached.clear();
        }
        drop(state);
        self.interrupted(pin);
    }
}

impl<const L: u8, const B: bool> Ipi for Mmus<L, B> {
    // CPUs look for their mail between their steps: that is when interrupts come.
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}

    fn wait(&self, _: &Pinned<'_>, _: u32) {
        if self.gives_up.get() {
            // Without the message of a panic: this happens in each execution.
            std::panic::resume_unwind(Box::new(()));
        }
        loom::thread::yield_now();
    }
}
