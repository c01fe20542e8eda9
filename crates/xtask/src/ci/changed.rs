//! Finds the packages that a change touches, by the manifests of all workspaces, and their jobs.
use super::jobs::{Job, Table, Tier};
use crate::repository::{self, Package};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
};

/// The packages of the repository, by name.
pub struct Packages(BTreeMap<String, Package>);

/// Jobs that run for a change, and jobs that are left out.
pub struct Selection {
    /// The jobs: tests of the changed packages, then jobs of the table.
    pub jobs: Vec<Job>,
    /// Names of the jobs of the tier *change* that are left out.
    pub rest: Vec<String>,
    /// The packages that have changed.
    pub packages: Vec<String>,
}

impl Packages {
    /// Reads the manifests of the repository in the current directory.
    ///
    /// # Errors
    ///
    /// The message of git or cargo, if one fails.
    pub fn read() -> Result<Self, String> {
        let packages = repository::packages(&repository::files()?)?;
        Ok(Packages(packages.into_iter().map(|package| (package.name.clone(), package)).collect()))
    }

    /// Returns `changed` and the packages that are built with them, directly or not.
    fn dependants(&self, changed: &BTreeSet<String>) -> BTreeSet<String> {
        let mut all = changed.clone();
        loop {
            let directories: Vec<&PathBuf> = all.iter().map(|name| &self.0[name].directory).collect();
            let new = self.0.iter().filter(|(name, package)| {
                !all.contains(*name) && package.uses.iter().any(|used| directories.contains(&used))
            });
            let new: Vec<String> = new.map(|(name, _)| name.clone()).collect();
            if new.is_empty() {
                return all;
            }
            all.extend(new);
        }
    }

    /// Returns `changed` and the packages that lie in their directories: tests with a package of
    /// their own.
    fn with_tests(&self, changed: &BTreeSet<String>) -> Vec<&str> {
        let inside = |package: &Package| {
            changed.iter().any(|name| {
                let of = &self.0[name].directory;
                package.directory.starts_with(of) && !of.as_os_str().is_empty()
            })
        };
        let packages =
            self.0.iter().filter(|(_, package)| package.workspace.as_os_str().is_empty() && inside(package));
        packages.map(|(name, _)| name.as_str()).collect()
    }

    /// Chooses the jobs of `files`, paths from the root of the repository.
    pub fn select(&self, table: &Table, files: &[PathBuf]) -> Selection {
        let changed: BTreeSet<String> = files
            .iter()
            .filter_map(|file| repository::package_of(file, self.0.values()))
            .map(|of| of.name.clone())
            .collect();
        let dependants = self.dependants(&changed);
        let mut jobs: Vec<Job> = self.with_tests(&changed).into_iter().map(tests).collect();
        let mut rest = Vec::new();
        for job in table.job.iter().filter(|job| job.tier == Tier::Change) {
            let of_file =
                |of: &String| of.contains(['/', '.']) && files.iter().any(|file| file.starts_with(of));
            let touched = job.of.iter().any(|of| of_file(of) || changed.contains(of) && !job.of.is_empty());
            let smoke = job.smoke && (job.of.is_empty() || job.of.iter().any(|of| dependants.contains(of)));
            if touched || smoke {
                jobs.push(job.clone());
            } else {
                rest.push(job.name.clone());
            }
        }
        Selection { jobs, rest, packages: changed.into_iter().collect() }
    }
}

/// Returns a job: lints and tests of the package `name`.
fn tests(name: &str) -> Job {
    Job {
        name: format!("tests of {name}"),
        run: format!("cargo clippy -p {name} --all-targets -- -D warnings\ncargo test -p {name} --tests"),
        ..Job::default()
    }
}

/// Returns the files that differ from `base`, also files of no commit.
///
/// # Errors
///
/// The message of git, if it fails.
pub fn files(base: Option<&str>) -> Result<Vec<PathBuf>, String> {
    let upstream = said(&["merge-base", "HEAD", "@{upstream}"]).ok();
    let base = base.or(upstream.as_deref()).unwrap_or("HEAD").to_owned();
    let differ = said(&["diff", "--name-only", &base])?;
    let new = said(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(differ.lines().chain(new.lines()).map(PathBuf::from).collect())
}

fn said(words: &[&str]) -> Result<String, String> {
    Ok(kernel_boot::output(Command::new("git").args(words))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Packages {
        let package = |name: &str, directory: &str, uses: &[&str], workspace: &str| {
            let package = Package {
                name: name.into(),
                directory: directory.into(),
                workspace: workspace.into(),
                uses: uses.iter().map(PathBuf::from).collect(),
                ..Package::default()
            };
            (package.name.clone(), package)
        };
        Packages(BTreeMap::from([
            package("lib", "crates/lib", &[], ""),
            package("lib-tests", "crates/lib/tests", &["crates/lib"], ""),
            package("cli", "crates/cli", &["crates/lib"], ""),
            package("kernel", "linux/kernel", &["crates/cli"], "linux"),
            package("other", "crates/other", &[], ""),
        ]))
    }

    fn selected(files: &[&str]) -> (Vec<String>, Vec<String>) {
        let job = |name: &str, of: &[&str], smoke| Job {
            name: name.into(),
            smoke,
            of: of.iter().map(|&of| of.to_owned()).collect(),
            ..Job::default()
        };
        let table = Table {
            slice_minutes: 15.0,
            full_minutes: 40.0,
            all_need: Vec::new(),
            need: Vec::new(),
            job: vec![
                job("lints", &[], false),
                job("format", &[], true),
                job("boot", &["kernel"], true),
                job("whole kernel", &["kernel"], false),
                job("prose", &["docs/", "README.md"], false),
                job("others", &["other"], true),
            ],
        };
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        let selection = packages().select(&table, &files);
        (selection.jobs.into_iter().map(|job| job.name).collect(), selection.rest)
    }

    #[test]
    fn a_library_change_has_its_tests_and_dependants_smoke_jobs() {
        let (jobs, rest) = selected(&["crates/lib/src/a.rs"]);
        assert_eq!(jobs, ["tests of lib", "tests of lib-tests", "format", "boot"]);
        assert_eq!(rest, ["lints", "whole kernel", "prose", "others"]);
    }

    #[test]
    fn a_change_of_a_test_or_a_kernel_is_its_own() {
        assert_eq!(selected(&["crates/lib/tests/all/a.rs"]).0, ["tests of lib-tests", "format"]);
        assert_eq!(selected(&["linux/kernel/src/a.rs"]).0, ["format", "boot", "whole kernel"]);
    }

    #[test]
    fn documents_are_of_no_package() {
        assert_eq!(selected(&["docs/a.md"]).0, ["format", "prose"]);
        assert_eq!(selected(&["README.md"]).0, ["format", "prose"]);
    }
}
