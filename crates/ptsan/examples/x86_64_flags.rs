//! `x86_64` and the hardware disagree about entries: a failed call opens a page to user mode,
//! absent pages are reported as mapped, a table becomes a page.
//!
//! `cargo run -p ptsan --features x86_64 --example x86_64_flags`
#[path = "shared/verdict.rs"]
mod verdict;

use ptsan::adapters::Machine;
use ptsan::adapters::x86_64::{Forward, Space};
use ptsan::{Access, Arch, Config, Expected, Kind, Perms};
use verdict::{Defect, silent};
use x86_64::structures::paging::mapper::MapToError;
use x86_64::structures::paging::{
    Mapper, Page, PageSize, PageTableFlags as Flags, PhysFrame, Size2MiB, Size4KiB, Translate,
};
use x86_64::{PhysAddr, VirtAddr};

const USER: Flags = Flags::PRESENT.union(Flags::WRITABLE).union(Flags::USER_ACCESSIBLE);
/// A page of the kernel's code.
const KERNEL: Flags = Flags::PRESENT;
const SPACE: u64 = 1;
const LARGE: u64 = Size2MiB::SIZE;
/// The frame for the large page, and one for a small page.
const LARGE_FRAME: u64 = 0x4000_0000;
const FRAME: u64 = 0x123_4000;

fn space() -> (Machine, Space) {
    let machine = Machine::new(Config::new(Arch::x86_64()));
    let space = Space::new(&machine, SPACE).expect("a machine has frames");
    machine.load(0, space.root(), SPACE);
    (machine, space)
}

fn page<S: PageSize>(va: u64) -> Page<S> {
    Page::containing_address(VirtAddr::new(va))
}

fn map<S>(
    space: &mut Space,
    machine: &Machine,
    va: u64,
    frame: u64,
    flags: Flags,
) -> Result<(), MapToError<S>>
where
    S: PageSize + std::fmt::Debug,
    for<'a> x86_64::structures::paging::MappedPageTable<'a, ptsan::adapters::x86_64::Mapping>: Mapper<S>,
{
    let mut frames = space.frames();
    let frame = PhysFrame::containing_address(PhysAddr::new(frame));
    // SAFETY: the frames are simulated.
    let token = unsafe { space.mapper().map_to(page::<S>(va), frame, flags, &mut frames) }?;
    token.forward(machine, SPACE);
    Ok(())
}

fn failed_map_opens_a_large_page() {
    let (machine, mut space) = space();
    map::<Size2MiB>(&mut space, &machine, LARGE, LARGE_FRAME, KERNEL).expect("the page is free");
    assert!(machine.access(0, LARGE, Access::WRITE).is_err(), "a user may not write the kernel's code");
    let refused = map::<Size4KiB>(&mut space, &machine, LARGE + 0x5000, FRAME, USER);
    assert!(matches!(refused, Err(MapToError::ParentEntryHugePage)));
    assert!(machine.access(0, LARGE, Access::WRITE).is_ok(), "now he may");
    machine.expect(0, LARGE, Some(Expected::at(LARGE_FRAME).allowing(Perms::READ | Perms::EXEC)));
    Defect {
        title: "a map_to that fails makes the large page in its way writable by users",
        source: "x86_64 0.15.5, mapper/mapped_page_table.rs:721 adds the flags of the new page to the entry, :726 finds that the \
                 entry is a large page and refuses",
        why: "The next walk of the hardware obeys the widened entry. A kernel that maps itself with large pages and \
              answers a user's request by trying map_to gives that user its memory together with the error.",
        at: &[],
        must: &[Kind::Disagreement],
        may: &[],
    }
    .found(&machine);
}

fn pages_that_are_not_there() {
    let (machine, mut space) = space();
    map::<Size4KiB>(&mut space, &machine, 0x7000, FRAME, USER).expect("the page is free");
    // SAFETY: no program uses the page.
    let token = unsafe { space.mapper().update_flags(page::<Size4KiB>(0x7000), Flags::WRITABLE) };
    token.expect("the page is mapped").forward(&machine, SPACE);
    let says = space.mapper().translate_addr(VirtAddr::new(0x7008));
    machine.expect(0, 0x7008, says.map(|phys| Expected::at(phys.as_u64())));
    Defect {
        title: "translate_addr and translate_page report a page that is not present",
        source: "x86_64 0.15.5, mapper/mapped_page_table.rs:531 and :476 ask whether the entry is zero, and not for PRESENT \
                 as the upper levels and unmap do",
        why: "A page without access that keeps its frame, or one that was swapped out, counts as mapped. Code that checks a \
              user's pointer with translate_addr (documented: None if there is no valid mapping) goes on with a frame \
              that the hardware does not give the user.",
        at: &[],
        must: &[Kind::Disagreement],
        may: &[],
    }
    .found(&machine);
}

