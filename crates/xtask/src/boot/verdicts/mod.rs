//! `cargo xtask boot verdicts`: compares verdicts of test suites on Linux and on the kernel here.
use self::compare::{Comparison, Sums, compare};
use self::suite::{Asked, Prepared, Problem, Suite};
use super::checks::{frames_back, passed};
use crate::repository;
use clap::Args;
use kernel_boot::board::{Board, Boards};
use kernel_boot::debian::{Debian, LINUX_6_1, vmlinuz};
use kernel_boot::guest::{Boot, BootLimits, Ended};
use kernel_boot::image::Image;
use kernel_boot::{Scratch, archive, output, programs};
use std::path::PathBuf;
use std::process::ExitCode;

mod compare;
mod suite;

/// Runs tests that other projects have written on Debian's Linux 6.1 and on the kernel here, under
/// the same QEMU, and compares their verdicts.
///
/// Tests and Linux are fetched from Debian into caches outside of the repository;
/// figures/kernel.toml has the sums. A test counts if Linux says pass or fail. The files
/// linux/programs/verdicts/SUITE.list have the differences that are known, with their reasons.
///
/// Exit status 0 if the differences are the known ones, 1 if one is new or gone, 2 on an error, 3
/// if the tests or Linux cannot be had. A boot that takes more than KERNEL_TIMEOUT seconds (1800)
/// is an error.
#[derive(Args)]
pub struct VerdictsArgs {
    /// Runs this suite (all): posix (the package posixtestsuite, static programs), selftests
    /// (tools/testing/selftests/vm of Debian's source of Linux 6.1, static programs), stress (the
    /// package stress-ng, a dynamic program).
    #[arg(long, value_name = "SUITE")]
    suite: Vec<String>,
    /// Prints the output of the guests and of the tests.
    #[arg(long)]
    show: bool,
    /// GROUP/NAME, or a GROUP for all of its tests.
    tests: Vec<String>,
}

/// Guests' clocks go by their instructions, 2 ns for each, and do not wait for the host's: the time
/// that a test may take is the same on a busy machine.
const ICOUNT: &str = "shift=1,sleep=off";
/// The exit status if the tests or Linux cannot be had.
const MISSING: u8 = 3;

/// Runs `cargo xtask boot verdicts`.
///
/// # Errors
///
/// A bad argument; a missing tool; a boot without a verdict for each test.
pub fn run(args: &VerdictsArgs) -> Result<ExitCode, String> {
    match all(args) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(Problem::Failed(why)) => Err(why),
        Err(Problem::Missing(why)) => {
            eprintln!("cargo xtask boot: {why}");
            Ok(ExitCode::from(MISSING))
        }
    }
}

/// Returns whether all differences are known.
fn all(args: &VerdictsArgs) -> Result<bool, Problem> {
    let mut suites = suite::read()?;
    if let Some(name) = args.suite.iter().find(|name| suites.iter().all(|suite| suite.name != **name)) {
        let names: Vec<&str> = suites.iter().map(|suite| &*suite.name).collect();
        return Err(format!("no suite '{name}'; there are {}", names.join(", ")).into());
    }
    suites.retain(|suite| args.suite.is_empty() || args.suite.contains(&suite.name));
    let boards = Boards::read()?;
    let (board, linux) = boards.linux("x86_64")?;
    let image = Image { profile: "lean", ..Image::of(board) }.build()?;
    let theirs = Debian::open("amd64", false)
        .and_then(|debian| debian.linux(LINUX_6_1))
        .map_err(|why| Problem::Missing(format!("no Linux to compare with: {why}")))?;
    let work = Scratch::new()?;
    let init = work.file("init");
    let mut command = linux.cc();
    command.args(["-O2", "-Wall", "-Werror", "-static", "-o"]).arg(&init);
    output(command.arg(programs().join("verdicts/init.c"))).map_err(|why| {
        format!("{why}\ncannot make a static program: apt-get install {}", board.compiler_packages())
    })?;
    let guests = Guests { board, image, linux: vmlinuz(&theirs)?, init, work, shows: args.show };
    let asked = Asked(&args.tests);
    let mut compared = Vec::new();
    for suite in &suites {
        if let Some(comparison) = guests.suite(suite, &asked)? {
            comparison.lines.iter().for_each(|line| println!("{line}"));
            compared.push((suite, comparison));
        }
    }
    if compared.is_empty() {
        return Err(format!("no test is called {}", args.tests.join(" ")).into());
    }
    let mut sums = Sums::default();
    compared.iter().for_each(|(_, comparison)| sums.add(&comparison.sums));
    let [tests, count, passes, equal, differ] = sums.cells();
    println!(
        "all: {tests} tests; {count} count, of which Linux passes {passes}; {equal} equal, {differ} differ"
    );
    Ok(compared.iter().all(|(_, comparison)| comparison.is_known))
}

