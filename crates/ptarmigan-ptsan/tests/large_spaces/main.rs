//! Random operations on spaces that may have large pages, of every format whose spaces have them,
//! compared with a map of pages; stores are told.
#[macro_use]
#[path = "../driver/formats.rs"]
mod formats;
#[path = "../../../ptarmigan/tests/common/objects.rs"]
mod objects;
#[path = "../driver/rng.rs"]
mod rng;
#[path = "../driver/steps.rs"]
mod steps;

#[path = "../formats/drive.rs"]
mod drive;
#[path = "../formats/map.rs"]
mod map;

use drive::{Drive, drive};
use ptarmigan::format::Format;
use ptarmigan_ptsan::MmuTraits;
use ptsan::Arch;
use steps::steps;

/// Steps of each format.
const STEPS: u32 = 40_000;

/// Runs the steps in pieces, each with a seed and numbers for TLBs of its own.
fn format<F: Format, T: MmuTraits>(arch: fn() -> Arch) {
    const PIECE: u32 = 1_000;
    let (mut sums, mut left) = ([0; 10], [0; 2]);
    for seed in 1..=steps(STEPS) / PIECE {
        let (asids, cpus) = ([0, 5, 200][seed as usize % 3], 1 + seed as usize % 4);
        let what = Drive { seed: seed.into(), steps: PIECE, asids, cpus, large: true };
        let ran = drive::<F, T>(arch(), &what);
        assert_eq!(ran.findings, 0, "{}, seed {seed}: {}", F::NAME, ran.report);
        sums.iter_mut().zip(ran.large).for_each(|(sum, n)| *sum += n);
        left.iter_mut().zip(ran.left).for_each(|(sum, n)| *sum += n);
    }
    let [faulted, copied, collapsed, of_devices, groups, of_objects, written, split, zeroes, replaced] = sums;
    // Faults reserve no tables of several frames.
    if F::LAYOUT.table_shift[0] == 12 {
        assert!(faulted > 100 && copied > 0 && collapsed > 0, "{}: {sums:?}", F::NAME);
        assert!(zeroes > 20 && replaced > 4, "{}: {sums:?}", F::NAME);
        assert!(of_objects > 20 && written > 4 && split > 4, "{}: {sums:?}", F::NAME);
    }
    // A broadcast leaves none to others.
    assert_eq!(left[0] > 4, !T::BROADCASTS, "{}: {left:?}", F::NAME);
    assert!(of_devices > 20, "{}: {sums:?}", F::NAME);
    assert_eq!(groups > 20, F::GROUP_BITS[0] != 0, "{}: {sums:?}", F::NAME);
}

each_format! {
    i386 I386, Interrupting;
    i386_pae X86Pae, Interrupting;
    x86_64 X86_64, Interrupting;
    x86_64_5 X86_64La57, Interrupting;
    sv32 Sv32, Fencing;
    sv39 Sv39, Fencing;
    sv39_napot Sv39Napot, Fencing;
    aarch64_4k Aarch64, Broadcasting;
    aarch64_16k Aarch64K16, Broadcasting;
    aarch64_s2 Aarch64Stage2, Broadcasting;
    ept Ept, Interrupting;
    npt Npt, Interrupting;
    sv39x4 Sv39x4, Fencing;
}
