//! Readers without a lock, and CPUs that free the tables they read (REQ-17).
use crate::machine::{SHAPE, Shape, World, model, pin};
use crate::mmu::Owner;
use crate::small::Small;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space};
use std::sync::Arc;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;
const SPAN: u64 = 64 * PAGE;

fn range(start: u64) -> VirtRange {
    VirtRange::new(start, start + PAGE).unwrap()
}

/// A space with a page at 0, and another area in the span of the next leaf table.
fn space<const L: u8>(a: On<'_, World<L>>) -> Arc<SharedSpace<Small<L>>> {
    let mut space = Space::new(a).unwrap();
    space.edit(a).unwrap().mmap(range(0), RW, 0).unwrap();
    space.edit(a).unwrap().mmap(range(SPAN), RW, 0).unwrap();
    space.fault(a, VirtAddr(0), Access::Write).unwrap();
    Arc::new(SharedSpace::new(space))
}

fn last<T>(it: Arc<T>) -> T {
    Arc::into_inner(it).expect("all threads have ended")
}

/// Whatever a reader finds at 0 was there once: never the page that the table shows after it was
/// used again.
fn look<const L: u8>(on: On<'_, World<L>>, space: &SharedSpace<Small<L>>) {
    if let Some((_, attr)) = space.query(on, VirtAddr(0)).unwrap() {
        assert!(!attr.has(Attr::SPECIAL), "found in a table that is used for something else");
    }
}

/// CPU 0 unmaps the page and its tables, and uses them for the zero page in the other area.
fn unmap_and_reuse<const L: u8>(a: On<'_, World<L>>, space: &SharedSpace<Small<L>>) {
    space.lock(a).unwrap().edit().munmap(range(0)).unwrap();
    if a.machine().parking().parked(a.pin()) == 0 {
        space.fault(a, VirtAddr(SPAN), Access::Read).unwrap();
    }
}

fn reader_and_unmap<const L: u8>(preemptions: usize, park: u32) {
    model(preemptions, move || {
        let w = World::<L>::new(Shape { tables: usize::from(L), park, spare: 2, ..SHAPE });
        let a = pin(0);
        let a = w.seen(&a);
        let space = space(a);
        let its = space.clone();
        let other = w.beside(1, move |_, b| {
            look(b, &its);
            look(b, &its);
        });
        unmap_and_reuse(a, &space);
        other.join().unwrap();
        a.collect();
        assert_eq!(w.parking().parked(a.pin()), 0, "nobody reads any more");
        last(space).end(a).unwrap();
        w.audit();
    });
}

#[test]
fn a_table_is_not_used_again_while_somebody_reads_it() {
    reader_and_unmap::<2>(4, 0);
}

#[test]
fn no_table_of_a_path_is_used_again_while_somebody_reads_it() {
    reader_and_unmap::<3>(3, 0);
}

#[test]
fn what_a_reader_may_hold_is_parked_until_it_has_done() {
    reader_and_unmap::<2>(4, 8);
}

#[test]
fn a_reader_sees_a_table_complete_or_not_at_all() {
    model(3, || {
        let w = World::<3>::new(Shape { tables: 4, spare: 2, ..SHAPE });
        let a = pin(0);
        let a = w.seen(&a);
        let space = space(a);
        let its = space.clone();
        let other = w.beside(1, move |_, b| {
            its.query(b, VirtAddr(SPAN)).unwrap();
            its.query(b, VirtAddr(SPAN)).unwrap();
        });
        space.fault(a, VirtAddr(SPAN), Access::Read).unwrap();
        other.join().unwrap();
        last(space).end(a).unwrap();
        w.audit();
    });
}

#[test]
fn an_interrupt_that_reads_keeps_the_outer_reader_protected() {
    model(3, || {
        let w = World::<2>::new(Shape { tables: 2, spare: 2, ..SHAPE });
        let a = pin(0);
        let a = w.seen(&a);
        let space = space(a);
        let root = space.lock(a).unwrap().edit().tree().root();
        let its = space.clone();
        let interrupts = w.tlb().new_space();
        let other = w.beside(1, move |w, b| {
            let _reading = w.tlb().readers().walk(b.pin(), its.tlb()).unwrap();
            let raw = w.memory.walk(root.pfn(), 0);
            // The interrupt's reader is of the same CPU, and another space at that.
            drop(w.tlb().readers().walk(b.pin(), &interrupts).unwrap());
            if let Some(table) = Small::<2>::linked(Level(1), raw) {
                w.memory.reach(table.pfn(), Owner::Table);
                w.memory.walk(table.pfn(), 0);
                w.memory.reach(table.pfn(), Owner::Table);
            }
        });
        unmap_and_reuse(a, &space);
        other.join().unwrap();
        last(space).end(a).unwrap();
        w.audit();
    });
}
