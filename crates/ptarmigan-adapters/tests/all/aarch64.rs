//! aarch64-paging: `Noted` beside the crate alone.
use crate::rig::{Lists, assert_back, at_once, at_once_of, out};
use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{El1Attributes as A, PhysicalAddress};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, RootTable, Stage2, VaRange};
use fastrand::Rng;
use ptarmigan_adapters::aarch64_paging::{Noted, Tables};
use ptarmigan_hosted::CpuSlot;
use std::panic::{AssertUnwindSafe, catch_unwind};

const PAGE: usize = 4096;
const LARGE: usize = 2 << 20;

fn flags() -> A {
    A::VALID | A::ACCESSED | A::NON_GLOBAL | A::INNER_SHAREABLE | A::USER
}

fn range(start: usize, bytes: usize) -> MemoryRegion {
    MemoryRegion::new(start, start + bytes)
}

/// Returns the crate's leaves in the first 32 MiB: address, level and target.
fn leaves(table: &RootTable<El1And0, Tables<'static, 'static, &'static Lists, CpuSlot>>) -> Vec<[usize; 3]> {
    let mut found = Vec::new();
    let walked = table.walk_range(&range(0, 32 << 20), &mut |region, entry, level| {
        found.push([region.start().0, level, entry.output_address().0]);
        Ok(())
    });
    walked.unwrap();
    found
}

#[test]
fn a_noted_table_equals_the_crates_own_after_any_change() {
    let pages = at_once();
    let mut numbers = Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    for _ in 0..8 {
        let mut noted = Noted::table_with_va_range(pages, 0, El1And0, VaRange::Lower);
        let mut own = RootTable::with_va_range(Tables::new(pages), 0, El1And0, VaRange::Lower);
        for _ in 0..60 {
            // Regions within 16 MiB, page by page or in blocks.
            let start = numbers.u64(..16 << 8) as usize * PAGE;
            let bytes = match numbers.u64(..4) {
                0 => PAGE,
                1 => (1 + numbers.usize(..700)) * PAGE,
                2 => LARGE,
                _ => 2 * LARGE,
            };
            let start = if bytes >= LARGE && numbers.bool() { start & !(LARGE - 1) } else { start };
            let flags = if numbers.u64(..3) == 0 { A::empty() } else { flags() };
            let constraints =
                if numbers.bool() { Constraints::empty() } else { Constraints::NO_BLOCK_MAPPINGS };
            let (region, to) = (range(start, bytes), PhysicalAddress(0x1_0000_0000 + start));
            noted.map_range(&region, to, flags, constraints).unwrap();
            own.map_range(&region, to, flags, constraints).unwrap();
            if numbers.u64(..8) == 0 {
                noted.compact_subtables();
                own.compact_subtables();
            }
        }
        assert_eq!(leaves(&noted), leaves(&own));
        drop((noted, own));
        assert_back(pages);
    }
}

#[test]
fn a_block_that_is_split_is_noted_as_a_whole() {
    let pages = at_once();
    let mut noted = Noted::table_with_va_range(pages, 1, El1And0, VaRange::Lower);
    noted.map_range(&range(LARGE, LARGE), PhysicalAddress(LARGE), flags(), Constraints::empty()).unwrap();
    let before = out(pages);
    // One page in the middle; the others stay, in a new table that is full.
    noted
        .map_range(&range(LARGE + 5 * PAGE, PAGE), PhysicalAddress(0), A::empty(), Constraints::empty())
        .unwrap();
    assert_eq!(out(pages), before + 1);
    drop(noted);
    assert_back(pages);
}

#[test]
fn a_range_is_modified_and_covered_tables_are_freed() {
    let pages = at_once();
    let mut noted = Noted::mapping_with_asid_and_va_range(pages, 1, 0, El1And0, VaRange::Upper);
    let top = (0xffff_0000_u64 << 32) as usize;
    noted.map_range(&range(top, 3 * LARGE), PhysicalAddress(LARGE), flags(), Constraints::empty()).unwrap();
    let read_only = |_: &MemoryRegion, entry: &mut aarch64_paging::descriptor::UpdatableDescriptor<'_, A>| {
        entry.modify_flags(A::READ_ONLY, A::empty())
    };
    // SAFETY: 1. it sets one flag, which no table entry has.
    unsafe { noted.modify_range(&range(top + PAGE, PAGE), &read_only) }.unwrap();
    assert_eq!(out(pages), 4, "one block was split");
    noted.map_range(&range(top, 3 * LARGE), PhysicalAddress(0), A::empty(), Constraints::empty()).unwrap();
    assert_eq!(out(pages), 3, "its table went");
    assert!(noted.map_range(&range(0, PAGE), PhysicalAddress(0), flags(), Constraints::empty()).is_err());
    drop(noted);
    drop(Noted::mapping(pages, 1, Stage2));
    assert_back(pages);
}

#[test]
fn a_call_without_memory_unwinds_and_the_tree_can_be_cleared() {
    let pages = at_once_of(1 << 20);
    let mut noted = Noted::table_with_va_range(pages, 0, El1And0, VaRange::Lower);
    let huge = range(0, 1 << 30);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        noted.map_range(&huge, PhysicalAddress(0x1_0000_0000), flags(), Constraints::NO_BLOCK_MAPPINGS)
    }));
    assert!(tried.is_err(), "512 tables are more than there is memory for");
    // A later call that succeeds does not repair a missing note.
    let page = range(0, PAGE);
    noted.map_range(&page, PhysicalAddress(0), A::empty(), Constraints::empty()).unwrap();
    drop(noted);
    assert_back(pages);
}

#[test]
fn a_mapping_that_is_active_is_not_dropped_and_keeps_its_tables() {
    let pages = at_once();
    let noted = Noted::mapping_with_asid_and_va_range(pages, 1, 0, El1And0, VaRange::Lower);
    noted.mark_active();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(noted))).is_err());
    assert_eq!(out(pages), 1, "an MMU may walk it");
}

#[test]
fn the_crates_mapping_gets_zero_tables_and_frees_full_ones() {
    let pages = at_once();
    let mut own = Mapping::with_asid_and_va_range(Tables::new(pages), 1, 0, El1And0, VaRange::Lower);
    own.map_range(&range(0, 700 * PAGE), PhysicalAddress(0), flags(), Constraints::NO_BLOCK_MAPPINGS)
        .unwrap();
    assert_eq!(out(pages), 5);
    drop(own);
    assert_back(pages);
}
