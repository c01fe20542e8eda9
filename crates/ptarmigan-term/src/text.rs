//! Reports made for 80 columns: lines, headings and tables, fitted to narrower terminals.
//!
//! A table that is too wide is cut between its columns: each part has the label and as many other
//! columns as fit. Where the label leaves no room for a column, each row becomes a list of values
//! with their names. Lines are broken between words.
use crate::screen;
use std::fmt::{self, Display, Write};

/// A report. Writing to it adds lines, and cannot fail.
#[derive(Clone, Debug, Default)]
pub struct Text(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Lines(String),
    Heading(String),
    Table(TextTable),
}

impl Text {
    /// Adds a line, bold on a terminal with colour.
    pub fn heading(&mut self, line: impl Display) {
        self.0.push(Part::Heading(line.to_string()));
    }

    /// Adds a table.
    pub fn table(&mut self, table: TextTable) {
        self.0.push(Part::Table(table));
    }

    /// Adds another text.
    pub fn append(&mut self, other: Text) {
        self.0.extend(other.0);
    }

    /// Returns whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the report as standard output shows it: fitted to a terminal that is narrower than
    /// 80 columns; on one with colour, headings are bold.
    pub fn for_stdout(&self) -> String {
        self.fitted(screen::narrow(), screen::colour(&std::io::stdout()))
    }

    /// Returns the report in lines of at most `width` columns, except for words that are longer.
    /// Without a width, lines have at most 80 columns, and tables are as they were made.
    pub fn fitted(&self, width: Option<usize>, colour: bool) -> String {
        let most = width.unwrap_or(usize::MAX);
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Lines(lines) => {
                    let most = width.unwrap_or(screen::USUAL);
                    lines.lines().for_each(|line| wrap(&mut out, line, most));
                }
                Part::Heading(line) => {
                    let mut lines = String::new();
                    wrap(&mut lines, line, most);
                    let paint = |line: &str| if colour { screen::bold(line) } else { line.to_owned() };
                    lines.lines().for_each(|line| push(&mut out, &paint(line)));
                }
                Part::Table(table) => table.write(&mut out, most, colour),
            }
        }
        out
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match self.0.last_mut() {
            Some(Part::Lines(lines)) => lines.push_str(text),
            _ => self.0.push(Part::Lines(text.to_owned())),
        }
        Ok(())
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fitted(None, false))
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct TextTable {
    columns: Vec<Column>,
    /// The first row has the names of the columns. A row without cells is a gap.
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    width: usize,
    left: bool,
}

#[derive(Clone, Debug)]
struct Row {
    cells: Vec<String>,
    bad: bool,
}

impl TextTable {
    /// Makes a table of columns with these names and widths. The width of a column that is aligned
    /// left is negative, as for `printf`. The first column is the label.
    pub fn new(names: &[&str], widths: &[isize]) -> Self {
        let columns = widths.iter().map(|width| Column { width: width.unsigned_abs(), left: *width < 0 });
        let mut table = TextTable { columns: columns.collect(), rows: Vec::new() };
        table.texts(names.iter().map(|name| (*name).to_owned()));
        table
    }

    /// Adds a row. It may have fewer cells than the table has columns.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.row_if_bad(cells, false);
    }

    /// Adds a row that is red on a terminal with colour, if it is bad.
    pub fn row_if_bad(&mut self, cells: &[&dyn Display], bad: bool) {
        let cells = cells.iter().map(|cell| cell.to_string()).collect();
        self.rows.push(Row { cells, bad });
    }

    /// Adds a row of texts.
    pub fn texts(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(Row { cells: cells.into_iter().collect(), bad: false });
    }

    /// Adds an empty line.
    pub fn gap(&mut self) {
        self.row(&[]);
    }

    fn write(&self, out: &mut String, most: usize, colour: bool) {
        let mut whole = String::new();
        for row in &self.rows {
            let mut cells = &row.cells[..];
            // A label that is too long has a line of its own.
            if let (Some(label), Some(column)) = (cells.first(), self.columns.first())
                && length(label) > column.width
            {
                push(&mut whole, label);
                cells = &cells[1..];
                whole.push_str(&" ".repeat(column.width + 1));
            }
            let columns = &self.columns[row.cells.len() - cells.len()..];
            let line = line(cells.iter().zip(columns).map(|(cell, column)| (cell, *column)));
            match row.bad && colour && most == usize::MAX {
                true => push(&mut whole, &screen::red(line.trim_end())),
                false => push(&mut whole, &line),
            }
        }
        if whole.lines().all(|line| length(line) <= most) {
            out.push_str(&whole);
        } else {
            self.write_parts(out, most);
        }
    }

    /// Returns the width that the cells of a column need.
    fn needed(&self, column: usize) -> usize {
        self.rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| length(cell)).max().unwrap_or(0)
    }

    fn write_parts(&self, out: &mut String, most: usize) {
        let columns = self.columns.len();
        let label = self.needed(0) + 1;
        if label + (1..columns).map(|column| self.needed(column)).max().unwrap_or(0) > most {
            return self.write_lists(out, most);
        }
        let mut from = 1;
        while from < columns {
            let (mut to, mut used) = (from, label);
            while to < columns && (to == from || used + self.needed(to) <= most) {
                used += self.needed(to) + 1;
                to += 1;
            }
            if from > 1 {
                out.push('\n');
            }
            for Row { cells, .. } in &self.rows {
                let shown = std::iter::once(0).chain(from..to);
                let shown = shown.filter_map(|at| {
                    Some((cells.get(at)?, Column { width: self.needed(at), left: self.columns[at].left }))
                });
                push(out, &line(shown));
            }
            from = to;
        }
    }

    /// Writes each row as its label and a list of names and values.
    fn write_lists(&self, out: &mut String, most: usize) {
        let Some((names, rows)) = self.rows.split_first() else { return };
        for Row { cells, .. } in rows {
            let Some((label, values)) = cells.split_first() else { continue };
            wrap(out, label, most);
            let named = names.cells[1..].iter().zip(values).filter(|(_, value)| !value.is_empty());
            let values: Vec<String> =
                named.map(|(name, value)| format!("{name} {}", value.trim()).trim().to_owned()).collect();
            wrap(out, &format!("  {}", values.join(", ")), most);
        }
    }
}

