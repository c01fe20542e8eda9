//! Counts the words of each page and of the whole, as `wc -w` does, and fails above a limit.
use crate::ceilings::Ceilings;
use crate::outcome;
use crate::repository;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Kinds of pages, their limits, and the ceilings of pages that are above.
const LIST: &str = "crates/xtask/lists/pages.list";

/// Runs `cargo xtask pages`.
pub fn run() -> ExitCode {
    outcome::exit("pages", check())
}

/// Prints the words of all pages. Returns whether none has too many.
fn check() -> Result<bool, String> {
    let (list, pages) = (Ceilings::read(Path::new(LIST))?, count(&repository::files()?)?);
    println!("{:<50} {:>10} {:>8} {:>8} {:>8}", "page", "kind", "words", "limit", "ceiling");
    for (page, words) in &pages {
        let (kind, limit) = list.limit(page).unwrap_or_default();
        let ceiling = list.ceiling(page).map_or_else(String::new, |ceiling| ceiling.to_string());
        println!("{:<50} {kind:>10} {words:>8} {limit:>8} {ceiling:>8}", page.display());
    }
    Ok(outcome::passed(&list.failures(&pages, "words")))
}

/// Returns the words of each page among `files`, most first, and before them the words of the
/// whole, which is named `.`. A link to a page is not counted.
fn count(files: &[PathBuf]) -> Result<Vec<(PathBuf, usize)>, String> {
    let mut pages = Vec::new();
    for file in files.iter().filter(|file| repository::is_kind(file, "md") && !file.is_symlink()) {
        let text = repository::read(file)?;
        pages.push((file.clone(), text.split_whitespace().count()));
    }
    pages.push((PathBuf::from("."), pages.iter().map(|(_, words)| words).sum()));
    pages.sort_by_key(|(_, words)| std::cmp::Reverse(*words));
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn words_of_pages_are_added_up_and_links_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["a.md", "b.md", "c.md", "d.rs"].map(|name| directory.path().join(name));
        std::fs::write(&files[0], "# One\n\n* two, `three four`\n").unwrap();
        std::fs::write(&files[1], "one | two\n").unwrap();
        std::fs::write(&files[3], "mod a;\n").unwrap();
        std::os::unix::fs::symlink(&files[0], &files[2]).unwrap();
        let counted = count(&files);
        let [a, b, ..] = files;
        assert_eq!(counted, Ok(vec![(PathBuf::from("."), 9), (a, 6), (b, 3)]));
    }
}
