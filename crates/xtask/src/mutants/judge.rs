//! Runs tests with a mutant switched on, until one notices.
use super::source::{Mutant, ON, SEEN};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// An executable of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Its package and target, as `ptarmigan-tests/all`.
    pub name: String,
    pub path: PathBuf,
    /// The directory of its package, where it runs.
    pub directory: PathBuf,
}

/// A test, as it runs without a mutant.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Test {
    /// The name of its executable.
    pub executable: String,
    pub name: String,
    pub time: Duration,
    /// The mutants that it comes to; `None` for all: it cannot be watched.
    pub seen: Option<BTreeSet<usize>>,
}

impl Test {
    /// Returns its executable and name.
    pub fn id(&self) -> String {
        format!("{} {}", self.executable, self.name)
    }

    fn comes_to(&self, number: usize) -> bool {
        self.seen.as_ref().is_none_or(|seen| seen.contains(&number))
    }
}

/// The end of a run of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed(Duration),
    Failed,
    /// It was ended at its limit.
    TimedOut,
}

/// The result of the tests of a mutant.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// This test fails, or does not end.
    Killed(String),
    /// No test notices; so many come to it.
    Survived(usize),
    /// Why it cannot be said.
    Undecided(String),
}

impl Verdict {
    /// Returns the verdict of these tests and of others.
    pub fn and(self, other: Verdict) -> Verdict {
        match (self, other) {
            (killed @ Verdict::Killed(_), _) | (_, killed @ Verdict::Killed(_)) => killed,
            (open @ Verdict::Undecided(_), _) | (_, open @ Verdict::Undecided(_)) => open,
            (Verdict::Survived(some), Verdict::Survived(more)) => Verdict::Survived(some + more),
        }
    }
}

/// Limits of time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A test has this time, and eight times that of its run without a mutant.
    pub test: Duration,
    /// All tests of a mutant have this time.
    pub mutant: Duration,
}

impl Limits {
    fn of(&self, test: &Test) -> Duration {
        self.test + test.time * 8
    }
}

/// Runs tests; separate from [`judge`] so that its decisions have tests.
pub trait Runner {
    /// Runs a test with the mutant of a number switched on; 0 is the code as it is.
    fn run(&mut self, test: &Test, number: usize, limit: Duration) -> Outcome;
}

/// The words of names of tests that are close to a mutant: its file and the directories of it.
fn words(mutant: &Mutant) -> Vec<&str> {
    let below = mutant.file.split_once("/src/").map_or(mutant.file.as_str(), |(_, below)| below);
    let parts = below.trim_end_matches(".rs").split('/').rev();
    parts.filter(|part| *part != "mod").collect()
}

/// Sorts the tests that come to a mutant: first tests that are named for its file, then for its
/// directories, then others; fast ones first.
pub fn chosen<'t>(mutant: &Mutant, number: usize, tests: &'t [Test]) -> Vec<&'t Test> {
    let words = words(mutant);
    let distance = |test: &Test| {
        let id = test.id();
        words.iter().position(|word| id.contains(word)).unwrap_or(words.len())
    };
    let mut chosen: Vec<&Test> = tests.iter().filter(|test| test.comes_to(number)).collect();
    chosen.sort_by_key(|test| (distance(test), test.time));
    chosen
}

/// Runs tests with a mutant until one fails. A failure counts only if the test passes without the
/// mutant, and a time-out only if it takes a quarter of its limit at most then.
pub fn judge(tests: &[&Test], number: usize, limits: Limits, runner: &mut impl Runner) -> Verdict {
    let start = Instant::now();
    let mut open = None;
    for (done, test) in tests.iter().enumerate() {
        if start.elapsed() > limits.mutant {
            open = open.or(Some(format!("{done} of {} tests ran in the time", tests.len())));
            break;
        }
        let limit = limits.of(test);
        let outcome = runner.run(test, number, limit);
        if let Outcome::Passed(_) = outcome {
            continue;
        }
        match (outcome, runner.run(test, 0, limit)) {
            (Outcome::Failed, Outcome::Passed(_)) => return Verdict::Killed(test.id()),
            (Outcome::TimedOut, Outcome::Passed(time)) if time * 4 <= limit => {
                return Verdict::Killed(format!("{}, which does not end", test.id()));
            }
            _ => open = Some(format!("{} takes too long or fails without it, too", test.id())),
        }
    }
    open.map_or(Verdict::Survived(tests.len()), Verdict::Undecided)
}

