//! The answers in short: a paragraph for each proposal, over all recordings.
use super::columns::{COLUMNS, Column};
use super::recording::{PricedAnswer, PricedRecording};
use crate::figures::table::wrapped;
use ptarmigan_term::Mean;
use std::collections::BTreeMap;

/// Part of the kernel's time from which on a saving is counted.
const WORTH: f64 = 0.01;

/// Returns the paragraphs, and one for the proposals that no recording answers.
///
/// # Errors
/// With the figure that an answer lacks.
pub fn paragraphs(recordings: &[PricedRecording]) -> Result<String, String> {
    let mut text = String::new();
    for column in &COLUMNS {
        if let Some(paragraph) = paragraph(column, recordings)? {
            text += &format!("\n{}\n", wrapped(&paragraph));
        }
    }
    let mut never: BTreeMap<&str, &str> = BTreeMap::new();
    for refused in recordings.iter().flat_map(|recording| &recording.refused) {
        if recordings.iter().all(|recording| recording.answer(&refused.name).is_none()) {
            never.insert(&refused.name, &refused.reason);
        }
    }
    for (name, reason) in never {
        text += &format!("\n{}\n", wrapped(&format!("**{name}**. Never answered: {reason}.")));
    }
    Ok(text)
}

/// Returns the paragraph of a proposal, if a recording answers it.
fn paragraph(column: &Column, recordings: &[PricedRecording]) -> Result<Option<String>, String> {
    let answered = || recordings.iter().filter_map(|of| Some((&*of.name, of.answer(column.proposal)?)));
    let key = |(name, answer): (_, &PricedAnswer)| Ok((name, (column.value)(answer)?));
    let keys = answered().map(key).collect::<Result<Vec<_>, String>>()?;
    let shown = |value: f64| format!("{}{}", column.shown(value), column.unit);
    let Some(range) = range(keys, shown) else { return Ok(None) };
    let mut text = format!("**{}**. {}", column.proposal, column.says.replace("{}", &range));
    if let Some(more) = &column.more {
        let figures = answered().map(|(name, answer)| Ok((name, (more.value)(answer)?)));
        let figures = figures.collect::<Result<Vec<_>, String>>()?;
        let range = self::range(figures, |value| format!("{:.2}", Mean(value)));
        text += &format!(" {}", more.says.replace("{}", &range.unwrap_or_default()));
    }
    if answered().all(|(_, answer)| answer.share.is_none()) {
        return Ok(Some(text + " Its work has no price here."));
    }
    // An answer without a share saves no work.
    let shares: Vec<_> = answered().map(|(name, answer)| (name, answer.share.unwrap_or(0.0))).collect();
    let (worth, all) = (shares.iter().filter(|(_, share)| *share >= WORTH).count(), shares.len());
    let range = self::range(shares, percent).unwrap_or_default();
    text += &match worth {
        0 => format!(" It saves less than 1 % of the kernel's time: {range}."),
        _ => format!(" It saves {range} of the kernel's time, at least 1 % on {worth} of {all}."),
    };
    // The comma behind a median ends no sentence.
    Ok(Some(text.replace(",.", ".")))
}

/// Returns a part in percent.
fn percent(part: f64) -> String {
    format!("{:.1} %", Mean(100.0 * part)).replace('-', "−")
}

/// Returns the least and the most with their recordings, and the median if it differs from both.
fn range(mut values: Vec<(&str, f64)>, shown: impl Fn(f64) -> String) -> Option<String> {
    values.sort_by(|a, b| a.1.total_cmp(&b.1));
    let texts: Vec<String> = values.iter().map(|&(_, value)| shown(value)).collect();
    let (from, to) = (texts.first()?, texts.last()?);
    if from == to {
        return Some(from.clone());
    }
    // Where several have the same figure, no name says more than the others.
    let end = |at: usize| match texts.iter().filter(|text| **text == texts[at]).count() {
        1 => format!("{} ({})", texts[at], values[at].0),
        _ => texts[at].clone(),
    };
    let middle = match &texts[texts.len() / 2] {
        text if text == from || text == to => String::new(),
        text => format!(", median {text},"),
    };
    Some(format!("{} to {}{middle}", end(0), end(texts.len() - 1)))
}

#[cfg(test)]
mod tests {
    use super::super::recording::example;
    use super::*;

    #[test]
    fn a_paragraph_has_the_ranges_and_where_they_end() {
        let all = [("a", 10.0, -0.02), ("b", 75.4, 0.09), ("c", 30.0, 0.01)];
        let all = all.map(|(name, saved, share)| example(name, saved, Some(share)));
        let text = paragraphs(&all).unwrap().replace('\n', " ");
        assert_eq!(
            text.trim(),
            "**blocks**. The best size takes 10 % (a) to 75 % (b), median 30 %, of the faults on anonymous memory \
             away. It clears 1.25 pages for each one touched. It saves −2.0 % (a) to 9.0 % (b), median 1.0 %, of the kernel's time, at least 1 % on 2 of \
             3.  **kpti**. Never answered: it has no calls."
        );
    }

    #[test]
    fn work_without_a_price_saves_no_time() {
        let text = paragraphs(&[example("a", 10.0, None), example("b", 10.2, None)]).unwrap();
        let says = "The best size takes 10 % of the faults on anonymous memory away. It clears";
        assert!(text.replace('\n', " ").contains(says), "{text}");
        assert!(text.replace('\n', " ").contains("Its work has no price here."), "{text}");
    }
}
