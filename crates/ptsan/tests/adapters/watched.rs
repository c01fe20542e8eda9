//! With every store seen, a defect is found at its store, without a walker that walks ahead and
//! without a hook in between.
use super::*;
use memory_addr::VirtAddr as Va;
use page_table_multiarch::{MappingFlags, PageSize, PageTable64};
use ptsan::Kind;
use ptsan::adapters::page_table_multiarch::{A64, A64Entry, Handler, edit};
use ptsan::adapters::x86_64::{Forward, Space};
use ptsan::watch::Error;
use x86_64::structures::paging::{Mapper, Page, PageTableFlags as Flags, PhysFrame, Size4KiB};
use x86_64::{PhysAddr, VirtAddr};

fn watched(arch: Arch) -> Option<Machine> {
    match Machine::watched(Config::new(arch), FRAMES) {
        Err(Error::Unsupported) => None,
        machine => Some(machine.expect("memory to watch")),
    }
}

/// Maps a page with the mapper that calls no hook when it reaches a table.
fn map_by_offset(machine: &Machine) {
    let mut space = Space::new(machine, 1).expect("frames");
    machine.load(0, space.root(), 1);
    let page = Page::<Size4KiB>::containing_address(VirtAddr::new(0x7000));
    let frame = PhysFrame::containing_address(PhysAddr::new(0x123_4000));
    let flags = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE;
    let mut frames = space.frames();
    // SAFETY: the frame is simulated.
    let token = run(machine, || unsafe { space.offset_mapper().map_to(page, frame, flags, &mut frames) });
    token.expect("free").forward(machine, 1);
    machine.expect(0, 0x7008, Some(Expected::at(0x123_4008)));
}

#[test]
fn a_link_to_a_table_not_yet_cleared_is_found_at_its_store() {
    let Some(machine) = watched(Arch::x86_64()) else { return };
    map_by_offset(&machine);
    assert_eq!(machine.sanitizer(|san, _| (san.total(), san.count(Kind::LinkedBeforeCleared))), (3, 3));
    let found = machine.found();
    assert_eq!(found.len(), 3, "{machine}");
    assert!(found[0].to_string().contains("mapped_page_table.rs"), "{}", found[0]);

    let blind = super::machine(Arch::x86_64());
    map_by_offset(&blind);
    blind.sanitizer(|san, _| san.assert_clean());
}

#[test]
fn a_remap_without_break_before_make_is_found_at_its_store() {
    let Some(machine) = watched(Arch::aarch64_4k(48)) else { return };
    let _current = machine.enter();
    let mut table = PageTable64::<A64, A64Entry, Handler>::try_new().expect("frames");
    machine.load(0, table.root_paddr().as_usize() as u64, 1);
    let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
    let va = Va::from_usize(0x7000);
    run(&machine, || {
        edit(&mut table, |cursor| cursor.map(va, 0x123_4000.into(), PageSize::Size4K, flags)).expect("free");
    });
    machine.sanitizer(|san, _| san.assert_clean());
    run(&machine, || edit(&mut table, |cursor| cursor.remap(va, 0x567_8000.into(), flags)).expect("mapped"));
    assert_eq!(
        machine.sanitizer(|san, _| (san.total(), san.count(Kind::BreakBeforeMake))),
        (1, 1),
        "{machine}"
    );
    assert_eq!(machine.found().len(), 1);
    machine.leave(0);
}
