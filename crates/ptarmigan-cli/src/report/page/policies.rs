//! Allocation on each policy.
use super::html::{HtmlTable, note, panels, pictures, said, section};
use super::{most, x_axis};
use crate::report::collect::{LivePoint, PolicyFigures, TraceFigures};
use ptarmigan_term::draw::{Cell, Line, Lines, Matrix, Unit};
use ptarmigan_term::{Bytes, Count, Time};

/// Returns the classes of a policy: of areas and of lines.
fn classes(policy: &str) -> (&'static str, &'static str) {
    match policy {
        "plain" => ("f1", "s1"),
        "v5" => ("f3", "s3"),
        "v2008" => ("f2", "s2"),
        _ => ("f0", "s0"),
    }
}

fn each_policy(one: &TraceFigures, value: impl Fn(&PolicyFigures) -> String) -> String {
    let each = one.policies.iter().map(|policy| format!("{} {}", policy.label(), value(policy)));
    each.collect::<Vec<_>>().join(", ")
}

/// Policies side by side.
pub(super) fn side_by_side(all: &[TraceFigures]) -> String {
    let heading = match all {
        [one] => {
            format!(
                "Allocating a table takes {}",
                each_policy(one, |p| Time::from_nanos(p.mean_alloc_ns).to_string())
            )
        }
        _ => "What allocating a table takes on each policy".to_owned(),
    };
    let caption = "The same allocations and frees on each policy. plain clears each page and gives it back; v5 is \
                   the quicklist patch of 2007; v2008 is what became of it; ptarmigan is this library. A miss is a \
                   page from the frame allocator, which has to be cleared; a refill fetches clean pages from the \
                   node's depot.";
    let content = panels(all, |one| {
        let headings = ["", "a table", "hits", "refills", "misses", "kept at most"];
        let mut table = HtmlTable::new("dense", &headings);
        for policy in &one.policies {
            table.row([
                policy.label(),
                Time::from_nanos(policy.mean_alloc_ns).to_string(),
                Count(policy.sum(|level| level.hits)).to_string(),
                Count(policy.sum(|level| level.refills)).to_string(),
                Count(policy.sum(|level| level.misses)).to_string(),
                Bytes(policy.peak_cached_bytes).to_string(),
            ]);
        }
        table.finish()
    });
    let misses = said(all, |one| {
        each_policy(one, |policy| {
            let misses = policy.sum(|level| level.misses) as f64;
            format!("{:.2}", misses / (one.facts.peak_live_tables as f64).max(1.0))
        })
    });
    let under = format!(
        "Misses for each table that was alive at the peak: {misses}. 1 is the least that any policy can have. \
         In brackets: the number of lists of a historic policy."
    );
    section(all, "policies", &heading, caption, &(content + &note(&under)))
}

/// Times of allocations by level, as the patch of 2007 printed them, and their distributions.
pub(super) fn latency(all: &[TraceFigures]) -> String {
    let heading = "Latency by level and policy, as the patch of 2007 printed it";
    let clock = said(all, |one| Time::from_nanos(one.facts.clock_ns.max(1.0)).to_string());
    let caption = format!(
        "Mean and total: the level's own calls back to back, frees and trimming included. The others: single calls \
         between two readings of a clock, which cannot tell times below {clock} apart; the minimum is the mean where \
         that is less."
    );
    let mut content = panels(all, |one| {
        let mut table = HtmlTable::new("dense", &["", "count", "total", "min", "mean", "p50", "p99", "max"]);
        let single = |ns: f64| {
            if ns <= 1.0 {
                format!("< {}", Time::from_nanos(one.facts.clock_ns.max(1.0).round()))
            } else {
                Time::from_nanos(ns).to_string()
            }
        };
        for policy in &one.policies {
            table.heading(&policy.label(), 8);
            for level in policy.levels.iter().filter(|level| level.report.allocs > 0) {
                let r = &level.report;
                table.row([
                    level.level.to_uppercase(),
                    Count(r.allocs).to_string(),
                    Time::from_nanos(r.total_ns).to_string(),
                    single(r.min_ns),
                    Time::from_nanos(r.mean_ns).to_string(),
                    single(r.p50_ns),
                    single(r.p99_ns),
                    single(r.max_ns),
                ]);
            }
        }
        table.finish()
    });
    content += &pictures(all, histograms);
    let under = "Each field: single calls by their time, on one logarithmic scale; the highest column fills the \
                 field. The dotted line is the 99th percentile. The leftmost columns are below the clock's resolution.";
    section(all, "latency", heading, &caption, &(content + &note(under)))
}