/// Both kernels.
struct Guests<'a> {
    board: &'a Board,
    image: PathBuf,
    linux: PathBuf,
    /// Process 1, which runs the tests.
    init: PathBuf,
    work: Scratch,
    shows: bool,
}

impl Guests<'_> {
    /// Runs a suite on both; `None` if no test of it is asked for.
    fn suite(&self, suite: &Suite, asked: &Asked<'_>) -> Result<Option<Comparison>, Problem> {
        let prepared = suite.prepare(self.work.file(&suite.name), asked)?;
        prepared.uncompiled.iter().for_each(|line| println!("not compiled: {line}"));
        if prepared.tests.is_empty() {
            return match prepared.uncompiled.first() {
                Some(first) => Err(format!("no test compiles: {first}").into()),
                None => Ok(None),
            };
        }
        let (linux, here) = self.boots(suite, &prepared)?;
        let [theirs, ours] = [("linux", &linux), ("ours", &here)].map(|(name, ended)| {
            let verdicts = suite.verdicts(&ended.log);
            let is_complete = ended.has_line(&format!("VERDICTS {}", prepared.tests.len()));
            is_complete.then_some(verdicts).ok_or_else(|| {
                let reason = ended.stopped.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
                let (lines, tests) = (ended.last_lines(5), prepared.tests.len());
                format!("{lines}\n{name} did not run all of the {tests} tests{reason}")
            })
        });
        let (theirs, ours) = (theirs?, ours?);
        passed(self.board, &here)
            .map_err(|why| format!("the kernel here did not end as it should: {why}"))?;
        let back = frames_back(&here.log);
        if back.is_empty() {
            return Err("the kernel here did not say that all frames are back".to_owned().into());
        }
        back.iter().for_each(|line| println!("{line}"));
        let path = list(&suite.name);
        let text = repository::read(&path)?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let listed: Vec<&str> =
            lines.filter(|line| asked.has(line.split(' ').next().unwrap_or(line))).collect();
        Ok(Some(compare(suite, &prepared, &listed, &theirs, &ours)))
    }

    /// Boots both kernels with the root. The word `show` is for process 1: both make a variable of
    /// it.
    fn boots(&self, suite: &Suite, prepared: &Prepared) -> Result<(Ended, Ended), String> {
        let archive = self.work.file("archive");
        let entries = [format!("+{}", prepared.root.display()), format!("init={}", self.init.display())];
        archive::write(&archive, &entries)?;
        let show = if self.shows { " show=1" } else { "" };
        let ours = Boot {
            memory: suite.memory.clone(),
            words: format!("{}{show}", suite.words),
            archive: Some(archive),
            icount: Some(ICOUNT.to_owned()),
            ..Boot::new(self.board, &self.image)
        };
        let linux = Boot {
            machine: "-M q35 -cpu max -nic none".to_owned(),
            image: self.linux.clone(),
            words: format!("console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=1 {}", ours.words),
            ..ours.clone()
        };
        let limits = BootLimits::from_environment(1800, 64 << 20)?;
        Ok((linux.run(&limits, self.shows)?, ours.run(&limits, self.shows)?))
    }
}

/// Returns the file of known differences of a suite.
fn list(suite: &str) -> PathBuf {
    programs().join("verdicts").join(suite).with_extension("list")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suite_has_its_list() {
        for suite in suite::read().unwrap() {
            assert!(list(&suite.name).is_file(), "{}", suite.name);
        }
    }
}
