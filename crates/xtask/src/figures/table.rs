//! Tables of figures: the files `figures/*.toml`, and the tables that pages have of them.
//!
//! ```text
//! [ours]
//! unit = "instructions"
//! command = "kernels/compare --suite ours"
//! measured = "2026-11-28"
//! columns = ["case", "linux", "ptarmigan"]
//! rows = [
//!     ["fork", 65481, 11183],
//! ]
//!
//! [forks]
//! of = "ours"
//! pick = ["fork"]
//! show = ["case", "times fewer = linux / ptarmigan"]
//! ```
//!
//! A row is one line, and its first cell is its name. A page has a table between
//! `<!-- figures: NAME -->` and `<!-- end: NAME -->`. `show` chooses the columns, with a title
//! where it differs from the name; a quotient has two digits behind the point, or as many as ` :N`
//! says. `pick` chooses rows by name, `only = "COLUMN = CELL"` the rows that have the cell. With
//! `of` the rows are another table's, of any file or a document's of the list of figures. `code`
//! shows the names of rows as code.
use super::value::number;
use crate::repository;
use ptarmigan_term::Mean;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use toml::Value;

/// Directory of the files.
const DIRECTORY: &str = "figures";
/// Columns of text in a page.
const WIDTH: usize = 100;
/// A cell that a template leaves as it is.
const AS_IT_IS: &str = "_";

/// One table, or a choice of another one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureTable {
    of: Option<String>,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    measured: String,
    /// The suite of `kernels/compare` that the figures are of.
    #[serde(default, rename = "suite")]
    _suite: String,
    #[serde(default)]
    code: bool,
    #[serde(default)]
    columns: Vec<String>,
    #[serde(default)]
    rows: Vec<Vec<Value>>,
    #[serde(default)]
    show: Vec<String>,
    #[serde(default)]
    pick: Vec<String>,
    only: Option<String>,
    #[serde(default)]
    dense: bool,
}

impl FigureTable {
    /// Makes a table of texts, without a remark.
    pub fn of_texts(columns: &[&str], rows: Vec<Vec<String>>) -> Self {
        let rows = rows.into_iter().map(|row| row.into_iter().map(Value::String).collect()).collect();
        FigureTable {
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows,
            ..FigureTable::default()
        }
    }

    /// Adds the remark: when and where it was measured, and the command.
    pub fn with_remark(self, measured: &str, command: &str) -> Self {
        FigureTable { measured: measured.to_owned(), command: command.to_owned(), ..self }
    }

    /// Leaves spaces beside bars out. For wide tables: `cargo xtask pages` counts a bar between
    /// spaces as a word.
    pub fn dense(self) -> Self {
        FigureTable { dense: true, ..self }
    }

    fn column(&self, name: &str) -> Result<usize, String> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| format!("no column {name}"))
    }

    fn row(&self, name: &str) -> Result<&Vec<Value>, String> {
        self.rows
            .iter()
            .find(|row| row.first().map(shown).as_deref() == Some(name))
            .ok_or(format!("no row {name}"))
    }

    fn check(&self) -> Result<(), String> {
        for (at, row) in self.rows.iter().enumerate() {
            let name = row.first().map(shown).unwrap_or_default();
            if row.len() != self.columns.len() {
                return Err(format!("{name}: {} cells for {} columns", row.len(), self.columns.len()));
            }
            if self.rows[..at].iter().any(|other| other[0] == row[0]) {
                return Err(format!("two rows {name}"));
            }
        }
        Ok(())
    }
}

/// Returns the text of a cell.
fn shown(cell: &Value) -> String {
    match cell {
        Value::String(text) => text.clone(),
        Value::Integer(value) => format!("{:.0}", Mean(*value as f64)),
        Value::Float(value) => {
            let digits = format!("{value:?}").split_once('.').map_or(0, |(_, part)| part.len());
            format!("{:.digits$}", Mean(*value))
        }
        other => format!("{other:?}"),
    }
}

/// Returns a text as a file has it.
fn quoted(text: &str) -> String {
    // Rust escapes quotes and backslashes as TOML does.
    format!("{text:?}")
}

/// Returns a text as a cell of a file: a number if it is shown as the same text.
fn cell(text: &str) -> String {
    let plain = text.replace(',', "");
    let value = plain.parse().map(Value::Integer).ok().or_else(|| plain.parse().map(Value::Float).ok());
    if value.is_some_and(|value| shown(&value) == text) { plain } else { quoted(text) }
}

/// A column of a page's table.
enum PageColumn {
    Cell(usize),
    Quotient([usize; 2], usize),
}

