//! Which areas Linux takes for one, which tables fork copies, and how stacks grow: docs/linux.md,
//! "Life of a space".
use crate::common;
use common::small;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Access, X86_64};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::space::{Advice, Area, AreaError, AreaFlags, EmptyTables, FaultError, Space};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostMachine, NoTlb};
use ptarmigan_linux::Plain;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;
const TABLE: u64 = 512 * PAGE;
const BASE: u64 = 0x40_0000_0000;

type X = X86_64;
type PlainMachine<'h> = HostMachine<'h, X, Plain<'h, DirectMap, &'h KernelMap<X, DirectMap>>, NoTlb>;

fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start, start + n * PAGE).unwrap()
}

/// Calls `f` on an empty space, which it has to end. All frames are back afterwards.
fn on_space(f: impl FnOnce(On<'_, PlainMachine<'_>>, Space<X>)) {
    let host = Host::<X>::new(small(1, 1, 64)).unwrap();
    let slots = host.slots();
    let m = PlainMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        f(on, Space::new(on).unwrap());
    }
    m.drain(&slots);
    host.audit().unwrap();
}

fn write(space: &mut Space<X>, on: On<'_, PlainMachine<'_>>, at: u64) {
    space.fault(on, VirtAddr(at), Access::Write).unwrap();
}

/// Number of tables that fork copies: of leaves, and of all levels below the root.
fn copied(space: &mut Space<X>, on: On<'_, PlainMachine<'_>>) -> (u32, u32) {
    let child = space.edit(on).unwrap().fork().unwrap();
    let tree = child.tree();
    let counts = (tree.count(Level::PTE), tree.tables_below_root());
    child.end(on).unwrap();
    counts
}

#[test]
fn fork_copies_upper_tables_without_leaf_tables_below() {
    on_space(|on, mut space| {
        let mut edit = space.edit(on).unwrap();
        edit.set_empty_tables(EmptyTables::Covered);
        edit.mmap(pages(BASE, 1024), RW, 0).unwrap();
        edit.fault(VirtAddr(BASE), Access::Write).unwrap();
        edit.madvise(pages(BASE, 1024), Advice::DontNeed).unwrap();
        assert_eq!(space.tree().count(Level::PTE), 0, "the leaf table has gone");
        assert_eq!(copied(&mut space, on), (0, space.tree().tables_below_root()));
        space.end(on).unwrap();
    });
}

#[test]
fn areas_with_different_tags_stay_apart() {
    on_space(|on, mut space| {
        let mut edit = space.edit(on).unwrap();
        edit.mmap(pages(BASE, 1024), RW, 0).unwrap();
        edit.retag(pages(BASE + TABLE, 512), |tag| tag | 2).unwrap();
        write(&mut space, on, BASE);
        space.fault(on, VirtAddr(BASE + TABLE), Access::Read).unwrap();
        assert_eq!(copied(&mut space, on).0, 1, "only one of the areas has private pages");
        let mut edit = space.edit(on).unwrap();
        edit.retag(pages(BASE, 1024), |tag| tag & !2).unwrap();
        assert_eq!(space.areas().len(), 1);
        assert_eq!(copied(&mut space, on).0, 2, "they are one now");
        // The tag of areas that come without one, the heap's too.
        let mut edit = space.edit(on).unwrap();
        edit.set_default_tag(9);
        edit.brk(VirtAddr(2 * BASE)).unwrap();
        edit.brk(VirtAddr(2 * BASE + PAGE)).unwrap();
        edit.mmap(pages(BASE + 2 * TABLE, 1), RW, 0).unwrap();
        assert_eq!(edit.area(VirtAddr(2 * BASE)).map(|a| a.tag), Some(9));
        assert_eq!((space.areas().len(), space.edit(on).unwrap().default_tag()), (3, 9));
        space.end(on).unwrap();
    });
}

#[test]
fn a_moved_area_with_pages_joins_only_what_it_continues() {
    on_space(|on, mut space| {
        for (touched, areas) in [(false, 1), (true, 2)] {
            let mut edit = space.edit(on).unwrap();
            edit.mmap(pages(BASE, 2), RW, 0).unwrap();
            edit.mmap(pages(BASE + TABLE, 2), RW, 0).unwrap();
            if touched {
                edit.fault(VirtAddr(BASE + TABLE), Access::Write).unwrap();
            }
            edit.mremap(pages(BASE + TABLE, 2), pages(BASE + 2 * PAGE, 2), false).unwrap();
            assert_eq!(edit.areas().len(), areas, "touched: {touched}");
            edit.munmap(pages(BASE, 4)).unwrap();
        }
        // Back where it was, it continues the area there.
        let mut edit = space.edit(on).unwrap();
        edit.mmap(pages(BASE, 4), RW, 0).unwrap();
        edit.fault(VirtAddr(BASE + 2 * PAGE), Access::Write).unwrap();
        edit.mremap(pages(BASE + 2 * PAGE, 2), pages(BASE + TABLE, 2), false).unwrap();
        edit.mremap(pages(BASE + TABLE, 2), pages(BASE + 2 * PAGE, 2), false).unwrap();
        assert_eq!(edit.areas().len(), 1);
        space.end(on).unwrap();
    });
}

