//! The pages of the repository.
use std::io;
use std::path::{Path, PathBuf};

/// Returns the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the pages in a directory and those below it, without following links.
///
/// # Errors
/// If a directory cannot be read.
pub fn pages(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name();
        if kind.is_dir() && name != "target" && name != ".git" {
            pages.extend(self::pages(&path)?);
        } else if kind.is_file() && path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}
