//! Counts names of tests that are too long to be read in a list, and fails above a limit.
use crate::ceilings::Ceilings;
use crate::outcome;
use crate::repository::{self, Package};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The limit, and the ceilings of packages that are above.
const LIST: &str = "crates/xtask/lists/tests.list";
/// The most characters of a name.
const MOST: usize = 60;

/// A test with a long name.
struct LongTest {
    file: PathBuf,
    line: usize,
    name: String,
}

/// The tests of a package.
#[derive(Default)]
pub struct TestNames {
    count: usize,
    long: Vec<LongTest>,
}

/// The tests of packages, by their directories.
pub type TestsByPackage = BTreeMap<PathBuf, TestNames>;

impl TestNames {
    fn add(&mut self, file: &Path, text: &str) {
        for (line, name) in tests(text) {
            self.count += 1;
            if name.chars().count() > MOST {
                self.long.push(LongTest { file: file.to_owned(), line, name: name.to_owned() });
            }
        }
    }
}

/// Returns the tests that `text` defines, each with its line.
fn tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_test = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim_start();
        is_test |= line.starts_with("#[test]") || line.starts_with("#[rstest]");
        let name = function(line)?;
        std::mem::take(&mut is_test).then_some((at + 1, name))
    })
}

/// Returns the name of the function that begins on a line.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    Some(&rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())])
}

/// Prints the long names of tests below `of`, with their places.
pub fn print(packages: &TestsByPackage, of: &Path) {
    for LongTest { file, line, name } in packages.values().flat_map(|tests| &tests.long) {
        if file.starts_with(of) {
            println!("{name} ({} characters): {}:{line}", name.chars().count(), file.display());
        }
    }
}

/// Prints the number of long names of each package with tests. Returns whether each is within its
/// limit.
///
/// # Errors
///
/// A text that names the line, if the list is malformed.
pub fn check(packages: &TestsByPackage) -> Result<bool, String> {
    let list = Ceilings::read(Path::new(LIST))?;
    println!("\n{:<34} {:>6} {:>8} {:>17}", "tests", "names", "long", "ceiling");
    let row = |name: &str, all: usize, long: usize, ceiling: String| {
        println!("{name:<34} {all:>6} {long:>8} {ceiling:>17}");
    };
    for (directory, tests) in packages {
        let ceiling = list.ceiling(directory).map_or_else(String::new, |ceiling| ceiling.to_string());
        row(&directory.display().to_string(), tests.count, tests.long.len(), ceiling);
    }
    let sum = |of: fn(&TestNames) -> usize| packages.values().map(of).sum();
    row("all", sum(|tests| tests.count), sum(|tests| tests.long.len()), String::new());
    let counts: Vec<_> = packages.iter().map(|(name, tests)| (name.clone(), tests.long.len())).collect();
    Ok(outcome::passed(&list.failures(&counts, &format!("names of tests above {MOST} characters"))))
}

/// Returns the tests of each package that has any, by its directory.
///
/// # Errors
///
/// A text that names the file that cannot be read.
pub fn read(files: &[PathBuf], packages: &[Package]) -> Result<TestsByPackage, String> {
    let mut tests = TestsByPackage::new();
    for (_, file) in repository::sources(files, packages) {
        if let Some(package) = repository::package_of(file, packages) {
            tests.entry(package.directory.clone()).or_default().add(file, &repository::read(file)?);
        }
    }
    tests.retain(|_, tests| tests.count > 0);
    Ok(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_all_kinds_are_found_and_other_functions_are_not() {
        let text = "fn helper() {}\n\x20   #[test]\n    #[ignore]\n    fn one() {}\n#[rstest]\n#[case(1)]\n\
                    pub fn two(#[case] n: u8) {}\nfn other() {}\n#[test]\nasync fn three() {}\n";
        assert_eq!(tests(text).collect::<Vec<_>>(), [(4, "one"), (7, "two"), (10, "three")]);
    }

    #[test]
    fn a_name_is_long_above_sixty_characters() {
        let mut names = TestNames::default();
        for length in [MOST, MOST + 1] {
            names.add(Path::new("a.rs"), &format!("#[test]\nfn {}() {{}}\n", "x".repeat(length)));
        }
        assert_eq!((names.count, names.long.len()), (2, 1));
        assert_eq!((names.long[0].line, names.long[0].name.len()), (2, 61));
    }
}
