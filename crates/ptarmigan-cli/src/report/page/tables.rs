//! Tables one by one: how full they were, how long they lived, and the operations that made and
//! took them.
use super::facts::with_unit;
use super::html::{note, pictures, said, section};
use super::live::LEVELS;
use super::most;
use crate::report::collect::{CauseRow, TraceFigures};
use crate::report::words::{on_axis, share};
use ptarmigan_replay::Cause;
use ptarmigan_term::Count;
use ptarmigan_term::draw::{Bar, Bars, Columns};
use ptarmigan_term::words::several;

/// How full leaf tables were.
pub(super) fn fullness(all: &[TraceFigures]) -> String {
    let full = |one: &TraceFigures| share(one.tables.fullness.below_64, one.tables.fullness.tables);
    let heading = format!("{} of leaf tables never held 64 pages", said(all, full));
    let mut caption =
        "Leaf tables by the most pages that each mapped at once. A leaf table has room for 512 pages, and takes \
         4 KiB however many it maps."
            .to_owned();
    let sparse = |one: &TraceFigures| 2 * one.tables.fullness.below_64 > one.tables.fullness.tables;
    if all.iter().all(sparse) {
        caption += " Most are nearly empty: taking one down by the cache lines that were written, instead of \
                    reading or clearing 4 KiB, is where time can be saved.";
    }
    let end = most(all, |one| {
        let fullness = &one.tables.fullness;
        let largest = fullness.classes.iter().map(|class| class.most).max().unwrap_or(0);
        largest as f64 / (fullness.tables as f64).max(1.0)
    });
    let content = pictures(all, |one, width| {
        let fullness = &one.tables.fullness;
        let shown = fullness.classes.iter().filter(|class| class.from > 0 || class.most > 0);
        let bars: Vec<Bar> = shown
            .map(|class| Bar {
                label: if class.from == class.to {
                    class.from.to_string()
                } else {
                    format!("{}–{}", class.from, class.to)
                },
                segments: vec![("f0", class.most as f64 / (fullness.tables as f64).max(1.0))],
                said: format!("{} ({})", Count(class.most), share(class.most, fullness.tables)),
            })
            .collect();
        Bars { bars: &bars, end, key: &[], room: (64.0, 112.0) }
            .draw(width, "Leaf tables by the most pages they held")
    });
    let empty = all.iter().filter(|one| one.tables.fullness.left_empty > 0).count() > 0;
    let empty = if empty {
        format!(
            "Leaf tables that had mapped pages and were empty when they went: {}. Their pages were given back one \
             by one or in parts, and the table stayed.",
            said(all, |one| {
                let fullness = &one.tables.fullness;
                format!("{} ({})", Count(fullness.left_empty), share(fullness.left_empty, fullness.tables))
            })
        )
    } else {
        String::new()
    };
    section(all, "fullness", &heading, &caption, &(content + &note(&empty)))
}

/// How long tables lived.
pub(super) fn lifetimes(all: &[TraceFigures]) -> String {
    let median = |one: &TraceFigures, n: usize| {
        let known = one.tables.lifetimes.median[n];
        known.map_or("longer than the recording".to_owned(), |median| with_unit(&one.facts, median))
    };
    let cut_off = |one: &TraceFigures| one.tables.lifetimes.median[0].is_none();
    let heading = if all.iter().all(cut_off) {
        "Most leaf tables live longer than the recording".to_owned()
    } else if all.iter().any(cut_off) {
        format!("Half of the leaf tables live: {}", said(all, |one| median(one, 0)))
    } else {
        format!("Half of the leaf tables live less than {}", said(all, |one| median(one, 0)))
    };
    let caption = format!(
        "Table pages by the length of their lives, in bins of powers of two. The median of tables above the leaves \
         is {}.",
        said(all, |one| median(one, 1))
    );
    let end = most(all, |one| {
        let bins = one.tables.lifetimes.bins.iter().map(|bin| bin.leaf + bin.upper);
        bins.max().unwrap_or(0) as f64
    });
    let content = pictures(all, |one, width| {
        let lifetimes = &one.tables.lifetimes;
        let is_time = one.facts.is_time();
        let columns: Vec<(String, [f64; 2])> = lifetimes
            .bins
            .iter()
            .map(|bin| (on_axis(bin.from, is_time), [bin.leaf as f64, bin.upper as f64]))
            .collect();
        let mark = lifetimes.median[0].and_then(|median| {
            let column = lifetimes.bins.iter().position(|bin| (bin.from..bin.to).contains(&median))?;
            Some((column, format!("median of leaves: {}", on_axis(median, is_time))))
        });
        let what = if is_time { "length of life" } else { "length of life, in events" };
        let key = [("f0", "leaf tables"), ("f1", "tables above")];
        Columns { columns: &columns, key, y_end: end, what, mark }
            .draw(width, "Table pages by the length of their lives")
    });
    let cut = said(all, |one| several(one.tables.lifetimes.cut, "table"));
    let cut = if all.iter().any(|one| one.tables.lifetimes.cut > 0) {
        format!("Cut off by the start or the end of the recording, and longer than shown: {cut}.")
    } else {
        String::new()
    };
    section(all, "lifetimes", &heading, &caption, &(content + &note(&cut)))
}

