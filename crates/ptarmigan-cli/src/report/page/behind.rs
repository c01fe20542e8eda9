//! Links from a picture to its data, which the page itself holds as CSV.
//!
//! The number of rows is bounded whatever the length of the recording: the axis has a fixed number
//! of parts, and the programs that are drawn are few.
use crate::csv;
use crate::report::collect::{LivePoint, TraceFigures};
use crate::report::data;
use crate::report::words::letter;
use ptarmigan_term::Bytes;
use ptarmigan_term::draw::escape;
use std::fmt::Write;

/// Returns links to the data of a section, one for each trace; empty if it has tables only.
pub(super) fn links(all: &[TraceFigures], id: &str) -> String {
    let mut links = Vec::new();
    for (n, one) in all.iter().enumerate() {
        let Some(csv) = data_of(one, id) else { return String::new() };
        let (of, suffix) = match all {
            [_] => (String::new(), String::new()),
            _ => (format!("{}: ", letter(n)), format!("-{}", letter(n).to_lowercase())),
        };
        links.push(format!(
            "<a download=\"{id}{suffix}.csv\" href=\"data:text/csv;charset=utf-8,{}\">{}CSV, {}</a>",
            encode(&csv),
            escape(&of),
            Bytes(csv.len() as u64)
        ));
    }
    format!("<p class=\"note data\">Data of this part: {}</p>\n", links.join(", "))
}

/// Returns the data of a section.
fn data_of(one: &TraceFigures, id: &str) -> Option<String> {
    let all = std::slice::from_ref(one);
    match id {
        "live" => {
            let levels = one.facts.levels.iter().map(|level| (*level).to_owned());
            Some(over_time(one, levels, |part| numbers(&one.live.points[part].levels)))
        }
        "programs" => {
            let labels = one.live.programs.iter().map(|program| program.label.clone());
            Some(over_time(one, labels, |part| numbers(&one.live.points[part].programs)))
        }
        "kept" => {
            let page = one.facts.peak_table_bytes / one.facts.peak_live_tables.max(1);
            let labels = one.policies.iter().map(|policy| format!("{} bytes", policy.label()));
            Some(over_time(one, labels.chain(["bytes in tables".to_owned()]), |part| {
                let kept = one.policies.iter().map(|policy| policy.kept.get(part).copied().unwrap_or(0));
                let tables = u64::from(LivePoint::total(&one.live.points[part])) * page;
                kept.chain([tables]).collect()
            }))
        }
        "flushes" => {
            let sizes = |by: &str| ["one page", "range", "full"].map(|size| format!("{by} {size}"));
            let linux = one.flushes.linux.is_some();
            let labels =
                sizes("library").into_iter().chain(linux.then(|| sizes("Linux")).into_iter().flatten());
            Some(over_time(one, labels, |part| {
                let Some(point) = one.flushes.points.get(part) else { return Vec::new() };
                let linux = linux.then_some(point.linux).into_iter().flatten();
                point.ours.into_iter().chain(linux).collect()
            }))
        }
        id => data::table_of(id, all),
    }
}

fn numbers(values: &[u32]) -> Vec<u64> {
    values.iter().map(|n| u64::from(*n)).collect()
}

/// Returns a table with a row for each part of the axis.
fn over_time(
    one: &TraceFigures,
    labels: impl Iterator<Item = String>,
    row: impl Fn(usize) -> Vec<u64>,
) -> String {
    let mut csv = format!("at_{}", one.facts.axis);
    for label in labels {
        csv += ",";
        csv += &csv::foreign(&label);
    }
    csv += "\n";
    for (part, point) in one.live.points.iter().enumerate() {
        csv += &point.at.to_string();
        for value in row(part) {
            csv += ",";
            csv += &value.to_string();
        }
        csv += "\n";
    }
    csv
}

/// Encodes text for a `data:` URL in an attribute (RFC 3986).
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 5 / 4);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' => {
                out.push(byte.into())
            }
            // A string takes all that is written to it.
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_leave_its_attribute() {
        assert_eq!(encode("a,b\n1,\"<&'é"), "a,b%0A1,%22%3C%26%27%C3%A9");
    }
}
