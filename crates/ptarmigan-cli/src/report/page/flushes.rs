//! Flushes over the recording.
use super::html::{HtmlTable, note, panels, pictures, said, section};
use super::{most, x_axis};
use crate::report::collect::TraceFigures;
use ptarmigan_replay::Cause;
use ptarmigan_replay::flushes::{FlushRow, Flushes, LinuxFlushes, ProgramRequests, compare};
use ptarmigan_term::Count;
use ptarmigan_term::draw::Mirror;

/// The rows of a table of requests that are shown.
const REQUESTS: usize = 10;

/// The library's flushes against Linux's.
pub(super) fn flushes(all: &[TraceFigures]) -> String {
    let linux = |one: &TraceFigures| match &one.flushes.linux {
        Some(linux) => Count(linux.calls.carried_out.total()).to_string(),
        None => "not recorded".to_owned(),
    };
    let heading = format!(
        "TLB flushes for calls on mappings: {} in the replay, {} by Linux",
        said(all, |one| Count(one.flushes.ours_by_cause.calls.total()).to_string()),
        said(all, linux)
    );
    let caption = "Flushes over the recording: upwards those that the library makes in the replay, downwards those \
                   that Linux made while recording. Both sides count a flush once, at the CPU that asks for it. \
                   The table compares them by cause. Linux's tracepoint is silent at the end of an address space, \
                   where the library counts a flush.";
    let end = 1.05
        * most(all, |one| {
            let sum = |sizes: [u64; 3]| sizes.iter().sum::<u64>();
            let parts = one.flushes.points.iter().map(|point| sum(point.ours).max(sum(point.linux)));
            parts.max().unwrap_or(0) as f64
        });
    let mut content = pictures(all, |one, width| {
        let float = |sizes: [u64; 3]| sizes.map(|n| n as f64);
        let parts: Vec<[[f64; 3]; 2]> =
            one.flushes.points.iter().map(|point| [float(point.ours), float(point.linux)]).collect();
        let labels = match one.flushes.linux {
            Some(_) => ["the library", "Linux"],
            None => ["the library", "Linux: not recorded"],
        };
        Mirror {
            labels,
            parts: &parts,
            classes: [["f0 low", "f0", "f0 high"], ["f1 low", "f1", "f1 high"]],
            key: ["one page", "a range", "full"],
            x: x_axis(all, one),
            y_end: end,
        }
        .draw(width, "TLB flushes over the recording, the library's and Linux's")
    });
    content += &panels(all, |one| by_cause(one) + &between_cpus(one));
    // Each trace has as many parts, unless it is shorter than that.
    let parts = all.iter().map(|one| one.flushes.points.len()).max().unwrap_or(0);
    let part = format!(
        "Each bar counts the flushes in one of {} equal parts of the recording.",
        Count(parts as u64)
    );
    section(all, "flushes", &heading, caption, &(content + &note(&part) + &note(&found(all))))
}

/// Returns the table of flushes by cause.
fn by_cause(one: &TraceFigures) -> String {
    let headings =
        ["cause", "Linux: one page", "a range", "full", "the library: one page", "a range", "full"];
    let mut table = HtmlTable::new("", &headings);
    let sizes = |flushes: Option<Flushes>| match flushes {
        Some(flushes) => flushes.by_size().map(|n| Count(n).to_string()),
        None => ["–"; 3].map(str::to_owned),
    };
    for row in compare(one.flushes.linux.as_ref(), Some(&one.flushes.ours_by_cause)) {
        let FlushRow { of, part, linux, library } = row;
        let of = if part { format!("… {of}") } else { of.to_owned() };
        table.row([of].into_iter().chain(sizes(linux)).chain(sizes(library)));
    }
    table.finish()
}

/// Returns the requests to other CPUs, by program and cause; empty if there is none.
fn between_cpus(one: &TraceFigures) -> String {
    let Some(linux) = &one.flushes.linux else { return String::new() };
    let LinuxFlushes { requested, for_others, wrong_cpu, requests, .. } = linux;
    if requested.total() + for_others.total() + wrong_cpu == 0 {
        return String::new();
    }
    let row = |row: &ProgramRequests| {
        let [page, range, full] = row.requested.by_size().map(|n| Count(n).to_string());
        [row.program.clone(), row.cause.name().to_owned(), page, range, full]
    };
    let mut table = HtmlTable::new("wrap", &["requests by", "for", "one page", "a range", "full"]);
    requests.iter().take(REQUESTS).for_each(|of| table.row(row(of)));
    let more = match requests.len().saturating_sub(REQUESTS) {
        0 => String::new(),
        more => format!(" {more} more rows are in the data."),
    };
    let text = format!(
        "Linux asked other CPUs {} times to flush, by an interrupt each. CPUs with recorded programs flushed {} \
         times at the request of another, and were asked {} times for a space that they did not have. A CPU \
         that was idle or ran another program leaves no event.{more}",
        Count(requested.total()),
        Count(for_others.total()),
        Count(*wrong_cpu)
    );
    table.finish() + &note(&text)
}

/// Says how many flushes come from pages that were found at stops.
fn found(all: &[TraceFigures]) -> String {
    let of = |one: &TraceFigures| one.flushes.ours_by_cause.of(Cause::Found).total();
    if all.iter().all(|one| of(one) == 0) {
        return String::new();
    }
    format!(
        "Of the flushes in the replay, {} come from corrections: pages that were present at a stop without a \
         recorded fault. Linux made no such flush.",
        said(all, |one| format!("{} of {}", Count(of(one)), Count(one.flushes.ours.total())))
    )
}
