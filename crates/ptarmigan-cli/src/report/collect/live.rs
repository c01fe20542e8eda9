//! Table pages that are alive, over the recording.
use super::{Parts, part_of_call};
use ptarmigan_replay::{Observation, ObservedTrace, RecordedProgram};
use ptarmigan_term::Bytes;
use serde::Serialize;

/// Programs that are shown apart; the others are one.
const SHOWN: usize = 6;

/// Table pages that are alive.
#[derive(Serialize)]
pub(in crate::report) struct Live {
    /// The programs that have most tables, over all the recording, and last all others together if
    /// there are any.
    pub programs: Vec<LiveProgram>,
    /// One for each part of the axis: the moment at which most tables were alive.
    pub points: Vec<LivePoint>,
}

/// A program, or several.
#[derive(Serialize)]
pub(in crate::report) struct LiveProgram {
    pub label: String,
    /// How often it was started.
    pub starts: u64,
    /// Tables made for it.
    pub tables: u64,
}

/// One moment.
#[derive(Clone, Default, Serialize)]
pub(in crate::report) struct LivePoint {
    /// Where its part of the axis begins.
    pub at: u64,
    /// Tables by level.
    pub levels: Vec<u32>,
    /// Tables by program.
    pub programs: Vec<u32>,
}

impl LivePoint {
    /// Returns the number of tables.
    pub fn total(&self) -> u32 {
        self.levels.iter().sum()
    }
}

/// A table that came or went.
#[derive(Clone, Copy)]
struct TableChange {
    call: u32,
    level: u8,
    program: u32,
    came: bool,
}

impl Live {
    pub(super) fn new(observed: &ObservedTrace, seen: &Observation, parts: &Parts<'_>) -> Self {
        let programs = observed.programs();
        let mut tables = vec![0; programs.all.len()];
        let mut changes = Vec::with_capacity(2 * seen.lives.len());
        for life in &seen.lives {
            let program = programs.of_space(observed.space(seen.calls[life.made as usize]));
            tables[program as usize] += 1;
            let change = TableChange { call: life.made, level: life.level, program, came: true };
            changes.push(change);
            if life.taken != u32::MAX {
                changes.push(TableChange { call: life.taken, came: false, ..change });
            }
        }
        changes.sort_unstable_by_key(|change| change.call);
        let part_of = |change: &TableChange| part_of_call(seen, parts, change.call);
        let moments = busiest(&changes, part_of, parts.len());
        let levels = ObservedTrace::levels().len();
        let all = at_moments(&changes, &moments, levels, programs.all.len());
        let (shown, others) = largest(&all, &tables);
        let labels = labels(&programs.all);
        let pick = |by_program: &[u32]| -> Vec<u32> {
            let mut picked: Vec<u32> = shown.iter().map(|&n| by_program[n]).collect();
            if !others.is_empty() {
                picked.push(others.iter().map(|&n| by_program[n]).sum());
            }
            picked
        };
        let points = all.iter().enumerate().map(|(part, moment)| LivePoint {
            at: parts.start(part),
            levels: moment.levels.clone(),
            programs: pick(&moment.programs),
        });
        let mut named: Vec<LiveProgram> = shown
            .iter()
            .map(|&n| LiveProgram {
                label: labels[n].clone(),
                starts: programs.all[n].starts,
                tables: tables[n],
            })
            .collect();
        if !others.is_empty() {
            named.push(LiveProgram {
                label: format!("{} others", others.len()),
                starts: others.iter().map(|&n| programs.all[n].starts).sum(),
                tables: others.iter().map(|&n| tables[n]).sum(),
            });
        }
        Live { points: points.collect(), programs: named }
    }

    /// Returns the point with the most tables.
    pub fn peak(&self) -> Option<(usize, u32)> {
        let totals = self.points.iter().map(LivePoint::total).enumerate();
        totals.max_by_key(|&(part, total)| (total, std::cmp::Reverse(part)))
    }
}

