//! Large pages and groups of areas of physical memory: which sizes faults map, what operations on
//! parts make of them, and lack of memory.
use crate::common::{Starved, any_frame, each_allocation_fails, ends_without_memory, range, va};
use crate::formats::{on_failing_machine, on_machine, small};
use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64K64, Aarch64Stage2, Attr, Ept, Format, I386, Keyed, MemoryType, Npt, Sv32,
    Sv39, Sv39Napot, Sv39x4Pbmt, X86_64, X86Pae,
};
use ptarmigan::frames::{AllocFlags, Request};
use ptarmigan::machine::On;
use ptarmigan::page::Level;
use ptarmigan::space::{Access, Advice, AreaError, AreaFlags, Done, SharedSpace, Space, SpaceMachine};
use ptarmigan::table::Sizes;
use ptarmigan_hosted::HostConfig;

const PAGE: u64 = 4096;
const M2: u64 = 2 << 20;
const G1: u64 = 1 << 30;
const AT: u64 = 0x40_0000_0000;
/// Where a device is: beyond the frames of the machine.
const DEVICE: u64 = 1 << 40;
const RW: AreaFlags = AreaFlags(3);
const USUAL: MemoryType = MemoryType::WriteBack;

fn host() -> HostConfig {
    HostConfig { bytes: 64 << 20, ..small() }
}

/// Maps the device at `at` from its byte `offset` on.
fn map<F: Format, M: SpaceMachine>(
    on: On<'_, M>,
    space: &mut Space<F>,
    at: VirtRange,
    offset: u64,
    sizes: impl Into<Sizes>,
) {
    let (mut edit, device) = (space.edit(on).unwrap(), PhysAddr(DEVICE + offset));
    // SAFETY: 1. no program runs in the space.
    unsafe { edit.map_physical_large(at, RW, device, USUAL, sizes).unwrap() };
}

/// Offsets from `base` and binary logarithms of the bytes of all leaves, which show the device from
/// `offset` on at `base`.
fn leaves<F: Format, M: SpaceMachine>(
    on: On<'_, M>,
    space: &Space<F>,
    base: u64,
    offset: u64,
) -> Vec<(u64, u32)> {
    let (mut leaves, all) = (Vec::new(), VirtRange::up_to(F::USER_END));
    let visit = |leaf: ptarmigan::table::Mapped| {
        let from = leaf.at.0.wrapping_sub(base);
        assert_eq!(leaf.frame.addr().0, DEVICE.wrapping_add(offset).wrapping_add(from), "{leaf:?}");
        assert!(leaf.attr.has(Attr::SPECIAL), "{leaf:?}");
        leaves.push((from, leaf.shift));
    };
    space.tree().walk_leaves(on, all, visit).unwrap();
    leaves
}

fn shifts(leaves: &[(u64, u32)]) -> Vec<u32> {
    leaves.iter().map(|(_, shift)| *shift).collect()
}

#[test]
fn faults_map_the_largest_leaf_that_fits() {
    on_machine::<X86_64, _>(host(), |host, on| {
        // A page and a large page, then 1 GiB, then a large page and a page.
        let at = range(AT - M2 - PAGE, AT + G1 + M2 + PAGE);
        let offset = G1 - M2 - PAGE;
        for (largest, populated) in
            [(Level(2), vec![12, 21, 30, 21, 12]), (Level(1), [vec![12], vec![21; 514], vec![12]].concat())]
        {
            let mut space = Space::<X86_64>::new(on).unwrap();
            map(on, &mut space, at, offset, largest);
            assert_eq!(space.areas().find(on, AT).unwrap().sizes(), Sizes::up_to(largest));
            let is = |space: &Space<X86_64>| leaves(on, space, at.start, offset);
            assert_eq!(space.fault(on, va(AT + 5 * M2 + 7 * PAGE), Access::Write), Ok(Done::Backed));
            let bytes = 1u64 << [21, 30][usize::from(largest.0 - 1)];
            let first = ((AT + 5 * M2) & !(bytes - 1)) - at.start;
            assert_eq!(is(&space), [(first, bytes.trailing_zeros())]);
            // All of it may be written now; the next page is one of another leaf.
            assert_eq!(space.fault(on, va(AT + 5 * M2 + 9 * PAGE), Access::Write), Ok(Done::Spurious));
            assert_eq!(space.fault(on, va(at.start), Access::Read), Ok(Done::Backed));
            space.edit(on).unwrap().populate(at, Access::Read).unwrap();
            assert_eq!(shifts(&is(&space)), populated);
            let reserved = if largest == Level(2) { 513 + 2 } else { 514 };
            assert_eq!(space.edit(on).unwrap().reserved_tables(), reserved);
            // A leaf that was read becomes one that may be written.
            let page = va(AT + G1 + 5 * PAGE);
            assert_eq!(space.fault(on, page, Access::Write), Ok(Done::Reused));
            assert!(space.tree().query(on, page).unwrap().1.has(Attr::WRITE | Attr::DIRTY));
            assert_eq!(shifts(&is(&space)), populated);
            space.edit(on).unwrap().munmap(at).unwrap();
            assert_eq!((is(&space).len(), host.frames().reserved()), (0, 0));
            space.end(on).unwrap();
        }
    });
}

