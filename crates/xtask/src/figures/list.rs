//! The list of figures: blocks of lines, apart by an empty one.
//!
//! ```text
//! times 2026-11-25, AMD EPYC
//! quick ptarmigan-papers flush --json
//!
//! [2001] flush of a page, hash bit clear
//! says: 110 ns
//! run: ptarmigan-papers flush --json
//! count: {rows(case=page-unhashed).value :1} ns
//! here: 110.0 ns
//! why: the price itself
//!
//! [figures/history.toml] kept: 8
//! run: ptarmigan-papers imbalance --json
//! count: _ | {rows(cpus=8,policy=v5).kept_kib}
//!
//! [README.md] events of the compile
//! run: ptarmigan replay traces/compile.ptrace --json
//! count: {trace.events} events
//! here: 3,911,524 events
//! ```
//!
//! A number after a colon is that of digits behind the point; `:plain` leaves commas out.
//! `count` is compared exactly; `near`, for instructions, which move a little with every change, is
//! compared within 2 %. `time` is a median of runs with their least and most. A figure that
//! no command prints has neither, and says in `why` where it is from. A block of a page has no row
//! in docs/figures.md: its `here` is a part of that page. A block of a file of tables is named by a
//! table and a row, and is kept there: it has the row's cells, of which `_` are not its own.
use super::table::FigureTable;
use std::fmt::Write as _;
use std::path::Path;

/// How a figure is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It comes out the same every time.
    Count,
    /// It comes out the same of the same program, and moves a little with changes.
    Near,
    /// It depends on the machine and the minute.
    Time,
    /// No command prints it.
    Said,
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The document, or the file that has `here` in it.
    pub group: String,
    pub name: String,
    /// The words of the document.
    pub says: String,
    /// The command; empty if the figure has no command.
    pub run: String,
    /// The text around the values, with an expression for each.
    pub template: String,
    pub kind: Kind,
    /// The text as it was the last time.
    pub here: String,
    pub why: String,
}

impl Figure {
    /// Returns the page that the figure is a part of, if it is of one.
    pub fn file(&self) -> Option<&Path> {
        self.group.ends_with(".md").then(|| Path::new(&self.group))
    }

    /// Returns the file of tables that keeps the figure, if one does.
    pub fn data(&self) -> Option<&Path> {
        self.group.ends_with(".toml").then(|| Path::new(&self.group))
    }

    /// Returns the file of tables that the figure is made of, if it is.
    pub fn source(&self) -> Option<&Path> {
        self.run.strip_prefix("cat ").filter(|file| file.ends_with(".toml")).map(Path::new)
    }

    fn is_of_document(&self) -> bool {
        self.file().is_none() && self.data().is_none()
    }
}

/// The list.
pub struct List {
    /// Comment at its beginning, kept as it is.
    head: Vec<String>,
    /// When and where times were taken.
    pub times: String,
    /// Commands that take a few seconds.
    pub quick: Vec<String>,
    pub figures: Vec<Figure>,
}