#[test]
fn what_fork_passes_on_does_not_join_what_is_new() {
    on_space(|on, mut space| {
        space.edit(on).unwrap().mmap(pages(BASE, 512), RW, 0).unwrap();
        write(&mut space, on, BASE);
        let mut child = space.edit(on).unwrap().fork().unwrap();
        for of in [&mut space, &mut child] {
            of.edit(on).unwrap().mmap(pages(BASE + TABLE, 512), RW, 0).unwrap();
            of.fault(on, VirtAddr(BASE + TABLE), Access::Read).unwrap();
        }
        assert_eq!((space.areas().len(), child.areas().len()), (1, 2));
        assert_eq!((copied(&mut space, on).0, copied(&mut child, on).0), (2, 1));
        child.end(on).unwrap();
        space.end(on).unwrap();
    });
}

#[test]
fn a_whole_area_moved_and_kept_has_no_private_pages_left() {
    on_space(|on, mut space| {
        let mut edit = space.edit(on).unwrap();
        edit.mmap(pages(BASE, 512), RW, 0).unwrap();
        edit.fault(VirtAddr(BASE), Access::Write).unwrap();
        edit.mremap(pages(BASE, 512), pages(2 * BASE, 512), true).unwrap();
        edit.fault(VirtAddr(BASE), Access::Read).unwrap();
        assert_eq!(copied(&mut space, on).0, 1, "of the new place only");
        space.end(on).unwrap();
    });
}

#[test]
fn a_move_that_shrinks_cuts_the_tail_whatever_lies_there() {
    on_space(|on, mut space| {
        let mut edit = space.edit(on).unwrap();
        edit.mmap(pages(BASE, 2), RW, 0).unwrap();
        edit.mmap(pages(BASE + 4 * PAGE, 2), AreaFlags(1), 0).unwrap();
        edit.mremap(pages(BASE, 6), pages(2 * BASE, 2), false).unwrap();
        assert_eq!(edit.areas().len(), 1);
        assert!(edit.area(VirtAddr(2 * BASE)).is_some());
        // One that is refused has cut it, too.
        edit.mmap(pages(BASE + 4 * PAGE, 2), RW, 0).unwrap();
        let refused = edit.mremap(pages(BASE, 6), pages(3 * BASE, 2), false);
        assert!(matches!(refused, Err(AreaError::NoArea(_))), "{refused:?}");
        assert_eq!(edit.areas().len(), 1);
        space.end(on).unwrap();
    });
}

#[test]
fn stacks_grow_by_linuxs_rules() {
    on_space(|on, mut space| {
        let stack = |space: &mut Space<X>, below: Option<AreaFlags>| {
            let mut edit = space.edit(on).unwrap();
            edit.munmap(VirtRange::new(PAGE, 4 * BASE).unwrap()).unwrap();
            edit.mmap(pages(BASE, 1), RW.with(AreaFlags::GROWS_DOWN), 0).unwrap();
            if let Some(flags) = below {
                edit.mmap(pages(BASE - 20 * PAGE, 1), flags, 0).unwrap();
            }
        };
        let grows =
            |space: &mut Space<X>, by: u64| space.fault(on, VirtAddr(BASE - by * PAGE), Access::Read).is_ok();
        stack(&mut space, None);
        assert!(grows(&mut space, 2000) && !grows(&mut space, 2048), "8 MiB");
        space.edit(on).unwrap().set_stack_limit(16 << 20);
        assert!(grows(&mut space, 2048), "16 MiB");
        stack(&mut space, Some(RW));
        assert!(!grows(&mut space, 10), "256 pages are kept free");
        for below in [AreaFlags(0), RW.with(AreaFlags::GROWS_DOWN)] {
            stack(&mut space, Some(below));
            assert!(grows(&mut space, 10) && grows(&mut space, 19), "{below:?}");
        }
        // Growing prepares for private pages, a read included.
        stack(&mut space, None);
        assert!(grows(&mut space, 1));
        assert_eq!(copied(&mut space, on).0, 1);
        // So does an attempt that the limit refuses; one that the guard gap refuses does not.
        for (below, by, tables) in [(None, 5000, 1), (Some(RW), 10, 0)] {
            stack(&mut space, below);
            assert!(grows(&mut space, 0));
            assert_eq!(copied(&mut space, on).0, 0);
            assert!(!grows(&mut space, by));
            assert_eq!(copied(&mut space, on).0, tables);
        }
        // It never comes near address 0.
        let mut edit = space.edit(on).unwrap();
        edit.mmap(pages(20 * PAGE, 1), RW.with(AreaFlags::GROWS_DOWN), 0).unwrap();
        assert!(edit.fault(VirtAddr(16 * PAGE), Access::Read).is_ok());
        assert!(matches!(edit.fault(VirtAddr(15 * PAGE), Access::Read), Err(FaultError::NoArea(_))));
        space.end(on).unwrap();
    });
}

