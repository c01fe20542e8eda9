//! A policy of one's own: each CPU keeps up to eight pages, and the last one goes first. Prints its
//! hits in the shipped fixture, and in a recording if the command line names one.
use ptarmigan_replay::{Page, PolicyOptions, TablePolicy, Trace, run_with};
use ptarmigan_term::{Failure, print};
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

/// Pages that a CPU keeps.
pub const PAGES: usize = 8;

/// The kept pages by CPU.
#[derive(Default)]
struct Lifo(HashMap<usize, Vec<Page>>);

impl TablePolicy for Lifo {
    fn name(&self) -> &str {
        "lifo"
    }

    fn alloc(&mut self, level: u8, cpu: usize) -> Option<Page> {
        let kept = self.0.get_mut(&cpu)?;
        let last = kept.iter().rposition(|page| page.serves(level))?;
        Some(kept.remove(last))
    }

    fn free(&mut self, page: Page, _level: u8, cpu: usize) -> Option<Page> {
        let kept = self.0.entry(cpu).or_default();
        if kept.len() == PAGES {
            return Some(page);
        }
        kept.push(page);
        None
    }
}

/// Replays a recording, and returns a line about it.
pub fn line(path: &Path) -> Result<String, Failure> {
    let options = PolicyOptions { memory: 1 << 30, ..PolicyOptions::default() };
    let result = run_with(Trace::open(path)?, Box::new(Lifo::default()), &options)?;
    let (hits, allocs, kept) = (result.hits(), result.allocs(), result.peak_kept);
    Ok(format!("{}: {hits} hits, {allocs} tables, at most {kept} pages kept\n", result.trace))
}

/// Prints the lines.
pub fn main() -> ExitCode {
    let named = std::env::args_os().nth(1);
    for path in ["fixture".into()].into_iter().chain(named) {
        if let Err(failure) = line(Path::new(&path)).and_then(|line| print::stdout(&line)) {
            return print::failure(&failure);
        }
    }
    ExitCode::SUCCESS
}
