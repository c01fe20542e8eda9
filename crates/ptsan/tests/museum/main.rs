//! The museum: famous bugs of page-table code as models. Each is found by name, and silent when it
//! is corrected. `cargo run -p ptsan --example museum -- --catalogue` prints the catalogue.
mod exhibits;

use exhibits::{ALL, Exhibit};
use std::collections::BTreeSet;
use std::path::Path;

/// With the defect, the finding of the exhibit comes first, whatever the seed. Without it there is
/// none.
fn found_and_silent(test: &str) {
    let exhibit = ALL.iter().find(|exhibit| exhibit.name.replace('-', "_") == test).expect("an exhibit");
    let name = exhibit.name;
    for seed in 1..=20 {
        let run = exhibit.run(seed, true, false);
        let is_it = run.first.is_some_and(|(kind, rule)| exhibit.is_found_as(kind, rule));
        assert!(is_it, "{name} seed {seed}: first {:?}\n{}", run.first, run.san);
        assert!(!run.sequence.is_empty(), "{name}: the step has no hooks");
    }
    for seed in 1..=200 {
        let run = exhibit.run(seed, false, false);
        assert_eq!(run.san.total(), 0, "{name} corrected, seed {seed}: {}", run.san);
    }
}

macro_rules! exhibits {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                found_and_silent(stringify!($name));
            }
        )+

        const TESTS: &[&str] = &[$(stringify!($name)),+];
    };
}

exhibits! {
    mremap_late_flush
    mremap_moved_table
    munmap_pfnmap
    reclaim_batch
    userfaultfd_write_protect
    table_batch_slow_path
    hugetlb_gup_fast
    migrate_device_unlocked
    collapse_lazy_cpu
    switching_cpu_skipped
    riscv_leaf_sfence
    i915_no_flush
    i915_masked_register
    amdgpu_gart
    vtd_pasid_table
    vtd_context_entry
    amd_iommu_completion_wait
    iommupt_short_gather
    sva_kernel_table
    arm64_repeat_tlbi
    intel_invlpg_globals
    kvm_arm64_end_of_space
    freebsd_pcid_generation
    freebsd_promotion
    freebsd_invlpgb_stride
    xen_large_page_bit
    xen_linear_tables
    xen_shadow_pcid
    xen_iommu_deferral
    xen_wrong_variable
    xen_ept_deferred
    pkvm_superpage_unmap
    xnu_dangling_entry
    illumos_break_before_make
    asterinas_shared_asid
    phoenix_not_global
    asterinas_copy_on_write
    litebox_free_first
    svsm_ghcb_drop
    nanvix_stale_directory
    bao_new_page
    edk2_new_table
    hugetlb_level
}

#[test]
fn every_exhibit_has_a_test() {
    let names: Vec<String> = ALL.iter().map(|exhibit| exhibit.name.replace('-', "_")).collect();
    assert_eq!(names, TESTS);
}

#[test]
fn no_two_exhibits_break_one_rule_by_the_same_hooks() {
    let mut seen: Vec<(&Exhibit, BTreeSet<Vec<&str>>)> = Vec::new();
    for exhibit in ALL {
        let sequences: BTreeSet<_> = (1..=20).map(|seed| exhibit.run(seed, true, false).sequence).collect();
        for (other, theirs) in &seen {
            let rule = exhibit.kind == other.kind && exhibit.rules.iter().any(|r| other.rules.contains(r));
            let same = sequences.intersection(theirs).next();
            assert!(!rule || same.is_none(), "{} and {}: {same:?}", exhibit.name, other.name);
        }
        seen.push((exhibit, sequences));
    }
}

#[test]
fn no_two_exhibits_stand_for_the_same_check() {
    let checks: BTreeSet<&str> = ALL.iter().map(|exhibit| exhibit.check).collect();
    assert_eq!(checks.len(), ALL.len());
}

/// Returns the page of the museum, or `None` if the package is tested alone.
fn page() -> Option<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    directory.is_dir().then(|| std::fs::read_to_string(directory.join("museum.md")).expect("museum.md"))
}

#[test]
fn the_families_in_the_book_have_every_exhibit_once() {
    let Some(text) = page() else { return };
    let families =
        text.split("## Families").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("families");
    let mut named: Vec<&str> = families.split('`').skip(1).step_by(2).collect();
    let mut names: Vec<&str> = ALL.iter().map(|exhibit| exhibit.name).collect();
    named.sort_unstable();
    names.sort_unstable();
    assert_eq!(named, names);
}

#[test]
fn the_report_in_the_book_is_that_of_its_exhibit() {
    let Some(text) = page() else { return };
    let shown = text.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a report");
    let report = ALL[0].run(1, true, false).san.to_string();
    let missing: Vec<&str> = shown.lines().filter(|line| !report.contains(line)).collect();
    assert!(missing.is_empty(), "{missing:#?}\n{report}");
}

#[test]
fn every_exhibit_has_a_description_and_a_place_in_the_catalogue() {
    let page = exhibits::catalogue();
    let mut sections = page.split("### ").skip(1);
    for exhibit in ALL {
        let text = exhibits::description(exhibit).unwrap_or_default();
        assert!(text.len() > 60 && text.ends_with('.'), "{}: {text}", exhibit.name);
        let section = sections.next().expect("a section");
        assert!(section.starts_with(&format!("{}\n", exhibit.name)), "{section}");
        assert!(section.contains(exhibit.check) && section.contains(&text), "{section}");
    }
    assert_eq!(sections.next(), None);
}
