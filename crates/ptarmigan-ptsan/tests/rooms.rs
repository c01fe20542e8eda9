//! The order of rooms: a room of the library uses only rooms that stand above it in
//! docs/architecture.md, and no file of any crate or kernel image uses a file that uses it,
//! directly or through others.
//!
//! Read as text, from `use` lines and from paths that begin with `crate::`. A name that a `mod.rs`
//! passes on counts as the file's that defines it, and so does a macro that the crate's root names.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of the library, from the bottom up.
const ORDER: &[&str] = &[
    "error",
    "addr",
    "bits",
    "sync",
    "bootmem",
    "params",
    "cpu",
    "window",
    "frames",
    "page",
    "format",
    "tlb",
    "parking",
    "arch",
    "quicklist",
    "machine",
    "gather",
    "highmem",
    "table",
    "vmalloc",
    "space",
    "setup",
    "any_error",
];

/// The crates of the repository whose sources are looked at.
const CRATES: &[&str] = &[
    "crates/ptarmigan",
    "crates/ptarmigan-adapters",
    "crates/ptarmigan-bench",
    "crates/ptarmigan-hosted",
    "crates/ptarmigan-linux",
    "crates/ptarmigan-pool",
    "crates/ptarmigan-ptsan",
    "crates/ptsan",
    "crates/ptarmigan-trace",
    "crates/ptarmigan-replay",
    "crates/ptarmigan-cli",
    "kernels/bare-x86_64",
    "kernels/base",
    "kernels/minimal",
    "kernels/riscv64",
    "kernels/x86",
];

fn crate_root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(name).join("src")
}

/// The module path of a file: `["table", "node"]` for `table/node.rs`, `["table"]` for
/// `table/mod.rs`.
type Module = Vec<String>;

