//! A pool as a small machine: frames that are pages of the arena, quicklists whose CPUs are
//! threads. Decay is in `decay`, futures that wait for a page are served in `wait`.
mod decay;
mod wait;

use super::acquire::{Queue, Wakers};
use super::arena::{Arena, ArenaShape, Map, RawPage};
use super::config::{Bind, PoolConfig, Shape};
use super::error::PoolError;
use super::hook::PoolEvent;
use super::seats::{self, Leave, Link, Seat};
use super::state::{PageState, Workshop};
use super::topology::Topology;
use crate::mapping::Mapping;
use ptarmigan::addr::{FRAME_SHIFT, Pfn};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::frames::{AllocFlags, Frames, FramesError, MemoryRun, MemorySize, ZoneClass};
use ptarmigan::page::{Clean, Layout, Level, MAX_LEVELS};
use ptarmigan::quicklist::{ListsConfig, Policy, PolicyOn, Quicklists, Returned, Source};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All pages are roots: the state that the lists construct, and keep constructed.
const LEVEL: Level = Level(0);
const LAYOUT: Layout = Layout { levels: 1, table_shift: [FRAME_SHIFT as u8; MAX_LEVELS] };

/// The pool's lists.
type Lists<S> = Quicklists<'static, Map, Workshop<S>>;

pub(super) struct Core<S: PageState> {
    id: u64,
    machine: MachineId,
    pub lists: Lists<S>,
    link: Arc<Link>,
    /// Futures that wait for a page. Its word is the pool's number while there are none.
    waiters: Queue<wait::Served>,
    /// Pages that went from their last owner to a future, without the lists.
    passed_on: AtomicUsize,
    /// Slots that no thread has, and how many these are.
    free: Mutex<Vec<u16>>,
    spare: AtomicUsize,
    slots: u16,
    /// By node: CPUs for threads that have no slot.
    common: Box<[Mutex<()>]>,
    topology: Topology,
    decay: Option<Duration>,
    born: Instant,
    /// When the next interval begins, in nanoseconds since `born`.
    next: AtomicU64,
    /// By node: pages that decayed and have not been given back yet.
    due: Box<[AtomicU32]>,
    // After `lists`.
    _frames: OwnedFrames,
}

/// Frees the frames that `lists` borrows, after it.
struct OwnedFrames(NonNull<Frames>);

// SAFETY: `Frames` may be shared and moved between threads.
unsafe impl Send for OwnedFrames {}
// SAFETY: as above.
unsafe impl Sync for OwnedFrames {}

