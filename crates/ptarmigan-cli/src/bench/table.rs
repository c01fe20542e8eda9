//! `ptarmigan bench table`: page-table operations by policy.
use ptarmigan::format::{Format, X86_64};
use ptarmigan_bench::machine::host;
use ptarmigan_bench::report::BenchReport;
use ptarmigan_bench::table::contender::{CasePages, TableContender};
use ptarmigan_bench::table::{LibraryTree, TableYardstick, run};
use ptarmigan_hosted::HostError;
use ptarmigan_linux::Rules;
use ptarmigan_replay::{MachineName, PerFormat};
use ptarmigan_term::Failure;

use super::historic::historic;

/// The row that ratios are computed against where there is no yardstick.
const PLAIN: &str = "ptarmigan-plain";

/// Measures the library on the tables of a machine: x86-64 with each of its policies, and the
/// yardstick; others with quicklists and without.
///
/// # Errors
///
/// If the build lacks the format, a machine cannot be set up, or memory is lost.
pub fn policies(rounds: u32, arch: MachineName) -> Result<BenchReport, Failure> {
    if arch == MachineName::X86_64 {
        return x86_64(rounds).map_err(Failure::new);
    }
    arch.in_its_format(TableBench { rounds })
}

/// The benchmark in any format.
struct TableBench {
    rounds: u32,
}

impl PerFormat for TableBench {
    type Done = BenchReport;

    fn run<F: Format>(self) -> Result<BenchReport, Failure> {
        let measured = || {
            let hosts = (host::<F>().map_err(fail)?, host::<F>().map_err(fail)?);
            let (quick, plain) = (hosts.0.quicklists().map_err(fail)?, hosts.1.plain().map_err(fail)?);
            let field: Vec<Box<dyn TableContender + '_>> = vec![
                Box::new(LibraryTree::new("ptarmigan", &hosts.0, quick).map_err(fail)?),
                Box::new(LibraryTree::new(PLAIN, &hosts.1, plain).map_err(fail)?),
            ];
            run(self.rounds, CasePages::of::<F>(), PLAIN, field)
        };
        measured().map_err(Failure::new)
    }
}

fn fail(e: HostError) -> String {
    e.to_string()
}

fn x86_64(rounds: u32) -> Result<BenchReport, String> {
    let hosts = [host::<X86_64>(), host(), host(), host()];
    let [Ok(quick), Ok(plain), Ok(v5), Ok(v2008)] = &hosts else {
        return Err(hosts.into_iter().find_map(Result::err).map_or(String::new(), |e| e.to_string()));
    };
    let field: Vec<Box<dyn TableContender + '_>> = vec![
        Box::new(LibraryTree::new("ptarmigan", quick, quick.quicklists().map_err(fail)?).map_err(fail)?),
        Box::new(LibraryTree::new(PLAIN, plain, plain.plain().map_err(fail)?).map_err(fail)?),
        Box::new(
            LibraryTree::new("ptarmigan-v5", v5, historic(v5, Rules::V5, 2).map_err(fail)?).map_err(fail)?,
        ),
        Box::new(
            LibraryTree::new("ptarmigan-v2008", v2008, historic(v2008, Rules::V2008, 2).map_err(fail)?)
                .map_err(fail)?,
        ),
        Box::new(TableYardstick::default()),
    ];
    run(rounds, CasePages::USUAL, "yardstick", field)
}
