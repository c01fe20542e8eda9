//! Runs a suite on all contenders, or takes rows that were printed before, and shows them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::row::{SuiteRow, from_json, read, to_json};
use super::{Measured, SUITES, bars, documented, picture, show};
use crate::boots;
use crate::contender::{self, Contender, TargetArch};
use crate::guest::GuestBoot;
use crate::split::{self, GROUPS};
use kernel_boot::Scratch;

use crate::{Options, prepare_each, profile};

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
    /// Models caches, too, on x86: minutes a boot.
    #[arg(long, requires = "suite", conflicts_with = "no_counts")]
    pub caches: bool,
    /// Takes the suite's rows from these files, which `--json` has printed, and boots nothing. Of a
    /// case and a contender the first row counts.
    #[arg(long, value_name = "FILE", value_delimiter = ',', requires = "suite")]
    pub from: Vec<PathBuf>,
    /// Prints the suite's tables as `figures/suites.toml` and `figures/cpus.toml` have them.
    #[arg(long, requires = "suite", conflicts_with = "json")]
    pub figures: bool,
    /// Draws the parts of each case of the suite; needs rows with `--split` and rows of Linux.
    #[arg(long, value_name = "FILE", requires = "suite")]
    pub svg: Option<PathBuf>,
    /// Fails if a row is more than 3 % above the table of its suite or program in this file.
    #[arg(long, value_name = "FILE")]
    pub documented: Option<PathBuf>,
}

