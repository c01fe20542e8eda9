//! `ptarmigan replay`: a recorded program on the library, policy against policy.
//!
//! For each policy there are up to four kinds of pass, on a fresh machine each: one that counts and times single
//! calls, one under the sanitizer if asked for, and, in turns with the other policies so that a machine whose speed
//! drifts treats all alike, untimed whole replays for the speed and back-to-back streams of the allocator calls for
//! the means. After each, every frame must be back.
//!
//! A trace is made into programs first, one for each worker (`schedule`); a crew of threads carries them out
//! (`crew`), in every kind of pass but the streams.
mod calls;
mod cells;
pub(crate) mod clock;
mod counters;
mod crew;
mod engine;
mod events;
mod measure;
mod outcome;
mod passes;
mod policy;
mod relay;
mod report;
mod sanitize;
mod schedule;
mod spaces;
mod speed;
mod stream;
#[cfg(test)]
mod tests;
mod watch;
mod zero;

use crate::{Context, Failure, print};
pub use events::Loaded;
use policy::PolicyName;
use ptarmigan::tlb::TlbConfig;
use std::path::PathBuf;
use std::process::ExitCode;

/// Replay recorded programs on the library.
#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// Traces; without any, the shipped compile.
    traces: Vec<PathBuf>,
    /// Policies: plain, v5, v2008, ptarmigan.
    #[arg(long, value_delimiter = ',', value_name = "POLICY,...", default_values = ["plain", "v5", "ptarmigan"])]
    policy: Vec<PolicyName>,
    /// NUMA nodes; recorded CPU c is on node c * nodes / cpus.
    #[arg(long, default_value_t = 1, value_name = "N")]
    nodes: usize,
    /// Memory of the machine: bytes, or with K, M, G or T behind the number.
    #[arg(long, default_value = "4G", value_parser = parse_size, value_name = "SIZE")]
    memory: u64,
    /// Run under the sanitizer, too; a finding fails the run, except for historic policies.
    #[arg(long)]
    sanitize: bool,
    /// Give data frames memory: clear and copy them for real.
    #[arg(long)]
    touch_data: bool,
    /// Say all that the policy has counted, too: memory as /proc/meminfo does, and tables by node, CPU and level.
    #[arg(long)]
    counters: bool,
    /// Cache lines of each fresh page that its program writes to at once. The store that faults is one.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "touch_data",
          value_parser = clap::value_parser!(u8).range(0..=64))]
    use_lines: u8,
    /// Frames that a CPU clears ahead each time it has nothing to do; the time it takes is shown apart.
    #[arg(long, value_name = "FRAMES", default_value_t = 0)]
    idle_zero: u32,
    /// Go on when memory runs out, leaving out what could not be done.
    #[arg(long)]
    keep_going: bool,
    /// Lists of the historic policies, 1 to 3; with several numbers each is a policy of its own.
    #[arg(long, alias = "v5-lists", value_delimiter = ',', default_values_t = [2], value_name = "N,...",
          value_parser = clap::value_parser!(u8).range(1..=3))]
    historic_lists: Vec<u8>,
    /// Seed for the sanitizer's pass: CPUs walk the tables of their own accord, at any instant, and requests between
    /// CPUs come late, one by one and in any order.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Sanitizer's passes, each with the next seed.
    #[arg(long, value_name = "K", default_value_t = 1, requires = "seed",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    seeds: u32,
    #[command(flatten)]
    tags: Tags,
    #[command(flatten)]
    spread: Spread,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What the TLBs of the machine are like.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Tags {
    /// Numbers (ASIDs, PCIDs) by which each CPU's TLB keeps spaces apart; 0: every switch drops everything.
    #[arg(long, default_value_t = 0, value_name = "N")]
    asids: u16,
    /// Frames that each CPU leaves parked until lazy CPUs let go of a space; 0: these are interrupted at once.
    #[arg(long, default_value_t = 0, value_name = "FRAMES")]
    park: u32,
}

impl Tags {
    fn config(self, cpus: usize) -> TlbConfig {
        TlbConfig { asids: self.asids, park: self.park, ..TlbConfig::new(cpus) }
    }
}

/// On how many CPUs, and how many times at once.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Spread {
    /// Logical CPUs, each with a worker of its own, 1 to 256. Fewer than recorded: recorded CPU c becomes c modulo N;
    /// more: the tasks of a recorded CPU are spread over its share. Without it: the recorded CPUs and one worker.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    cpus: Option<u16>,
    /// Independent copies of the trace at once on one machine, each with tasks, spaces and CPUs of its own.
    #[arg(long, default_value_t = 1, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=256))]
    copies: u16,
}

impl Default for Spread {
    fn default() -> Self {
        Spread { cpus: None, copies: 1 }
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim().to_ascii_uppercase() {
        t if t.ends_with('K') => (t, 10),
        t if t.ends_with('M') => (t, 20),
        t if t.ends_with('G') => (t, 30),
        t if t.ends_with('T') => (t, 40),
        t => (t, 0),
    };
    let number = digits.trim_end_matches(['K', 'M', 'G', 'T']);
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| "a number of bytes, such as 4194304, 512M or 4G, is expected".to_owned())
}

/// The shipped compile.
const COMPILE: &[u8] = include_bytes!("../../../../traces/compile.ptrace");

/// What is done without a command: the shipped compile on all policies, under the sanitizer too.
///
/// # Errors
/// As [`run`].
pub fn default_run(spread: Spread) -> Result<ExitCode, Failure> {
    let policy = vec![PolicyName::Plain, PolicyName::V5, PolicyName::Ptarmigan];
    let (memory, historic_lists) = (4 << 30, vec![2]);
    run(&Args {
        policy,
        nodes: 1,
        memory,
        sanitize: true,
        historic_lists,
        seeds: 1,
        spread,
        ..Args::default()
    })
}

/// Replays.
///
/// # Errors
/// If a trace cannot be read, a number is out of range, memory ran out, the sanitizer found something in a policy
/// that is not historic, or a frame was lost.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut reports = Vec::new();
    let mut failures = Vec::new();
    let mut load = |trace: Result<Loaded, Failure>| -> Result<(), Failure> {
        let report = passes::replay(&trace?, args, &mut failures)?;
        if !args.json {
            print::stdout(&report.text())?;
        }
        reports.push(report);
        Ok(())
    };
    if args.traces.is_empty() {
        load(Loaded::from_bytes(COMPILE, "the shipped compile"))?;
    }
    for path in &args.traces {
        load(Loaded::open(path))?;
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
