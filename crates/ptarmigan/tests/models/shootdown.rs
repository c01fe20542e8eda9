//! The shootdown protocol: what a CPU has unhooked is not used again while any CPU can reach it.
use crate::machine::{SHAPE, Shape, World, model, part_of_model, pin};
use crate::small::Small;
use loom::thread::JoinHandle;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::Ask;
use ptarmigan::table::{Free, Machine, Tree, parts};
use ptarmigan::tlb::{Gather, Generation, SpaceTlb, Tlb};
use std::sync::Arc;

type Two = World<2>;

/// A space with one page, at 0, active on CPU 0.
struct Model {
    world: Arc<Two>,
    space: Arc<SpaceTlb>,
    tree: Tree<Small<2>>,
}

impl Model {
    fn new(shape: Shape) -> Self {
        Self::starting_at(shape, Generation(0))
    }

    fn starting_at(shape: Shape, first: Generation) -> Self {
        let m = Self::in_world(Two::new(shape), first, 0);
        m.tlb().activate(&pin(0), &m.space, m.tree.root());
        m
    }

    /// A space that is active nowhere, with pages of `cpu`.
    fn in_world(world: Arc<Two>, first: Generation, cpu: usize) -> Self {
        let mut tree = Tree::new(&*world, &pin(cpu), Ask::URGENT).unwrap();
        world.map(&pin(cpu), &mut tree, 0);
        let space = Arc::new(world.tlb().new_space_at(first));
        Model { world, space, tree }
    }

    fn tlb(&self) -> &Tlb<crate::mmu::Mmus<2>> {
        self.world.tlb()
    }

    /// Runs a CPU in a thread of its own.
    fn on(&self, cpu: usize, f: impl FnOnce(&Run<'_>) + 'static) -> JoinHandle<()> {
        let (space, root) = (self.space.clone(), self.tree.root());
        self.world.on(cpu, move |world, pin| f(&Run { world, space: &space, pin, root }))
    }

    /// CPU 0 unmaps the page, and the table if `free` says so, and uses what it got back for something else.
    fn unmap(&mut self, free: Free) {
        let pin = &pin(0);
        let mut gather = self.world.gather(pin, &self.space);
        self.world.unmap(&mut self.tree, 0, free, &mut gather);
        gather.finish();
        self.world.reuse(pin);
    }
}

/// A CPU at work.
struct Run<'a> {
    world: &'a Two,
    space: &'a SpaceTlb,
    pin: &'a Pinned<'a>,
    root: PhysAddr,
}

impl Run<'_> {
    fn tlb(&self) -> &Tlb<crate::mmu::Mmus<2>> {
        self.world.tlb()
    }
    fn activate(&self) {
        self.tlb().activate(self.pin, self.space, self.root);
    }
    fn rest(&self) {
        self.tlb().rest(self.pin, self.space);
    }
    fn deactivate(&self) {
        self.tlb().deactivate(self.pin, self.space);
    }
    /// The MMU looks; then an interrupt that is waiting comes in.
    fn step(&self) {
        self.world.step(self.pin, 0);
    }
    /// The MMU looks.
    fn look(&self) {
        self.world.mmu().look(self.pin, 0);
    }
}

fn join(m: &Model, others: impl IntoIterator<Item = JoinHandle<()>>) {
    m.world.attend(&pin(0));
    for other in others {
        other.join().unwrap();
    }
}

const BOTH: [Free; 2] = [Free::Empty, Free::Never];

/// Does the same for a flush that frees tables, and one that does not.
fn both(preemptions: usize, f: impl Fn(Free) + Send + Sync + Copy + 'static) {
    for free in BOTH {
        model(preemptions, move || f(free));
    }
}

#[test]
fn an_active_cpu_reaches_nothing_that_is_used_again() {
    both(4, |free| {
        let mut m = Model::new(SHAPE);
        m.tlb().activate(&pin(1), &m.space, m.tree.root());
        let other = m.on(1, |b| {
            b.step();
            b.look();
        });
        m.unmap(free);
        join(&m, [other]);
    });
}

#[test]
fn a_cpu_that_begins_to_run_in_the_space_sees_the_flush_or_is_seen() {
    both(4, |free| {
        let mut m = Model::new(SHAPE);
        let other = m.on(1, |b| {
            b.activate();
            b.step();
            b.look();
        });
        m.unmap(free);
        join(&m, [other]);
    });
}

#[test]
fn a_lazy_cpu_is_asked_when_tables_go_and_catches_up_otherwise() {
    both(4, |free| {
        let mut m = Model::new(SHAPE);
        m.tlb().activate(&pin(1), &m.space, m.tree.root());
        let other = m.on(1, |b| {
            b.look();
            b.rest();
            b.tlb().serve(b.pin);
            b.activate();
            b.look();
        });
        m.unmap(free);
        join(&m, [other]);
    });
}

#[test]
fn a_lazy_cpu_walks_no_table_that_is_used_again() {
    model(4, || {
        let mut m = Model::new(SHAPE);
        m.tlb().activate(&pin(1), &m.space, m.tree.root());
        let other = m.on(1, |b| {
            b.look();
            b.rest();
            // An idle CPU still speculates; of pages it may, as nothing of it is ever used, so these stay in this model.
            b.step();
            b.look();
        });
        let a = pin(0);
        let mut gather = m.world.gather(&a, &m.space);
        m.world.unmap(&mut m.tree, 0, Free::Empty, &mut gather);
        gather.finish();
        m.world.reuse(&a);
        join(&m, [other]);
    });
}

