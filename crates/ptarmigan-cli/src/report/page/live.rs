//! Table pages that are alive.
use super::html::{note, pictures, said, section};
use super::{most, x_axis};
use crate::report::collect::{Figures, LivePoint};
use crate::report::draw::{Layer, Rows, Stack};
use crate::report::words::{count, plural, share, size};

/// Classes of the levels, from the leaves up.
pub(super) const LEVELS: [&str; 5] = ["f0", "f1", "f2", "f3", "shade"];

fn peak(one: &Figures) -> f64 {
    one.live.points.iter().map(LivePoint::total).max().unwrap_or(0).into()
}

/// By level.
pub(super) fn levels(all: &[Figures]) -> String {
    let heading = format!(
        "At most {} table pages are alive at once",
        said(all, |one| count(one.facts.peak_live_tables))
    );
    let made = said(all, |one| count(one.tables.made.iter().sum()));
    let reuse = |one: &Figures| one.tables.made.iter().sum::<u64>() / one.facts.peak_live_tables.max(1);
    let mut caption = format!(
        "Table pages by level, over the recording: each column shows the peak within its slice of it. In all, {made} \
         are made."
    );
    if all.iter().all(|one| reuse(one) >= 10) {
        let times = said(all, |one| count(reuse(one)));
        caption += &format!(
            " So a page is made a table {times} times over. What an allocation takes matters here, more than \
             the memory in tables."
        );
    }
    let end = 1.12 * most(all, peak);
    let content = pictures(all, |one, width| {
        let layer = |level: usize| Layer {
            class: LEVELS[level.min(LEVELS.len() - 1)],
            label: one.facts.levels[level].to_uppercase(),
            values: one.live.points.iter().map(|point| point.levels[level].into()).collect(),
        };
        let layers: Vec<Layer> = (0..one.facts.levels.len()).map(layer).collect();
        let mark = one.live.peak().map(|(part, total)| {
            (part, format!("{} tables, {}", count(total.into()), size(one.facts.peak_table_bytes)))
        });
        let label = format!("Table pages alive by level, at most {}", one.facts.peak_live_tables);
        Stack { layers: &layers, x: x_axis(all, one), y_end: end, mark }.draw(width, &label)
    });
    let no_times = all.iter().any(|one| !one.facts.is_time());
    let axis =
        if no_times { "A recording without times is shown over the number of its events." } else { "" };
    section("live", &heading, &caption, &(content + &note(axis)))
}

/// By program.
pub(super) fn programs(all: &[Figures]) -> String {
    let heading = format!("The largest share over the recording has {}", said(all, largest));
    let caption = "The same table pages by program, a row for each, all on one scale: the programs with the most \
                   tables over the whole recording, and all others together. A program that forks passes its name \
                   on until the copy executes another one.";
    let end = most(all, |one| {
        let values = one.live.points.iter().flat_map(|point| &point.programs);
        f64::from(values.max().copied().unwrap_or(0))
    });
    let content = pictures(all, |one, width| {
        let rows: Vec<(String, String, Vec<f64>)> = one
            .live
            .programs
            .iter()
            .enumerate()
            .map(|(n, program)| {
                let values: Vec<f64> = one.live.points.iter().map(|point| point.programs[n].into()).collect();
                let most = values.iter().copied().fold(0.0, f64::max) as u64;
                let mut said = format!("at most {}", count(most));
                if program.starts > 0 {
                    said = format!("{}, {said}", plural(program.starts, "start"));
                }
                (program.label.clone(), said, values)
            })
            // A row without any table is left out.
            .filter(|(_, _, values)| values.iter().any(|tables| *tables > 0.0))
            .collect();
        Rows { rows: &rows, x: x_axis(all, one), y_end: end }.draw(width, "Table pages alive by program")
    });
    let nameless =
        all.iter().any(|one| one.live.programs.iter().any(|program| program.label.starts_with("image of")));
    let names = if nameless {
        "Where a recording has no names of programs, they are told apart by the areas of files that execve mapped, \
         and called by the size of these, loader included."
    } else {
        ""
    };
    section("programs", &heading, caption, &(content + &note(names)))
}

fn largest(one: &Figures) -> String {
    let made: u64 = one.tables.made.iter().sum();
    match one.live.programs.first() {
        Some(first) => format!("“{}”, which makes {}", first.label, share(first.tables, made)),
        None => "no program".to_owned(),
    }
}