/// Reads a column of `show`: its title, and the cells that it has.
fn column(table: &FigureTable, text: &str) -> Result<(String, PageColumn), String> {
    let (title, expression) = text.split_once(" = ").unwrap_or((text, text));
    if let Ok(at) = table.column(expression) {
        return Ok((title.to_owned(), PageColumn::Cell(at)));
    }
    let (quotient, digits) = match expression.rsplit_once(" :") {
        Some((quotient, digits)) => (quotient, digits.parse().map_err(|_| format!("{text}: digits"))?),
        None => (expression, 2),
    };
    let (a, b) = quotient.split_once(" / ").ok_or_else(|| format!("no column {expression}"))?;
    Ok((title.to_owned(), PageColumn::Quotient([table.column(a)?, table.column(b)?], digits)))
}

/// All tables, by name.
#[derive(Default)]
pub struct Tables {
    tables: BTreeMap<String, FigureTable>,
    /// Texts of the files.
    files: BTreeMap<PathBuf, String>,
}

impl Tables {
    /// Reads all files below `root`.
    ///
    /// # Errors
    /// With the file, and the table or the line that is wrong.
    pub fn read(root: &Path) -> Result<Self, String> {
        let directory = root.join(DIRECTORY);
        let wrong = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let entries = std::fs::read_dir(&directory).map_err(|e| wrong(&directory, &e))?;
        let mut all = Tables::default();
        for entry in entries {
            let path = entry.map_err(|e| wrong(&directory, &e))?.path();
            if !repository::is_kind(&path, "toml") {
                continue;
            }
            let text = repository::read(&path)?;
            for (name, table) in parse(&text).map_err(|e| wrong(&path, &e))? {
                all.add(name, table).map_err(|e| wrong(&path, &e))?;
            }
            let name = Path::new(DIRECTORY).join(path.file_name().unwrap_or_default());
            all.files.insert(name, text);
        }
        Ok(all)
    }

    /// Adds a table.
    ///
    /// # Errors
    /// If there is one of the name.
    pub fn add(&mut self, name: String, table: FigureTable) -> Result<(), String> {
        match self.tables.insert(name.clone(), table) {
            None => Ok(()),
            Some(_) => Err(format!("two tables {name}")),
        }
    }

    fn table(&self, name: &str) -> Result<&FigureTable, String> {
        self.tables.get(name).ok_or_else(|| format!("no table {name}"))
    }

    /// Returns the names of the tables that choose from others: only pages need them.
    pub fn choices(&self) -> BTreeSet<String> {
        let choices = self.tables.iter().filter(|(_, table)| table.of.is_some());
        choices.map(|(name, _)| name.clone()).collect()
    }

    /// Returns a table as a page has it, with a remark about unit, command and date.
    ///
    /// # Errors
    /// With the row or column that there is not.
    pub fn page(&self, name: &str) -> Result<String, String> {
        let refuse = |why: String| format!("table {name}: {why}");
        let view = self.table(name)?;
        let table = view.of.as_deref().map_or(Ok(view), |of| self.table(of)).map_err(refuse)?;
        let show = if view.show.is_empty() { &table.columns } else { &view.show };
        let columns = show.iter().map(|text| column(table, text));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(refuse)?;
        let mut rows: Vec<&Vec<Value>> = table.rows.iter().collect();
        if !view.pick.is_empty() {
            let picked = view.pick.iter().map(|name| table.row(name));
            rows = picked.collect::<Result<_, _>>().map_err(refuse)?;
        }
        if let Some(only) = &view.only {
            let (name, wanted) = only.split_once(" = ").ok_or_else(|| refuse(only.clone()))?;
            let at = table.column(name).map_err(refuse)?;
            rows.retain(|row| shown(&row[at]) == wanted);
        }
        let titles: Vec<&str> = columns.iter().map(|(title, _)| title.as_str()).collect();
        let (start, bar, end) = if table.dense { ("|", "|", "|") } else { ("| ", " | ", " |") };
        let mut text = format!("\n{start}{}{end}\n{}|\n", titles.join(bar), "|---".repeat(titles.len()));
        for row in rows {
            let cells = columns.iter().map(|(_, column)| match column {
                PageColumn::Cell(0) if table.code => format!("`{}`", shown(&row[0])),
                PageColumn::Cell(at) => shown(&row[*at]),
                PageColumn::Quotient([a, b], digits) => {
                    match [a, b].map(|&at| number(&shown(&row[at]).replace(',', ""))) {
                        [Some(a), Some(b)] if b != 0.0 => format!("{:.*}", *digits, Mean(a / b)),
                        _ => "–".to_owned(),
                    }
                }
            });
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{start}{}{end}", cells.collect::<Vec<_>>().join(bar));
        }
        text += &remark(view, table);
        Ok(text)
    }

