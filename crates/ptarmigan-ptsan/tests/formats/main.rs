//! Random operations on spaces of formats of every kind, compared with a map of pages.
//!
//! The map says what each page of each space shows: a number that its program has written last, or
//! zero. Pages are read and written where the software MMU finds them, which decodes entries as the
//! architecture's manual says, and where the library finds them.
#[path = "../../../ptarmigan/tests/common/objects.rs"]
mod objects;
#[path = "../driver/rng.rs"]
mod rng;
#[path = "../driver/steps.rs"]
mod steps;

mod drive;
mod map;

use drive::{Drive, Ran, drive};
use ptarmigan::format::{Aarch64K16, Ia64, LoongArch64, Sparc64};
use ptarmigan_ptsan::{Broadcasting, MmuTraits, Refilled, Watchable};
use steps::steps;

/// Steps of each format: some seconds.
const STEPS: u32 = 500_000;

/// Runs the steps in pieces of some thousand, each with a seed and numbers for TLBs of its own.
fn format<F: Watchable, T: MmuTraits>() {
    const PIECE: u32 = 4_000;
    let (mut sums, mut deferred) = ([0; 3], 0);
    for seed in 1..=steps(STEPS) / PIECE {
        let asids = [0, 3, 200][seed as usize % 3];
        let what = Drive { seed: seed.into(), steps: PIECE, asids, cpus: 2, large: false };
        let Ran { served, passed, denied, left, findings, report, .. } = drive::<F, T>(F::arch(), &what);
        assert_eq!(findings, 0, "{}, seed {seed}: {report}", F::NAME);
        sums.iter_mut().zip([served, passed, denied]).for_each(|(sum, n)| *sum += n);
        deferred += left[0];
    }
    // A broadcast leaves none to others.
    assert_eq!(deferred > 20, !T::BROADCASTS, "{}: {deferred} flushes were left to others", F::NAME);
    let enough = sums.map(|n| n > u64::from(STEPS) / 20);
    let [served, passed, denied] = sums;
    assert_eq!(enough, [true; 3], "{}: {served} served, {passed} passed, {denied} denied", F::NAME);
}

macro_rules! each_format {
    ($($test:ident $format:ty, $mmu:ty;)*) => { $(
        #[test]
        fn $test() {
            format::<$format, $mmu>();
        }
    )* };
}

// Those that `large_spaces` has not; the others with the feature `formats`.
each_format! {
    aarch64_16k Aarch64K16, Broadcasting;
    loongarch64 LoongArch64, Refilled;
    sparc64 Sparc64, Refilled;
    ia64 Ia64, Refilled;
}

#[cfg(feature = "formats")]
each_format! {
    i386 ptarmigan::format::I386, ptarmigan_ptsan::Interrupting;
    i386_pae ptarmigan::format::X86Pae, ptarmigan_ptsan::Interrupting;
    x86_64 ptarmigan::format::X86_64, ptarmigan_ptsan::Interrupting;
    x86_64_5 ptarmigan::format::X86_64La57, ptarmigan_ptsan::Interrupting;
    sv32 ptarmigan::format::Sv32, ptarmigan_ptsan::Fencing;
    sv39 ptarmigan::format::Sv39, ptarmigan_ptsan::Fencing;
    sv48 ptarmigan::format::Sv48, ptarmigan_ptsan::Fencing;
    sv57 ptarmigan::format::Sv57, ptarmigan_ptsan::Fencing;
    aarch64_4k ptarmigan::format::Aarch64, Broadcasting;
    aarch64_64k ptarmigan::format::Aarch64K64, Broadcasting;
    aarch64_s2 ptarmigan::format::Aarch64Stage2, Broadcasting;
    ept ptarmigan::format::Ept, ptarmigan_ptsan::Interrupting;
    npt ptarmigan::format::Npt, ptarmigan_ptsan::Interrupting;
    sv39x4 ptarmigan::format::Sv39x4, ptarmigan_ptsan::Fencing;
    sv48x4 ptarmigan::format::Sv48x4, ptarmigan_ptsan::Fencing;
}
