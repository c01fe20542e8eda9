//! `x86_64` links a table before it clears it.
//!
//! `cargo run -p ptsan --features x86_64 --example x86_64_link`
#[path = "shared/verdict.rs"]
mod verdict;

use ptsan::adapters::x86_64::{Forward, Space};
use ptsan::adapters::{Machine, OLD_ENTRY};
use ptsan::{Access, Arch, Config, Kind};
use verdict::{Defect, silent};
use x86_64::structures::paging::{Mapper, Page, PageTableFlags as Flags, PhysFrame, Size4KiB};
use x86_64::{PhysAddr, VirtAddr};

const FLAGS: Flags = Flags::PRESENT.union(Flags::WRITABLE).union(Flags::USER_ACCESSIBLE);
const SPACE: u64 = 1;
/// An address that is never mapped, in the span of the first third-level table.
const NEVER_MAPPED: u64 = 0x4000_0000;

/// Maps one page in a fresh space while the CPU's walker walks for an address nearby.
fn map_one_page(zeroing_allocator: bool) -> (Machine, Space) {
    let machine = Machine::new(Config::new(Arch::x86_64()));
    let mut space = Space::new(&machine, SPACE).expect("a machine has frames");
    machine.load(0, space.root(), SPACE);
    machine.walk_ahead(0, NEVER_MAPPED);
    let page = Page::<Size4KiB>::containing_address(VirtAddr::new(0x7000));
    let frame = PhysFrame::containing_address(PhysAddr::new(0x123_4000));
    let mut frames = if zeroing_allocator { space.frames().zeroed() } else { space.frames() };
    // SAFETY: the frame is simulated.
    let token = unsafe { space.mapper().map_to(page, frame, FLAGS, &mut frames) };
    token.expect("the page is free").forward(&machine, SPACE);
    (machine, space)
}

fn main() {
    let (machine, _space) = map_one_page(false);
    let wrong = machine.access(0, NEVER_MAPPED, Access::WRITE);
    assert_eq!(wrong.map(|t| t.phys), Ok(OLD_ENTRY & !0xfff), "the CPU writes where an old entry points");
    Defect {
        title: "a table is linked, present, before it is cleared",
        source: "x86_64 0.15.5, mapper/mapped_page_table.rs:714 links, :735 clears",
        why: "The walker may walk through the new entry at once and take what the frame held before for entries. \
              It caches a writable user page of foreign memory for an address that was never mapped; the flush of the page \
              just mapped does not drop it.",
        at: &["mapped_page_table.rs:726:"],
        must: &[Kind::LinkedBeforeCleared, Kind::StaleUse],
        may: &[],
    }
    .found(&machine);

    let (machine, _space) = map_one_page(true);
    assert!(machine.access(0, NEVER_MAPPED, Access::WRITE).is_err());
    silent("an allocator that hands out cleared frames hides it", &machine);
}
