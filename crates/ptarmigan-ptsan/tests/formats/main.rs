//! Random operations on spaces of every format, compared with a map of pages.
//!
//! The map says what each page of each space shows: a number that its program has written last, or
//! zero. Pages are read and written where the software MMU finds them, which decodes entries as the
//! architecture's manual says, and where the library finds them.
#[path = "../driver/rng.rs"]
mod rng;
#[path = "../driver/steps.rs"]
mod steps;

mod drive;
mod map;

use drive::{Drive, Ran, drive};
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64K64, Aarch64Stage2, Ept, I386, Ia64, LoongArch64, Npt, Sparc64, Sv32, Sv39,
    Sv39x4, Sv48, Sv48x4, Sv57, X86_64, X86_64La57, X86Pae,
};
use ptarmigan_ptsan::{Broadcasting, Fencing, Interrupting, MmuTraits, Refilled, Watchable};
use steps::steps;

/// Steps of each format: some seconds.
const STEPS: u32 = 500_000;

/// Runs the steps in pieces of some thousand, each with a seed and numbers for TLBs of its own.
fn format<F: Watchable, T: MmuTraits>() {
    const PIECE: u32 = 4_000;
    let mut sums = [0; 3];
    for seed in 1..=steps(STEPS) / PIECE {
        let asids = [0, 3, 200][seed as usize % 3];
        let what = Drive { seed: seed.into(), steps: PIECE, asids, cpus: 2, large: false };
        let Ran { served, passed, denied, findings, report, .. } = drive::<F, T>(F::arch(), &what);
        assert_eq!(findings, 0, "{}, seed {seed}: {report}", F::NAME);
        sums.iter_mut().zip([served, passed, denied]).for_each(|(sum, n)| *sum += n);
    }
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

each_format! {
    i386 I386, Interrupting;
    i386_pae X86Pae, Interrupting;
    x86_64 X86_64, Interrupting;
    x86_64_5 X86_64La57, Interrupting;
    sv32 Sv32, Fencing;
    sv39 Sv39, Fencing;
    sv48 Sv48, Fencing;
    sv57 Sv57, Fencing;
    aarch64_4k Aarch64, Broadcasting;
    aarch64_16k Aarch64K16, Broadcasting;
    aarch64_64k Aarch64K64, Broadcasting;
    loongarch64 LoongArch64, Refilled;
    sparc64 Sparc64, Refilled;
    ia64 Ia64, Refilled;
    aarch64_s2 Aarch64Stage2, Broadcasting;
    ept Ept, Interrupting;
    npt Npt, Interrupting;
    sv39x4 Sv39x4, Fencing;
    sv48x4 Sv48x4, Fencing;
}
