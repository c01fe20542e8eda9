//! The shootdown protocol: a page that a CPU has unhooked is not used again while any CPU can reach
//! it.
use crate::machine::{SHAPE, Shape, Tables, World, model, part_of_model, pin};
use crate::mmu::Owner;
use crate::small::Small;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread::JoinHandle;
use ptarmigan::addr::PhysAddr;
use ptarmigan::addr::VirtAddr;
use ptarmigan::format::Attr;
use ptarmigan::frames::{AllocFlags, DataFrame};
use ptarmigan::gather::Gather;
use ptarmigan::machine::{Machine, On};
use ptarmigan::table::{Free, Tree};
use ptarmigan::tlb::{Generation, SpaceTlb, Tlb};
use std::sync::Arc;

type Two = World<2>;
type Model = Spaces<false>;

/// A space with one page, at 0, active on CPU 0, on a machine that broadcasts or not.
pub struct Spaces<const B: bool> {
    pub world: Arc<World<2, B>>,
    pub space: Arc<SpaceTlb>,
    pub tables: Tables,
}

impl<const B: bool> Spaces<B> {
    pub fn new(shape: Shape) -> Self {
        Self::starting_at(shape, Generation(0))
    }

    /// The same, active on CPU 1 as well.
    pub fn on_both(shape: Shape) -> Self {
        let m = Self::new(shape);
        m.runs_on(1);
        m
    }

    fn starting_at(shape: Shape, first: Generation) -> Self {
        let m = Self::in_world(World::new(shape), first, 0);
        m.runs_on(0);
        m
    }

    /// A space that is active nowhere, with pages of `cpu`.
    pub fn in_world(world: Arc<World<2, B>>, first: Generation, cpu: usize) -> Self {
        let tables = Tables::new(world.seen(&pin(cpu)), 0);
        let space = Arc::new(world.tlb().new_space_at(first));
        Spaces { world, space, tables }
    }

    /// The CPU begins to run in the space.
    pub fn runs_on(&self, cpu: usize) {
        // SAFETY: 1. it is the root of the space's tables.
        unsafe { self.tlb().activate(&pin(cpu), &self.space, self.tables.root()).unwrap() };
    }

    pub fn tlb(&self) -> &Tlb<crate::mmu::Mmus<2, B>> {
        self.world.tlb()
    }

    /// Runs a CPU in a thread of its own.
    pub fn on(&self, cpu: usize, f: impl FnOnce(&Run<'_, B>) + 'static) -> JoinHandle<()> {
        let (space, root) = (self.space.clone(), self.tables.root());
        self.world.cpu(cpu, move |_, on| f(&Run { on, space: &space, root }))
    }

    /// CPU 0 unmaps the page, and the table if `free` says so, and uses the frames again for
    /// another purpose.
    pub fn unmap(&mut self, free: Free) {
        let pin = pin(0);
        let mut gather = Gather::new(self.world.seen(&pin), &self.space, 12).unwrap();
        self.tables.unmap(0, free, &mut gather);
        gather.finish();
        self.world.reuse(&pin);
    }

    /// CPU 0 [unmaps](Self::unmap) while CPU 1 runs `other`; both then end their work.
    pub fn unmap_beside(&mut self, free: Free, other: impl FnOnce(&Run<'_, B>) + 'static) {
        let other = self.on(1, other);
        self.unmap(free);
        join(self, [other]);
    }
}

/// A CPU at work.
pub struct Run<'a, const B: bool> {
    pub on: On<'a, World<2, B>>,
    space: &'a SpaceTlb,
    root: PhysAddr,
}

impl<const B: bool> Run<'_, B> {
    pub fn serve(&self) {
        self.on.tlb().serve(self.on.pin());
    }
    pub fn activate(&self) {
        self.activate_other(self.space, self.root);
    }
    pub fn activate_other(&self, space: &SpaceTlb, root: PhysAddr) {
        // SAFETY: 1. it is the root of the space's tables.
        unsafe { self.on.tlb().activate(self.on.pin(), space, root).unwrap() };
    }
    pub fn rest(&self) {
        self.on.tlb().rest(self.on.pin(), self.space).unwrap();
    }
    pub fn deactivate(&self) {
        self.on.tlb().deactivate(self.on.pin(), self.space).unwrap();
    }
    /// The MMU looks; then an interrupt that is waiting comes in.
    pub fn step(&self) {
        self.on.machine().step(self.on.pin(), 0);
    }
    /// The MMU looks.
    pub fn look(&self) {
        self.on.machine().mmu().look(self.on.pin(), 0);
    }
}

