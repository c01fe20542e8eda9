//! The result as text, at most 80 columns wide, or as wide as a narrower terminal.
use super::advice::{Advice, MappingPlace, ProgramShare, To};
use super::causes::WorkCause;
use super::check::Check;
use super::expect::Expect;
use super::figures::percent;
use super::report::TraceReport;
use crate::paragraphs::Paragraphs;
use ptarmigan_term::words::several;
use ptarmigan_term::{Count, Time};

/// The most programs that a piece of advice lists.
const SHOWN: usize = 6;
/// Returns the result for a trace as text.
pub fn text(report: &TraceReport) -> String {
    let mut out = Paragraphs::of_screen();
    let TraceReport { name, method, processes, running, events, whole, .. } = report;
    if let Some(times) = &report.times {
        let line = times.line.as_deref().unwrap_or_default();
        out.add(0, &format!("{name}: {line}."));
        times.remarks.iter().for_each(|remark| out.add(0, remark));
    }
    out.add(
        0,
        &format!(
            "{name}: {}{}, {}, {}, by {method}; {} made, {} at the peak, {} at the end of programs",
            several(*processes, "process"),
            if *running > 0 { format!(" ({} running already)", Count(*running)) } else { String::new() },
            several(*events, "event"),
            several(whole.faults, "fault"),
            several(whole.tables_made, "table"),
            Count(whole.tables_peak),
            Count(whole.tables_at_end),
        ),
    );
    let sum: f64 = whole.causes.values().map(|cause| cause.ns).sum();
    let mut shares: Vec<_> = whole.causes.iter().collect();
    shares.sort_by(|a, b| b.1.ns.total_cmp(&a.1.ns));
    let shares = shares.iter().filter(|(_, cause)| cause.times > 0);
    let shares: Vec<String> =
        shares.map(|(name, cause)| format!("{name} {}", percent(cause.ns / sum.max(1.0)))).collect();
    out.add(
        0,
        &format!("The replay takes {}. Page tables: {}.", Time::from_nanos(whole.work_ns), shares.join(", ")),
    );
    for note in &report.notes {
        out.add(0, &format!("Note: {note}"));
    }
    let certain = report.advice.iter().any(|advice| !advice.details.uncertain);
    if !certain {
        out.gap();
        let found = match (report.hardly_any, report.advice.is_empty()) {
            (true, _) => "Nothing would help",
            (false, true) => "No advice was found",
            (false, false) => "No advice is certain",
        };
        out.add(0, &format!("{found}{}.", report.programs.clause()));
    }
    if !report.hardly_any && (!certain || report.leaves_more) {
        let heading = if certain { "Most of the time is elsewhere" } else { "The largest causes" };
        causes(&mut out, heading, &report.causes);
    }
    for (number, advice) in report.advice.iter().enumerate() {
        out.gap();
        piece(&mut out, number + 1, advice);
    }
    let (tried, open): (Vec<_>, Vec<_>) = report.rejected.iter().partition(|rejected| rejected.measured);
    for (heading, list) in [("Not advised:", tried), ("Not measured:", open)] {
        if !list.is_empty() {
            out.gap();
            out.add(0, heading);
            for rejected in list {
                out.add(2, &format!("{}: {}", rejected.kind, rejected.reason));
            }
        }
    }
    if let Some(check) = &report.check {
        out.gap();
        checked(&mut out, check);
    }
    out.finish()
}

fn causes(out: &mut Paragraphs, heading: &str, causes: &[WorkCause]) {
    if !causes.is_empty() {
        out.gap();
        out.add(0, &format!("{heading}:"));
    }
    causes.iter().for_each(|cause| out.add(2, &cause.sentence()));
}

fn checked(out: &mut Paragraphs, check: &Check) {
    out.add(0, &format!("Compared with {}:", check.name));
    if check.advice.is_empty() {
        out.add(2, "there is no advice to compare.");
    }
    for (number, advice) in check.advice.iter().enumerate() {
        out.add(2, &format!("{}. {}: {}", number + 1, advice.kind, advice.words()));
        for figure in &advice.figures {
            out.add(5, &figure.sentence());
        }
        if advice.figures.is_empty() {
            out.add(5, "no figure of a second recording was predicted.");
        }
    }
}

fn piece(out: &mut Paragraphs, number: usize, advice: &Advice) {
    let to = match advice.to {
        To::Program => "program",
        To::Kernel => "kernel",
        To::Machine => "machine",
    };
    // Advice that may be a loss is behind all other and has no place among it.
    let place = if advice.details.uncertain { "May help or harm.".to_owned() } else { format!("{number}.") };
    out.add(0, &format!("{place} For the {to}: {}.", advice.title));
    out.add(3, &advice.figure);
    let details = &advice.details;
    if let [_, _, ..] = details.programs.as_slice() {
        let one = |share: &ProgramShare| format!("{} {}", share.name, Count(share.count));
        let shares: Vec<String> = details.programs.iter().take(SHOWN).map(one).collect();
        out.add(3, &format!("By program: {}.", shares.join(", ")));
    }
    if !details.places.is_empty() {
        let places: Vec<String> = details.places.iter().map(MappingPlace::text).collect();
        out.add(3, &format!("Where: {}.", places.join("; ")));
    }
    if let Some(caller) = &details.caller {
        out.add(3, &format!("Function: {caller}."));
    }
    out.add(3, &format!("How: {}", advice.how));
    if !details.expect.is_empty() {
        let expects: Vec<String> = details.expect.iter().map(Expect::text).collect();
        out.add(3, &format!("A second recording should show: {}.", expects.join("; ")));
    }
    out.add(3, &format!("Not measured: {}", advice.not_measured));
}
