//! The figures that pages begin with are those of the tables that they come from.
use ptarmigan_documents::files::root;
use std::collections::HashMap;

/// Returns the rows of a page's tables by the last code word of their first cell, each with its
/// numbers. Of rows with the same word the first counts.
fn rows(page: &str) -> HashMap<String, Vec<f64>> {
    rows_of(&std::fs::read_to_string(root().join(page)).expect("a page"))
}

/// As [`rows`], of a part of a page.
fn rows_of(text: &str) -> HashMap<String, Vec<f64>> {
    let mut rows = HashMap::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let Some(name) = cells.next().and_then(|cell| cell.rsplit('`').nth(1)) else { continue };
        let numbers: Vec<f64> = cells.filter_map(|cell| cell.replace(',', "").parse().ok()).collect();
        if !numbers.is_empty() {
            rows.entry(name.to_owned()).or_insert(numbers);
        }
    }
    rows
}

/// Returns the least and the most of how many times fewer `own` is than the less of the others.
fn range(own: &[f64], others: [&[f64]; 2]) -> String {
    let ratios = own.iter().enumerate().map(|(at, own)| others[0][at].min(others[1][at]) / own);
    let (least, most) = ratios.fold((f64::MAX, 0.0_f64), |(least, most), r| (least.min(r), most.max(r)));
    format!("{least:.1} to {most:.1}")
}

#[test]
fn the_comparison_with_linux() {
    let rows = rows("docs/compare.md");
    let row = |name: &str| rows.get(name).unwrap_or_else(|| panic!("no row {name}")).as_slice();
    let small = range(row("ptarmigan-x86_64"), [row("linux-x86_64"), row("linux-x86_64-noinit")]);
    let always = ["linux-x86_64-always", "linux-x86_64-always-noinit"].map(row);
    let large = range(row("ptarmigan-x86_64-always"), always);
    // Fork and exit: the whole, the part of the small kernel, and that of the lists.
    let (linux, plain, own) = (
        row("linux-x86_64")[3].min(row("linux-x86_64-noinit")[3]),
        row("plain-x86_64")[3],
        row("ptarmigan-x86_64")[3],
    );
    let parts = format!(
        "Of the {:.1} times for fork and exit, {:.1} are the small kernel and {:.1} the lists",
        linux / own,
        linux / plain,
        plain / own
    );
    let six = [format!("{small} times fewer instructions"), parts, format!("{large} times fewer")];
    says("docs/results.md", &six);

    let suites = std::fs::read_to_string(root().join("docs/suites.md")).expect("a page");
    let (_, ours) = suites.split_once("## The suite `ours`").expect("the suite");
    let ours = rows_of(ours.split("\n## ").next().unwrap_or_default());
    let all = |column: usize| {
        let mut ratios: Vec<f64> = ours.values().map(|row| row[column]).collect();
        ratios.sort_by(f64::total_cmp);
        let middle = (ratios[(ratios.len() - 1) / 2] + ratios[ratios.len() / 2]) / 2.0;
        (format!("{:.1} to {:.1}", ratios[0], ratios[ratios.len() - 1]), format!("{middle:.1}"))
    };
    let ((range, median), (always, always_median)) = (all(2), all(5));
    let figures = [
        format!("takes {range} times fewer instructions"),
        format!("{} faults, forks and calls", ours.len()),
        format!("{median} times at the median"),
        format!(
            "take {:.1} times fewer: a factor of {:.1} comes from the small kernel, {:.1} from the lists",
            linux / own,
            linux / plain,
            plain / own
        ),
        format!("the range is {always}, the median {always_median}"),
    ];
    says("README.md", &figures);
    says("book/src/introduction.md", &figures);
}

/// Checks that a page has these texts, whatever their lines.
fn says(page: &str, figures: &[String]) {
    let text = std::fs::read_to_string(root().join(page)).expect("a page");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for figure in figures {
        assert!(text.contains(figure.as_str()), "{page}: {figure}");
    }
}
