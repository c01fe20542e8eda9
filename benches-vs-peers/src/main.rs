//! Page-table operations side by side with other crates.
//!
//! Nobody runs a TLB instruction or takes a lock here; tables come from one pool that is as cheap as can be, so the
//! numbers are those of the data structure. Contenders are interleaved round by round, because a shared machine
//! changes its speed within a minute.

mod contender;
mod peers;
mod pool;
mod report;
mod yardstick;

use std::hint::black_box;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand, builder::PossibleValuesParser, error::ErrorKind};

use contender::{Case, Contender, PAGES, SPACES, SPARSE, Shape};
use report::{Document, Samples};

/// Everyone who takes part. A new contender is one line here and one `impl Contender`.
fn contenders() -> Vec<Box<dyn Contender>> {
    vec![
        Box::new(peers::page_table_multiarch::Multiarch::default()),
        Box::new(peers::page_table_generic::Generic::default()),
        Box::new(peers::x86_64::X64::<peers::x86_64::Mapped>::default()),
        Box::new(peers::x86_64::X64::<peers::x86_64::Offset>::default()),
        Box::new(peers::aarch64_paging::Aarch64::default()),
        Box::new(yardstick::Yardstick::default()),
        Box::new(yardstick::Zeroing),
    ]
}

/// Benchmarks side by side with other crates.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Page-table operations, in nanoseconds per page.
    Table {
        /// Print one JSON document instead of a table.
        #[arg(long)]
        json: bool,
        /// Rounds to run; each runs every contender once.
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
        /// Run this contender alone.
        #[arg(long, value_parser = PossibleValuesParser::new(names()))]
        only: Option<String>,
    },
}

fn names() -> Vec<&'static str> {
    contenders().iter().map(|c| c.name()).collect()
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => {
            // Help and version: what was asked for.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let message = match error.kind() {
                // What clap prints here is the whole help.
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    "error: say which benchmark to run: table".to_string()
                }
                _ => error.to_string(),
            };
            eprintln!("{}", message.lines().next().unwrap_or("error: bad arguments"));
            return ExitCode::from(2);
        }
    };
    let Bench::Table { json, rounds, only } = arguments.bench;
    let rows = table(rounds, only.as_deref()).rows();
    let text = if json {
        match serde_json::to_string(&Document { bench: "table", rows }) {
            Ok(text) => text + "\n",
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
    } else {
        report::plain(&rows)
    };
    // A reader that went away (`| head`) is not a failure worth a panic.
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the cases, round by round, contender by contender.
fn table(rounds: u32, only: Option<&str>) -> Samples {
    stay_on_this_cpu();
    pool::init();
    let shape = Shape::new();
    let mut field = contenders();
    field.retain(|c| only.is_none_or(|name| c.name() == name));
    let mut samples = Samples::default();
    for round in 1..=rounds {
        for contender in &mut field {
            eprintln!("round {round}/{rounds}: {}", contender.name());
            for &case in contender.cases() {
                run(contender.as_mut(), case, &shape, &mut samples);
            }
        }
    }
    samples
}

/// Migration between CPUs would measure cold caches. Best effort: without it the numbers are noisier, not wrong.
fn stay_on_this_cpu() {
    let mut set = rustix::thread::CpuSet::new();
    set.set(rustix::thread::sched_getcpu());
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Nanoseconds per operation.
fn timed<T>(operations: usize, f: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = black_box(f());
    (start.elapsed().as_nanos() as f64 / operations as f64, result)
}

/// One case of one contender: set up, time, check.
fn run(c: &mut dyn Contender, case: Case, shape: &Shape, samples: &mut Samples) {
    pool::reset();
    let name = c.name();
    if case == Case::ForkShape {
        for (way, &label) in c.fork_ways().iter().enumerate() {
            pool::reset();
            let (ns, ()) = timed(SPACES * SPARSE, || c.fork_shape(way, shape));
            assert_eq!(c.tables_out(), 0, "{name}: fork-shape leaked tables");
            samples.add(case, name, label, ns);
        }
        return;
    }
    let full = contender::all_frames();
    c.open();
    let ns = match case {
        Case::Map => {
            let (ns, ()) = timed(PAGES, || c.map());
            assert_eq!(c.query(), full, "{name}: map left wrong frames");
            ns
        }
        Case::MapRange => {
            let (ns, ()) = timed(PAGES, || c.map_range());
            assert_eq!(c.query(), full, "{name}: map-range left wrong frames");
            ns
        }
        Case::Query => {
            c.map();
            let (ns, sum) = timed(PAGES, || c.query());
            assert_eq!(sum, full, "{name}: query found wrong frames");
            ns
        }
        Case::Unmap => {
            c.map();
            let (ns, ()) = timed(PAGES, || c.unmap());
            assert_eq!(c.query(), 0, "{name}: unmap left pages");
            ns
        }
        Case::UnmapRange => {
            c.map_range();
            let (ns, ()) = timed(PAGES, || c.unmap_range());
            assert_eq!(c.query(), 0, "{name}: unmap-range left pages");
            ns
        }
        Case::ForkShape => unreachable!("handled above"),
    };
    c.close();
    assert_eq!(c.tables_out(), 0, "{name}: {} leaked tables", case.name());
    samples.add(case, name, "", ns);
}
