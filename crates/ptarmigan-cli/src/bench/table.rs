//! `ptarmigan bench table`: page-table operations by policy.
use ptarmigan_bench::machine::host;
use ptarmigan_bench::report::BenchReport;
use ptarmigan_bench::table::contender::TableContender;
use ptarmigan_bench::table::{LibraryTree, TableYardstick, run};
use ptarmigan_linux::Rules;

use super::historic::historic;

/// Measures the library with each of its policies, and the yardstick.
///
/// # Errors
///
/// If a machine cannot be set up, or memory is lost.
pub fn policies(rounds: u32) -> Result<BenchReport, String> {
    let hosts = [host(), host(), host(), host()];
    let [Ok(quick), Ok(plain), Ok(v5), Ok(v2008)] = &hosts else {
        return Err(hosts.into_iter().find_map(Result::err).map_or(String::new(), |e| e.to_string()));
    };
    let fail = |e: ptarmigan_hosted::HostError| e.to_string();
    let field: Vec<Box<dyn TableContender + '_>> = vec![
        Box::new(LibraryTree::new("ptarmigan", quick, quick.quicklists().map_err(fail)?).map_err(fail)?),
        Box::new(LibraryTree::new("ptarmigan-plain", plain, plain.plain().map_err(fail)?).map_err(fail)?),
        Box::new(
            LibraryTree::new("ptarmigan-v5", v5, historic(v5, Rules::V5, 2).map_err(fail)?).map_err(fail)?,
        ),
        Box::new(
            LibraryTree::new("ptarmigan-v2008", v2008, historic(v2008, Rules::V2008, 2).map_err(fail)?)
                .map_err(fail)?,
        ),
        Box::new(TableYardstick::default()),
    ];
    run(rounds, field)
}