#[test]
fn without_sizes_or_alignment_there_are_small_pages() {
    on_machine::<X86_64, _>(host(), |_, on| {
        let at = range(AT, AT + 2 * M2);
        let mut space = Space::<X86_64>::new(on).unwrap();
        // SAFETY: 1. no program runs in the space.
        unsafe { space.edit(on).unwrap().map_physical(at, RW, PhysAddr(DEVICE), USUAL).unwrap() };
        assert_eq!(space.areas().find(on, AT).unwrap().sizes(), Sizes::PAGES);
        space.fault(on, va(AT), Access::Read).unwrap();
        assert_eq!(leaves(on, &space, AT, 0), [(0, 12)]);
        // A page further in the memory.
        map(on, &mut space, at, PAGE, Level(2));
        space.edit(on).unwrap().populate(at, Access::Read).unwrap();
        assert_eq!(shifts(&leaves(on, &space, AT, PAGE)), [12; 1024]);
        // Memory that is aligned again has large pages in the place of the tables.
        map(on, &mut space, range(AT, AT + M2), M2, Level(1));
        space.fault(on, va(AT + PAGE), Access::Read).unwrap();
        assert_eq!(space.tree().query_leaf(on, va(AT)).unwrap().shift, 21);
        // One page of a span that has been split stays one.
        space.edit(on).unwrap().madvise(range(AT + PAGE, AT + 2 * PAGE), Advice::DontNeed).unwrap();
        assert_eq!(space.fault(on, va(AT + PAGE), Access::Read), Ok(Done::Backed));
        assert_eq!(space.tree().query_leaf(on, va(AT + PAGE)).unwrap().shift, 12);
        space.end(on).unwrap();
    });
}

#[test]
fn sizes_that_a_format_does_not_have_are_refused() {
    on_machine::<Sv32, _>(small(), |_, on| {
        let mut space = Space::<Sv32>::new(on).unwrap();
        let mut edit = space.edit(on).unwrap();
        let at = range(0x40_0000, 0x80_0000);
        for level in [2, 7, 255].map(Level) {
            // SAFETY: 1. no program runs in the space.
            let refused = unsafe { edit.map_physical_large(at, RW, PhysAddr(1 << 31), USUAL, level) };
            assert_eq!(refused, Err(AreaError::NoSuchSize { level, format: "Sv32" }));
            assert!(refused.unwrap_err().to_string().contains("no pages in tables of level"));
        }
        assert!(edit.areas().is_empty());
        // SAFETY: 1. no program runs in the space.
        unsafe { edit.map_physical_large(at, RW, PhysAddr(1 << 31), USUAL, Level(1)).unwrap() };
        space.fault(on, va(0x40_5000), Access::Read).unwrap();
        assert_eq!(space.tree().query_leaf(on, va(0x40_0000)).unwrap().shift, 22);
        space.end(on).unwrap();
    });
}

