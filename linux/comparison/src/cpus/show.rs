//! Tables of rows of the suite `cpus`.

use super::row::{CpuRow, Each, find};
use crate::contender::{LINUX_64, OURS_64, OURS_ARM, OURS_LAZY};
use crate::suite::show;

/// A column of a table: its title, and the contender and the counters whose sum it has, or the
/// pages that the plugin counts.
struct Column {
    title: &'static str,
    contender: &'static str,
    what: TableContent,
}

enum TableContent {
    /// A counter of the kernel.
    Count(&'static str),
    /// A counter, with its spread.
    Spread(&'static str),
    /// Broadcasts in place of interrupts: calls that asked CPUs, without those about roots.
    Broadcasts,
    /// Pages.
    Pages,
}

const fn column(title: &'static str, contender: &'static str, what: TableContent) -> Column {
    Column { title, contender, what }
}

/// The table of x86-64: interrupts, broadcasts by count, deferred.
const X86_64: [Column; 10] = [
    column("Linux: requests", LINUX_64, TableContent::Spread("requests")),
    column("Linux: interrupts", LINUX_64, TableContent::Spread("interrupts")),
    column("Linux: pages", LINUX_64, TableContent::Pages),
    column("interrupt: requests", OURS_64, TableContent::Count("requests")),
    column("interrupt: pages", OURS_64, TableContent::Pages),
    column("as broadcast: requests", OURS_64, TableContent::Broadcasts),
    column("as broadcast: interrupts", OURS_64, TableContent::Count("roots")),
    column("lazy: requests", OURS_LAZY, TableContent::Count("requests")),
    column("lazy: deferred", OURS_LAZY, TableContent::Count("deferred")),
    column("lazy: caught up", OURS_LAZY, TableContent::Count("caught_up")),
];

/// The table of AArch64, whose instructions broadcast.
const AARCH64: [Column; 4] = [
    column("broadcast: flushes", OURS_ARM, TableContent::Count("flushes")),
    column("broadcast: of everything", OURS_ARM, TableContent::Count("full")),
    column("broadcast: pages", OURS_ARM, TableContent::Count("flushed")),
    column("broadcast: interrupts", OURS_ARM, TableContent::Count("requests")),
];

/// Writes a number of events for each operation.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn cell(rows: &[CpuRow], case: &str, cpus: u8, column: &Column) -> String {
    let none = || "–".to_owned();
    let Some(row) = find(rows, case, column.contender, cpus) else { return none() };
    let value = |key| row.count(key).map(|each| each.value);
    match column.what {
        TableContent::Count(key) => value(key).map_or_else(none, number),
        TableContent::Spread(key) => row.count(key).map_or_else(none, spread),
        TableContent::Broadcasts => {
            let asked = value("broadcasts").zip(value("roots"));
            asked.map_or_else(none, |(all, roots)| number((all - roots).max(0.0)))
        }
        TableContent::Pages => row.flushed_pages.map_or_else(none, number),
    }
}

/// A value, or the least and the most if they differ.
fn spread(each: Each) -> String {
    let [least, most] = each.range.map(number);
    if least == most { least } else { format!("{least} – {most}") }
}

/// Returns the cases and numbers of CPUs of rows, in the order of their first rows.
pub fn lines(rows: &[CpuRow]) -> Vec<(&str, u8)> {
    let mut lines: Vec<(&str, u8)> = Vec::new();
    let mut cases: Vec<&str> = Vec::new();
    for row in rows {
        if !cases.contains(&&*row.case) {
            cases.push(&row.case);
        }
        if !lines.contains(&(&*row.case, row.cpus)) {
            lines.push((&row.case, row.cpus));
        }
    }
    lines.sort_by_key(|(case, cpus)| (cases.iter().position(|other| other == case), *cpus));
    lines
}

/// Writes what a cell shows as a cell of a file: a number, or a text.
fn in_file(cell: String) -> String {
    if cell.parse::<f64>().is_ok() { cell } else { show::text(&cell) }
}

/// Returns a table of a file of figures, and none if no contender of it has a row.
fn table(rows: &[CpuRow], name: &str, columns: &[Column]) -> Option<String> {
    columns.iter().find(|column| rows.iter().any(|row| row.contender == column.contender))?;
    let titles = ["case, CPUs", "for a"].into_iter().chain(columns.iter().map(|column| column.title));
    let titles: Vec<String> = titles.map(str::to_owned).collect();
    let mut written = Vec::new();
    for (case, cpus) in lines(rows) {
        let unit = rows.iter().find(|row| row.case == case).map_or("", |row| &row.unit);
        let cells: Vec<String> = columns.iter().map(|column| cell(rows, case, cpus, column)).collect();
        if cells.iter().any(|cell| cell != "–") {
            let names = [show::text(&format!("{case}, {cpus}")), show::text(unit)];
            written.push(names.into_iter().chain(cells.into_iter().map(in_file)).collect());
        }
    }
    Some(format!("[{name}]\n{}", show::table(&titles, &written)))
}

/// Returns all tables as `figures/cpus.toml` has them.
pub fn figures(rows: &[CpuRow]) -> String {
    let tables = [("cpus", &X86_64[..]), ("cpus-broadcast", &AARCH64[..])];
    let tables = tables.into_iter().filter_map(|(name, columns)| table(rows, name, columns));
    tables.collect::<Vec<_>>().join("\n")
}

/// Prints a table for each case.
pub fn print(rows: &[CpuRow]) {
    let mut last = "";
    for (case, cpus) in lines(rows) {
        for row in rows.iter().filter(|row| row.case == case && row.cpus == cpus) {
            if last != case {
                println!("\n{case}, for each {}", row.unit);
                last = case;
            }
            let counts = row.counts.iter().filter(|(key, each)| each.range[1] > 0.0 || *key == "requests");
            let counts = counts.map(|(key, each)| format!("{} {}", key.replace('_', " "), spread(*each)));
            let pages = row.flushed_pages.map(|pages| format!("pages {}", number(pages)));
            let roots = row.root_loads.map(|roots| format!("cr3 {}", number(roots)));
            let counts: Vec<String> = counts.chain(pages).chain(roots).collect();
            println!("{:24} {cpus} CPUs: {}", row.contender, counts.join(", "));
        }
    }
    println!();
    println!(
        "requests: CPUs that others asked to forget something; pages: single pages that TLBs were told to"
    );
    println!("forget, on all CPUs; deferred: requests that were not made, as the CPUs forget by themselves;");
    println!("caught up: how often one did. The least and the most of all rounds, if they differ.");
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_case_and_number_of_cpus() {
        let mut spread = row("idle", LINUX_64, 2, &[("requests", 1.0), ("interrupts", 1.0)]);
        spread.counts.get_mut("interrupts").expect("it is there").range = [0.5, 1.25];
        let ours = &[("requests", 3.0), ("broadcasts", 1.0), ("roots", 0.25)];
        let arm = &[("requests", 0.0), ("flushes", 2.0), ("flushed", 4.0)];
        let rows = [row("idle", OURS_64, 4, ours), spread, row("cow", OURS_ARM, 1, arm)];
        let text = figures(&rows);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("    [")).collect();
        let none = |count| vec![r#""–""#; count].join(", ");
        assert_eq!(lines[0], format!(r#"    ["idle, 2", "page", 1, "0.5 – 1.25", 2, {}],"#, none(7)));
        assert_eq!(
            lines[1],
            format!(r#"    ["idle, 4", "page", {}, 3, 2, 0.75, 0.25, {}],"#, none(3), none(3))
        );
        assert_eq!(lines[2], r#"    ["cow, 1", "page", 2, "–", 4, 0],"#);
        assert_eq!(figures(&[]), "");
    }

    #[test]
    fn numbers_have_no_zeroes_behind() {
        assert_eq!([number(3.0), number(0.25), number(0.0004), number(100.0)], ["3", "0.25", "0", "100"]);
    }
}
