//! Checks the order of modules in all crates of the repository: no two files use each other,
//! directly or through others, and a module of a crate with an order uses only modules before it.
//!
//! Sources are read as text. A name that a `mod.rs` passes on counts as the file's that defines it,
//! and so does a macro that the crate's root names.
mod circles;
mod order;
mod parse;

use crate::outcome;
use crate::repository::{self, Package};
use circles::Crate;
use order::Order;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The orders of modules.
const LIST: &str = "crates/xtask/lists/rooms.list";

/// Runs `cargo xtask rooms`.
pub fn run() -> ExitCode {
    outcome::exit("rooms", check().map(|failures| outcome::passed(&failures)))
}

fn check() -> Result<Vec<String>, String> {
    let files = repository::files()?;
    let crates = crates(&repository::packages(&files)?, &files)?;
    let mut failures: Vec<String> = crates
        .values()
        .filter_map(Crate::circle)
        .map(|uses| format!("{uses}: a circle; move what both need into a file below them"))
        .collect();
    for order in Order::read(Path::new(LIST))? {
        let of = crates.get(&order.directory);
        let of =
            of.ok_or_else(|| format!("{LIST}: no crate has its root in {}", order.directory.display()))?;
        failures.extend(order.failures(of));
    }
    println!("{} directories of crates", crates.len());
    Ok(failures)
}

/// Reads the sources of `packages` among `files`, by the directory of a crate's root. A file
/// belongs to the nearest of these above it.
fn crates(packages: &[Package], files: &[PathBuf]) -> Result<BTreeMap<PathBuf, Crate>, String> {
    let mut crates: BTreeMap<PathBuf, Crate> = BTreeMap::new();
    for (directory, file) in repository::sources(files, packages) {
        let text = repository::read(file)?;
        let is_root = packages.iter().any(|package| package.roots.contains(file));
        crates.entry(directory.to_owned()).or_default().add(directory, file, is_root, &text);
    }
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_nearest_crate_above_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let package = Package {
            directory: root.clone(),
            roots: vec![root.join("main.rs"), root.join("rooms/mod.rs")],
            ..Package::default()
        };
        let files = ["main.rs", "lines.rs", "rooms/mod.rs", "rooms/order.rs", "rooms/circles.rs"];
        let files: Vec<PathBuf> = files.iter().map(|file| root.join(file)).collect();
        let crates = crates(&[package], &files).unwrap();
        let directories: Vec<&PathBuf> = crates.keys().collect();
        assert_eq!(directories, [&root, &root.join("rooms")]);
        assert!(crates[&root].arrows().is_empty());
        let arrows = crates[&root.join("rooms")].arrows();
        let order = vec!["order".to_owned()];
        assert!(arrows[&order].contains_key(&vec!["circles".to_owned()]), "{arrows:?}");
    }
}