#[test]
fn an_area_is_told_from_others_by_its_sizes() {
    on_machine::<X86_64, _>(host(), |_, on| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        map(on, &mut space, range(AT, AT + M2), 0, Level(1));
        map(on, &mut space, range(AT + M2, AT + 2 * M2), M2, Level(1));
        assert_eq!(space.areas().len(), 1);
        map(on, &mut space, range(AT + 2 * M2, AT + 3 * M2), 2 * M2, Level(2));
        map(on, &mut space, range(AT + 3 * M2, AT + 4 * M2), 3 * M2, Sizes::up_to(Level(2)).with_groups());
        assert_eq!(space.areas().len(), 3);
        let area = space.areas().find(on, AT + 3 * M2).unwrap();
        assert_eq!(area.sizes(), Sizes::up_to(Level(2)).with_groups());
        assert_eq!((area.memory(), area.memory_at()), (USUAL, Some(PhysAddr(DEVICE + 3 * M2))));
        // Advice against large pages splits them, and leaves pages alone.
        let all = range(AT, AT + 4 * M2);
        space.edit(on).unwrap().populate(all, Access::Read).unwrap();
        assert_eq!(shifts(&leaves(on, &space, AT, 0)), [21; 4]);
        space.edit(on).unwrap().madvise(all, Advice::Large(false)).unwrap();
        assert_eq!(shifts(&leaves(on, &space, AT, 0)), [12; 2048]);
        space.edit(on).unwrap().madvise(all, Advice::DontNeed).unwrap();
        space.edit(on).unwrap().populate(all, Access::Read).unwrap();
        assert_eq!(shifts(&leaves(on, &space, AT, 0)), [12; 2048]);
        assert_eq!((space.areas().len(), space.areas().find(on, AT).unwrap().sizes()), (1, Sizes::PAGES));
        space.end(on).unwrap();
    });
}

/// Leaves no frame on the machine but those that are reserved, for `f`.
fn starving<F: Format>(host: &ptarmigan_hosted::Host<F>, f: impl FnOnce()) {
    let starved = Starved::new(host, 0);
    let mut urgent = Vec::new();
    while let Ok(frame) = host.frames().take(Request { flags: AllocFlags::URGENT, ..any_frame(0) }) {
        urgent.push(frame.dirty());
    }
    f();
    for frame in urgent {
        host.frames().give(frame);
    }
    drop(starved);
}

#[test]
fn a_part_of_a_gibibyte_goes_without_any_memory() {
    on_machine::<X86_64, _>(host(), |host, on| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        map(on, &mut space, range(AT, AT + 2 * G1), 0, Level(2));
        // Room for the records of areas that are cut.
        space.edit(on).unwrap().populate(range(AT, AT + 2 * G1), Access::Write).unwrap();
        assert_eq!(shifts(&leaves(on, &space, AT, 0)), [30, 30]);
        on.drain();
        starving(host, || {
            let free = host.frames().counts().free;
            assert_eq!(free, 2 * 513, "all but the tables that are reserved");
            let mut edit = space.edit(on).unwrap();
            // From a page within one to a page within the other.
            edit.munmap(range(AT + 7 * M2 + PAGE, AT + G1 + 3 * M2 - PAGE)).unwrap();
            edit.mprotect(range(AT + PAGE, AT + 2 * PAGE), AreaFlags::READ).unwrap();
            edit.madvise(range(AT + G1 + 9 * M2, AT + G1 + 9 * M2 + PAGE), Advice::DontNeed).unwrap();
            let is = leaves(on, &space, AT, 0);
            let large = is.iter().filter(|(_, shift)| *shift == 21).count();
            assert_eq!((large, is.len()), (6 + 508, 6 + 508 + 512 + 1 + 1 + 511));
            let attr = |at| space.tree().query(on, va(at)).map(|(_, attr)| attr.has(Attr::WRITE));
            assert_eq!([AT, AT + PAGE, AT + 2 * PAGE].map(attr), [Some(true), Some(false), Some(true)]);
            assert_eq!([AT + 7 * M2, AT + 7 * M2 + PAGE].map(attr), [Some(true), None]);
            assert_eq!([AT + G1 + 3 * M2 - PAGE, AT + G1 + 3 * M2 - 2 * PAGE].map(attr), [Some(true), None]);
        });
        space.end(on).unwrap();
        assert_eq!(host.frames().reserved(), 0);
    });
}

