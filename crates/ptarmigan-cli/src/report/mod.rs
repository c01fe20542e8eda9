//! `ptarmigan report`: one page about the table pages of recorded programs.
//!
//! # Modules
//!
//! * `args` are the options, `words` writes numbers as people read them.
//! * `collect` replays a recording once and derives figures, without a thought of how they look.
//! * `draw` makes pictures, without knowing their subjects.
//! * `page` puts figures and pictures together. `data` and `timeline` write the same figures for
//!   machines.
mod args;
mod collect;
mod data;
mod draw;
mod page;
mod timeline;
mod words;

pub use args::ReportArgs;

use collect::{Figures, PlacedFigures};
use ptarmigan_replay::terminal::output::Output;
use ptarmigan_replay::terminal::print;
use ptarmigan_replay::{Context, Failure, ObservedTrace};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Writes a page about traces.
///
/// # Errors
/// If a trace cannot be read or replayed, or a file cannot be written. An earlier file at the place
/// of the page is then still there.
pub fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    args.check()?;
    // A path that cannot be written is found before a replay begins.
    let page_to = if args.output.as_os_str() == "-" { None } else { Some(Output::new(&args.output)?) };
    if let Some(dir) = &args.data {
        check_directory(dir)?;
    }
    let mut all = Vec::new();
    let paths: Vec<Option<&Path>> = match args.traces.as_slice() {
        [] => vec![None],
        traces => traces.iter().map(|path| Some(path.as_path())).collect(),
    };
    for path in paths {
        let observed = ObservedTrace::read(path, args.memory)?;
        let mut figures = Figures::of(&observed, &args.policies(), args.memory)?;
        drop(observed);
        figures.userpte = PlacedFigures::all(path, args.memory, args.low, &args.userpte)?;
        all.push(figures);
    }
    let page = page::page(&all);
    if let Some(dir) = &args.data {
        write_data(dir, &all, !args.userpte.is_empty())?;
    }
    match page_to {
        None => print::stdout(&page)?,
        Some(output) => {
            output.write(page.as_bytes())?;
            let size = words::size(page.len() as u64);
            print::error(&format!("{}: {size}, ready to be opened in a browser", args.output.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
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
fn write_data(dir: &Path, all: &[Figures], with_userpte: bool) -> Result<(), Failure> {
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
