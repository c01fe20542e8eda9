//! Any bytes given to the reader of traces: `cargo +nightly fuzz run trace_reader`.
//!
//! The checksums stop nearly every mutation before the rows are read, so the first byte chooses:
//! the bytes as they are, or as rows inside a frame with correct checksums.
#![no_main]
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/ptarmigan-trace/tests/harness/mod.rs"]
mod harness;
#[path = "../../crates/ptarmigan-trace/tests/harness/wrap.rs"]
mod wrap;

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((0x89, _)) => {
            harness::read_any(data);
        }
        Some((_, rows)) => {
            harness::read_any(&wrap::rows(rows));
        }
        None => {}
    }
});