#[test]
fn where_no_tables_can_be_reserved_a_smaller_size_is_mapped() {
    // No room for the 513 tables that 1 GiB may need, and then for no reserve at all.
    on_machine::<X86_64, _>(host(), |host, on| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        map(on, &mut space, range(AT, AT + G1), 0, Level(2));
        space.edit(on).unwrap().make_tables(range(AT, AT + PAGE), Level(1)).unwrap();
        on.drain();
        let starved = Starved::new(host, 100);
        assert_eq!(space.fault(on, va(AT + 3 * M2), Access::Read), Ok(Done::Backed));
        drop(starved);
        assert_eq!(leaves(on, &space, AT, 0), [(3 * M2, 21)]);
        // A leaf table is there, and no frame that could be reserved.
        space.edit(on).unwrap().make_tables(range(AT + 4 * M2, AT + 4 * M2 + PAGE), Level::PTE).unwrap();
        on.drain();
        starving(host, || {
            assert_eq!(space.fault(on, va(AT + 4 * M2), Access::Read), Ok(Done::Backed));
            assert!(space.fault(on, va(AT + 5 * M2), Access::Read).is_err());
        });
        assert_eq!(leaves(on, &space, AT, 0), [(3 * M2, 21), (4 * M2, 12)]);
        space.end(on).unwrap();
        assert_eq!(host.frames().reserved(), 0);
    });
}

#[test]
fn a_table_without_pages_gives_way_to_the_largest_leaf() {
    for (tables, largest, shift) in [(Level::PTE, Level(1), 21), (Level(1), Level(2), 30)] {
        on_machine::<X86_64, _>(host(), |_, on| {
            let mut space = Space::<X86_64>::new(on).unwrap();
            map(on, &mut space, range(AT, AT + G1), 0, largest);
            space.edit(on).unwrap().make_tables(range(AT, AT + PAGE), tables).unwrap();
            assert_eq!(space.fault(on, va(AT + PAGE), Access::Read), Ok(Done::Backed));
            assert_eq!(leaves(on, &space, AT, 0), [(0, shift)]);
            space.end(on).unwrap();
        });
    }
}

#[test]
fn a_copy_that_fork_makes_shows_the_same_in_large_pages() {
    on_machine::<X86_64, _>(host(), |host, on| {
        for copied in [false, true] {
            let mut space = Space::<X86_64>::new(on).unwrap();
            let at = range(AT, AT + G1 + M2 + PAGE);
            map(on, &mut space, at, 0, Level(2));
            let mut edit = space.edit(on).unwrap();
            edit.populate(at, Access::Write).unwrap();
            if copied {
                edit.copy_on_fork(va(AT)).unwrap();
            }
            let mut child = space.edit(on).unwrap().fork().unwrap();
            let is = |space: &Space<X86_64>| shifts(&leaves(on, space, AT, 0));
            assert_eq!(is(&child), if copied { vec![30, 21, 12] } else { vec![] });
            child.edit(on).unwrap().populate(at, Access::Write).unwrap();
            assert_eq!(is(&child), [30, 21, 12]);
            // The permissions of the parent stay: nothing is copied when it is written.
            assert_eq!(space.fault(on, va(AT + 9 * PAGE), Access::Write), Ok(Done::Spurious));
            child.edit(on).unwrap().munmap(range(AT + PAGE, AT + 2 * PAGE)).unwrap();
            assert_eq!((is(&space).len(), is(&child).len()), (3, 511 + 511 + 2));
            child.end(on).unwrap();
            assert_eq!(is(&space), [30, 21, 12]);
            space.end(on).unwrap();
            assert_eq!(host.frames().reserved(), 0);
        }
    });
}

