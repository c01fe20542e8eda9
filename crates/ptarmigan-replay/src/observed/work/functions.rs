//! Adds up the work by the functions that caused it.
use super::rows::FunctionWork;
use foldhash::{HashMap, HashMapExt};
use ptarmigan_trace::{Call, Cause, Note, Place, PlaceId, Symbols, Text};

/// Work of one place in one start of a program.
#[derive(Clone, Copy, Default)]
struct Sum {
    events: u64,
    nanos: u64,
    timed: bool,
}

#[derive(Default)]
pub(super) struct Functions {
    sums: HashMap<(u32, Cause, Option<PlaceId>), Sum>,
    /// All faults of each start.
    faults: HashMap<u32, u64>,
    /// The last call of each task whose caller is known, until it ends.
    calling: HashMap<u32, (u32, Call, Option<PlaceId>, u64)>,
}

/// The key of a row: program, work, function, module.
type Key<'a> = (&'a str, Cause, Option<Text>, Option<Text>);

impl Functions {
    pub(super) fn fault(&mut self, start: u32) {
        *self.faults.entry(start).or_default() += 1;
    }

    pub(super) fn see(&mut self, task: u32, start: u32, note: &Note) {
        match *note {
            Note::Caller { cause, events, place, .. } => {
                self.sums.entry((start, cause, place)).or_default().events += events;
                if let Cause::Call(call) = cause {
                    self.calling.insert(task, (start, call, place, events));
                }
            }
            Note::Took { call, nanos, .. } => {
                let Some((start, of, place, events)) = self.calling.remove(&task) else { return };
                if of == call {
                    let sum = self.sums.entry((start, Cause::Call(of), place)).or_default();
                    sum.nanos = sum.nanos.saturating_add(nanos.saturating_mul(events));
                    sum.timed = true;
                }
            }
            _ => {}
        }
    }

    /// Returns the rows, those with most events first.
    pub(super) fn finish(self, programs: &[String], symbols: &Symbols) -> Vec<FunctionWork> {
        let program = |start: u32| programs.get(start as usize).map_or("", |name| name.as_str());
        let mut sampled: HashMap<&str, u64> = HashMap::new();
        for ((start, cause, _), sum) in &self.sums {
            if *cause == Cause::Fault {
                *sampled.entry(program(*start)).or_default() += sum.events;
            }
        }
        let mut all: HashMap<&str, u64> = HashMap::new();
        for (start, faults) in &self.faults {
            *all.entry(program(*start)).or_default() += faults;
        }
        // Of each row: events, nanoseconds, and the place with the most events.
        let mut rows: HashMap<Key<'_>, (f64, u64, bool, f64, Place)> = HashMap::new();
        for (&(start, cause, place), sum) in &self.sums {
            let program = program(start);
            let place = place.map(|place| symbols.place(place)).unwrap_or_default();
            // A short process may end before its first sample. So samples stand for all faults of
            // their program.
            let scale = match (cause, sampled.get(program), all.get(program)) {
                (Cause::Fault, Some(&sampled), Some(&all)) if sampled > 0 => all as f64 / sampled as f64,
                _ => 1.0,
            };
            let events = sum.events as f64 * scale;
            // One row has all functions that are not known.
            let module = place.module.filter(|_| place.function.is_some());
            let row = rows.entry((program, cause, place.function, module)).or_default();
            row.0 += events;
            row.1 = row.1.saturating_add(sum.nanos);
            row.2 |= sum.timed;
            if (events, place.line) > (row.3, row.4.line) {
                (row.3, row.4) = (events, place);
            }
        }
        let mut totals: HashMap<Cause, f64> = HashMap::new();
        rows.iter().for_each(|((_, cause, ..), row)| *totals.entry(*cause).or_default() += row.0);
        let text = |text: Option<Text>| text.map(|text| symbols.text(text).to_owned());
        let row = |((program, cause, function, _), row): (Key<'_>, (f64, u64, bool, f64, Place))| {
            let (events, nanos, timed, _, place) = row;
            let outer = place.caller.into_iter().flat_map(|caller| symbols.callers(caller));
            FunctionWork {
                program: program.to_owned(),
                work: match cause {
                    Cause::Fault => "fault",
                    Cause::Call(call) => call.name(),
                },
                function: text(function),
                module: text(place.module),
                file: text(place.file),
                line: place.line,
                callers: outer.filter_map(|place| text(place.function)).collect(),
                events: events.round() as u64,
                share: events / totals.get(&cause).copied().unwrap_or(0.0).max(1.0),
                seconds: timed.then_some(nanos as f64 / 1e9),
            }
        };
        let mut rows: Vec<_> = rows.into_iter().map(row).collect();
        rows.sort_by(|a, b| {
            let same = (&a.program, a.work, &a.function).cmp(&(&b.program, b.work, &b.function));
            b.events.cmp(&a.events).then(same)
        });
        rows
    }
}
