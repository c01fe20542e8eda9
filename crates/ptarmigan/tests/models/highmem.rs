//! The pool of slots: states 0, 1 and n, joining against sweeps, callers that sleep, slots at hand.
//!
//! A slot is a cell whose uses are checked: users read it while they have a frame mapped, and
//! showing or hiding a frame writes it. So a slot that changes under a user, or without an order
//! after its last use, fails the model. Each CPU keeps the translation of a slot until it is told
//! to forget it (I11).
use crate::machine::{model, part_of_model};
use loom::cell::UnsafeCell;
use ptarmigan::addr::{FRAME_SHIFT, FRAME_SIZE, Pfn};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, CpuSet, MachineId, NodeId, Pinned};
use ptarmigan::format::Formats;
use ptarmigan::frames::{Frames, MemoryRun, ZoneClass};
use ptarmigan::highmem::pool::{Mapped, MaySleep, Pool, PoolConfig, PoolError};
use ptarmigan::highmem::{Install, Remove, SlotError, Slots};
use ptarmigan::tlb::{CostModel, Invalidation, Ipi, Mmu, Root, Scope, SpaceId, Structures, Tlb, TlbConfig};
use ptarmigan::window::DirectMap;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

const CPUS: usize = 3;
const NONE: u32 = 0;

struct Window {
    entries: Vec<UnsafeCell<u32>>,
    /// Each CPU's translation of each slot.
    known: RefCell<Vec<[u32; CPUS]>>,
}

// SAFETY: an execution of a model runs on one thread of the host.
unsafe impl Sync for Window {}
// SAFETY: as above.
unsafe impl Send for Window {}

// SAFETY: 1. to 3. no code uses the addresses, and there is no MMU. 4. both are fixed. 5. an
// assertion that fails ends the test. 6. neither goes on.
unsafe impl Slots for Window {
    fn len(&self) -> usize {
        self.entries.len()
    }
    fn install(&self, install: Install) -> Result<u64, SlotError> {
        let (index, frame) = (install.index(), install.frame());
        // SAFETY: the caller has the slot for itself, or the model fails.
        self.entries[index].with_mut(|entry| unsafe {
            assert_eq!(*entry, NONE, "a slot is used twice");
            *entry = frame.0;
        });
        Ok(0)
    }
    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        let index = remove.index();
        // SAFETY: as above.
        self.entries[index].with_mut(|entry| unsafe { *entry = NONE });
        Ok(())
    }
    fn address(&self, index: usize) -> *mut u8 {
        std::ptr::without_provenance_mut(index)
    }
    fn page(&self, index: usize) -> u64 {
        (index as u64) << FRAME_SHIFT
    }
    fn shift(&self) -> u32 {
        FRAME_SHIFT
    }
}

/// MMUs that broadcast.
struct Mmus(Arc<Window>);

// SAFETY: 1., 3. and 4. no translation of user space is held. 2. all CPUs drop covered
// translations. 5. so it is, and they walk no tables. 6. it keeps neither. 7. `load` has no effect.
unsafe impl Mmu for Mmus {
    const FORMATS: Formats = Formats::ANY;
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, _: &Pinned<'_>, scope: &Scope) {
        for (slot, known) in self.0.known.borrow_mut().iter_mut().enumerate() {
            if scope.covers((slot as u64) << FRAME_SHIFT) {
                *known = [NONE; CPUS];
            }
        }
    }
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
}

impl Ipi for Mmus {
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
    fn wait(&self, _: &Pinned<'_>, _: u32) {
        loom::thread::yield_now();
    }
}

struct World {
    pool: Pool<'static, Mmus, &'static Window>,
    window: Arc<Window>,
    machine: MachineId,
    _parts: (Box<Tlb<Mmus>>, Box<Frames>),
    _boot: Vec<MaybeUninit<u64>>,
}

