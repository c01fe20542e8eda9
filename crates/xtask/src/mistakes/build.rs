//! Builds copies of the workspace with mistakes compiled into them, and runs their tests.
use super::list::{Edit, Mistake, edited};
use super::lists::Lists;
use super::verdict::Verdict;
use crate::mutants::build::{Copy, Lines, executable};
use crate::mutants::judge::{Executable, Outcome, names, wait};
use crate::mutants::source::{Branch, ON, is_switchable};
use crate::repository;
use crate::tokens::{Token, functions, tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The root of the executable that has most tests of the library. A copy has it with the modules of
/// the named tests alone: all of them take three minutes to compile.
const MODULES: &str = "crates/ptarmigan/tests/all/main.rs";
const MODULES_OF: &str = "ptarmigan-tests/all";

/// A way to compile the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With `--cfg loom`.
    Models,
    Tests,
}

impl Kind {
    pub fn of(mistake: &Mistake) -> Self {
        match mistake.executable.as_str() {
            "ptarmigan/models" | "ptarmigan/lib" => Kind::Models,
            _ => Kind::Tests,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Models => "models",
            Kind::Tests => "tests",
        }
    }

    fn flags(self) -> &'static str {
        match self {
            Kind::Models => "--cfg loom",
            Kind::Tests => "",
        }
    }
}

/// No test needs debug information, which takes time to write and to link.
const VARIABLES: &[(&str, &str)] = &[("CARGO_PROFILE_DEV_DEBUG", "0")];

/// Tests that pass with a mistake are run again for this time: real threads do not race in each
/// run.
const AGAIN: Duration = Duration::from_secs(60);

/// The file with tests that passed without a mistake.
const PASSED: &str = "passed";

/// A copy of the workspace for mistakes of a kind.
pub struct Build<'l> {
    kind: Kind,
    lists: &'l Lists,
    copy: Copy,
    place: PathBuf,
    /// The files with mistakes of this kind.
    sources: BTreeMap<String, String>,
    branches: Vec<Branch>,
    /// The mistakes that are no branches.
    alone: BTreeSet<usize>,
    executables: Vec<Executable>,
    /// The names of the tests of each executable.
    names: BTreeMap<String, Vec<String>>,
    /// The file that the copy has with a mistake.
    changed: Option<String>,
    /// Tests that passed without a mistake, with the time when their executable was built.
    passed: BTreeSet<String>,
}

impl<'l> Build<'l> {
    /// Copies the workspace.
    pub fn new(kind: Kind, place: &Path, lists: &'l Lists) -> Result<Self, String> {
        let place = place.join(kind.name());
        let place = fs::create_dir_all(&place)
            .and_then(|()| place.canonicalize())
            .map_err(|e| format!("{}: {e}", place.display()))?;
        let (mut branches, mut alone) = (Vec::new(), BTreeSet::new());
        let mut sources = BTreeMap::new();
        for (number, made) in (1..).zip(&lists.mistakes) {
            if Kind::of(&made.mistake) != kind {
                continue;
            }
            let file = &made.mistake.file;
            let source = sources.entry(file.clone()).or_insert_with(|| lists.sources[file].clone());
            match branches_of(number, file, source, &made.edits) {
                Some(of) => branches.extend(of),
                None => _ = alone.insert(number),
            }
        }
        let roots: BTreeSet<String> = sources.keys().filter_map(|file| root_of(file)).collect();
        if let Some(root) = roots.iter().find(|root| sources.contains_key(*root)) {
            return Err(format!("{root}: a mistake in the root of a crate cannot be made"));
        }
        let is_changed = |name: &str| sources.contains_key(name) || roots.contains(name) || name == MODULES;
        let copy = Copy::new(&place, is_changed, kind.flags(), VARIABLES)?;
        for root in &roots {
            copy.put_switch(root, lists.mistakes.len())?;
        }
        let passed = fs::read_to_string(place.join(PASSED)).unwrap_or_default();
        let passed = passed.lines().map(str::to_owned).collect();
        Ok(Build {
            kind,
            lists,
            copy,
            place,
            sources,
            branches,
            alone,
            executables: Vec::new(),
            names: BTreeMap::new(),
            changed: None,
            passed,
        })
    }

