//! Flushes of the machine of 2001, priced: each case is carried out on a hash table, its operations
//! are counted, and a cost model prices the counts.
//!
//! The machine of 2001 is not timed: no hash table of this host predicts the times of a POWER3.
//! Flushes of this host stand beside it, and they are timed.
mod hashed;

use std::fmt::Write as _;

use ptarmigan::tlb::{CostModel, Costs, Plan, Runs, SlotSet, Work};
use serde::Serialize;

use hashed::{Flushed, HashedMachine, PAGE_SHIFT};
use ptarmigan_cli::calibrate::HostTime;
use ptarmigan_replay::model::Model;
use ptarmigan_term::Failure;
use ptarmigan_term::text::{Text, TextTable};

/// The first address of the window of kmap slots.
const WINDOW: u32 = 0xff80_0000;

/// Operations that were carried out.
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
    /// Bytes of the hash table that were cleared at one stroke.
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
    /// Operations that were carried out; `None` for a row that follows from others or from the
    /// model.
    counts: Option<Counts>,
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
        let mut counts = carry_out(&mut machine)?;
        // A table that was cleared begins to count anew.
        counts.probes = machine.probes().saturating_sub(before);
        if let Some(picoseconds) = price(&costs, model.wipe_byte, &counts) {
            let value = picoseconds as f64 / 1000.0;
            let (case, counts) = (case.to_owned(), Some(counts));
            rows.push(FlushRow { case, contender: "model", value, unit: "ns", counts });
        }
    }
    let value = |case: &str| rows.iter().find(|row| row.case == case).map(|row| row.value);
    if let (Some(everything), Some(page)) = (value("kernel-full"), value("page-hashed")) {
        rows.push(derived("page-to-everything", everything / page, "times"));
    }
    let mut notes = Vec::new();
    match break_even(&model.rule) {
        Some(pages) => rows.push(derived("break-even", pages as f64, "pages")),
        None => {
            notes.push(format!("no range, of up to {MOST_PAGES} hashed pages, is flushed with everything"))
        }
    }
    Ok(FlushReport { bench: "flush", model: model.name.clone(), rows, notes })
}

/// Makes a row without operations of its own.
fn derived(case: &str, value: f64, unit: &'static str) -> FlushRow {
    FlushRow { case: case.to_owned(), contender: "model", value, unit, counts: None }
}

/// The most pages for which a model is asked for its choice: more than fit into an address space of
/// the machine.
const MOST_PAGES: u64 = 1 << 24;

/// Returns the size of the smallest range of hashed pages that the model flushes with everything,
/// without any other facts; `None` if there is no such size.
fn break_even(rule: &CostModel) -> Option<u64> {
    let is_full = |pages: u64| {
        let run = Runs::one(1 << 40, (1 << 40) + (pages << PAGE_SHIFT), PAGE_SHIFT);
        rule.plan(&run).is_full()
    };
    // Each further page makes a range dearer, and everything no more than that.
    let (mut low, mut high) = (1, MOST_PAGES);
    while low < high {
        let middle = low.midpoint(high);
        if is_full(middle) { high = middle } else { low = middle + 1 }
    }
    is_full(low).then_some(low)
}

impl FlushReport {
    /// Adds flushes of this host, or a note with the reason why they are missing.
    pub(crate) fn add_host(&mut self, times: Result<Vec<HostTime>, Failure>) {
        match times {
            Ok(times) => self.rows.extend(times.into_iter().map(FlushRow::from)),
            Err(why) => self.notes.push(format!("no times of this host: {}", why.message())),
        }
    }
}

impl From<HostTime> for FlushRow {
    fn from(HostTime { case, value, unit, pages }: HostTime) -> Self {
        let counts = Some(Counts { pages: pages as u64, ..Counts::default() });
        FlushRow { case, contender: "host", value, unit, counts }
    }
}

