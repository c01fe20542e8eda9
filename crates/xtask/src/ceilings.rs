//! Reads limits of counts, and ceilings of counts above their limits: a ceiling may only fall.
use crate::repository;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A list of limits and ceilings.
#[derive(Debug, Default)]
pub struct Ceilings {
    list: PathBuf,
    /// Kinds, each with its limit.
    limits: Vec<(String, usize)>,
    /// Paths of each kind.
    kinds: Vec<(PathBuf, String)>,
    /// The line and the ceiling of each path that is above its limit.
    ceilings: BTreeMap<PathBuf, (usize, usize)>,
}

impl Ceilings {
    /// Reads the list at `path`.
    ///
    /// # Errors
    ///
    /// A text that names the line, if the file cannot be read or a line is not of the three kinds.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = repository::read(path)?;
        Self::parse(path, &text).map_err(|err| format!("{}:{err}", path.display()))
    }

    fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let mut list = Self { list: path.to_owned(), ..Self::default() };
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let refuse = || format!("{}: neither `limit`, `kind` nor `ceiling`: {line}", at + 1);
            let number = |n: &str| n.parse().map_err(|_| refuse());
            match words.as_slice() {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                ["limit", kind, most] => list.limits.push(((*kind).to_owned(), number(most)?)),
                ["kind", kind, paths @ ..] if list.limits.iter().any(|(known, _)| known == kind) => {
                    list.kinds.extend(paths.iter().map(|path| (path.into(), (*kind).to_owned())));
                }
                ["ceiling", most, path] => {
                    list.ceilings.insert(path.into(), (at + 1, number(most)?));
                }
                _ => return Err(refuse()),
            }
        }
        Ok(list)
    }

    /// Returns the kind of `path`, which is that of the nearest directory above it, and its limit.
    pub fn limit(&self, path: &Path) -> Option<(&str, usize)> {
        let of = self.kinds.iter().filter(|(above, _)| path.starts_with(above));
        let (_, kind) = of.max_by_key(|(above, _)| above.components().count())?;
        self.limits.iter().find(|(known, _)| known == kind).map(|(kind, most)| (kind.as_str(), *most))
    }

    /// Returns the ceiling of `path`.
    pub fn ceiling(&self, path: &Path) -> Option<usize> {
        self.ceilings.get(path).map(|&(_, most)| most)
    }

    /// Returns the counts that are wrong: above the ceiling or the limit, or so much below the
    /// ceiling that it has to fall. `unit` is the words behind a number.
    pub fn failures(&self, counts: &[(PathBuf, usize)], unit: &str) -> Vec<String> {
        let list = self.list.display();
        let mut failures = Vec::new();
        for (path, count) in counts {
            let name = path.display();
            let Some((kind, limit)) = self.limit(path) else {
                failures.push(format!("{name}: has no kind; add it to a line `kind` of {list}"));
                continue;
            };
            match self.ceilings.get(path) {
                None if *count > limit => {
                    failures.push(format!("{name}: {count} {unit}; cut to {limit}, the limit of `{kind}`"));
                }
                None => {}
                Some((line, ceiling)) if count > ceiling => {
                    failures.push(format!("{name}: {count} {unit}; cut to {ceiling} ({list}:{line})"));
                }
                Some((line, _)) if *count <= limit => {
                    failures.push(format!("{list}:{line}: {name} has {count} {unit}; remove the line"));
                }
                Some((line, ceiling)) if count * 10 < ceiling * 9 => {
                    failures
                        .push(format!("{list}:{line}: {name} has {count} {unit}; lower the ceiling to that"));
                }
                Some(_) => {}
            }
        }
        for (path, (line, _)) in &self.ceilings {
            if !counts.iter().any(|(known, _)| known == path) {
                failures.push(format!("{list}:{line}: there is no {}; remove the line", path.display()));
            }
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "# x\nlimit guide 100\nlimit all 900\n\nkind guide a b/c\nkind all .\nceiling 200 a/x\n";

    fn failures(counts: &[(&str, usize)]) -> Vec<String> {
        let list = Ceilings::parse(Path::new("l"), LIST).unwrap();
        let counts: Vec<_> = counts.iter().map(|(path, count)| (PathBuf::from(path), *count)).collect();
        list.failures(&counts, "words")
    }

    #[test]
    fn a_count_within_its_limit_or_ceiling_passes() {
        let passing: [&[(&str, usize)]; 3] =
            [&[("a/x", 200), ("a/y", 100)], &[("a/x", 180), ("b/c", 0)], &[("a/x", 181), (".", 900)]];
        for counts in passing {
            assert_eq!(failures(counts), [""; 0], "{counts:?}");
        }
    }

    #[test]
    fn a_count_above_its_limit_or_ceiling_fails() {
        let text = "a/y: 101 words; cut to 100, the limit of `guide`";
        assert_eq!(failures(&[("a/x", 200), ("a/y", 101)]), [text]);
        assert_eq!(failures(&[("a/x", 201)]), ["a/x: 201 words; cut to 200 (l:7)"]);
        assert_eq!(failures(&[("a/x", 200), (".", 901)]).len(), 1);
    }

    #[test]
    fn a_ceiling_that_is_too_high_fails() {
        assert_eq!(failures(&[("a/x", 179)]), ["l:7: a/x has 179 words; lower the ceiling to that"]);
        assert_eq!(failures(&[("a/x", 100)]), ["l:7: a/x has 100 words; remove the line"]);
        assert_eq!(failures(&[]), ["l:7: there is no a/x; remove the line"]);
    }

    #[test]
    fn a_path_without_a_kind_fails() {
        assert!(failures(&[("a/x", 200), ("b/d", 1)])[0].starts_with("b/d: has no kind"));
    }

    #[test]
    fn the_nearest_directory_gives_the_kind() {
        let text = "limit low 1\nlimit high 2\nkind low a a/b/c.md\nkind high a/b";
        let list = Ceilings::parse(Path::new("l"), text).unwrap();
        let limits = ["a/x", "a/b/x", "a/b/c.md", "b"].map(|path| list.limit(Path::new(path)));
        assert_eq!(limits, [Some(("low", 1)), Some(("high", 2)), Some(("low", 1)), None]);
    }

    #[test]
    fn malformed_lines_are_named() {
        for text in ["limit x", "limit x y", "kind x a", "ceiling a 1", "else"] {
            let err = Ceilings::parse(Path::new("l"), &format!("\n{text}")).unwrap_err();
            assert!(err.starts_with("2: "), "{err}");
        }
    }
}
