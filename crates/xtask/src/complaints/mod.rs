//! Records programs of public complaints, and compares the advice with the answers that are right.
//!
//! # Why
//!
//! Advice is right if it helps the person who complains. A program that shows a complaint has a
//! known cure, so the first piece of advice can be compared with it, and its prediction with a
//! recording of the cured program. For example, a program that maps an array for each step must be
//! told to keep the memory, not to use huge pages for it.
//!
//! # Rules
//!
//! 1. A row of the table says the right answer for the person, not the one of today's command.
//! 2. A row that the command gets wrong today says why in `open`. If it gets right, `open` must go,
//!    so that no answer gets lost again.
//! 3. A case without its needs is left out, and named.
mod answer;
mod effect;
mod table;

use crate::outcome;
use crate::program::{command_of, with_words};
use crate::recorder::Recorder;
use crate::tools::Tools;
use answer::{Answer, Document};
use clap::{Args, ValueEnum};
use effect::Effect;
use ptarmigan_term::text::{Text, TextTable};
use ptarmigan_term::words::several;
use ptarmigan_term::{Count, Time};
use std::ffi::OsStr;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
pub use table::Case;
use table::Cases;

/// The directory of the programs.
pub const HOME: &str = "crates/ptarmigan-cli/complaints";
/// The table in it.
pub const LIST: &str = "cases.toml";

/// Options of `cargo xtask complaints`.
#[derive(Args)]
pub struct ComplaintsArgs {
    /// Only the cases with these names.
    #[arg(long, value_delimiter = ',', conflicts_with = "change")]
    only: Vec<String>,
    /// Only the cases that each change has to pass.
    #[arg(long)]
    change: bool,
    /// How to record: `perf` needs no root, and does not know writes.
    #[arg(long, default_value = "tracefs")]
    method: Method,
    /// Seconds after which a program is ended.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Prints the first piece of each case, too.
    #[arg(long)]
    lines: bool,
    /// Records nothing: runs each program and its cure so many times, in turns, and prints the
    /// medians. A cure that takes more processor time fails.
    #[arg(long, value_name = "ROUNDS", num_args = 0..=1, default_missing_value = "5",
        value_parser = clap::value_parser!(u32).range(3..=100),
          conflicts_with_all = ["lines", "keep"])]
    effect: Option<u32>,
    /// Keeps the traces in this directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The command `ptarmigan`; without it, one is built.
    #[arg(long, value_name = "FILE")]
    ptarmigan: Option<PathBuf>,
}

/// A way to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Method {
    Tracefs,
    Perf,
}

/// Runs the cases. The exit status is 0 if the answers are right, except for open ones, 2
/// if this host cannot record.
pub fn run(args: &ComplaintsArgs) -> ExitCode {
    outcome::exit("complaints", compare(args))
}

/// The result of a case.
struct Answered {
    case: Case,
    before: Answer,
    /// Page faults of the cured program.
    cured: Option<u64>,
}