/// Runs executables of tests, each test in a process of its own.
pub struct Processes<'e> {
    pub executables: &'e [Executable],
    /// The file for the mutants that are come to.
    pub seen: &'e Path,
}

impl Processes<'_> {
    fn command(&self, executable: &Executable) -> Command {
        let mut command = Command::new(&executable.path);
        command.current_dir(&executable.directory).env_remove(ON).env_remove(SEEN);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Returns the names of all tests that are not ignored.
    pub fn names(&self, executable: &Executable) -> Result<Vec<String>, String> {
        let list = |more: &[&str]| {
            let mut command = self.command(executable);
            let output =
                command.args(["--list", "--format", "terse"]).args(more).stdout(Stdio::piped()).output();
            let output = output.map_err(|e| format!("{}: {e}", executable.path.display()))?;
            Ok::<_, String>(names(&String::from_utf8_lossy(&output.stdout)))
        };
        let (all, ignored) = (list(&[])?, list(&["--ignored"])?);
        Ok(all.into_iter().filter(|name| !ignored.contains(name)).collect())
    }

    /// Runs a test without a mutant, and notes which ones it comes to. The error is that it fails,
    /// or takes too long.
    pub fn measure(&mut self, executable: &Executable, name: &str, limit: Duration) -> Result<Test, Outcome> {
        let _ = fs::remove_file(self.seen);
        let mut test =
            Test { executable: executable.name.clone(), name: name.into(), time: Duration::ZERO, seen: None };
        let mut command = self.command(executable);
        command.env(SEEN, self.seen).args(["--exact", name, "--test-threads=1"]);
        let mut outcome = wait(&mut command, limit);
        if let Outcome::Passed(_) = outcome {
            let seen = fs::read_to_string(self.seen).unwrap_or_default();
            test.seen = Some(seen.lines().filter_map(|line| line.parse().ok()).collect());
        } else if outcome == Outcome::Failed {
            // A test of allocations, perhaps, which the file disturbs.
            outcome = self.run(&test, 0, limit);
        }
        match outcome {
            Outcome::Passed(time) => Ok(Test { time, ..test }),
            other => Err(other),
        }
    }
}

impl Runner for Processes<'_> {
    fn run(&mut self, test: &Test, number: usize, limit: Duration) -> Outcome {
        let Some(executable) = self.executables.iter().find(|e| e.name == test.executable) else {
            return Outcome::Failed;
        };
        let mut command = self.command(executable);
        command.env(ON, number.to_string()).args(["--exact", &test.name, "--test-threads=1"]);
        wait(&mut command, limit)
    }
}

/// Reads a list of tests.
pub fn names(list: &str) -> Vec<String> {
    list.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned)).collect()
}