/// Joins cells by blanks.
fn line<'c>(cells: impl Iterator<Item = (&'c String, Column)>) -> String {
    let aligned = cells.map(
        |(cell, Column { width, left })| {
            if left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        },
    );
    aligned.collect::<Vec<_>>().join(" ")
}

fn length(line: &str) -> usize {
    line.chars().count()
}

fn push(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Adds a line. If it is too long it is broken between words, and the following lines are indented
/// by two more than the first.
fn wrap(out: &mut String, line: &str, width: usize) {
    if length(line) <= width {
        return push(out, line);
    }
    let indent = line.len() - line.trim_start().len();
    let [first, rest] = [indent, indent + 2].map(|indent| " ".repeat(indent.min(width / 2)));
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::wrap::lines(&words, width, &first, &rest).iter().for_each(|line| push(out, line));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Text {
        let mut table = TextTable::new(&["", "count", "total", "p50", "max", "miss"], &[-4, 8, 8, 6, 7, 6]);
        table.row(&[&"pte", &12345, &"1.2 ms", &"<5", &120.1, &345]);
        table.gap();
        table.row(&[&"pmd", &345, &"3.4 us", &"<5", &12.1]);
        let mut text = Text::default();
        text.table(table);
        text
    }

    #[test]
    fn a_table_keeps_its_columns_where_there_is_room() {
        let text = "        count    total    p50     max   miss\n\
                    pte     12345   1.2 ms     <5   120.1    345\n\
                    \n\
                    pmd       345   3.4 us     <5    12.1\n";
        assert_eq!(table().to_string(), text);
        assert_eq!(table().fitted(Some(44), true), text);
    }

    #[test]
    fn a_table_is_cut_between_its_columns_and_keeps_its_labels() {
        let fitted = table().fitted(Some(24), false);
        assert!(fitted.lines().all(|line| length(line) <= 24), "{fitted}");
        assert_eq!(fitted.matches("pte").count(), 2, "{fitted}");
        for cell in ["12345", "1.2 ms", "120.1", "345", "p50", "miss"] {
            assert!(fitted.contains(cell), "{cell}: {fitted}");
        }
    }

    #[test]
    fn long_labels_turn_rows_into_lists_and_have_lines_of_their_own() {
        let mut table = TextTable::new(&["case", "contender", "median", "ratio"], &[-6, -12, 9, 8]);
        table.row_if_bad(&[&"a-case-with-a-long-name", &"page_table_multiarch", &"1.00", &"1.00x"], true);
        let mut text = Text::default();
        text.table(table);
        let fitted = text.fitted(Some(36), false);
        assert!(fitted.lines().all(|line| length(line) <= 36), "{fitted}");
        assert!(fitted.contains("median 1.00, ratio 1.00x"), "{fitted}");
        assert!(
            text.to_string().contains("\na-case-with-a-long-name\n       page_table_multiarch "),
            "{text}"
        );
        let red = text.fitted(None, true);
        assert!(red.contains("\x1b[1;31mpage") && red.ends_with("\x1b[0m\n"), "{red:?}");
        for narrow in [36, 79] {
            assert!(!text.fitted(Some(narrow), true).contains('\x1b'), "{narrow}");
        }
    }

    #[test]
    fn prose_is_broken_between_words_and_short_lines_stay() {
        let mut text = Text::default();
        text.heading("policy ptarmigan");
        let prose = "flushes  of one page 12345, of a range 23456, and full 34567 in all";
        writeln!(text, "short  line\n{prose}").unwrap();
        let fitted = text.fitted(Some(40), true);
        assert!(fitted.starts_with("\x1b[1mpolicy ptarmigan\x1b[0m\nshort  line\nflushes of one page"));
        assert!(fitted.contains("\n  "), "{fitted}");
        assert!(text.to_string().ends_with(&format!("{prose}\n")), "{text}");
        // Large counts make a line longer than reports are.
        let counts = "compile: 4,372 processes, 3,911,524 events, 3,370,693 faults, 0 lost; 4 GiB memory";
        write!(text, "{counts}").unwrap();
        assert!(text.to_string().lines().all(|line| length(line) <= 80), "{text}");
    }

    #[test]
    fn no_width_makes_it_panic() {
        for line in ["", "\n\n", "   \n", "ä ü 漢字 words\nüüüüüüüü 1 2 3 4\nööö 5 6 7 8"] {
            let mut text = table();
            text.write_str(line).unwrap();
            text.heading(line);
            for width in 0..90 {
                let _ = text.fitted(Some(width), width % 2 == 0);
            }
        }
    }
}
