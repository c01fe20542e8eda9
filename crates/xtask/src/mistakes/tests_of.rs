//! Looks for the tests that a mistake names in the sources of their package.
use super::list::Mistake;
use crate::tokens::tokens;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The words of sources, by their directory.
pub struct Sources<'r> {
    root: &'r Path,
    words: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl<'r> Sources<'r> {
    /// Reads sources below the root of the workspace.
    pub fn new(root: &'r Path) -> Self {
        Sources { root, words: BTreeMap::new() }
    }

    /// Checks that the executable is there, and that the tests of its package have a word that
    /// begins as the test's name does: a macro, which may be in another file, may make the rest.
    ///
    /// # Errors
    ///
    /// There is no such executable, or no such word.
    pub fn check(&mut self, mistake: &Mistake) -> Result<(), String> {
        let Mistake { place, executable, tests, .. } = mistake;
        let Some(directory) = self.directory(executable) else {
            return Err(format!(
                "{place}: there is no test executable {executable}; correct the line test: or only:"
            ));
        };
        let words = self.words.entry(directory).or_insert_with_key(|directory| {
            let mut words = BTreeSet::new();
            read(directory, &mut words);
            words
        });
        let is_there = |test: &String| {
            let (modules, name) = test.rsplit_once("::").unwrap_or(("", test));
            modules.split("::").all(|module| module.is_empty() || words.contains(module))
                && words.range(name.to_owned()..).next().is_some_and(|word| word.starts_with(name))
        };
        match tests.iter().find(|test| !is_there(test)) {
            Some(test) => {
                Err(format!("{place}: {executable} has no test {test}; correct the line test: or only:"))
            }
            None => Ok(()),
        }
    }

    /// Returns the directory of the executable's sources, if it is there.
    fn directory(&self, executable: &str) -> Option<PathBuf> {
        let (package, target) = executable.split_once('/')?;
        let directory = self.root.join("crates").join(match package {
            "ptarmigan-tests" => "ptarmigan/tests",
            "ptarmigan-ptsan-tests" => "ptarmigan-ptsan/tests",
            other => other,
        });
        if target == "lib" {
            return Some(directory.join("src")).filter(|directory| directory.exists());
        }
        let has = |tests: &PathBuf| {
            tests.join(target).join("main.rs").exists() || tests.join(format!("{target}.rs")).exists()
        };
        [directory.join("tests"), directory].into_iter().find(has)
    }
}

/// Reads the words of a file, or of all files below a directory.
fn read(place: &Path, into: &mut BTreeSet<String>) {
    if let Ok(entries) = fs::read_dir(place) {
        entries.flatten().for_each(|entry| read(&entry.path(), into));
    } else if place.extension().is_some_and(|extension| extension == "rs")
        && let Ok(text) = fs::read_to_string(place)
    {
        into.extend(tokens(&text).iter().map(|token| token.text.to_owned()));
        into.extend(place.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::parse;
    use super::*;

    #[test]
    fn a_test_that_is_gone_is_named_with_its_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let checked = |test: &str| {
            let text = format!("## one\nfile: x.rs\n{test}\n-a\n");
            Sources::new(&root).check(&parse("models/l", &text).expect("fine")[0])
        };
        for test in [
            "test: ptarmigan-tests/all invariants::i1_",
            "test: ptarmigan-tests/all owners::",
            "test: ptarmigan/lib frames::reserve::models::models_of",
            "only: ptsan/museum amdgpu_gart bao_new_page",
        ] {
            assert_eq!(checked(test), Ok(()), "{test}");
        }
        for (test, said) in [
            ("test: ptarmigan-tests/all invariants::i99_", "has no test invariants::i99_"),
            ("test: ptarmigan-tests/all no_such_module::i1_", "has no test no_such_module::i1_"),
            ("only: ptsan/museum amdgpu_gart no_such_test", "has no test no_such_test"),
            ("test: ptarmigan-tests/none a", "there is no test executable ptarmigan-tests/none"),
        ] {
            let why = checked(test).expect_err("gone");
            assert!(why.starts_with("models/l:1: ") && why.contains(said), "{why}");
        }
    }
}
