//! Copies the workspace, compiles mutants into the copy, and builds its tests.
use super::judge::Executable;
use super::source::{Branch, Mutant, switch, switched};
use crate::repository;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

/// The root of the crate that mutants are of.
pub const ROOT: &str = "crates/ptarmigan/src/lib.rs";
/// Packages with tests of the library.
const PACKAGES: [&str; 3] = ["ptarmigan", "ptarmigan-tests", "ptarmigan-ptsan-tests"];

/// A copy of the workspace, with its own artefacts.
pub struct Copy {
    tree: PathBuf,
    target: PathBuf,
    /// Flags of the compiler, beside one that makes lints no errors.
    flags: &'static str,
    /// Variables of the environment of cargo.
    variables: &'static [(&'static str, &'static str)],
}

impl Copy {
    /// Copies the files that git knows, or would, of the workspace in the current directory; a
    /// caller that changes some of them leaves them to [`put`](Self::put). Files that are the same
    /// stay as old as they are, so that cargo does not build them again.
    pub fn new(
        place: &Path,
        is_changed: impl Fn(&str) -> bool,
        flags: &'static str,
        variables: &'static [(&'static str, &'static str)],
    ) -> Result<Self, String> {
        let copy = Copy { tree: place.join("tree"), target: place.join("target"), flags, variables };
        let mut kept = BTreeSet::new();
        for from in repository::files()? {
            let name = from.display().to_string();
            kept.insert(copy.tree.join(&from));
            if !is_changed(&name) {
                copy.put(&name, &fs::read(&from).map_err(|e| format!("{name}: {e}"))?)?;
            }
        }
        remove_others(&copy.tree, &kept).map_err(|e| format!("{}: {e}", copy.tree.display()))?;
        Ok(copy)
    }

    /// Writes a file of the copy.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        put(&self.tree.join(name), bytes).map_err(|e| format!("{name}: {e}"))
    }

    /// Writes files with branches compiled into them. Returns the lines of the branches.
    pub fn put_branches(
        &self,
        sources: &BTreeMap<String, String>,
        branches: &[Branch],
    ) -> Result<Lines, String> {
        let mut lines = Lines::default();
        for (name, source) in sources {
            let own: Vec<&Branch> = branches.iter().filter(|branch| branch.file == *name).collect();
            let (source, of) = switched(source, &own);
            self.put(name, source.as_bytes())?;
            lines.0.insert(name.clone(), of);
        }
        Ok(lines)
    }

    /// Writes the root of a crate, with the switch of `count` branches.
    pub fn put_switch(&self, root: &str, count: usize) -> Result<(), String> {
        let text = fs::read_to_string(root).map_err(|e| format!("{root}: {e}"))? + &switch(count);
        self.put(root, text.as_bytes())
    }

    /// Compiles mutants into the copy: all, each under its number. Returns their lines by file.
    pub fn put_mutants(
        &self,
        sources: &BTreeMap<String, String>,
        mutants: &[(usize, &Mutant)],
    ) -> Result<Lines, String> {
        self.put_switch(ROOT, mutants.len())?;
        let branches: Vec<Branch> =
            mutants.iter().map(|(number, m)| m.branch(*number, &sources[&m.file])).collect();
        self.put_branches(sources, &branches)
    }

    /// Runs cargo in the copy. Returns whether it succeeded, and its messages.
    pub fn cargo(&self, arguments: &[&str]) -> Result<(bool, Vec<Value>), String> {
        let output = Command::new("cargo")
            .args(arguments)
            .args(["--message-format", "json"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "0")
            .envs(self.variables.iter().copied())
            // A mutant may break a lint.
            .env("RUSTFLAGS", format!("--cap-lints=warn {}", self.flags).trim_end())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .map_err(|e| format!("cargo: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((
            output.status.success(),
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
        ))
    }

    /// Checks the library. Returns the mutants that do not compile.
    pub fn check(&self, lines: &Lines) -> Result<BTreeSet<usize>, String> {
        let (passed, messages) = self.cargo(&["check", "--quiet", "-p", "ptarmigan", "--lib"])?;
        if passed { Ok(BTreeSet::new()) } else { lines.blamed(&messages) }
    }

    /// Builds all tests. The error is the mutants that do not compile.
    pub fn build(&self, lines: &Lines) -> Result<Result<Vec<Executable>, BTreeSet<usize>>, String> {
        let mut arguments = vec!["test", "--no-run", "--quiet", "--lib", "--tests"];
        arguments.extend(PACKAGES.iter().flat_map(|package| ["-p", package]));
        let (passed, messages) = self.cargo(&arguments)?;
        if !passed {
            return lines.blamed(&messages).map(Err);
        }
        Ok(Ok(messages.iter().filter_map(executable).collect()))
    }
}

