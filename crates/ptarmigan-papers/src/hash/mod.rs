//! Counts the work of a hash table: entries looked at and stored to, pages that TLBs are told to
//! forget, and evictions by the size of the table. A cost model prices flushes and the clearing of
//! the whole table.
//!
//! No time is measured. The machine is that of 2001: 1 GiB of memory, all of it in use by 256
//! programs.
mod load;

use std::fmt::Write as _;

use ptarmigan::tlb::hash::{HashCounts, HashLayout, Hashed32, Hashed64};
use ptarmigan::tlb::{CostModel, Work};
use serde::Serialize;

use load::Load;
use ptarmigan_replay::model::Model;
use ptarmigan_term::text::{Text, TextTable};

/// The pages of the machine.
const PAGES: usize = 1 << 18;

/// A value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HashRow {
    case: &'static str,
    /// The layout, and the size of the table in KiB.
    contender: String,
    /// In `unit`.
    value: f64,
    unit: &'static str,
}

/// The report. As JSON: `{"schema": 1, "bench": "hash", "model": …, "pages": …, "rows": […]}`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HashBench {
    bench: &'static str,
    model: String,
    /// Pages in use.
    pages: u64,
    rows: Vec<HashRow>,
}

/// A layout and sizes of tables, in KiB.
type Tables = (&'static str, &'static [u64], fn(u64, usize) -> Result<Counted, String>);

/// The size that Linux had for the machine stands first with entries of 8 bytes: 2 MiB. With those
/// of 16 bytes the architecture's advice stands first, 16 MiB, and then Linux 2.4's rule, 4 MiB,
/// which the machine had.
const TABLES: [Tables; 2] = [
    ("604", &[2048, 1024, 512, 256, 64], count::<Hashed32>),
    ("power3", &[16_384, 4096, 2048, 1024, 256], count::<Hashed64>),
];

/// The counts of one table.
#[derive(Clone, Copy, Debug)]
struct Counted {
    pages: u64,
    entries: u64,
    /// The first use of all pages: to the secondary group, and over other pages.
    secondary: u64,
    fill: HashCounts,
    /// The second use: pages that had to go since, and so on.
    missed_again: u64,
    again: HashCounts,
    /// The flush of all pages by name.
    flush: HashCounts,
    tlbies: u64,
    /// Stores of the whole wipe.
    wipe_stores: u64,
}

fn count<L: HashLayout>(bytes: u64, resident: usize) -> Result<Counted, String> {
    let mut load = Load::<L>::new(bytes, resident)?;
    let (missed, secondary) = load.use_all();
    let fill = load.counts();
    let (missed_again, _) = load.use_all();
    let again = since(load.counts(), fill);
    let before = load.counts();
    load.flush_all();
    let (flush, tlbies) = (since(load.counts(), before), load.tlbies);
    if missed != load.pages() || load.valid() != 0 {
        return Err(format!("{} of {missed} pages are left after their flush", load.valid()));
    }
    load.use_all();
    let before = load.counts();
    load.wipe();
    let wipe_stores = since(load.counts(), before).stores as u64;
    let (pages, entries) = (load.pages(), wipe_stores);
    Ok(Counted { pages, entries, secondary, fill, missed_again, again, flush, tlbies, wipe_stores })
}

fn since(now: HashCounts, before: HashCounts) -> HashCounts {
    HashCounts {
        probes: now.probes - before.probes,
        stores: now.stores - before.stores,
        inserted: now.inserted - before.inserted,
        evicted: now.evicted - before.evicted,
        removed: now.removed - before.removed,
        missing: now.missing - before.missing,
        wiped: now.wiped - before.wiped,
    }
}

/// Counts, and prices the counts.
///
/// # Errors
/// If the model has no prices, or the host has no memory for a hash table.
pub(crate) fn run(model: &Model) -> Result<HashBench, String> {
    run_with(model, PAGES)
}

fn run_with(model: &Model, resident: usize) -> Result<HashBench, String> {
    let CostModel::Costs(costs) = model.rule else {
        return Err(format!("cost model {}: its rule has no costs to price flushes with", model.name));
    };
    let mut rows = Vec::new();
    for (layout, sizes, count) in TABLES {
        for kib in sizes {
            let c = count(kib << 10, resident)?;
            let each = |n: usize, of: u64| n as f64 / of.max(1) as f64;
            let share = |n: u64, of: u64| 100.0 * n as f64 / of.max(1) as f64;
            let mut add = |case, value, unit| {
                rows.push(HashRow { case, contender: format!("{layout}-{kib}K"), value, unit });
            };
            add("entries-per-page", each(c.entries as usize, c.pages), "entries");
            add("refill-probes", each(c.fill.probes, c.pages), "probes/page");
            add("refill-stores", each(c.fill.stores, c.pages), "stores/page");
            add("secondary", share(c.secondary, c.pages), "%");
            add("evicted", share(c.fill.evicted as u64, c.pages), "%");
            add("missed-again", share(c.missed_again, c.pages), "%");
            add("evicted-again", share(c.again.evicted as u64, c.again.inserted as u64), "%");
            add("flush-probes", each(c.flush.probes, c.pages), "probes/page");
            add("flush-stores", each(c.flush.stores, c.pages), "stores/page");
            add("flush-missing", share(c.flush.missing as u64, c.pages), "%");
            add("flush-tlbies", each(c.tlbies as usize, c.pages), "tlbie/page");
            let ns = |picoseconds: u64| picoseconds as f64 / 1000.0;
            let page = costs.price(&Work { pages: 1, hashed: 1, ..Work::default() });
            let flush = Work { ranged: c.tlbies, hashed: c.tlbies, runs: 1, ..Work::default() };
            let flush = Work { steps: c.tlbies.saturating_sub(1), ..flush };
            add("flush-price", ns(costs.price(&flush)) / 1e6, "ms");
            if let Some(byte) = model.wipe_byte {
                let wipe = byte.saturating_mul(kib << 10);
                add("wipe-stores", c.wipe_stores as f64, "stores");
                add("wipe-price", ns(wipe) / 1e6, "ms");
                add("wipe-is-worth", wipe as f64 / page.max(1) as f64, "hashed pages");
            }
        }
    }
    Ok(HashBench { bench: "hash", model: model.name.clone(), pages: resident as u64, rows })
}

