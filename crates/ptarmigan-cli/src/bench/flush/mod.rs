//! Flushes of the machine of 2001, priced: each case is carried out on a hash table, its operations
//! are counted, and a cost model prices the counts.
//!
//! The machine of 2001 is not timed: no hash table of this host's would tell what a POWER3 took.
//! Beside it stand flushes of this host, which are.
mod hashed;

use std::fmt::Write as _;

use ptarmigan::tlb::{CostModel, Costs, Plan, Runs, SlotSet, Work};
use serde::Serialize;

use crate::calibrate::HostTime;
use crate::error::Failure;
use crate::model::Model;
use hashed::{Flushed, HashedMachine, PAGE_SHIFT};

/// The first address of the window of kmap slots.
const WINDOW: u32 = 0xff80_0000;

/// What was carried out.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// Pages that were flushed by name.
    pages: u64,
    /// Pages that were flushed as part of a run.
    ranged: u64,
    /// Pages whose entry said that the hash table may hold them.
    hashed: u64,
    /// Times that a loop went on to the next page.
    steps: u64,
    /// Entries of the kernel's half that were gone through.
    entries: u64,
    /// Entries of the hash table that were looked at.
    probes: u64,
    /// Pages that the TLBs were told to forget (`tlbie`).
    invalidations: u64,
    /// Bytes of the hash table that were cleared.
    wiped_bytes: u64,
}

/// A case with its price.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FlushRow {
    case: String,
    contender: &'static str,
    /// In `unit`.
    value: f64,
    unit: &'static str,
    counts: Counts,
}

/// The report. As JSON: `{"schema": 1, "bench": "flush", "model": …, "rows": […], "notes": […]}`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FlushReport {
    bench: &'static str,
    model: String,
    rows: Vec<FlushRow>,
    notes: Vec<String>,
}

/// Carries the cases out and prices them.
///
/// # Errors
///
/// If the model has no prices, or the host has no memory for the hash table.
pub(crate) fn run(model: &Model) -> Result<FlushReport, String> {
    let CostModel::Costs(costs) = model.rule else {
        return Err(format!("cost model {}: its rule has no costs to price flushes with", model.name));
    };
    let mut rows = Vec::new();
    for (case, prepare, carry_out) in CASES {
        let mut machine = HashedMachine::new()?;
        // Every slot of the window is in use and in the hash table.
        (0..SlotSet::SLOTS).for_each(|slot| machine.touch(address(slot)));
        prepare(&mut machine);
        let before = machine.probes();
        let mut counts = carry_out(&mut machine);
        counts.probes = machine.probes() - before;
        if let Some(picoseconds) = price(&costs, model.wipe_byte, &counts) {
            let value = picoseconds as f64 / 1000.0;
            rows.push(FlushRow { case: case.to_owned(), contender: "model", value, unit: "ns", counts });
        }
    }
    rows.extend(break_even(&model.rule));
    Ok(FlushReport { bench: "flush", model: model.name.clone(), rows, notes: Vec::new() })
}

/// The most pages for which a model is asked what it does: more than fit into an address space of
/// the machine.
const MOST_PAGES: u64 = 1 << 24;

/// Returns the size of the smallest range of hashed pages that the model flushes with everything.
/// Nothing is known beside the range. `None` if there is none.
fn break_even(rule: &CostModel) -> Option<FlushRow> {
    let is_full = |pages: u64| {
        let run = Runs::one(1 << 40, (1 << 40) + (pages << PAGE_SHIFT), PAGE_SHIFT);
        rule.plan(&run).is_full()
    };
    // Each further page makes a range dearer, and everything not.
    let (mut low, mut high) = (1, MOST_PAGES);
    while low < high {
        let middle = low.midpoint(high);
        if is_full(middle) { high = middle } else { low = middle + 1 }
    }
    let counts = Counts { ranged: low, hashed: low, steps: low - 1, ..Counts::default() };
    let (case, contender, value) = ("break-even".to_owned(), "model", low as f64);
    is_full(low).then_some(FlushRow { case, contender, value, unit: "pages", counts })
}

impl FlushReport {
    /// Adds flushes of this host, or a note why there are none.
    pub(crate) fn add_host(&mut self, times: Result<Vec<HostTime>, Failure>) {
        match times {
            Ok(times) => self.rows.extend(times.into_iter().map(FlushRow::from)),
            Err(why) => self.notes.push(format!("no times of this host: {}", why.message())),
        }
    }
}

impl From<HostTime> for FlushRow {
    fn from(HostTime { case, value, unit, pages }: HostTime) -> Self {
        let counts = Counts { pages: pages as u64, ..Counts::default() };
        FlushRow { case, contender: "host", value, unit, counts }
    }
}

/// The price in picoseconds; `None` if the model does not say what a byte of the hash table costs.
fn price(costs: &Costs, wipe_byte: Option<u64>, counts: &Counts) -> Option<u64> {
    let Counts { pages, ranged, hashed, steps, entries, wiped_bytes, .. } = *counts;
    if wiped_bytes > 0 {
        return Some(wipe_byte?.saturating_mul(wiped_bytes));
    }
    // The cost of an entry is fitted to a flush of the kernel's half as a whole, what was hashed
    // included.
    let (fulls, hashed) = if entries > 0 { (1, 0) } else { (0, hashed) };
    let runs = u64::from(ranged > 0);
    Some(costs.price(&Work { pages, ranged, hashed, steps, runs, fulls, entries, ..Work::default() }))
}

