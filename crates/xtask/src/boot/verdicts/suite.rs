//! Reads the suites of `linux/programs/verdicts/suites.toml`, and makes their tests.
use crate::repository;
use kernel_boot::debian::Debian;
use kernel_boot::{here, output, programs};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tests of another project.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// The name in commands, and of its list of known differences.
    pub name: String,
    /// The name in tables.
    pub title: String,
    /// Memory of the guests.
    #[serde(default = "memory")]
    pub memory: String,
    /// Words of the command line, for both kernels.
    #[serde(default = "words")]
    pub words: String,
    /// Verdicts by exit status; `*` for all others, and for signals.
    statuses: BTreeMap<String, String>,
    /// Interfaces of POSIX that are tested.
    #[serde(default)]
    interfaces: Vec<String>,
    /// Packages with libraries of the tests.
    #[serde(default)]
    libraries: Vec<String>,
    /// Words by which a test says that it has tried nothing.
    #[serde(default)]
    skipped: BTreeMap<String, String>,
    /// Tests that are left out, with reasons.
    left_out: Vec<(String, String)>,
    /// Tests, one a line.
    #[serde(default)]
    tests: String,
}

fn memory() -> String {
    "2G".into()
}

fn words() -> String {
    "transparent_hugepage=never".into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suites {
    suite: Vec<Suite>,
}

/// The reason why no test is run.
#[derive(Debug, PartialEq)]
pub enum Problem {
    /// The tests, or Linux, cannot be had.
    Missing(String),
    /// Anything else.
    Failed(String),
}

impl From<String> for Problem {
    fn from(why: String) -> Self {
        Problem::Failed(why)
    }
}

/// Tests that are made for one run.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The root file system.
    pub root: PathBuf,
    /// Lines for process 1: a name, seconds, a user, a word of tests that were skipped, a command.
    pub tests: Vec<String>,
    /// Tests that do not compile, with the reasons.
    pub uncompiled: Vec<String>,
    /// Tests that are left out, with the reasons.
    pub left: Vec<(String, String)>,
}

/// The tests that are asked for; all if there are none.
pub struct Asked<'a>(pub &'a [String]);

impl Asked<'_> {
    /// Whether a test, or its group, is asked for.
    pub fn has(&self, test: &str) -> bool {
        let group = test.split('/').next().unwrap_or(test);
        self.0.is_empty() || self.0.iter().any(|asked| asked == test || asked == group)
    }
}

/// Reads all suites.
///
/// # Errors
///
/// A text that names the file, and the line or the field, if it cannot be read or is malformed.
pub fn read() -> Result<Vec<Suite>, String> {
    let path = programs().join("verdicts/suites.toml");
    let suites: Result<Suites, _> = toml::from_str(&repository::read(&path)?);
    suites.map(|suites| suites.suite).map_err(|e| format!("{}: {e}", path.display()))
}

/// Fetches the sources of a suite, and returns their directory.
fn fetched(name: &str) -> Result<PathBuf, Problem> {
    let said = output(Command::new(here().join("../crates/ptsan-released/c/fetch")).arg(name));
    let said = said.map_err(|why| Problem::Missing(format!("no sources of {name}: {why}")))?;
    Ok(PathBuf::from(said.trim()))
}