    /// Writes a row of a file: cells behind its name, apart by ` | `, of which `_` stay. Returns
    /// the cells as they were, if they differ.
    ///
    /// # Errors
    /// If there is no such row in the file, or if the row has fewer cells.
    pub fn set(&mut self, file: &Path, name: &str, cells: &str) -> Result<Option<String>, String> {
        let (table, row) = name.split_once(": ").ok_or_else(|| format!("{name}: a table and a row"))?;
        let refuse = |why: String| format!("{} table {table}: {why}", file.display());
        let text = self.files.get_mut(file).ok_or_else(|| format!("no file {}", file.display()))?;
        let known = self.tables.get_mut(table).ok_or_else(|| refuse("not there".to_owned()))?;
        let row_at = known.rows.iter().position(|known| shown(&known[0]) == row);
        let row_at = row_at.ok_or_else(|| refuse(format!("no row {row}")))?;
        let before: Vec<String> = known.rows[row_at][1..].iter().map(shown).collect();
        let mut now = before.clone();
        for (at, text) in cells.split(" | ").enumerate().filter(|(_, text)| *text != AS_IT_IS) {
            *now.get_mut(at).ok_or_else(|| refuse(format!("{row}: no cell for {text}")))? = text.to_owned();
        }
        if now == before {
            return Ok(None);
        }
        let name = quoted(row);
        let line =
            format!("    [{name}, {}],", now.iter().map(|text| cell(text)).collect::<Vec<_>>().join(", "));
        let table_at = text.find(&format!("[{table}]\n")).ok_or_else(|| refuse("no heading".to_owned()))?;
        let start = text[table_at..].find(&format!("\n    [{name}, ")).map(|at| table_at + at + 1);
        let start = start.ok_or_else(|| refuse(format!("{row}: not a line of its own")))?;
        let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        text.replace_range(start..end, &line);
        let values = format!("row = {}", line.trim().trim_end_matches(','));
        let mut values = values.parse::<toml::Table>().map_err(|e| refuse(e.to_string()))?;
        if let Some(Value::Array(values)) = values.remove("row") {
            known.rows[row_at] = values;
        }
        Ok(Some(before.join(" | ")))
    }

    /// Returns the cells of a row that a template has, as texts apart by ` | `.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn get(&self, name: &str, template: &str) -> Result<String, String> {
        let (table, row) = name.split_once(": ").ok_or_else(|| format!("{name}: a table and a row"))?;
        let row = self.table(table)?.row(row)?;
        let cells = template.split(" | ").zip(&row[1..]);
        let cells = cells.map(|(part, cell)| if part == AS_IT_IS { part.to_owned() } else { shown(cell) });
        Ok(cells.collect::<Vec<_>>().join(" | "))
    }

    /// Returns the text of a file as it is now.
    ///
    /// # Errors
    /// If it is none of the files.
    pub fn text(&self, file: &Path) -> Result<&str, String> {
        let text = self.files.get(file).map(String::as_str);
        text.ok_or_else(|| format!("{}: no file of {DIRECTORY} has this name", file.display()))
    }

    /// Writes all files.
    ///
    /// # Errors
    /// With the file that cannot be written.
    pub fn write(&self, root: &Path) -> Result<(), String> {
        self.files.iter().try_for_each(|(file, text)| {
            std::fs::write(root.join(file), text).map_err(|e| format!("{}: {e}", file.display()))
        })
    }
}

/// Reads the tables of a file.
fn parse(text: &str) -> Result<BTreeMap<String, FigureTable>, String> {
    let tables: BTreeMap<String, FigureTable> = toml::from_str(text).map_err(|e| e.to_string())?;
    for (name, table) in &tables {
        table.check().map_err(|why| format!("table {name}: {why}"))?;
    }
    Ok(tables)
}

/// Returns a file as one object: each table is an array of its rows, by column.
///
/// # Errors
/// If the text is no file of tables.
pub fn as_json(text: &str) -> Result<serde_json::Value, String> {
    let rows = |table: &FigureTable| {
        let fields = |row: &Vec<Value>| {
            let value = |cell: &Value| serde_json::to_value(cell).unwrap_or_default();
            table.columns.iter().cloned().zip(row.iter().map(value)).collect::<serde_json::Map<_, _>>()
        };
        table.rows.iter().map(fields).collect::<serde_json::Value>()
    };
    Ok(parse(text)?.iter().map(|(name, table)| (name.clone(), rows(table))).collect())
}