/// The price in picoseconds; `None` if the model has no cost for a byte of the hash table.
fn price(costs: &Costs, wipe_byte: Option<u64>, counts: &Counts) -> Option<u64> {
    let Counts { pages, ranged, steps, entries, invalidations, wiped_bytes, .. } = *counts;
    if wiped_bytes > 0 {
        return Some(wipe_byte?.saturating_mul(wiped_bytes));
    }
    let fulls = u64::from(entries > 0);
    if fulls > 0 && costs.full_entry == 0 {
        return Some(costs.price(&Work { fulls, ..Work::default() }));
    }
    let runs = u64::from(ranged > 0 && fulls == 0);
    // Each invalidation took a page out of the hash table, which adds the cost of a hashed page.
    let hashed = invalidations;
    Some(costs.price(&Work { pages, ranged, hashed, steps, runs, fulls, entries, ..Work::default() }))
}

/// A case: its name, its preparation, and the operations that are counted.
type Case = (&'static str, fn(&mut HashedMachine), fn(&mut HashedMachine) -> Result<Counts, String>);

const CASES: [Case; 6] = [
    ("page-unhashed", |machine| _ = machine.flush_page(address(0)), first_page),
    ("page-hashed", nothing, first_page),
    ("range-1024", nothing, |machine| {
        let mut counts = Counts::default();
        let mut stale = SlotSet::new(u64::from(WINDOW), PAGE_SHIFT);
        (0..SlotSet::SLOTS).for_each(|slot| stale.insert(slot));
        stale.each_scope(Plan::Runs, |scope| {
            for va in scope.pages().into_iter().flatten() {
                counts.count_ranged(machine.flush_page(va as u32));
            }
        });
        Ok(counts)
    }),
    // As the machine did it: the range over the kernel's half, in which pages that are not hashed
    // cost a look at their entry.
    ("kernel-full", nothing, |machine| {
        let mut counts = Counts::default();
        machine.each_kernel_page(|machine, va| {
            counts.entries += 1;
            let flushed = machine.flush_page(va);
            if flushed.hashed {
                counts.count_ranged(flushed);
            }
        });
        Ok(counts)
    }),
    ("hash-wipe", nothing, |machine| Ok(Counts { wiped_bytes: machine.clear()?, ..Counts::default() })),
    // With every page of the machine in the table, as far as it has room.
    ("wipe-synchronised", HashedMachine::touch_all, |machine| {
        Ok(Counts { invalidations: machine.wipe_synchronised(), ..Counts::default() })
    }),
];

fn address(slot: usize) -> u32 {
    WINDOW + ((slot as u32) << PAGE_SHIFT)
}

fn nothing(_: &mut HashedMachine) {}

fn first_page(machine: &mut HashedMachine) -> Result<Counts, String> {
    let mut counts = Counts { pages: 1, ..Counts::default() };
    counts.count(machine.flush_page(address(0)));
    Ok(counts)
}

impl Counts {
    fn count(&mut self, flushed: Flushed) {
        self.hashed += u64::from(flushed.hashed);
        self.invalidations += u64::from(flushed.invalidations);
    }

    /// Counts a page of a range.
    fn count_ranged(&mut self, flushed: Flushed) {
        self.steps += u64::from(self.ranged > 0);
        self.ranged += 1;
        self.count(flushed);
    }
}

impl FlushReport {
    /// Returns a table of at most 80 columns.
    pub(crate) fn text(&self) -> Text {
        let mut table = TextTable::new(
            &["case", "model", "", "pages", "tlbies", "entries", "probes", "wiped"],
            &[-18, 13, -5, 6, 7, 8, 7, 7],
        );
        let of = |contender| self.rows.iter().filter(move |row| row.contender == contender);
        for FlushRow { case, value, unit, counts, .. } in of("model") {
            let value = format!("{value:.1}");
            match counts {
                Some(Counts { pages, ranged, invalidations, entries, probes, wiped_bytes, .. }) => {
                    let pages = pages + ranged;
                    table.row(&[case, &value, unit, &pages, invalidations, entries, probes, wiped_bytes]);
                }
                None => table.row(&[case, &value, unit]),
            }
        }
        let mut text = Text::default();
        text.table(table);
        // Writing to a text cannot fail.
        let _ = writeln!(text, "\ncounts of a run, priced by cost model {}; wiped: bytes", self.model);
        if of("host").next().is_some() {
            let mut table = TextTable::new(&["case", "this host", "", "pages"], &[-24, 14, -5, 7]);
            for FlushRow { case, value, unit, counts, .. } in of("host") {
                let pages = counts.map_or(0, |counts| counts.pages);
                table.row(&[case, &format_args!("{value:.1}"), unit, &pages]);
            }
            let _ = writeln!(text);
            text.table(table);
            let _ = writeln!(
                text,
                "\nmeasured in one process: `ptarmigan calibrate` has ranges and the break-even"
            );
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
    use ptarmigan_replay::model::load;

    fn values(model: &Model) -> Vec<(String, f64)> {
        let rows = run(model).unwrap().rows;
        rows.into_iter().filter(|row| row.unit == "ns").map(|row| (row.case, row.value)).collect()
    }

    #[test]
    fn the_figures_of_2001_come_out_within_a_tenth() {
        let wipe = f64::from(4u32 << 20) / 360e6 * 1e9;
        let figures = [110.0, 998.5, 1_080_000.0, 3_280_000.0, wipe];
        let values = values(&load("power3-2001").unwrap());
        assert_eq!(values.len(), figures.len() + 1);
        for ((case, value), figure) in values.iter().zip(figures) {
            assert!((value / figure - 1.0).abs() < 0.1, "{case}: {value}, not {figure}");
        }
        // The mail says of the last one that it "would take longer", and gives no figure.
        let (case, value) = values.last().unwrap();
        assert!(case == "wipe-synchronised" && *value > 10.0 * wipe, "{case}: {value}");
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
        let row = |case: &str| report.rows.iter().find(|row| row.case == case).unwrap();
        let of = |case: &str| row(case).counts.unwrap();
        assert_eq!((of("page-unhashed").hashed, of("page-unhashed").probes), (0, 0));
        assert_eq!((of("page-hashed").hashed, of("page-hashed").invalidations), (1, 1));
        for case in ["range-1024", "kernel-full"] {
            let counts = of(case);
            let found = (counts.ranged, counts.hashed, counts.steps, counts.invalidations);
            assert_eq!(found, (1024, 1024, 1023, 1024), "{case}");
            assert!(counts.probes >= 1024, "{case}");
        }
        assert_eq!(of("kernel-full").entries, 262_144);
        assert_eq!((of("hash-wipe").wiped_bytes, of("hash-wipe").probes), (4 << 20, 0));
        let synchronised = of("wipe-synchronised");
        assert_eq!((synchronised.probes, synchronised.wiped_bytes), (262_144, 0));
        assert!((250_000..=262_144).contains(&synchronised.invalidations), "{synchronised:?}");
        let ratio = row("page-to-everything");
        assert!(ratio.counts.is_none() && (3280.0..3290.0).contains(&ratio.value), "{ratio:?}");
        let text = report.text().to_string();
        assert!(text.contains("36.5 pages") && text.contains("no times of this host: no mappings"), "{text}");
        assert!(
            report.text().to_string().lines().all(|line| line.len() <= 80),
            "{}",
            report.text().to_string()
        );
    }

    #[test]
    fn a_range_costs_at_most_a_full_flush_of_the_same_range() {
        let report = run(&load("power3-2001").unwrap()).unwrap();
        let [range, everything] = ["range-1024", "kernel-full"]
            .map(|case| report.rows.iter().find(|row| row.case == case).unwrap().value);
        assert!(range < everything, "{range}, {everything}");
        assert!(report.rows.iter().all(|row| row.case != "break-even"));
        assert!(report.notes.iter().any(|note| note.starts_with("no range")), "{:?}", report.notes);
        // A machine that forgets everything at once has a break-even.
        let costs = Costs::new(100_000, 3_200_000);
        assert_eq!(break_even(&CostModel::Costs(costs)), Some(33));
    }

    #[test]
    fn a_rule_without_costs_prices_nothing() {
        assert!(run(&load("linux-33").unwrap()).unwrap_err().contains("no costs"));
    }
}