// SAFETY: an execution of a model runs on one thread of the host.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(slots: usize, cpus: usize, batch: u32) -> Arc<Self> {
        let words = 2048;
        let mut block: Vec<MaybeUninit<u64>> = Vec::with_capacity(words);
        // SAFETY: 1. the block is kept beside the parts made of it.
        let mut boot =
            unsafe { BootMemory::new(NonNull::new(block.as_mut_ptr().cast()).unwrap(), words * 8) };
        let machine = MachineId::new();
        let run = MemoryRun { start: Pfn(1), frames: 4, node: NodeId(0), class: ZoneClass::High };
        // SAFETY: 1. and 2. no code takes a frame or reaches its memory, and the machine is new.
        let frames = Box::new(unsafe { Frames::new(&mut boot, machine, &[run]) }.unwrap());
        let entries = (0..slots).map(|_| UnsafeCell::new(NONE)).collect();
        let window = Arc::new(Window { entries, known: RefCell::new(vec![[NONE; CPUS]; slots]) });
        let config = TlbConfig { costs: CostModel::ALWAYS_PAGE, ..TlbConfig::new(cpus) };
        // SAFETY: 1. the identity is new.
        let tlb = unsafe { Tlb::new(&mut boot, machine, config, Mmus(window.clone())) };
        let tlb = Box::new(tlb.unwrap());
        // SAFETY: the boxes are kept beside the pool, which is dropped first.
        let (its_tlb, its_frames) = unsafe { (&*std::ptr::from_ref(&*tlb), &*std::ptr::from_ref(&*frames)) };
        // SAFETY: as above.
        let its_window: &'static Window = unsafe { &*Arc::as_ptr(&window) };
        // SAFETY: 1. and 2. no frame is below the limit.
        let low = unsafe { DirectMap::new(std::ptr::null_mut(), FRAME_SIZE as u64) }.unwrap();
        let config = PoolConfig { batch, ..PoolConfig::new(cpus, slots) };
        // SAFETY: 1. the slots are for any frame. 2. new ones; the threads only look at them.
        let pool = unsafe { Pool::new(&mut boot, config, its_tlb, its_frames, low, its_window, &()) };
        Arc::new(World { pool: pool.unwrap(), window, machine, _parts: (tlb, frames), _boot: block })
    }

    fn pin(&self, cpu: usize) -> Pinned<'static> {
        // SAFETY: 1. each thread of a model is one CPU, and the first is all of them while it is
        // alone. 2. the numbers are those of the threads.
        unsafe { Pinned::assume(self.machine, CpuId(cpu as u16), NodeId(0)) }
    }

    /// CPU `cpu` reads the frame that is mapped.
    fn read(&self, cpu: usize, mapped: &Mapped<'_>, pfn: u32) {
        let slot = ptarmigan::window::WindowGuard::base(mapped).addr();
        // SAFETY: the frame is mapped, or the model fails.
        let shown = self.window.entries[slot].with(|entry| unsafe { *entry });
        assert_eq!(shown, pfn, "a slot shows another frame");
        let known = &mut self.window.known.borrow_mut()[slot][cpu];
        assert!(*known == NONE || *known == pfn, "a CPU reads another frame");
        *known = pfn;
    }

    /// Maps, reads and unmaps a frame, if there is a slot.
    fn visit(&self, cpu: usize, pfn: u32) -> bool {
        match self.pool.try_map(&self.pin(cpu), Pfn(pfn)) {
            Ok(mapped) => self.read(cpu, &mapped, pfn),
            Err(PoolError::Exhausted { .. }) => return false,
            Err(e) => panic!("{e}"),
        }
        true
    }

    /// The same, however long it takes.
    fn wait(&self, cpu: usize, pfn: u32) {
        let mapped = self.pool.map(&mut Sleeper(self.pin(cpu)), Pfn(pfn)).unwrap();
        self.read(cpu, &mapped, pfn);
    }

    /// Maps and reads a frame, however long it takes, and never unmaps it.
    fn keep(&self, cpu: usize, pfn: u32) {
        let mapped = self.pool.map(&mut Sleeper(self.pin(cpu)), Pfn(pfn)).unwrap();
        self.read(cpu, &mapped, pfn);
        std::mem::forget(mapped);
    }

    fn beside(self: &Arc<Self>, f: impl FnOnce(&World) + Send + 'static) -> loom::thread::JoinHandle<()> {
        let its = self.clone();
        loom::thread::spawn(move || f(&its))
    }

    /// Asserts that no slot is lost or pinned.
    fn audit(&self, cpus: usize) {
        (0..cpus).for_each(|cpu| self.pool.idle(&self.pin(cpu)));
        let swept = self.pool.flush_unused(&self.pin(0)).unwrap();
        assert_eq!((swept.pinned, swept.slots()), (0, self.pool.slots()));
        let mut n = 0;
        let mut held = Vec::new();
        while let Ok(mapped) = self.pool.try_map(&self.pin(0), Pfn(1 + n)) {
            held.push(mapped);
            n += 1;
        }
        assert_eq!(n as usize, self.pool.slots(), "a slot is lost");
    }
}