impl SuiteOptions {
    /// Returns the words of the command line that choose cases and rounds.
    pub fn words(&self) -> String {
        let cases = (!self.cases.is_empty()).then(|| format!("cases={} ", self.cases.join(",")));
        let rounds = self.rounds.map(|rounds| format!("rounds={rounds}"));
        cases.unwrap_or_default() + &rounds.unwrap_or_default()
    }
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

/// A profile: the contender, its image, and how often each instruction was executed.
type Profile = (&'static str, PathBuf, Vec<(u64, u64)>);

/// The results of a suite's boots.
struct Booted {
    rows: Vec<SuiteRow>,
    /// Contenders that could not be booted, each of which had a line.
    failed: usize,
    /// Profiles of the case that was asked for.
    profiles: Vec<Profile>,
}

/// Boots all contenders. Prints a line for each that cannot be booted, and returns the results of
/// the others.
fn boot(options: &Options, suite: &str, contenders: &[&'static Contender]) -> Result<Booted, String> {
    let work = Scratch::new()?;
    let (mut files, mut failures) = (Vec::new(), Vec::new());
    for (arch, made) in prepare_each(options, &work, contenders) {
        let mut made = made?;
        failures.append(&mut made.missing);
        let groups = work.file(&format!("groups-{arch}"));
        if options.of_suite.split && contenders.iter().any(|c| c.arch() == arch && !c.is_linux()) {
            fs::write(&groups, split::ranges(&made.image)?)
                .map_err(|e| format!("{}: {e}", groups.display()))?;
        }
        files.push((arch, made, groups));
    }
    let words = match &options.profile {
        Some(case) if options.of_suite.cases.is_empty() => {
            format!("cases={case} {}", options.of_suite.words())
        }
        _ => options.of_suite.words(),
    };
    let results = boots::each(options.jobs, contenders, |contender| {
        let of_arch = files.iter().find(|(arch, ..)| *arch == contender.arch());
        let (_, files, groups) = of_arch.ok_or("no files")?;
        let out = work.file(&format!("counts-{}", contender.name));
        let counter = (!options.no_counts).then_some((&*options.counter, &*out));
        let groups = options.of_suite.split.then_some(&**groups);
        let guest = GuestBoot {
            contender,
            program: None,
            files,
            words: &words,
            cpus: 1,
            counter,
            profiled: None,
            groups,
            caches: options.of_suite.caches,
        };
        let measured = Measured::of(&guest)?;
        let row = |case| Ok(SuiteRow::of(suite, contender.name, case, measured.counts_of(case)?, &GROUPS));
        let rows: Vec<SuiteRow> = measured.output.cases.iter().map(row).collect::<Result<_, String>>()?;
        let profile = match options.profile.as_ref().filter(|_| !contender.is_linux()) {
            Some(name) => {
                let case = measured.output.cases.iter().find(|case| case.name == *name);
                let case = case.ok_or_else(|| format!("no case {name} in the suite {suite}"))?;
                let out = work.file(&format!("profile-{}", contender.name));
                let counter = Some((&*options.counter, &*out));
                let guest = GuestBoot { counter, profiled: Some(case.index), groups: None, ..guest };
                Measured::of(&guest)?;
                let text = guest.counted()?.unwrap_or_default();
                Some((contender.name, files.image.clone(), profile::parse(&text)))
            }
            None => None,
        };
        Ok((rows, measured.output.left, profile))
    });
    let (mut rows, mut profiles) = (Vec::new(), Vec::new());
    for (name, result) in contenders.iter().map(|contender| contender.name).zip(results) {
        let result: Result<_, String> = result;
        match result {
            Ok((of_boot, left, profile)) => {
                rows.extend(of_boot);
                profiles.extend(profile);
                left.iter().for_each(|line| eprintln!("kernels/compare: {name} leaves out {line}"));
            }
            Err(problem) => failures.push(format!("{name}: {problem}")),
        }
    }
    failures.iter().for_each(|failure| eprintln!("kernels/compare: {failure}"));
    Ok(Booted { rows, failed: failures.len(), profiles })
}

/// Runs a suite and shows its rows.
///
/// # Errors
///
/// There is no such suite or contender; a contender could not be booted; a file cannot be read or
/// written; a row is above the file's.
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
    // QEMU tells no addresses of `dc zva`.
    if shown.caches && contenders.iter().any(|contender| contender.arch() == TargetArch::Aarch64) {
        return Err("caches are modelled on x86 alone".to_owned());
    }
    if options.profile.is_some() && !shown.from.is_empty() {
        return Err("a profile needs boots: leave --from out".to_owned());
    }
    let Booted { rows, failed, profiles } = match &shown.from[..] {
        [] => boot(options, suite, &contenders)?,
        files => {
            let same = |a: &SuiteRow, b: &SuiteRow| (&a.case, &a.contender) == (&b.case, &b.contender);
            Booted {
                rows: read(files, |text| from_json(text, suite), same)?,
                failed: 0,
                profiles: Vec::new(),
            }
        }
    };
    if options.json {
        println!("{}", to_json(&rows).map_err(|e| e.to_string())?);
    } else if shown.figures {
        let caches = show::caches(&rows);
        print!("{}", if caches.is_empty() { show::figures(&rows) } else { caches });
        let parts = show::parts(&rows, &GROUPS);
        if !parts.is_empty() {
            print!("\n{parts}");
        }
    } else {
        show::tables(&rows);
        print!("\n{}", show::caches(&rows));
        if bars::has_pair(&rows) {
            show::bars(&bars::missed(&rows, suite));
        }
    }
    for (name, image, executed) in &profiles {
        profile::print(name, options.profile.as_deref().unwrap_or_default(), image, executed)?;
    }
    if let Some(file) = &shown.svg {
        draw(file, &rows, suite)?;
    }
    if let Some(file) = &shown.documented {
        documented::check(file, |text| documented::above(&documented::of_suite(&rows), text, suite))?;
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
                some.len() > 1
                    && some.iter().all(|name| name.contains("x86_64")
                        && !name.contains("newer")
                        && !name.contains("mitigated"))
            );
        }
        assert_eq!(names(&["newer"]), ["linux-newer-x86_64"]);
        assert_eq!(names(&["mitigated"]), ["linux-mitigated-x86_64"]);
        assert_eq!(
            names(&["ptarmigan-i386-high", "aarch64-noinit"]),
            ["ptarmigan-i386-high", "linux-aarch64-noinit"]
        );
    }
}
