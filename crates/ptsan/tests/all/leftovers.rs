//! Old entries: a table linked with some of them is found, and entries that were stored again are
//! not old.
use crate::common;

use common::{LARGE, Machine, PAGE, RW, ready};
use ptsan::{Access, Arch, Config, Content, Flush, Kind, Session};

const VA: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;
/// A frame that held a table before.
const FRAME: u64 = 0x9_0000;

fn x86() -> Arch {
    Arch::x86_64()
}

/// Makes space 1 on one CPU, with `VA` mapped to `DATA`.
fn mapped() -> Machine {
    let mut m = ready(x86(), 1);
    m.map(1, VA, DATA | RW);
    m
}

/// Returns the physical address of the entry of `VA` at level 1, and the table that holds it.
fn entry(m: &Machine) -> (u64, u64) {
    let (_, table, at) = m.path(1, VA).into_iter().find(|p| p.0 == 1).unwrap();
    (at, table)
}

/// Announces `FRAME` as a table of unknown level that may hold anything.
fn take(m: &mut Machine) {
    m.san.table_allocated(&m.ram, FRAME, PAGE, None, Content::Unknown);
}

/// Zeroes `FRAME` without telling the sanitizer.
fn clear(m: &mut Machine) {
    m.ram[FRAME as usize..(FRAME + PAGE) as usize].fill(0);
}

/// Makes a machine with space 1 on one CPU, in which every store is told and 2 MiB at `VA` are one
/// large page.
fn with_a_large_page() -> (Machine, u64) {
    let mut m = ready(x86(), 1);
    m.tells = true;
    m.map_at(1, 1, VA, DATA | RW | LARGE);
    let (at, _) = entry(&m);
    (m, at)
}

/// Splits the large page into the pages of `FRAME`, and merges these again.
fn split_and_merge(m: &mut Machine, at: u64) {
    m.access(0, VA, Access::WRITE).unwrap();
    take(m);
    clear(m);
    for page in 0..512 {
        m.put(FRAME + page * 8, (DATA + page * PAGE) | RW);
    }
    m.put(at, 0);
    m.flush(0, Flush::page(1, VA));
    m.put(at, FRAME | RW);
    assert_eq!(m.read(0, VA + PAGE), Some(DATA + PAGE));
    m.put(at, 0);
    m.flush(0, Flush::all());
    m.san.table_freed(&m.ram, FRAME, PAGE);
    m.put(at, DATA | RW | LARGE);
}

#[test]
fn a_large_page_split_again_with_the_same_frame_is_no_finding() {
    let (mut m, at) = with_a_large_page();
    for _ in 0..3 {
        split_and_merge(&mut m, at);
    }
    m.san.assert_clean();
}

#[test]
fn a_table_refilled_alike_is_no_finding_at_a_told_link() {
    let mut m = mapped();
    let (at, directory) = entry(&m);
    let below = m.table(0);
    // A directory that points at one table, as it did before.
    m.put(FRAME + 8, below | RW);
    take(&mut m);
    clear(&mut m);
    m.put(FRAME + 8, below | RW);
    m.san.table_linked(&m.ram, FRAME, 1, below);
    m.san.table_linked(&m.ram, directory, (at - directory) / 8 + 1, FRAME);
    m.san.assert_clean();
}

#[test]
fn a_root_refilled_alike_is_found_if_stores_were_not_told() {
    for told in [true, false] {
        let mut m = Machine::new(x86(), 1);
        let below = m.table(2);
        m.put(FRAME + 8, below | RW);
        take(&mut m);
        clear(&mut m);
        m.tells = told;
        m.put(FRAME + 8, below | RW);
        m.san.switch(&m.ram, 0, FRAME, 1);
        // An entry stored without a word looks like one that was never cleared.
        assert_eq!(m.san.total(), u64::from(!told), "{}", m.san);
    }
}

#[test]
fn one_old_entry_between_entries_stored_anew_is_found() {
    for (kept, new) in [(3, DATA), (511, DATA), (0, DATA), (3, 2 * DATA)] {
        let (mut m, at) = with_a_large_page();
        split_and_merge(&mut m, at);
        m.san.assert_clean();
        take(&mut m);
        for page in (0..512).filter(|&page| page != kept) {
            m.put(FRAME + page * 8, (new + page * PAGE) | RW);
        }
        m.put(at, 0);
        m.flush(0, Flush::page(1, VA));
        m.put(at, FRAME | RW);
        m.found_only(Kind::LinkedBeforeCleared);
        let old = format!("entry {kept} is still {:#x}, and 0 more", (DATA + kept * PAGE) | RW);
        assert!(m.san.to_string().contains(&old), "{}", m.san);
    }
}