#[test]
fn tables_and_private_pages_may_be_prepared() {
    on_space(|on, mut space| {
        let mut edit = space.edit(on).unwrap();
        edit.mmap(pages(BASE, 1024), AreaFlags(0), 0).unwrap();
        edit.make_tables(pages(BASE + PAGE, 1000), Level(2)).unwrap();
        assert_eq!((edit.tree().count(Level(2)), edit.tree().count(Level(1))), (1, 0));
        edit.make_tables(pages(BASE + PAGE, 1000), Level::PTE).unwrap();
        assert_eq!(edit.tree().count(Level::PTE), 2);
        let beyond = edit.make_tables(pages(BASE + PAGE, 1024), Level::PTE);
        assert!(beyond.is_err(), "the last page is not mapped");
        edit.mmap(pages(2 * BASE, 1), RW.with(AreaFlags::SHARED), 1).unwrap();
        assert!(edit.copy_on_fork(VirtAddr(3 * BASE)).is_err());
        edit.copy_on_fork(VirtAddr(BASE)).unwrap();
        assert_eq!(copied(&mut space, on).0, 2);
        space.end(on).unwrap();
    });
}

#[test]
fn an_area_is_mapped_as_it_is_given() {
    on_space(|on, mut space| {
        let mut edit = space.edit(on).unwrap();
        let flags = RW.with(AreaFlags::PRIVATE_PAGES).with(AreaFlags::INHERITED);
        let area = Area { tag: 7, ..Area::new(pages(BASE, 3), flags, 0) };
        edit.map_area(area).unwrap();
        assert_eq!(edit.area(VirtAddr(BASE)), Some(Area { flags: RW, ..area }), "private pages come later");
        let mut all = Vec::new();
        edit.each_area(pages(BASE + PAGE, 1), |a| all.push(a.range()));
        assert_eq!(all, [pages(BASE, 3)]);
        space.end(on).unwrap();
    });
}

/// Number of tables, with memory that is given back page by page beside an area that stays.
#[test]
fn empty_tables_go_as_the_space_is_told() {
    const TABLES: u64 = 8;
    for (empty, madvised, covered, unmapped) in [
        (EmptyTables::Kept, TABLES, TABLES, TABLES),
        (EmptyTables::Covered, TABLES, 0, TABLES),
        (EmptyTables::Freed, 0, 0, 0),
    ] {
        on_space(|on, mut space| {
            let leaves = |space: &Space<X>| u64::from(space.tree().count(Level::PTE));
            let filled = |space: &mut Space<X>| {
                for at in (0..TABLES * 512).step_by(64) {
                    write(space, on, BASE + at * PAGE);
                }
                assert_eq!(leaves(space), TABLES);
            };
            let mut edit = space.edit(on).unwrap();
            edit.set_empty_tables(empty);
            edit.mmap(pages(BASE, TABLES * 512), RW, 0).unwrap();
            filled(&mut space);
            let child = space.edit(on).unwrap().fork().unwrap();
            for mut one in [space, child] {
                assert_eq!(one.edit(on).unwrap().empty_tables(), empty, "a copy has the same");
                for at in (0..TABLES * 512).step_by(2) {
                    let part = pages(BASE + at * PAGE, 2);
                    one.edit(on).unwrap().madvise(part, Advice::DontNeed).unwrap();
                }
                assert_eq!(leaves(&one), madvised, "{empty:?}");
                filled(&mut one);
                one.edit(on).unwrap().madvise(pages(BASE, TABLES * 512), Advice::DontNeed).unwrap();
                assert_eq!(leaves(&one), covered, "{empty:?}");
                filled(&mut one);
                // A page of each span stays mapped, and has not been touched.
                for at in (0..TABLES * 512).step_by(512) {
                    one.edit(on).unwrap().munmap(pages(BASE + at * PAGE, 511)).unwrap();
                }
                assert_eq!(leaves(&one), unmapped, "{empty:?}");
                assert_eq!(one.areas().len(), TABLES as usize);
                one.end(on).unwrap();
            }
        });
    }
}

/// Moves leave empty tables where the pages were.
#[test]
fn empty_tables_go_with_a_move_that_keeps_its_area() {
    for (empty, left) in [(EmptyTables::Kept, 1), (EmptyTables::Freed, 0)] {
        on_space(|on, mut space| {
            let mut edit = space.edit(on).unwrap();
            edit.set_empty_tables(empty);
            edit.mmap(pages(BASE, 8), RW, 0).unwrap();
            edit.populate(pages(BASE, 8), Access::Write).unwrap();
            edit.mremap(pages(BASE, 8), pages(BASE + 4 * TABLE, 8), true).unwrap();
            assert_eq!((edit.areas().len(), space.tree().count(Level::PTE)), (2, 1 + left));
            space.end(on).unwrap();
        });
    }
}