pub fn join<const B: bool>(m: &Spaces<B>, others: impl IntoIterator<Item = JoinHandle<()>>) {
    m.world.attend(&pin(0));
    for other in others {
        other.join().unwrap();
    }
}

const BOTH: [Free; 2] = [Free::Empty, Free::Never];

/// Does the same for a flush that frees tables, and one that does not.
pub fn both(preemptions: usize, f: impl Fn(Free) + Send + Sync + Copy + 'static) {
    for free in BOTH {
        model(preemptions, move || f(free));
    }
}

#[test]
fn an_active_cpu_reaches_nothing_that_is_used_again() {
    both(4, |free| {
        let mut m = Model::on_both(SHAPE);
        m.unmap_beside(free, |b| {
            b.step();
            b.look();
        });
    });
}

#[test]
fn a_cpu_that_begins_in_the_space_sees_the_flush_or_is_seen() {
    both(4, |free| {
        let mut m = Model::new(SHAPE);
        m.unmap_beside(free, |b| {
            b.activate();
            b.step();
            b.look();
        });
    });
}

#[test]
fn a_lazy_cpu_is_asked_when_tables_go_and_catches_up_otherwise() {
    both(4, |free| {
        let mut m = Model::on_both(SHAPE);
        m.unmap_beside(free, |b| {
            b.look();
            b.rest();
            b.serve();
            b.activate();
            b.look();
        });
    });
}

#[test]
fn a_lazy_cpu_walks_no_table_that_is_used_again() {
    model(4, || {
        let mut m = Model::on_both(SHAPE);
        m.unmap_beside(Free::Empty, |b| {
            b.look();
            b.rest();
            // An idle CPU still speculates; of pages it may, as they are never used, so these stay
            // in this model.
            b.step();
            b.look();
        });
    });
}

#[test]
fn a_cpu_that_leaves_and_comes_back_finds_no_old_translation() {
    for asids in [0, 2] {
        both(3, move |free| {
            let mut m = Model::on_both(Shape { asids, ..SHAPE });
            m.unmap_beside(free, |b| {
                b.look();
                b.deactivate();
                b.serve();
                b.activate();
                b.look();
            });
        });
    }
}

#[test]
fn two_cpus_that_ask_each_other_are_both_served() {
    model(3, || {
        let world = Two::new(SHAPE);
        let mut x = Model::in_world(world.clone(), Generation(0), 0);
        let mut y = Model::in_world(world.clone(), Generation(0), 1);
        // Each CPU changes the space that is active on the other one.
        x.runs_on(1);
        y.runs_on(0);
        let other = world.cpu(1, move |w, b| {
            let mut gather = Gather::new(b, &y.space, 12).unwrap();
            y.tables.unmap(0, Free::Empty, &mut gather);
            gather.finish();
            w.reuse(b.pin());
            w.step(b.pin(), 0);
        });
        x.unmap(Free::Empty);
        world.mmu().look(&pin(0), 0);
        join(&x, [other]);
    });
}

/// CPU 1 flushes as many pages of its own meanwhile, from the second one on.
fn two_flushes(pages: u64) {
    both(4, move |free| {
        let mut m = Model::on_both(SHAPE);
        m.unmap_beside(free, move |b| {
            b.look();
            let mut gather = Gather::new(b.on, b.space, 12).unwrap();
            gather.changed(0x1000, (1 + pages) << 12);
            gather.finish();
            b.step();
            b.look();
        });
    });
}

#[test]
fn two_flushes_of_one_space_at_once_both_count() {
    two_flushes(1);
}

#[test]
fn a_flush_of_a_whole_space_covers_what_came_before_it_only() {
    two_flushes(63);
}

