//! The number of random operations that a test makes.

/// Returns `n`, times the number in the variable `PTARMIGAN_RANDOM`, which the nightly run sets.
pub fn steps(n: u32) -> u32 {
    let times =
        std::env::var("PTARMIGAN_RANDOM").map_or(1, |times| times.parse().expect("a number of times"));
    n.saturating_mul(times)
}
