//! Tables of a suite's rows: as text, and as files of figures have them.

use super::bars::Missed;
use super::ratio::{Pair, linux};
use super::row::{SuiteRow, cases, find};
use crate::print::grouped;

/// Writes a number: with separators, and a digit behind the point if it is small.
pub fn number(value: f64) -> String {
    if value.abs() < 99.95 { format!("{value:.1}") } else { grouped(value) }
}

/// Writes a table of a file of figures. The first cell of a row is its name.
pub fn table(columns: &[String], rows: &[Vec<String>]) -> String {
    let quoted: Vec<String> = columns.iter().map(|column| text(column)).collect();
    let rows: Vec<String> = rows.iter().map(|row| format!("    [{}],\n", row.join(", "))).collect();
    format!("columns = [{}]\nrows = [\n{}]\n", quoted.join(", "), rows.concat())
}

/// Writes a text as a cell of a file.
pub fn text(text: &str) -> String {
    format!("{text:?}")
}

/// Writes a number as a cell of a file.
fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| text("–"), |value| number(value).replace(',', ""))
}

/// A small number for a table: no digits behind the point that are zero.
fn short(value: f64) -> String {
    if value >= 1_000.0 {
        return grouped(value);
    }
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Prints a table for each case.
pub fn tables(rows: &[SuiteRow]) {
    for case in cases(rows) {
        let of_case: Vec<&SuiteRow> = rows.iter().filter(|row| row.case == case).collect();
        println!();
        println!(
            "{case}, {}\n{:28} {:>11} {:>23} {:>7} {:>8} {:>7} {:>5}",
            of_case[0].unit, "", "value", "least and most", "tables", "cleared", "inval", "cr3"
        );
        for row in of_case {
            let range = format!("{} – {}", number(row.range[0]), number(row.range[1]));
            let tables = row.tables.map_or("–".into(), |tables| tables.to_string());
            print!("{:28} {:>11} {range:>23} {tables:>7}", row.contender, number(row.value));
            if let Some(happened) = &row.happened {
                let (cleared, pages) = (happened.all_cleared(), happened.page_invalidations);
                print!(" {:>8} {:>7} {:>5}", short(cleared), short(pages), short(happened.root_loads));
            }
            println!();
            if !row.parts.is_empty() {
                let parts =
                    row.parts.iter().map(|part| format!("{} {}", part.group, number(part.instructions)));
                println!("{:28} {}", "", parts.collect::<Vec<_>>().join(", "));
            }
        }
    }
    println!();
    println!(
        "tables: table pages at the most, beyond those before; cleared: pages; inval: pages that the TLB"
    );
    println!("is told to forget; cr3: roots loaded. Each is for one operation, but tables.");
}

/// Returns a table of the library's rows beside Linux's in a model of caches; empty without such
/// rows.
pub fn caches(rows: &[SuiteRow]) -> String {
    let mut lines = Vec::new();
    for case in cases(rows) {
        let pair = Pair::Never;
        let Some(row) = find(rows, case, pair.here()) else { continue };
        let Some(here) = numbers(row) else { continue };
        let linux = linux(rows, case, pair).and_then(numbers);
        let linux = linux.map_or([None; 4], |linux| linux.map(Some));
        let unit = row.unit.trim_start_matches("instructions/");
        let cells = here.into_iter().map(Some).chain(linux).enumerate();
        let cells = cells.map(|(n, cell)| match cell {
            Some(misses) if n % 4 == 2 => format!("{misses:.0}"),
            cell => optional(cell),
        });
        lines.push([text(case), text(unit)].into_iter().chain(cells).collect());
    }
    if lines.is_empty() {
        return String::new();
    }
    let four = ["instructions", "misses-1", "misses-2", "cycles"];
    let columns = ["case", "for a"].into_iter().chain(four).map(str::to_owned);
    let columns: Vec<String> = columns.chain(four.map(|name| format!("linux-{name}"))).collect();
    table(&columns, &lines)
}

/// Returns instructions, misses of both levels and cycles of a row with misses, as the table has
/// them.
fn numbers(row: &SuiteRow) -> Option<[f64; 4]> {
    let misses = row.misses.as_ref()?;
    let shown = |value: f64| if value < 99.95 { (value * 10.0).round() / 10.0 } else { value.round() };
    // Of the second level whole misses: a few more or less are the state before the case.
    Some([shown(row.value), shown(misses.first), misses.second.round(), shown(misses.cycles)])
}

/// Prints the cases that miss their bars.
pub fn bars(missed: &[Missed<'_>]) {
    println!();
    if missed.is_empty() {
        println!("No case that both kernels have run is below its bar.");
    }
    for m in missed {
        println!("MISSED {}, {}: {:.2} times fewer, bar {}", m.case, m.pair.name(), m.ratio, m.bar);
    }
}

/// Returns a table as a file of figures has it: for each pair of contenders the cheaper row of
/// Linux, and the library's; then the events of the first.
pub fn figures(rows: &[SuiteRow]) -> String {
    let pairs = Pair::of(rows);
    let mut columns = vec!["case".to_owned(), "for a".to_owned()];
    for pair in &pairs {
        columns.extend([pair.here().replace("ptarmigan", "linux"), pair.here().to_owned()]);
    }
    columns.extend(["cleared", "flushes", "tables"].map(str::to_owned));
    let lines = cases(rows).into_iter().map(|case| {
        let unit = rows.iter().find(|row| row.case == case).map_or("", |row| &row.unit);
        let mut cells = vec![text(case), text(unit.trim_start_matches("instructions/"))];
        for pair in pairs.iter().copied() {
            cells.push(optional(linux(rows, case, pair).map(|row| row.value)));
            cells.push(optional(find(rows, case, pair.here()).map(|row| row.value)));
        }
        let both = [linux(rows, case, pairs[0]), find(rows, case, pairs[0].here())];
        let each = |of: &dyn Fn(&SuiteRow) -> Option<f64>| {
            text(&both.map(|row| row.and_then(of).map_or_else(|| "–".into(), short)).join(", "))
        };
        cells.push(each(&|row| Some(row.happened.as_ref()?.all_cleared())));
        cells.push(each(&|row| {
            row.happened.as_ref().map(|happened| happened.page_invalidations + happened.root_loads)
        }));
        cells.push(each(&|row| row.tables.map(|tables| tables as f64)));
        cells
    });
    table(&columns, &lines.collect::<Vec<_>>())
}

/// Returns a table of the library's rows by group; empty without such rows.
pub fn parts(rows: &[SuiteRow], groups: &[&str]) -> String {
    let names = ["case", "plain-x86_64", "ptarmigan-x86_64", "program"].iter().chain(groups);
    let mut lines = Vec::new();
    for case in cases(rows) {
        let Some(row) = find(rows, case, Pair::Never.here()).filter(|row| !row.parts.is_empty()) else {
            continue;
        };
        let plain = find(rows, case, "plain-x86_64").map(|row| row.value);
        let program = row.happened.as_ref().map(|happened| happened.programs);
        let parts = groups.iter().map(|group| {
            let part = row.parts.iter().find(|part| part.group == *group);
            part.map(|part| part.instructions)
        });
        let numbers = [plain, Some(row.value), program].into_iter().chain(parts).map(optional);
        lines.push([text(case)].into_iter().chain(numbers).collect());
    }
    if lines.is_empty() {
        return String::new();
    }
    table(&names.map(|&name| name.to_owned()).collect::<Vec<_>>(), &lines)
}

#[cfg(test)]
mod tests {
    use super::super::row::Misses;
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_case() {
        let rows = [
            row("fork", "linux-x86_64", 12_000.0),
            row("fork", "ptarmigan-x86_64", 3_000.0),
            row("exit", "ptarmigan-x86_64", 46.75),
        ];
        let text = figures(&rows);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let events = r#""–, –", "–, –", "–, –""#;
        assert_eq!(lines[0], format!(r#"    ["fork", "page", 12000, 3000, "–", "–", {events}],"#));
        assert_eq!(lines[1], format!(r#"    ["exit", "page", "–", 46.8, "–", "–", {events}],"#));
    }

    #[test]
    fn caches_are_a_table_of_both_kernels() {
        let with = |row: SuiteRow, first, second, cycles| SuiteRow {
            misses: Some(Misses { first, second, cycles }),
            ..row
        };
        let rows = [
            with(row("fork", "linux-x86_64-noinit", 12_000.0), 100.0, 10.0, 7_900.0),
            with(row("fork", "ptarmigan-x86_64", 3_000.0), 50.0, 5.0, 2_450.0),
            row("exit", "ptarmigan-x86_64", 46.75),
        ];
        let text = caches(&rows);
        assert_eq!(
            text.lines().nth(2),
            Some(r#"    ["fork", "page", 3000, 50.0, 5, 2450, 12000, 100, 10, 7900],"#)
        );
        assert_eq!(text.lines().next().map(|line| line.matches(',').count()), Some(9));
        assert!(caches(&rows[2..]).is_empty());
    }

    #[test]
    fn small_numbers_have_a_digit_behind_the_point() {
        assert_eq!([number(46.75), number(99.96), number(1_234.5)], ["46.8", "100", "1,235"]);
        assert_eq!([short(2.0), short(2.25), short(1_034.0)], ["2", "2.2", "1,034"]);
    }
}
