//! `ptarmigan replay`: a recorded program on the library, policy against policy.
//!
//! For each policy there are up to four kinds of pass, on a fresh machine each: one that counts and times single
//! calls, one under the sanitizer if asked for, and, in turns with the other policies so that a machine whose speed
//! drifts treats all alike, untimed whole replays for the speed and back-to-back streams of the allocator calls for
//! the means. After each, every frame must be back.
//!
//! A trace is made into programs first, one for each worker (`schedule`); a crew of threads carries them out
//! (`crew`), in every kind of pass but the streams.
mod args;
mod input;
mod instruments;
mod passes;
mod policy;
mod report;
#[cfg(test)]
mod tests;
mod workers;

pub use args::{ReplayArgs, Spread};

use crate::error::{Context, Failure};
use crate::print;
use input::trace::Trace;
use policy::PolicyName;
use std::process::ExitCode;

/// The shipped compile.
const COMPILE: &[u8] = include_bytes!("../../../../traces/compile.ptrace");

/// What is done without a command: the shipped compile on all policies, under the sanitizer too.
///
/// # Errors
/// As [`run`].
pub fn default_run(spread: Spread) -> Result<ExitCode, Failure> {
    let policy = vec![PolicyName::Plain, PolicyName::V5, PolicyName::Ptarmigan];
    let (memory, historic_lists) = (4 << 30, vec![2]);
    run(&ReplayArgs {
        policy,
        nodes: 1,
        memory,
        sanitize: true,
        historic_lists,
        seeds: 1,
        spread,
        ..ReplayArgs::default()
    })
}

/// Replays.
///
/// # Errors
/// If a trace cannot be read, a number is out of range, memory ran out, the sanitizer found something in a policy
/// that is not historic, or a frame was lost.
pub fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let mut reports = Vec::new();
    let mut failures = Vec::new();
    let mut load = |trace: Result<Trace, Failure>| -> Result<(), Failure> {
        let report = passes::replay(&trace?, args, &mut failures)?;
        if !args.json {
            print::stdout(&report.text())?;
        }
        reports.push(report);
        Ok(())
    };
    if args.traces.is_empty() {
        load(Trace::from_bytes(COMPILE, "the shipped compile"))?;
    }
    for path in &args.traces {
        load(Trace::open(path))?;
    }
    if args.json {
        let text = match reports.as_slice() {
            [one] => serde_json::to_string_pretty(one),
            all => serde_json::to_string_pretty(all),
        };
        print::stdout(&(text.context("report")? + "\n"))?;
    }
    match failures.into_iter().next() {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}
