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

#[cfg(test)]
mod tests {
    use super::*;

    fn paragraph(width: usize, indent: usize, text: &str) -> String {
        let mut out = Paragraphs::new(width);
        out.add(indent, text);
        out.text
    }

    #[test]
    fn lines_are_broken_between_words_and_indented() {
        let out = paragraph(COLUMNS, 3, &"seven77 ".repeat(11));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.starts_with("   s") && line.len() <= COLUMNS), "{out}");
        assert_eq!(lines[0].len(), 3 + 9 * 8 - 1);
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let out = paragraph(COLUMNS, 0, &format!("{} 12 % of it", "x".repeat(76)));
        assert_eq!(out, format!("{}\n12 % of it\n", "x".repeat(76)));
    }

    #[test]
    fn a_narrow_terminal_wraps_lines_and_keeps_words_whole() {
        assert_eq!(
            paragraph(20, 3, "MALLOC_ARENA_MAX=1, or one arena"),
            "   MALLOC_ARENA_MAX=1,\n   or one arena\n"
        );
    }
}