fn module_of(root: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(root).expect("below the root").with_extension("");
    let mut module: Module = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The code of a file without comments and without its unit tests.
fn code(text: &str) -> String {
    let end = text.find("\nmod tests {").unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// One imported path, `crate`, `self` and `super` resolved, and whether it is passed on by
/// `pub use`.
struct Import {
    path: Module,
    passes_on: bool,
}

/// Takes the `{…}` of a `use` apart.
fn expand(prefix: &[String], rest: &str, paths: &mut Vec<Module>) {
    let rest = rest.trim();
    if let Some(open) = rest.find('{') {
        let mut prefix = prefix.to_vec();
        prefix.extend(rest[..open].split("::").filter(|p| !p.is_empty()).map(|p| p.trim().to_owned()));
        let inner = &rest[open + 1..rest.rfind('}').expect("closed")];
        let (mut depth, mut start) = (0, 0);
        for (i, c) in inner.char_indices().chain([(inner.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    if !inner[start..i].trim().is_empty() {
                        expand(&prefix, &inner[start..i], paths);
                    }
                    start = i + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let name = rest.split(" as ").next().unwrap_or(rest);
    let mut path = prefix.to_vec();
    path.extend(name.split("::").map(|p| p.trim().to_owned()).filter(|p| p != "self" || prefix.is_empty()));
    paths.push(path);
}

fn imports(module: &Module, text: &str) -> Vec<Import> {
    let code = code(text);
    let mut found = Vec::new();
    let mut rest = code.as_str();
    while let Some(at) = rest.find("use ") {
        let line = rest[..at].rfind('\n').map_or(0, |n| n + 1);
        let before = rest[line..at].trim();
        let end = rest[at..].find(';').map_or(rest.len(), |n| at + n);
        // Text in strings may begin a line with the word.
        let is_path = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_:{},*".contains(c);
        if (before.is_empty() || before.starts_with("pub")) && rest[at..end].chars().all(is_path) {
            let mut paths = Vec::new();
            expand(&[], &rest[at + 4..end], &mut paths);
            for path in paths {
                let mut resolved = match path.first().map(String::as_str) {
                    Some("crate") => Vec::new(),
                    Some("self" | "super") => module.clone(),
                    // A name without a prefix is a child module, or another crate.
                    _ => {
                        let mut own = module.clone();
                        own.extend(path.iter().cloned());
                        found.push(Import { path: own, passes_on: before.starts_with("pub") });
                        continue;
                    }
                };
                for part in &path {
                    match part.as_str() {
                        "crate" | "self" => {}
                        "super" => {
                            resolved.pop();
                        }
                        name => resolved.push(name.to_owned()),
                    }
                }
                found.push(Import { path: resolved, passes_on: before.starts_with("pub") });
            }
        }
        rest = &rest[end..];
    }
    found
}

/// The paths outside `use` lines that begin with `crate::`.
fn inline_paths(text: &str) -> Vec<Module> {
    let code = code(text);
    let mut found = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back().unwrap_or(' ');
        let line = code[..at].rfind('\n').map_or(0, |n| n + 1);
        // `$crate::` is part of a macro, and a macro may be defined below its use.
        if before == '$' || before.is_alphanumeric() || code[line..at].contains("use ") {
            continue;
        }
        let path =
            code[at + start.len()..].split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next();
        found.push(path.unwrap_or("").split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect());
    }
    found
}

struct Crate {
    /// The text of each module.
    texts: BTreeMap<Module, String>,
    /// The names that each module passes on by `pub use`: name to path.
    passed_on: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Crate {
    fn read(name: &str) -> Self {
        let root = crate_root(name);
        let mut files = Vec::new();
        sources(&root, &mut files);
        let texts: BTreeMap<Module, String> = files
            .iter()
            .map(|file| (module_of(&root, file), fs::read_to_string(file).expect("a source")))
            .collect();
        let mut passed_on: BTreeMap<Module, BTreeMap<String, Module>> = BTreeMap::new();
        for (module, text) in &texts {
            for (at, start) in text.match_indices("#[macro_export]\nmacro_rules! ") {
                let name = text[at + start.len()..].split_whitespace().next().expect("a macro's name");
                let path = module.iter().cloned().chain([name.to_owned()]).collect();
                passed_on.entry(Vec::new()).or_default().insert(name.to_owned(), path);
            }
            for import in imports(module, text).into_iter().filter(|i| i.passes_on) {
                let name = import.path.last().cloned().unwrap_or_default();
                passed_on.entry(module.clone()).or_default().insert(name, import.path);
            }
        }
        Crate { texts, passed_on }
    }

    /// The module that defines the item at `path`; `None` if it is not of this crate.
    fn definer(&self, path: &Module) -> Option<Module> {
        let mut path = path.clone();
        // Names that are passed on are followed, a few times at most.
        for _ in 0..8 {
            let module =
                (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|m| self.texts.contains_key(m))?;
            let Some(name) = path.get(module.len()) else { return Some(module) };
            match self.passed_on.get(&module).and_then(|names| names.get(name)) {
                Some(to) if *to != path => path = to.clone(),
                _ => return Some(module),
            }
        }
        None
    }

    /// Returns which modules each module uses.
    fn arrows(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, text) in &self.texts {
            // Passing on is not using.
            let imported = imports(module, text).into_iter().filter(|i| !i.passes_on).map(|i| i.path);
            for path in imported.chain(inline_paths(text)) {
                // The root of a crate contains all its modules.
                if let Some(to) = self.definer(&path)
                    && to != *module
                    && !to.is_empty()
                    && !module.is_empty()
                {
                    arrows.entry(module.clone()).or_default().insert(to);
                }
            }
        }
        arrows
    }
}

/// The first circle that is found, as a list of modules.
fn circle(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    fn visit(
        at: &Module,
        arrows: &BTreeMap<Module, BTreeSet<Module>>,
        done: &mut BTreeSet<Module>,
        way: &mut Vec<Module>,
    ) -> Option<Vec<Module>> {
        if let Some(start) = way.iter().position(|m| m == at) {
            return Some(way[start..].to_vec());
        }
        if !done.insert(at.clone()) {
            return None;
        }
        way.push(at.clone());
        let found = arrows.get(at).into_iter().flatten().find_map(|next| visit(next, arrows, done, way));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|start| visit(start, arrows, &mut done, &mut Vec::new()))
}

#[test]
fn no_file_uses_a_file_that_uses_it() {
    for name in CRATES {
        let circle = circle(&Crate::read(name).arrows());
        let names: Vec<String> = circle.into_iter().flatten().map(|m| m.join("::")).collect();
        assert!(names.is_empty(), "{name}: files in a circle: {}", names.join(" -> "));
    }
}

#[test]
fn rooms_use_rooms_above_them_only() {
    let place = |room: &str| ORDER.iter().position(|r| *r == room);
    let mut wrong = Vec::new();
    for (from, targets) in Crate::read("crates/ptarmigan").arrows() {
        let here = place(&from[0]).unwrap_or_else(|| panic!("room `{}` has no place in the order", from[0]));
        for to in targets {
            let there = place(&to[0]).unwrap_or_else(|| panic!("room `{}` has no place in the order", to[0]));
            if there > here {
                wrong.push(format!("{} uses {}", from.join("::"), to.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that point up: {wrong:#?}");
}

#[test]
fn a_circle_is_found() {
    let module = |name: &str| vec![name.to_owned()];
    let mut arrows = BTreeMap::new();
    arrows.insert(module("a"), BTreeSet::from([module("b")]));
    arrows.insert(module("b"), BTreeSet::from([module("c")]));
    assert!(circle(&arrows).is_none());
    arrows.insert(module("c"), BTreeSet::from([module("a")]));
    assert_eq!(circle(&arrows).map(|c| c.len()), Some(3));
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let module = vec!["table".to_owned(), "tree".to_owned()];
    let text = "use super::node::{self, Node};\n// use crate::space::Never;\nuse crate::{addr::Pfn, page::{Level, Clean as C}};\n\
                pub use self::inner::X;\n#[cfg(test)]\nmod tests {\nuse crate::hosted::Host;\n}\n";
    let paths: Vec<String> = imports(&module, text).iter().map(|i| i.path.join("::")).collect();
    assert_eq!(
        paths,
        [
            "table::node",
            "table::node::Node",
            "addr::Pfn",
            "page::Level",
            "page::Clean",
            "table::tree::inner::X"
        ]
    );
}

#[test]
fn paths_outside_use_lines_are_read() {
    let text = "use crate::addr::Pfn;\nfn f() {\n    crate::rt::fail(crate::say!(\"x\"));\n    // crate::space::Never\n    $crate::serial::line();\n}\n";
    let paths: Vec<String> = inline_paths(text).iter().map(|path| path.join("::")).collect();
    assert_eq!(paths, ["rt::fail", "say"]);
}
