//! One program on Debian's Linux and on the library's kernel, under the same QEMU with one
//! processor and one time-stamp count an instruction: the cost of its faults, forks and execs on
//! each.
//!
//! | module | task |
//! |---|---|
//! | [`linux`] | fetches Linux |
//! | [`contender`] | who is compared |
//! | [`guest`] | one boot |
//! | [`boots`] | many of them |
//! | [`rows`] | medians of boots; counts of events meanwhile |
//! | [`print`] | tables, bars |
//! | [`profile`] | functions of our kernel in which a case spends its instructions |
//! | [`split`] | groups of these functions |
//! | [`suite`] | suites of cases |
//! | [`cpus`] | a suite of requests between CPUs |

mod boots;
mod cases;
mod contender;
mod cpus;
mod guest;
mod linux;
mod print;
mod profile;
mod rows;
mod split;
mod suite;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
use kernel_boot::board::Boards;
use kernel_boot::debian::Debian;
use kernel_boot::image::Image;
use kernel_boot::{Scratch, archive, programs};

use cases::MeasuredProgram;
use contender::{Contender, TargetArch};
use guest::{BootResults, Files, GuestBoot};
use rows::Row;
use suite::documented::{above, check, of_program};

/// Runs one program on Debian's Linux 6.1 and on the library's kernel, under the same QEMU, and
/// compares the instructions that its faults, forks and execs take.
///
/// Linux's packages are fetched from Debian's archive and kept in the cache directory
/// (`$XDG_CACHE_HOME/ptarmigan`, or `~/.cache/ptarmigan`).
#[derive(Parser)]
#[command(name = "kernels/compare")]
struct Options {
    /// Boots of each contender; the figures are medians of all rounds of all boots.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=50))]
    boots: u8,
    /// Prints rows as JSON: case, contender, value, unit, and counts of events meanwhile.
    #[arg(long)]
    json: bool,
    /// Compares only contenders whose names contain one of these parts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leaves out the boot that counts cleared pages, and the figures derived from it.
    #[arg(long)]
    no_counts: bool,
    /// Prints the functions of our kernel in which this case, of the program or of the suite,
    /// spends its instructions.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["no_counts", "json"])]
    profile: Option<String>,
    /// Runs programs/NAME.c. `faults` and `large`, about large pages, are measured; of others the
    /// lines in capitals are printed, once for each contender.
    #[arg(long, value_name = "NAME", default_value = "faults")]
    program: String,
    /// Runs a suite of cases: ours, lmbench-like, will-it-scale-like, unixbench-like,
    /// cortenmm-like, or cpus, of requests between CPUs.
    #[arg(long, value_name = "NAME", conflicts_with = "program")]
    suite: Option<String>,
    #[command(flatten)]
    of_suite: suite::run::SuiteOptions,
    /// Lists the contenders.
    #[arg(long)]
    list: bool,
    /// Guests that run at the same time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    jobs: u8,
    /// QEMU's plugin.
    #[arg(long, hide = true)]
    counter: PathBuf,
}

/// Returns the last line of a text that is not empty.
fn last_line(text: &str) -> &str {
    text.trim_end().lines().next_back().map_or("nothing", str::trim)
}

/// Returns the line of a command's errors that says what is wrong: the first that names an error,
/// or the last one.
fn error_line(text: &str) -> &str {
    text.lines().find(|line| line.contains("error")).map_or_else(|| last_line(text), str::trim)
}

/// Checks that a program is there.
///
/// # Errors
///
/// It is not; the text names its package.
fn require(program: &str, package: &str) -> Result<(), String> {
    match Command::new(program).arg("--version").output() {
        Err(e) => Err(format!("{program}: {e}: apt-get install {package}")),
        Ok(_) => Ok(()),
    }
}

