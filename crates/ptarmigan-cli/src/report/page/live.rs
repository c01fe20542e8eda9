//! Table pages that are alive.
use super::html::{note, pictures, pictures_with, said, section};
use super::{most, x_axis};
use crate::report::collect::{LivePoint, TraceFigures};
use crate::report::words::share;
use ptarmigan_term::draw::{Layer, Rows, Stack};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count};

/// Classes of the levels, from the leaves up.
pub(super) const LEVELS: [&str; 5] = ["f0", "f1", "f2", "f3", "shade"];

fn peak(one: &TraceFigures) -> f64 {
    one.live.points.iter().map(LivePoint::total).max().unwrap_or(0).into()
}

/// By level.
pub(super) fn levels(all: &[TraceFigures]) -> String {
    let heading = format!(
        "At most {} table pages are alive at once",
        said(all, |one| Count(one.facts.peak_live_tables).to_string())
    );
    let made = said(all, |one| Count(one.tables.made.iter().sum()).to_string());
    let reuse = |one: &TraceFigures| one.tables.made.iter().sum::<u64>() / one.facts.peak_live_tables.max(1);
    let mut caption = format!(
        "Table pages by level: each column shows the peak within its slice of the recording. In all, {made} are made."
    );
    if all.iter().all(|one| reuse(one) >= 10) {
        let times = said(all, |one| Count(reuse(one)).to_string());
        caption += &format!(
            " On average a page becomes a table {times} times: the cost of an allocation matters more here \
             than the memory in tables."
        );
    }
    let content = pictures(all, |one, width| picture(all, one, width));
    let no_times = all.iter().any(|one| !one.facts.is_time());
    let axis =
        if no_times { "A recording without times is shown over the number of its events." } else { "" };
    section(all, "live", &heading, &caption, &(content + &note(axis)))
}

/// Draws the tables of a trace by level, on a scale for all traces.
pub(in crate::report) fn picture(all: &[TraceFigures], one: &TraceFigures, width: f64) -> String {
    let layer = |level: usize| Layer {
        class: LEVELS[level.min(LEVELS.len() - 1)],
        label: one.facts.levels[level].to_uppercase(),
        values: one.live.points.iter().map(|point| point.levels[level].into()).collect(),
    };
    let layers: Vec<Layer> = (0..one.facts.levels.len()).map(layer).collect();
    let mark = one.live.peak().map(|(part, total)| {
        (part, format!("{} tables, {}", Count(total.into()), Bytes(one.facts.peak_table_bytes)))
    });
    let label = format!("Table pages alive by level, at most {}", one.facts.peak_live_tables);
    let y_end = 1.12 * most(all, peak);
    Stack { layers: &layers, x: x_axis(all, one), y_end, mark }.draw(width, &label)
}

/// By program.
pub(super) fn programs(all: &[TraceFigures]) -> String {
    let heading = format!("The largest share over the recording has {}", said(all, largest));
    let caption = "The same table pages by program, a row for each, all on one scale: the programs with the most \
                   tables over the whole recording, and all others together. A program that forks passes its name \
                   on until the copy executes another one.";
    let end = most(all, |one| {
        let values = one.live.points.iter().flat_map(|point| &point.programs);
        f64::from(values.max().copied().unwrap_or(0))
    });
    let draw = |one: &TraceFigures, width| {
        let (high, _) = split(one, end);
        let rows: Vec<(String, String, Vec<f64>)> = high
            .into_iter()
            .map(|row| {
                let mut said = format!("at most {}", Count(row.most));
                if row.starts > 0 {
                    said = format!("{}, {said}", several(row.starts, "start"));
                }
                (row.label.to_owned(), said, row.values)
            })
            .collect();
        Rows { rows: &rows, x: x_axis(all, one), y_end: end }.draw(width, "Table pages alive by program")
    };
    let content = pictures_with(all, draw, |one| note(&flat(&split(one, end).1)));
    let nameless =
        all.iter().any(|one| one.live.programs.iter().any(|program| program.label.starts_with("image of")));
    let names = if nameless {
        "Where a recording has no names of programs, they are told apart by the areas of files that execve mapped, \
         and called by the size of these, loader included."
    } else {
        ""
    };
    section(all, "programs", &heading, caption, &(content + &note(names)))
}

/// A row of the picture by program.
struct ProgramRow<'a> {
    label: &'a str,
    starts: u64,
    most: u64,
    values: Vec<f64>,
}

/// Rows below this part of the scale look like a line: they would be less than 2 pixels high.
const FLAT: f64 = 0.05;

/// Returns the rows that are drawn, and those that are named in one line because they are flat. A
/// single flat row is drawn, and one without any table is left out.
fn split(one: &TraceFigures, end: f64) -> (Vec<ProgramRow<'_>>, Vec<ProgramRow<'_>>) {
    let rows = one.live.programs.iter().enumerate().map(|(n, program)| {
        let values: Vec<f64> = one.live.points.iter().map(|point| point.programs[n].into()).collect();
        let most = values.iter().copied().fold(0.0, f64::max) as u64;
        ProgramRow { label: &program.label, starts: program.starts, most, values }
    });
    let (flat, mut high): (Vec<ProgramRow<'_>>, Vec<ProgramRow<'_>>) =
        rows.filter(|row| row.most > 0).partition(|row| row.most as f64 <= FLAT * end);
    if flat.len() < 2 {
        high.extend(flat);
        return (high, Vec::new());
    }
    (high, flat)
}

/// Names the rows that are flat.
fn flat(rows: &[ProgramRow<'_>]) -> String {
    let Some(most) = rows.iter().map(|row| row.most).max() else { return String::new() };
    let labels: Vec<&str> = rows.iter().map(|row| row.label).collect();
    format!("Too low to draw, with at most {} at a time: {}.", several(most, "table"), labels.join(", "))
}

fn largest(one: &TraceFigures) -> String {
    let made: u64 = one.tables.made.iter().sum();
    match one.live.programs.first() {
        Some(first) => format!("“{}”, which makes {}", first.label, share(first.tables, made)),
        None => "no program".to_owned(),
    }
}