#[test]
fn a_store_to_a_table_takes_no_entry_out_of_another_one() {
    let mut m = mapped();
    let (at, _) = entry(&m);
    m.put(FRAME, 0x1_2000 | RW);
    m.put(FRAME + PAGE, 0x1_2000 | RW);
    m.san.table_allocated(&m.ram, FRAME, PAGE, None, Content::Unknown);
    m.san.table_allocated(&m.ram, FRAME + PAGE, PAGE, None, Content::Unknown);
    m.tells = true;
    m.put(FRAME + PAGE, 0x1_2000 | RW);
    m.put(at + 16, (FRAME + PAGE) | RW);
    m.san.assert_clean();
    m.put(at + 8, FRAME | RW);
    m.found_only(Kind::LinkedBeforeCleared);
}

#[test]
fn linking_a_table_before_clearing_it_is_found_at_the_link() {
    for early in [false, true] {
        let mut m = ready(x86(), 1);
        m.map(1, VA, DATA | RW);
        let (at, directory) = entry(&m);
        let at = at + 8;
        let dirty = FRAME;
        m.put(dirty + 16, 0x1_2000 | RW);
        m.san.table_allocated(&m.ram, dirty, PAGE, Some(0), Content::Unknown);
        if !early {
            m.put(dirty + 16, 0);
        }
        m.put(at, dirty | RW);
        m.san.table_linked(&m.ram, directory, (at - directory) / 8, dirty);
        m.put(dirty + 16, 0);
        if early {
            m.found_only(Kind::LinkedBeforeCleared);
            assert!(m.san.to_string().contains("entry 2 is still 0x12007"), "{}", m.san);
        } else {
            m.san.assert_clean();
        }
    }
}

#[test]
fn a_written_entry_is_read_as_a_link() {
    let mut m = mapped();
    let (at, _) = entry(&m);
    let dirty = FRAME;
    m.put(dirty, 0x1_2000 | RW);
    m.san.table_allocated(&m.ram, dirty, PAGE, None, Content::Unknown);
    m.put(at + 8, dirty | RW);
    m.san.entry_written(&m.ram, at + 8);
    m.found_only(Kind::LinkedBeforeCleared);
}

#[test]
fn loading_a_root_with_old_entries_is_found() {
    let mut m = Machine::new(x86(), 1);
    m.put(FRAME + 8, 0x1_2000 | RW);
    m.san.table_allocated(&m.ram, FRAME, PAGE, Some(3), Content::Unknown);
    m.san.switch(&m.ram, 0, FRAME, 1);
    m.found_only(Kind::LinkedBeforeCleared);
}

#[test]
fn leftovers_are_inferred_at_the_first_walk_only_if_asked_for() {
    for infer_leftovers in [false, true] {
        let mut m = Machine::with(Config { infer_leftovers, ..Config::new(x86()) });
        m.space(1);
        m.switch(0, 1);
        m.map(1, VA, DATA | RW);
        let (at, _) = entry(&m);
        let dirty = FRAME;
        m.put(dirty + 16, 0x1_2000 | RW);
        m.san.table_allocated(&m.ram, dirty, PAGE, None, Content::Unknown);
        m.put(at + 8, dirty | RW);
        m.probe(0, VA + 0x20_0000);
        assert_eq!(m.count(Kind::LinkedBeforeCleared), u64::from(infer_leftovers));
    }
}

#[test]
fn a_root_smaller_than_its_frame_is_checked_for_its_entries() {
    // With 40 bits the root has 2 entries: the walker reads 16 bytes of its frame.
    for (old, found) in [(0x10, 0), (0x8, 1)] {
        let mut s = Session::new(Arch::aarch64_4k(40), vec![0u8; 1 << 16]);
        s.memory[0x1000 + old..][..8].copy_from_slice(&0xdead_b067_u64.to_le_bytes());
        s.alloc(0x1000);
        s.load(0x1000);
        assert_eq!(s.sanitizer.count(Kind::LinkedBeforeCleared), found, "an old entry at {old:#x}");
    }
}
