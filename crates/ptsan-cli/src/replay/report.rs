//! The report of a replay: the log that was read, then the sanitizer's report.
use super::machine::Machine;
use crate::dump::header_line;
use crate::wrap;
use ptsan::{Format, Kind, Sanitizer};
use ptsan_log::{Header, ReadError};
use serde::Serialize;
use std::collections::BTreeMap;

/// The part of the log that was read, and the damage in the rest.
#[derive(Serialize)]
pub(super) struct Overview {
    schema: u32,
    #[serde(rename = "type")]
    what: &'static str,
    machine: String,
    records: u64,
    bytes: u64,
    /// Why the log could not be read to its end.
    damage: Option<String>,
    /// The seed of the adversary.
    seed: Option<String>,
    /// The number of records, by kind.
    counts: BTreeMap<&'static str, u64>,
    /// Tables that were allocated at the end.
    tables_left: u64,
    /// Flushes that CPUs owed and that there was no room to check.
    not_checked: u64,
    /// Records that cannot be.
    lies: u64,
    first_lies: Vec<RecordEntry>,
}

/// A record that cannot be.
#[derive(Serialize)]
struct RecordEntry {
    record: u64,
    kind: &'static str,
    what: String,
    instead: &'static str,
    functions: Vec<String>,
}

impl Overview {
    pub(super) fn new(
        header: &Header,
        (records, bytes): (u64, u64),
        damage: Option<&ReadError>,
        machine: &mut Machine,
    ) -> Self {
        let c = machine.counts;
        let lies = machine.lies.0.clone().into_iter().map(|lie| RecordEntry {
            record: lie.origin.record,
            kind: lie.kind,
            what: lie.what,
            instead: lie.instead,
            functions: machine.functions(lie.origin.pc),
        });
        let first_lies = lies.collect();
        let san = &machine.sanitizer;
        Self {
            schema: 1,
            what: "replay",
            machine: header_line(header),
            records,
            bytes,
            damage: damage.map(ToString::to_string),
            seed: san.summary().seed.map(|seed| format!("{seed:#x}")),
            counts: BTreeMap::from([
                ("tables allocated", c.allocated),
                ("tables freed", c.freed),
                ("stores", c.stores),
                ("roots loaded", c.roots),
                ("invalidations", c.invalidations),
                ("accesses", c.accesses),
                ("data frames", c.data),
                ("queued invalidations", c.queued),
                ("stores to device entries", c.entries),
                ("readers", c.readers),
                ("locks taken", c.locks),
            ]),
            tables_left: san.live_tables(),
            not_checked: san.stats().debts_dropped,
            lies: machine.lies.1,
            first_lies,
        }
    }

    /// Returns whether the log was read to its end and all of it can be.
    pub(super) const fn is_sound(&self) -> bool {
        self.lies == 0 && self.damage.is_none()
    }

    /// Returns the report in a format. JSON has an object on each line, the overview first.
    pub(super) fn report(&self, san: &Sanitizer, format: Format) -> serde_json::Result<String> {
        let mut text = if format == Format::Json { serde_json::to_string(self)? } else { self.text() };
        text.push('\n');
        text.push_str(&format!("{}\n", san.report_as(format)));
        Ok(text)
    }

    /// Returns the overview as text within 80 columns.
    fn text(&self) -> String {
        let mut t = String::new();
        wrap::line(&mut t, 0, &format!("{}; {} records, {} bytes", self.machine, self.records, self.bytes));
        let counts: Vec<_> =
            self.counts.iter().filter(|(_, n)| **n > 0).map(|(what, n)| format!("{what}: {n}")).collect();
        if !counts.is_empty() {
            wrap::line(&mut t, 0, &format!("{}, tables left: {}", counts.join(", "), self.tables_left));
        }
        match &self.seed {
            Some(seed) => wrap::line(&mut t, 0, &format!("CPUs also walk at random, with seed {seed}")),
            None => wrap::line(&mut t, 0, "CPUs walk only where the log has an access"),
        }
        if self.not_checked > 0 {
            let not_checked = self.not_checked;
            wrap::line(&mut t, 0, &format!("{not_checked} flushes that CPUs owed were not checked"));
        }
        if let Some(damage) = &self.damage {
            wrap::line(&mut t, 0, &format!("log: {damage}; what comes before was replayed"));
        }
        if self.lies > 0 {
            self.say_lies(&mut t);
        }
        t
    }

    fn say_lies(&self, t: &mut String) {
        t.push('\n');
        let records = if self.lies == 1 { "1 record".to_owned() } else { format!("{} records", self.lies) };
        wrap::line(t, 0, &format!("the log is wrong: {records} cannot be, and were left out"));
        for lie in &self.first_lies {
            wrap::line(t, 2, &format!("record {}, {}: {}", lie.record, lie.kind, lie.what));
            wrap::line(t, 4, &format!("instead: {}", lie.instead));
            lie.functions.iter().for_each(|name| wrap::line(t, 4, &format!("in {name}")));
        }
    }
}

/// Returns the number of findings about the code. Misuse of the sanitizer is an error of the log.
pub(super) fn total(san: &Sanitizer) -> u64 {
    san.total() - san.count(Kind::Misuse)
}
