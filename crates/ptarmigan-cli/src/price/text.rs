//! Prints the prices of proposals: in words, as CSV, as Markdown.
use super::document::{RowPrice, TracePrices};
use crate::csv;
use crate::markdown;
use crate::paragraphs::Paragraphs;
use ptarmigan_replay::model::page_prices::PagePrices;
use ptarmigan_replay::price::{Judgement, Row};
use ptarmigan_term::words::several;
use ptarmigan_term::{Count, Time};
use std::fmt::Write as _;

/// Lists the proposals.
pub fn list(rows: &[Box<dyn Row>]) -> String {
    let mut out = Paragraphs::of_screen();
    for about in rows.iter().map(|row| row.about()) {
        out.add(0, &format!("{}: {}.", about.name, about.title));
        out.add(3, &format!("{}. Claim: {}.", about.reference, about.claim));
    }
    out.finish()
}

/// Returns the share as a person reads it.
fn share(row: &RowPrice) -> String {
    match row.share {
        None => "no price".to_owned(),
        Some(share) if share.abs() >= 0.1 => format!("{:.0} %", share * 100.0),
        Some(share) => format!("{:.1} %", share * 100.0),
    }
}

/// Returns the prices of one recording in words.
pub fn words(trace: &TracePrices, prices: &PagePrices, first: bool) -> String {
    let mut out = Paragraphs::of_screen();
    if !first {
        out.gap();
    }
    let by = match (trace.kernel_recorded, &prices.stored) {
        (true, _) => "of the kernel, as recorded",
        (false, Some(_)) => "of the kernel, by the prices of the model",
        (false, None) => "of the kernel, by prices of pages measured here",
    };
    out.add(
        0,
        &format!(
            "{}: {}, {}, {}; {} {by}.",
            trace.name,
            several(trace.faults, "fault"),
            several(trace.forks, "fork"),
            several(trace.spaces, "space"),
            Time::from_secs(trace.kernel_seconds),
        ),
    );
    remarks(trace).iter().for_each(|remark| out.add(0, remark));
    for (number, row) in trace.answered.iter().enumerate() {
        out.gap();
        let saved = match row.share {
            None if row.answer.savings.is_empty() => "Saves no work that has a price".to_owned(),
            None => "No price".to_owned(),
            Some(part) if part < 0.0 => format!("Costs {} of the time", share(row).trim_start_matches('-')),
            Some(_) => format!("Saves {} of the time", share(row)),
        };
        out.add(0, &format!("{}. {}: {}. {saved}.", number + 1, row.name, row.title));
        out.add(3, &row.answer.counted);
        if let Some(judgement) = &row.answer.judgement {
            out.add(3, &replayed(judgement));
        }
        out.add(3, &format!("Cost: {}", row.answer.cost));
        out.add(3, &format!("When not: {}", row.answer.when_not));
        out.add(3, &format!("Today: {}", row.answer.today));
        out.add(3, &format!("Claim: {} ({}).", row.claim, row.reference));
    }
    if !trace.refused.is_empty() {
        out.gap();
        out.add(0, "Not answered:");
        for refused in &trace.refused {
            out.add(3, &format!("{}: {}.", refused.name, refused.reason));
        }
    }
    out.finish()
}

/// Says what a replay with the mechanism had.
fn replayed(judgement: &Judgement) -> String {
    let Judgement { what, counted, replayed } = judgement;
    let [replayed, counted] = [*replayed, *counted].map(|figure| Count(figure.round().max(0.0) as u64));
    let apart = judgement.error() * 100.0;
    format!("Replayed: {replayed} {what} where {counted} are counted ({apart:.1} % apart).")
}

/// Returns sentences about what is missing from the recording.
fn remarks(trace: &TracePrices) -> Vec<String> {
    let lost = (trace.lost > 0).then(|| format!("The recorder lost {}.", several(trace.lost, "event")));
    let part = trace.recorded_programs.as_ref().map(|part| format!("Recorded: {part}."));
    lost.into_iter().chain(part).collect()
}

/// Returns the figures of one recording as CSV, with a head before the first one.
pub fn csv(trace: &TracePrices, first: bool) -> String {
    let mut text = if first { "trace,row,share,figure,value,unit\n".to_owned() } else { String::new() };
    for row in &trace.answered {
        let share = row.share.map(|share| format!("{share:.6}")).unwrap_or_default();
        for figure in &row.answer.figures {
            let _ = writeln!(
                text,
                "{},{},{share},{},{},{}",
                csv::foreign(&trace.name),
                row.name,
                csv::quoted(&figure.name),
                figure.value,
                figure.unit
            );
        }
    }
    text
}

/// Returns a table in Markdown.
pub fn markdown(trace: &TracePrices, first: bool) -> String {
    let mut text = if first { String::new() } else { "\n".to_owned() };
    let _ = write!(text, "## {}\n\n", markdown::text(&trace.name));
    for remark in remarks(trace) {
        let _ = write!(text, "{}\n\n", markdown::text(&remark));
    }
    text.push_str("| proposal | saves | counted | cost | when not | today |\n|---|---|---|---|---|---|\n");
    for row in &trace.answered {
        let RowPrice { name, answer, .. } = row;
        let cells =
            [&answer.counted, &answer.cost, &answer.when_not, &answer.today].map(|text| markdown::text(text));
        let _ = writeln!(text, "| {name} | {} | {} |", share(row), cells.join(" | "));
    }
    for refused in &trace.refused {
        let _ = writeln!(text, "| {} | – | {} | – | – | – |", refused.name, markdown::text(&refused.reason));
    }
    text
}