#[test]
fn a_cpu_that_leaves_and_comes_back_finds_no_old_translation() {
    for asids in [0, 2] {
        both(3, move |free| {
            let mut m = Model::new(Shape { asids, ..SHAPE });
            m.tlb().activate(&pin(1), &m.space, m.tree.root());
            let other = m.on(1, |b| {
                b.look();
                b.deactivate();
                b.tlb().serve(b.pin);
                b.activate();
                b.look();
            });
            m.unmap(free);
            join(&m, [other]);
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
        world.tlb().activate(&pin(1), &x.space, x.tree.root());
        world.tlb().activate(&pin(0), &y.space, y.tree.root());
        let other = world.on(1, move |w, b| {
            let mut gather = w.gather(b, &y.space);
            w.unmap(&mut y.tree, 0, Free::Empty, &mut gather);
            gather.finish();
            w.reuse(b);
            w.step(b, 0);
        });
        x.unmap(Free::Empty);
        world.mmu().look(&pin(0), 0);
        join(&x, [other]);
    });
}

/// CPU 1 flushes as many pages of its own meanwhile, from the second one on.
fn two_flushes(pages: u64) {
    both(4, move |free| {
        let mut m = Model::new(SHAPE);
        m.tlb().activate(&pin(1), &m.space, m.tree.root());
        let other = m.on(1, move |b| {
            b.look();
            let mut gather = Gather::one_page(parts(b.world, b.pin), b.space, 12, 0x1000);
            gather.changed(0x1000, (1 + pages) << 12);
            gather.finish();
            b.step();
            b.look();
        });
        m.unmap(free);
        join(&m, [other]);
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
        m.tlb().deactivate(&pin(0), &m.space);
        m.tlb().activate(&pin(1), &m.space, m.tree.root());
        let space = m.space.clone();
        let other = m.world.beside(2, move |w, c| {
            Gather::one_page(parts(w, c), &space, 12, 0x1000).finish();
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
fn a_number_that_is_kept_is_kept_with_what_was_true_when_it_was_left() {
    model(3, || {
        // Two spaces take turns on CPU 1, each under its number.
        let mut m = Model::new(Shape { asids: 2, tables: 4, data: 2, ..SHAPE });
        let n = Model::in_world(m.world.clone(), Generation(0), 1);
        m.tlb().activate(&pin(1), &m.space, m.tree.root());
        let (space, root) = (n.space.clone(), n.tree.root());
        let other = m.on(1, move |b| {
            b.look();
            b.deactivate();
            b.tlb().activate(b.pin, &space, root);
            b.step();
            b.tlb().deactivate(b.pin, &space);
            b.activate();
            b.look();
        });
        m.unmap(Free::Never);
        join(&m, [other]);
    });
}

#[test]
fn a_whole_round_of_generations_later_nothing_is_kept() {
    model(3, || {
        let before = Generation(0usize.wrapping_sub(1));
        let mut m = Model::starting_at(Shape { asids: 2, ..SHAPE }, before);
        m.tlb().activate(&pin(1), &m.space, m.tree.root());
        let other = m.on(1, move |b| {
            b.look();
            b.deactivate();
            b.tlb().serve(b.pin);
        });
        // Generation 0 comes, at which all CPUs give the space up.
        m.unmap(Free::Never);
        join(&m, [other]);
        m.tlb().deactivate(&pin(0), &m.space);
        // The same space when all other generations have been.
        let later = m.space.a_round_later(before);
        m.tlb().activate(&pin(1), &later, m.tree.root());
        m.world.mmu().look(&pin(1), 0);
    });
}

/// What a CPU does about a space that ends.
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
            let Model { world, space, tree } = Model::new(SHAPE);
            world.tlb().activate(&pin(1), &space, tree.root());
            let its = space.clone();
            let other = world.on(1, move |w, b| {
                w.step(b, 0);
                match at {
                    At::Rests => w.tlb().rest(b, &its),
                    At::Leaves => w.tlb().deactivate(b, &its),
                    At::Stays => {}
                }
                w.step(b, 0);
                w.mmu().look(b, 0);
            });
            let a = pin(0);
            world.tlb().deactivate(&a, &space);
            world.end(&a, tree, &space);
            world.reuse(&a);
            world.attend(&a);
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
            m.tlb().activate(&b, &m.space, m.tree.root());
            m.world.mmu().look(&b, 0);
            m.tlb().rest(&b, &m.space);
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
            m.tlb().collect(parts(&*m.world, &a));
            m.world.reuse(&a);
            join(&m, [other]);
            // It loads something else at some time.
            m.tlb().activate(&b, &m.tlb().new_space(), m.tree.root());
            m.tlb().collect(parts(&*m.world, &a));
            assert_eq!(m.tlb().parked(&a), 0, "nobody is waited for any more");
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
        m.tlb().activate(&b, &m.space, m.tree.root());
        m.world.mmu().look(&b, 0);
        m.tlb().rest(&b, &m.space);
        let other = m.on(1, |b| {
            b.step();
            b.activate();
            b.step();
        });
        let a = pin(0);
        m.unmap(Free::Empty);
        m.tlb().unpark(parts(&*m.world, &a));
        assert_eq!(m.tlb().parked(&a), 0);
        m.world.reuse(&a);
        join(&m, [other]);
    });
}
