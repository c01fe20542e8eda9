//! `cargo xtask`: checks of the workspace beside its tests.
use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod boot;
mod ceilings;
mod check;
mod ci;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod complaints;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod fidelity;
mod figures;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod knobs;
mod lines;
#[cfg(unix)]
mod mistakes;
#[cfg(unix)]
mod mutants;
mod names;
mod outcome;
mod pages;
mod pictures;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod program;
mod prose;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod record_set;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod recorder;
mod repository;
mod rooms;
mod script;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "../../ptarmigan-cli/tests/record/settings.rs"]
mod settings;
mod test_names;
mod tokens;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tools;
mod units;
#[cfg(unix)]
mod usage;

/// Checks of the workspace beside its tests.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds and boots the kernel images under QEMU, and says which of them pass.
    Boot(boot::BootArgs),
    /// Runs the checks that take a few minutes: formatting, spelling, prose, words of pages,
    /// order of modules, names of types, quantities, lints, unit tests of the library.
    Check(check::CheckArgs),
    /// Runs the jobs of `.ci/jobs.toml`: all that each change has to pass, the ones that a change
    /// touches, or nightly ones in their turn.
    Ci(ci::CiArgs),
    /// Runs the commands behind the figures of the documents, and compares or writes them.
    Figures(figures::FiguresArgs),
    /// Counts words that make comments and documents hard to read; fails above the limits of a
    /// list.
    Prose(prose::ProseArgs),
    /// Checks the order of modules: fails if files use each other, or if a module uses one that
    /// comes after it in a list.
    Rooms,
    /// Counts the words of pages and of the whole; fails above the limits of a list.
    Pages,
    /// Counts type names that a crate defines more than once, and names of tests above 60
    /// characters; fails above the limits of lists.
    Names(names::NamesArgs),
    /// Checks that quantities are formatted by `ptarmigan-term` alone.
    Units,
    /// Counts lines of code, comments and tests by crate, and functions that are inlined by force.
    Lines(lines::LinesArgs),
    /// Makes the mistakes of the lists in `models`, and says which ones their tests do not notice.
    #[cfg(unix)]
    Mistakes(mistakes::MistakesArgs),
    /// Changes the library in small ways, and says which changes no test notices.
    #[cfg(unix)]
    Mutants(mutants::MutantsArgs),
    /// Draws the pictures of a report in README and book again.
    Pictures(pictures::PicturesArgs),
    /// Records random programs and compares a replay with Linux's count of tables after every call.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Fidelity(fidelity::FidelityArgs),
    /// Records commands and compares a replay with Linux's counts of tables.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Suite(fidelity::SuiteArgs),
    /// Records programs of public complaints, and compares the advice with the right answers.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Complaints(complaints::ComplaintsArgs),
    /// Records a set of loads, and prices proposals on them for docs/price.md.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    RecordSet(record_set::RecordSetArgs),
    /// Turns knobs that `ptarmigan price` has priced, and compares savings with the predictions.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Knobs(knobs::KnobsArgs),
    /// Runs a program of `fidelity` (used by the recording).
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[command(hide = true)]
    Guest {
        /// The program.
        file: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    match Args::parse().task {
        Task::Boot(args) => boot::run(&args),
        Task::Check(args) => check::run(&args),
        Task::Ci(args) => ci::run(&args),
        Task::Figures(args) => figures::run(&args),
        Task::Prose(args) => prose::run(&args),
        Task::Rooms => rooms::run(),
        Task::Pages => pages::run(),
        Task::Names(args) => names::run(&args),
        Task::Units => units::run(),
        Task::Lines(args) => lines::run(&args),
        #[cfg(unix)]
        Task::Mistakes(args) => mistakes::run(&args),
        #[cfg(unix)]
        Task::Mutants(args) => mutants::run(&args),
        Task::Pictures(args) => pictures::run(&args),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Task::Fidelity(args) => fidelity::run(&args),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Task::Suite(args) => fidelity::suite(&args),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Task::Complaints(args) => complaints::run(&args),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Task::RecordSet(args) => record_set::run(&args),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Task::Knobs(args) => knobs::run(&args),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Task::Guest { file } => fidelity::guest(&file),
    }
}
