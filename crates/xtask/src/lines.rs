//! Counts lines of code by part of the workspace, without comments, empty lines and unit tests.
use clap::Args;
use std::{
    io,
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

/// Directories of sources below the workspace; each child of `crates` and `kernels` is a part.
const SOURCES: [&str; 4] = ["crates", "kernels", "bindings", "benches-vs-peers"];

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
        // Indentation of the item under `#[cfg(test)]` whose end is awaited.
        let mut test: Option<usize> = None;
        let mut in_block = false;
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed.is_empty() {
                continue;
            }
            if in_block || trimmed.starts_with("//") || trimmed.starts_with("/*") {
                in_block = (in_block || trimmed.starts_with("/*")) && !trimmed.contains("*/");
                lines.comments += 1;
                continue;
            }
            let indent = line.len() - line.trim_start().len();
            if test.is_none() && trimmed == "#[cfg(test)]" {
                test = Some(indent);
            }
            if is_test || test.is_some() {
                lines.tests += 1;
            } else {
                lines.code += 1;
                lines.forced += usize::from(trimmed.starts_with("#[") && trimmed.contains("inline(always)"));
            }
            let ends = trimmed == "}" || trimmed.ends_with(';');
            if test == Some(indent) && ends {
                test = None;
            }
        }
        lines
    }
}

/// A part: its name, its counts, and those of each file.
struct Part {
    name: String,
    lines: Lines,
    files: Vec<(PathBuf, Lines)>,
}

impl Part {
    fn read(name: String, directory: &Path) -> io::Result<Self> {
        let mut part = Part { name, lines: Lines::default(), files: Vec::new() };
        part.walk(directory, false)?;
        part.files.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(part)
    }

    fn walk(&mut self, directory: &Path, is_test: bool) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" {
                    self.walk(&path, is_test || ["tests", "examples", "benches"].contains(&name.as_str()))?;
                }
            } else if name.ends_with(".rs") {
                let lines = Lines::of(&std::fs::read_to_string(&path)?, is_test);
                self.lines.add(lines);
                self.files.push((path, lines));
            }
        }
        Ok(())
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
fn parts() -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for source in SOURCES {
        let root = Path::new(source);
        if root.join("Cargo.toml").is_file() && root.join("src").is_dir() {
            parts.push(Part::read(source.into(), root)?);
            continue;
        }
        let mut children =
            std::fs::read_dir(root)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
        children.sort();
        for child in children.into_iter().filter(|child| child.join("Cargo.toml").is_file()) {
            let name = child.strip_prefix("crates").unwrap_or(&child).display().to_string();
            parts.push(Part::read(name, &child)?);
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
        #[cfg(test)]\nmod tests {\n    fn g() {\n    }\n}\n#[cfg(test)]\nuse c::d;\nfn h() {}\n";

    #[test]
    fn code_comments_and_tests_are_told_apart() {
        let lines = Lines { files: 1, code: 4, comments: 3, tests: 7, forced: 1 };
        assert_eq!(Lines::of(FILE, false), lines);
        let all = Lines::of(FILE, true);
        assert_eq!((all.code, all.tests, all.forced), (0, 11, 0));
    }
}
