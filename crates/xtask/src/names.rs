//! Counts type names that are defined more than once in a crate, and long names of tests, and fails
//! above a limit.
use crate::ceilings::Ceilings;
use crate::lines::{LineKind, kinds};
use crate::outcome;
use crate::repository::{self, Package};
use crate::test_names;
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The limit, and the ceilings of crates that are above.
const LIST: &str = "crates/xtask/lists/names.list";
/// Directories whose crates are counted together, too, as the first: they are in one image.
const TOGETHER: [&str; 2] = ["kernels", "linux"];

/// Arguments of `names`.
#[derive(Args)]
pub struct NamesArgs {
    /// Prints the types that the crates below define more than once, and tests with long names.
    #[arg(value_name = "DIRECTORY")]
    of: Option<PathBuf>,
}

/// The places of each type name. Definitions of one file that conditions choose from are one.
#[derive(Default)]
struct Names(BTreeMap<String, Vec<Place>>);

/// A definition.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    file: PathBuf,
    line: usize,
    /// Whether a condition precedes it.
    has_condition: bool,
}

impl Names {
    /// Adds the types that `text` defines outside of tests.
    fn add(&mut self, file: &Path, text: &str) {
        let mut has_condition = false;
        for (at, (line, kind)) in kinds(text, repository::is_test(file)).enumerate() {
            if kind != LineKind::Code {
                continue;
            }
            if line.trim_start().starts_with("#[") {
                has_condition |= line.trim_start().starts_with("#[cfg(");
                continue;
            }
            if let Some(name) = defined(line) {
                self.insert(name, Place { file: file.to_owned(), line: at + 1, has_condition });
            }
            has_condition = false;
        }
    }

    fn insert(&mut self, name: &str, place: Place) {
        let places = self.0.entry(name.to_owned()).or_default();
        let is_choice =
            |known: &Place| known.has_condition && place.has_condition && known.file == place.file;
        if !places.iter().any(is_choice) {
            places.push(place);
        }
    }

    /// Returns the names that are defined more than once, with their places.
    fn several(&self) -> impl Iterator<Item = (&String, &Vec<Place>)> {
        self.0.iter().filter(|(_, places)| places.len() > 1)
    }

    /// Adds the names of another crate.
    fn extend(&mut self, other: &Names) {
        for (name, places) in &other.0 {
            places.iter().for_each(|place| self.insert(name, place.clone()));
        }
    }

    /// Returns the share of these in percent, rounded up.
    fn percent(&self) -> usize {
        (100 * self.several().count()).div_ceil(self.0.len().max(1))
    }
}

/// Returns the name of the type that a line defines: a structure, an enumeration, a union, a trait,
/// or an alias, which is not the type of an implementation.
fn defined(line: &str) -> Option<&str> {
    let is_item = !line.starts_with(char::is_whitespace);
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        rest =
            public.strip_prefix('(').and_then(|path| path.split_once(')')).map_or(public, |(_, rest)| rest);
        rest = rest.strip_prefix(' ')?;
    }
    rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (word, rest) = rest.split_once(' ')?;
    if !(matches!(word, "struct" | "enum" | "union" | "trait") || word == "type" && is_item) {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    rest.starts_with(char::is_uppercase).then(|| &rest[..end])
}

/// Runs `cargo xtask names`.
pub fn run(args: &NamesArgs) -> ExitCode {
    outcome::exit("names", start(args))
}

fn start(args: &NamesArgs) -> Result<bool, String> {
    let files = repository::files()?;
    let packages = repository::packages(&files)?;
    let (crates, tests) = (names(&files, &packages)?, test_names::read(&files, &packages)?);
    let Some(of) = &args.of else { return Ok(check(&crates)? & test_names::check(&tests)?) };
    print_places(&crates, of)?;
    test_names::print(&tests, of);
    Ok(true)
}

