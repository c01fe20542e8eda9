//! Counts lines of code by part of the workspace, without comments, empty lines and unit tests.
use crate::repository;
use clap::Args;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Arguments of `lines`.
#[derive(Args)]
pub struct LinesArgs {
    /// Splits a part by the directories and files below its `src`.
    #[arg(long, value_name = "PART")]
    modules: Option<String>,
    /// Lists files with more lines of code than this.
    #[arg(long, value_name = "LINES", default_value_t = 600)]
    longest: usize,
    /// Prints a document of JSON.
    #[arg(long)]
    json: bool,
}

/// Directories of sources below the workspace. A directory without a crate of its own, as `crates`,
/// has a part for each child.
const SOURCES: [&str; 5] = ["crates", "kernels", "linux", "bindings", "benches-vs-peers"];

/// Counts of a file, or of several.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Lines {
    files: usize,
    code: usize,
    comments: usize,
    tests: usize,
    /// `#[inline(always)]`.
    forced: usize,
}

impl Lines {
    fn add(&mut self, other: Lines) {
        self.files += other.files;
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
        self.forced += other.forced;
    }

    /// Counts one file. All of it is tests if it lies in a directory of tests or examples.
    fn of(text: &str, is_test: bool) -> Self {
        let mut lines = Lines { files: 1, ..Lines::default() };
        for (line, kind) in kinds(text, is_test) {
            match kind {
                LineKind::Empty => {}
                LineKind::Comment => lines.comments += 1,
                LineKind::Test => lines.tests += 1,
                LineKind::Code => {
                    let line = line.trim();
                    lines.code += 1;
                    lines.forced += usize::from(line.starts_with("#[") && line.contains("inline(always)"));
                }
            }
        }
        lines
    }
}

/// A kind of line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineKind {
    /// White space only.
    Empty,
    /// A comment on lines of its own.
    Comment,
    /// Code of a test.
    Test,
    /// Other code.
    Code,
}

/// Returns the lines of a Rust source, each with its kind. Code is all tests if `is_test` holds.
pub fn kinds(text: &str, is_test: bool) -> impl Iterator<Item = (&str, LineKind)> {
    // Indentation of the item of tests that has not ended.
    let mut test: Option<usize> = None;
    let mut in_block = false;
    text.lines().map(move |line| {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            return (line, LineKind::Empty);
        }
        if in_block || trimmed.starts_with("//") || trimmed.starts_with("/*") {
            in_block = (in_block || trimmed.starts_with("/*")) && !trimmed.contains("*/");
            return (line, LineKind::Comment);
        }
        let indent = line.len() - line.trim_start().len();
        if test.is_none() && is_of_tests(trimmed) {
            test = Some(indent);
        }
        let kind = if is_test || test.is_some() { LineKind::Test } else { LineKind::Code };
        let ends = trimmed == "}" || trimmed.ends_with(';');
        if test == Some(indent) && ends {
            test = None;
        }
        (line, kind)
    })
}

/// Returns whether an attribute leaves its item out of all builds but tests.
fn is_of_tests(attribute: &str) -> bool {
    let all = attribute.strip_prefix("#[cfg(all(").and_then(|rest| rest.strip_suffix("))]"));
    attribute == "#[cfg(test)]" || all.is_some_and(|all| all.split(", ").any(|part| part == "test"))
}

/// A part: its name, its counts, and those of each file.
struct Part {
    name: String,
    lines: Lines,
    files: Vec<(PathBuf, Lines)>,
}

impl Part {
    /// Counts the sources among `files` below `directory`.
    fn read(name: String, directory: &Path, files: &[PathBuf]) -> Result<Self, String> {
        let mut part = Part { name, lines: Lines::default(), files: Vec::new() };
        for file in files.iter().filter(|file| file.starts_with(directory)) {
            let text = repository::read(file)?;
            let lines = Lines::of(&text, repository::is_test(file));
            part.lines.add(lines);
            part.files.push((file.clone(), lines));
        }
        Ok(part)
    }

    /// Counts by the first name below `src`.
    fn modules(&self) -> Vec<(String, Lines)> {
        let mut modules: Vec<(String, Lines)> = Vec::new();
        for (path, lines) in &self.files {
            let mut below = path.iter().skip_while(|name| *name != "src").skip(1);
            let Some(name) = below.next().map(|name| name.to_string_lossy().into_owned()) else { continue };
            match modules.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => sum.add(*lines),
                None => modules.push((name, *lines)),
            }
        }
        modules
    }
}