impl Drop for OwnedFrames {
    fn drop(&mut self) {
        // SAFETY: `Core::new` leaked a box of it, and its borrowers have been dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn boot(bytes: usize) -> Result<BootMemory, PoolError> {
    Mapping::boot_memory(bytes).map_err(host)
}

fn host(e: rustix::io::Errno) -> PoolError {
    PoolError::Host(format!("the host gave no memory: {e}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data under these locks is whole between two calls, also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: PageState> Core<S> {
    pub fn new(config: &PoolConfig, state: S) -> Result<Self, PoolError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let Shape { pages_per_node, keep, slots, gap } = config.shape()?;
        let nodes = config.topology.nodes();
        let shape = ArenaShape {
            pages_per_node: pages_per_node as usize,
            size: config.page_size,
            gap,
            guarded: config.guard > 0,
            tracked: S::TRACKS_ADDRESSES,
            huge: config.huge,
            bind: if nodes > 1 { config.bind } else { Bind::FirstTouch },
            nodes: config.topology.numbers(),
        };
        let mut refused = Vec::new();
        let arena = Arena::new(&shape, |refusal| refused.push(refusal))?;
        let runs: Vec<MemoryRun> = (0..nodes)
            .map(|n| MemoryRun {
                start: Pfn(n as u32 * pages_per_node),
                frames: pages_per_node,
                node: NodeId(n as u8),
                class: ZoneClass::Low,
            })
            .collect();
        let short = |e: FramesError| PoolError::Host(e.to_string());
        let mut memory = boot(Frames::bytes(&MemorySize::of(&runs)))?;
        let machine = MachineId::new();
        // SAFETY: 1. and 3. the arena, which the core owns, is a fresh anonymous mapping. 2. the
        // identity is new.
        let frames = unsafe { Frames::new_zero(&mut memory, machine, &runs) }.map_err(short)?;
        let sizes = ListsConfig {
            magazine: config.magazine,
            fixed_budget: Some(keep),
            cpus_per_node: usize::from(slots) + 1,
            ..ListsConfig::new(usize::from(slots) + nodes)
        };
        let mut memory = boot(Quicklists::<Map, Workshop<S>>::bytes(&frames.size(), &sizes))?;
        let frames = NonNull::from(Box::leak(Box::new(frames)));
        let owned = OwnedFrames(frames);
        // SAFETY: `owned` is dropped after the lists, which are the only ones that borrow it.
        let frames: &'static Frames = unsafe { frames.as_ref() };
        let map = arena.map();
        let workshop = Workshop::new(state, arena, config.hook.clone());
        refused.into_iter().for_each(|refusal| workshop.refused(refusal));
        // SAFETY: 1. each frame is a page of the arena. 2. so is each that the workshop is given:
        // its arena is this one. 3. one level, whose tables are frames. 4. there are no trees.
        let source = unsafe { Source::new(frames, map, workshop, LAYOUT) };
        let lists =
            Quicklists::new(&mut memory, sizes, source).map_err(|e| PoolError::Host(e.to_string()))?;
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let id = NUMBERS.fetch_add(1, Relaxed);
        Ok(Core {
            id,
            machine,
            lists,
            link: Arc::new(Link::closed()),
            waiters: Queue::new(id),
            passed_on: AtomicUsize::new(0),
            free: Mutex::new((0..slots).rev().collect()),
            spare: AtomicUsize::new(slots.into()),
            slots,
            common: (0..nodes).map(|_| Mutex::new(())).collect(),
            topology: config.topology.clone(),
            decay: config.decay,
            born: Instant::now(),
            next: AtomicU64::new(config.decay.map_or(u64::MAX, nanos)),
            due: (0..nodes).map(|_| AtomicU32::new(0)).collect(),
            _frames: owned,
        })
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    #[inline]
    pub fn map(&self) -> Map {
        *self.lists.source().window()
    }

    #[inline]
    pub fn workshop(&self) -> &Workshop<S> {
        self.lists.source().constructor()
    }

    pub fn pages(&self) -> usize {
        self.lists.source().frames().counts().total as usize
    }

    /// Returns the number of futures that wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Returns the number of pages that went from their last owner to a future, without the lists.
    pub fn passed_on(&self) -> usize {
        self.passed_on.load(Relaxed)
    }

    /// Threads that have a slot.
    pub fn seated(&self) -> usize {
        usize::from(self.slots) - self.spare.load(Relaxed)
    }

    /// The lists, for the holder of `pin`: every pin in here is one of the core's own seats, for
    /// which its lists were made.
    #[inline]
    fn lists_on<'a>(&'a self, pin: &'a Pinned<'a>) -> PolicyOn<'a, Lists<S>> {
        // SAFETY: 1. no pin of another machine gets here: this module makes them, for the core's
        // seats.
        unsafe { PolicyOn::new_unchecked(&self.lists, pin) }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> + use<S> {
        (0..self.due.len()).map(|n| NodeId(n as u8))
    }

    /// A page in its state, the caller's own.
    #[inline]
    pub fn take(&self) -> Result<NonNull<u8>, PoolError> {
        // Not while a future waits.
        match self.take_at_hand(self.waiters.word()) {
            Some(base) => Ok(base),
            None => self.take_slow(),
        }
    }

    /// Takes a page from the calling thread's magazines, if its slot is one of pool number `id`.
    #[inline]
    fn take_at_hand(&self, id: u64) -> Option<NonNull<u8>> {
        let seat = seats::at_hand(id)?;
        // SAFETY: 1. the seat is the calling thread's. 2. the lists were made for all seats.
        let pin = unsafe { Pinned::assume(self.machine, CpuId(seat.cpu), NodeId(seat.node)) };
        // SAFETY: 1. the lists were made for `LAYOUT`, which has this level alone.
        let page = unsafe { self.lists_on(&pin).root_at_hand(LEVEL) }?;
        Some(self.map().page(page.into_raw()).base())
    }

    #[cold]
    #[inline(never)]
    fn take_slow(&self) -> Result<NonNull<u8>, PoolError> {
        if self.is_forked() {
            // The word of the queue is as it was at the fork.
            return self.take_at_hand(self.id).ok_or(PoolError::Forked);
        }
        let page = self.seated_do(|pin| {
            self.upkeep(pin);
            // The reserve is for callers that cannot fail. A pool has no interrupts, so every
            // caller may use it.
            self.lists_on(pin).alloc(LEVEL, AllocFlags::URGENT)
        });
        let taken = match page {
            Ok(page) => Ok(self.map().page(page.into_raw()).base()),
            Err(_) => Err(Workshop::<S>::why().map_or_else(|| self.full(), PoolError::State)),
        };
        // Wakers are code of others: the page is not the caller's yet.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.settle())) {
            if let Ok(base) = taken {
                // SAFETY: 1. and 2. it was taken above, and nobody has used it.
                unsafe { self.give(base) };
            }
            resume_unwind(panic);
        }
        taken
    }

    fn full(&self) -> PoolError {
        let counts = self.lists.counts();
        let bytes = |pages: usize| pages.min(self.pages()) * self.map().size();
        let (in_use, cached) = (bytes(counts.live()), bytes(counts.cached()));
        self.workshop().tell(&PoolEvent::Full { in_use, cached });
        PoolError::Full { capacity: bytes(self.pages()), in_use, cached }
    }

    /// Whether this is a child of the process that has the pool.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.link.is_forked()
    }

