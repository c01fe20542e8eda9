//! The list of mutants that no test can tell from the code.
use super::source::Mutant;
use std::collections::BTreeMap;
use std::str::FromStr;

/// A mutant that does the same as the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    file: String,
    function: String,
    change: String,
    /// The text of its line, which tells it from others of the function.
    line: String,
    reason: String,
}

impl Entry {
    /// Whether it is about this mutant.
    pub fn names(&self, mutant: &Mutant) -> bool {
        (&self.file, &self.function, &self.change, &self.line)
            == (&mutant.file, &mutant.function, &mutant.change, &mutant.text)
    }

    /// Returns the text by which a list names a mutant.
    pub fn of(mutant: &Mutant) -> String {
        let Mutant { file, function, change, text, .. } = mutant;
        format!("file: {file}\nfunction: {function}\nchange: {change}\nline: {text}\nreason:")
    }
}

/// The list: entries with an empty line between them. Lines that begin with `#` are comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List(pub Vec<Entry>);

impl List {
    /// Whether a mutant is equivalent to the code.
    pub fn has(&self, mutant: &Mutant) -> bool {
        self.0.iter().any(|entry| entry.names(mutant))
    }

    /// Returns an entry of these files that names no mutant: its line has changed.
    pub fn stale(&self, all: &[Mutant], files: &BTreeMap<String, String>) -> Option<&Entry> {
        let mut entries = self.0.iter().filter(|entry| files.contains_key(&entry.file));
        entries.find(|entry| !all.iter().any(|mutant| entry.names(mutant)))
    }
}

impl FromStr for List {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut list = List::default();
        let mut entry: Option<Entry> = None;
        for (n, line) in text.lines().chain([""]).enumerate() {
            let bad = |why: &str| format!("line {}: {why}: {line}", n + 1);
            if line.starts_with('#') {
                continue;
            }
            if line.trim().is_empty() {
                let Some(entry) = entry.take() else { continue };
                let Entry { file, function, change, line: text, reason } = &entry;
                if [file, function, change, text, reason].iter().any(|field| field.is_empty()) {
                    return Err(bad("the entry above lacks one of file, function, change, line and reason"));
                }
                list.0.push(entry);
                continue;
            }
            let (key, value) = line.split_once(": ").ok_or_else(|| bad("no field"))?;
            let entry = entry.get_or_insert_default();
            let field = match key {
                "file" => &mut entry.file,
                "function" => &mut entry.function,
                "change" => &mut entry.change,
                "line" => &mut entry.line,
                "reason" => &mut entry.reason,
                _ => return Err(bad("no such field")),
            };
            if !field.is_empty() {
                return Err(bad("a second time"));
            }
            *field = value.trim().to_owned();
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_all_fields_and_a_reason() {
        let one = "# a comment\nfile: a.rs\nfunction: f\nchange: replace | with ^\nline: a | b\nreason: no bit is in both\n";
        let list: List = format!("{one}\n\n{one}").parse().expect("fine");
        assert_eq!((list.0.len(), &list.0[0]), (2, &list.0[1]));
        assert_eq!(
            (list.0[0].change.as_str(), list.0[0].reason.as_str()),
            ("replace | with ^", "no bit is in both")
        );
        for bad in [
            "file: a.rs",
            "file: a.rs\nfile: b.rs",
            "x: y",
            "file",
            &one.replace("reason: no bit is in both\n", ""),
        ] {
            assert!(bad.parse::<List>().is_err(), "{bad}");
        }
        assert!("".parse::<List>().expect("empty").0.is_empty());
    }
}
