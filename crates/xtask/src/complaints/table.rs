//! Reads `crates/ptarmigan-cli/complaints/cases.toml`: programs, and the answers that are right.
use crate::repository;
use crate::tools::{Tool, unknown};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// The answer of a program that no advice helps.
pub const NONE: &str = "none";
/// Kinds of advice to a program.
const KINDS: [&str; 15] = [
    "huge-pages",
    "shared-memory",
    "pooler",
    "vfork",
    "fork-memory",
    "empty-tables",
    "sparse-layout",
    "arenas",
    "churn",
    "growth",
    "protect",
    "sharing-lost",
    "subshells",
    "starts",
    "userfault",
];

/// A complaint, and the answer that is right.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The program. Its extension says how it is built and run.
    pub file: String,
    /// The complaint, in the words of a person who runs the program.
    pub symptom: String,
    /// The kind of the piece that must come first, or `none`.
    pub first: String,
    /// Kinds that must not come at all, because the change does not help or makes it worse.
    #[serde(default)]
    pub never: Vec<String>,
    /// A text that the way to do it must have.
    #[serde(default)]
    pub says: Option<String>,
    /// The compiler of a C program and its options.
    #[serde(default)]
    pub build: Option<String>,
    /// Arguments, or variables as `NAME=VALUE`, with which the program shows the complaint.
    #[serde(default)]
    pub with: Vec<String>,
    /// The same for the cured program. Without any, no second recording is made.
    #[serde(default)]
    pub cure: Vec<String>,
    /// Whether the prediction of the first piece must hold.
    #[serde(default)]
    pub held: bool,
    /// Names of needs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Whether each change has to pass it; all are nightly.
    #[serde(default)]
    pub change: bool,
    /// Why the command does not give the right answer today, if it does not.
    #[serde(default)]
    pub open: Option<String>,
}

/// The table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// The needs.
    #[serde(default)]
    pub need: Vec<Tool>,
    /// The cases, in the order in which they run.
    pub case: Vec<Case>,
}

impl Case {
    /// The name: that of the file, without its extension.
    pub fn name(&self) -> &str {
        self.file.split_once('.').map_or(self.file.as_str(), |(name, _)| name)
    }

    /// Returns the first fault of the row, if it has one.
    fn fault(&self, table: &Cases) -> Option<String> {
        let known = |kind: &String| KINDS.contains(&kind.as_str());
        if self.first != NONE && !known(&self.first) {
            return Some(format!("first: {} is no kind of advice and not {NONE}", self.first));
        }
        if let Some(kind) = self.never.iter().find(|kind| !known(kind) || **kind == self.first) {
            return Some(format!("never: {kind} is no kind of advice, or is the right one"));
        }
        if self.held && (self.cure.is_empty() || self.first == NONE) {
            return Some("held: there is no prediction without advice and a cure".to_owned());
        }
        unknown(&table.need, &self.needs)
    }
}

impl Cases {
    /// Reads the table at `path`.
    ///
    /// # Errors
    /// A text that names the file and the row, if it cannot be read or is malformed.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = repository::read(path)?;
        Self::parse(&text).map_err(|err| format!("{}: {err}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: Cases = toml::from_str(text).map_err(|err| err.to_string())?;
        let mut names = BTreeSet::new();
        for case in &table.case {
            if !names.insert(case.name()) {
                return Err(format!("case {}: there are two of this name", case.name()));
            }
            if let Some(fault) = case.fault(&table) {
                return Err(format!("case {}: {fault}", case.name()));
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::complaints::{HOME, LIST};

    fn parse(row: &str) -> Result<Cases, String> {
        Cases::parse(&format!("[[case]]\nfile = \"a.c\"\nsymptom = \"slow\"\n{row}"))
    }

    #[test]
    fn each_program_has_its_row() {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(HOME);
        let table = Cases::read(&home.join(LIST)).unwrap();
        let rows: BTreeSet<String> = table.case.iter().map(|case| case.file.clone()).collect();
        let files = std::fs::read_dir(&home).unwrap().flatten();
        let files: BTreeSet<String> = files.map(|f| f.file_name().to_string_lossy().into_owned()).collect();
        let others = [LIST, "complaint.h"].map(str::to_owned);
        assert_eq!(files, rows.into_iter().chain(others).collect());
    }

    #[test]
    fn programs_are_short_and_name_their_threads() {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(HOME);
        for case in Cases::read(&home.join(LIST)).unwrap().case {
            let text = std::fs::read_to_string(home.join(&case.file)).unwrap();
            assert!(text.lines().count() <= 80, "{}", case.file);
            for part in ["Symptom: ", "Cure: ", "Thread"] {
                assert!(text.contains(part), "{}: {part}", case.file);
            }
        }
    }

    #[test]
    fn the_page_says_which_cases_are_open() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = std::fs::read_to_string(root.join("docs/complaints.md")).unwrap();
        let (answered, open) = page.split_once("## Not answered yet").unwrap_or((&page, ""));
        for case in Cases::read(&root.join(HOME).join(LIST)).unwrap().case {
            let part = if case.open.is_some() { open } else { answered };
            let named = part.lines().any(|l| l.starts_with('|') && l.contains(&format!("`{}`", case.name())));
            assert!(named, "{}: its row is missing, or in the wrong part", case.name());
        }
    }

    #[test]
    fn malformed_rows_are_named() {
        assert!(parse("first = \"none\"\n").is_ok());
        for (row, part) in [
            ("first = \"faster\"", "case a: first: faster"),
            ("first = \"vfork\"\nnever = [\"vfork\"]", "never: vfork"),
            ("first = \"none\"\nheld = true\ncure = [\"x\"]", "held: "),
            ("first = \"none\"\nneeds = [\"go\"]", "its need go"),
            ("first = \"none\"\nwhen = 1", "when"),
            (
                "first = \"none\"\n[[case]]\nfile = \"a.py\"\nsymptom = \"\"\nfirst = \"none\"",
                "two of this name",
            ),
        ] {
            let err = parse(row).unwrap_err();
            assert!(err.contains(part), "{err}");
        }
    }
}