#[test]
fn moves_keep_the_sizes_that_fit_at_the_new_place() {
    on_machine::<X86_64, _>(host(), |host, on| {
        for (apart, expected) in [
            (4 * G1, vec![30, 21]),
            (4 * G1 + 3 * M2, vec![21; 513]),
            (4 * G1 + 3 * PAGE, vec![12; 512 * 513]),
        ] {
            let mut space = Space::<X86_64>::new(on).unwrap();
            let (from, to) = (range(AT, AT + G1 + M2), range(AT + apart, AT + apart + G1 + M2));
            map(on, &mut space, from, 0, Level(2));
            space.edit(on).unwrap().populate(from, Access::Read).unwrap();
            space.edit(on).unwrap().mremap(from, to, false).unwrap();
            assert_eq!(shifts(&leaves(on, &space, AT + apart, 0)), expected);
            let area = space.areas().find(on, to.start).unwrap();
            assert_eq!((area.sizes(), area.memory_at()), (Sizes::up_to(Level(2)), Some(PhysAddr(DEVICE))));
            space.end(on).unwrap();
            assert_eq!(host.frames().reserved(), 0);
        }
    });
}

#[test]
fn a_log_of_a_device_tells_a_large_page_once_and_then_its_parts() {
    on_machine::<X86_64, _>(host(), |_, on| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        let at = range(AT, AT + G1);
        map(on, &mut space, at, 0, Level(2));
        space.fault(on, va(AT + M2), Access::Write).unwrap();
        let mut told = Vec::new();
        space
            .edit(on)
            .unwrap()
            .take_dirty(at, Level(1), |leaf| told.push((leaf.at.0 - AT, leaf.shift)))
            .unwrap();
        assert_eq!(told, [(0, 30)]);
        assert_eq!(shifts(&leaves(on, &space, AT, 0)), [21; 512]);
        told.clear();
        // The handler of a write fault on a page that is logged by its permission.
        space.edit(on).unwrap().write_protect(at, Level(1), |_| {}).unwrap();
        assert_eq!(space.fault(on, va(AT + 3 * M2 + PAGE), Access::Write), Ok(Done::Reused));
        space
            .edit(on)
            .unwrap()
            .take_dirty(at, Level(1), |leaf| told.push((leaf.at.0 - AT, leaf.shift)))
            .unwrap();
        assert_eq!(told, [(3 * M2, 21)]);
        space.end(on).unwrap();
    });
}

#[test]
fn whichever_allocation_fails_a_device_loses_nothing() {
    on_failing_machine(|_, on, fail| {
        let far = AT + (1 << 39);
        let all = range(AT - M2, AT + G1 + M2 + 2 * PAGE);
        each_allocation_fails(6, |k| {
            let mut space = Space::<X86_64>::new(on).unwrap();
            map(on, &mut space, all, G1 - M2, Sizes::up_to(Level(2)).with_groups());
            let mut failed = false;
            fail.set(k);
            for at in [AT - PAGE, AT + 5 * M2, AT + G1 + PAGE, AT + G1 + M2 + PAGE] {
                failed |= space.fault(on, va(at), Access::Write).is_err();
            }
            let is = |space: &Space<X86_64>| leaves(on, space, AT - M2, G1 - M2);
            let before = is(&space);
            space.edit(on).unwrap().copy_on_fork(va(AT)).unwrap();
            match space.edit(on).unwrap().fork() {
                Ok(child) => {
                    assert_eq!(is(&child), before, "allocation {k}: a copy is complete");
                    child.end(on).unwrap();
                }
                Err(_) => failed = true,
            }
            assert_eq!(is(&space), before, "allocation {k}");
            let (from, to) = (range(AT - M2, AT + G1 + M2), range(far - M2, far + G1 + M2));
            let moved = space.edit(on).unwrap().mremap(from, to, false).is_ok();
            failed |= !moved;
            if !moved {
                let pages = |leaves: &[(u64, u32)]| leaves.iter().map(|(_, shift)| 1 << shift).sum::<u64>();
                assert_eq!(pages(&is(&space)), pages(&before), "allocation {k}: all are back");
            }
            let parts = [AT, far].map(|base| {
                [range(base + 3 * PAGE, base + 5 * PAGE), range(base + 2 * M2 + PAGE, base + G1 - PAGE)]
            });
            ends_without_memory(on, fail, space, parts.as_flattened(), k);
            failed
        });
    });
}