impl List {
    /// Reads the list.
    ///
    /// # Errors
    /// With the line that does not belong to a list.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut list =
            List { head: Vec::new(), times: String::new(), quick: Vec::new(), figures: Vec::new() };
        for (at, line) in text.lines().enumerate() {
            let refuse = |why: &str| format!("line {}: {why}: {line}", at + 1);
            if line.is_empty() {
                continue;
            }
            if line.starts_with('#') {
                list.head.push(line.to_owned());
            } else if let Some(times) = line.strip_prefix("times ") {
                list.times = times.to_owned();
            } else if let Some(command) = line.strip_prefix("quick ") {
                list.quick.push(command.to_owned());
            } else if let Some(rest) = line.strip_prefix('[') {
                let (group, name) =
                    rest.split_once("] ").ok_or_else(|| refuse("no `] ` after the document"))?;
                let (group, name) = (group.to_owned(), name.to_owned());
                list.figures.push(Figure {
                    group,
                    name,
                    says: String::new(),
                    run: String::new(),
                    template: String::new(),
                    kind: Kind::Said,
                    here: String::new(),
                    why: String::new(),
                });
            } else {
                let (field, value) = line.split_once(": ").ok_or_else(|| refuse("no field"))?;
                let figure = list.figures.last_mut().ok_or_else(|| refuse("a field of no figure"))?;
                let value = value.to_owned();
                match field {
                    "says" => figure.says = value,
                    "run" => figure.run = value,
                    "count" => (figure.template, figure.kind) = (value, Kind::Count),
                    "near" => (figure.template, figure.kind) = (value, Kind::Near),
                    "time" => (figure.template, figure.kind) = (value, Kind::Time),
                    "here" => figure.here = value,
                    "why" => figure.why = value,
                    _ => return Err(refuse("no field of a figure")),
                }
            }
        }
        for figure in &list.figures {
            let Figure { group, name, .. } = figure;
            if (figure.kind == Kind::Said) != figure.run.is_empty() {
                return Err(format!("[{group}] {name}: a command, and how its output is shown, or neither"));
            }
            if figure.data().is_some() && !figure.here.is_empty() {
                return Err(format!("[{group}] {name}: `here` stands in the file alone"));
            }
            if figure.is_of_document() && (figure.says.is_empty() || figure.why.is_empty()) {
                return Err(format!("[{group}] {name}: `says` and `why` belong to a figure of a document"));
            }
        }
        Ok(list)
    }

    /// Returns the list as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.head.iter().for_each(|line| text += &format!("{line}\n"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\ntimes {}", self.times);
        self.quick.iter().for_each(|command| text += &format!("quick {command}\n"));
        for figure in &self.figures {
            let _ = writeln!(text, "\n[{}] {}", figure.group, figure.name);
            let template = match figure.kind {
                Kind::Count => "count",
                Kind::Near => "near",
                Kind::Time => "time",
                Kind::Said => "",
            };
            let fields = [
                ("says", &figure.says),
                ("run", &figure.run),
                (template, &figure.template),
                ("here", &figure.here),
                ("why", &figure.why),
            ];
            for (field, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
                let _ = writeln!(text, "{field}: {value}");
            }
        }
        text
    }

    /// Returns the documents of docs/figures.md, in order.
    pub fn documents(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for figure in self.figures.iter().filter(|figure| figure.is_of_document()) {
            if !all.contains(&figure.group.as_str()) {
                all.push(&figure.group);
            }
        }
        all
    }

    /// Returns the table of a document.
    pub fn table(&self, document: &str) -> FigureTable {
        let figures = self.figures.iter().filter(|figure| figure.group == document);
        let rows = figures.map(|figure| {
            let command = match figure.run.strip_suffix(" --json").unwrap_or(&figure.run) {
                "" => "–".to_owned(),
                command => format!("`{command}`"),
            };
            let Figure { name, says, here, why, .. } = figure.clone();
            vec![name, says, here, command, why]
        });
        FigureTable::of_texts(&["figure", "document", "here", "command", "why it differs"], rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Tables;
    use super::*;

    const LIST: &str = "# Figures.\n\ntimes today\nquick a --json\n\n[2001] a page\nsays: 110 ns\nrun: a --json\ncount: \
                        {value} ns\nhere: 110 ns\nwhy: the price\n\n[docs/a.md] a line\nrun: b\ncount: {x}\nhere: 5\n";

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let list = List::parse(LIST).unwrap();
        assert_eq!(list.text(), LIST);
        assert_eq!(list.documents(), ["2001"]);
        let mut tables = Tables::default();
        tables.add("2001".to_owned(), list.table("2001")).unwrap();
        assert!(tables.page("2001").unwrap().ends_with("| a page | 110 ns | 110 ns | `a` | the price |\n"));
        assert_eq!(list.figures[1].file(), Some(Path::new("docs/a.md")));
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_line() {
        for (text, why) in [
            ("says: 5\n", "line 1: a field of no figure"),
            ("[2001 x\n", "line 1: no `] `"),
            ("[2001] x\nsaid: 5\n", "line 2: no field of a figure"),
            ("[2001] x\nsays: 5\nwhy: y\nrun: a\n", "a command, and how"),
            ("[2001] x\nhere: 5\n", "`says` and `why`"),
            ("[a.toml] x: y\nrun: a\ncount: {b}\nhere: 5\n", "in the file alone"),
        ] {
            let refused = List::parse(text).err().unwrap_or_default();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