    /// Whether a mistake is built alone.
    pub fn is_alone(&self, number: usize) -> bool {
        self.alone.contains(&number)
    }

    /// Builds the executables of mistakes, with all mistakes of this kind that are branches. One
    /// that does not compile as a branch is built alone.
    pub fn all(&mut self, wanted: &[&Mistake]) -> Result<(), String> {
        let executables: BTreeSet<&str> = wanted.iter().map(|mistake| mistake.executable.as_str()).collect();
        self.put_modules(wanted)?;
        let executables = &executables;
        loop {
            let lines = self.copy.put_branches(&self.sources, &self.branches)?;
            let blamed = match self.built(executables, Some(&lines))? {
                Ok(built) => {
                    self.executables = built;
                    break;
                }
                Err(blamed) => blamed,
            };
            self.branches.retain(|branch| !blamed.contains(&branch.number));
            self.alone.extend(blamed);
        }
        for executable in &self.executables {
            let mut command = self.command(executable);
            let listed = command.args(["--list", "--format", "terse"]).stdout(Stdio::piped()).output();
            let listed = listed.map_err(|e| format!("{}: {e}", executable.path.display()))?;
            let listed = names(&String::from_utf8_lossy(&listed.stdout));
            self.names.insert(executable.name.clone(), listed);
        }
        // All names are known to be right before any test runs.
        wanted.iter().try_for_each(|mistake| self.tests(mistake).map(drop))
    }

    /// Writes the root of the tests with the modules that mistakes name, and the modules that they
    /// use.
    fn put_modules(&self, wanted: &[&Mistake]) -> Result<(), String> {
        let tests = wanted.iter().filter(|mistake| mistake.executable == MODULES_OF);
        let named = tests.flat_map(|mistake| &mistake.tests).filter_map(|test| test.split("::").next());
        let named: BTreeSet<&str> = named.collect();
        let read = |file: &Path| repository::read(file);
        let root = Path::new(MODULES);
        let all = read(root)?;
        let mut wanted: BTreeSet<&str> =
            modules(&all).map(|(name, _)| name).filter(|name| named.contains(name)).collect();
        let directory = root.parent().unwrap_or(root);
        let mut todo: Vec<&str> = wanted.iter().copied().collect();
        while let Some(module) = todo.pop() {
            let mut used = BTreeSet::new();
            for file in files(&directory.join(module)) {
                used.extend(uses(&read(&file)?).into_iter().map(str::to_owned));
            }
            let new = modules(&all).map(|(name, _)| name).filter(|name| used.contains(*name));
            let new: Vec<&str> = new.filter(|name| !wanted.contains(name)).collect();
            wanted.extend(&new);
            todo.extend(new);
        }
        self.copy.put(MODULES, trimmed(&all, &wanted).as_bytes())
    }

    /// Builds executables. The error within is the mistakes that do not compile.
    fn built(
        &self,
        executables: &BTreeSet<&str>,
        lines: Option<&Lines>,
    ) -> Result<Result<Vec<Executable>, BTreeSet<usize>>, String> {
        let mut by_package: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for executable in executables {
            let (package, target) = executable.split_once('/').unwrap_or((executable, ""));
            by_package.entry(package).or_default().push(target);
        }
        let mut built = Vec::new();
        for (package, targets) in by_package {
            let mut arguments = vec!["test", "--locked", "--no-run", "--quiet", "-p", package];
            for target in targets {
                match target {
                    "lib" => arguments.push("--lib"),
                    target => arguments.extend(["--test", target]),
                }
            }
            let (passed, messages) = self.copy.cargo(&arguments)?;
            if !passed {
                let none = Lines::default();
                return lines.unwrap_or(&none).blamed(&messages).map(Err);
            }
            built.extend(messages.iter().filter_map(executable));
        }
        Ok(Ok(built))
    }