/// Makes a space in which the last-level table of the second 2 MiB lies at a multiple of 2 MiB, and
/// maps one page.
fn table_at_a_large_boundary() -> (Machine, Space, u64) {
    let (machine, mut space) = space();
    map::<Size4KiB>(&mut space, &machine, 0, FRAME, USER).expect("the page is free");
    let table = ptsan::adapters::BASE + LARGE;
    machine.hand_out_next(table);
    map::<Size4KiB>(&mut space, &machine, LARGE + 0x7000, FRAME, USER).expect("the page is free");
    (machine, space, table)
}

fn a_table_taken_for_a_page() {
    let (machine, mut space, table) = table_at_a_large_boundary();
    let says = space.mapper().translate_page(page::<Size2MiB>(LARGE)).ok();
    assert_eq!(says.map(|frame| frame.start_address().as_u64()), Some(table));
    machine.expect(0, LARGE, says.map(|f| Expected::at(f.start_address().as_u64()).in_page_of(LARGE)));
    Defect {
        title: "translate_page of a large page returns a page table as the frame",
        source: "x86_64 0.15.5, mapper/mapped_page_table.rs:310 (2 MiB) and :165 (1 GiB): HUGE_PAGE is not checked",
        why: "The entry points at a table of small pages, and that table is returned as the 2 MiB frame that the page is \
              mapped to, whenever it happens to lie at a multiple of 2 MiB. The owner of the page writes \
              there, and the hardware walks what is written.",
        at: &[],
        must: &[Kind::Disagreement],
        may: &[],
    }
    .found(&machine);

    let (machine, mut space) = space_with_small_page();
    // SAFETY: no program uses the page.
    let token = unsafe { space.mapper().update_flags(page::<Size2MiB>(0), USER) };
    token.expect("the call says that it went well").forward(&machine, SPACE);
    assert!(machine.access(0, 0x7000, Access::READ).is_err());
    Defect {
        title: "update_flags of a large page turns a table into a page",
        source: "x86_64 0.15.5, mapper/mapped_page_table.rs:253 (2 MiB) and :121 (1 GiB): HUGE_PAGE is set without a check \
                 that it was set before (unmap checks, and refuses)",
        why: "All pages below the entry are gone at once, and their table with them. The hardware finds reserved bits set, or, if \
              the table lies at a multiple of 2 MiB, maps the page tables themselves with the new flags.",
        at: &[],
        must: &[Kind::MalformedEntry],
        may: &[],
    }
    .found(&machine);
}

fn space_with_small_page() -> (Machine, Space) {
    let (machine, mut space) = space();
    map::<Size4KiB>(&mut space, &machine, 0x7000, FRAME, USER).expect("the page is free");
    (machine, space)
}

fn right() {
    let (machine, mut space) = space();
    map::<Size4KiB>(&mut space, &machine, 0x7000, FRAME, KERNEL).expect("the page is free");
    let refused = map::<Size4KiB>(&mut space, &machine, 0x7000, FRAME, USER);
    assert!(matches!(refused, Err(MapToError::PageAlreadyMapped(_))));
    machine.expect(0, 0x7000, Some(Expected::at(FRAME).allowing(Perms::READ | Perms::EXEC)));
    assert!(space.mapper().unmap(page::<Size2MiB>(0)).is_err(), "a table is no large page");
    map::<Size2MiB>(&mut space, &machine, LARGE, LARGE_FRAME, USER).expect("the page is free");
    // SAFETY: no program uses the page.
    let token = unsafe { space.mapper().update_flags(page::<Size2MiB>(LARGE), Flags::WRITABLE) };
    token.expect("the page is mapped").forward(&machine, SPACE);
    let says = space.mapper().translate_addr(VirtAddr::new(LARGE));
    machine.expect(0, LARGE, says.map(|phys| Expected::at(phys.as_u64())));
    silent(
        "a map_to refused by a small page, an unmap of the wrong size, a large page that is not present",
        &machine,
    );
}

fn main() {
    failed_map_opens_a_large_page();
    pages_that_are_not_there();
    a_table_taken_for_a_page();
    right();
}