/// Runs the cases and prints the table. Returns whether no case failed.
fn compare(args: &ComplaintsArgs) -> Result<bool, String> {
    let home = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?.join(HOME);
    let table = Cases::read(&home.join(LIST))?;
    if let Some(name) = args.only.iter().find(|name| table.case.iter().all(|case| case.name() != **name)) {
        return Err(format!("--only {name}: no case of {LIST} has this name"));
    }
    let bench = Bench { recorder: Recorder::new("complaints", args.ptarmigan.as_deref())?, home, args };
    if args.effect.is_none() {
        bench.probe()?;
    }
    let chosen = |case: &&Case| {
        if args.change {
            case.change
        } else {
            args.only.is_empty() || args.only.iter().any(|n| n == case.name())
        }
    };
    let mut tools = Tools::new(&table.need);
    let (mut answered, mut left_out, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let mut effects = Vec::new();
    // A case without a cure has no effect.
    let runs = |case: &&Case| chosen(case) && (args.effect.is_none() || !case.cure.is_empty());
    for case in table.case.iter().filter(runs) {
        if let Some(need) = tools.missing(&case.needs) {
            left_out.push(format!("{} ({})", case.name(), need.name));
            continue;
        }
        let start = Instant::now();
        let done = match args.effect {
            Some(rounds) => bench.effect(case, rounds).map(|effect| effects.push(effect)),
            None => bench.answer(case).map(|answer| answered.push(answer)),
        };
        if let Err(why) = done {
            failures.push(format!("{}: {why}", case.name()));
        }
        eprintln!("{:<16} {:>7}", case.name(), Time::from(start.elapsed()));
    }
    let text = match args.effect {
        Some(_) => effect::report(&effects),
        None => report(&answered, args.lines),
    };
    print!("{}", text.for_stdout());
    if !left_out.is_empty() {
        println!("left out, for a tool that is missing: {}", left_out.join(", "));
    }
    failures.extend(answered.iter().filter_map(Answered::failure));
    failures.extend(effects.iter().filter_map(Effect::harm));
    Ok(outcome::passed(&failures))
}

impl Answered {
    /// Returns why the case fails: the answer is wrong and not open, or right and still open.
    fn failure(&self) -> Option<String> {
        let (name, wrong) = (self.case.name(), self.before.wrong(&self.case));
        match (wrong.is_empty(), self.case.open.is_some()) {
            (true, true) => Some(format!("{name}: the answer is right: take `open` out of {LIST}")),
            (false, false) => Some(format!("{name}: {}", wrong.join("; "))),
            _ => None,
        }
    }

    fn verdict(&self) -> &'static str {
        if self.before.wrong(&self.case).is_empty() {
            "right"
        } else if self.case.open.is_some() {
            "open"
        } else {
            "WRONG"
        }
    }
}

/// Makes the table: two lines for each case, the complaint and the answer.
fn report(answered: &[Answered], lines: bool) -> Text {
    let widths = [-2, -13, -5, 9, 9, 9, -15];
    let mut rows =
        TextTable::new(&["", "first piece", "", "faults", "predicted", "cured", "prediction"], &widths);
    let mut right = 0;
    for answer in answered {
        let Answered { case, before, cured } = answer;
        let wrong = before.wrong(case);
        right += u64::from(wrong.is_empty());
        let count = |faults: Option<u64>| faults.map_or_else(|| "–".to_owned(), |n| Count(n).to_string());
        let label = format!("{}: {}", case.name(), case.symptom);
        let result = before.result().unwrap_or_default().replace('_', " ");
        let (predicted, recorded) = (count(before.predicted()), count(before.recorded().or(*cured)));
        let faults = count(Some(before.faults()));
        let cells: [&dyn Display; 7] =
            [&label, &before.first(), &answer.verdict(), &faults, &predicted, &recorded, &result];
        rows.row_if_bad(&cells, !wrong.is_empty());
    }
    let mut text = Text::default();
    text.table(rows);
    let said = |text: &mut Text, line: String| {
        use std::fmt::Write;
        let _ = writeln!(text, "{line}");
    };
    for Answered { case, before, .. } in answered.iter().filter(|_| lines) {
        let line = before.line().unwrap_or_else(|| "no advice".to_owned());
        said(&mut text, format!("{}: {line}", case.name()));
    }
    for Answered { case, before, .. } in answered {
        if let (Some(open), false) = (&case.open, before.wrong(case).is_empty()) {
            said(&mut text, format!("open: {}: {}; {open}", case.name(), before.wrong(case).join("; ")));
        }
    }
    said(&mut text, format!("{} of {} right", right, several(answered.len() as u64, "answer")));
    text
}

/// Records and advises.
struct Bench<'a> {
    recorder: Recorder,
    home: PathBuf,
    args: &'a ComplaintsArgs,
}

