//! What was recorded, and the figures that say most.
use super::html::{Table, letter, name};
use crate::report::collect::{Facts, Figures};
use crate::report::draw::escape;
use crate::report::words::{count, on_axis, plural, share, size, times};

/// Returns the first lines: what was recorded.
pub(super) fn lead(all: &[Figures]) -> String {
    let mut html = String::new();
    for (n, one) in all.iter().enumerate() {
        let Facts { processes, events, faults, method, cpus, arch, .. } = &one.facts;
        let of = if all.len() > 1 { format!("{}: ", name(n, all)) } else { String::new() };
        let time = if one.facts.is_time() {
            format!(" in {}", on_axis(one.facts.axis_end, true))
        } else {
            String::new()
        };
        let text = format!(
            "{of}{} process{}, {}, {}{time}; {} on {arch} with {}.",
            count(*processes),
            if *processes == 1 { "" } else { "es" },
            plural(*events, "event"),
            plural(*faults, "page fault"),
            if *method == "synthetic" {
                "made, not recorded,".to_owned()
            } else {
                format!("recorded with {method}")
            },
            plural(*cpus as u64, "CPU"),
        );
        html += &format!("<p class=\"lead\">{}</p>\n", escape(&text));
    }
    html
}

/// Returns the figures that say most: as a list for one trace, as a table for several.
pub(super) fn facts(all: &[Figures]) -> String {
    let [one] = all else { return compared(all) };
    let mut html = "<dl class=\"facts\">\n".to_owned();
    for (what, value, _) in figures(one) {
        html += &format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(what), escape(&value));
    }
    html + "</dl>\n"
}

/// What is in time or in events, as the axis is.
const LIFE: &str = "median life of a leaf table";

fn compared(all: &[Figures]) -> String {
    let mut headings = vec![String::new()];
    headings.extend((0..all.len()).map(letter));
    if all.len() == 2 {
        headings.push("B / A".to_owned());
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new("wrap", &headings);
    let each: Vec<_> = all.iter().map(figures).collect();
    let alike = all.windows(2).all(|two| two[0].facts.axis == two[1].facts.axis);
    for (row, (what, _, first)) in each[0].iter().enumerate() {
        let mut cells = vec![(*what).to_owned()];
        cells.extend(each.iter().map(|one| one[row].1.clone()));
        if let [_, second] = each.as_slice() {
            let comparable = alike || *what != LIFE;
            let both = first.zip(second[row].2).filter(|_| comparable);
            cells.push(both.map_or("–".to_owned(), |(a, b)| times(a, b)));
        }
        table.row(cells);
    }
    table.finish()
}

/// Returns what each figure is, the figure, and its number if two of them can be compared.
fn figures(one: &Figures) -> Vec<(&'static str, String, Option<f64>)> {
    let Figures { facts, tables, flushes, .. } = one;
    let made: u64 = tables.made.iter().sum();
    let full = &tables.fullness;
    let truth = &facts.truth;
    let number = |what, n: u64| (what, count(n), Some(n as f64));
    let ours = flushes.ours.page + flushes.ours.range + flushes.ours.full;
    vec![
        number("page faults", facts.faults),
        number("table pages made", made),
        number("alive at once, at most", facts.peak_live_tables),
        ("memory in tables, at most", size(facts.peak_table_bytes), Some(facts.peak_table_bytes as f64)),
        (
            "leaf tables that never held 64 pages",
            share(full.below_64, full.tables),
            Some(full.below_64 as f64 / (full.tables as f64).max(1.0)),
        ),
        (LIFE, with_unit(facts, tables.lifetimes.median[0]), Some(tables.lifetimes.median[0] as f64)),
        number("TLB flushes in the replay", ours),
        (
            "samples equal to Linux's VmPTE",
            if truth.checked == 0 { "none taken".to_owned() } else { share(truth.equal, truth.checked) },
            None,
        ),
    ]
}

/// Formats a length on the axis with what it is of.
pub(super) fn with_unit(facts: &Facts, length: u64) -> String {
    let unit = if facts.is_time() { "" } else { " events" };
    format!("{}{unit}", on_axis(length, facts.is_time()))
}

/// Returns how two traces differ so that figures are hard to compare.
pub(super) fn unequal(all: &[Figures]) -> Option<String> {
    let differ = |value: &dyn Fn(&Facts) -> String| {
        all.windows(2).any(|two| value(&two[0].facts) != value(&two[1].facts))
    };
    let mut how = Vec::new();
    for (what, value) in [
        ("methods of recording", &(|f: &Facts| f.method.to_owned()) as &dyn Fn(&Facts) -> String),
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
