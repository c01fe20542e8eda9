//! Replays a trace in the format of Casemate (rems-project/casemate, "Trace format" of its manual):
//! expressions in parentheses, of a hypervisor on AArch64.
//!
//! `docs/ptsan-log.md` says how each step is carried out, with the decisions.
mod discipline;
mod machine;
mod register;
mod report;
mod step;
#[cfg(test)]
mod tests;
mod text;
mod tlbi;
mod trace;
mod trees;

use super::machine::Limit;
use crate::failure::Failure;
use crate::input::Source;
use machine::{CasemateMachine, Options};
use report::CasemateOverview;
use trace::Trace;
use trees::Trees;

/// Returns whether a file begins as a trace does.
pub(super) fn is_trace(first: &[u8]) -> bool {
    first.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| matches!(byte, b'(' | b'!'))
}

/// A finished replay.
pub(super) struct Done {
    pub(super) text: String,
    pub(super) findings: u64,
    pub(super) sound: bool,
}

/// Replays a trace.
///
/// # Errors
/// The log has a format without a description, or needs more memory than allowed.
pub(super) fn replay(
    source: Source,
    options: &super::ReplayArgs,
    format: ptsan::Format,
) -> Result<Done, Failure> {
    let Source { from, name, bar } = source;
    let trace = Trace::read(from);
    let at = |line: u64, what: String| Failure::at(&name, format!("line {line}: {what}"));
    let trees = Trees::of(&trace.steps).map_err(|(line, what)| at(line, what))?;
    let seed = options.seed();
    let (keep, pages) = (options.keep, options.memory as usize * 256);
    let (locks, flush_before_unlock) = (!options.racy, options.flush_before_unlock);
    let options_of = Options { seed, keep, pages, locks, flush_before_unlock };
    let mut machine = CasemateMachine::new(&trace, trees, options_of);
    for checked in &mut machine.stages {
        options.harness.iter().for_each(|pattern| checked.sanitizer.mark_harness(pattern));
    }
    for entry in &trace.steps {
        machine.apply(entry).map_err(|limit| match limit {
            Limit::Memory | Limit::Tables => {
                let memory = options.memory;
                at(entry.line, format!("memory of more than {memory} MiB is stored to; see --memory"))
            }
        })?;
    }
    machine.finish();
    bar.finish_and_clear();
    let overview = CasemateOverview::new(&trace, &machine);
    let text = overview.report(&trace, &machine, &name, format).map_err(|e| Failure::at("report", e))?;
    Ok(Done { text, findings: report::findings(&machine), sound: overview.is_sound() })
}
