//! Low memory under each `userpte=`.
use super::html::{HtmlTable, note, panels, pictures, section};
use super::most;
use crate::report::collect::{PlacedFigures, TraceFigures};
use ptarmigan_term::draw::{Bar, Bars};
use ptarmigan_term::{Bytes, Count};

/// Returns the part about low and high memory in tables; empty if it was not asked for.
pub(super) fn placed(all: &[TraceFigures]) -> String {
    let Some(first) = all.first().filter(|one| !one.userpte.is_empty()) else { return String::new() };
    let low = |placed: &PlacedFigures| format!("{} {}", placed.userpte, Bytes(placed.peak_low_bytes));
    let words: Vec<String> = first.userpte.iter().map(low).collect();
    let heading = if all.len() > 1 {
        "Low memory in tables under each userpte=".to_owned()
    } else {
        format!("Low memory in tables under each userpte=, at most: {}", words.join(", "))
    };
    let caption = "The same recordings on 32-bit x86 with PAE, areas packed into 3 GiB. Leaf tables may be in high \
                   memory there: that spares low memory, and each access then takes a window.";
    let end = most(all, |one| {
        let sums = one.userpte.iter().map(|placed| placed.peak_low_bytes + placed.peak_high_bytes);
        sums.max().unwrap_or(0) as f64
    });
    let mut content = pictures(all, |one, width| {
        let bars: Vec<Bar> = one
            .userpte
            .iter()
            .map(|placed| Bar {
                label: placed.userpte.to_owned(),
                segments: vec![("f1", placed.peak_low_bytes as f64), ("f0", placed.peak_high_bytes as f64)],
                said: format!("{} low", Bytes(placed.peak_low_bytes)),
            })
            .collect();
        let key = [("f1", "low memory"), ("f0", "high memory")];
        Bars { bars: &bars, end, key: &key, room: (64.0, 100.0) }
            .draw(width, "Low and high memory in tables under each userpte=")
    });
    content += &panels(all, |one| {
        let mut table =
            HtmlTable::new("", &["userpte", "leaf tables", "of these high", "windows", "a fault"]);
        for placed in &one.userpte {
            table.row([
                placed.userpte.to_owned(),
                Count(placed.tables).to_string(),
                Count(placed.high).to_string(),
                Count(placed.opened).to_string(),
                format!("{:.2}", placed.opened as f64 / (one.facts.faults as f64).max(1.0)),
            ]);
        }
        table.finish()
    });
    let under = "Peaks of low and of high memory are each its own; they need not fall on one moment.";
    section(all, "userpte", &heading, caption, &(content + &note(under)))
}
