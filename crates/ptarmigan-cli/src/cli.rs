//! The command line: its grammar, its help, and the dispatch to commands.
//!
//! [`command`] is the grammar with examples and exit codes in every help text. The pages of the
//! manual ([`pages`]) and the completions of shells are made of it.
mod docs;
mod examples;
mod hints;
pub mod pages;

pub use examples::{EXIT_CODES, Example, example, of, with_examples};

use crate::{advise, bench, calibrate, inspect, price, report};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use ptarmigan_record::{self as record, RecordArgs};
use ptarmigan_replay::baseline;
use ptarmigan_term::Failure;
use ptarmigan_term::print;
use std::process::ExitCode;

/// A workbench for page-table memory: records what real programs do to their address spaces and
/// replays it on several allocation policies. Without a command, replays the shipped recording
/// linux-build on three policies.
#[derive(Debug, Parser)]
#[command(name = "ptarmigan", version, args_conflicts_with_subcommands = true, max_term_width = 80)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    spread: ptarmigan_replay::Spread,
}

#[derive(Debug, Subcommand)]
enum Command {
    Record(RecordArgs),
    Inspect(inspect::InspectArgs),
    Replay(Box<ptarmigan_replay::ReplayArgs>),
    Advise(advise::AdviseArgs),
    Price(price::PriceArgs),
    Bench(bench::BenchArgs),
    Calibrate(calibrate::CalibrateArgs),
    Report(report::ReportArgs),
    Docs(docs::DocsArgs),
    Completions(pages::CompletionsArgs),
    Man(pages::ManArgs),
}

/// Returns the grammar of the command line.
#[must_use]
pub fn grammar() -> clap::Command {
    Cli::command()
}

/// Returns the grammar of the command line, with examples and exit codes below each help text.
#[must_use]
pub fn command() -> clap::Command {
    with_examples(grammar(), "ptarmigan", of)
}

/// Parses a command line, the program's name first.
///
/// # Errors
/// If it does not follow the grammar, or asks for help or the version.
pub fn parse<S: Into<std::ffi::OsString> + Clone>(
    line: impl IntoIterator<Item = S>,
) -> Result<Cli, clap::Error> {
    parse_as(command(), line, |cli: &mut Cli| cli.command.as_mut().and_then(Command::baseline_mut))
}

/// Parses a command line of a grammar, the program's name first. `baseline` returns the options of
/// a baseline: they keep the other options of the line.
///
/// # Errors
/// If it does not follow the grammar, or asks for help or the version.
pub fn parse_as<C: FromArgMatches, S: Into<std::ffi::OsString> + Clone>(
    mut command: clap::Command,
    line: impl IntoIterator<Item = S>,
    baseline: impl FnOnce(&mut C) -> Option<&mut baseline::BaselineArgs>,
) -> Result<C, clap::Error> {
    let matches = command.try_get_matches_from_mut(line).map_err(hints::with_hint)?;
    let mut cli = C::from_arg_matches(&matches)?;
    if let Some(args) = baseline(&mut cli) {
        let (command, matches) = leaf(&command, &matches);
        args.settings = baseline::settings(command, matches);
        args.options = baseline::options(command, matches);
    }
    Ok(cli)
}

/// Returns the innermost command that was given, with its matches.
fn leaf<'a>(command: &'a clap::Command, matches: &'a ArgMatches) -> (&'a clap::Command, &'a ArgMatches) {
    match matches.subcommand() {
        Some((name, inner)) => {
            command.find_subcommand(name).map_or((command, matches), |one| leaf(one, inner))
        }
        None => (command, matches),
    }
}

impl Command {
    fn baseline_mut(&mut self) -> Option<&mut baseline::BaselineArgs> {
        match self {
            Command::Replay(args) => Some(&mut args.baseline),
            Command::Bench(args) => Some(&mut args.baseline),
            _ => None,
        }
    }
}

impl Cli {
    /// Executes the command line.
    ///
    /// # Errors
    /// As each command.
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Some(Command::Record(args)) => record::run(&args),
            Some(Command::Inspect(args)) => inspect::run(&args),
            Some(Command::Replay(args)) => ptarmigan_replay::run(&args),
            Some(Command::Advise(args)) => advise::run(&args),
            Some(Command::Price(args)) => price::run(&args),
            Some(Command::Bench(args)) => args.run().map(|()| ExitCode::SUCCESS),
            Some(Command::Calibrate(args)) => calibrate::run(&args),
            Some(Command::Report(args)) => report::run(&args),
            Some(Command::Docs(args)) => docs::run(&args),
            Some(Command::Completions(args)) => pages::completions(&args),
            Some(Command::Man(args)) => pages::man(&args),
            None => ptarmigan_replay::default_run(self.spread),
        }
    }
}

/// Parses the command line of this process and executes it. Returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    cli.run().unwrap_or_else(|failure| print::failure(&failure))
}