    fn command(&self, executable: &Executable) -> Command {
        let mut command = Command::new(&executable.path);
        command.current_dir(&executable.directory).env_remove(ON).env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Returns the executable of a mistake.
    fn executable(&self, mistake: &Mistake) -> Result<&Executable, String> {
        let named = match mistake.executable.split_once('/') {
            Some((package, "lib")) => format!("{package}/{package}"),
            _ => mistake.executable.clone(),
        };
        let executable = self.executables.iter().find(|executable| executable.name == named);
        executable.ok_or_else(|| format!("{}: {} was not built", mistake.place, mistake.executable))
    }

    /// Returns the tests that are run for a mistake: the named ones, or all.
    fn tests(&self, mistake: &Mistake) -> Result<Vec<&str>, String> {
        let Mistake { place, executable, tests, is_only, .. } = mistake;
        let names = self.names.get(&self.executable(mistake)?.name).into_iter().flatten();
        let begins = |name: &&str| tests.iter().any(|test| name.starts_with(test.as_str()));
        let (chosen, others): (Vec<&str>, Vec<&str>) = names.map(String::as_str).partition(begins);
        if chosen.is_empty() {
            let test = tests.join(" ");
            return Err(format!("{place}: {executable} has no test {test}; correct the line test: or only:"));
        }
        Ok(if *is_only { [chosen, others].concat() } else { chosen })
    }

    /// Checks that the tests of a mistake pass without it, unless they have since they were built.
    pub fn check(&mut self, mistake: &Mistake, limit: Duration) -> Result<(), String> {
        let executable = self.executable(mistake)?;
        let path = executable.path.display();
        let built = fs::metadata(&executable.path).and_then(|meta| meta.modified());
        let (name, built) = (&executable.name, format!("{:?}", built.map_err(|e| format!("{path}: {e}"))?));
        let of = |test: &str| format!("{name} {test} {built}");
        let mut todo = self.tests(mistake)?;
        todo.retain(|test| !self.passed.contains(&of(test)));
        if todo.is_empty() {
            return Ok(());
        }
        let (Outcome::Passed(_), _) = self.run(executable, &todo, 0, limit * todo.len() as u32)? else {
            let Mistake { place, executable, .. } = mistake;
            let test = todo.join(" ");
            return Err(format!("{place}: {executable} {test} fails without a mistake; correct it first"));
        };
        let is_old = |line: &String| line.starts_with(&format!("{name} ")) && !line.ends_with(&built);
        let kept = self.passed.iter().filter(|line| !is_old(line)).cloned();
        self.passed = kept.chain(todo.into_iter().map(of)).collect();
        let text: String = self.passed.iter().map(|line| format!("{line}\n")).collect();
        let file = self.place.join(PASSED);
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Runs tests with a mistake switched on, or without one (0). Returns the tests that fail, too.
    fn run(
        &self,
        executable: &Executable,
        tests: &[&str],
        number: usize,
        limit: Duration,
    ) -> Result<(Outcome, Vec<String>), String> {
        let output = self.place.join("output");
        let file = File::create(&output).map_err(|e| format!("{}: {e}", output.display()))?;
        let mut command = self.command(executable);
        command.arg("--exact").args(tests).env(ON, number.to_string()).stdout(file);
        let outcome = wait(&mut command, limit);
        let text = fs::read(&output).map_err(|e| format!("{}: {e}", output.display()))?;
        Ok((outcome, failures(&String::from_utf8_lossy(&text))))
    }

    /// Makes a mistake, and runs its tests.
    pub fn verdict(&mut self, number: usize, limit: Duration) -> Result<Verdict, String> {
        let made = &self.lists.mistakes[number - 1];
        if self.is_alone(number) {
            self.restore()?;
            self.put_modules(&[&made.mistake])?;
            let file = &made.mistake.file;
            self.copy.put(file, edited(&self.lists.sources[file], 0, &made.edits).as_bytes())?;
            self.changed = Some(file.clone());
            match self.built(&BTreeSet::from([made.mistake.executable.as_str()]), None) {
                Ok(Ok(built)) => {
                    self.executables.retain(|old| built.iter().all(|new| old.name != new.name));
                    self.executables.extend(built);
                }
                Ok(Err(_)) => return Ok(Verdict::Broken(String::new())),
                Err(why) => return Ok(Verdict::Broken(why)),
            }
        }
        let (executable, tests) = (self.executable(&made.mistake)?, self.tests(&made.mistake)?);
        let start = Instant::now();
        let (mut outcome, mut failed) = self.run(executable, &tests, number, limit)?;
        let is_again = self.kind == Kind::Tests && made.mistake.open.is_none();
        while is_again && matches!(outcome, Outcome::Passed(_)) && start.elapsed() < AGAIN {
            (outcome, failed) = self.run(executable, &tests, number, limit)?;
        }
        Ok(match outcome {
            Outcome::Passed(_) => Verdict::Survived,
            Outcome::TimedOut => Verdict::Hangs,
            Outcome::Failed if made.mistake.is_only && failed != made.mistake.tests => {
                Verdict::Others(failed)
            }
            Outcome::Failed => Verdict::Noticed,
        })
    }

    /// Takes the mistake that was built alone out of the copy.
    pub fn restore(&mut self) -> Result<(), String> {
        if let Some(file) = self.changed.take() {
            let sources = BTreeMap::from([(file.clone(), self.sources[&file].clone())]);
            self.copy.put_branches(&sources, &self.branches)?;
        }
        Ok(())
    }
}

/// Returns the modules of a root, with the bytes of each and its attributes.
fn modules(root: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    let (mut at, mut start) = (0, None);
    root.split_inclusive('\n').filter_map(move |line| {
        let first = start.take().unwrap_or(at);
        at += line.len();
        let name = line.trim_end().strip_prefix("mod ").and_then(|line| line.strip_suffix(';'));
        if line.starts_with("#[") {
            start = Some(first);
        }
        name.map(|name| (name, first..at))
    })
}

/// Returns a root without the modules that are not wanted. Modules of other directories stay.
fn trimmed(root: &str, wanted: &BTreeSet<&str>) -> String {
    let is_out = |(name, range): &(&str, Range<usize>)| {
        !wanted.contains(name) && !root[range.clone()].contains("#[path")
    };
    let out: Vec<Edit> = modules(root).filter(is_out).map(|(_, range)| (range, String::new())).collect();
    edited(root, 0, &out)
}

/// Returns the files of the module at a path without an extension.
fn files(module: &Path) -> Vec<PathBuf> {
    let below = fs::read_dir(module).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = below.chain([module.with_extension("rs")]);
    files.filter(|file| file.is_file() && file.extension().is_some_and(|end| end == "rs")).collect()
}

/// Returns the names behind `crate::` and `super::` in a source.
fn uses(source: &str) -> BTreeSet<&str> {
    let tokens = tokens(source);
    let mut names = BTreeSet::new();
    for (n, token) in tokens.iter().enumerate() {
        let is_path = |rest: &[Token<'_>]| rest.len() > 1 && rest[0].text == ":" && rest[1].text == ":";
        if matches!(token.text, "crate" | "super") && is_path(&tokens[n + 1..]) {
            let behind = &tokens[n + 3..];
            let is_group = behind.first().is_some_and(|token| token.text == "{");
            let len = if is_group { behind.iter().position(|token| token.text == ";") } else { None };
            names.extend(behind[..len.unwrap_or(behind.len().min(1))].iter().map(|token| token.text));
        }
    }
    names
}

/// Returns the root of the crate of a file.
fn root_of(file: &str) -> Option<String> {
    file.split_once("/src/").map(|(directory, _)| format!("{directory}/src/lib.rs"))
}

/// Returns a mistake's branches, one for each function that it changes; `None` if it changes
/// something that is no body, or the body of a function that cannot have branches.
fn branches_of(number: usize, file: &str, source: &str, edits: &[Edit]) -> Option<Vec<Branch>> {
    let functions = functions(&tokens(source));
    let mut by_body: BTreeMap<usize, Vec<Edit>> = BTreeMap::new();
    for edit in edits {
        let function =
            functions.iter().position(|f| f.body.start <= edit.0.start && edit.0.end <= f.body.end)?;
        if !is_switchable(&source[functions[function].signature.clone()]) {
            return None;
        }
        by_body.entry(function).or_default().push(edit.clone());
    }
    let branch = |(function, edits): (usize, Vec<Edit>)| {
        let body = functions[function].body.clone();
        let changed = edited(&source[body.clone()], body.start, &edits);
        Branch { file: file.into(), number, body, changed }
    };
    Some(by_body.into_iter().map(branch).collect())
}

/// Reads the names of tests that failed.
fn failures(output: &str) -> Vec<String> {
    let mut failed: Vec<String> = output
        .lines()
        .filter_map(|line| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned()))
        .collect();
    failed.sort();
    failed
}

#[cfg(test)]
mod tests {
    use super::super::list::parse;
    use super::*;

    const SOURCE: &str = "const A: u8 = 1;\nfn f() {\n    a();\n    b();\n}\nconst fn g() {\n    c();\n}\nfn h() {\n    d();\n}\n";

    fn branches(lines: &str) -> Option<Vec<(String, String)>> {
        let text = format!("## one\nfile: x.rs\ntest: p/t a\n{lines}");
        let edits = parse("models/l", &text).expect("fine")[0].edits(SOURCE).expect("there");
        let branches = branches_of(7, "x.rs", SOURCE, &edits)?;
        Some(branches.into_iter().map(|b| (SOURCE[b.body].to_owned(), b.changed)).collect())
    }

    #[test]
    fn a_mistake_has_a_branch_in_each_function_that_it_changes() {
        let f = ("\n    a();\n    b();\n".to_owned(), "\n    b();\n".to_owned());
        let h = ("\n    d();\n".to_owned(), "\n    e();\n".to_owned());
        assert_eq!(branches("-a();\n"), Some(vec![f.clone()]));
        assert_eq!(branches("-a();\n@@\n-d();\n+    e();\n"), Some(vec![f, h]));
    }

    #[test]
    fn a_mistake_outside_bodies_or_in_a_const_fn_has_no_branch() {
        for lines in ["-const A: u8 = 1;\n", "-c();\n", "-fn f() {\n+fn f() -> u8 {\n", "-a();\n@@\n-c();\n"]
        {
            assert_eq!(branches(lines), None, "{lines}");
        }
    }

    #[test]
    fn a_root_keeps_wanted_modules_and_other_directories() {
        let root = "//! Tests.\n#[macro_use]\n#[path = \"../x.rs\"]\nmod x;\n\n#[cfg(not(miri))]\nmod a;\nmod b;\n\
                    #[cfg(not(miri))]\nmod c;\nuse x::y;\n";
        assert_eq!(modules(root).map(|(name, _)| name).collect::<Vec<_>>(), ["x", "a", "b", "c"]);
        assert_eq!(
            trimmed(root, &BTreeSet::from(["c"])),
            "//! Tests.\n#[macro_use]\n#[path = \"../x.rs\"]\nmod x;\n\n#[cfg(not(miri))]\nmod c;\nuse x::y;\n"
        );
    }

    #[test]
    fn modules_that_a_source_uses_are_found() {
        let source = "use crate::a::b;\nuse crate::{c, d::{e}};\nfn f() { super::g::h(); crate::i::<u8>() }";
        let used = uses(source);
        assert!(["a", "c", "d", "g", "i"].iter().all(|name| used.contains(name)), "{used:?}");
        assert!(!used.contains("b") && !used.contains("h") && !used.contains("f"), "{used:?}");
        assert!(uses("crate::").is_empty());
    }

    #[test]
    fn tests_that_failed_are_read() {
        let output =
            "running 3 tests\ntest b::c ... FAILED\ntest a ... FAILED\ntest d ... ok\n\nfailures:\n    a\n";
        assert_eq!(failures(output), ["a", "b::c"]);
    }

    #[test]
    fn models_are_compiled_in_their_own_way() {
        let kind = |executable: &str| {
            Kind::of(&parse("l", &format!("## a\nfile: x\ntest: {executable} a\n-a\n")).expect("fine")[0])
        };
        assert_eq!([kind("ptarmigan/models"), kind("ptarmigan/lib")], [Kind::Models; 2]);
        assert_eq!([kind("ptarmigan-tests/all"), kind("ptsan/lib")], [Kind::Tests; 2]);
        assert_eq!(root_of("crates/ptsan/src/a/b.rs").as_deref(), Some("crates/ptsan/src/lib.rs"));
    }
}