/// Reads all parts that have Rust sources.
fn parts() -> Result<Vec<Part>, String> {
    let (mut sources, mut manifests) = (repository::files()?, BTreeSet::new());
    sources.retain(|file| {
        if file.ends_with("Cargo.toml") {
            manifests.insert(file.clone());
        }
        repository::is_kind(file, "rs")
    });
    let mut parts = Vec::new();
    for source in SOURCES {
        let root = Path::new(source);
        if manifests.contains(&root.join("Cargo.toml")) && root.join("src").is_dir() {
            parts.push(Part::read(source.into(), root, &sources)?);
            continue;
        }
        let children = manifests.iter().filter_map(|manifest| manifest.parent());
        for child in children.filter(|child| child.parent() == Some(root)) {
            let name = child.strip_prefix("crates").unwrap_or(child).display().to_string();
            parts.push(Part::read(name, child, &sources)?);
        }
    }
    Ok(parts)
}

fn json(name: &str, lines: Lines) -> serde_json::Value {
    serde_json::json!({
        "name": name, "files": lines.files, "code": lines.code, "comments": lines.comments,
        "tests": lines.tests, "inline_always": lines.forced,
    })
}

fn row(name: &str, lines: Lines) {
    let Lines { files, code, comments, tests, forced } = lines;
    println!("{name:<28}{files:>7}{code:>9}{comments:>10}{tests:>9}{forced:>15}");
}

/// Runs `cargo xtask lines`.
pub fn run(args: &LinesArgs) -> ExitCode {
    let parts = match parts() {
        Ok(parts) => parts,
        Err(err) => {
            eprintln!("cargo xtask lines: {err}; run it in the root of the repository");
            return ExitCode::from(2);
        }
    };
    let rows: Vec<(String, Lines)> = match &args.modules {
        Some(wanted) => match parts.iter().find(|part| part.name == *wanted) {
            Some(part) => part.modules(),
            None => {
                let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
                eprintln!("cargo xtask lines: there is no part {wanted}; there are {}", names.join(", "));
                return ExitCode::from(2);
            }
        },
        None => parts.iter().map(|part| (part.name.clone(), part.lines)).collect(),
    };
    let mut sum = Lines::default();
    rows.iter().for_each(|(_, lines)| sum.add(*lines));
    let long: Vec<(&PathBuf, usize)> = parts
        .iter()
        .flat_map(|part| &part.files)
        .map(|(path, lines)| (path, lines.code))
        .filter(|(_, code)| *code > args.longest)
        .collect();
    if args.json {
        let document = serde_json::json!({
            "parts": rows.iter().map(|(name, lines)| json(name, *lines)).collect::<Vec<_>>(),
            "all": json("all", sum),
            "long_files": long.iter()
                .map(|(path, code)| serde_json::json!({ "path": path.display().to_string(), "code": code }))
                .collect::<Vec<_>>(),
        });
        println!("{document:#}");
        return ExitCode::SUCCESS;
    }
    println!(
        "{:<28}{:>7}{:>9}{:>10}{:>9}{:>15}",
        "lines", "files", "code", "comments", "tests", "inline(always)"
    );
    rows.iter().for_each(|(name, lines)| row(name, *lines));
    row("all", sum);
    for (path, code) in long {
        println!("{code} lines of code: {}", path.display());
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::Lines;

    const FILE: &str = "//! A module.\nuse a::b;\n\n/* A block\n   of two lines. */\n#[inline(always)]\nfn f() {}\n\n\
        #[cfg(test)]\nmod tests {\n    fn g() {\n    }\n}\n#[cfg(all(test, not(loom)))]\nuse c::d;\nfn h() {}\n";

    #[test]
    fn code_comments_and_tests_are_told_apart() {
        let lines = Lines { files: 1, code: 4, comments: 3, tests: 7, forced: 1 };
        assert_eq!(Lines::of(FILE, false), lines);
        let all = Lines::of(FILE, true);
        assert_eq!((all.code, all.tests, all.forced), (0, 11, 0));
    }
}
