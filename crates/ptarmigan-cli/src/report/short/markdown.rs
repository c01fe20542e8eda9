//! A comment for a pull request, in GitHub's Markdown.
use super::{cut, name};
use crate::markdown::text;
use crate::report::collect::TraceFigures;
use crate::report::page;
use crate::report::words::{self, sentences};
use crate::rows;
use ptarmigan_term::Time;

/// Traces that have a column. GitHub takes 65,536 characters, and a column takes less than 1,000.
const TRACES: usize = 16;
/// The most characters of a first line, of a title and of a figure.
const LINE: usize = 400;
/// The most characters of a way to do something.
const HOW: usize = 1000;

/// The most traces whose mappings, functions and ways to do something are listed, the most mappings
/// and functions of each, and the most characters of one.
const PLACED: usize = 4;
const PLACES: usize = 3;
const PLACE: usize = 160;

/// Returns the comment.
pub(in crate::report) fn markdown(all: &[TraceFigures]) -> String {
    let shown = &all[..all.len().min(TRACES)];
    let names: Vec<String> = shown.iter().map(|one| text(&name(one, 60))).collect();
    let mut out = format!("### Page tables: {}\n\n", names.join(" and "));
    for (line, times) in page::lead_lines(shown).iter().zip(page::time_lines(shown)) {
        if let Some(times) = times {
            out += &format!("**{}**\n\n", text(&cut(&times, LINE)));
        }
        out += &format!("{}\n\n", text(&cut(line, LINE)));
    }
    if all.len() > TRACES {
        out += &format!("{} more traces are left out.\n\n", all.len() - TRACES);
    }
    for (n, one) in shown.iter().enumerate() {
        for warning in &one.warnings {
            let of = if shown.len() > 1 { format!("{}: ", words::letter(n)) } else { String::new() };
            out += &format!("> {of}{}\n\n", text(&cut(warning, LINE)));
        }
    }
    let (headings, rows) = page::rows(shown);
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| text(&cut(cell, 60))).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    out += &row(&headings);
    out += &format!("|---|{}\n", "--:|".repeat(headings.len().saturating_sub(1)));
    for cells in &rows {
        out += &row(cells);
    }
    if shown.len() <= PLACED {
        for (n, one) in shown.iter().enumerate() {
            out += &places(one, shown.len() > 1, n);
        }
    }
    for (n, one) in shown.iter().enumerate() {
        let Some(advice) = &one.advice else { continue };
        let of = if shown.len() > 1 { format!(" for {}", words::letter(n)) } else { String::new() };
        out += &format!("\n**What would help{of}**\n\n");
        if let Some(problem) = &advice.problem {
            out += &format!("Advice was looked for in vain: {}.\n", text(&cut(problem, LINE)));
        } else if advice.pieces.is_empty() {
            out += "No change that was tried helps.\n";
        }
        for (number, piece) in advice.pieces.iter().take(page::ADVICE_SHOWN).enumerate() {
            let title = text(&page::sentence(&cut(&piece.title, LINE)));
            out += &format!(
                "{}. **{title}** {}\n",
                number + 1,
                text(&cut(sentences(&piece.figure, page::ADVICE_FIGURE), LINE))
            );
            // A line break, and a line of the same list item.
            if let Some(line) = piece.line() {
                out.truncate(out.len() - 1);
                out += &format!("<br>\n   {}\n", text(&cut(&line, LINE)));
            }
            if shown.len() <= PLACED {
                // GitHub folds it. It is HTML in the list item, with Markdown inside.
                out += "   <details><summary>How</summary>\n\n";
                for (word, how) in piece.folded() {
                    out += &format!("   {word}: {}\n\n", text(&cut(how, HOW)));
                }
                out += "   </details>\n";
            }
        }
    }
    out
}

/// Returns the mappings with the most faults, and the functions that caused most faults and forks.
fn places(one: &TraceFigures, several: bool, n: usize) -> String {
    let of = if several { format!(" in {}", words::letter(n)) } else { String::new() };
    let mut list = String::new();
    let mut add = |share: f64, counts: &str, name: String| {
        list += &format!("- {} of {counts}: {}\n", words::share_of(share), text(&cut(&name, PLACE)));
    };
    for row in one.work.mappings.iter().take(PLACES) {
        add(row.share, "faults", format!("{} at {}", rows::mapping(row), rows::address(row)));
    }
    let [faults, forks, _] = rows::functions(&one.work);
    for (group, verb) in [(faults, "faults by function"), (forks, "forks by caller")] {
        for row in group.rows.into_iter().take(PLACES) {
            let seconds = row.seconds.map(|secs| format!(", {}", Time::from_secs(secs))).unwrap_or_default();
            add(row.share, verb, rows::function(row) + &seconds);
        }
    }
    if list.is_empty() { list } else { format!("\n**Where{of}**\n\n{list}") }
}
