//! Turns knobs that `ptarmigan price` has priced, and compares the savings with the predictions.
//!
//! # Why
//!
//! A price is a count on a recording of the machine as it is. Whether it is right shows once
//! somebody turns the knob: for example, sets blocks of 64 KiB to `always`, and records the program
//! again.
//!
//! # Rules
//!
//! 1. Each program is recorded without and with the knob in turns; medians are compared.
//! 2. The error is the difference of the predicted and the measured saving, as a part of the
//!    baseline. The spread of recordings without the knob stands beside it: a smaller error says
//!    no more than that.
//! 3. A baseline below [`FEW`] is marked, since its error is one of a few counts.
mod list;
mod measure;
mod row;

use crate::complaints;
use crate::outcome;
use crate::recorder::Recorder;
use crate::script::succeeds;
use clap::Args;
use list::{Knob, KnobProgram, KnobPrograms, LIST};
use measure::KnobBench;
use ptarmigan_term::Count;
use ptarmigan_term::text::{Text, TextTable};
use ptarmigan_term::words::several;
use row::{KnobComparison, WITHIN};
use serde::Serialize;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Counts of a baseline that are hardly enough to compare.
const FEW: f64 = 20.0;

/// Options of `cargo xtask knobs`.
#[derive(Args)]
pub struct KnobsArgs {
    /// Only these programs.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these knobs.
    #[arg(long, value_delimiter = ',', default_values_t = Knob::ALL)]
    knobs: Vec<Knob>,
    /// Recordings on each side.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The least predictions that must be near enough.
    #[arg(long, default_value_t = 24)]
    least: usize,
    /// Seconds after which a program is ended.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Writes the rows to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prices of pages, of `ptarmigan calibrate -o FILE`; without it, they are measured for each
    /// recording.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The command `ptarmigan`; without it, one is built.
    #[arg(long, value_name = "FILE")]
    ptarmigan: Option<PathBuf>,
}

/// The rows, as they are written.
#[derive(Serialize)]
struct KnobDocument<'a> {
    /// The most points that a prediction may be off.
    within: f64,
    /// Predictions that are near enough.
    held: usize,
    rows: &'a [KnobComparison],
}

/// Runs the programs. The exit status is 0 if enough predictions hold, 2 if this host cannot record
/// or its settings cannot be changed.
pub fn run(args: &KnobsArgs) -> ExitCode {
    outcome::exit("knobs", compare(args))
}

fn compare(args: &KnobsArgs) -> Result<bool, String> {
    let root = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?;
    let list = KnobPrograms::read(&root.join(LIST))?;
    if let Some(name) = args.only.iter().find(|name| list.program.iter().all(|one| one.name != **name)) {
        return Err(format!("--only {name}: no program of {LIST} has this name"));
    }
    let model =
        args.model.as_ref().map(|file| file.canonicalize().map_err(|e| format!("{}: {e}", file.display())));
    let bench = KnobBench {
        recorder: Recorder::new("knobs", args.ptarmigan.as_deref())?,
        model: model.transpose()?,
        most: Duration::from_secs(args.seconds),
    };
    prepare(&list.prepare, bench.recorder.dir())?;
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for knob in args.knobs.iter().copied() {
        let chosen = |one: &&KnobProgram| {
            one.knobs.contains(&knob) && (args.only.is_empty() || args.only.contains(&one.name))
        };
        for program in list.program.iter().filter(chosen) {
            match measured(&bench, program, knob, &root.join(complaints::HOME), args.rounds) {
                Ok(row) => {
                    eprintln!("{} {}: {} points off", knob.name(), program.name, row.error);
                    rows.push(row);
                }
                Err(why) => failures.push(format!("{} {}: {why}", knob.name(), program.name)),
            }
        }
    }
    let held = rows.iter().filter(|row| row.holds()).count();
    print!("{}", report(&rows).for_stdout());
    if let Some(file) = &args.json {
        let document = serde_json::to_string_pretty(&KnobDocument { within: WITHIN, held, rows: &rows });
        let text = document.map_err(|e| e.to_string())? + "\n";
        std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    if args.only.is_empty() && args.knobs == Knob::ALL && held < args.least {
        failures.push(format!("{held} predictions hold, {} must", args.least));
    }
    Ok(outcome::passed(&failures))
}

/// Makes the input of the programs.
fn prepare(script: &str, dir: &Path) -> Result<(), String> {
    let run = Command::new("bash").args(["-ec", script]).current_dir(dir).output();
    let run = run.map_err(|e| format!("bash: {e}"))?;
    let said = || format!("{LIST}: prepare: {}", String::from_utf8_lossy(&run.stderr).trim());
    if run.status.success() { Ok(()) } else { Err(said()) }
}

/// Records a program in turns.
fn measured(
    bench: &KnobBench,
    program: &KnobProgram,
    knob: Knob,
    home: &Path,
    rounds: u32,
) -> Result<KnobComparison, String> {
    let built = program.build(home, bench.recorder.dir())?;
    let tool = built.first().map_or("", |word| word);
    if !succeeds(&format!("command -v '{tool}'")) {
        return Err(format!("{tool} is missing"));
    }
    let pairs: Result<Vec<_>, _> = (0..rounds).map(|_| bench.pair(program, &built, knob)).collect();
    Ok(KnobComparison::new(knob, &program.name, &pairs?))
}

/// Makes the table: a line for each program.
fn report(rows: &[KnobComparison]) -> Text {
    let heads = ["", "baseline", "predicted", "saved", "error", "spread"];
    let mut table = TextTable::new(&heads, &[-25, 10, 10, 10, 9, 9]);
    for row in rows {
        let few = if row.baseline < FEW { " (few)" } else { "" };
        let label = format!("{} {}{few}", row.knob.name(), row.program);
        let count = |value: f64| match value < 0.0 {
            true => format!("-{}", Count(-value as u64)),
            false => Count(value as u64).to_string(),
        };
        let points = |value: f64| format!("{value:.1} %");
        let cells: [&dyn Display; 6] = [
            &label,
            &count(row.baseline),
            &count(row.predicted),
            &count(row.measured),
            &points(row.error),
            &points(row.spread),
        ];
        table.row_if_bad(&cells, !row.holds());
    }
    let mut text = Text::default();
    text.table(table);
    let held = rows.iter().filter(|row| row.holds()).count();
    let few = rows.iter().filter(|row| row.holds() && row.baseline < FEW).count();
    let all = several(rows.len() as u64, "prediction");
    let _ =
        writeln!(text, "{held} of {all} within {WITHIN} points of the baseline; {few} of them of few counts");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_80_columns_and_marks_few_counts() {
        let row = KnobComparison {
            knob: Knob::Switch,
            program: "short-processes".to_owned(),
            baseline: 2_895_776.0,
            predicted: 1_000_000.0,
            measured: -1_000_000.0,
            error: 69.1,
            spread: 0.4,
        };
        let few = KnobComparison { baseline: 3.0, predicted: 0.0, measured: 0.0, error: 0.0, ..row.clone() };
        let text = report(&[row, few]).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("short-processes (few)") && text.contains("-1,000,000"), "{text}");
        assert!(
            text.ends_with("1 of 2 predictions within 10 points of the baseline; 1 of them of few counts\n")
        );
    }
}
