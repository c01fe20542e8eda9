//! The figures that pages begin with are those of the tables that they come from.
use ptarmigan_documents::files::root;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// Rows of a table by name, each with its numbers by column.
type Rows = BTreeMap<String, BTreeMap<String, f64>>;

/// Returns the rows of a table of `figures/FILE.toml`.
fn rows(file: &str, table: &str) -> Rows {
    let text = std::fs::read_to_string(root().join("figures").join(file)).expect("a file of tables");
    let tables: Table = text.parse().expect("tables");
    let list = |key: &str| tables[table][key].as_array().expect("a list").clone();
    let columns: Vec<Value> = list("columns");
    let row = |row: &Value| {
        let cells = row.as_array().expect("a row");
        let number = |cell: &Value| cell.as_float().or_else(|| cell.as_integer().map(|value| value as f64));
        let named = columns.iter().zip(cells).skip(1);
        let numbers = named.filter_map(|(column, cell)| Some((column.as_str()?.to_owned(), number(cell)?)));
        (cells[0].as_str().expect("a name").to_owned(), numbers.collect())
    };
    list("rows").iter().map(row).collect()
}

/// Returns how many times fewer instructions a row takes than the less of two others, by case.
fn times_fewer(rows: &Rows, own: &str, others: [&str; 2]) -> Vec<f64> {
    let linux = |case: &str| rows[others[0]][case].min(rows[others[1]][case]);
    rows[own].iter().map(|(case, own)| linux(case) / own).collect()
}

/// Returns the least, the most and the median.
fn range(mut ratios: Vec<f64>) -> (String, String) {
    ratios.sort_by(f64::total_cmp);
    let middle = f64::midpoint(ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2]);
    (format!("{:.1} to {:.1}", ratios[0], ratios[ratios.len() - 1]), format!("{middle:.1}"))
}

#[test]
fn the_comparison_with_linux() {
    let (faults, large) = (rows("linux.toml", "faults"), rows("linux.toml", "large"));
    let linux = ["linux-x86_64", "linux-x86_64-noinit"];
    let (small, _) = range(times_fewer(&faults, "ptarmigan-x86_64", linux));
    let always = ["linux-x86_64-always", "linux-x86_64-always-noinit"];
    let (always, _) = range(times_fewer(&large, "ptarmigan-x86_64-always", always));
    // Fork and exit: the whole, the part of the small kernel, and that of the lists.
    let linux = linux.map(|name| faults[name]["fork-exit"]).into_iter().fold(f64::MAX, f64::min);
    let [plain, own] = ["plain-x86_64", "ptarmigan-x86_64"].map(|name| faults[name]["fork-exit"]);
    let [whole, kernel, lists] = [linux / own, linux / plain, plain / own];
    let parts = format!(
        "take {whole:.1} times fewer: a factor of {kernel:.1} comes from the small kernel, {lists:.1} from the lists"
    );
    let six =
        [format!("takes {small} times fewer instructions"), parts.clone(), format!("{always} times fewer")];
    says("docs/compare.md", &six);

    let ours = rows("suites.toml", "ours");
    let all = |linux: &str, own: &str| range(ours.values().map(|row| row[linux] / row[own]).collect());
    let (small, median) = all("linux-x86_64", "ptarmigan-x86_64");
    let (always, always_median) = all("linux-x86_64-always", "ptarmigan-x86_64-always");
    let figures = [
        format!("takes {small} times fewer instructions"),
        format!("{} faults, forks and calls", ours.len()),
        format!("{median} times at the median"),
        parts,
        format!("the range is {always}, the median {always_median}"),
    ];
    says("README.md", &figures);
    says("book/src/introduction.md", &figures);
    let of_cases =
        format!("{} cases take {small} times fewer instructions, {median} times at the median", ours.len());
    says("docs/suites.md", &[of_cases, format!("on both {always}, {always_median} at the median")]);
}

/// Checks that a page has these texts, whatever their lines.
fn says(page: &str, figures: &[String]) {
    let text = std::fs::read_to_string(root().join(page)).expect("a page");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for figure in figures {
        assert!(text.contains(figure.as_str()), "{page}: {figure}");
    }
}
