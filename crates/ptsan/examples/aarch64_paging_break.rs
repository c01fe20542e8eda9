//! `aarch64-paging` splits a block of a live mapping in place when the update changes no attribute.
//!
//! `cargo run -p ptsan --features aarch64-paging --example aarch64_paging_break`
#[path = "shared/verdict.rs"]
mod verdict;

use aarch64_paging::descriptor::{El1Attributes as Attributes, PhysicalAddress, UpdatableDescriptor};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, VaRange};
use aarch64_paging::{MapError, Mapping};
use ptsan::adapters::Machine;
use ptsan::adapters::aarch64_paging::{Frames, edit};
use ptsan::{Access, Arch, Config, Kind};
use verdict::{Defect, silent};

const LARGE: usize = 0x20_0000;
const PAGE: usize = 4096;
const READ_ONLY_USER: Attributes = Attributes::VALID
    .union(Attributes::ACCESSED)
    .union(Attributes::NON_GLOBAL)
    .union(Attributes::INNER_SHAREABLE)
    .union(Attributes::USER)
    .union(Attributes::READ_ONLY);

/// Maps a read-only block, loads it, and gives one page of it more flags.
fn run(set: Attributes) -> (Machine, Result<(), MapError>) {
    let machine = Machine::new(Config::new(Arch::aarch64_4k(48)));
    let mut mapping =
        Mapping::with_asid_and_va_range(Frames::flushing(&machine), 1, 0, El1And0, VaRange::Lower);
    let block = MemoryRegion::new(LARGE, 2 * LARGE);
    mapping
        .map_range(&block, PhysicalAddress(0x4000_0000), READ_ONLY_USER, Constraints::empty())
        .expect("an empty range");
    machine.load(0, mapping.root_address().0 as u64, 1);
    mapping.mark_active();
    machine.access(0, LARGE as u64, Access::READ).expect("the block is mapped");

    // A walk that the CPU makes by itself would cache the new entry beside the old one.
    machine.walk_ahead(0, LARGE as u64);
    let page = MemoryRegion::new(LARGE + PAGE, LARGE + 2 * PAGE);
    let update = |_: &MemoryRegion, d: &mut UpdatableDescriptor<'_, Attributes>| {
        d.modify_flags(set, Attributes::empty())
    };
    let result = edit(&machine, || mapping.modify_range(&page, &update));
    let _ = machine.access(0, (LARGE + PAGE) as u64, Access::READ);
    machine.leave(0);
    mapping.mark_inactive();
    (machine, result)
}

fn main() {
    let (machine, result) = run(Attributes::READ_ONLY);
    assert_eq!(result, Ok(()), "the call says that it went well");
    Defect {
        title: "modify_range splits a live block in which nothing changes",
        source: "aarch64-paging 0.12.3, src/lib.rs:255 refuses the split of a live block only if the flags change; \
                 src/paging.rs:1285 splits it in any case, and nothing is invalidated, because nothing was updated",
        why: "A valid block becomes a valid table in one store. A CPU that holds the block may now cache its pages too: the change \
              of size that break-before-make is for (short of FEAT_BBM level 2), and which the crate otherwise refuses on live \
              mappings.",
        at: &[],
        must: &[Kind::BreakBeforeMake],
        may: &[],
    }
    .found(&machine);

    let (machine, result) = run(Attributes::UXN);
    assert!(matches!(result, Err(MapError::BreakBeforeMakeViolation(_))));
    silent("a change in a live block is refused", &machine);
}
