//! The answers in short: a paragraph for each proposal, over all recordings.
use super::columns::{COLUMNS, Column};
use super::{Answer, PricedRecording};
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
        text += &format!("\n{}\n", wrapped(&format!("**{name}**. No recording answers it: {reason}.")));
    }
    Ok(text)
}

/// Returns the paragraph of a proposal, if a recording answers it.
fn paragraph(column: &Column, recordings: &[PricedRecording]) -> Result<Option<String>, String> {
    let answered = || recordings.iter().filter_map(|of| Some((&*of.name, of.answer(column.proposal)?)));
    let key = |(name, answer): (_, &Answer)| Ok((name, (column.value)(answer)?));
    let keys = answered().map(key).collect::<Result<Vec<_>, String>>()?;
    let shown = |value: f64| format!("{}{}", column.shown(value), column.unit);
    let Some(range) = range(keys, shown) else { return Ok(None) };
    let mut text = format!("**{}**. {}", column.proposal, column.says.replace("{}", &range));
    let shares: Vec<_> = answered().filter_map(|(name, answer)| Some((name, answer.share?))).collect();
    let worth = shares.iter().filter(|(_, share)| *share >= WORTH).count();
    text += &match self::range(shares, percent) {
        None => " Its work has no price here.".to_owned(),
        Some(range) if worth == 0 => format!(" It saves {range} of the kernel's time, 1 % nowhere."),
        Some(range) => format!(
            " It saves {range} of the kernel's time, at least 1 % on {worth} of {}.",
            recordings.len()
        ),
    };
    Ok(Some(text))
}

/// Returns a part in percent.
fn percent(part: f64) -> String {
    format!("{:.1} %", Mean(100.0 * part)).replace('-', "−")
}

/// Returns the least and the most with their recordings, and the median if it differs from both.
fn range(mut values: Vec<(&str, f64)>, shown: impl Fn(f64) -> String) -> Option<String> {
    values.sort_by(|a, b| a.1.total_cmp(&b.1));
    let [(least, from), .., (most, to)] = values[..] else {
        return values.first().map(|&(name, value)| format!("{} ({name})", shown(value)));
    };
    let median = shown(values[values.len() / 2].1);
    let (from, to) = (shown(from), shown(to));
    if from == to {
        return Some(from);
    }
    let middle = if median == from || median == to { String::new() } else { format!(", median {median},") };
    Some(format!("{from} ({least}) to {to} ({most}){middle}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::recording;
    use super::*;

    #[test]
    fn a_paragraph_has_the_ranges_and_where_they_end() {
        let all = [("a", 10.0, -0.02), ("b", 75.4, 0.09), ("c", 30.0, 0.01)];
        let all = all.map(|(name, saved, share)| recording(name, saved, Some(share)));
        let text = paragraphs(&all).unwrap().replace('\n', " ");
        assert_eq!(
            text.trim(),
            "**blocks**. Blocks of the best size take 10 % (a) to 75 % (b), median 30 %, of the faults on anonymous \
             memory away. It saves −2.0 % (a) to 9.0 % (b), median 1.0 %, of the kernel's time, at least 1 % on 2 of \
             3.  **kpti**. No recording answers it: it has no calls."
        );
    }

    #[test]
    fn work_without_a_price_saves_no_time() {
        let text = paragraphs(&[recording("a", 10.0, None), recording("b", 10.2, None)]).unwrap();
        let says =
            "Blocks of the best size take 10 % of the faults on anonymous memory away. Its work has no";
        assert!(text.replace('\n', " ").contains(says), "{text}");
    }
}
