//! Writes the lines about the recording, and the figures that say most.
use super::fact::{Better, Compare, Fact, difference};
use super::html::{HtmlTable, name};
use super::times;
use crate::report::collect::{RecordingFacts, TraceFigures};
use crate::report::words::{letter, on_axis, share};
use ptarmigan_term::draw::escape;
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count};

/// Returns the first lines: the programs that were recorded.
pub(super) fn lead(all: &[TraceFigures]) -> String {
    let lines = lead_lines(all).into_iter().zip(time_lines(all)).zip(all);
    let html = |((line, time), one): ((String, Option<String>), &TraceFigures)| {
        format!("{}<p class=\"lead\">{}</p>\n", times::lead(one, time.as_deref()), escape(&line))
    };
    lines.map(html).collect()
}

/// Returns for each trace the line that sums up its times, if it has any.
pub(in crate::report) fn time_lines(all: &[TraceFigures]) -> Vec<Option<String>> {
    let line = |(n, one): (usize, &TraceFigures)| {
        let line = one.times.as_ref()?.line.as_ref()?;
        let of = if all.len() > 1 { format!("{}: ", name(n, all)) } else { String::new() };
        Some(format!("{of}{line}."))
    };
    all.iter().enumerate().map(line).collect()
}

/// Returns the first lines as text, one for each trace.
pub(in crate::report) fn lead_lines(all: &[TraceFigures]) -> Vec<String> {
    let line = |(n, one): (usize, &TraceFigures)| {
        let RecordingFacts { processes, running, events, faults, method, cpus, arch, .. } = &one.facts;
        let running = running_already(*running);
        let of = if all.len() > 1 { format!("{}: ", name(n, all)) } else { String::new() };
        let time = if one.facts.is_time() {
            format!(" in {}", on_axis(one.facts.axis_end, true))
        } else {
            String::new()
        };
        format!(
            "{of}{} process{}{running}, {}, {}{time}; {} on {arch} with {}.",
            Count(*processes),
            if *processes == 1 { "" } else { "es" },
            several(*events, "event"),
            several(*faults, "page fault"),
            if *method == "synthetic" {
                "made, not recorded,".to_owned()
            } else {
                format!("recorded with {method}")
            },
            several(*cpus as u64, "CPU"),
        )
    };
    all.iter().enumerate().map(line).collect()
}

/// Returns how many of the processes ran before the recording, in parentheses.
fn running_already(n: u64) -> String {
    match n {
        0 => String::new(),
        1 => " (1 was running already)".to_owned(),
        n => format!(" ({} were running already)", Count(n)),
    }
}

/// Returns the figures that say most: as a list for one trace, as a table for several.
pub(super) fn facts(all: &[TraceFigures]) -> String {
    let [one] = all else { return compared(all) };
    let mut html = "<dl class=\"facts\">\n".to_owned();
    for Fact { what, value, .. } in figures(one).into_iter().filter(Fact::is_there) {
        html += &format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(what), escape(&value));
    }
    html + "</dl>\n"
}

fn compared(all: &[TraceFigures]) -> String {
    let (headings, rows) = rows(all);
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = HtmlTable::new("wrap", &headings);
    for row in rows {
        table.row(row);
    }
    table.finish()
}

/// Returns the figures that say most as a table: its headings and its rows. Two traces have a
/// column for the difference.
pub(in crate::report) fn rows(all: &[TraceFigures]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut headings = vec![String::new()];
    match all {
        [_] => headings.push("value".to_owned()),
        all => headings.extend((0..all.len()).map(letter)),
    }
    if all.len() == 2 {
        headings.push("from A to B".to_owned());
    }
    let each: Vec<_> = all.iter().map(figures).collect();
    let alike = all.windows(2).all(|two| two[0].facts.axis == two[1].facts.axis);
    let mut rows = Vec::new();
    for (row, first) in each.first().into_iter().flatten().enumerate() {
        if !each.iter().any(|one| one[row].is_there()) {
            continue;
        }
        let mut cells = vec![first.what.to_owned()];
        let value = |fact: &Fact| if fact.is_there() { fact.value.clone() } else { fact.absent.to_owned() };
        cells.extend(each.iter().map(|one| value(&one[row])));
        if let [_, second] = each.as_slice() {
            cells.push(difference(first, &second[row], alike));
        }
        rows.push(cells);
    }
    (headings, rows)
}