/// A case: its name, what happens before, and what is counted.
type Case = (&'static str, fn(&mut HashedMachine), fn(&mut HashedMachine) -> Counts);

const CASES: [Case; 5] = [
    ("page-unhashed", |machine| _ = machine.flush_page(address(0)), first_page),
    ("page-hashed", nothing, first_page),
    ("range-1024", nothing, |machine| {
        let mut counts = Counts::default();
        let mut stale = SlotSet::new(u64::from(WINDOW), PAGE_SHIFT);
        (0..SlotSet::SLOTS).for_each(|slot| stale.insert(slot));
        stale.each_scope(Plan::Runs, |scope| {
            for va in scope.pages().into_iter().flatten() {
                counts.steps += u64::from(counts.ranged > 0);
                counts.ranged += 1;
                counts.count(machine.flush_page(va as u32));
            }
        });
        counts
    }),
    ("kernel-full", nothing, |machine| {
        let mut counts = Counts::default();
        machine.each_kernel_page(|machine, va| {
            counts.entries += 1;
            counts.count(machine.flush_page(va));
        });
        counts
    }),
    ("hash-wipe", nothing, |machine| Counts { wiped_bytes: machine.wipe(), ..Counts::default() }),
];

fn address(slot: usize) -> u32 {
    WINDOW + ((slot as u32) << PAGE_SHIFT)
}

fn nothing(_: &mut HashedMachine) {}

fn first_page(machine: &mut HashedMachine) -> Counts {
    let mut counts = Counts { pages: 1, ..Counts::default() };
    counts.count(machine.flush_page(address(0)));
    counts
}

impl Counts {
    fn count(&mut self, flushed: Flushed) {
        self.hashed += u64::from(flushed.hashed);
        self.invalidations += u64::from(flushed.invalidations);
    }
}

impl FlushReport {
    /// Returns a table of at most 80 columns.
    pub(crate) fn plain(&self) -> String {
        let mut text = format!(
            "{:<14} {:>13} {:<5} {:>7} {:>7} {:>8} {:>7} {:>11}\n",
            "case", "model", "", "pages", "hashed", "entries", "probes", "wiped bytes"
        );
        let of = |contender| self.rows.iter().filter(move |row| row.contender == contender);
        for FlushRow { case, value, unit, counts, .. } in of("model") {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{case:<14} {value:>13.1} {unit:<5} {:>7} {:>7} {:>8} {:>7} {:>11}",
                counts.pages + counts.ranged,
                counts.hashed,
                counts.entries,
                counts.probes,
                counts.wiped_bytes
            );
        }
        // As above.
        let _ = writeln!(text, "\ncounts of a run, priced by cost model {}", self.model);
        if of("host").next().is_some() {
            let _ = writeln!(text, "\n{:<24} {:>14} {:<5} {:>7}", "case", "this host", "", "pages");
        }
        for FlushRow { case, value, unit, counts, .. } in of("host") {
            let _ = writeln!(text, "{case:<24} {value:>14.1} {unit:<5} {:>7}", counts.pages);
        }
        if of("host").next().is_some() {
            text += "\nmeasured in one process: `ptarmigan calibrate` has ranges and the break-even\n";
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::load;

    fn values(model: &Model) -> Vec<(String, f64)> {
        let rows = run(model).unwrap().rows;
        rows.into_iter().filter(|row| row.unit == "ns").map(|row| (row.case, row.value)).collect()
    }

    #[test]
    fn the_figures_of_2001_come_out_within_a_tenth() {
        let figures = [110.0, 998.5, 1_080_000.0, 3_280_000.0, f64::from(4u32 << 20) / 360e6 * 1e9];
        let values = values(&load("power3-2001").unwrap());
        assert_eq!(values.len(), figures.len());
        for ((case, value), figure) in values.into_iter().zip(figures) {
            assert!((value / figure - 1.0).abs() < 0.1, "{case}: {value}, not {figure}");
        }
    }

    #[test]
    fn counts_are_those_of_what_was_carried_out() {
        let mut report = run(&load("power3-2001").unwrap()).unwrap();
        report.add_host(Ok(vec![HostTime {
            case: "break-even-refill-512".to_owned(),
            value: 36.5,
            unit: "pages",
            pages: 36,
        }]));
        report.add_host(Err(Failure::new("no mappings")));
        let of = |case: &str| report.rows.iter().find(|row| row.case == case).unwrap().counts;
        assert_eq!((of("page-unhashed").hashed, of("page-unhashed").probes), (0, 0));
        assert_eq!((of("page-hashed").hashed, of("page-hashed").invalidations), (1, 1));
        let range = of("range-1024");
        assert_eq!((range.ranged, range.hashed, range.steps, range.invalidations), (1024, 1024, 1023, 1024));
        assert!(range.probes >= 1024);
        assert_eq!((of("kernel-full").entries, of("kernel-full").hashed), (262_144, 1024));
        assert_eq!(of("hash-wipe").wiped_bytes, 4 << 20);
        let even = report.rows.iter().find(|row| row.case == "break-even").unwrap();
        assert!((3100.0..=3120.0).contains(&even.value), "{even:?}");
        let text = report.plain();
        assert!(text.contains("36.5 pages") && text.contains("no times of this host: no mappings"), "{text}");
        assert!(report.plain().lines().all(|line| line.len() <= 80), "{}", report.plain());
    }

    #[test]
    fn a_rule_without_costs_prices_nothing() {
        assert!(run(&load("linux-33").unwrap()).unwrap_err().contains("no costs"));
    }
}
