//! Fits reports, made for 80 columns, to narrower terminals.
//!
//! A table whose lines are too long is cut between its columns: each part has the columns of labels
//! and as many others as fit. Where the labels leave no room for a column, each row becomes a list
//! of values with their names. Other lines are broken between words.

/// Returns `text` with lines of at most `width` columns, except for words that are longer.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        if length(line) <= width {
            push(&mut out, line);
            at += 1;
            continue;
        }
        // The lines before a long one may belong to the same table.
        match Table::at(&lines[at..]) {
            Some(table) => {
                table.write(&mut out, width);
                at += table.rows.len();
            }
            None => {
                wrap(&mut out, line, width);
                at += 1;
            }
        }
    }
    out
}

fn length(line: &str) -> usize {
    line.chars().count()
}

fn push(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Breaks a line between words. The following lines are indented by two more than the first.
fn wrap(out: &mut String, line: &str, width: usize) {
    let indent = line.len() - line.trim_start().len();
    let mut now = " ".repeat(indent.min(width / 2));
    let mut empty = true;
    for word in line.split_whitespace() {
        if !empty && length(&now) + 1 + length(word) > width {
            push(out, &now);
            now = " ".repeat((indent + 2).min(width / 2));
            empty = true;
        }
        if !empty {
            now.push(' ');
        }
        now.push_str(word);
        empty = false;
    }
    push(out, &now);
}

/// Lines with columns in common.
struct Table {
    /// Cells by row; the first row has the names of the columns.
    rows: Vec<Vec<String>>,
    /// Leading columns that are labels.
    labels: usize,
    /// Columns of numbers.
    numbers: usize,
}

impl Table {
    /// Finds the table that begins with the first line, if one does. Prose may follow it without a
    /// blank line: the table ends where it has most columns of numbers.
    fn at(lines: &[&str]) -> Option<Table> {
        let end = lines.iter().position(|line| line.trim().is_empty()).unwrap_or(lines.len());
        (2..=end).filter_map(|n| Table::of(&lines[..n])).max_by_key(|table| (table.numbers, table.rows.len()))
    }

    /// Divides lines into columns, where all of them have blanks. It is a table if it has three
    /// columns or more, and one of them holds numbers.
    fn of(lines: &[&str]) -> Option<Table> {
        let lines: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
        let end = lines.iter().map(Vec::len).max().unwrap_or(0);
        let blank = |at: usize| lines.iter().all(|line| line.get(at).is_none_or(|c| *c == ' '));
        let mut columns: Vec<(usize, usize)> = Vec::new();
        let mut start = None;
        for at in 0..=end {
            match start {
                None if at < end && !blank(at) => start = Some(at),
                Some(from) if at == end || blank(at) => {
                    columns.push((from, at));
                    start = None;
                }
                _ => {}
            }
        }
        let cell = |line: &Vec<char>, (from, to): (usize, usize)| {
            let to = to.min(line.len());
            line.get(from.min(to)..to).map_or(String::new(), |cell| cell.iter().collect::<String>())
        };
        // A column of numbers has a name, which is not a number.
        let numbers = |column: (usize, usize)| {
            let named = |cell: &str| !cell.is_empty() && !cell.starts_with(is_number);
            named(cell(&lines[0], column).trim())
                && lines[1..].iter().all(|line| cell(line, column).trim().starts_with(is_number))
        };
        let labels = columns.iter().position(|column| numbers(*column))?;
        let count = columns.iter().filter(|column| numbers(**column)).count();
        // In two lines of prose numbers may stand below each other by chance.
        if lines.len() == 2 && count < 2 {
            return None;
        }
        let rows: Vec<Vec<String>> = lines
            .iter()
            .map(|line| columns.iter().map(|column| cell(line, *column).trim().to_owned()).collect())
            .collect();
        (columns.len() >= 3 && labels > 0 && labels < columns.len()).then_some(Table {
            rows,
            labels,
            numbers: count,
        })
    }

    /// Returns the width of a column.
    fn width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| length(&row[column])).max().unwrap_or(0)
    }

    fn write(&self, out: &mut String, width: usize) {
        let label_width: usize = (0..self.labels).map(|column| self.width(column) + 1).sum();
        let columns = self.rows.first().map_or(0, Vec::len);
        let widest = (self.labels..columns).map(|column| self.width(column)).max().unwrap_or(0);
        if label_width + widest > width {
            return self.write_lists(out, width);
        }
        let mut from = self.labels;
        while from < columns {
            let (mut to, mut used) = (from, label_width);
            while to < columns && (to == from || used + self.width(to) < width) {
                used += self.width(to) + 1;
                to += 1;
            }
            if from > self.labels {
                out.push('\n');
            }
            for row in &self.rows {
                let labels = (0..self.labels).map(|i| format!("{:<1$} ", row[i], self.width(i)));
                let values = (from..to).map(|i| format!("{:>1$} ", row[i], self.width(i)));
                push(out, &labels.chain(values).collect::<String>());
            }
            from = to;
        }
    }

    /// Writes each row as its labels and a list of names and values.
    fn write_lists(&self, out: &mut String, width: usize) {
        let Some((names, rows)) = self.rows.split_first() else { return };
        for row in rows {
            wrap(out, &row[..self.labels].join(" "), width);
            let values: Vec<String> = (self.labels..row.len())
                .map(|column| format!("{} {}", names[column], row[column]).trim().to_owned())
                .collect();
            wrap(out, &format!("  {}", values.join(", ")), width);
        }
    }
}