    /// A page is given back by code that still uses it: it stays out, and its memory stays.
    #[cold]
    pub fn leave_in_use(&self, page: RawPage) {
        let shop = self.workshop();
        shop.arena.stay();
        shop.still_in_use.fetch_add(1, Relaxed);
        shop.tell(&PoolEvent::StillInUse { base: page.base().addr().get() });
    }

    /// The page at `base`, which was kept as an address, if it is one.
    ///
    /// # Errors
    ///
    /// [`PoolError::Address`] describes the address instead.
    pub fn unkeep(&self, base: NonNull<u8>) -> Result<(), PoolError> {
        let arena = &self.workshop().arena;
        if arena.find(base).is_none() {
            return Err(PoolError::Address(format!(
                "{base:p} is not the base of a page of this pool; give back what into_raw returned, to its own pool"
            )));
        }
        if arena.keep(self.map().raw(base), false) == Some(false) {
            return Err(PoolError::Address(format!(
                "the page at {base:p} is not kept as an address; it was given back before, or never was one"
            )));
        }
        Ok(())
    }

    /// Takes a page back, in its state.
    ///
    /// # Safety
    ///
    /// 1. `base` must have come from [`take`](Self::take) of this core, and must not have been
    ///    given back since.
    /// 2. The page must be in its state, and nobody uses it any more.
    #[inline]
    pub unsafe fn give(&self, base: NonNull<u8>) {
        // SAFETY: 1. and 2. by the caller. 3. no MMU walks it.
        let mut page = unsafe { Clean::from_raw(self.map().addr(base), LEVEL) };
        if let Some(seat) = seats::at_hand(self.waiters.word()) {
            // SAFETY: 1. and 2. as in `take_at_hand`.
            let pin = unsafe { Pinned::assume(self.machine, CpuId(seat.cpu), NodeId(seat.node)) };
            // SAFETY: 1. `take` had it from these lists, where all are roots.
            match unsafe { self.lists_on(&pin).top_to_hand(page) } {
                Ok(()) => return,
                Err(back) => page = back,
            }
        }
        // SAFETY: 1. as above.
        self.give_slow(unsafe { Returned::new(page) });
    }

    #[cold]
    #[inline(never)]
    fn give_slow(&self, page: Returned<Clean>) {
        if self.is_forked() {
            // The page is this process's copy, and goes with it.
            page.into_inner().into_raw();
            return;
        }
        // Woken at the end, as wakers are code of others.
        let mut woken = Wakers::default();
        if self.waiters.is_waiting() {
            if let Some(page) = self.pass_on(page.into_inner(), &mut woken) {
                // SAFETY: 1. it was `Returned` above.
                self.put_back(unsafe { Returned::new(page) });
            }
        } else {
            self.put_back(page);
        }
        self.settle();
    }