impl Bench<'_> {
    /// Returns an error with the reason if this host cannot record.
    fn probe(&self) -> Result<(), String> {
        self.record(&self.recorder.dir().join("probe.ptrace"), &["true".to_owned()]).map(drop)
    }

    /// Records `case` and its cure, and reads the advice.
    fn answer(&self, case: &Case) -> Result<Answered, String> {
        let program = self.program(case)?;
        let trace = |cured: &str| self.recorder.dir().join(format!("{}{cured}.ptrace", case.name()));
        let (before, after) = (trace(""), trace("-cured"));
        self.record(&before, &with_words(&program, &case.with))?;
        let mut args = vec![before.as_os_str()];
        let mut cured = None;
        if !case.cure.is_empty() {
            self.record(&after, &with_words(&program, &case.cure))?;
            cured = Some(self.advise(&[after.as_os_str()])?.faults());
            args.extend([OsStr::new("--check"), after.as_os_str()]);
        }
        let before = self.advise(&args)?;
        Ok(Answered { case: case.clone(), before, cured })
    }

    /// Runs `case` and its cure in turns.
    fn effect(&self, case: &Case, rounds: u32) -> Result<Effect, String> {
        let program = self.program(case)?;
        let side = |words: &[String]| {
            let words = with_words(&program, words);
            let mut run = Command::new(&words[0]);
            run.args(&words[1..]).current_dir(self.recorder.dir());
            run
        };
        Effect::of(case, rounds, [&|| side(&case.with), &|| side(&case.cure)])
    }

    fn advise(&self, args: &[&OsStr]) -> Result<Answer, String> {
        let options = ["advise", "--json", "--rounds", "0"].map(OsStr::new);
        let document: Document = self.recorder.json(&[&options, args].concat())?;
        document.traces.into_iter().next().ok_or_else(|| "advise: there is no trace".to_owned())
    }

    /// Builds the program. Returns its command.
    fn program(&self, case: &Case) -> Result<Vec<String>, String> {
        command_of(&self.home.join(&case.file), self.recorder.dir(), case.build.as_deref())
    }

    fn record(&self, trace: &Path, command: &[String]) -> Result<(), String> {
        let method =
            self.args.method.to_possible_value().map_or_else(String::new, |m| m.get_name().to_owned());
        let options = ["--names", "--symbols", "--method", &method];
        let most = Duration::from_secs(self.args.seconds);
        let (status, said) = self.recorder.record(trace, &options, command.iter().map(OsStr::new), most)?;
        if let Some(keep) = &self.args.keep {
            let error = |e: std::io::Error| format!("{}: {e}", keep.display());
            std::fs::create_dir_all(keep).map_err(error)?;
            std::fs::copy(trace, keep.join(trace.file_name().unwrap_or_default())).map_err(error)?;
        }
        let failed = || format!("{}: {status}: {}", command.join(" "), said.trim());
        if status.success() { Ok(()) } else { Err(failed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_fail_unless_they_are_open() {
        let failure = |first: &str, open: bool| {
            let before = serde_json::from_str(r#"{ "whole": { "faults": 3 }, "advice": [] }"#).unwrap();
            let (file, first, open) = ("a.c".into(), first.into(), open.then(|| "later".into()));
            Answered { case: Case { file, first, open, ..Case::default() }, before, cured: None }.failure()
        };
        assert_eq!(failure("none", false), None);
        assert_eq!(failure("churn", true), None);
        assert_eq!(failure("churn", false).as_deref(), Some("a: none comes first, churn is right"));
        assert!(failure("none", true).unwrap().contains("take `open` out"));
    }

    #[test]
    fn the_table_has_80_columns() {
        let document = r#"{ "whole": { "faults": 2895776 }, "advice": [] }"#;
        let before = serde_json::from_str(document).unwrap();
        let symptom = "memory of preloaded workers stops being shared, read only".to_owned();
        let case =
            Case { file: "short-processes.sh".into(), symptom, first: "none".into(), ..Case::default() };
        let text = report(&[Answered { case, before, cured: Some(2_895_776) }], true).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.ends_with("1 of 1 answer right\n"), "{text}");
    }
}