/// Returns the lines below a table: unit, date and command.
fn remark(view: &FigureTable, table: &FigureTable) -> String {
    let of = |get: fn(&FigureTable) -> &String| {
        Some(get(view)).filter(|text| !text.is_empty()).unwrap_or(get(table))
    };
    let (unit, measured, command) = (of(|t| &t.unit), of(|t| &t.measured), of(|t| &t.command));
    let said: Vec<&str> =
        [unit, measured].into_iter().filter(|text| !text.is_empty()).map(String::as_str).collect();
    let mut said = said.join("; ");
    if !command.is_empty() {
        said += if said.is_empty() { "By " } else { "; by " };
        said += &format!("`{command}`");
    }
    if said.is_empty() {
        return String::new();
    }
    let mut first = said.chars();
    let said =
        first.next().map_or(String::new(), |c| c.to_uppercase().chain(first).collect::<String>() + ".");
    format!("\n{}\n", wrapped(&said))
}

/// Returns a text in lines of the width of a page.
pub fn wrapped(said: &str) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for word in said.split(' ') {
        let more = word.chars().count();
        if width > 0 {
            let fits = width + 1 + more <= WIDTH;
            text += if fits { " " } else { "\n" };
            width = if fits { width + 1 } else { 0 };
        }
        text += word;
        width += more;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[ours]\nunit = \"instructions\"\ncommand = \"a --json\"\ncolumns = [\"case\", \"linux\", \"own\", \"met\"]\n\
                        rows = [\n    [\"fork\", 65481, 11183, \"met\"],\n    [\"exit\", 46.6, 41.5, \"missed\"],\n]\n\n\
                        [forks]\nof = \"ours\"\npick = [\"fork\"]\nshow = [\"case\", \"Linux = linux\", \"times = linux / own :1\"]\n";

    fn tables() -> Tables {
        let tables = parse(FILE).unwrap();
        Tables { tables, files: BTreeMap::from([(PathBuf::from("figures/a.toml"), FILE.to_owned())]) }
    }

    #[test]
    fn a_page_has_the_columns_and_rows_that_are_chosen() {
        let page = tables().page("forks").unwrap();
        assert_eq!(
            page,
            "\n| case | Linux | times |\n|---|---|---|\n| fork | 65,481 | 5.9 |\n\nInstructions; by `a --json`.\n"
        );
        let whole = tables().page("ours").unwrap();
        assert!(whole.contains("| exit | 46.6 | 41.5 | missed |"), "{whole}");
        let only = FigureTable {
            of: Some("ours".into()),
            only: Some("met = missed".into()),
            ..FigureTable::default()
        };
        let mut all = tables();
        all.add("missed".into(), only).unwrap();
        let page = all.page("missed").unwrap();
        assert!(page.contains("| exit |") && !page.contains("fork"), "{page}");
        assert_eq!(all.choices().into_iter().collect::<Vec<_>>(), ["forks", "missed"]);
    }

    #[test]
    fn a_row_is_written_where_it_stands() {
        let (mut all, file) = (tables(), Path::new("figures/a.toml"));
        assert_eq!(all.get("ours: fork", "_ | {own}").unwrap(), "_ | 11,183");
        assert_eq!(all.set(file, "ours: fork", "_ | 11,183"), Ok(None));
        let before = all.set(file, "ours: fork", "_ | 9,000.5 | 1.50").unwrap();
        assert_eq!(before.as_deref(), Some("65,481 | 11,183 | met"));
        assert_eq!(all.files[file], FILE.replace("11183, \"met\"", "9000.5, \"1.50\""));
        assert_eq!(all.get("ours: fork", "a | b | c").unwrap(), "65,481 | 9,000.5 | 1.50");
        assert!(all.set(file, "ours: vfork", "1").unwrap_err().contains("no row vfork"));
        assert!(all.set(file, "ours: fork", "1 | 2 | 3 | 4").unwrap_err().contains("no cell for 4"));
    }

    #[test]
    fn values_of_a_file_are_found_by_row_and_column() {
        let json = as_json(FILE).unwrap();
        assert_eq!(json["ours"][0]["own"], 11_183);
        assert_eq!(json["ours"][1]["case"], "exit");
    }

    #[test]
    fn a_file_that_is_no_table_is_refused() {
        for (text, why) in [
            ("[a]\ncolumns = [\"x\"]\nrows = [[1, 2]]\n", "2 cells for 1 columns"),
            ("[a]\ncolumns = [\"x\"]\nrows = [[1], [1]]\n", "two rows 1"),
            ("[a]\nclumns = [\"x\"]\n", "unknown field"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        let mut all = tables();
        let unknown =
            FigureTable { of: Some("ours".into()), show: vec!["x = y".into()], ..FigureTable::default() };
        all.add("unknown".into(), unknown).unwrap();
        assert!(all.page("unknown").unwrap_err().contains("no column y"));
        assert!(all.page("other").unwrap_err().contains("no table other"));
        assert!(all.add("ours".into(), FigureTable::default()).is_err());
    }
}
