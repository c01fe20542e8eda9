//! The defects of `docs/detects.md`: each is found with every seed, as one finding, and the same
//! code without it is silent.
mod kernel;

use kernel::{CPUS, Defect, Format, Kernel, PAGE, USER};
use ptsan::Kind;

/// Work without the defect: it switches, maps, unmaps, restricts and remaps.
fn work(k: &mut Kernel, steps: u64) {
    for _ in 0..steps {
        let (cpu, space) = (k.below(CPUS as u64) as usize, 1 + k.below(3));
        let va = USER + k.below(24) * PAGE;
        match k.below(12) {
            0 => k.switch(cpu, space),
            1 => k.lazy(cpu),
            2 => k.resume(cpu),
            3..=5 if !k.is_mapped(space, va) => k.map(space, va),
            6 => k.unmap(cpu, space, va, 1),
            7 => {
                let n = 1 + k.below(8);
                k.unmap(cpu, space, va, n);
            }
            8 => k.protect(cpu, space, va),
            9 => {
                let copy = k.below(2) == 0;
                k.remap(cpu, space, va, copy);
            }
            10 if k.below(8) == 0 => {
                k.destroy(space);
                k.space(space);
            }
            _ => k.touch(cpu, va),
        }
    }
}

fn start(format: Format, seed: u64, tells: bool) -> Kernel {
    let mut k = Kernel::new(format, seed, tells);
    for space in 1..=3 {
        k.space(space);
    }
    let steps = 20 + k.below(40);
    work(&mut k, steps);
    // From here on the tests know the loaded space: space 1, with one page mapped and one more.
    for cpu in 0..CPUS {
        k.resume(cpu);
        k.switch(cpu, 1);
    }
    k.unmap(0, 1, USER, 24);
    k.map(1, USER);
    k.map(1, USER + PAGE);
    k.san.assert_clean();
    k
}

/// Runs the code with the defect.
fn inject(k: &mut Kernel, defect: Defect, seed: u64) {
    let cpu = (seed % CPUS as u64) as usize;
    k.defect = defect;
    match defect {
        Defect::NoFlushOnDowngrade => k.protect(cpu, 1, USER),
        Defect::RemapWithoutFlush => k.remap(cpu, 1, USER, false),
        Defect::CopyWithoutFlush => k.remap(cpu, 1, USER, true),
        Defect::LinkedBeforeCleared => k.map(1, USER + (1 << 30)),
        Defect::WrongFrame => k.map(1, USER + 2 * PAGE),
        Defect::TableMapped => k.map(1, USER + 2 * PAGE),
        Defect::GlobalByRootLoad => k.kernel_page(cpu),
        Defect::SplitWithoutBreak | Defect::CollapseOnePage => k.collapse_and_split(cpu, 1),
        Defect::Leak | Defect::RootWhileLoaded => k.destroy(1),
        Defect::NumberReused => {
            k.destroy(1);
            k.space(1);
            k.switch(cpu, 1);
            k.touch(cpu, USER);
        }
        Defect::LazyLeftOut => {
            let other = (cpu + 1) % CPUS;
            k.lazy(other);
            k.unmap(cpu, 1, USER, 1);
            k.resume(other);
            k.touch(other, USER + PAGE);
        }
        // Only here the table goes with its last page.
        Defect::TableBeforeFlush | Defect::FlushedThenUnlinked | Defect::LeafOnly | Defect::DoubleFree => {
            k.unmap(cpu, 1, USER, 2);
        }
        Defect::WrongStride => {
            if k.format == Format::RiscV {
                // A table that is freed would have the whole space flushed.
                k.map(1, USER + 2 * PAGE);
            }
            k.unmap(cpu, 1, USER, 2);
        }
        _ => k.unmap(cpu, 1, USER, 1),
    }
    k.defect = Defect::None;
    if defect == Defect::Leak {
        k.destroy(2);
        k.destroy(3);
        return k.finish();
    }
    for cpu in 0..CPUS {
        k.touch(cpu, USER);
        k.touch(cpu, USER + PAGE);
    }
    k.san.flushes_done(&k.ram);
    k.san.finish_with(&k.ram);
}

/// Returns how many seeds run: 20, or as many as the environment says. `.ci/nightly` runs 200.
fn seeds() -> u64 {
    std::env::var("PTSAN_DETECTS_SEEDS").ok().map_or(20, |text| text.parse().expect("a number of seeds"))
}

