//! Runs a suite on all contenders, or takes rows that were printed before, and shows them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use clap::Args;
use indicatif::ProgressBar;

use super::row::{SuiteRow, from_json, to_json};
use super::{SUITES, SuiteBoot, bars, documented, picture, show};
use crate::contender::{self, Arch, Contender};
use crate::split::{self, GROUPS};
use crate::{Options, prepare, scratch};

/// The output of `--suite`.
#[derive(Args)]
pub struct SuiteOptions {
    /// Runs only these cases of the suite.
    #[arg(long, value_name = "CASE", value_delimiter = ',', requires = "suite")]
    pub cases: Vec<String>,
    /// Rounds of each case of the suite, after one that warms up.
    #[arg(long, value_name = "NUMBER", requires = "suite", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub rounds: Option<u8>,
    /// Runs the suite `cpus` with these numbers of CPUs.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', requires = "suite",
          value_parser = clap::value_parser!(u8).range(1..=8))]
    pub cpus: Vec<u8>,
    /// Counts the instructions of the library's kernel by group of functions, too.
    #[arg(long, requires = "suite", conflicts_with = "no_counts")]
    pub split: bool,
    /// Takes the suite's rows from these files, which `--json` has printed, and boots nothing. Of a
    /// case and a contender the first row counts.
    #[arg(long, value_name = "FILE", value_delimiter = ',', requires = "suite")]
    pub from: Vec<PathBuf>,
    /// Prints the suite's table as the documents have it.
    #[arg(long, requires = "suite", conflicts_with = "json")]
    pub markdown: bool,
    /// Draws the parts of each case of the suite; needs rows with `--split` and rows of Linux.
    #[arg(long, value_name = "FILE", requires = "suite")]
    pub svg: Option<PathBuf>,
    /// Fails if a row is more than 3 % above the table of the suite in this document.
    #[arg(long, value_name = "FILE", requires = "suite")]
    pub documented: Option<PathBuf>,
}

/// Returns the contenders whose names contain one of the parts; without parts, all. An
/// [extra](Contender::extra) one needs a part that names what it is beside the others.
fn chosen(suite: &str, only: &[String]) -> Vec<&'static Contender> {
    let wanted = |contender: &&Contender| match contender.extra() {
        Some(name) => only.iter().any(|part| part.contains(name) && contender.name.contains(&**part)),
        None => only.is_empty() || only.iter().any(|part| contender.name.contains(&**part)),
    };
    contender::of_suite(suite).into_iter().filter(wanted).collect()
}

/// Boots all contenders. Prints a line for each that cannot be booted, and returns the rows of the
/// others, and the number of those lines.
fn boot(options: &Options, suite: &str, contenders: &[&Contender]) -> Result<(Vec<SuiteRow>, usize), String> {
    let work = scratch()?;
    let (mut files, mut failures) = (Vec::new(), Vec::new());
    for arch in Arch::ALL {
        let here: Vec<&Contender> = contenders.iter().copied().filter(|c| c.arch() == arch).collect();
        if here.is_empty() {
            continue;
        }
        let mut made = prepare(options, &work.0, arch, &here)?;
        failures.append(&mut made.missing);
        let groups = work.0.join(format!("groups-{arch}"));
        if options.of_suite.split && here.iter().any(|contender| !contender.is_linux()) {
            fs::write(&groups, split::ranges(&made.image)?)
                .map_err(|e| format!("{}: {e}", groups.display()))?;
        }
        files.push((arch, made, groups));
    }
    let mut words = String::new();
    if !options.of_suite.cases.is_empty() {
        words.push_str(&format!("cases={} ", options.of_suite.cases.join(",")));
    }
    if let Some(rounds) = options.of_suite.rounds {
        words.push_str(&format!("rounds={rounds}"));
    }
    let bar = ProgressBar::new(contenders.len() as u64);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let one = |contender: &Contender| {
        let of_arch = files.iter().find(|(arch, ..)| *arch == contender.arch());
        let (_, files, groups) = of_arch.ok_or("no files")?;
        let out = work.0.join(format!("counts-{}", contender.name));
        let counter = (!options.no_counts).then_some((&*options.counter, &*out));
        let groups = options.of_suite.split.then_some(&**groups);
        SuiteBoot { suite, contender, files, words: &words, counter, groups }.run()
    };
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while let Some(contender) = contenders.get(next.fetch_add(1, Relaxed)) {
                    let result = one(contender);
                    bar.inc(1);
                    results.lock().unwrap_or_else(|e| e.into_inner()).push((contender.name, result));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(name, _)| contenders.iter().position(|contender| contender.name == *name));
    let mut rows = Vec::new();
    for (name, result) in results {
        match result {
            Ok((of_boot, left)) => {
                rows.extend(of_boot);
                left.iter().for_each(|line| eprintln!("kernels/compare: {name} leaves out {line}"));
            }
            Err(problem) => failures.push(format!("{name}: {problem}")),
        }
    }
    failures.iter().for_each(|failure| eprintln!("kernels/compare: {failure}"));
    Ok((rows, failures.len()))
}

