//! Finds the packages that a change touches, by the manifests of all workspaces, and their jobs.
use super::jobs::{Job, Table, Tier};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

/// A package of a workspace.
struct Member {
    /// Its directory, from the root of the repository.
    directory: PathBuf,
    /// Directories of the packages that it is built with.
    uses: Vec<PathBuf>,
    /// Whether it is one of the workspace at the root, whose packages have tests that run here.
    hosted: bool,
}

/// The packages of the repository, by name.
pub struct Packages(BTreeMap<String, Member>);

/// Jobs that run for a change, and those that are left out.
pub struct Selection {
    /// The jobs: tests of the changed packages, then those of the table.
    pub jobs: Vec<Job>,
    /// Names of the jobs of the tier *change* that are left out.
    pub rest: Vec<String>,
    /// The packages that have changed.
    pub packages: Vec<String>,
}

impl Packages {
    /// Reads the manifests of the repository at `root`.
    ///
    /// # Errors
    ///
    /// The message of git or cargo, if one fails.
    pub fn read(root: &Path) -> Result<Self, String> {
        let mut packages = BTreeMap::new();
        for manifest in said(root, "git", &["ls-files", "Cargo.toml", "*/Cargo.toml"])?.lines() {
            let text =
                std::fs::read_to_string(root.join(manifest)).map_err(|err| format!("{manifest}: {err}"))?;
            if !text.lines().any(|line| line == "[workspace]") {
                continue;
            }
            let words =
                ["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", manifest];
            let metadata = said(root, "cargo", &words)?;
            let metadata: Value =
                serde_json::from_str(&metadata).map_err(|err| format!("{manifest}: {err}"))?;
            let hosted = manifest == "Cargo.toml";
            for package in metadata["packages"].as_array().into_iter().flatten() {
                let below = |path: &Value| {
                    path.as_str().and_then(|path| Some(Path::new(path).strip_prefix(root).ok()?.to_owned()))
                };
                let name = package["name"].as_str().unwrap_or_default().to_owned();
                let manifest = below(&package["manifest_path"]).unwrap_or_default();
                let uses = package["dependencies"].as_array().into_iter().flatten();
                let uses = uses.filter_map(|dependency| below(&dependency["path"])).collect();
                let directory = manifest.parent().map(Path::to_owned).unwrap_or_default();
                packages.insert(name, Member { directory, uses, hosted });
            }
        }
        Ok(Packages(packages))
    }

    /// Returns the package that has `file`: the one with the deepest directory.
    fn of(&self, file: &Path) -> Option<&str> {
        let inside = self.0.iter().filter(|(_, package)| file.starts_with(&package.directory));
        inside
            .max_by_key(|(_, package)| package.directory.components().count())
            .map(|(name, _)| name.as_str())
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
        let inside = |package: &Member| {
            changed.iter().any(|name| {
                let of = &self.0[name].directory;
                package.directory.starts_with(of) && !of.as_os_str().is_empty()
            })
        };
        let packages = self.0.iter().filter(|(_, package)| package.hosted && inside(package));
        packages.map(|(name, _)| name.as_str()).collect()
    }

    /// Chooses the jobs of `files`, paths from the root of the repository.
    pub fn select(&self, table: &Table, files: &[PathBuf]) -> Selection {
        let changed: BTreeSet<String> =
            files.iter().filter_map(|file| self.of(file)).map(str::to_owned).collect();
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
        tier: Tier::Change,
        lane: 0,
        minutes: 3.0,
        needs: Vec::new(),
        of: vec![name.to_owned()],
        smoke: false,
        parts: None,
        run: format!("cargo clippy -p {name} --all-targets -- -D warnings\ncargo test -p {name} --tests"),
        part: 0,
    }
}

/// Returns the files that differ from `base`, those of no commit among them.
///
/// # Errors
///
/// The message of git, if it fails.
pub fn files(root: &Path, base: Option<&str>) -> Result<Vec<PathBuf>, String> {
    let upstream = said(root, "git", &["merge-base", "HEAD", "@{upstream}"]).ok();
    let base = base.or(upstream.as_deref()).unwrap_or("HEAD").to_owned();
    let differ = said(root, "git", &["diff", "--name-only", &base])?;
    let new = said(root, "git", &["ls-files", "--others", "--exclude-standard"])?;
    Ok(differ.lines().chain(new.lines()).map(PathBuf::from).collect())
}

fn said(root: &Path, program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).current_dir(root).output();
    let output = output.map_err(|err| format!("{program}: {err}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{program} {}: {said}", words.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Packages {
        let package = |directory: &str, uses: &[&str], hosted| Member {
            directory: directory.into(),
            uses: uses.iter().map(PathBuf::from).collect(),
            hosted,
        };
        Packages(BTreeMap::from([
            ("lib".to_owned(), package("crates/lib", &[], true)),
            ("lib-tests".to_owned(), package("crates/lib/tests", &["crates/lib"], true)),
            ("cli".to_owned(), package("crates/cli", &["crates/lib"], true)),
            ("kernel".to_owned(), package("kernels/kernel", &["crates/cli"], false)),
            ("other".to_owned(), package("crates/other", &[], true)),
        ]))
    }

    fn selected(files: &[&str]) -> (Vec<String>, Vec<String>) {
        let job = |name: &str, of: &[&str], smoke| Job {
            name: name.into(),
            smoke,
            of: of.iter().map(|&of| of.to_owned()).collect(),
            ..super::tests("x")
        };
        let table = Table {
            slice_minutes: 15.0,
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
    fn a_change_of_the_library_has_its_tests_and_smoke_jobs_of_dependants() {
        let (jobs, rest) = selected(&["crates/lib/src/a.rs"]);
        assert_eq!(jobs, ["tests of lib", "tests of lib-tests", "format", "boot"]);
        assert_eq!(rest, ["lints", "whole kernel", "prose", "others"]);
    }

    #[test]
    fn a_change_of_a_test_or_a_kernel_is_its_own() {
        assert_eq!(selected(&["crates/lib/tests/all/a.rs"]).0, ["tests of lib-tests", "format"]);
        assert_eq!(selected(&["kernels/kernel/src/a.rs"]).0, ["format", "boot", "whole kernel"]);
    }

    #[test]
    fn documents_are_of_no_package() {
        assert_eq!(selected(&["docs/a.md"]).0, ["format", "prose"]);
        assert_eq!(selected(&["README.md"]).0, ["format", "prose"]);
    }

    #[test]
    fn manifests_of_the_repository_are_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let packages = Packages::read(&root).unwrap();
        assert_eq!(packages.of(Path::new("crates/ptarmigan/tests/all/main.rs")), Some("ptarmigan-tests"));
        let all = packages.dependants(&BTreeSet::from(["ptarmigan".to_owned()]));
        assert!(all.contains("ptarmigan-cli") && all.contains("ptarmigan-kernel") && !all.contains("ptsan"));
    }
}