    /// Puts a page into the lists. If code of the caller unwinds, the page is in them nevertheless.
    fn put_back(&self, page: Returned<Clean>) {
        let here = catch_unwind(AssertUnwindSafe(|| self.topology.here()));
        self.seated_on(*here.as_ref().unwrap_or(&NodeId(0)), |pin| {
            // SAFETY: 1. it is `Returned`.
            unsafe { self.lists_on(pin).free_unlinked(page.into_inner()) };
            self.upkeep(pin);
        });
        if let Err(panic) = here {
            resume_unwind(panic);
        }
    }

    /// Does something on a seat of the node that the thread is on. If the function of
    /// [`Topology::told`](crate::Topology::told) unwinds, nothing is done.
    fn seated_do<R>(&self, work: impl FnOnce(&Pinned<'_>) -> R) -> R {
        self.seated_on(self.topology.here(), work)
    }

    /// Does something on a seat: the thread's own if it has one or there is one left, else one of
    /// the node `here` that it shares.
    fn seated_on<R>(&self, here: NodeId, work: impl FnOnce(&Pinned<'_>) -> R) -> R {
        let seat = seats::find(self.id, &self.link, || self.sit(here));
        let Some(seat) = seat else {
            let _alone = lock(&self.common[usize::from(here.0)]);
            return work(&self.common_pin(here));
        };
        if NodeId(seat.node) != here {
            // The thread has moved to another node: its pages are of the old one.
            // SAFETY: 1. and 2. as in `take_at_hand`.
            self.lists_on(&unsafe { Pinned::assume(self.machine, CpuId(seat.cpu), NodeId(seat.node)) })
                .hand_over();
            seats::moved(self.id, here.0);
        }
        // SAFETY: 1. and 2. as in `take_at_hand`; `here` is a node of the topology, as the seat's
        // was.
        work(&unsafe { Pinned::assume(self.machine, CpuId(seat.cpu), here) })
    }

    /// The CPU of a node that threads share. The caller holds its lock, or has the pool to itself.
    fn common_pin(&self, node: NodeId) -> Pinned<'_> {
        // SAFETY: 1. by the lock, or because there is nobody else. 2. the lists were made for one
        // such CPU a node.
        unsafe { Pinned::assume(self.machine, CpuId(self.slots + u16::from(node.0)), node) }
    }

    fn sit(&self, node: NodeId) -> Option<Seat> {
        if self.spare.load(Relaxed) == 0 {
            return None;
        }
        let mut free = lock(&self.free);
        let cpu = free.pop()?;
        self.spare.store(free.len(), Relaxed);
        Some(Seat { pool: self.id, cpu, node: node.0 })
    }

    /// The pool ends: memory stays if a page is out, as its address may be in use, or a region that
    /// was forgotten may be.
    pub fn keep_what_is_out(&mut self) {
        let arena = &self.workshop().arena;
        if self.lists.counts().live() > 0 || arena.is_fixed() {
            arena.stay();
        }
    }

    /// The pool ends: destructs kept pages, wherever they rest. Memory of kept pages goes back even
    /// if the pool's memory stays.
    pub fn end(&mut self) {
        if !S::DESTRUCTS && !self.workshop().arena.stays() {
            return;
        }
        let pins = (0..self.slots).map(|cpu| (cpu, NodeId(0)));
        let common = self.nodes().map(|n| (self.slots + u16::from(n.0), n));
        for (cpu, node) in pins.chain(common) {
            // SAFETY: 1. `&mut self`: no thread is in the pool or will ever be. 2. the lists were
            // made for all of them.
            self.lists_on(&unsafe { Pinned::assume(self.machine, CpuId(cpu), node) }).drain();
        }
        for node in self.nodes() {
            self.lists_on(&self.common_pin(node)).reclaim(node, u32::MAX);
        }
    }
}

impl<S: PageState> Leave for Core<S> {
    fn leave(&self, seat: Seat) -> Wakers {
        // SAFETY: 1. the seat is the calling thread's until it is put on the list below. 2. as in
        // `take_at_hand`.
        self.lists_on(&unsafe { Pinned::assume(self.machine, CpuId(seat.cpu), NodeId(seat.node)) })
            .hand_over();
        let mut free = lock(&self.free);
        free.push(seat.cpu);
        self.spare.store(free.len(), Relaxed);
        drop(free);
        self.serve()
    }
}
