//! The options of `ptarmigan advise`.
use crate::inputs::has_standard_input;
use ptarmigan_replay::{Trace, parse_memory};
use ptarmigan_term::Failure;
use std::path::{Path, PathBuf};

/// Say what would help a recorded program, and a kernel that runs it: each piece of advice with its
/// figure from a replay with and without it.
///
/// Exits with 0 whether or not there is advice, and with 1 if a trace cannot be read or replayed.
#[derive(clap::Args, Clone, Debug)]
pub struct AdviseArgs {
    /// Traces to look at; - for standard input.
    #[arg(required = true)]
    pub(super) traces: Vec<PathBuf>,
    /// Whom advice is for.
    #[arg(long = "for", value_enum, value_name = "WHOM", default_value = "program")]
    pub(super) whom: Whom,
    /// The machine of the kernel that advice is for. Only one of 32 bits with high memory has
    /// `userpte=`.
    #[arg(long, value_enum, value_name = "ARCH", default_value = "x86-64")]
    pub(super) arch: KernelArch,
    /// Memory of the machine that replays run on.
    #[arg(long, default_value = "4G", value_parser = parse_memory, value_name = "SIZE")]
    pub(super) memory: u64,
    /// What TLB flushes and work on pages cost: a cost model of `ptarmigan calibrate -o FILE`.
    /// Without it there is no advice on flushes, and prices of pages are measured anew in each run.
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) model: Option<String>,
    /// Replays of each side. Times differ if all of the one side are below all of the other. With 0
    /// counts alone decide, which are the same in each run, and no price of a page is measured.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = rounds)]
    pub(super) rounds: u8,
    /// A second recording, of the program as it is after advice was followed: say of each piece
    /// whether its prediction holds.
    #[arg(long, value_name = "AFTER.ptrace")]
    pub(super) check: Option<PathBuf>,
    /// A program that has another name in the second recording: OLD of the first one is NEW there.
    /// May be repeated.
    #[arg(long = "as", value_name = "OLD=NEW", requires = "check", value_parser = renamed)]
    pub(super) renamed: Vec<(String, String)>,
    /// Leave out the names of files and functions, so that the advice can be given to others: as if
    /// the traces were copies that `ptarmigan inspect --share` has written.
    #[arg(long)]
    pub(super) share: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl AdviseArgs {
    /// Returns the options of advice for a program, with nothing else chosen.
    pub(super) fn for_program(memory: u64, rounds: u8) -> Self {
        let (whom, arch) = (Whom::Program, KernelArch::X86_64);
        Self {
            traces: Vec::new(),
            whom,
            arch,
            memory,
            model: None,
            rounds,
            check: None,
            renamed: Vec::new(),
            share: false,
            json: false,
        }
    }

    /// Reads a trace, without names of files and functions if the advice is for others.
    pub(super) fn open(&self, path: &Path) -> Result<Trace, Failure> {
        if self.share { Trace::without_symbols(Some(path)) } else { Trace::open(path) }
    }

    /// Checks the combinations that clap cannot express.
    ///
    /// # Errors
    /// If standard input is named twice, or an option has no use.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.whom == Whom::Program && self.arch != KernelArch::X86_64 {
            return Err(Failure::new(
                "--arch chooses the machine for a kernel; give --for kernel or --for both, too",
            ));
        }
        has_standard_input(self.traces.iter().chain(&self.check))?;
        match (&self.check, self.traces.as_slice()) {
            (Some(_), _) if self.whom == Whom::Kernel => {
                Err(Failure::new("--check compares recordings of a program; leave --for kernel out"))
            }
            (Some(after), [before]) if is_same(before, after) => Err(Failure::new(format!(
                "--check {}: this is the recording that the advice is from; give one of the changed program",
                after.display()
            ))),
            (None, _) | (Some(_), [_]) => Ok(()),
            (Some(_), traces) => Err(Failure::new(format!(
                "--check compares one recording with a second one, and {} are given before it",
                traces.len()
            ))),
        }
    }
}

/// Returns whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    real(one).is_some_and(|path| real(other) == Some(path))
}

/// Parses two names of a program.
fn renamed(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("two names of a program with = between them: OLD=NEW".to_owned()),
    }
}

/// Parses a number of rounds. Two rounds of each side differ by chance too often.
fn rounds(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(n @ (0 | 3..=100)) => Ok(n),
        _ => Err("3 to 100 rounds tell times apart, and 0 compares counts alone".to_owned()),
    }
}

/// Whom advice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Whom {
    /// The author of the program
    Program,
    /// A kernel that runs it
    Kernel,
    /// Both
    Both,
}

/// The machine of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum KernelArch {
    /// x86 of 64 bits
    #[value(name = "x86-64")]
    X86_64,
    /// x86 of 32 bits with PAE, which may keep leaf tables in high memory
    #[value(name = "i386-pae")]
    I386Pae,
}
