//! Runs of a test, one for each seed.
use crate::report::replay;
use crate::state::parse_seed;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// Calls `body` for each seed, or for the one that the environment variable `PTSAN_SEED` names. A
/// panic goes on after the seed was printed to the standard error.
///
/// # Panics
/// Panics if there is no seed, or if the variable is no number.
#[track_caller]
pub(super) fn for_each(seeds: Range<u64>, mut body: impl FnMut(u64)) {
    let seeds = chosen(seeds, std::env::var("PTSAN_SEED").ok().as_deref());
    let first = seeds.start;
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(seed))) {
            let current = thread::current();
            let test = current.name().filter(|name| *name != "main");
            let passed = seed - first;
            eprintln!("ptsan: failed with seed {seed}, after {passed} that passed");
            eprintln!("  replay: {}", replay(seed, test));
            resume_unwind(panic);
        }
    }
}

#[track_caller]
fn chosen(seeds: Range<u64>, variable: Option<&str>) -> Range<u64> {
    let Some(text) = variable.map(str::trim) else {
        assert!(!seeds.is_empty(), "ptsan: a test with the seeds {seeds:?} tests nothing; name at least one");
        return seeds;
    };
    match parse_seed(text) {
        // A range has no room for a last seed of 2^64 - 1.
        Some(seed) if seed < u64::MAX => seed..seed + 1,
        _ => panic!(
            "ptsan: PTSAN_SEED={text}: a ptsan::Test needs `random`, or a number below 2^64 - 1, decimal or 0x…"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_only_seed() {
        assert_eq!(chosen(2..9, None), 2..9);
        assert_eq!(chosen(2..9, Some("0x20")), 32..33);
        assert_eq!(chosen(0..0, Some(" 7")), 7..8);
        assert_eq!(chosen(2..9, Some("random")), chosen(2..9, Some("random")));
    }

    #[test]
    fn what_is_no_seed_is_refused() {
        for (seeds, variable) in [(3..3, None), (0..1, Some("-1"))] {
            assert!(std::panic::catch_unwind(|| chosen(seeds, variable)).is_err(), "{variable:?}");
        }
    }
}
