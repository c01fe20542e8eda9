//! Side-by-side benchmarks.
fn main() {}
