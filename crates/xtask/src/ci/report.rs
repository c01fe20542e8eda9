//! Keeps the report of jobs that do not run for each change: when each ran last, on which tree, and
//! how it ended. Chooses the jobs of the next slice.
use super::jobs::{Job, Tier};
use jiff::civil::Date;
use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// The file, below the root of the repository.
const FILE: &str = ".ci/report.list";
/// The first lines of the file.
const HEAD: &str = "# Jobs that do not run for each change: `cargo xtask ci slice` writes a row for each that it runs.\n\
    # job, result, date, seconds, tree without this file, date when it was last green, reason\n";

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobResult {
    /// It passed.
    Green,
    /// It failed.
    Red,
    /// A need of it was missing.
    NotRun,
}

impl JobResult {
    const ALL: [JobResult; 3] = [JobResult::Green, JobResult::Red, JobResult::NotRun];

    /// Returns the word in the file.
    fn name(self) -> &'static str {
        match self {
            JobResult::Green => "green",
            JobResult::Red => "red",
            JobResult::NotRun => "not-run",
        }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// How it ended.
    pub result: JobResult,
    /// When it ran last.
    pub date: Date,
    /// Time by the clock.
    pub seconds: u64,
    /// The tree that it ran on: a hash of git.
    pub tree: String,
    /// When it was last green.
    pub green: Option<Date>,
    /// Why it is not green.
    pub reason: String,
}

/// The report.
pub struct JobReport {
    path: PathBuf,
    rows: BTreeMap<String, Row>,
}

impl JobReport {
    /// Reads the report of the repository at `root`; without a file it has no rows.
    ///
    /// # Errors
    ///
    /// A text that names the line, if one is malformed.
    pub fn read(root: &Path) -> Result<Self, String> {
        let path = root.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {err}", path.display()));
            }
            text => text.unwrap_or_default(),
        };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        let rows = lines.map(|(at, line)| {
            row(line).ok_or_else(|| format!("{}:{}: not a row: {line}", path.display(), at + 1))
        });
        Ok(JobReport { rows: rows.collect::<Result<_, _>>()?, path })
    }

    /// Puts the row of `job` in, and writes the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn put(&mut self, job: &Job, mut row: Row) -> Result<(), String> {
        row.green = row.green.or_else(|| self.rows.get(&job.name)?.green);
        self.rows.insert(job.name.clone(), row);
        let mut text = HEAD.to_owned();
        for (name, row) in &self.rows {
            let _ = writeln!(text, "{}", line(name, row).trim_end());
        }
        std::fs::write(&self.path, text).map_err(|err| format!("{}: {err}", self.path.display()))
    }

    /// Returns jobs that fit into `minutes`: first the ones that are longest not green.
    pub fn slice<'j>(&self, jobs: &'j [Job], minutes: f64) -> Vec<&'j Job> {
        let mut due: Vec<&Job> = jobs.iter().filter(|job| job.tier == Tier::Nightly).collect();
        // A job that could not run here waits its turn as if it had.
        due.sort_by_key(|job| {
            let row = self.rows.get(&job.name);
            row.and_then(|row| {
                if row.result == JobResult::NotRun { row.green.max(Some(row.date)) } else { row.green }
            })
        });
        let mut left = minutes * 60.0;
        due.retain(|job| {
            let seconds = self.seconds(job);
            let fits = seconds <= left;
            left -= if fits { seconds } else { 0.0 };
            fits
        });
        due
    }

    /// Returns how many seconds `job` takes: as in its last green run, or as the table says.
    fn seconds(&self, job: &Job) -> f64 {
        let green = self.rows.get(&job.name).filter(|row| row.result == JobResult::Green);
        green.map_or(job.minutes * 60.0, |row| row.seconds as f64)
    }

    /// Returns lines about nightly jobs that were not green in the last `days` days before `today`.
    pub fn stale(&self, jobs: &[Job], today: Date, days: i32) -> Vec<String> {
        let nightly = jobs.iter().filter(|job| job.tier == Tier::Nightly);
        nightly
            .filter_map(|job| {
                let row = self.rows.get(&job.name);
                let green = row.and_then(|row| row.green);
                if green.is_some_and(|green| (today - green).get_days() <= days) {
                    return None;
                }
                let green =
                    green.map_or_else(|| "never green".to_owned(), |green| format!("last green {green}"));
                let result = row.map_or_else(String::new, |row| {
                    format!("; {} on {} {}", row.result.name(), row.date, row.reason).trim_end().to_owned()
                });
                Some(format!("{}: {green}{result}", job.name))
            })
            .collect()
    }

    /// Returns the row of the job called `name`, as a line.
    pub fn line(&self, name: &str) -> Option<String> {
        self.rows.get(name).map(|row| line(name, row))
    }
}