/// Returns the figures that say most.
fn figures(one: &TraceFigures) -> Vec<Fact> {
    let TraceFigures { facts, tables, flushes, .. } = one;
    let made: u64 = tables.made.iter().sum();
    let full = &tables.fullness;
    let truth = &facts.truth;
    let part = |part: u64, of: u64| Compare::Share(part as f64 / (of as f64).max(1.0));
    let fact = |what, value, number, better| Fact { what, value, number, better, absent: "not recorded" };
    let number = |what, n: u64| fact(what, Count(n).to_string(), Compare::Ratio(n as f64), Better::Less);
    let ours = flushes.ours.page + flushes.ours.range + flushes.ours.full;
    let (bytes, median) = (facts.peak_table_bytes, tables.lifetimes.median[0]);
    let axis = facts.axis_end;
    let mut all = vec![fact(
        "length of the recording",
        with_unit(facts, axis),
        Compare::OnAxis(axis as f64),
        if facts.is_time() { Better::Less } else { Better::Neither },
    )];
    all.extend(times::rows(one));
    all.extend([
        number("page faults", facts.faults),
        number("table pages made", made),
        number("alive at once, at most", facts.peak_live_tables),
        fact(
            "memory in tables, at most",
            Bytes(bytes).to_string(),
            Compare::Ratio(bytes as f64),
            Better::Less,
        ),
        fact(
            "leaf tables that never held 64 pages",
            share(full.below_64, full.tables),
            part(full.below_64, full.tables),
            Better::Less,
        ),
        Fact {
            absent: "longer than the recording",
            ..fact(
                "median life of a leaf table",
                median.map(|median| with_unit(facts, median)).unwrap_or_default(),
                median.map_or(Compare::No, |median| Compare::OnAxis(median as f64)),
                Better::Neither,
            )
        },
        number("TLB flushes in the replay", ours),
        if truth.checked == 0 {
            fact("samples equal to Linux's VmPTE", "none taken".to_owned(), Compare::No, Better::Neither)
        } else {
            let equal = share(truth.equal, truth.checked);
            fact("samples equal to Linux's VmPTE", equal, part(truth.equal, truth.checked), Better::More)
        },
    ]);
    all
}

/// Formats a length on the axis with its unit.
pub(super) fn with_unit(facts: &RecordingFacts, length: u64) -> String {
    let unit = if facts.is_time() { "" } else { " events" };
    format!("{}{unit}", on_axis(length, facts.is_time()))
}

/// Returns how two traces differ so that figures are hard to compare.
pub(super) fn unequal(all: &[TraceFigures]) -> Option<String> {
    let differ = |value: &dyn Fn(&RecordingFacts) -> String| {
        all.windows(2).any(|two| value(&two[0].facts) != value(&two[1].facts))
    };
    let mut how = Vec::new();
    for (what, value) in [
        (
            "methods of recording",
            &(|f: &RecordingFacts| f.method.to_owned()) as &dyn Fn(&RecordingFacts) -> String,
        ),
        ("architectures", &|f| f.arch.to_owned()),
        ("page sizes", &|f| f.page_bytes.to_string()),
        ("numbers of CPUs", &|f| f.cpus.to_string()),
        ("axes (one has times, one has not)", &|f| f.axis.to_owned()),
        ("gaps in what was recorded", &|f| f.unseen.join(";")),
    ] {
        if differ(value) {
            how.push(what);
        }
    }
    if how.is_empty() {
        None
    } else {
        Some(format!("The recordings have different {}.", how.join(", different ")))
    }
}