/// Reads the message about an executable of tests.
pub fn executable(message: &Value) -> Option<Executable> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    // The package's name, if its directory has another one.
    let (path, named) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = named.split_once('@').map_or(path.rsplit('/').next(), |(name, _)| Some(name))?;
    let name = message["target"]["name"].as_str()?;
    Some(Executable {
        name: format!("{package}/{name}"),
        path: message["executable"].as_str()?.into(),
        directory,
    })
}

/// The lines of mutants in the files of the copy.
#[derive(Default)]
pub struct Lines(BTreeMap<String, Vec<(Range<usize>, usize)>>);

impl Lines {
    /// Returns the mutants that errors of the compiler are about.
    ///
    /// # Errors
    ///
    /// The first error, if there is no mutant in the lines of any.
    pub fn blamed(&self, messages: &[Value]) -> Result<BTreeSet<usize>, String> {
        let mut blamed = BTreeSet::new();
        let mut first = None;
        for message in messages.iter().map(|m| &m["message"]).filter(|m| m["level"] == "error") {
            let spans = message["spans"].as_array().into_iter().flatten();
            for span in spans.filter(|span| span["is_primary"] == true) {
                let (file, line) =
                    (span["file_name"].as_str().unwrap_or_default(), span["line_start"].as_u64());
                let of_file =
                    self.0.iter().filter(|(name, _)| file.ends_with(name.as_str())).flat_map(|(_, of)| of);
                blamed.extend(
                    of_file
                        .filter(|(range, _)| line.is_some_and(|l| range.contains(&(l as usize))))
                        .map(|o| o.1),
                );
            }
            first = first.or(message["rendered"].as_str());
        }
        if blamed.is_empty() {
            return Err(format!(
                "the copy does not compile: {}",
                first.unwrap_or("cargo says nothing of it")
            ));
        }
        Ok(blamed)
    }
}

/// Writes a file, unless it is the same already.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, bytes)
}

/// Removes files of earlier copies.
fn remove_others(directory: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_are_blamed_on_the_mutants_of_their_lines() {
        let lines = Lines(BTreeMap::from([("src/a.rs".to_owned(), vec![(3..6, 1), (6..9, 2)])]));
        let error = |file: &str, line: u64, primary: bool| {
            let span = json!({ "file_name": file, "line_start": line, "is_primary": primary });
            json!({ "message": { "level": "error", "rendered": "wrong", "spans": [span] } })
        };
        assert_eq!(lines.blamed(&[error("x/src/a.rs", 6, true)]), Ok(BTreeSet::from([2])));
        assert_eq!(
            lines.blamed(&[error("src/a.rs", 5, true), error("src/b.rs", 6, true)]),
            Ok(BTreeSet::from([1]))
        );
        for none in [error("src/a.rs", 9, true), error("src/a.rs", 5, false), error("src/b.rs", 5, true)] {
            assert!(lines.blamed(&[none]).is_err_and(|why| why.contains("wrong")));
        }
    }

    #[test]
    fn executables_of_tests_are_named_by_package_and_target() {
        let of = |test: bool, id: &str| {
            executable(&json!({
                "reason": "compiler-artifact", "profile": { "test": test }, "manifest_path": "/w/tests/Cargo.toml",
                "package_id": id, "target": { "name": "all" }, "executable": "/w/target/all-1",
            }))
        };
        let found = of(true, "path+file:///w/crates/ptarmigan/tests#ptarmigan-tests@0.1.0").expect("one");
        assert_eq!(
            (found.name.as_str(), found.directory.as_path()),
            ("ptarmigan-tests/all", Path::new("/w/tests"))
        );
        assert_eq!(of(true, "path+file:///w/crates/ptarmigan#0.1.0").expect("one").name, "ptarmigan/all");
        assert!(of(false, "path+file:///w/crates/ptarmigan#0.1.0").is_none());
    }

    #[test]
    fn a_file_that_is_the_same_stays_as_old_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path();
        let (a, b) = (directory.join("x/a"), directory.join("b"));
        let age = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).expect("it is there");
        put(&a, b"1").expect("written");
        put(&b, b"1").expect("written");
        let old = std::time::SystemTime::UNIX_EPOCH;
        fs::File::options().write(true).open(&a).and_then(|f| f.set_modified(old)).expect("its time");
        put(&a, b"1").expect("the same");
        let same = age(&a);
        put(&a, b"2").expect("another");
        let other = age(&a);
        remove_others(directory, &BTreeSet::from([a.clone()])).expect("removed");
        let left = (a.exists(), b.exists());
        assert_eq!((same == old, other == old, left), (true, false, (true, false)));
    }
}
