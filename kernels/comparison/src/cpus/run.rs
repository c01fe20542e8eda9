//! Runs the suite `cpus` on all contenders and numbers of CPUs, or takes rows that were printed
//! before, and shows them.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use indicatif::ProgressBar;

use super::row::{CpuRow, find, from_json, to_json};
use super::{SUITE, documented, show};
use crate::cases::Counts;
use crate::contender::{Arch, Contender, of_cpus};
use crate::guest::{Files, Guest};
use crate::suite::output;
use crate::{Options, last_line, prepare, scratch};

/// Numbers of CPUs, if the command line names none.
const CPUS: [u8; 3] = [1, 2, 4];

/// A boot that is to be made.
struct CpuBoot<'a> {
    contender: &'a Contender,
    cpus: u8,
    files: &'a Files,
    words: &'a str,
    /// QEMU's plugin, and where it writes.
    counter: Option<(PathBuf, PathBuf)>,
}

impl CpuBoot<'_> {
    /// Boots, and returns the rows.
    fn run(&self) -> Result<Vec<CpuRow>, String> {
        let CpuBoot { contender, cpus, files, .. } = *self;
        let words = format!("{} cpus={cpus}", self.words);
        let counter = self.counter.as_ref().map(|(plugin, out)| (&**plugin, &**out));
        let guest = Guest {
            contender,
            program: None,
            files,
            words: &words,
            cpus,
            counter,
            profiled: None,
            groups: None,
        };
        let (text, ended) = guest.run()?;
        let output = output::parse(&text).map_err(|e| format!("{ended}; {e}; {}", last_line(&text)))?;
        let counted = match counter {
            Some((_, out)) => {
                let text = fs::read_to_string(out)
                    .map_err(|e| format!("QEMU's plugin has written no {}: {e}", out.display()))?;
                Counts::lines(&text).ok_or("QEMU's plugin has written a malformed line")?
            }
            None => Vec::new(),
        };
        let row = |case: &output::SuiteCase| {
            let counts = counted.iter().find(|(number, _)| *number == case.index).map(|(_, counts)| counts);
            if counter.is_some() && counts.is_none() {
                return Err(format!("QEMU's plugin has not counted {}", case.name));
            }
            CpuRow::of((contender.name, cpus), case, &text, counts)
        };
        output.cases.iter().map(row).collect()
    }
}

/// Boots all contenders. Prints a line for each that cannot be booted, and returns the rows of the
/// others, and the number of those lines.
fn boot(options: &Options, contenders: &[&'static Contender]) -> Result<(Vec<CpuRow>, usize), String> {
    let work = scratch()?;
    let mut failures: Vec<String> = Vec::new();
    let mut files: Vec<(Arch, Files)> = Vec::new();
    for arch in Arch::ALL {
        let here: Vec<_> = contenders.iter().copied().filter(|contender| contender.arch() == arch).collect();
        if here.is_empty() {
            continue;
        }
        match prepare(options, &work.0, arch, &here) {
            Ok(mut made) => {
                failures.append(&mut made.missing);
                files.push((arch, made));
            }
            Err(problem) => failures.push(format!("no programs for {arch}: {problem}")),
        }
    }
    let of_suite = &options.of_suite;
    let mut words = String::new();
    if !of_suite.cases.is_empty() {
        words.push_str(&format!("cases={} ", of_suite.cases.join(",")));
    }
    if let Some(rounds) = of_suite.rounds {
        words.push_str(&format!("rounds={rounds}"));
    }
    let cpus = if of_suite.cpus.is_empty() { &CPUS[..] } else { &of_suite.cpus };
    let mut boots = Vec::new();
    for contender in contenders {
        let Some((_, files)) = files.iter().find(|(arch, _)| *arch == contender.arch()) else { continue };
        for cpus in cpus.iter().copied() {
            let out = work.0.join(format!("counts-{}-{cpus}", contender.name));
            // The plugin follows one thread of QEMU's.
            let counts = !options.no_counts && (cpus == 1 || contender.arch() != Arch::Aarch64);
            let counter = counts.then(|| (options.counter.clone(), out));
            boots.push(CpuBoot { contender, cpus, files, words: &words, counter });
        }
    }
    let bar = ProgressBar::new(boots.len() as u64);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(boot) = boots.get(number) else { break };
                    let result = boot.run();
                    bar.inc(1);
                    results.lock().unwrap_or_else(|e| e.into_inner()).push((number, result));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(number, _)| *number);
    let mut rows = Vec::new();
    for (number, result) in results {
        match result {
            Ok(of_boot) => rows.extend(of_boot),
            Err(problem) => {
                let CpuBoot { contender, cpus, .. } = &boots[number];
                failures.push(format!("{} on {cpus} CPUs: {problem}", contender.name));
            }
        }
    }
    failures.iter().for_each(|failure| eprintln!("kernels/compare: {failure}"));
    Ok((rows, failures.len()))
}

/// Reads rows that were printed before. Of a case, a contender and a number of CPUs the first row
/// counts.
fn read(files: &[PathBuf]) -> Result<Vec<CpuRow>, String> {
    let mut rows: Vec<CpuRow> = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        for row in from_json(&text).map_err(|e| format!("{}: {e}", file.display()))? {
            if find(&rows, &row.case, &row.contender, row.cpus).is_none() {
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Runs the suite and shows its rows.
///
/// # Errors
///
/// There is no such contender; one could not be booted; a file cannot be read; a row is above the
/// document's.
pub fn run(options: &Options) -> Result<(), String> {
    let only = &options.only;
    let wanted = |c: &&Contender| only.is_empty() || only.iter().any(|part| c.name.contains(&**part));
    let contenders: Vec<&Contender> = of_cpus().iter().filter(wanted).collect();
    if contenders.is_empty() {
        return Err(format!("no contender has a name with {}; --list names them", only.join(" or ")));
    }
    if options.list {
        contenders.iter().for_each(|c| println!("{:28} {}", c.name, c.about));
        return Ok(());
    }
    let shown = &options.of_suite;
    if shown.split || shown.svg.is_some() {
        return Err(format!("the suite {SUITE} has no parts by function: leave --split and --svg out"));
    }
    let (rows, failed) = match &shown.from[..] {
        [] => boot(options, &contenders)?,
        files => (read(files)?, 0),
    };
    if options.json {
        println!("{}", to_json(&rows).map_err(|e| e.to_string())?);
    } else if shown.markdown {
        print!("{}", show::markdown(&rows));
    } else {
        show::print(&rows);
    }
    if let Some(file) = &shown.documented {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let above = documented::above(&rows, &text);
        if !above.is_empty() {
            return Err(format!("above {}: {}", file.display(), above.join("; ")));
        }
    }
    if failed > 0 {
        return Err("rows are missing, for the reasons above".to_owned());
    }
    Ok(())
}
