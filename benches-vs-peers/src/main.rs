//! Benchmarks of page-table operations and table pages, side by side with other crates.
//!
//! In `table`, no contender executes a TLB instruction or takes a lock. The peers allocate tables
//! from a pool that is as cheap as possible, the library from its quicklists. In `quicklist`,
//! allocators hand out zeroed pages. In `adapters`, crates get their tables from the library. The
//! harness is that of `ptarmigan bench`, the crate `ptarmigan-bench`.

mod adapters;
mod peers;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, builder::PossibleValuesParser, error::ErrorKind};
use ptarmigan::format::X86_64;
use ptarmigan_bench::machine::host;
use ptarmigan_bench::report::BenchReport;
use ptarmigan_bench::table::contender::{CasePages, TableContender};
use ptarmigan_bench::table::{self, LibraryTree, TableYardstick, ZeroingYardstick};
use ptarmigan_bench::{Options, pages};

/// Returns the contenders besides the library. A new contender is one line here and one `impl
/// TableContender`.
fn peers() -> Vec<Box<dyn TableContender>> {
    vec![
        Box::new(peers::page_table_multiarch::Multiarch::default()),
        Box::new(peers::page_table_generic::Generic::default()),
        Box::new(peers::x86_64::X64::<peers::x86_64::Mapped>::default()),
        Box::new(peers::x86_64::X64::<peers::x86_64::Offset>::default()),
        Box::new(peers::aarch64_paging::Aarch64::default()),
        Box::new(TableYardstick::default()),
        Box::new(ZeroingYardstick),
    ]
}

/// The library with its quicklists.
const OURS: &str = "ptarmigan";

/// Benchmarks the library side by side with other crates.
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
        #[command(flatten)]
        options: Options,
        /// Run only this contender.
        #[arg(long, value_parser = PossibleValuesParser::new(names()))]
        only: Option<String>,
    },
    /// Table pages, allocated and freed, in nanoseconds per pair. jemalloc takes part if this was
    /// built with `--features jemalloc`.
    Quicklist(Options),
    /// Page-table crates as released, and with the library's pages, in nanoseconds per page.
    Adapters {
        #[command(flatten)]
        options: Options,
        /// Run only this crate, or only one of its contenders.
        #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(adapters::names()))]
        only: Option<String>,
        /// Run only this case.
        #[arg(long, value_parser = ["sparse", "tiny", "dense"])]
        case: Option<String>,
        /// Spaces that each contender makes in a round, of the dense case a 64th.
        #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=4096))]
        spaces: u16,
    },
}

fn names() -> Vec<&'static str> {
    std::iter::once(OURS).chain(peers().iter().map(|c| c.name())).collect()
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => {
            // The user asked for help or the version.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let message = match error.kind() {
                // clap would print the whole help here.
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    "error: say which benchmark to run: table, quicklist, adapters".to_string()
                }
                _ => error.to_string(),
            };
            eprintln!("{}", message.lines().next().unwrap_or("error: bad arguments"));
            return ExitCode::from(2);
        }
    };
    let text = match arguments.bench {
        Bench::Table { options, only } => {
            tables(options.rounds, only.as_deref()).and_then(|report| shown(&report, options.json))
        }
        Bench::Quicklist(options) => {
            quicklist(options.rounds).and_then(|report| shown(&report, options.json))
        }
        Bench::Adapters { options, only, case, spaces } => {
            let choice = adapters::Choice { only: only.as_deref(), case: case.as_deref() };
            let report = adapters::run(options.rounds, spaces.into(), choice);
            report.and_then(|report| if options.json { report.json() } else { Ok(adapters::plain(&report)) })
        }
    };
    match text.and_then(|text| print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benches-vs-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the document of a report, or its table.
fn shown(report: &BenchReport, json: bool) -> Result<String, String> {
    if json { report.json() } else { Ok(report.text().for_stdout()) }
}

/// Writes to standard output. A reader that has closed the pipe is no error.
fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

fn tables(rounds: u32, only: Option<&str>) -> Result<BenchReport, String> {
    let host = host::<X86_64>().map_err(|e| e.to_string())?;
    let policy = host.quicklists().map_err(|e| e.to_string())?;
    let ours = LibraryTree::new(OURS, &host, policy).map_err(|e| e.to_string())?;
    let mut field: Vec<Box<dyn TableContender + '_>> = vec![Box::new(ours)];
    for peer in peers() {
        field.push(peer);
    }
    field.retain(|c| only.is_none_or(|name| c.name() == name));
    table::run(rounds, CasePages::USUAL, "yardstick", field)
}

fn quicklist(rounds: u32) -> Result<BenchReport, String> {
    let sizes = pages::Workload::FULL;
    pages::side_by_side(rounds, &sizes, peers::allocators::all(&sizes)?)
}
