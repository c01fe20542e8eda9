//! `x86_64` frees empty tables before any flush can reach the CPUs.
//!
//! `cargo run -p ptsan --features x86_64 --example x86_64_clean_up`
#[path = "shared/verdict.rs"]
mod verdict;

use ptsan::adapters::Machine;
use ptsan::adapters::x86_64::{Forward, Frames, Space};
use ptsan::{Access, Arch, Config, Flush, Kind};
use verdict::{Defect, silent};
use x86_64::structures::paging::mapper::CleanUp;
use x86_64::structures::paging::{
    FrameDeallocator, Mapper, Page, PageTableFlags as Flags, PhysFrame, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

const FLAGS: Flags = Flags::PRESENT.union(Flags::WRITABLE).union(Flags::USER_ACCESSIBLE);
const SPACE: u64 = 1;
const VA: u64 = 0x7000;

/// Makes a space in which one page was mapped, used by two CPUs, unmapped and flushed on both. The
/// second CPU's walker still walks there by itself.
fn unmapped_and_flushed() -> (Machine, Space) {
    let machine = Machine::new(Config { cpus: 2, ..Config::new(Arch::x86_64()) });
    let mut space = Space::new(&machine, SPACE).expect("a machine has frames");
    let page = Page::<Size4KiB>::containing_address(VirtAddr::new(VA));
    let frame = PhysFrame::containing_address(PhysAddr::new(0x123_4000));
    let mut frames = space.frames();
    // SAFETY: the frame is simulated.
    unsafe { space.mapper().map_to(page, frame, FLAGS, &mut frames) }
        .expect("the page is free")
        .forward(&machine, SPACE);
    for cpu in 0..2 {
        machine.load(cpu, space.root(), SPACE);
        machine.access(cpu, VA, Access::READ).expect("the page is mapped");
    }
    let (_, token) = space.mapper().unmap(page).expect("the page is mapped");
    token.forward(&machine, SPACE);
    machine.walk_ahead(1, VA);
    (machine, space)
}

/// Keeps the frames until after the flush.
struct Parked(Vec<PhysFrame>);

impl FrameDeallocator<Size4KiB> for Parked {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        self.0.push(frame);
    }
}

fn main() {
    let (machine, mut space) = unmapped_and_flushed();
    let mut frames: Frames = space.frames();
    // SAFETY: the tables are this space's alone.
    unsafe { space.mapper().clean_up(&mut frames) };
    Defect {
        title: "clean_up frees tables before a flush is possible",
        source: "x86_64 0.15.5, mapper/mapped_page_table.rs:620 unlinks, :621 deallocates; OffsetPageTable calls the same",
        why: "The page was flushed when it was unmapped, but the tables above it were still linked then, so the CPU may \
              have cached the way to them again. The frame goes to the allocator in the same loop, before the caller \
              gets a chance to flush; its next owner's data is then walked as page-table entries.",
        at: &["mapped_page_table.rs:621:"],
        must: &[Kind::FreeBeforeFlush],
        may: &[Kind::UseAfterFree],
    }
    .found(&machine);

    let (machine, mut space) = unmapped_and_flushed();
    let mut parked = Parked(Vec::new());
    // SAFETY: as above.
    unsafe { space.mapper().clean_up(&mut parked) };
    machine.flush_everywhere(Flush::space(SPACE));
    let mut frames = space.frames();
    for frame in parked.0 {
        // SAFETY: no entry points at the frame, and every CPU has flushed.
        unsafe { frames.deallocate_frame(frame) };
    }
    silent("a deallocator that keeps the frames until a flush of the whole space", &machine);
}
