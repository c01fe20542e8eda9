//! Plays the exhibits of the museum one after the other, each with its report and corrected.
//!
//! `cargo run -p ptsan --example museum`, or `-- NAME` for one, or `-- --list`, or `-- --catalogue`
//! for a page of Markdown with the facts and the description of each.
#[path = "../tests/museum/exhibits/mod.rs"]
mod exhibits;

use exhibits::{ALL, Exhibit};
use std::process::ExitCode;

/// The seed of the run that is shown.
const SEED: u64 = 1;
/// The corrected model runs with so many.
const SEEDS: u64 = 20;

/// Shows the report of an exhibit. Returns whether it and the corrected model did as they must.
fn play(exhibit: &Exhibit) -> bool {
    let Exhibit { name, numbers, project, year, pattern, check, .. } = exhibit;
    let pattern = if *pattern { ", pattern" } else { "" };
    let text = exhibits::description(exhibit).unwrap_or_default();
    println!("== {name}: {numbers}\n   {project}, {year}{pattern}\n   {text}\n   check: {check}\n");
    let run = exhibit.run(SEED, true, true);
    println!("{}\n", run.san);
    let found = run.first.is_some_and(|(kind, rule)| exhibit.is_found_as(kind, rule));
    let silent = (1..=SEEDS).all(|seed| exhibit.run(seed, false, false).first.is_none());
    println!("-- {}", run.sequence.join(", "));
    match (found, silent) {
        (true, true) => println!("-- corrected: silent with {SEEDS} seeds\n"),
        (false, _) => println!("-- another finding than {} {:?}\n", exhibit.kind, exhibit.rules),
        (true, false) => println!("-- corrected: not silent\n"),
    }
    found && silent
}

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.iter().any(|name| name == "--list") {
        ALL.iter().for_each(|exhibit| println!("{}", exhibit.name));
        return ExitCode::SUCCESS;
    }
    if wanted.iter().any(|name| name == "--catalogue") {
        print!("{}", exhibits::catalogue());
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = wanted.iter().find(|name| ALL.iter().all(|exhibit| exhibit.name != *name)) {
        eprintln!("there is no exhibit {unknown}; --list names them");
        return ExitCode::FAILURE;
    }
    let shown =
        ALL.iter().filter(|exhibit| wanted.is_empty() || wanted.iter().any(|name| *name == exhibit.name));
    let (mut played, mut failed) = (0, 0);
    for exhibit in shown {
        played += 1;
        failed += u32::from(!play(exhibit));
    }
    println!("{played} exhibits, {failed} not as the catalogue says");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
