//! The defects of `matrix.rs`: each is found with every seed, as one finding, and the same
//! code without it is silent.
mod kernel;
mod machine;
#[macro_use]
mod matrix;
mod scenes;
mod script;
mod test_memory;

use kernel::{CPUS, Defect, Format, Kernel, PAGE, USER};
use ptsan::{Finding, Kind};
use scenes::Scene;
use script::{inject, prepare, work};

fn start(format: Format, seed: u64, tells: bool) -> Kernel {
    let mut k = test_memory::kernel(format, seed, tells);
    prepare(&mut k);
    k
}

/// Returns how many seeds run: 20, or as many as the environment says. The job `sanitizer-detects`
/// runs 200.
fn seeds() -> u64 {
    std::env::var("PTSAN_DETECTS_SEEDS").ok().map_or(20, |text| text.parse().expect("a number of seeds"))
}

#[track_caller]
fn found(defect: Defect, wanted: &[(Format, Kind)]) {
    for &(format, kind) in wanted {
        for seed in 1..=seeds() {
            let mut k = start(format, seed, true);
            let leaks = k.hook(|san, _| san.live_tables());
            inject(&mut k, defect, seed);
            let mut kinds = k.hook(|san, _| san.findings().iter().map(|f| f.kind).collect::<Vec<_>>());
            kinds.retain(|found| *found != Kind::Leak || kind == Kind::Leak);
            if kind == Kind::FreeBeforeFlush {
                // With a seed in some hundred the frame is handed out before the CPU lets go of it.
                kinds.retain(|found| *found != Kind::ReuseBeforeFlush);
            }
            let text = k.hook(|san, _| if kinds == [kind] { String::new() } else { san.to_string() });
            assert!(leaks > 0, "{defect:?} {format:?} seed {seed}");
            assert_eq!(kinds, [kind], "{defect:?} {format:?} seed {seed}: {text}");
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

matrix_rows!(matrix);

/// Runs correct code, and returns the report if anything is found.
fn runs_clean(format: Format, seed: u64, tells: bool) -> Result<(), String> {
    stays_clean(test_memory::kernel(format, seed, tells), seed)
        .map_or(Ok(()), |report| Err(format!("{format:?} seed {seed}: {report}")))
}

/// Runs correct code of a kernel, and returns the report if anything is found.
fn stays_clean(mut k: Kernel, seed: u64) -> Option<String> {
    prepare(&mut k);
    k.collapse_and_split((seed % 4) as usize, 1);
    k.promote((seed % 4) as usize, 1);
    k.kernel_page((seed % 4) as usize);
    work(&mut k, 30);
    for space in 1..=3 {
        k.destroy(space);
    }
    k.finish();
    k.hook(|san, _| (san.total() > 0).then(|| san.to_string()))
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
fn correct_code_without_told_stores_is_silent_on_reuse() {
    for format in Format::ALL {
        for seed in 1..=5 * seeds() {
            runs_clean(format, seed, false).unwrap();
        }
    }
}

/// Plays a scene, and returns the kinds of its findings in their order, and the report.
fn play(scene: &Scene, arch: &ptsan::Arch, seed: u64, broken: bool) -> (Vec<Kind>, String) {
    let (machine, findings) = test_memory::observed(scene.config(arch.clone(), seed), scenes::BYTES);
    scene.play(machine, arch.clone(), seed, broken);
    findings()
}

#[test]
fn small_defects_are_found_with_every_seed_and_twins_silent() {
    for scene in scenes::ALL {
        for arch in scene.formats.iter().map(|arch| arch()) {
            for seed in 1..=20 {
                let (kinds, report) = play(scene, &arch, seed, true);
                assert_eq!(
                    kinds.first(),
                    Some(&scene.kind),
                    "{}, {} seed {seed}: {report}",
                    scene.name,
                    arch.name
                );
            }
            for seed in 1..=200 {
                let (kinds, report) = play(scene, &arch, seed, false);
                assert_eq!(kinds, [], "{}, {} corrected, seed {seed}: {report}", scene.name, arch.name);
            }
        }
    }
}

/// The same code where walkers set accessed and dirty bits: every defect is found still, and
/// correct code is silent.
#[test]
fn defects_are_found_with_walkers_that_set_bits() {
    for &(defect, formats) in ALL {
        for &format in formats {
            let mut k = test_memory::kernel_with_bits(format, 1);
            prepare(&mut k);
            inject(&mut k, defect, 1);
            let (found, text) = k.hook(|san, _| (san.total(), san.to_string()));
            assert!(found > 0, "{defect:?} {format:?}: {text}");
        }
    }
    for format in Format::ALL {
        for seed in 1..=2 * seeds() {
            let k = test_memory::kernel_with_bits(format, seed);
            let report = stays_clean(k, seed);
            assert!(report.is_none(), "{format:?} seed {seed}: {}", report.unwrap_or_default());
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
    (Defect::NoFlushOnDowngrade, Format::Sv39, [0, 0]),
    (Defect::NoFlushOnDowngrade, Format::Ept, [0, 0]),
    (Defect::NoFlushOnDowngrade, Format::Stage2, [0, 0]),
    (Defect::FlushedThenUnlinked, Format::X86, [3, 37]),
    (Defect::FlushedThenUnlinked, Format::Pcid, [4, 27]),
    (Defect::FlushedThenUnlinked, Format::Arm, [3, 25]),
    (Defect::FlushedThenUnlinked, Format::RiscV, [3, 28]),
    (Defect::FlushedThenUnlinked, Format::Sv39, [2, 29]),
    (Defect::FlushedThenUnlinked, Format::Ept, [2, 23]),
    (Defect::FlushedThenUnlinked, Format::Stage2, [2, 28]),
    (Defect::FlushedBeforeCleared, Format::X86, [0, 14]),
    (Defect::FlushedBeforeCleared, Format::Pcid, [0, 9]),
    (Defect::FlushedBeforeCleared, Format::Arm, [0, 8]),
    (Defect::FlushedBeforeCleared, Format::RiscV, [0, 9]),
    (Defect::FlushedBeforeCleared, Format::Sv39, [2, 13]),
    (Defect::FlushedBeforeCleared, Format::Ept, [0, 7]),
    (Defect::FlushedBeforeCleared, Format::Stage2, [0, 16]),
    (Defect::LinkedBeforeCleared, Format::X86, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::Pcid, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::Arm, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::RiscV, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::Sv39, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::Ept, [0, 0]),
    (Defect::LinkedBeforeCleared, Format::Stage2, [0, 0]),
    (Defect::SplitWithoutBreak, Format::Arm, [0, 0]),
    (Defect::SplitWithoutBreak, Format::Stage2, [0, 0]),
    (Defect::CollapseOnePage, Format::X86, [0, 0]),
    (Defect::CollapseOnePage, Format::Pcid, [0, 0]),
    (Defect::CollapseOnePage, Format::Arm, [0, 0]),
    (Defect::CollapseOnePage, Format::RiscV, [0, 0]),
    (Defect::CollapseOnePage, Format::Sv39, [0, 0]),
    (Defect::CollapseOnePage, Format::Stage2, [0, 0]),
    (Defect::TableMapped, Format::X86, [0, 0]),
    (Defect::TableMapped, Format::Pcid, [0, 0]),
    (Defect::TableMapped, Format::Arm, [0, 0]),
    (Defect::TableMapped, Format::RiscV, [0, 0]),
    (Defect::TableMapped, Format::Sv39, [0, 0]),
    (Defect::TableMapped, Format::Ept, [0, 0]),
    (Defect::TableMapped, Format::Stage2, [0, 0]),
    (Defect::DirtyLost, Format::X86, [0, 0]),
    (Defect::DirtyLost, Format::Pcid, [0, 0]),
    (Defect::DirtyLost, Format::Arm, [0, 0]),
    (Defect::DirtyLost, Format::RiscV, [0, 0]),
    (Defect::DirtyLost, Format::Sv39, [0, 0]),
    (Defect::DirtyLost, Format::Ept, [0, 0]),
    (Defect::DirtyLost, Format::Stage2, [0, 0]),
    (Defect::PromotedClean, Format::X86, [0, 0]),
    (Defect::PromotedClean, Format::Pcid, [0, 0]),
    (Defect::PromotedClean, Format::RiscV, [0, 0]),
    (Defect::PromotedClean, Format::Sv39, [0, 0]),
    (Defect::PromotedClean, Format::Ept, [0, 0]),
    (Defect::PromotedUnread, Format::Arm, [0, 0]),
    (Defect::PromotedUnread, Format::Stage2, [0, 0]),
    (Defect::NoBarrierBefore, Format::Arm, [0, 0]),
    (Defect::NoBarrierBefore, Format::RiscV, [0, 0]),
    (Defect::NoBarrierBefore, Format::Sv39, [0, 0]),
    (Defect::NoBarrierBefore, Format::Stage2, [0, 0]),
    (Defect::NoBarrierAfter, Format::Arm, [0, 0]),
    (Defect::NoBarrierAfter, Format::Stage2, [0, 0]),
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
                let real = |f: &Finding| f.kind != Kind::Leak || defect == Defect::Leak;
                k.hook(|san, _| san.findings().iter().any(real))
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
