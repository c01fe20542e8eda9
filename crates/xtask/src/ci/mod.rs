//! `cargo xtask ci`: every check of the repository, from one table.
//!
//! # Why
//!
//! A check that stands in a script can be run only with all others. One that is left to the night
//! would be run by nobody before a merge. So each is a row of `.ci/jobs.toml`, with its needs and
//! its minutes:
//!
//! ```text
//! jobs.toml --+-- full      all of the tier change, two lanes at once; then a slice
//!             +-- slice     nightly jobs, oldest success first, 15 minutes --> report.list
//!             +-- --changed tests and jobs of changed packages, by the manifests
//!             +-- NAME...   the named jobs
//! ```
mod changed;
mod jobs;
mod needs;
mod report;
mod runner;

use crate::outcome;
use changed::{Packages, Selection};
use clap::Args;
use jobs::{Job, Table, Tier};
use needs::Needs;
use ptarmigan_term::Time;
use report::{JobReport, JobResult, Row};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Instant,
};

/// Days after which a nightly job that was not green is named.
const STALE_DAYS: i32 = 14;
/// Load average above which a nightly job that failed has a second try.
const BUSY: f64 = 4.0;

/// Arguments of `ci`.
#[derive(Args)]
pub struct CiArgs {
    /// `full`: all jobs of the tier change, then a slice as far as its minutes go. `slice`: nightly
    /// jobs that are longest not green.
    /// Otherwise names of jobs or tiers, or their first letters.
    #[arg(value_name = "JOB", required_unless_present_any = ["changed", "list"])]
    jobs: Vec<String>,
    /// Tests of the packages that differ from the upstream branch, and one job of each that depends
    /// on them.
    #[arg(long, conflicts_with = "jobs")]
    changed: bool,
    /// Compares with this commit instead of the upstream branch.
    #[arg(long, value_name = "COMMIT", requires = "changed")]
    base: Option<String>,
    /// Lists the jobs without running them.
    #[arg(long)]
    list: bool,
    /// Lists as JSON: a matrix for workflows.
    #[arg(long, requires = "list")]
    json: bool,
}

/// Runs `cargo xtask ci`.
pub fn run(args: &CiArgs) -> ExitCode {
    outcome::exit("ci", start(args))
}

fn start(args: &CiArgs) -> Result<bool, String> {
    let root = std::env::current_dir().map_err(|err| err.to_string())?;
    let table = Table::read(&root.join(".ci/jobs.toml"))?;
    let mut ci =
        Ci { report: JobReport::read(&root)?, root, table, needs: Needs::default(), start: Instant::now() };
    if args.list {
        ci.list(&args.jobs, args.json)?;
        return Ok(true);
    }
    runner::end_jobs_on_signals();
    let words: Vec<&str> = args.jobs.iter().map(String::as_str).collect();
    if args.changed {
        return ci.changed(args.base.as_deref());
    }
    match words[..] {
        ["full"] => ci.full(),
        ["slice"] => ci.slice(ci.table.slice_minutes),
        _ => {
            let jobs = named(&ci.table, &args.jobs)?;
            ci.one_by_one(&jobs)
        }
    }
}

/// Returns the jobs of `names`, each that of a job, of a tier, or the first letters of jobs; all
/// without names.
fn named(table: &Table, names: &[String]) -> Result<Vec<Job>, String> {
    let mut wanted = BTreeSet::new();
    for name in names {
        let of = |is_of: &dyn Fn(&Job) -> bool| -> Vec<&str> {
            table.job.iter().filter(|job| is_of(job)).map(|job| job.name.as_str()).collect()
        };
        let mut found = of(&|job| job.name == *name || job.tier.name() == name);
        if found.is_empty() {
            found = of(&|job| job.name.starts_with(name.as_str()));
        }
        if found.is_empty() {
            return Err(format!("there is no job {name}; `cargo xtask ci --list` names all"));
        }
        wanted.extend(found);
    }
    let is_wanted = |job: &&Job| names.is_empty() || wanted.contains(job.name.as_str());
    Ok(table.job.iter().filter(is_wanted).cloned().collect())
}

/// A run.
struct Ci {
    root: PathBuf,
    table: Table,
    needs: Needs,
    report: JobReport,
    start: Instant,
}

impl Ci {
    fn list(&self, names: &[String], json: bool) -> Result<(), String> {
        let jobs = named(&self.table, names)?;
        if json {
            let rows: Vec<_> = jobs
                .iter()
                .map(|job| serde_json::json!({ "name": job.name, "tier": job.tier.name(), "minutes": job.minutes }))
                .collect();
            println!("{}", serde_json::json!({ "job": rows }));
            return Ok(());
        }
        println!("{:<36} {:<8} {:>7}  last run", "job", "tier", "minutes");
        for Job { name, tier, minutes, .. } in &jobs {
            let last = self.report.line(name).and_then(|line| line.get(37..).map(str::to_owned));
            println!(
                "{}",
                format!("{name:<36} {:<8} {minutes:>7.1}  {}", tier.name(), last.unwrap_or_default())
                    .trim_end()
            );
        }
        Ok(())
    }

    /// Runs the jobs of the tier *change*, each lane beside the others, up to the first that fails.
    /// If all have passed, a slice fills the minutes that are left.
    fn full(&mut self) -> Result<bool, String> {
        let all: Vec<Job> = self.table.job.iter().filter(|job| job.tier == Tier::Change).cloned().collect();
        if !self.at_once(&all)? {
            return Ok(false);
        }
        let left = self.table.full_minutes - self.start.elapsed().as_secs_f64() / 60.0;
        self.slice(left.min(self.table.slice_minutes))
    }