/// Maps `group` bytes of a device, and a page before and behind, as a group of leaves of `level`.
fn groups_of<F: Format>(level: Level, group: u64) {
    on_machine::<F, _>(host(), |host, on| {
        let (leaf, page) = (1u64 << F::shift(level), 1u64 << F::PAGE_SHIFT);
        let start = 4 * group;
        let at = VirtRange::new(start - leaf, start + group + leaf).unwrap();
        let shift = group.trailing_zeros();
        let is = |space: &Space<F>, at| shifts(&leaves(on, space, at, group - leaf));
        let whole = [F::shift(level), shift, F::shift(level)];
        let last = VirtAddr(start + group - page);
        let mut space = Space::<F>::new(on).unwrap();
        map(on, &mut space, at, group - leaf, level);
        space.fault(on, last, Access::Read).unwrap();
        assert_eq!(is(&space, at.start), [F::shift(level)], "{}: not asked for", F::NAME);
        map(on, &mut space, at, group - leaf, Sizes::up_to(level).with_groups());
        assert_eq!(space.fault(on, last, Access::Read), Ok(Done::Backed));
        assert_eq!(is(&space, at.start), [shift], "{}", F::NAME);
        let reserved = space.edit(on).unwrap().reserved_tables();
        space.edit(on).unwrap().populate(at, Access::Read).unwrap();
        assert_eq!(is(&space, at.start), whole, "{}", F::NAME);
        // All of a group gets the rights of one page.
        assert_eq!(space.fault(on, VirtAddr(start), Access::Write), Ok(Done::Reused));
        assert_eq!(space.fault(on, last, Access::Write), Ok(Done::Spurious));
        assert_eq!(is(&space, at.start), whole, "{}", F::NAME);
        // A copy with tables has it too, and one that faults fill again.
        for copied in [false, true] {
            if copied {
                space.edit(on).unwrap().copy_on_fork(VirtAddr(start)).unwrap();
            }
            let mut child = space.edit(on).unwrap().fork().unwrap();
            assert_eq!(is(&child, at.start).len(), if copied { 3 } else { 0 }, "{}", F::NAME);
            child.edit(on).unwrap().populate(at, Access::Write).unwrap();
            assert_eq!(is(&child, at.start), whole, "{}", F::NAME);
            child.end(on).unwrap();
        }
        // It moves as one where it is aligned, and as leaves where not.
        for (apart, expected) in [(8 * group, 3), (16 * group + leaf, 2 + (group / leaf) as usize)] {
            let to = VirtRange::new(at.start + apart, at.end + apart).unwrap();
            space.edit(on).unwrap().mremap(at, to, false).unwrap();
            assert_eq!(is(&space, to.start).len(), expected, "{}", F::NAME);
            space.edit(on).unwrap().mremap(to, at, false).unwrap();
        }
        space.edit(on).unwrap().madvise(at, Advice::DontNeed).unwrap();
        space.edit(on).unwrap().populate(at, Access::Read).unwrap();
        assert_eq!(is(&space, at.start), whole, "{}", F::NAME);
        // Without a part, the others are no group any more, and without memory.
        on.drain();
        starving(host, || {
            let gone = VirtRange::new(last.0, last.0 + page).unwrap();
            space.edit(on).unwrap().madvise(gone, Advice::DontNeed).unwrap();
        });
        let parts = if level == Level::PTE { 0 } else { leaf / page - 1 };
        assert_eq!(is(&space, at.start).len() as u64, 2 + group / leaf - 1 + parts, "{}", F::NAME);
        space.end(on).unwrap();
        assert_eq!((host.frames().reserved(), reserved > 0), (0, level > Level::PTE));
    });
}

#[test]
fn devices_have_groups_where_the_format_has_them() {
    groups_of::<Aarch64>(Level::PTE, 64 << 10);
    groups_of::<Aarch64>(Level(1), 32 << 20);
    groups_of::<Aarch64Stage2>(Level::PTE, 64 << 10);
    groups_of::<Aarch64K16>(Level::PTE, 2 << 20);
    groups_of::<Aarch64K16>(Level(1), 1 << 30);
    groups_of::<Aarch64K64>(Level::PTE, 2 << 20);
    groups_of::<Sv39Napot>(Level::PTE, 64 << 10);
}