fn line(name: &str, row: &Row) -> String {
    let green = row.green.map_or_else(|| "-".to_owned(), |green| green.to_string());
    let Row { result, date, seconds, tree, reason, .. } = row;
    format!("{name:<36} {:<7} {date} {seconds:>5} {tree} {green:<10} {reason}", result.name())
}

fn row(line: &str) -> Option<(String, Row)> {
    let mut words = line.split_whitespace();
    let mut next = || words.next();
    let name = next()?.to_owned();
    let result = next()?;
    let result = JobResult::ALL.into_iter().find(|known| known.name() == result)?;
    let (date, seconds, tree) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.to_owned());
    let green = match next()? {
        "-" => None,
        date => Some(date.parse().ok()?),
    };
    let reason = words.collect::<Vec<_>>().join(" ");
    Some((name, Row { result, date, seconds, tree, green, reason }))
}

/// Returns the day, by UTC.
pub fn today() -> Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}

/// Returns the hash of the files of the repository at `root` without the report, as they are in the
/// directory.
///
/// # Errors
///
/// The message of git, if it fails.
pub fn tree(root: &Path) -> Result<String, String> {
    let index = root.join("target").join(format!("ci-index-{}", std::process::id()));
    std::fs::create_dir_all(root.join("target")).map_err(|err| format!("target: {err}"))?;
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        kernel_boot::output(git.args(words).current_dir(root).env("GIT_INDEX_FILE", &index))
    };
    let hash = git(&["add", "--all"])
        .and_then(|_| git(&["rm", "--quiet", "--cached", "--ignore-unmatch", FILE]))
        .and_then(|_| git(&["write-tree"]));
    let _ = std::fs::remove_file(&index);
    hash.map(|hash| hash.trim().chars().take(12).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> Date {
        text.parse().unwrap()
    }

    fn job(name: &str, minutes: f64) -> Job {
        Job { name: name.into(), tier: Tier::Nightly, minutes, ..Job::default() }
    }

    fn report(rows: &[(&str, &str, &str, u64, &str)]) -> JobReport {
        let rows = rows.iter().map(|&(name, result, on, seconds, green)| {
            let green = (green != "-").then(|| date(green));
            let row = Row {
                result: JobResult::ALL.into_iter().find(|known| known.name() == result).unwrap(),
                date: date(on),
                seconds,
                tree: "0123456789ab".into(),
                green,
                reason: String::new(),
            };
            (name.to_owned(), row)
        });
        JobReport { path: PathBuf::new(), rows: rows.collect() }
    }

    #[test]
    fn jobs_that_are_longest_not_green_come_first() {
        let jobs = [job("a", 5.0), job("b", 5.0), job("c", 5.0), job("d", 5.0), job("e", 5.0)];
        let report = report(&[
            ("a", "green", "2026-11-20", 300, "2026-11-20"),
            ("b", "red", "2026-11-21", 300, "2026-11-10"),
            ("c", "green", "2026-11-19", 30, "2026-11-19"),
            ("d", "not-run", "2026-11-20", 0, "-"),
        ]);
        let names =
            |minutes| report.slice(&jobs, minutes).iter().map(|job| job.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(100.0), ["e", "b", "c", "a", "d"]);
        // A job that does not fit is left out, and a shorter one behind it is not. Times are of
        // green runs.
        assert_eq!(names(6.0), ["e", "c"]);
        assert_eq!(names(10.5), ["e", "b", "c"]);
    }

    #[test]
    fn jobs_that_were_not_green_for_days_are_named() {
        let jobs = [job("a", 5.0), job("b", 5.0), job("c", 5.0)];
        let report = report(&[
            ("a", "green", "2026-11-16", 300, "2026-11-16"),
            ("b", "red", "2026-11-29", 300, "2026-11-15"),
        ]);
        let stale = report.stale(&jobs, date("2026-11-30"), 14);
        assert_eq!(stale, ["b: last green 2026-11-15; red on 2026-11-29", "c: never green"]);
    }

    #[test]
    fn rows_are_written_and_read_alike() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        std::fs::create_dir_all(root.join(".ci")).unwrap();
        let mut report = JobReport::read(root).unwrap();
        let green = Row {
            result: JobResult::Green,
            date: date("2026-11-29"),
            seconds: 12,
            tree: "0123456789ab".into(),
            green: Some(date("2026-11-29")),
            reason: String::new(),
        };
        report.put(&job("a", 1.0), green.clone()).unwrap();
        let red = Row {
            result: JobResult::Red,
            date: date("2026-11-30"),
            green: None,
            reason: "exit code 1".into(),
            ..green.clone()
        };
        report.put(&job("a", 1.0), red.clone()).unwrap();
        // When it was green is not forgotten.
        let read = JobReport::read(root).unwrap();
        assert_eq!(read.rows["a"], Row { green: green.green, ..red });
        std::fs::write(root.join(FILE), "# head\na blue 2026-11-30 1 x -\n").unwrap();
        assert!(JobReport::read(root).err().unwrap().contains("report.list:2: not a row"));
    }
}