impl Suite {
    /// Returns the tests of an output of process 1, each with its verdict.
    pub fn verdicts(&self, log: &str) -> Vec<(String, String)> {
        let of_line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["VERDICT", test, kind, rest @ ..] = &words[..] else { return None };
            let number = rest.first().copied().unwrap_or("");
            let others = self.statuses.get("*").cloned();
            let verdict = match *kind {
                "exit" => self.statuses.get(number).cloned().or(others).unwrap_or(format!("exit-{number}")),
                "signal" => others.unwrap_or(format!("signal-{number}")),
                "skipped" => "skip".to_owned(),
                kind => kind.to_owned(),
            };
            Some(((*test).to_owned(), verdict))
        };
        log.lines().filter_map(of_line).collect()
    }

    /// Makes the tests that are asked for below `root`.
    ///
    /// # Errors
    ///
    /// The sources, or packages, cannot be had; a file cannot be made.
    pub fn prepare(&self, root: PathBuf, asked: &Asked<'_>) -> Result<Prepared, Problem> {
        let left = self.left_out.iter().filter(|(test, _)| asked.has(test)).cloned().collect();
        let mut prepared = Prepared { root, left, ..Prepared::default() };
        make(&prepared.root.join("etc"))?;
        match &*self.name {
            "posix" => self.posix(&mut prepared, asked)?,
            "selftests" => self.selftests(&mut prepared, asked)?,
            "stress" => self.stress(&mut prepared, asked)?,
            name => return Err(format!("the suite {name} has no tests").into()),
        }
        // Two users: some tests give up the first one's rights.
        let write = |name: &str, text: &str| {
            let path = prepared.root.join(name);
            fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        write("etc/passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")?;
        write("etc/group", "root:x:0:\nnogroup:x:65534:\n")?;
        let left: Vec<&String> = prepared.left.iter().map(|(test, _)| test).collect();
        prepared.tests.retain(|line| !left.iter().any(|left| line.split(' ').next() == Some(left.as_str())));
        let lines: String = prepared.tests.iter().map(|line| format!("{line}\n")).collect();
        write("tests.list", &lines)?;
        Ok(prepared)
    }

    fn posix(&self, prepared: &mut Prepared, asked: &Asked<'_>) -> Result<(), Problem> {
        let source = fetched("posixtestsuite")?;
        let include = format!("-I{}", source.join("include").display());
        for interface in &self.interfaces {
            let Ok(files) = fs::read_dir(source.join("conformance/interfaces").join(interface)) else {
                if asked.0.is_empty() {
                    println!("no tests: {interface}");
                }
                continue;
            };
            let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
            files.sort();
            for file in files.iter().filter(|file| repository::is_kind(file, "c")) {
                let name = format!("{interface}/{}", file.file_stem().unwrap_or_default().display());
                let text = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
                // One without is a part of others.
                if !has_word(&String::from_utf8_lossy(&text), "main") || !asked.has(&name) {
                    continue;
                }
                let program = prepared.root.join("tests").join(&name);
                make(&prepared.root.join("tests").join(interface))?;
                let mut gcc = Command::new("gcc");
                // The suite's own options but -Werror; no optimization moves an access that is to
                // fault.
                gcc.args([
                    "-std=gnu99",
                    "-D_POSIX_C_SOURCE=200112L",
                    "-O0",
                    "-w",
                    "-s",
                    "-static",
                    "-pthread",
                ]);
                gcc.arg(&include).arg("-o").arg(&program).arg(file).arg("-lrt");
                if compiles(&mut gcc, &name, prepared) {
                    prepared.tests.push(format!("{name} 20 0 - /tests/{name}"));
                }
            }
        }
        Ok(())
    }

    fn selftests(&self, prepared: &mut Prepared, asked: &Asked<'_>) -> Result<(), Problem> {
        let source = fetched("linux")?;
        let mut options = Vec::new();
        for library in &self.libraries {
            let directory = Debian::open("amd64", false).and_then(|debian| debian.package(library));
            let directory = directory.map_err(Problem::Missing)?;
            options.push(format!("-I{}/usr/include", directory.display()));
            options.push(format!("-L{}/usr/lib/x86_64-linux-gnu", directory.display()));
        }
        for name in ["tests", "huge", "sys"] {
            make(&prepared.root.join(name))?;
        }
        let tests = source.join("tools/testing/selftests/vm");
        for line in self.tests.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let [short, seconds, user, command] = words[..] else { continue };
            let name = format!("vm/{short}");
            if !asked.has(&name) {
                continue;
            }
            let program = command.split(' ').next().unwrap_or(command);
            let (file, made) =
                (tests.join(program).with_extension("c"), prepared.root.join("tests").join(program));
            if !made.exists() {
                let text = fs::read_to_string(&file).unwrap_or_default();
                let mut gcc = Command::new("gcc");
                gcc.args(["-O2", "-w", "-s", "-static", "-pthread", "-no-pie", "-mxsave"]);
                gcc.arg(format!("-I{}", source.display())).args(&options).arg("-o").arg(&made).arg(&file);
                // Some have functions in common.
                if text.contains("\"vm_util.h\"") {
                    gcc.arg(tests.join("vm_util.c"));
                }
                if !compiles(gcc.args(["-lcap", "-lnuma", "-ldl", "-lrt", "-lm"]), &name, prepared) {
                    continue;
                }
            }
            let skipped = self.skipped.get(short).map_or("-", |word| word);
            prepared.tests.push(format!("{name} {seconds} {user} {skipped} /tests/{command}"));
        }
        Ok(())
    }

    fn stress(&self, prepared: &mut Prepared, asked: &Asked<'_>) -> Result<(), Problem> {
        let tree = Debian::open("amd64", false).and_then(|debian| debian.root(&["stress-ng".to_owned()]));
        let tree = tree.map_err(|why| Problem::Missing(format!("no stress-ng of Debian's: {why}")))?;
        if !tree.join("usr/bin/stress-ng").is_file() {
            return Err(Problem::Missing(format!("no stress-ng in {}", tree.display())));
        }
        output(Command::new("cp").arg("-a").arg(tree.join(".")).arg(&prepared.root))?;
        for line in self.tests.lines() {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let [name, rounds, options @ ..] = &words[..] else { continue };
            let options: String = options.iter().map(|options| format!(" {options}")).collect();
            if asked.has(&format!("stress/{name}")) {
                prepared.tests.push(format!(
                    "stress/{name} 60 0 skipping /usr/bin/stress-ng --seed 1 --timeout 10 --verify --{name} 1 \
                     --{name}-ops {rounds}{options}"
                ));
            }
        }
        Ok(())
    }
}