#[track_caller]
fn found(defect: Defect, wanted: &[(Format, Kind)]) {
    for &(format, kind) in wanted {
        for seed in 1..=seeds() {
            let mut k = start(format, seed, true);
            let leaks = k.san.live_tables();
            inject(&mut k, defect, seed);
            let findings = k.san.findings();
            let findings: Vec<_> =
                findings.iter().filter(|f| f.kind != Kind::Leak || kind == Kind::Leak).collect();
            let text = || k.san.to_string();
            assert!(leaks > 0 && findings.len() == 1, "{defect:?} {format:?} seed {seed}: {}", text());
            assert_eq!(findings[0].kind, kind, "{defect:?} {format:?} seed {seed}: {}", text());
        }
    }
}

macro_rules! matrix {
    ($($name:ident: $defect:ident, $($format:ident $kind:ident),+;)+) => {
        $(
            #[test]
            fn $name() {
                found(Defect::$defect, &[$((Format::$format, Kind::$kind)),+]);
            }
        )+

        const ALL: &[(Defect, &[Format])] = &[$((Defect::$defect, &[$(Format::$format),+])),+];
    };
}

matrix! {
    no_flush_on_downgrade: NoFlushOnDowngrade, X86 FlushMissing, Pcid FlushMissing, Arm FlushMissing, RiscV FlushMissing;
    no_flush_on_unmap: NoFlushOnUnmap, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    another_page_flushed: WrongPage, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    only_the_own_cpu_flushed: LocalOnly, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    another_space_flushed: OtherSpace, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    a_table_freed_before_the_flush: TableBeforeFlush, X86 FreeBeforeFlush, Pcid FreeBeforeFlush, Arm FreeBeforeFlush, RiscV FreeBeforeFlush;
    a_lazy_cpu_left_out: LazyLeftOut, X86 FlushMissing, Pcid FlushMissing, Arm FlushMissing, RiscV FlushMissing;
    flushed_then_unlinked_then_freed: FlushedThenUnlinked, X86 FreeBeforeFlush, Pcid FreeBeforeFlush, Arm FreeBeforeFlush, RiscV FreeBeforeFlush;
    flushed_before_the_entry_was_cleared: FlushedBeforeCleared, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    the_last_level_flushed_with_a_table_freed: LeafOnly, Arm FreeBeforeFlush, RiscV FreeBeforeFlush;
    a_number_reused_without_a_flush: NumberReused, Pcid FlushMissing, Arm FlushMissing, RiscV FlushMissing;
    a_table_linked_before_it_is_cleared: LinkedBeforeCleared, X86 LinkedBeforeCleared, Pcid LinkedBeforeCleared, Arm LinkedBeforeCleared, RiscV LinkedBeforeCleared;
    a_global_page_flushed_by_a_root_load: GlobalByRootLoad, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    a_split_without_break_before_make: SplitWithoutBreak, Arm BreakBeforeMake;
    a_collapse_that_flushes_one_page: CollapseOnePage, X86 FlushMissing, Pcid FlushMissing, Arm BreakBeforeMake, RiscV FreeBeforeFlush;
    a_stride_of_two_pages: WrongStride, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    a_remap_without_a_flush: RemapWithoutFlush, X86 FlushMissing, Pcid FlushMissing, Arm BreakBeforeMake, RiscV FlushMissing;
    a_copy_on_write_without_a_flush: CopyWithoutFlush, X86 FlushMissing, Pcid FlushMissing, Arm BreakBeforeMake, RiscV FlushMissing;
    a_table_freed_twice: DoubleFree, X86 DoubleFree, Pcid DoubleFree, Arm DoubleFree, RiscV DoubleFree;
    a_table_never_freed: Leak, X86 Leak, Pcid Leak, Arm Leak, RiscV Leak;
    a_root_freed_while_it_is_loaded: RootWhileLoaded, X86 FreeBeforeFlush, Pcid FreeBeforeFlush, Arm FreeBeforeFlush, RiscV FreeBeforeFlush;
    another_frame_mapped_than_the_code_says: WrongFrame, X86 Disagreement, Pcid Disagreement, Arm Disagreement, RiscV Disagreement;
    a_data_frame_freed_before_the_flush: DataBeforeFlush, X86 DataFreedBeforeFlush, Pcid DataFreedBeforeFlush, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    a_data_frame_made_a_table_before_the_flush: DataMadeTable, X86 DataReusedBeforeFlush, Pcid DataReusedBeforeFlush, Arm DataReusedBeforeFlush, RiscV DataReusedBeforeFlush;
    a_page_table_mapped_to_user_mode: TableMapped, X86 TableMapped, Pcid TableMapped, Arm TableMapped, RiscV TableMapped;
    a_dirty_bit_lost: DirtyLost, X86 BitLost, Pcid BitLost, Arm BitLost, RiscV BitLost;
    no_barrier_between_store_and_flush: NoBarrierBefore, Arm DataFreedBeforeFlush, RiscV DataFreedBeforeFlush;
    no_barrier_after_the_flush: NoBarrierAfter, Arm DataFreedBeforeFlush;
}