/// Runs a command to its end; returns its output.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} ended with {}: {}", output.status, error_line(&said)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes the files that all boots of an architecture share. A Linux that cannot be fetched is
/// missing.
fn prepare(
    options: &Options,
    work: &Scratch,
    arch: TargetArch,
    contenders: &[&Contender],
) -> Result<Files, String> {
    let program = work.file(&format!("init-{arch}"));
    let source = match &options.suite {
        Some(suite) => programs().join("suites").join(suite.trim_end_matches("-like")),
        None => programs().join(&options.program),
    };
    let boards = Boards::read()?;
    let (board, linux) = boards.linux(arch.kernel())?;
    let mut command = linux.cc();
    command.args(["-O2", "-w", "-static"]);
    command.args(options.suite.as_ref().map(|_| "-pthread"));
    let (qemu, package) = arch.qemu();
    require(qemu, package)?;
    run(command.arg("-o").arg(&program).arg(source.with_extension("c")))
        .map_err(|problem| format!("{problem}: apt-get install {}", board.compiler_packages()))?;
    // With `--split` the same code, with the names of its functions and files.
    let image = Image { profile: "lean", has_lines: options.of_suite.split, ..Image::of(board) }.build()?;
    let archive = work.file(&format!("initrd-{arch}"));
    let mut entries = vec!["dev/".to_owned(), "dev/console:5:1".to_owned()];
    let mut missing = Vec::new();
    if options.suite.as_deref() == Some("lmbench-like") {
        match Debian::open("amd64", false).and_then(|debian| debian.package("busybox-static")) {
            Ok(busybox) => {
                let shell = format!("bin/busybox={}/bin/busybox", busybox.display());
                entries.extend(["bin/".to_owned(), shell, "bin/sh@busybox".to_owned()]);
            }
            Err(problem) => missing.push(format!("no shell: {problem}")),
        }
    }
    entries.push(format!("init={}", program.display()));
    archive::write(&archive, &entries)?;
    let mut fetched = |is_wanted: bool, kernel: fn(TargetArch) -> Result<PathBuf, String>| {
        let kernel = is_wanted.then(|| kernel(arch))?;
        kernel.map_err(|problem| missing.push(problem)).ok()
    };
    let linux = fetched(contenders.iter().any(|c| c.is_linux() && !c.is_newer()), linux::kernel);
    let newer = fetched(contenders.iter().any(|c| c.is_newer()), linux::newer);
    Ok(Files { image, archive, linux, newer, missing })
}

/// Makes the files of each architecture that contenders are of.
fn prepare_each(
    options: &Options,
    work: &Scratch,
    contenders: &[&Contender],
) -> Vec<(TargetArch, Result<Files, String>)> {
    let of = |arch| -> Option<(TargetArch, Result<Files, String>)> {
        let here: Vec<&Contender> = contenders.iter().copied().filter(|c| c.arch() == arch).collect();
        (!here.is_empty()).then(|| (arch, prepare(options, work, arch, &here)))
    };
    TargetArch::ALL.into_iter().filter_map(of).collect()
}

