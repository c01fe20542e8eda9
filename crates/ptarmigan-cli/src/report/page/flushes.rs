//! Flushes over the recording.
use super::html::{Table, note, panels, pictures, said, section};
use super::{most, x_axis};
use crate::report::collect::Figures;
use crate::report::draw::Mirror;
use crate::report::words::count;
use ptarmigan_replay::Flushes;

fn total(flushes: &Flushes) -> u64 {
    flushes.page + flushes.range + flushes.full
}

/// The library's flushes against Linux's.
pub(super) fn flushes(all: &[Figures]) -> String {
    let linux =
        |one: &Figures| one.flushes.linux.as_ref().map_or("not recorded".to_owned(), |f| count(total(f)));
    let heading = format!(
        "TLB flushes: {} in the replay, {} by Linux",
        said(all, |one| count(total(&one.flushes.ours))),
        said(all, linux)
    );
    let caption = "Flushes over the recording: upwards those that the library makes in the replay, downwards those \
                   that Linux made while recording. The library counts a flush once, where it is asked for. Linux \
                   counts it there and where it is carried out, so equal numbers would not mean equal work.";
    let end = 1.05
        * most(all, |one| {
            let sum = |sizes: [u64; 3]| sizes.iter().sum::<u64>();
            let parts = one.flushes.points.iter().map(|point| sum(point.ours).max(sum(point.linux)));
            parts.max().unwrap_or(0) as f64
        });
    let mut content = pictures(all, |one, width| {
        let float = |sizes: [u64; 3]| sizes.map(|n| n as f64);
        let parts: Vec<[[f64; 3]; 2]> =
            one.flushes.points.iter().map(|point| [float(point.ours), float(point.linux)]).collect();
        let labels = match one.flushes.linux {
            Some(_) => ["the library", "Linux"],
            None => ["the library", "Linux: not recorded"],
        };
        Mirror {
            labels,
            parts: &parts,
            classes: [["f0 low", "f0", "f0 high"], ["f1 low", "f1", "f1 high"]],
            key: ["one page", "a range", "full"],
            x: x_axis(all, one),
            y_end: end,
        }
        .draw(width, "TLB flushes over the recording, the library's and Linux's")
    });
    content += &panels(all, |one| {
        let mut table = Table::new("", &["", "one page", "a range", "full", "all"]);
        let mut row = |who: &str, f: &Flushes| {
            table.row([who.to_owned(), count(f.page), count(f.range), count(f.full), count(total(f))]);
        };
        row("the library", &one.flushes.ours);
        if let Some(linux) = &one.flushes.linux {
            row("Linux", linux);
        }
        table.finish()
    });
    // Each trace has as many parts, unless it is shorter than that.
    let parts = all.iter().map(|one| one.flushes.points.len()).max().unwrap_or(0);
    let part = format!(
        "Each bar counts the flushes in one of {} equal parts of the recording.",
        count(parts as u64)
    );
    section(all, "flushes", &heading, caption, &(content + &note(&part) + &note(&found(all))))
}

/// Says how many flushes come from pages that were found at stops.
fn found(all: &[Figures]) -> String {
    if all.iter().all(|one| one.flushes.found == 0) {
        return String::new();
    }
    format!(
        "Of the flushes in the replay, {} come from corrections: pages that were present at a stop without a \
         recorded fault. Linux made no such flush.",
        said(all, |one| format!("{} of {}", count(one.flushes.found), count(total(&one.flushes.ours))))
    )
}
