//! Writes the lines about the recording, and the figures that say most.
use super::html::{Table, letter, name};
use super::times;
use crate::report::collect::{Facts, Figures};
use crate::report::draw::escape;
use crate::report::words::{self, count, on_axis, plural, share, size};

/// Returns the first lines: the programs that were recorded.
pub(super) fn lead(all: &[Figures]) -> String {
    let lines = lead_lines(all).into_iter().zip(all);
    let html = |(line, one): (String, &Figures)| {
        format!("{}<p class=\"lead\">{}</p>\n", times::lead(one), escape(&line))
    };
    lines.map(html).collect()
}

/// Returns for each trace the line that sums up its times, if it has any.
pub(crate) fn time_lines(all: &[Figures]) -> Vec<Option<String>> {
    let line = |(n, one): (usize, &Figures)| {
        let line = one.times.as_ref()?.line.as_ref()?;
        let of = if all.len() > 1 { format!("{}: ", name(n, all)) } else { String::new() };
        Some(format!("{of}{line}."))
    };
    all.iter().enumerate().map(line).collect()
}

/// Returns the first lines as text, one for each trace.
pub(crate) fn lead_lines(all: &[Figures]) -> Vec<String> {
    let line = |(n, one): (usize, &Figures)| {
        let Facts { processes, events, faults, method, cpus, arch, .. } = &one.facts;
        let of = if all.len() > 1 { format!("{}: ", name(n, all)) } else { String::new() };
        let time = if one.facts.is_time() {
            format!(" in {}", on_axis(one.facts.axis_end, true))
        } else {
            String::new()
        };
        format!(
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
        )
    };
    all.iter().enumerate().map(line).collect()
}

/// Returns the figures that say most: as a list for one trace, as a table for several.
pub(super) fn facts(all: &[Figures]) -> String {
    let [one] = all else { return compared(all) };
    let mut html = "<dl class=\"facts\">\n".to_owned();
    for Fact { what, value, .. } in figures(one).into_iter().filter(Fact::is_there) {
        html += &format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(what), escape(&value));
    }
    html + "</dl>\n"
}

/// A figure, and how two of its kind are compared.
pub(super) struct Fact {
    pub(super) what: &'static str,
    /// Empty if the recording does not have it.
    pub(super) value: String,
    pub(super) number: Compare,
    pub(super) better: Better,
}

impl Fact {
    fn is_there(&self) -> bool {
        !self.value.is_empty()
    }
}

/// How a figure is compared.
#[derive(Clone, Copy)]
pub(super) enum Compare {
    /// By how many times it is the other.
    Ratio(f64),
    /// As [`Ratio`](Self::Ratio), if the axes of both traces are alike.
    OnAxis(f64),
    /// A share of a whole: by the difference of both.
    Share(f64),
    No,
}

/// Which of two figures is the better one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
    /// It depends.
    Neither,
}

/// Returns how the second of two figures differs from the first, and whether that is better.
fn difference(a: &Fact, b: &Fact, alike: bool) -> String {
    let (text, differs, less) = match (a.number, b.number) {
        (Compare::OnAxis(_), _) if !alike => return "–".to_owned(),
        (Compare::Ratio(a), Compare::Ratio(b)) | (Compare::OnAxis(a), Compare::OnAxis(b)) => {
            (words::times(a, b), a > 0.0 && (b / a - 1.0).abs() >= 0.01, b < a)
        }
        (Compare::Share(a), Compare::Share(b)) => {
            let points = (b - a) * 100.0;
            let sign = if points < 0.0 { "−" } else { "+" };
            (format!("{sign}{:.1} points", points.abs()), points.abs() >= 1.0, b < a)
        }
        _ => return "–".to_owned(),
    };
    let hint = match (a.better, less) {
        (Better::Neither, _) => "",
        _ if !differs => "",
        (Better::Less, true) | (Better::More, false) => ", better",
        (Better::Less, false) | (Better::More, true) => ", worse",
    };
    text + hint
}

fn compared(all: &[Figures]) -> String {
    let (headings, rows) = rows(all);
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new("wrap", &headings);
    for row in rows {
        table.row(row);
    }
    table.finish()
}

/// Returns the figures that say most as a table: its headings and its rows. Two traces have a
/// column for the difference.
pub(crate) fn rows(all: &[Figures]) -> (Vec<String>, Vec<Vec<String>>) {
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
        let value =
            |fact: &Fact| if fact.is_there() { fact.value.clone() } else { "not recorded".to_owned() };
        cells.extend(each.iter().map(|one| value(&one[row])));
        if let [_, second] = each.as_slice() {
            cells.push(difference(first, &second[row], alike));
        }
        rows.push(cells);
    }
    (headings, rows)
}

/// Returns the figures that say most.
fn figures(one: &Figures) -> Vec<Fact> {
    let Figures { facts, tables, flushes, .. } = one;
    let made: u64 = tables.made.iter().sum();
    let full = &tables.fullness;
    let truth = &facts.truth;
    let part = |part: u64, of: u64| Compare::Share(part as f64 / (of as f64).max(1.0));
    let fact = |what, value, number, better| Fact { what, value, number, better };
    let number = |what, n: u64| fact(what, count(n), Compare::Ratio(n as f64), Better::Less);
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
        fact("memory in tables, at most", size(bytes), Compare::Ratio(bytes as f64), Better::Less),
        fact(
            "leaf tables that never held 64 pages",
            share(full.below_64, full.tables),
            part(full.below_64, full.tables),
            Better::Less,
        ),
        fact(
            "median life of a leaf table",
            with_unit(facts, median),
            Compare::OnAxis(median as f64),
            Better::Neither,
        ),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(a: Compare, b: Compare, better: Better, alike: bool) -> String {
        let fact = |number| Fact { what: "", value: String::new(), number, better };
        difference(&fact(a), &fact(b), alike)
    }

    #[test]
    fn a_difference_says_whether_it_is_better_and_shares_are_no_ratios() {
        let ratio = |a, b, better| said(Compare::Ratio(a), Compare::Ratio(b), better, true);
        assert_eq!(ratio(100.0, 50.0, Better::Less), "0.50 ×, better");
        assert_eq!(ratio(100.0, 150.0, Better::Less), "1.50 ×, worse");
        assert_eq!(ratio(1000.0, 1005.0, Better::Less), "1.00 ×", "as good as equal");
        assert_eq!(ratio(1.0, 76.0, Better::Neither), "76.00 ×");
        assert_eq!(ratio(0.0, 3.0, Better::Less), "–");
        let share = |a, b, better| said(Compare::Share(a), Compare::Share(b), better, true);
        assert_eq!(share(0.017, 0.33, Better::Less), "+31.3 points, worse");
        assert_eq!(share(0.5, 0.25, Better::More), "−25.0 points, worse");
        assert_eq!(share(1.0, 1.0, Better::More), "+0.0 points");
        let on_axis = |alike| said(Compare::OnAxis(2.0), Compare::OnAxis(1.0), Better::Less, alike);
        assert_eq!([true, false].map(on_axis), ["0.50 ×, better", "–"]);
        assert_eq!(said(Compare::Share(1.0), Compare::No, Better::More, true), "–");
    }
}