/// Returns for each part the number of changes up to the moment at which most tables were alive,
/// its beginning included.
fn busiest(changes: &[TableChange], part_of: impl Fn(&TableChange) -> usize, parts: usize) -> Vec<usize> {
    let mut moments = Vec::with_capacity(parts);
    let (mut done, mut alive) = (0, 0_u32);
    for part in 0..parts {
        let (mut moment, mut most) = (done, alive);
        while let Some(change) = changes.get(done).filter(|change| part_of(change) <= part) {
            alive = if change.came { alive + 1 } else { alive - 1 };
            done += 1;
            if alive > most {
                (moment, most) = (done, alive);
            }
        }
        moments.push(moment);
    }
    moments
}

/// Returns the tables that were alive after so many changes.
fn at_moments(changes: &[TableChange], moments: &[usize], levels: usize, programs: usize) -> Vec<LivePoint> {
    let mut now = LivePoint { at: 0, levels: vec![0; levels], programs: vec![0; programs] };
    let mut done = 0;
    let mut all = Vec::with_capacity(moments.len());
    for &moment in moments {
        for change in &changes[done..moment.max(done)] {
            let (level, program) = (&mut now.levels[usize::from(change.level)], change.program as usize);
            let of_program = &mut now.programs[program];
            if change.came {
                (*level, *of_program) = (*level + 1, *of_program + 1);
            } else {
                (*level, *of_program) = (*level - 1, *of_program - 1);
            }
        }
        done = moment.max(done);
        all.push(now.clone());
    }
    all
}

/// Returns the programs that have most tables over the recording, most first, and the others that
/// have any.
fn largest(all: &[LivePoint], tables: &[u64]) -> (Vec<usize>, Vec<usize>) {
    let mut sums = vec![0_u64; tables.len()];
    for moment in all {
        for (sum, n) in sums.iter_mut().zip(&moment.programs) {
            *sum += u64::from(*n);
        }
    }
    let mut order: Vec<usize> = (0..tables.len()).filter(|&n| tables[n] > 0).collect();
    order.sort_by_key(|&n| std::cmp::Reverse((sums[n], tables[n])));
    // One other program takes no more room by its name.
    let shown = if order.len() == SHOWN + 1 { order.len() } else { order.len().min(SHOWN) };
    let others = order.split_off(shown);
    (order, others)
}

/// Returns a name for each program: its own, or the size of its image.
fn labels(programs: &[RecordedProgram]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::with_capacity(programs.len());
    for program in programs {
        let label = match &program.name {
            Some(name) => name.clone(),
            None if program.starts == 0 => "before exec".to_owned(),
            None => format!("image of {}", Bytes(program.pages << 12)),
        };
        let same = labels.iter().filter(|other| other.split(" #").next() == Some(&label)).count();
        labels.push(if same == 0 { label } else { format!("{label} #{}", same + 1) });
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(call: u32, program: u32, came: bool) -> TableChange {
        TableChange { call, level: 0, program, came }
    }

    #[test]
    fn each_slice_shows_its_peak_and_follows_the_last_one() {
        let changes = [
            change(0, 0, true),
            change(1, 1, true),
            change(2, 0, false),
            change(10, 1, false),
            change(11, 1, true),
            change(12, 0, true),
            change(20, 0, false),
        ];
        let moments = busiest(&changes, |change| change.call as usize / 10, 4);
        assert_eq!(moments, [2, 6, 6, 7]);
        let totals: Vec<u32> = at_moments(&changes, &moments, 1, 2).iter().map(LivePoint::total).collect();
        assert_eq!(totals, [2, 2, 2, 1]);
    }

    #[test]
    fn images_of_one_size_are_told_apart() {
        let program = |pages| RecordedProgram { name: None, pages, starts: 1 };
        let labels = labels(&[program(256), program(512), program(256)]);
        assert_eq!(labels, ["image of 1 MiB", "image of 2 MiB", "image of 1 MiB #2"]);
    }
}
