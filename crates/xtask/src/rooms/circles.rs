//! Finds which files of a crate use which, and circles among them.
use super::parse::{Module, imports, inline_paths};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules that each module uses, each with the line that first names it.
pub type Arrows = BTreeMap<Module, BTreeMap<Module, usize>>;

/// The sources of the crates that have their root in one directory.
#[derive(Default)]
pub struct Crate {
    /// The file of each module, and the paths that it names, each with its line.
    files: BTreeMap<Module, (PathBuf, Vec<(Module, usize)>)>,
    /// The names that each module passes on by `pub use`: name to path.
    passed_on: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Crate {
    /// Adds a file of the crates with roots in `directory`.
    pub fn add(&mut self, directory: &Path, file: &Path, is_root: bool, text: &str) {
        let module = if is_root { Vec::new() } else { module_of(directory, file) };
        for (at, start) in text.match_indices("#[macro_export]\nmacro_rules! ") {
            let name = text[at + start.len()..].split_whitespace().next().unwrap_or_default();
            let path = module.iter().cloned().chain([name.to_owned()]).collect();
            self.passed_on.entry(Vec::new()).or_default().insert(name.to_owned(), path);
        }
        // Passing on is not using.
        let (passed_on, used): (Vec<_>, Vec<_>) =
            imports(&module, text).into_iter().partition(|i| i.passes_on);
        for import in passed_on {
            let name = import.path.last().cloned().unwrap_or_default();
            self.passed_on.entry(module.clone()).or_default().insert(name, import.path);
        }
        let uses = used.into_iter().map(|i| (i.path, i.line)).chain(inline_paths(text)).collect();
        self.files.insert(module, (file.to_owned(), uses));
    }

    /// Returns the module that defines the item at `path`; `None` if it is not of this crate.
    fn definer(&self, path: &Module) -> Option<Module> {
        let mut path = path.clone();
        // Names that are passed on are followed, a few times at most.
        for _ in 0..8 {
            let module =
                (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|m| self.files.contains_key(m))?;
            let Some(name) = path.get(module.len()) else { return Some(module) };
            match self.passed_on.get(&module).and_then(|names| names.get(name)) {
                Some(to) if *to != path => path = to.clone(),
                _ => return Some(module),
            }
        }
        None
    }

    /// Returns which modules each module uses.
    pub fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        // The root of a crate contains all its modules.
        for (module, (_, uses)) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            for (path, line) in uses {
                if let Some(to) = self.definer(path).filter(|to| to != module && !to.is_empty()) {
                    arrows.entry(module.clone()).or_default().entry(to).or_insert(*line);
                }
            }
        }
        arrows
    }

    /// Returns a use as text: the file with its line, and the module that is used.
    pub fn place(&self, from: &Module, to: &Module, line: usize) -> String {
        let file = self.files.get(from).map_or(Path::new(""), |(file, _)| file);
        format!("{}:{line}: uses `{}`", file.display(), to.join("::"))
    }

    /// Returns the uses that close a circle, if there is one.
    pub fn circle(&self) -> Option<String> {
        let arrows = self.arrows();
        let circle = circle(&arrows)?;
        let next = circle.iter().cycle().skip(1);
        let uses = circle.iter().zip(next).map(|(from, to)| self.place(from, to, arrows[from][to]));
        Some(uses.collect::<Vec<_>>().join(", "))
    }
}

fn module_of(directory: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(directory).unwrap_or(file).with_extension("");
    let mut module: Module = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|name| name == "mod") {
        module.pop();
    }
    module
}

/// Returns the first circle that is found, as a list of modules.
fn circle(arrows: &Arrows) -> Option<Vec<Module>> {
    fn visit(
        at: &Module,
        arrows: &Arrows,
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
        let found = arrows.get(at).and_then(|to| to.keys().find_map(|next| visit(next, arrows, done, way)));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|start| visit(start, arrows, &mut done, &mut Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found() {
        let module = |name: &str| vec![name.to_owned()];
        let mut arrows = Arrows::new();
        arrows.insert(module("a"), BTreeMap::from([(module("b"), 1)]));
        arrows.insert(module("b"), BTreeMap::from([(module("c"), 1)]));
        assert!(circle(&arrows).is_none());
        arrows.insert(module("c"), BTreeMap::from([(module("a"), 1)]));
        assert_eq!(circle(&arrows).map(|c| c.len()), Some(3));
    }

    /// Two files of a directory `a/src`: the first uses the second, the second has `line`.
    fn pair(line: &str) -> Crate {
        let mut made = Crate::default();
        let texts = [
            ("lib.rs", "mod task;\npub use task::Tasks;"),
            ("task/mod.rs", "mod family;\nmod process;\npub use process::Process;"),
            ("task/process.rs", "//! Processes.\nuse super::family::Family;"),
            ("task/family.rs", line),
        ];
        for (file, text) in texts {
            let directory = Path::new("a/src");
            made.add(directory, &directory.join(file), file == "lib.rs", text);
        }
        made
    }

    #[test]
    fn a_cycle_through_a_reexport_is_named_with_its_lines() {
        let circle = pair("//! Families.\n\nuse super::Process;").circle();
        let uses =
            "a/src/task/family.rs:3: uses `task::process`, a/src/task/process.rs:2: uses `task::family`";
        assert_eq!(circle.as_deref(), Some(uses));
        let inline = pair("fn f(_: crate::task::Process) {}").circle();
        assert!(inline.is_some_and(|uses| uses.contains("family.rs:1")));
    }

    #[test]
    fn children_and_unit_tests_may_use_a_file_that_uses_them() {
        assert_eq!(pair("use crate::Tasks;").circle(), None);
        assert_eq!(pair("#[cfg(test)]\nmod tests {\n    use super::super::Process;\n}").circle(), None);
        assert_eq!(pair("#[cfg(test)]\nuse super::Process;").circle(), None);
    }
}
