//! Runs the suite `cpus` on all contenders and numbers of CPUs, or takes rows that were printed
//! before, and shows them.

use std::path::PathBuf;

use super::row::{CpuRow, from_json, to_json};
use super::{SUITE, documented, show};
use crate::boots::each;
use crate::contender::{Contender, TargetArch, of_cpus};
use crate::guest::{Files, GuestBoot};
use crate::suite::Measured;
use crate::suite::documented::check;
use crate::suite::row::read;
use kernel_boot::Scratch;

use crate::{Options, prepare_each};

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
        let guest = GuestBoot {
            contender,
            program: None,
            files,
            words: &words,
            cpus,
            counter,
            profiled: None,
            groups: None,
            caches: false,
        };
        let measured = Measured::of(&guest)?;
        let row = |case| CpuRow::of((contender.name, cpus), case, &measured.text, measured.counts_of(case)?);
        measured.output.cases.iter().map(row).collect()
    }
}

/// Boots all contenders. Prints a line for each that cannot be booted, and returns the rows of the
/// others, and the number of those lines.
fn boot(options: &Options, contenders: &[&'static Contender]) -> Result<(Vec<CpuRow>, usize), String> {
    let work = Scratch::new()?;
    let mut failures: Vec<String> = Vec::new();
    let mut files: Vec<(TargetArch, Files)> = Vec::new();
    for (arch, made) in prepare_each(options, &work, contenders) {
        match made {
            Ok(mut made) => {
                failures.append(&mut made.missing);
                files.push((arch, made));
            }
            Err(problem) => failures.push(format!("no programs for {arch}: {problem}")),
        }
    }
    let of_suite = &options.of_suite;
    let words = of_suite.words();
    let cpus = if of_suite.cpus.is_empty() { &CPUS[..] } else { &of_suite.cpus };
    let mut boots = Vec::new();
    for contender in contenders {
        let Some((_, files)) = files.iter().find(|(arch, _)| *arch == contender.arch()) else { continue };
        for cpus in cpus.iter().copied() {
            let out = work.file(&format!("counts-{}-{cpus}", contender.name));
            let counter = (!options.no_counts).then(|| (options.counter.clone(), out));
            boots.push(CpuBoot { contender, cpus, files, words: &words, counter });
        }
    }
    let mut rows = Vec::new();
    for (boot, result) in boots.iter().zip(each(options.jobs, &boots, CpuBoot::run)) {
        match result {
            Ok(of_boot) => rows.extend(of_boot),
            Err(problem) => {
                failures.push(format!("{} on {} CPUs: {problem}", boot.contender.name, boot.cpus))
            }
        }
    }
    failures.iter().for_each(|failure| eprintln!("kernels/compare: {failure}"));
    Ok((rows, failures.len()))
}

/// Runs the suite and shows its rows.
///
/// # Errors
///
/// There is no such contender; one could not be booted; a file cannot be read; a row is above the
/// file's.
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
        files => {
            let key = |row: &CpuRow| (row.case.clone(), row.contender.clone(), row.cpus);
            (read(files, from_json, |a, b| key(a) == key(b))?, 0)
        }
    };
    if options.json {
        println!("{}", to_json(&rows).map_err(|e| e.to_string())?);
    } else if shown.figures {
        print!("{}", show::figures(&rows));
    } else {
        show::print(&rows);
    }
    if let Some(file) = &shown.documented {
        check(file, |text| documented::above(&rows, text))?;
    }
    if failed > 0 {
        return Err("rows are missing, for the reasons above".to_owned());
    }
    Ok(())
}
