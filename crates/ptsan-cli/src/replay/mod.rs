//! `ptsan replay`: runs the sanitizer over a log.
mod callers;
mod casemate;
mod error;
mod format;
mod impossible;
mod machine;
mod memory;
mod origins;
mod readers;
mod recent;
mod report;
#[cfg(test)]
mod tests;
mod under_way;

use crate::failure::{BAD_INPUT, FINDINGS, Failure};
use crate::input::{Input, Source};
use crate::symbols::Symbols;
use clap::{Args, ValueEnum};
use machine::{Limit, Machine};
use report::Overview;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the sanitizer over the log of a kernel
///
/// Rebuilds the memory of page tables from the stores of the log, and calls the sanitizer as code
/// under test would. The exit status is 0 without findings, 1 with findings, and 2 if the log
/// cannot be read at all, or is damaged, cut or wrong without a finding before.
#[derive(Args)]
pub struct ReplayArgs {
    /// The log; - is standard input
    log: PathBuf,
    /// The format of the log; without it, the first bytes tell
    #[arg(long, value_enum)]
    from: Option<From>,
    /// The kernel's image: names the functions of instructions
    #[arg(long, value_name = "ELF")]
    symbols: Option<PathBuf>,
    /// CPUs also walk at random, as hardware may: the seed of their choices (0x for hexadecimal)
    #[arg(long, value_name = "N", default_value = "1", value_parser = number)]
    seed: u64,
    /// CPUs walk only where the log has an access
    #[arg(long, conflicts_with = "seed")]
    no_seed: bool,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json: an object on each line
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Keeps so many findings in full; all are counted
    #[arg(long, value_name = "N", default_value_t = 64)]
    keep: usize,
    /// Leaves a function or a file out of reports: the next caller is named; may be repeated
    #[arg(long, value_name = "PATTERN")]
    harness: Vec<String>,
    /// Logs of Casemate: does not check that stores hold the lock of their tree
    #[arg(long)]
    racy: bool,
    /// Logs of Casemate: changes under the lock of a tree must be flushed before it is released
    #[arg(long, conflicts_with = "racy")]
    flush_before_unlock: bool,
    /// Keeps so many MiB of the machine's memory that are not zero
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
}

impl ReplayArgs {
    /// Returns the seed of the random walks.
    fn seed(&self) -> Option<u64> {
        (!self.no_seed).then_some(self.seed)
    }
}

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum From {
    /// The log of ptsan.
    Ptsan,
    /// A trace of Casemate.
    Casemate,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// A line for each finding.
    Short,
    /// Commands of GitHub Actions, which mark the innermost function.
    Github,
    /// An object on each line: the log and its counts, then each finding.
    Json,
}

impl Format {
    fn of_report(self) -> ptsan::Format {
        match self {
            Self::Text => ptsan::Format::Text,
            Self::Short => ptsan::Format::Short,
            Self::Github => ptsan::Format::GitHub,
            Self::Json => ptsan::Format::Json,
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|e| e.to_string())
}

/// Runs the command.
///
/// # Errors
/// The log or the image cannot be read, or needs more memory than allowed.
pub fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let format = if args.json { Format::Json } else { args.format };
    let whole_paths = matches!(format, Format::Github | Format::Json);
    let symbols = Symbols::open(args.symbols.as_deref(), whole_paths)?;
    let mut source = Source::open(&args.log)?;
    let from = match args.from {
        Some(from) => from,
        None if casemate::is_trace(source.first_bytes()?) => From::Casemate,
        None => From::Ptsan,
    };
    if from == From::Casemate {
        let done = casemate::replay(source, args, format.of_report())?;
        return print(&done.text, done.findings, done.sound);
    }
    if args.racy || args.flush_before_unlock {
        let option = if args.racy { "--racy" } else { "--flush-before-unlock" };
        let what = "is for logs of Casemate; a log of ptsan says itself which locks there are";
        return Err(Failure::new(format!("{option} {what}")));
    }
    let mut input = Input::of(source)?;
    let header = *input.reader.header();
    let arch = format::arch(&header).map_err(|e| Failure::at(&input.name, e))?;
    let seed = args.seed();
    let pages = args.memory as usize * 256;
    let mut machine = Machine::new(&header, arch, seed, (args.keep, pages), symbols);
    args.harness.iter().for_each(|pattern| machine.sanitizer.mark_harness(pattern));
    let damage = loop {
        match input.reader.next() {
            Ok(Some(entry)) => machine.apply(&entry).map_err(|limit| {
                let what = match limit {
                    Limit::Memory => {
                        format!("memory of more than {} MiB is stored to; see --memory", args.memory)
                    }
                    Limit::Tables => "more than 16 GiB of tables are announced".to_owned(),
                };
                Failure::at(&input.name, format!("record {}: {what}", entry.number))
            })?,
            Ok(None) => break None,
            Err(e) => break Some(e),
        }
    };
    let read = (input.reader.records(), input.reader.offset());
    machine.finish(read.0);
    input.done();
    let overview = Overview::new(&header, read, damage.as_ref(), &mut machine);
    let text = overview.report(&machine.sanitizer, format.of_report());
    let text = text.map_err(|e| Failure::at("report", e))?;
    print(&text, report::total(&machine.sanitizer), overview.is_sound())
}

/// Prints a report, and returns the exit status that goes with it.
fn print(text: &str, findings: u64, sound: bool) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has gone still gets the exit status.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(Failure::output(&e)),
        _ => {}
    }
    Ok(match (findings, sound) {
        (1.., _) => ExitCode::from(FINDINGS),
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::from(BAD_INPUT),
    })
}