#[test]
fn two_cpus_that_ask_a_third_at_once_are_both_served() {
    part_of_model(2, 4_000, || {
        let mut m = Model::new(Shape { cpus: 3, ..SHAPE });
        m.tlb().deactivate(&pin(0), &m.space).unwrap();
        m.runs_on(1);
        let space = m.space.clone();
        let other = m.world.beside(2, move |_, c| {
            let mut gather = Gather::new(c, &space, 12).unwrap();
            gather.changed(0x1000, 0x2000);
            gather.finish();
        });
        let (world, space) = (m.world.clone(), m.space.clone());
        let a = loom::thread::spawn(move || {
            m.unmap(Free::Never);
            m.world.leave();
        });
        let b = pin(1);
        world.step(&b, 0);
        world.attend(&b);
        a.join().unwrap();
        other.join().unwrap();
        drop(space);
    });
}

#[test]
fn a_number_that_is_kept_has_the_state_it_was_left_with() {
    model(3, || {
        // Two spaces take turns on CPU 1, each under its number.
        let mut m = Model::new(Shape { asids: 2, tables: 4, data: 2, ..SHAPE });
        let n = Model::in_world(m.world.clone(), Generation(0), 1);
        m.runs_on(1);
        let (space, root) = (n.space.clone(), n.tables.root());
        m.unmap_beside(Free::Never, move |b| {
            b.look();
            b.deactivate();
            b.activate_other(&space, root);
            b.step();
            b.on.tlb().deactivate(b.on.pin(), &space).unwrap();
            b.activate();
            b.look();
        });
    });
}

#[test]
fn a_whole_round_of_generations_later_nothing_is_kept() {
    model(3, || {
        let before = Generation(0usize.wrapping_sub(1));
        let mut m = Model::starting_at(Shape { asids: 2, ..SHAPE }, before);
        m.runs_on(1);
        // Generation 0 comes, at which all CPUs give the space up.
        m.unmap_beside(Free::Never, move |b| {
            b.look();
            b.deactivate();
            b.serve();
        });
        m.tlb().deactivate(&pin(0), &m.space).unwrap();
        // The same space when all other generations have been.
        let later = m.space.a_round_later(before);
        // SAFETY: 1. it is the root of the space's tables.
        unsafe { m.tlb().activate(&pin(1), &later, m.tables.root()).unwrap() };
        m.world.mmu().look(&pin(1), 0);
    });
}

/// The action of a CPU on a space that ends.
#[derive(Clone, Copy)]
enum At {
    Rests,
    Leaves,
    Stays,
}

#[test]
fn when_a_space_ends_no_cpu_keeps_its_root() {
    for at in [At::Rests, At::Leaves, At::Stays] {
        model(3, move || {
            let world = Two::new(SHAPE);
            let (pin_a, pin_b) = (pin(0), pin(1));
            let (a, b) = (world.seen(&pin_a), world.seen(&pin_b));
            let frame = world.data().take(world.frames(), &pin_a, AllocFlags::URGENT).unwrap().into_raw();
            world.memory.give(frame, Owner::Data);
            let mut tree = Tree::<Small<2>>::new(a, AllocFlags::URGENT).unwrap();
            // SAFETY: 1. the frame is the tree's alone, and given back when the tree has ended.
            unsafe {
                let mut edit = tree.edit(a).unwrap();
                edit.map(VirtAddr(0), frame, Attr::READ | Attr::WRITE, AllocFlags::URGENT).unwrap();
            }
            tree.activate(a).unwrap();
            tree.activate(b).unwrap();
            let tree = Arc::new(tree);
            let (its, left) = (tree.clone(), Arc::new(AtomicBool::new(false)));
            let has_left = left.clone();
            let other = world.cpu(1, move |w, b| {
                w.step(b.pin(), 0);
                match at {
                    At::Rests => b.tlb().rest(b.pin(), its.tlb()).unwrap(),
                    At::Leaves => its.deactivate(b).unwrap(),
                    At::Stays => {}
                }
                drop(its);
                has_left.store(true, Ordering::Release);
                w.step(b.pin(), 0);
                w.mmu().look(b.pin(), 0);
            });
            tree.deactivate(a).unwrap();
            // Only the sole owner can end it.
            while !left.load(Ordering::Acquire) {
                loom::thread::yield_now();
            }
            Arc::into_inner(tree)
                .expect("the other is gone")
                .end(a, |_, pfn, _| assert_eq!(pfn, frame))
                .unwrap();
            // SAFETY: 1. no entry owns the reference any more, and every CPU has left the tree.
            let frame = unsafe { DataFrame::from_raw(world.frames().machine(), frame) };
            assert!(world.data().release(world.frames(), &pin_a, frame).unwrap());
            world.reuse(&pin_a);
            world.attend(&pin_a);
            other.join().unwrap();
            world.audit();
        });
    }
}

