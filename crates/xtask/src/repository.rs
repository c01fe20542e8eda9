//! Lists the files of the repository, and the packages of its manifests.
use kernel_boot::output;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the files that git knows, or would, relative to the current directory, in order.
///
/// # Errors
///
/// A text that names the command, if git does not answer.
pub fn files() -> Result<Vec<PathBuf>, String> {
    let listed =
        output(Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let mut files: Vec<PathBuf> =
        listed.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

/// Returns the text of `file`.
///
/// # Errors
///
/// A text that names the file, if it cannot be read.
pub fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))
}

/// Returns the Rust sources among `files` that belong to crates of `packages`, each with the
/// directory of its crate's root.
pub fn sources<'f>(files: &'f [PathBuf], packages: &[Package]) -> Vec<(&'f Path, &'f PathBuf)> {
    let directories = crates(packages);
    let sources = files.iter().filter(|file| is_kind(file, "rs"));
    sources.filter_map(|file| Some((crate_of(file, &directories)?, file))).collect()
}

/// Returns whether the extension of `file` is `extension`.
pub fn is_kind(file: &Path, extension: &str) -> bool {
    file.extension().is_some_and(|e| e == extension)
}

/// Returns whether `file` lies in a directory of tests, examples or benchmarks.
pub fn is_test(file: &Path) -> bool {
    file.parent().is_some_and(|above| {
        above.iter().any(|name| ["tests", "examples", "benches"].iter().any(|of_tests| name == *of_tests))
    })
}

/// A package of the repository.
#[derive(Debug, Default)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The directory of its manifest.
    pub directory: PathBuf,
    /// The directory of its workspace; empty for the one at the root.
    pub workspace: PathBuf,
    /// Directories of the packages of the repository that it is built with.
    pub uses: Vec<PathBuf>,
    /// The root file of each of its crates, without the build script.
    pub roots: Vec<PathBuf>,
}

/// Returns the directories in which the crates of `packages` have their roots.
fn crates(packages: &[Package]) -> BTreeSet<PathBuf> {
    let roots = packages.iter().flat_map(|package| &package.roots);
    roots.filter_map(|root| root.parent()).map(Path::to_owned).collect()
}

/// Returns the directory among `crates` that `file` belongs to: the nearest above it.
fn crate_of<'a>(file: &'a Path, crates: &BTreeSet<PathBuf>) -> Option<&'a Path> {
    file.ancestors().skip(1).find(|above| crates.contains(*above))
}

/// Returns the package that has `file`: the one with the nearest directory above it.
pub fn package_of<'p>(file: &Path, packages: impl IntoIterator<Item = &'p Package>) -> Option<&'p Package> {
    let above = packages.into_iter().filter(|package| file.starts_with(&package.directory));
    above.max_by_key(|package| package.directory.components().count())
}

/// Returns the packages of all manifests among `files`, of each workspace, in the order of their
/// directories.
///
/// # Errors
///
/// A text that names the manifest, if cargo cannot read it.
pub fn packages(files: &[PathBuf]) -> Result<Vec<Package>, String> {
    let here = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?;
    let mut packages: Vec<Package> = Vec::new();
    for manifest in files.iter().filter(|file| file.ends_with("Cargo.toml")) {
        if packages.iter().any(|known| manifest.parent() == Some(&known.directory)) {
            continue;
        }
        let mut command = Command::new("cargo");
        command.args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"]);
        let text = output(command.arg(manifest))?;
        let answer: Value =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", manifest.display()))?;
        for package in answer["packages"].as_array().into_iter().flatten() {
            let package = self::package(package, &answer["workspace_root"], &here);
            if !packages.iter().any(|known| known.directory == package.directory) {
                packages.push(package);
            }
        }
    }
    packages.sort_by(|a, b| a.directory.cmp(&b.directory));
    Ok(packages)
}

/// Reads a package out of the answer of `cargo metadata`.
fn package(package: &Value, workspace: &Value, here: &Path) -> Package {
    let path = |value: &Value| {
        let path = Path::new(value.as_str().unwrap_or_default());
        path.strip_prefix(here).unwrap_or(path).to_owned()
    };
    let manifest = path(&package["manifest_path"]);
    let of_build = |target: &Value| target["kind"][0].as_str() == Some("custom-build");
    let targets = package["targets"].as_array().into_iter().flatten();
    let roots = targets.filter(|target| !of_build(target)).map(|target| path(&target["src_path"])).collect();
    let directory = manifest.parent().unwrap_or(Path::new("")).to_owned();
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let uses = dependencies.filter(|used| used["path"].is_string()).map(|used| path(&used["path"])).collect();
    let name = package["name"].as_str().unwrap_or_default().to_owned();
    Package { name, directory, workspace: path(workspace), uses, roots }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_package_has_the_file() {
        let packages = ["", "a", "a/tests"].map(|at| Package { directory: at.into(), ..Package::default() });
        let of = |file: &str| package_of(Path::new(file), &packages).unwrap().directory.clone();
        assert_eq!(["a/src/x.rs", "a/tests/x.rs", "b.rs"].map(of), ["a", "a/tests", ""].map(PathBuf::from));
    }
}