fn compare(options: &Options) -> Result<(), String> {
    if let Some(suite) = &options.suite {
        if suite == cpus::SUITE && options.profile.is_some() {
            return Err(format!("the suite {} counts requests, and has no profile", cpus::SUITE));
        }
        if suite == cpus::SUITE {
            return cpus::run::run(options);
        }
        if !options.of_suite.cpus.is_empty() {
            return Err(format!("--cpus is for the suite {}: the others have one CPU", cpus::SUITE));
        }
        return suite::run::run(options, suite);
    }
    let wanted = |c: &&Contender| options.only.is_empty() || options.only.iter().any(|o| c.name.contains(o));
    let contenders: Vec<&Contender> = contender::of(&options.program).iter().filter(wanted).collect();
    if contenders.is_empty() {
        return Err(format!("no contender has a name with {}; --list names them", options.only.join(" or ")));
    }
    if options.list {
        contenders.iter().for_each(|c| println!("{:28} {}", c.name, c.about));
        return Ok(());
    }
    let program = MeasuredProgram::find(&options.program);
    if program.is_none() && (options.json || options.profile.is_some()) {
        return Err(format!("{} has no cases, and so no rows and no profile", options.program));
    }
    let profiled = match (&options.profile, program) {
        (Some(name), Some(program)) => Some(program.number(name).ok_or_else(|| {
            format!("no case {name}: there are {}", program.cases.each_ref().map(|case| case.name).join(", "))
        })?),
        _ => None,
    };
    let work = Scratch::new()?;
    let mut files = Vec::new();
    for (arch, made) in prepare_each(options, &work, &contenders) {
        let made = made?;
        if let Some(problem) = made.missing.first() {
            return Err(problem.clone());
        }
        files.push((arch, made));
    }
    let Some(program) = program else { return print_output(&contenders, &files) };
    let counted = usize::from(!options.no_counts);
    let each = usize::from(options.boots) + counted;
    let boots: Vec<(usize, bool)> =
        (0..contenders.len() * each).map(|i| (i / each, i % each >= usize::from(options.boots))).collect();
    let results = boots::each(options.jobs, &boots, |&(index, counts)| {
        let contender = contenders[index];
        let of_arch = files.iter().find(|(arch, _)| *arch == contender.arch());
        let (_, files) = of_arch.ok_or("no files")?;
        let out = work.file(&format!("counts-{}", contender.name));
        let counter = counts.then_some((&*options.counter, &*out));
        let program = Some(program);
        GuestBoot {
            contender,
            program,
            files,
            words: "",
            cpus: 1,
            counter,
            profiled,
            groups: None,
            caches: false,
        }
        .boot()
    });
    let mut all: Vec<Vec<BootResults>> = contenders.iter().map(|_| Vec::new()).collect();
    for ((index, _), result) in boots.into_iter().zip(results) {
        all[index].push(result.map_err(|e: String| format!("{}: {e}", contenders[index].name))?);
    }
    let rows: Vec<Row> = contenders
        .iter()
        .zip(&all)
        .flat_map(|(contender, boots)| rows::of(program, contender, boots))
        .collect();
    if options.json {
        let text = print::json(&rows).map_err(|e| e.to_string())?;
        println!("{text}");
        return below_documented(options, &rows);
    }
    print::tables(program, &rows);
    for (contender, boots) in contenders.iter().zip(&all) {
        print::notes(contender, boots);
    }
    if let Some(case) = &options.profile {
        for (contender, boots) in contenders.iter().zip(&all).filter(|(c, _)| !c.is_linux()) {
            let executed = boots.iter().find_map(|boot| boot.profile.as_ref());
            let image =
                files.iter().find(|(arch, _)| *arch == contender.arch()).map(|(_, files)| &files.image);
            if let (Some(executed), Some(image)) = (executed, image) {
                profile::print(contender.name, case, image, executed)?;
            }
        }
    }
    print::bars(&rows);
    print::remarks();
    below_documented(options, &rows)
}

/// Refuses rows of a program that are above those of the file of `--documented`, if one is named.
fn below_documented(options: &Options, rows: &[Row]) -> Result<(), String> {
    let Some(file) = &options.of_suite.documented else { return Ok(()) };
    check(file, |text| above(&of_program(rows), text, &options.program))
}

/// Boots each contender once, and prints the lines of its program: those that begin in capitals.
fn print_output(contenders: &[&Contender], files: &[(TargetArch, Files)]) -> Result<(), String> {
    for contender in contenders {
        let (_, files) = files.iter().find(|(arch, _)| *arch == contender.arch()).ok_or("no files")?;
        let (text, ended) = GuestBoot {
            contender,
            program: None,
            files,
            words: "",
            cpus: 1,
            counter: None,
            profiled: None,
            groups: None,
            caches: false,
        }
        .run()?;
        let capitals = |line: &&str| {
            line.split(' ')
                .next()
                .is_some_and(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()))
        };
        let lines: Vec<&str> = text.lines().map(str::trim).filter(capitals).collect();
        if lines.is_empty() {
            let (name, last) = (contender.name, last_line(&text));
            return Err(format!("{name}: {ended} and no result; the last line: {last}"));
        }
        lines.iter().for_each(|line| println!("{:22} {line}", contender.name));
    }
    Ok(())
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("kernels/compare: {problem}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_error_and_the_missing_package_are_shown() {
        let said = "In file included from a.c:1:\n/usr/include/x.h:27:10: fatal error: bits/libc-header-start.h: \
                    No such file or directory\n   27 | #include\ncompilation terminated.\n";
        assert!(error_line(said).contains("bits/libc-header-start.h"));
        assert_eq!(error_line("one\ntwo\n"), "two");
        let problem = require("no-such-program-here", "its-package").unwrap_err();
        assert!(problem.contains("apt-get install its-package"), "{problem}");
        assert_eq!(require("true", "coreutils"), Ok(()));
    }
}
