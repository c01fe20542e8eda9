//! Describes rows of work by mapping and by function, for `inspect` and `report`.
use ptarmigan_replay::{FunctionWork, MappingWork, Work};
use ptarmigan_term::Bytes;

/// Calls that make a task.
const FORKS: [&str; 3] = ["fork", "vfork", "clone"];

/// The rows of functions that caused one kind of work.
pub(crate) struct FunctionRows<'a> {
    /// The title of their table.
    pub title: &'static str,
    /// The events that they count.
    pub counts: &'static str,
    /// The rows, those with most events first.
    pub rows: Vec<&'a FunctionWork>,
}

impl FunctionRows<'_> {
    /// Returns whether any of the rows has a time.
    pub fn is_timed(&self) -> bool {
        self.rows.iter().any(|row| row.seconds.is_some())
    }
}

/// Returns the rows of functions by kind of work: faults, forks, other calls.
pub(crate) fn functions(work: &Work) -> [FunctionRows<'_>; 3] {
    let is_fault = |row: &FunctionWork| row.work == "fault";
    let is_fork = |row: &FunctionWork| FORKS.contains(&row.work);
    let of = |title, counts, wanted: &dyn Fn(&FunctionWork) -> bool| FunctionRows {
        title,
        counts,
        rows: work.functions.iter().filter(|row| wanted(row)).collect(),
    };
    [
        of("faults by function", "faults", &is_fault),
        of("forks by caller", "forks", &is_fork),
        of("other calls by caller", "calls", &|row| !is_fault(row) && !is_fork(row)),
    ]
}

/// Names the mappings of a row: `postgres: shared memory of 8.0 MiB and 3 more`.
pub(crate) fn mapping(row: &MappingWork) -> String {
    let size = if row.bytes > 0 { format!(" of {}", Bytes(row.bytes)) } else { String::new() };
    let others = if row.mappings > 1 { format!(" and {} more", row.mappings - 1) } else { String::new() };
    format!("{}: {}{size}{others}", row.program, row.label())
}

/// Returns the address of the mapping of a row, or a dash.
pub(crate) fn address(row: &MappingWork) -> &str {
    row.address.as_deref().unwrap_or("-")
}

/// Names the function of a row, a module that is not the program itself, and a call that is not a
/// fork: `make: vfork by start (job.c:12)`.
pub(crate) fn function(row: &FunctionWork) -> String {
    let module = row.module.as_deref().filter(|module| *module != row.program);
    let module = module.map(|module| format!(" in {module}")).unwrap_or_default();
    let call =
        if row.work == "fault" || row.work == "fork" { String::new() } else { format!("{} by ", row.work) };
    format!("{}: {call}{}{module}", row.program, row.label())
}