/// Returns whether a cell that begins with this holds a number.
fn is_number(first: char) -> bool {
    first.is_ascii_digit() || matches!(first, '<' | '-' | '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
        \x20      count    total   min   mean     p50     max     hits  miss\n\
        pte    12345   1.2 ms    <5    9.4      <5   120.1    12000   345\n\
        pmd      345   3.4 us    <5    9.9      <5    12.1      300    45\n";

    #[test]
    fn a_table_is_cut_between_its_columns_and_keeps_its_labels() {
        let fitted = fit(TABLE, 40);
        assert!(fitted.lines().all(|line| length(line) <= 40), "{fitted}");
        assert_eq!(fitted.matches("pte").count(), 2, "{fitted}");
        for cell in ["12345", "120.1", "12000", "345", "p50", "miss"] {
            assert!(fitted.contains(cell), "{cell}: {fitted}");
        }
    }

    #[test]
    fn lines_below_a_table_are_no_rows_of_it() {
        let text =
            TABLE.to_owned() + "memory   at most 144 KiB in tables, 164 KiB cached, and more than that\n";
        let fitted = fit(&text, 40);
        assert_eq!(
            fitted,
            fit(TABLE, 40) + "memory at most 144 KiB in tables, 164\n  KiB cached, and more than that\n"
        );
    }

    #[test]
    fn two_lines_with_numbers_alone_are_no_table() {
        let text = "memory   at most 144 KiB in tables, 164 KiB cached\n\
                    flushes  of one page 80, of a range 12, full 16\n";
        let fitted = fit(text, 40);
        assert!(
            fitted.starts_with("memory at most 144 KiB in tables, 164\n  KiB cached\nflushes"),
            "{fitted}"
        );
    }

    #[test]
    fn long_labels_turn_rows_into_lists() {
        let text = "\
            case         contender                     median       min    ratio\n\
            map          page_table_multiarch-cleanup    1.00      2.00    1.00x\n\
            unmap        yardstick                       3.00      4.00    5.00x\n";
        let fitted = fit(text, 36);
        assert!(fitted.lines().all(|line| length(line) <= 36), "{fitted}");
        assert!(fitted.contains("median 1.00, min 2.00, ratio 1.00x"), "{fitted}");
    }

    #[test]
    fn prose_is_broken_between_words_and_short_lines_stay() {
        let text = "short  line\nflushes  of one page 12345, of a range 23456, and full 34567 in all\n";
        let fitted = fit(text, 40);
        assert!(fitted.starts_with("short  line\nflushes of one page"), "{fitted}");
        assert!(fitted.lines().all(|line| length(line) <= 40), "{fitted}");
        assert!(fitted.contains("\n  "), "{fitted}");
    }

    #[test]
    fn two_lines_of_prose_are_no_table() {
        let text = "ns/alloc and mean: back-to-back allocations with their frees and trimming.\n\
                    p50, p99 and max: single calls. Subtracted: 6.1 ns per allocation for the\n";
        assert!(fit(text, 40).starts_with("ns/alloc and mean: back-to-back"));
    }

    #[test]
    fn no_width_makes_it_panic() {
        for width in 0..90 {
            for text in [TABLE, "", "\n\n", "   \n", "ä ü 漢字 words\nüüüüüüüü 1 2 3 4\nööö 5 6 7 8"]
            {
                let _ = fit(text, width);
            }
        }
    }
}