#[test]
fn a_shared_space_maps_large_pages_of_a_device() {
    on_machine::<X86_64, _>(host(), |_, on| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        map(on, &mut space, range(AT, AT + G1 + PAGE), 0, Level(2));
        let space = SharedSpace::new(space);
        assert_eq!(space.fault(on, va(AT + 7 * PAGE), Access::Read), Ok(Done::Backed));
        assert_eq!(space.fault(on, va(AT + 8 * M2), Access::Read), Ok(Done::Spurious));
        assert_eq!(space.fault(on, va(AT + 8 * M2), Access::Write), Ok(Done::Reused));
        assert_eq!(space.fault(on, va(AT + G1), Access::Write), Ok(Done::Backed));
        let space = space.into_inner();
        assert_eq!(leaves(on, &space, AT, 0), [(0, 30), (G1, 12)]);
        space.end(on).unwrap();
    });
}

/// A device in leaves of every size of the format, and of every type of memory that it has.
fn sizes_of<F: Format>() {
    let levels = (0..F::LAYOUT.levels).filter(|level| F::LEAF_LEVELS >> level & 1 != 0).map(Level);
    // 1 GiB at most: larger leaves have more tables reserved than the machine has frames.
    for level in levels.filter(|level| F::shift(*level) <= 30) {
        for memory in MemoryType::ALL.into_iter().filter(|memory| F::RIGHTS.has_memory(*memory)) {
            on_machine::<F, _>(host(), |host, on| {
                let (page, leaf) = (1u64 << F::PAGE_SHIFT, 1u64 << F::shift(level));
                let device = 1u64 << 31;
                let start = leaf.max(page * 64);
                let at = VirtRange::new(start, start + leaf + page).unwrap();
                let mut space = Space::<F>::new(on).unwrap();
                // SAFETY: 1. no program runs in the space.
                let mapped = unsafe {
                    space.edit(on).unwrap().map_physical_large(at, RW, PhysAddr(device), memory, level)
                };
                mapped.unwrap();
                let last = VirtAddr(start + leaf - page);
                assert_eq!(space.fault(on, last, Access::Read), Ok(Done::Backed));
                let shown = |space: &Space<F>, at| space.tree().query_leaf(on, at).unwrap();
                let whole = shown(&space, last);
                assert_eq!((whole.level, whole.shift), (level, F::shift(level)), "{}", F::NAME);
                let is = |space: &Space<F>, at: VirtAddr| {
                    let (pfn, attr) = space.tree().query(on, at).unwrap();
                    assert_eq!(pfn.addr().0 - device, at.0 - start, "{}", F::NAME);
                    assert!(attr.has(Attr::SPECIAL) && attr.memory() == memory, "{}: {attr:?}", F::NAME);
                };
                is(&space, last);
                assert_eq!(space.fault(on, VirtAddr(start), Access::Write), Ok(Done::Reused));
                space.edit(on).unwrap().mprotect(at, AreaFlags::READ).unwrap();
                space.edit(on).unwrap().mprotect(at, RW).unwrap();
                is(&space, last);
                let mut child = space.edit(on).unwrap().fork().unwrap();
                child.fault(on, last, Access::Write).unwrap();
                assert_eq!(shown(&child, last).level, level);
                is(&child, last);
                child.end(on).unwrap();
                // A page goes, and the others stay what they are.
                space.edit(on).unwrap().munmap(VirtRange::new(start, start + page).unwrap()).unwrap();
                if level > Level::PTE {
                    is(&space, last);
                    is(&space, VirtAddr(start + page));
                }
                assert_eq!(space.tree().query(on, VirtAddr(start)), None);
                space.end(on).unwrap();
                assert_eq!(host.frames().reserved(), 0);
            });
        }
    }
}

#[test]
fn devices_have_every_size_and_every_type_of_a_format() {
    sizes_of::<X86_64>();
    sizes_of::<Keyed<X86_64>>();
    sizes_of::<X86Pae>();
    sizes_of::<I386>();
    sizes_of::<Sv32>();
    sizes_of::<Sv39>();
    sizes_of::<Sv39Napot>();
    sizes_of::<Sv39x4Pbmt>();
    sizes_of::<Aarch64>();
    sizes_of::<Aarch64K16>();
    sizes_of::<Aarch64K64>();
    sizes_of::<Aarch64Stage2>();
    sizes_of::<Ept>();
    sizes_of::<Npt>();
}
