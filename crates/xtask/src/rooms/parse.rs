//! Reads the imports of a Rust source as text: `use` lines, and paths that begin with `crate::`.
use crate::lines::{LineKind, kinds};

/// The module path of a file: `["table", "node"]` for `table/node.rs`, `["table"]` for
/// `table/mod.rs`.
pub type Module = Vec<String>;

/// One imported path, `crate`, `self` and `super` resolved.
pub struct Import {
    /// The path.
    pub path: Module,
    /// The line, from 1.
    pub line: usize,
    /// Whether it is passed on by `pub use`.
    pub passes_on: bool,
}

/// Returns the code of a file on its lines, without comments and unit tests.
fn code(text: &str) -> String {
    let lines = kinds(text, false).map(|(line, kind)| if kind == LineKind::Code { line } else { "" });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the line of a place, from 1.
fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
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

/// Returns the paths of the `use` lines of `module`.
pub fn imports(module: &Module, text: &str) -> Vec<Import> {
    let code = code(text);
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find("use ").map(|at| from + at) {
        let start = code[..at].rfind('\n').map_or(0, |n| n + 1);
        let before = code[start..at].trim();
        let end = code[at..].find(';').map_or(code.len(), |n| at + n);
        from = end;
        // Text in strings may begin a line with the word.
        let is_path = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_:{},*".contains(c);
        let passes_on = before.starts_with("pub");
        if !(before.is_empty() || passes_on) || !code[at..end].chars().all(is_path) {
            continue;
        }
        let mut paths = Vec::new();
        expand(&[], &code[at + 4..end], &mut paths);
        let line = line_of(&code, at);
        found.extend(paths.iter().map(|path| Import { path: resolve(module, path), line, passes_on }));
    }
    found
}

/// Returns a path of a `use` line of `module` from the root of the crate on.
fn resolve(module: &Module, path: &[String]) -> Module {
    // A name without a prefix is a child module, or another crate.
    let from_root = path.first().is_some_and(|first| first == "crate");
    let mut resolved = if from_root { Vec::new() } else { module.clone() };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => {
                resolved.pop();
            }
            name => resolved.push(name.to_owned()),
        }
    }
    resolved
}

/// Returns the paths outside `use` lines that begin with `crate::`, each with its line.
pub fn inline_paths(text: &str) -> Vec<(Module, usize)> {
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
        let path = path.unwrap_or("").split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect();
        found.push((path, line_of(&code, at)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let paths: Vec<String> = inline_paths(text).iter().map(|(path, _)| path.join("::")).collect();
        assert_eq!(paths, ["rt::fail", "say"]);
    }
}