impl HashBench {
    fn value(&self, case: &str, contender: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.case == case && row.contender == contender).map(|row| row.value)
    }

    /// Returns tables of at most 80 columns.
    pub(crate) fn text(&self) -> Text {
        let columns = [
            ("/page", "entries-per-page", 2),
            ("probes", "refill-probes", 1),
            ("2nd %", "secondary", 1),
            ("evict%", "evicted", 1),
            ("again%", "missed-again", 1),
            ("flush", "flush-probes", 1),
            ("gone%", "flush-missing", 1),
            ("wipe", "wipe-price", 2),
            ("worth", "wipe-is-worth", 0),
        ];
        let titles = columns.map(|(title, ..)| title);
        let mut table =
            TextTable::new(&[&["table"], &titles[..]].concat(), &[-13, 6, 6, 6, 6, 6, 6, 6, 6, 6]);
        let mut last = "";
        for row in self.rows.iter().filter(|row| row.case == "entries-per-page") {
            let layout = row.contender.split('-').next().unwrap_or_default();
            if !last.is_empty() && last != layout {
                table.gap();
            }
            last = layout;
            let values = columns.iter().map(|&(_, case, digits)| {
                self.value(case, &row.contender).map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            });
            table.texts(std::iter::once(row.contender.clone()).chain(values));
        }
        let mut text = Text::default();
        text.table(table);
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "\n{} pages of {} programs, each used twice and then flushed by name.\n\
             /page: entries of the table. probes: entries looked at to put a page in that\n\
             was not hashed before.\n\
             evict: pages put in over another one at the first use; again: pages that the\n\
             second use missed. flush: entries looked at to flush a page; gone: pages that\n\
             were not there any more. One tlbie and at most one store for each page flushed.\n\
             wipe: the price in ms of clearing the table, which is that of so many hashed\n\
             pages (worth), by cost model {}.",
            self.pages,
            self.pages.div_ceil(1024),
            self.model
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_replay::model::load;

    fn bench() -> HashBench {
        run_with(&load("power3-2001").unwrap(), PAGES / 8).unwrap()
    }

    #[test]
    fn larger_tables_evict_less_and_every_page_is_flushed_once() {
        let bench = bench();
        for (layout, sizes, _) in TABLES {
            let of = |case: &str, kib: &u64| bench.value(case, &format!("{layout}-{kib}K")).unwrap();
            for pair in sizes.windows(2) {
                assert!(of("evicted", &pair[0]) <= of("evicted", &pair[1]), "{layout} {pair:?}");
                assert!(of("missed-again", &pair[0]) <= of("missed-again", &pair[1]), "{layout} {pair:?}");
            }
            let (first, last) = (&sizes[0], &sizes[sizes.len() - 1]);
            assert_eq!(of("evicted", first), 0.0, "{layout}: eight entries for each page");
            assert!(of("evicted", last) >= 50.0, "{layout}: fewer entries than pages");
            for kib in sizes {
                assert_eq!((of("flush-tlbies", kib), of("refill-stores", kib)), (1.0, 1.0));
                assert!((1.0..=16.0).contains(&of("flush-probes", kib)));
                assert!((1.0..=16.0).contains(&of("refill-probes", kib)), "no search for the page itself");
                let stores = of("flush-stores", kib) + of("flush-missing", kib) / 100.0;
                assert!((stores - 1.0).abs() < 1e-9, "a store for each page that was there");
            }
        }
    }

    #[test]
    fn a_wipe_of_four_mebibytes_costs_what_it_did_in_2001() {
        let bench = bench();
        let wipe = bench.value("wipe-price", "power3-4096K").unwrap();
        assert!((11.0..12.2).contains(&wipe), "{wipe} ms");
        let worth = bench.value("wipe-is-worth", "power3-4096K").unwrap();
        assert!((worth - wipe * 1e6 / 998.5).abs() < 1.0, "{worth} pages");
        assert_eq!(bench.value("wipe-stores", "power3-4096K"), Some(262_144.0));
    }

    #[test]
    fn the_table_fits_a_terminal_and_free_rules_price_nothing() {
        let plain = bench().text().to_string();
        assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
        assert!(run_with(&load("linux-33").unwrap(), 1024).unwrap_err().contains("no costs"));
    }
}