/// Reads rows that were printed before.
fn read(files: &[PathBuf], suite: &str) -> Result<Vec<SuiteRow>, String> {
    let mut rows: Vec<SuiteRow> = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let more = from_json(&text, suite).map_err(|e| format!("{}: {e}", file.display()))?;
        for row in more {
            if super::row::find(&rows, &row.case, &row.contender).is_none() {
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Runs a suite and shows its rows.
///
/// # Errors
///
/// There is no such suite or contender; a contender could not be booted; a file cannot be read or
/// written; a row is above the document's.
pub fn run(options: &Options, suite: &str) -> Result<(), String> {
    if !SUITES.contains(&suite) {
        return Err(format!("no suite {suite}: there are {}, {}", SUITES.join(", "), crate::cpus::SUITE));
    }
    let contenders = chosen(suite, &options.only);
    if contenders.is_empty() {
        return Err(format!("no contender has a name with {}; --list names them", options.only.join(" or ")));
    }
    if options.list {
        contenders.iter().for_each(|c| println!("{:28} {}", c.name, c.about));
        return Ok(());
    }
    let shown = &options.of_suite;
    let (rows, failed) = match &shown.from[..] {
        [] => boot(options, suite, &contenders)?,
        files => (read(files, suite)?, 0),
    };
    if options.json {
        println!("{}", to_json(&rows).map_err(|e| e.to_string())?);
    } else if shown.markdown {
        print!("{}", show::markdown(&rows));
        let parts = show::parts(&rows, &GROUPS);
        if parts.lines().count() > 2 {
            print!("\n{parts}");
        }
    } else {
        show::tables(&rows);
        if bars::has_pair(&rows) {
            show::bars(&bars::missed(&rows, suite));
        }
    }
    if let Some(file) = &shown.svg {
        draw(file, &rows, suite)?;
    }
    if let Some(file) = &shown.documented {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let above = documented::above(&rows, &text, suite);
        if !above.is_empty() {
            return Err(format!("above {}: {}", file.display(), above.join("; ")));
        }
    }
    if failed > 0 {
        return Err("rows are missing, for the reasons above".to_owned());
    }
    Ok(())
}

fn draw(file: &Path, rows: &[SuiteRow], suite: &str) -> Result<(), String> {
    let text =
        picture::svg(rows, suite).ok_or("no case has both a row of Linux and parts: --split counts parts")?;
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_targets_and_the_newer_linux_run_where_they_are_named() {
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|part| (*part).to_owned()).collect();
            chosen("ours", &only).iter().map(|contender| contender.name).collect()
        };
        for only in [&[][..], &["ptarmigan"], &["linux", "plain"]] {
            let some = names(only);
            assert!(
                some.len() > 1 && some.iter().all(|name| name.contains("x86_64") && !name.contains("newer"))
            );
        }
        assert_eq!(names(&["newer"]), ["linux-newer-x86_64"]);
        assert_eq!(
            names(&["ptarmigan-i386-high", "aarch64-noinit"]),
            ["ptarmigan-i386-high", "linux-aarch64-noinit"]
        );
    }
}
