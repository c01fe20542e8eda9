//! Reads `lists/prose.list`: the words that are counted, their limits, and the gated paths.
use crate::repository;
use std::path::{Path, PathBuf};

/// Words that are counted together.
#[derive(Debug)]
pub struct Limit {
    /// The words, in lower case.
    pub words: Vec<String>,
    /// How many of them 10,000 words may have.
    pub most: u32,
}

/// The list.
#[derive(Debug, Default)]
pub struct List {
    /// The limits.
    pub limits: Vec<Limit>,
    /// First words that the documentation of a module must not begin with, in lower case.
    pub first: Vec<String>,
    /// The parts that are counted and printed: a name, and the files or directories.
    pub parts: Vec<Part>,
}

/// Files that are counted together.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The name.
    pub name: String,
    /// Whether the limits hold for them.
    pub gated: bool,
    /// Files and directories, relative to the workspace.
    pub paths: Vec<PathBuf>,
}

impl List {
    /// Reads the list at `path`.
    ///
    /// # Errors
    ///
    /// A text that names the line, if the file cannot be read or a line is not of the four kinds.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = repository::read(path)?;
        Self::parse(&text).map_err(|err| format!("{}:{err}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut list = Self::default();
        for (at, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace().map(str::to_owned);
            let wrong = |reason: &str| format!("{}: {reason}: {line}", at + 1);
            match words.next().as_deref() {
                Some("limit") => {
                    let most = words.next().and_then(|most| most.parse().ok());
                    let most = most.ok_or_else(|| wrong("`limit` takes a number and words"))?;
                    list.limits.push(Limit { most, words: words.collect() });
                }
                Some("first") => list.first.extend(words),
                Some(kind @ ("gate" | "count")) => {
                    let name = words.next().ok_or_else(|| wrong("a name and paths are missing"))?;
                    let paths: Vec<_> = words.map(PathBuf::from).collect();
                    if paths.is_empty() {
                        return Err(wrong("no path"));
                    }
                    list.parts.push(Part { name, gated: kind == "gate", paths });
                }
                Some(comment) if comment.starts_with('#') => {}
                None => {}
                Some(_) => return Err(wrong("neither `limit`, `first`, `gate` nor `count`")),
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_limits_first_words_and_parts() {
        let list = List::parse("# x\n\nlimit 20 a b\nfirst how\ngate core a/src\ncount all b c").unwrap();
        assert_eq!((list.limits[0].most, list.limits[0].words.join(" ")), (20, "a b".to_owned()));
        assert_eq!(list.first, ["how"]);
        assert_eq!((list.parts[0].gated, list.parts[1].gated), (true, false));
        assert_eq!(list.parts[1].paths, [PathBuf::from("b"), PathBuf::from("c")]);
    }

    #[test]
    fn malformed_lines_are_named() {
        for (text, part) in
            [("\nlimit x y", "2: "), ("gate core", "no path"), ("gate", "missing"), ("what 20", "neither")]
        {
            let err = List::parse(text).unwrap_err();
            assert!(err.contains(part), "{err}");
        }
    }
}
