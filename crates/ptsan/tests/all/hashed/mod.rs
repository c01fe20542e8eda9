//! Machines whose CPUs look pages up in a hash table: each mistake is found, and the same code done
//! right gives no finding.
mod kernel;

use kernel::{Defect, Kernel, PAGE};
use ptsan::{Access, Arch, Config, Fault, HashLayout, HashTable, Kind, Rule, Sanitizer};

const SEEDS: u64 = 30;
const STEPS: u32 = 2000;
const CPUS: usize = 3;
/// Pages of 8 MiB apart share their groups, which have room for 16.
const PAGES: u64 = 30;

fn page(n: u64) -> u64 {
    0x1000_0000 + (n % PAGES) * (8 << 20) + (n / PAGES) * PAGE
}

/// Runs a random history of a kernel with the defect.
fn run(layout: HashLayout, defect: Option<Defect>, seed: u64) -> Kernel {
    let mut k = Kernel::new(CPUS, layout, defect, seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut next = 3;
    (1..=2).for_each(|space| k.create(space));
    (0..CPUS).for_each(|cpu| k.load(cpu, 1));
    for _ in 0..STEPS {
        let spaces = k.spaces();
        let space = spaces[rng.usize(..spaces.len())];
        let va = page(rng.u64(..PAGES + 6));
        let (cpu, write) = (rng.usize(..CPUS), rng.bool());
        match rng.u64(..160) {
            0 if spaces.len() > 1 => {
                k.exit(space);
                k.create(next);
                next += 1;
            }
            1..=8 => k.load(cpu, space),
            9..=14 => k.unmap(space, va),
            15..=69 => k.map(space, va, 0x80_0000 + rng.u64(..8) * PAGE, write),
            _ => _ = k.access(cpu, va, write),
        }
    }
    k.check();
    k
}

fn layouts() -> [HashLayout; 2] {
    [HashLayout::Bits32, HashLayout::Bits64]
}

/// Every seed finds the defect by one of the rules, and one seed at least by each.
#[track_caller]
fn is_found(defect: Defect, rules: &[Rule]) {
    for layout in layouts() {
        let mut by = vec![0; rules.len()];
        for seed in 0..SEEDS {
            let k = run(layout, Some(defect), seed);
            let found: Vec<bool> = rules.iter().map(|rule| k.broke(*rule)).collect();
            assert!(found.contains(&true), "{defect:?}, {layout:?}, seed {seed}: {}", k.san);
            by.iter_mut().zip(found).for_each(|(n, found)| *n += u64::from(found));
        }
        assert!(by.iter().all(|n| *n > 0), "{defect:?}, {layout:?}: {rules:?} {by:?}");
    }
}

#[test]
fn a_correct_kernel_has_no_finding_and_leaves_nothing_behind() {
    for layout in layouts() {
        let mut evicted = 0;
        for seed in 0..2 * SEEDS {
            let mut k = run(layout, None, seed);
            assert_eq!(k.san.total(), 0, "{layout:?}, seed {seed}: {}", k.san);
            for space in k.spaces() {
                k.exit(space);
            }
            assert_eq!(k.check(), 0, "seed {seed}: pages of spaces that have ended");
            k.san.finish();
            k.san.assert_clean();
            evicted += k.evicted;
        }
        assert!(evicted > 100, "{layout:?}: only {evicted} pages were evicted");
    }
}

#[test]
fn a_page_that_stays_in_the_hash_table_is_found_when_it_is_used() {
    is_found(Defect::NoFlush, &[Rule::StaleInHashTable, Rule::Unmapped]);
}

#[test]
fn a_page_flushed_from_tlbs_alone_is_found_at_the_flush() {
    is_found(Defect::OnlyTlb, &[Rule::LeftInHashTable, Rule::StaleInHashTable]);
}

#[test]
fn a_page_flushed_from_the_hash_table_alone_is_found_at_use() {
    is_found(Defect::OnlyHashTable, &[Rule::Unmapped]);
    is_found(Defect::OnlyHashTable, &[Rule::Remapped]);
}

#[test]
fn a_flush_of_the_wrong_address_is_found() {
    is_found(Defect::WrongAddress, &[Rule::Unmapped]);
}

#[test]
fn a_page_without_its_bit_is_found() {
    is_found(Defect::NoBit, &[Rule::BitMissing]);
}

#[test]
fn a_table_that_is_freed_with_a_bit_is_found() {
    is_found(Defect::BitLeft, &[Rule::FreedWithBit]);
}

#[test]
fn a_miss_that_puts_in_what_it_read_before_an_unmap_is_found() {
    is_found(Defect::LateRefill, &[Rule::HashedStale, Rule::StaleInHashTable]);
}

#[test]
fn a_page_that_is_put_in_twice_is_found() {
    is_found(Defect::Twice, &[Rule::HashedTwice, Rule::LeftInHashTable]);
}

#[test]
fn a_page_that_the_tlbs_do_not_learn_to_be_writable_is_found() {
    is_found(Defect::NoFlushAtUpgrade, &[Rule::UpgradeNotFlushed]);
}

#[test]
fn segments_that_are_used_again_before_a_flush_are_found() {
    is_found(Defect::SegmentsReused, &[Rule::StaleInHashTable, Rule::Remapped, Rule::Unmapped]);
}

#[test]
fn a_table_freed_before_its_pages_left_the_tlbs_is_found() {
    is_found(Defect::FreedEarly, &[Rule::HeldInTlb]);
}

#[test]
fn kinds_tell_what_is_used_from_what_lies_there() {
    let k = run(HashLayout::Bits32, Some(Defect::OnlyTlb), 1);
    assert!(k.san.count(Kind::HashTable) > 0, "{}", k.san);
    let k = run(HashLayout::Bits32, Some(Defect::OnlyHashTable), 1);
    assert!(k.san.count(Kind::StaleUse) > 0 && k.san.count(Kind::HashTable) == 0, "{}", k.san);
}

#[test]
fn unsearchable_and_unannounced_tables_are_misuses() {
    let ram = vec![0u8; 1 << 20];
    let table = HashTable { phys: 64 << 10, bytes: 64 << 10, layout: HashLayout::Bits32 };
    let odd = [
        HashTable { bytes: 32 << 10, ..table },
        HashTable { phys: 32 << 10, ..table },
        HashTable { phys: 1 << 20, ..table },
        HashTable { layout: HashLayout::Bits64, ..table },
    ];
    let misused = |arch: Arch, table: HashTable| {
        let mut san = Sanitizer::new(Config::new(arch));
        san.hash_table(&ram, table);
        san.count(Kind::Misuse)
    };
    for table in odd {
        assert_eq!(misused(Arch::ppc32(), table), 1, "{table:x?}");
    }
    assert_eq!((misused(Arch::ppc32(), table), misused(Arch::x86_64(), table)), (0, 1));

    let mut san = Sanitizer::new(Config::new(Arch::ppc32()));
    san.table_allocated(&ram, 0x2_0000, PAGE, None, ptsan::Content::Zero);
    san.switch(&ram, 0, 0x2_0000, 1);
    assert_eq!(san.translate(&ram, 0, PAGE, Access::READ), Err(Fault::NotHashed));
    san.segments(1, 0x2_0000, [7; 16]);
    assert_eq!(san.translate(&ram, 0, PAGE, Access::READ), Err(Fault::NotHashed));
    san.check_hash_table(&ram);
    assert_eq!(san.findings().iter().map(|f| f.rule).collect::<Vec<_>>(), [Rule::NoHashTable; 3][..2]);
    assert_eq!(san.count(Kind::Misuse), 3);
    san.hash_table(&ram, table);
    san.hash_written(&ram, 0x1_0000);
    assert_eq!(san.count(Kind::Misuse), 3);
    san.hash_written(&ram, 0x2_0000);
    assert_eq!(san.count(Kind::Misuse), 4);
}