/// Runs a command; at the limit, it is killed with its children.
pub fn wait(command: &mut Command, limit: Duration) -> Outcome {
    let start = Instant::now();
    let Ok(mut child) = command.process_group(0).spawn() else { return Outcome::Failed };
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Outcome::Passed(start.elapsed()),
            Ok(None) if start.elapsed() < limit => {}
            Ok(None) => {
                // SAFETY: no memory is passed; the child, which has not been waited for, leads the
                // group.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
                let _ = child.wait();
                return Outcome::TimedOut;
            }
            _ => return Outcome::Failed,
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Failed, Passed, TimedOut};

    const SHORT: Duration = Duration::from_millis(10);
    const LIMITS: Limits = Limits { test: Duration::from_secs(1), mutant: Duration::from_secs(100) };

    fn test(executable: &str, name: &str, millis: u64, seen: Option<&[usize]>) -> Test {
        let seen = seen.map(|seen| seen.iter().copied().collect());
        Test { executable: executable.into(), name: name.into(), time: Duration::from_millis(millis), seen }
    }

    fn mutant(file: &str) -> Mutant {
        let source = std::collections::BTreeMap::from([(file.to_owned(), "fn f() { 1 }".to_owned())]);
        let place = |column| serde_json::json!({ "line": 1, "column": column });
        let entry = serde_json::json!([{
            "file": file, "replacement": "2", "name": format!("{file}:1:10: replace f with 2"),
            "function": { "function_name": "f", "span": { "start": place(1), "end": place(13) } },
            "span": { "start": place(10), "end": place(11) },
        }]);
        super::super::source::parse(&entry.to_string(), &source).expect("fine").remove(0)
    }

    /// Outcomes with the mutant and without it, by the name of the test.
    struct Told<'a>(&'a [(&'a str, Outcome, Outcome)], Vec<(String, usize)>);

    impl Runner for Told<'_> {
        fn run(&mut self, test: &Test, number: usize, _: Duration) -> Outcome {
            self.1.push((test.name.clone(), number));
            let (_, with, without) = self.0.iter().find(|told| told.0 == test.name).expect("told");
            if number == 0 { *without } else { *with }
        }
    }

    #[test]
    fn tests_named_for_the_file_come_before_others() {
        let tests = [
            test("all", "space::slow", 9, Some(&[1])),
            test("all", "areas::slow", 9, Some(&[1])),
            test("all", "areas::elsewhere", 1, Some(&[2])),
            test("all", "areas::unwatched", 5, None),
            test("all", "tree::fast", 1, Some(&[1, 2])),
            test("areas", "x", 1, Some(&[1])),
            test("all", "store::x", 99, Some(&[1])),
        ];
        let mutant = mutant("crates/ptarmigan/src/space/areas/store.rs");
        let names: Vec<String> = chosen(&mutant, 1, &tests).iter().map(|test| test.id()).collect();
        assert_eq!(
            names,
            [
                "all store::x",
                "areas x",
                "all areas::unwatched",
                "all areas::slow",
                "all space::slow",
                "all tree::fast"
            ]
        );
        assert_eq!(
            words(&super::tests::mutant("crates/ptarmigan/src/quicklist/check/mod.rs")),
            ["check", "quicklist"]
        );
    }

    #[test]
    fn a_mutant_is_killed_only_by_a_test_that_passes_without_it() {
        let tests = [test("all", "a", 1, None), test("all", "b", 1, None)];
        let tests: Vec<&Test> = tests.iter().collect();
        let judged = |a: (Outcome, Outcome), b: (Outcome, Outcome)| {
            let outcomes = [("a", a.0, a.1), ("b", b.0, b.1)];
            let mut told = Told(&outcomes, Vec::new());
            (judge(&tests, 7, LIMITS, &mut told), told.1.len())
        };
        let passes = (Passed(SHORT), Passed(SHORT));
        assert_eq!(judged(passes, passes), (Verdict::Survived(2), 2));
        assert_eq!(judged(passes, (Failed, Passed(SHORT))), (Verdict::Killed("all b".into()), 3));
        assert_eq!(
            judged((Failed, Passed(SHORT)), passes),
            (Verdict::Killed("all a".into()), 2),
            "at the first"
        );
        let (loops, n) = judged((TimedOut, Passed(SHORT)), passes);
        assert_eq!((loops, n), (Verdict::Killed("all a, which does not end".into()), 2));
        // On a busy machine, and of a test that fails anyway.
        for open in
            [(TimedOut, Passed(LIMITS.test)), (TimedOut, TimedOut), (Failed, Failed), (Failed, TimedOut)]
        {
            assert!(
                matches!(judged(open, passes).0, Verdict::Undecided(why) if why.contains("all a")),
                "{open:?}"
            );
            assert_eq!(
                judged(open, (Failed, Passed(SHORT))).0,
                Verdict::Killed("all b".into()),
                "the next decides"
            );
        }
        let none = Limits { mutant: Duration::ZERO, ..LIMITS };
        let late = judge(&tests, 7, none, &mut Told(&[], Vec::new()));
        assert_eq!(late, Verdict::Undecided("0 of 2 tests ran in the time".into()));
        assert_eq!(judge(&[], 7, LIMITS, &mut Told(&[], Vec::new())), Verdict::Survived(0));
        let [killed, open] = [Verdict::Killed("all a".into()), Verdict::Undecided("late".into())];
        assert_eq!(Verdict::Survived(2).and(Verdict::Survived(3)), Verdict::Survived(5));
        assert_eq!(
            (open.clone().and(Verdict::Survived(3)), open.clone().and(killed.clone())),
            (open, killed)
        );
    }

    #[test]
    fn a_command_that_does_not_end_is_killed_with_its_children() {
        let shell = |line: &str, limit| {
            let start = Instant::now();
            (wait(Command::new("sh").args(["-c", line]), limit), start.elapsed())
        };
        let long = Duration::from_secs(60);
        assert!(matches!(shell("exit 0", long).0, Passed(_)));
        assert_eq!(shell("exit 1", long).0, Failed);
        assert_eq!(shell("kill -9 $$", long).0, Failed);
        let (outcome, time) = shell("sleep 50 & sleep 50", Duration::from_millis(100));
        assert!(outcome == TimedOut && time < Duration::from_secs(20), "{outcome:?} {time:?}");
        assert_eq!(names("a::b: test\nc: benchmark\nd: test\n\n2 tests\n"), ["a::b", "d"]);
    }
}