fn histograms(one: &TraceFigures, width: f64) -> String {
    let used: Vec<usize> = (0..one.facts.levels.len())
        .filter(|&level| one.policies.iter().any(|policy| policy.levels[level].report.allocs > 0))
        .collect();
    let rows: Vec<String> = one.policies.iter().map(PolicyFigures::label).collect();
    let columns: Vec<String> = used.iter().map(|&level| one.facts.levels[level].to_uppercase()).collect();
    let cells: Vec<Vec<Cell>> = one
        .policies
        .iter()
        .map(|policy| {
            let cell = |&level: &usize| {
                let level = &policy.levels[level];
                let calls = (level.report.allocs as f64).max(1.0);
                Cell {
                    bins: level
                        .histogram
                        .iter()
                        .map(|bin| (bin.from, bin.to, bin.calls as f64 / calls))
                        .collect(),
                    mark: (level.report.allocs > 0).then_some(level.report.p99_ns),
                    said: format!("p99 {}", Time::from_nanos(level.report.p99_ns)),
                    class: classes(policy.policy).0,
                }
            };
            used.iter().map(cell).collect()
        })
        .collect();
    let ticks =
        [(1.0, "1 ns"), (10.0, "10 ns"), (100.0, "100 ns"), (1e3, "1 µs"), (1e4, "10 µs"), (1e5, "100 µs")];
    Matrix { rows: &rows, columns: &columns, cells: &cells, ticks: &ticks }
        .draw(width, "Times of single allocations by level and policy")
}

/// Memory kept for later.
pub(super) fn kept(all: &[TraceFigures]) -> String {
    let heading = match all {
        [one] => format!(
            "Kept for later, at most: {}",
            each_policy(one, |p| Bytes(p.peak_cached_bytes).to_string())
        ),
        _ => "What each policy keeps for later".to_owned(),
    };
    let caption = "Memory that rests in each policy between a free and the next allocation, over the recording, \
                   beside the memory in tables. What a policy keeps beyond the gap to the highest peak of the tables \
                   was never needed.";
    let end = 1.05
        * most(all, |one| {
            let kept = one.policies.iter().map(|policy| policy.peak_cached_bytes).max().unwrap_or(0);
            kept.max(one.facts.peak_table_bytes) as f64
        });
    let content = pictures(all, |one, width| {
        let page = one.facts.peak_table_bytes as f64 / (one.facts.peak_live_tables as f64).max(1.0);
        let tables: Vec<f64> =
            one.live.points.iter().map(|p| f64::from(LivePoint::total(p)) * page).collect();
        let lines: Vec<Line> = one
            .policies
            .iter()
            .map(|policy| {
                let (area, line) = classes(policy.policy);
                Line {
                    class: (line, area),
                    label: format!("{}: {}", policy.label(), Bytes(policy.peak_cached_bytes)),
                    values: policy.kept.iter().map(|bytes| *bytes as f64).collect(),
                }
            })
            .collect();
        Lines {
            lines: &lines,
            area: ("in tables", &tables),
            x: x_axis(all, one),
            y_end: end,
            unit: Unit::Bytes,
        }
        .draw(width, "Memory kept by each policy")
    });
    section(all, "kept", &heading, caption, &content)
}
