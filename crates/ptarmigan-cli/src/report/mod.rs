//! `ptarmigan report`: one page about the table pages of recorded programs.
//!
//! # Modules
//!
//! * `args` are the options, `words` writes numbers as people read them.
//! * `collect` replays a recording once and derives figures, without a thought of how they look.
//! * `draw` makes pictures, without knowing their subjects.
//! * `page` puts figures and pictures together, `short` the most important ones. `data` and
//!   `timeline` write the same figures for machines.
mod args;
mod collect;
mod data;
mod page;
mod short;
mod timeline;
mod words;

pub use args::ReportArgs;

use crate::advise::Effort;
use args::HowAdvice;
use collect::{AdviceFigures, PlacedFigures, TraceFigures};
use ptarmigan_replay::{ObservedTrace, Trace};
use ptarmigan_term::output::Output;
use ptarmigan_term::print;
use ptarmigan_term::{Bytes, Context, Failure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes a page about traces.
///
/// # Errors
/// If a trace cannot be read or replayed, or a file cannot be written. An earlier file at the place
/// of the page is then still there.
pub fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    args.check()?;
    // A path that cannot be written is found before a replay begins.
    let page_to = args.page().map(DocumentPlace::new).transpose()?;
    let markdown_to = args.markdown.clone().map(DocumentPlace::new).transpose()?;
    let card_to = args.summary.clone().map(DocumentPlace::new).transpose()?;
    if let Some(dir) = &args.data {
        check_directory(dir)?;
    }
    let effort = match args.advice {
        HowAdvice::Counts => Some(Effort::COUNTS),
        HowAdvice::Timed => Some(Effort::timed()),
        HowAdvice::None => None,
    };
    // Neither the comment nor the card has policies.
    let with_policies = page_to.is_some() || args.data.is_some();
    let policies = if with_policies { args.policies() } else { Vec::new() };
    let mut all = Vec::new();
    let paths: Vec<Option<&Path>> = match args.traces.as_slice() {
        [] => vec![None],
        traces => traces.iter().map(|path| Some(path.as_path())).collect(),
    };
    for path in paths {
        let observed = ObservedTrace::new(open(path, args.share)?, args.memory);
        let mut figures = TraceFigures::of(&observed, &policies, args.memory)?;
        figures.advice = effort.map(|effort| AdviceFigures::new(observed.solo(), args.memory, effort));
        drop(observed);
        if !args.userpte.is_empty() {
            let trace = open(path, args.share)?;
            figures.userpte = PlacedFigures::all(trace, args.memory, args.low, &args.userpte)?;
        }
        all.push(figures);
    }
    let page = page_to.as_ref().map(|_| page::page(&all));
    let markdown = markdown_to.as_ref().map(|_| short::markdown(&all));
    let card = card_to.as_ref().map(|_| short::card(&all));
    if let Some(dir) = &args.data {
        write_data(dir, &all, !args.userpte.is_empty())?;
    }
    for (to, text, what) in [
        (page_to, page, "ready to be opened in a browser"),
        (markdown_to, markdown, "a comment in Markdown"),
        (card_to, card, "a card of 1200 by 630 pixels"),
    ] {
        if let (Some(to), Some(text)) = (to, text) {
            to.write(&text, what)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a trace, `None` for the default recording; without names of files and functions if it is
/// for others.
fn open(path: Option<&Path>, share: bool) -> Result<Trace, Failure> {
    if share { Trace::without_symbols(path) } else { Trace::open_or_default(path) }
}

/// The place of a document.
enum DocumentPlace {
    StandardOutput,
    File(PathBuf, Output),
}

impl DocumentPlace {
    /// Finds a path that cannot be written before a replay begins.
    fn new(path: PathBuf) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(DocumentPlace::StandardOutput);
        }
        let output = Output::new(&path)?;
        Ok(DocumentPlace::File(path, output))
    }

    /// Writes the document, and says so in case of a file.
    fn write(self, text: &str, what: &str) -> Result<(), Failure> {
        match self {
            DocumentPlace::StandardOutput => print::stdout(text),
            DocumentPlace::File(path, output) => {
                output.write(text.as_bytes())?;
                print::error(&format!("{}: {}, {what}", path.display(), Bytes(text.len() as u64)));
                Ok(())
            }
        }
    }
}

/// Checks that a directory is there or can be made.
fn check_directory(dir: &Path) -> Result<(), Failure> {
    match fs::metadata(dir) {
        Ok(found) if !found.is_dir() => {
            Err(Failure::new(format!("{}: not a directory; name one for --data", dir.display())))
        }
        _ => Ok(()),
    }
}

/// Writes the data behind the pictures. No file is written if one of them cannot be replaced.
fn write_data(dir: &Path, all: &[TraceFigures], with_userpte: bool) -> Result<(), Failure> {
    fs::create_dir_all(dir).context(format_args!("{}: cannot be made", dir.display()))?;
    let outputs = data::names(with_userpte).into_iter().map(|name| {
        let output = Output::new(&dir.join(&name))?;
        Ok((name, output))
    });
    for (name, output) in outputs.collect::<Result<Vec<_>, Failure>>()? {
        output.write(&data::contents(&name, all)?)?;
    }
    Ok(())
}
