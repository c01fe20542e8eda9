//! Reads `crates/ptarmigan-cli/record-set/set.toml`: the programs of the set.
use crate::repository;
use crate::tools::{Tool, unknown};
use serde::Deserialize;
use std::path::Path;

/// A recording of the set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRow {
    /// Its name, which its figures have in `figures/price`.
    pub name: String,
    /// The program. Its extension says how it is built and run.
    pub file: String,
    /// Arguments of the program.
    #[serde(default)]
    pub with: Vec<String>,
    /// Names of needs.
    #[serde(default)]
    pub needs: Vec<String>,
}

/// The table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSet {
    /// The needs.
    #[serde(default)]
    pub need: Vec<Tool>,
    /// The recordings, in the order in which they are made.
    pub recording: Vec<SetRow>,
}

impl RecordSet {
    /// Reads the table at `path`.
    ///
    /// # Errors
    /// A text that names the file and the row, if it cannot be read or is malformed.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = repository::read(path)?;
        Self::parse(&text).map_err(|err| format!("{}: {err}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let set: RecordSet = toml::from_str(text).map_err(|err| err.to_string())?;
        for (at, recording) in set.recording.iter().enumerate() {
            let name = &recording.name;
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(format!("recording {name:?}: a name has small letters, digits and -"));
            }
            if set.recording[..at].iter().any(|other| other.name == *name) {
                return Err(format!("recording {name}: there are two of this name"));
            }
            if let Some(fault) = unknown(&set.need, &recording.needs) {
                return Err(format!("recording {name}: {fault}"));
            }
        }
        Ok(set)
    }

    /// Returns the recordings that are named in `only`, or all if it is empty.
    ///
    /// # Errors
    /// If a name is no recording's.
    pub fn chosen(&self, only: &[String]) -> Result<Vec<&SetRow>, String> {
        let has = |name: &String| self.recording.iter().any(|recording| recording.name == *name);
        match only.iter().find(|name| !has(name)) {
            Some(name) => Err(format!("--only {name}: no recording of the set has this name")),
            None => {
                let wanted = |recording: &&SetRow| only.is_empty() || only.contains(&recording.name);
                Ok(self.recording.iter().filter(wanted).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_set::{HOME, LIST};
    use std::collections::BTreeSet;

    fn home() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(HOME)
    }

    #[test]
    fn each_program_is_in_the_table_and_says_its_load() {
        let set = RecordSet::read(&home().join(LIST)).unwrap();
        let mut files: BTreeSet<String> = set.recording.iter().map(|row| row.file.clone()).collect();
        for file in &files {
            let text = std::fs::read_to_string(home().join(file)).unwrap();
            assert!(text.lines().take(3).any(|line| line.contains("Load: ")), "{file}");
        }
        files.insert(LIST.to_owned());
        let found = std::fs::read_dir(home()).unwrap().flatten();
        assert_eq!(files, found.map(|f| f.file_name().to_string_lossy().into_owned()).collect());
    }

    #[test]
    fn malformed_rows_are_named() {
        let parse = |rows: &str| RecordSet::parse(rows).map(|set| set.recording.len());
        let row = "[[recording]]\nname = \"a\"\nfile = \"a.sh\"\n";
        assert_eq!(parse(row), Ok(1));
        for (text, part) in [
            (format!("{row}{row}"), "recording a: there are two of this name"),
            (format!("{row}needs = [\"go\"]"), "recording a: its need go"),
            (format!("{row}when = 1"), "when"),
            (row.replace("\"a\"", "\"a/b\""), "a name has small letters"),
        ] {
            let err = parse(&text).unwrap_err();
            assert!(err.contains(part), "{err}");
        }
    }

    #[test]
    fn recordings_are_chosen_by_name() {
        let row = |name: &str| format!("[[recording]]\nname = \"{name}\"\nfile = \"a.sh\"\n");
        let set = RecordSet::parse(&(row("a") + &row("b"))).unwrap();
        let chosen = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            set.chosen(&only).map(|all| all.iter().map(|row| row.name.clone()).collect::<String>())
        };
        assert_eq!((chosen(&[]).unwrap(), chosen(&["b"]).unwrap()), ("ab".to_owned(), "b".to_owned()));
        assert_eq!(chosen(&["c"]).unwrap_err(), "--only c: no recording of the set has this name");
    }
}