/// Returns the table of operations that made and took tables.
pub(super) fn causes(all: &[TraceFigures]) -> String {
    let first = |rows: &[CauseRow]| {
        let all: u64 = rows.iter().map(CauseRow::total).sum();
        rows.first()
            .map_or("nothing".to_owned(), |row| format!("{} {}", row.cause.name(), share(row.total(), all)))
    };
    let heading = format!(
        "What makes tables: {}; what takes them: {}",
        said(all, |one| first(&one.tables.made_by)),
        said(all, |one| first(&one.tables.taken_by))
    );
    let caption = "Table pages by the operation that made them and by the one that took them, and by level. exec \
                   makes the tables of the new program's arguments and takes those of the program before; fork \
                   makes one for each of the parent.";
    let end = |rows: fn(&TraceFigures) -> &[CauseRow]| {
        most(all, |one| rows(one).iter().map(CauseRow::total).max().unwrap_or(0) as f64)
    };
    let mut content = String::new();
    for (title, label, rows) in [
        (
            "Made by",
            "Table pages by the operation that made them",
            (|one| &one.tables.made_by) as fn(&TraceFigures) -> &[CauseRow],
        ),
        ("Taken by", "Table pages by the operation that took them", |one| &one.tables.taken_by),
    ] {
        content += &format!("<h3>{title}</h3>\n");
        let end = end(rows);
        content += &pictures(all, |one, width| {
            let rows = rows(one);
            let total: u64 = rows.iter().map(CauseRow::total).sum();
            let bars: Vec<Bar> = rows
                .iter()
                .map(|row| Bar {
                    label: row.cause.name().to_owned(),
                    segments: LEVELS.into_iter().zip(row.levels.iter().map(|n| *n as f64)).collect(),
                    said: format!("{} ({})", Count(row.total()), share(row.total(), total)),
                })
                .collect();
            let key: Vec<(&str, &str)> =
                LEVELS.into_iter().zip(KEYS.into_iter().take(one.facts.levels.len())).collect();
            Bars { bars: &bars, end, key: &key, room: (76.0, 118.0) }.draw(width, label)
        });
    }
    section(all, "causes", &heading, caption, &(content + &explained(all)))
}

const KEYS: [&str; 5] = ["PTE", "PMD", "PUD", "PGD", "above"];

/// Explains the causes that need it.
fn explained(all: &[TraceFigures]) -> String {
    let has = |cause| {
        all.iter()
            .any(|one| one.tables.made_by.iter().chain(&one.tables.taken_by).any(|row| row.cause == cause))
    };
    let mut notes = Vec::new();
    for (cause, text) in [
        (Cause::Start, "start: there before the first event."),
        (Cause::End, "end: left when the recording ended."),
        (Cause::Found, "found: known from pages that were found present at a stop."),
        (Cause::Mmap, "mmap: pages made present at once, or taken from under a new mapping."),
    ] {
        if has(cause) {
            notes.push(text);
        }
    }
    note(&notes.join(" "))
}