/// A task that sleeps until it is woken, and no shorter: one that is not woken fails the model.
struct Sleeper(Pinned<'static>);

impl MaySleep for Sleeper {
    fn pinned<R>(&mut self, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
        f(&self.0)
    }
    fn task(&self) -> usize {
        0
    }
    fn sleep(&mut self, is_woken: &dyn Fn() -> bool) -> bool {
        while !is_woken() {
            loom::thread::yield_now();
        }
        true
    }
}

#[test]
fn two_cpus_take_turns_with_one_slot_and_a_flush_in_between() {
    model(3, || {
        let w = World::new(1, 2, 1);
        // This CPU's translation of the slot from here on.
        assert!(w.visit(0, 3));
        let other = w.beside(|w| {
            w.visit(1, 2);
        });
        w.visit(0, 1);
        other.join().unwrap();
        w.audit(2);
    });
}

#[test]
fn a_frame_that_two_cpus_map_at_once_has_one_address() {
    model(3, || {
        let w = World::new(2, 2, 1);
        let other = w.beside(|w| {
            let mapped = w.pool.try_map(&w.pin(1), Pfn(1)).unwrap();
            w.read(1, &mapped, 1);
        });
        let mapped = w.pool.try_map(&w.pin(0), Pfn(1)).unwrap();
        w.read(0, &mapped, 1);
        let again = w.pool.try_map(&w.pin(0), Pfn(1)).unwrap();
        assert_eq!(
            ptarmigan::window::WindowGuard::base(&mapped),
            ptarmigan::window::WindowGuard::base(&again)
        );
        drop((mapped, again));
        other.join().unwrap();
        w.audit(2);
    });
}

#[test]
fn a_user_joins_a_stale_slot_or_finds_it_swept() {
    model(3, || {
        let w = World::new(1, 2, 1);
        assert!(w.visit(0, 1));
        let other = w.beside(|w| {
            w.pool.flush_unused(&w.pin(1)).unwrap();
            w.visit(1, 2);
        });
        w.visit(0, 1);
        other.join().unwrap();
        w.audit(2);
    });
}

#[test]
fn two_sweeps_of_one_chunk_share_what_is_stale() {
    model(2, || {
        let w = World::new(2, 2, 1);
        assert!(w.visit(0, 1) && w.visit(1, 2));
        let other = w.beside(|w| {
            w.pool.flush_unused(&w.pin(1)).unwrap();
            w.visit(1, 3);
        });
        w.pool.flush_unused(&w.pin(0)).unwrap();
        w.visit(0, 4);
        other.join().unwrap();
        w.audit(2);
    });
}

#[test]
fn a_caller_that_sleeps_is_woken_by_the_last_user() {
    model(3, || {
        let w = World::new(1, 2, 1);
        let held = w.pool.try_map(&w.pin(0), Pfn(1)).unwrap();
        let other = w.beside(|w| w.wait(1, 2));
        w.read(0, &held, 1);
        drop(held);
        other.join().unwrap();
        w.audit(2);
    });
}

#[test]
fn callers_that_sleep_wake_each_other() {
    part_of_model(2, 20_000, || {
        let w = World::new(1, 3, 1);
        let held = w.pool.try_map(&w.pin(0), Pfn(1)).unwrap();
        let others = [w.beside(|w| w.wait(1, 2)), w.beside(|w| w.wait(2, 3))];
        drop(held);
        others.into_iter().for_each(|other| other.join().unwrap());
        w.audit(3);
    });
}

#[test]
fn callers_that_keep_their_slots_wake_each_other() {
    part_of_model(2, 20_000, || {
        let w = World::new(2, 3, 1);
        let held = [1, 2].map(|pfn| w.pool.try_map(&w.pin(0), Pfn(pfn)).unwrap());
        // Whoever is first may be woken for both slots, and uses one of them from then on.
        let others = [w.beside(|w| w.keep(1, 3)), w.beside(|w| w.keep(2, 4))];
        drop(held);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn slots_at_hand_go_to_those_who_wait() {
    model(3, || {
        let w = World::new(2, 2, 2);
        // CPU 0 uses one and has the other at hand.
        let held = w.pool.try_map(&w.pin(0), Pfn(1)).unwrap();
        let other = w.beside(|w| w.wait(1, 2));
        w.pool.idle(&w.pin(0));
        other.join().unwrap();
        drop(held);
        w.audit(2);
    });
}