const PARK: Shape = Shape { park: 8, ..SHAPE };

#[test]
fn what_is_parked_comes_back_when_the_lazy_cpu_has_let_go() {
    for back in [true, false] {
        model(3, move || {
            let mut m = Model::new(PARK);
            let b = pin(1);
            m.runs_on(1);
            m.world.mmu().look(&b, 0);
            m.tlb().rest(&b, &m.space).unwrap();
            let other = m.on(1, move |b| {
                b.look();
                if back {
                    b.activate()
                } else {
                    b.deactivate()
                }
                b.step();
            });
            let a = pin(0);
            m.unmap(Free::Empty);
            m.world.seen(&a).collect();
            m.world.reuse(&a);
            join(&m, [other]);
            // It loads something else at some time.
            // SAFETY: 1. no page of it is used, so any root will do.
            unsafe { m.tlb().activate(&b, &m.tlb().new_space(), m.tables.root()).unwrap() };
            m.world.seen(&a).collect();
            assert_eq!(m.world.parking().parked(&a), 0, "nobody is waited for any more");
            assert_eq!(m.tlb().counts().forced, 0, "nobody had to be interrupted");
            m.world.reuse(&a);
        });
    }
}

#[test]
fn what_is_parked_can_be_had_by_force() {
    model(3, || {
        let mut m = Model::new(PARK);
        let b = pin(1);
        m.runs_on(1);
        m.world.mmu().look(&b, 0);
        m.tlb().rest(&b, &m.space).unwrap();
        let other = m.on(1, |b| {
            b.step();
            b.activate();
            b.step();
        });
        let a = pin(0);
        m.unmap(Free::Empty);
        m.world.seen(&a).unpark();
        assert_eq!(m.world.parking().parked(&a), 0);
        m.world.reuse(&a);
        join(&m, [other]);
    });
}

#[test]
fn a_request_in_the_middle_of_a_switch_is_served_after_it() {
    both(2, |free| {
        let mut m = Model::on_both(SHAPE);
        // Interrupts come in wherever the MMU is told something.
        let world = Arc::downgrade(&m.world);
        m.world.mmu().interrupt_with(move |pin| {
            if let Some(world) = world.upgrade() {
                world.tlb().serve(pin);
            }
        });
        m.unmap_beside(free, |b| {
            b.look();
            b.rest();
            b.look();
            b.activate();
            b.look();
        });
    });
}

#[test]
fn a_request_that_is_withdrawn_is_carried_out_before_or_never() {
    model(3, || {
        let m = Model::on_both(SHAPE);
        // The CPU that works on the request looks at it; when the flush has unwound, the space may
        // go.
        let space_is_there = Arc::new(loom::cell::UnsafeCell::new(()));
        let looked_at = space_is_there.clone();
        m.world.mmu().interrupt_with(move |_| looked_at.with(|_| ()));
        m.world.mmu().give_up_waits();
        let other = m.on(1, |b| b.serve());
        let flush = std::panic::AssertUnwindSafe(|| {
            let a = pin(0);
            let mut gather = Gather::new(m.world.seen(&a), &m.space, 12).unwrap();
            gather.changed(0, 0x1000);
            gather.finish();
        });
        // By unwinding, or because CPU 1 has answered first.
        let _ = std::panic::catch_unwind(flush);
        space_is_there.with_mut(|_| ());
        join(&m, [other]);
    });
}
