//! Tests of `ptarmigan-papers` in one executable.
mod baselines;
mod documents;
mod flush;
mod formats;
mod hash;
mod kmap;
#[allow(dead_code, reason = "the tests of the command use more of it")]
#[path = "../../../ptarmigan-cli/tests/all/program.rs"]
mod program;
mod userpte;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_ptarmigan-papers");