/// Prints the names that the crates below `of` define more than once, with their places.
fn print_places(crates: &BTreeMap<PathBuf, Names>, of: &Path) -> Result<(), String> {
    if !of.is_dir() {
        return Err(format!("{} is not a directory", of.display()));
    }
    for (name, places) in below(crates, &[of]).several() {
        let places = places.iter().map(|place| format!("{}:{}", place.file.display(), place.line));
        println!("{name}: {}", places.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// Returns the names of all crates with their roots below one of the directories.
fn below(crates: &BTreeMap<PathBuf, Names>, directories: &[impl AsRef<Path>]) -> Names {
    let mut names = Names::default();
    let is_below = |root: &Path| directories.iter().any(|directory| root.starts_with(directory));
    crates.iter().filter(|(root, _)| is_below(root)).for_each(|(_, of)| names.extend(of));
    names
}

/// Prints the share of each crate. Returns whether none is above its limit.
fn check(crates: &BTreeMap<PathBuf, Names>) -> Result<bool, String> {
    let list = Ceilings::read(Path::new(LIST))?;
    println!("{:<34} {:>6} {:>8} {:>8} {:>8}", "types", "names", "several", "percent", "ceiling");
    let row = |name: &str, names: &Names, ceiling: String| {
        let (all, several, percent) = (names.0.len(), names.several().count(), names.percent());
        println!("{name:<34} {all:>6} {several:>8} {percent:>8} {ceiling:>8}");
    };
    let mut counts = Vec::new();
    let (first, together) = (PathBuf::from(TOGETHER[0]), below(crates, &TOGETHER));
    for (directory, names) in crates.iter().chain([(&first, &together)]) {
        let ceiling = list.ceiling(directory).map_or_else(String::new, |ceiling| ceiling.to_string());
        row(&directory.display().to_string(), names, ceiling);
        counts.push((directory.clone(), names.percent()));
    }
    row("all", &below(crates, &[""]), String::new());
    let passed = outcome::passed(&list.failures(&counts, "% of its type names defined more than once"));
    if !passed {
        eprintln!("`cargo xtask names DIRECTORY` lists the names below it with their places.");
    }
    Ok(passed)
}

/// Returns the type names of each crate that has any, by the directory of its root.
fn names(files: &[PathBuf], packages: &[Package]) -> Result<BTreeMap<PathBuf, Names>, String> {
    let mut crates: BTreeMap<PathBuf, Names> = BTreeMap::new();
    for (directory, file) in repository::sources(files, packages) {
        crates.entry(directory.to_owned()).or_default().add(file, &repository::read(file)?);
    }
    crates.retain(|_, names| !names.0.is_empty());
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(files: &[(&str, &str)]) -> (Vec<String>, usize) {
        let mut names = Names::default();
        files.iter().for_each(|(file, text)| names.add(Path::new(file), text));
        (names.several().map(|(name, _)| name.clone()).collect(), names.percent())
    }

    #[test]
    fn types_of_all_kinds_are_found() {
        let lines = [
            ("pub struct Part {", Some("Part")),
            ("pub(crate) enum Kind<T> {", Some("Kind")),
            ("    struct Inner(u8);", Some("Inner")),
            ("pub unsafe trait Mmu: Sized {", Some("Mmu")),
            ("union Raw {", Some("Raw")),
            ("type Module = Vec<String>;", Some("Module")),
            ("    type Item = u8;", None),
            ("    pub struct $name;", None),
            ("let struct_of = 1;", None),
            ("impl Part {", None),
            ("public struct Part", None),
        ];
        for (line, name) in lines {
            assert_eq!(defined(line), name, "{line}");
        }
    }

    #[test]
    fn a_name_with_two_definitions_is_counted_once() {
        let files = [("a/src/x.rs", "struct Part;\nstruct Other;"), ("a/src/y.rs", "/// Two.\nenum Part {}")];
        assert_eq!(several(&files), (vec!["Part".to_owned()], 50));
        assert_eq!(several(&files[..1]), (Vec::new(), 0));
    }

    #[test]
    fn types_of_tests_are_not_counted() {
        let tests = "struct Part;\n#[cfg(test)]\nmod tests {\n    struct Part;\n}\n";
        assert_eq!(several(&[("a/src/x.rs", tests), ("a/tests/y.rs", "struct Part;")]), (Vec::new(), 0));
    }

    #[test]
    fn definitions_that_a_condition_chooses_from_are_one() {
        let choice = "#[cfg(unix)]\n#[derive(Debug)]\nstruct A;\n#[cfg(not(unix))]\nstruct A(u8);\nstruct B;";
        assert_eq!(several(&[("a/src/x.rs", choice)]), (Vec::new(), 0));
        assert_eq!(several(&[("a/src/x.rs", choice), ("a/src/y.rs", "struct A;")]).1, 50);
        assert_eq!(several(&[("a/src/x.rs", "#[cfg(unix)]\nstruct A;\nstruct A;")]).1, 100);
    }
}