fn make(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))
}

/// Whether a text has a word, not as a part of others.
fn has_word(text: &str, word: &str) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c: char| !is_of_word(c)).any(|each| each == word)
}

/// Compiles a test; notes one that does not compile.
fn compiles(compiler: &mut Command, name: &str, prepared: &mut Prepared) -> bool {
    let Err(why) = output(compiler) else { return true };
    let line = why.lines().find(|line| line.contains("error")).or(why.lines().next()).unwrap_or("");
    prepared.uncompiled.push(format!("{name}: {line}"));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_of_the_repository_are_read() {
        let suites = read().unwrap();
        let names: Vec<&str> = suites.iter().map(|suite| &*suite.name).collect();
        assert_eq!(names, ["posix", "selftests", "stress"]);
        assert!(suites[2].tests.lines().count() > 80);
    }

    #[test]
    fn statuses_and_signals_are_verdicts_of_the_suite() {
        let suites = read().unwrap();
        let log = "VERDICT a exit 0\nVERDICT b exit 9\nVERDICT c signal 11\nVERDICT d skipped\nVERDICT e late\nVERDICT\n";
        let of = |at: usize| -> Vec<String> {
            suites[at].verdicts(log).into_iter().map(|(_, verdict)| verdict).collect()
        };
        assert_eq!(of(0), ["pass", "exit-9", "signal-11", "skip", "late"]);
        assert_eq!(of(1), ["pass", "fail", "fail", "skip", "late"]);
    }

    #[test]
    fn tests_are_asked_for_by_name_or_group() {
        let names = ["mmap".to_owned(), "vm/a".to_owned()];
        let asked = Asked(&names);
        assert!(asked.has("mmap/1-1") && asked.has("vm/a") && !asked.has("vm/b"));
        assert!(Asked(&[]).has("vm/b"));
        assert!(has_word("int main(void)", "main") && !has_word("domain", "main"));
    }
}
