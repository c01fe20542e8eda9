//! Shows the work of recorded programs by mapping and by function.
use super::html::{HtmlTable, note, panels, said, section};
use crate::report::collect::TraceFigures;
use crate::report::words::share_of;
use crate::rows::{self, FunctionRows};
use ptarmigan_replay::MappingWork;
use ptarmigan_term::Count;
use ptarmigan_term::draw::escape;

/// The rows of a table that are shown at once; the others are folded.
const SHOWN: usize = 5;
/// The most rows of a table.
const MOST: usize = 25;

/// Returns the part about faults by mapping; empty if there is no fault.
pub(super) fn mappings(all: &[TraceFigures]) -> String {
    if all.iter().all(|one| one.work.mappings.is_empty()) {
        return String::new();
    }
    let first = |one: &TraceFigures| match one.work.mappings.first() {
        Some(row) => format!("{} of faults in {}", share_of(row.share), rows::mapping(row)),
        None => "no faults".to_owned(),
    };
    let heading = format!("Where: {}", said(all, first));
    let caption = "Page faults by program and mapping, and the leaf tables that they have made. A row is all mappings \
                   of one kind and name; memory without a name has a row for each size. The address is that of the \
                   mapping with the most faults.";
    let content = panels(all, |one| {
        let row = |row: &MappingWork| {
            let (address, tables) = (
                rows::address(row).to_owned(),
                row.tables.map_or_else(|| "–".to_owned(), |n| Count(n).to_string()),
            );
            vec![rows::mapping(row), Count(row.faults).to_string(), share_of(row.share), tables, address]
        };
        let headings = ["program: mapping", "faults", "share", "tables", "address"];
        folded("wrap mapped", &headings, one.work.mappings.iter().map(row).collect())
    });
    section(all, "where", &heading, caption, &content)
}

/// Returns the part about work by function; empty without the functions of a recording.
pub(super) fn functions(all: &[TraceFigures]) -> String {
    if all.iter().all(|one| one.work.functions.is_empty()) {
        return String::new();
    }
    let first = |one: &TraceFigures| {
        let [faults, forks, others] = rows::functions(&one.work);
        let first = [faults, forks, others].into_iter().find_map(|group| {
            let row = *group.rows.first()?;
            Some(format!("{} of {} by {}", share_of(row.share), group.counts, rows::function(row)))
        });
        first.unwrap_or_else(|| "not recorded".to_owned())
    };
    let heading = format!("By function: {}", said(all, first));
    let caption = "The functions that caused page faults and calls, from samples: the first on the stack outside the C \
                   library, the loader, the allocator and a language's library. Seconds are those of the calls.";
    let content = panels(all, |one| {
        if one.work.functions.is_empty() {
            return note("This recording has no functions; ptarmigan record --symbols records them.");
        }
        let groups = rows::functions(&one.work).into_iter().filter(|group| !group.rows.is_empty());
        groups.map(|group| table(&group)).collect()
    });
    section(all, "functions", &heading, caption, &content)
}

fn table(group: &FunctionRows<'_>) -> String {
    let timed = group.is_timed();
    let seconds = |seconds: Option<f64>| seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.3}"));
    let rows = group.rows.iter().map(|row| {
        let mut cells = vec![rows::function(row), Count(row.events).to_string(), share_of(row.share)];
        cells.extend(timed.then(|| seconds(row.seconds)));
        cells
    });
    let mut headings = vec!["program: function", group.counts, "share"];
    headings.extend(timed.then_some("seconds"));
    format!("<h3>{}</h3>\n{}", escape(group.title), folded("wrap", &headings, rows.collect()))
}

/// Returns a table whose later rows are folded.
fn folded(class: &str, headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let part = |rows: &[Vec<String>]| {
        let mut table = HtmlTable::new(class, headings);
        rows.iter().for_each(|row| table.row(row));
        table.finish()
    };
    let (all, shown) = (rows.len(), &rows[..rows.len().min(SHOWN)]);
    let mut html = part(shown);
    let rest = &rows[shown.len()..all.min(MOST)];
    if !rest.is_empty() {
        let left = if all > MOST { format!(" of {}", Count((all - SHOWN) as u64)) } else { String::new() };
        html += &format!(
            "<details class=\"more\">\n<summary>{} more{left}</summary>\n{}</details>\n",
            rest.len(),
            part(rest)
        );
    }
    html
}