/// Runs correct code, and returns the report if anything is found.
fn runs_clean(format: Format, seed: u64, tells: bool) -> Result<(), String> {
    let mut k = start(format, seed, tells);
    k.collapse_and_split((seed % 4) as usize, 1);
    k.kernel_page((seed % 4) as usize);
    work(&mut k, 30);
    for space in 1..=3 {
        k.destroy(space);
    }
    k.finish();
    if k.san.total() == 0 { Ok(()) } else { Err(format!("{format:?} seed {seed}: {}", k.san)) }
}

#[test]
fn correct_code_that_tells_its_stores_is_silent() {
    for format in Format::ALL {
        for seed in 1..=10 * seeds() {
            runs_clean(format, seed, true).unwrap();
        }
    }
}

/// Frames are handed out clean, with entries of somebody else, or with the entries from before they
/// were freed: the same entries in the same frame as often as not.
#[test]
fn correct_code_that_tells_no_stores_is_silent_with_frames_that_are_used_again() {
    for format in Format::ALL {
        for seed in 1..=5 * seeds() {
            runs_clean(format, seed, false).unwrap();
        }
    }
}

/// The defects that are not found with every seed if no store is told, and with how many of 20 and
/// of
/// 200. Each CPU has read the pages before.
const UNTOLD: &[(Defect, Format, [u64; 2])] = &[
    (Defect::NoFlushOnDowngrade, Format::X86, [0, 0]),
    (Defect::NoFlushOnDowngrade, Format::Pcid, [0, 0]),
    (Defect::NoFlushOnDowngrade, Format::Arm, [0, 0]),
    (Defect::NoFlushOnDowngrade, Format::RiscV, [0, 0]),
    (Defect::FlushedThenUnlinked, Format::X86, [3, 37]),
    (Defect::FlushedThenUnlinked, Format::Pcid, [4, 27]),
    (Defect::FlushedThenUnlinked, Format::Arm, [3, 25]),
    (Defect::FlushedThenUnlinked, Format::RiscV, [3, 28]),
    (Defect::FlushedBeforeCleared, Format::X86, [0, 14]),
    (Defect::FlushedBeforeCleared, Format::Pcid, [0, 9]),
    (Defect::FlushedBeforeCleared, Format::Arm, [0, 8]),
    (Defect::FlushedBeforeCleared, Format::RiscV, [0, 9]),
    (Defect::LinkedBeforeCleared, Format::X86, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::Pcid, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::Arm, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::RiscV, [0, 0]),
    (Defect::SplitWithoutBreak, Format::Arm, [0, 0]),
    (Defect::CollapseOnePage, Format::X86, [0, 0]),
    (Defect::CollapseOnePage, Format::Pcid, [0, 0]),
    (Defect::CollapseOnePage, Format::Arm, [0, 0]),
    (Defect::CollapseOnePage, Format::RiscV, [0, 0]),
    (Defect::TableMapped, Format::X86, [0, 0]),
    (Defect::TableMapped, Format::Pcid, [0, 0]),
    (Defect::TableMapped, Format::Arm, [0, 0]),
    (Defect::TableMapped, Format::RiscV, [0, 0]),
    (Defect::DirtyLost, Format::X86, [0, 0]),
    (Defect::DirtyLost, Format::Pcid, [0, 0]),
    (Defect::DirtyLost, Format::Arm, [0, 0]),
    (Defect::DirtyLost, Format::RiscV, [0, 0]),
    (Defect::NoBarrierBefore, Format::Arm, [0, 0]),
    (Defect::NoBarrierBefore, Format::RiscV, [0, 0]),
    (Defect::NoBarrierAfter, Format::Arm, [0, 0]),
];

#[test]
fn without_told_stores_some_defects_are_found_with_some_seeds() {
    let column = match seeds() {
        20 => 0,
        200 => 1,
        other => panic!("nothing is known of {other} seeds"),
    };
    let mut missed = Vec::new();
    for &(defect, formats) in ALL {
        for &format in formats {
            let found = (1..=seeds()).filter(|&seed| {
                let mut k = start(format, seed, false);
                // Every CPU has used both pages, as in a test that means to find something.
                for cpu in 0..CPUS {
                    k.touch(cpu, USER);
                    k.touch(cpu, USER + PAGE);
                }
                inject(&mut k, defect, seed);
                k.san.findings().iter().any(|f| f.kind != Kind::Leak || defect == Defect::Leak)
            });
            let found = found.count() as u64;
            if found < seeds() {
                missed.push((defect, format, found));
            }
        }
    }
    let known = UNTOLD.iter().map(|&(defect, format, counts)| (defect, format, counts[column]));
    let known: Vec<_> = known.filter(|&(.., found)| found < seeds()).collect();
    assert_eq!(missed, known);
}
