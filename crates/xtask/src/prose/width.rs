//! Finds lines of comments and documents that are wider than 100 columns.
use super::text::{self, Line};
use crate::repository;
use std::path::{Path, PathBuf};

/// The columns of a line (CONTRIBUTING.md, How we write).
const COLUMNS: usize = 100;

/// Returns the lines of `files` that are too wide, with their places.
///
/// # Errors
///
/// A text that names the file that cannot be read.
pub fn failures<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<String>, String> {
    let mut failures = Vec::new();
    // A link is checked where it leads to.
    for file in files.filter(|file| !file.is_symlink()) {
        let Some(reader) = reader(file) else { continue };
        let source = repository::read(file)?;
        let too_wide = too_wide(reader, &source).into_iter();
        failures.extend(too_wide.map(|(number, columns)| {
            format!("{}:{number}: {columns} columns; wrap the line at {COLUMNS}", file.display())
        }));
    }
    Ok(failures)
}

/// Returns the lines of a file that are too wide, with their columns. Rows of tables, blocks of
/// code, words that are too long by themselves, and code with a comment behind it may be wider.
fn too_wide(reader: fn(&str) -> Vec<Line>, source: &str) -> Vec<(usize, usize)> {
    let all: Vec<&str> = source.lines().collect();
    let lines = reader(source).into_iter().filter(|line| line.alone);
    let columns = lines.filter(|line| !line.text.trim_start().starts_with('|') && has_two_words(&line.text));
    let columns = columns.filter_map(|line| Some((line.number, all.get(line.number - 1)?.chars().count())));
    columns.filter(|&(_, columns)| columns > COLUMNS).collect()
}

/// Returns the function that finds the comments of a source, or the lines of a document.
fn reader(file: &Path) -> Option<fn(&str) -> Vec<Line>> {
    match file.extension().map(|extension| extension.to_string_lossy()).as_deref() {
        Some("md") => Some(text::document),
        Some("rs" | "c" | "h" | "cpp" | "S" | "ld") => Some(text::comments),
        Some("s") => Some(|source| [text::comments(source), text::hash_comments(source)].concat()),
        Some("sh" | "toml" | "yml" | "mk" | "cmake" | "list") => Some(text::hash_comments),
        Some(_) => None,
        None => Some(|source| {
            let first = source.lines().next().unwrap_or_default();
            let is_script = first.starts_with("#!") && first.ends_with("sh");
            if is_script { text::hash_comments(source) } else { Vec::new() }
        }),
    }
}

/// Returns whether a line can be broken: it has two words behind the mark of its list or quotation.
fn has_two_words(text: &str) -> bool {
    let is_mark = |word: &str| {
        matches!(word, "-" | "*" | "+" | ">")
            || word.strip_suffix('.').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    };
    text.split_whitespace().skip_while(|word| is_mark(word)).count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, source: &str) -> Vec<(usize, usize)> {
        reader(Path::new(file)).map_or(Vec::new(), |reader| too_wide(reader, source))
    }

    /// `head`, and words up to so many columns.
    fn line(head: &str, columns: usize) -> String {
        let words = format!("{head} {}", "wörd ".repeat(30));
        let mut line: String = words.chars().take(columns - 1).collect();
        line.push('.');
        line
    }

    #[test]
    fn lines_fail_above_100_columns_and_not_at_100() {
        let kinds = [
            ("a.rs", "//!"),
            ("a.rs", "    /// "),
            ("a.rs", "//"),
            ("a.c", "/*"),
            ("a.ld", " /*"),
            ("a.s", "//"),
            ("a.s", "    #"),
            ("a.sh", "#"),
            ("a.toml", "#"),
            ("a.md", ""),
            ("a.md", "* "),
            ("a.md", "    of a list"),
        ];
        for (file, head) in kinds {
            assert_eq!(found(file, &line(head, 100)), [], "{file} {head}");
            assert_eq!(found(file, &format!("\n{}", line(head, 101))), [(2, 101)], "{file} {head}");
        }
        let script = format!("#!/bin/sh\n{}", line("#", 101));
        assert_eq!(found("run", &script), [(2, 101)]);
        assert_eq!(found("run", &line("#", 101)), []);
        let block = format!("/* One.\n{}\n*/", line(" ", 101));
        assert_eq!(found("a.c", &block), [(2, 101)]);
    }

    #[test]
    fn tables_code_and_single_words_may_be_wider() {
        assert_eq!(found("a.md", &format!("| {} |", line("", 120))), []);
        assert_eq!(found("a.rs", &format!("//! | {} |", line("", 120))), []);
        assert_eq!(found("a.md", &format!("```sh\n{}\n```", line("", 120))), []);
        assert_eq!(found("a.rs", &format!("/// ```\n/// {}\n/// ```", line("", 120))), []);
        let link = format!("https://example.org/{}", "a".repeat(100));
        for text in [&link, &format!("* {link}"), &format!("  12. [link]({link}),")] {
            assert_eq!(found("a.md", text), [], "{text}");
        }
        assert_eq!(found("a.rs", &format!("// {link}")), []);
        assert_eq!(found("a.md", &format!("see {link}")).len(), 1);
    }

    #[test]
    fn code_is_left_to_its_formatter() {
        let code = format!("let a = {}; // one", "1 + ".repeat(30));
        for file in ["a.rs", "a.c", "a.h"] {
            assert_eq!(found(file, &code), [], "{file}");
        }
        assert_eq!(found("a.rs", &format!("let a = \"{}\";", line("// ", 120))), []);
        assert_eq!(found("a.toml", &format!("a = \"{}\"", line("", 120))), []);
    }
}