    fn at_once(&mut self, jobs: &[Job]) -> Result<bool, String> {
        for job in jobs {
            if let Some(reason) = self.needs.missing(&self.table, job) {
                return Err(format!("job {}: {reason}", job.name));
            }
        }
        let lanes: BTreeSet<u8> = jobs.iter().map(|job| job.lane).collect();
        let (failed, root, start) = (AtomicBool::new(false), &self.root, self.start);
        std::thread::scope(|scope| {
            for &lane in &lanes {
                let failed = &failed;
                scope.spawn(move || {
                    for job in jobs.iter().filter(|job| job.lane == lane) {
                        if failed.load(SeqCst) || !one(root, job, usize::from(lane), failed, start) {
                            return;
                        }
                    }
                });
            }
        });
        let passed = !failed.load(SeqCst);
        if passed {
            println!("All {} jobs passed ({}).", jobs.len(), Time::from(start.elapsed()));
        }
        Ok(passed)
    }

    /// Runs nightly jobs that are longest not green, as many as fit into `minutes`, and writes
    /// their rows.
    fn slice(&mut self, minutes: f64) -> Result<bool, String> {
        let jobs: Vec<Job> = self.report.slice(&self.table.job, minutes).into_iter().cloned().collect();
        let passed = self.one_by_one(&jobs)?;
        println!("\nRows of this slice of {:.0} minutes in .ci/report.list:", minutes.max(0.0));
        for line in jobs.iter().filter_map(|job| self.report.line(&job.name)) {
            println!("{line}");
        }
        let stale = self.report.stale(&self.table.job, report::today(), STALE_DAYS);
        if !stale.is_empty() {
            println!("\nNot green for {STALE_DAYS} days:");
            stale.iter().for_each(|line| println!("{line}"));
        }
        Ok(passed)
    }

    /// Runs `jobs` to the last, and writes the rows of jobs that do not run for each change.
    fn one_by_one(&mut self, jobs: &[Job]) -> Result<bool, String> {
        let tree = report::tree(&self.root)?;
        let mut failed = Vec::new();
        for job in jobs {
            let (result, seconds, reason) = self.judged(job)?;
            if result == JobResult::Red || result == JobResult::NotRun && job.tier == Tier::Change {
                failed.push(job.name.clone());
            }
            if job.tier != Tier::Change {
                let date = report::today();
                let green = (result == JobResult::Green).then_some(date);
                let row = Row { result, date, seconds, tree: tree.clone(), green, reason };
                self.report.put(job, row)?;
            }
        }
        if !failed.is_empty() {
            println!("FAILED: {}", failed.join(", "));
        }
        Ok(failed.is_empty())
    }

    /// Runs `job`, on a busy machine a second time if it fails.
    fn judged(&mut self, job: &Job) -> Result<(JobResult, u64, String), String> {
        if let Some(reason) = self.needs.missing(&self.table, job) {
            println!("not run {}: {reason}", job.name);
            return Ok((JobResult::NotRun, 0, reason));
        }
        let never = AtomicBool::new(false);
        for last in [false, true] {
            let load = runner::load();
            let ended =
                runner::run(&self.root, job, 0, &never).map_err(|err| format!("job {}: {err}", job.name))?;
            println!("{}", ended.line(job));
            let seconds = ended.wall.as_secs();
            let Some(reason) = &ended.failed else { return Ok((JobResult::Green, seconds, String::new())) };
            let _ = ended.print_log();
            let load = load.max(runner::load());
            if last || load <= BUSY {
                return Ok((JobResult::Red, seconds, reason.clone()));
            }
            println!("again {}: it failed at a load of {load:.1}", job.name);
        }
        unreachable!("the second try is the last")
    }

    fn changed(&mut self, base: Option<&str>) -> Result<bool, String> {
        let files = changed::files(base)?;
        if files.is_empty() {
            println!("Nothing has changed.");
            return Ok(true);
        }
        let Selection { jobs, rest, packages } = Packages::read()?.select(&self.table, &files);
        println!(
            "{} files of {}",
            files.len(),
            if packages.is_empty() { "no package".into() } else { packages.join(", ") }
        );
        let passed = self.at_once(&jobs)?;
        println!("Not run: {}", rest.join(", "));
        Ok(passed)
    }
}

/// Runs a job of a lane; sets `failed` if it fails before another has.
fn one(root: &Path, job: &Job, lane: usize, failed: &AtomicBool, start: Instant) -> bool {
    let ended = match runner::run(root, job, lane, failed) {
        Ok(ended) => ended,
        Err(err) => {
            eprintln!("cargo xtask ci: job {}: {err}", job.name);
            failed.store(true, SeqCst);
            return false;
        }
    };
    let Some(reason) = &ended.failed else {
        println!("{:>7}  {}", Time::from(start.elapsed()), ended.line(job));
        return true;
    };
    // The others end because this one failed: their output is of no use.
    if !failed.swap(true, SeqCst) {
        let _ = ended.print_log();
        println!("{:>7}  {}", Time::from(start.elapsed()), ended.line(job));
        println!("FAILED: {}: {reason}; its log is {}", job.name, ended.log.display());
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_by_their_first_letters() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let table = Table::read(&root.join(".ci/jobs.toml")).unwrap();
        let count = |name: &str| named(&table, &[name.to_owned()]).map(|jobs| jobs.len());
        assert_eq!(count("format"), Ok(1));
        assert!(count("nightly").unwrap() > 20);
        assert!(count("machines").unwrap() > 1);
        assert_eq!(
            count("nothing").unwrap_err(),
            "there is no job nothing; `cargo xtask ci --list` names all"
        );
    }
}
