//! The report of a replay: for people and for programs.
use super::machine::{Machine, Made};
use super::recent::Origin;
use crate::dump::header_line;
use crate::symbols::Symbols;
use ptsan::{Finding, Kind};
use ptsan_log::{Header, ReadError};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// What a replay has brought.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) machine: String,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Why the log could not be read to its end.
    pub(super) damage: Option<String>,
    /// The seed of the adversary.
    pub(super) seed: Option<u64>,
    /// What was recorded, by kind.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Tables that were allocated at the end.
    pub(super) tables_left: u64,
    /// Findings about the code, repetitions included.
    pub(super) total: u64,
    /// The same by kind.
    pub(super) by_kind: BTreeMap<&'static str, u64>,
    pub(super) findings: Vec<Found>,
    /// Records that cannot be.
    pub(super) lies: u64,
    pub(super) first_lies: Vec<Wrong>,
}

/// Writes an address as text: many readers of JSON keep 53 bits of a number.
#[expect(clippy::ref_option, reason = "serde passes the field by reference")]
fn hexadecimal<S: Serializer>(address: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{:#x}", address.unwrap_or_default()))
}

/// A finding.
#[derive(Serialize)]
pub(super) struct Found {
    pub(super) kind: &'static str,
    pub(super) rule: &'static str,
    pub(super) text: &'static str,
    pub(super) count: u64,
    pub(super) record: u64,
    pub(super) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "hexadecimal")]
    pub(super) pc: Option<u64>,
    pub(super) functions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "hexadecimal")]
    pub(super) table: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) level: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "hexadecimal")]
    pub(super) address: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) space: Option<u64>,
    pub(super) note: String,
    pub(super) history: Vec<Step>,
}

/// Something that happened before.
#[derive(Serialize)]
pub(super) struct Step {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) record: Option<u64>,
    pub(super) what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "hexadecimal")]
    pub(super) pc: Option<u64>,
    pub(super) functions: Vec<String>,
}

/// A record that cannot be.
#[derive(Serialize)]
pub(super) struct Wrong {
    pub(super) record: u64,
    pub(super) kind: &'static str,
    pub(super) what: String,
    pub(super) instead: &'static str,
    pub(super) functions: Vec<String>,
}

impl Report {
    pub(super) fn new(
        header: &Header,
        (records, bytes): (u64, u64),
        damage: Option<&ReadError>,
        seed: Option<u64>,
        machine: &Machine,
        symbols: &Symbols,
    ) -> Self {
        let c = machine.counts;
        let san = &machine.sanitizer;
        let counted = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Misuse && san.count(*kind) > 0);
        let functions = |origin: Origin| origin.pc.map(|pc| symbols.names(pc)).unwrap_or_default();
        let both = san.findings().iter().zip(&machine.made);
        Self {
            machine: header_line(header),
            records,
            bytes,
            damage: damage.map(ToString::to_string),
            seed,
            counts: BTreeMap::from([
                ("tables allocated", c.allocated),
                ("tables freed", c.freed),
                ("stores", c.stores),
                ("roots loaded", c.roots),
                ("invalidations", c.invalidations),
                ("accesses", c.accesses),
                ("data frames", c.data),
            ]),
            tables_left: san.live_tables(),
            total: san.total() - san.count(Kind::Misuse),
            by_kind: counted.map(|kind| (kind.name(), san.count(kind))).collect(),
            findings: both
                .filter(|(finding, _)| finding.kind != Kind::Misuse)
                .map(|(finding, made)| found(finding, made, &functions))
                .collect(),
            lies: machine.lies.1,
            first_lies: machine
                .lies
                .0
                .iter()
                .map(|lie| Wrong {
                    record: lie.origin.record,
                    kind: lie.kind,
                    what: lie.what.clone(),
                    instead: lie.instead,
                    functions: functions(lie.origin),
                })
                .collect(),
        }
    }
}

fn found(finding: &Finding, made: &Made, functions: &impl Fn(Origin) -> Vec<String>) -> Found {
    let place = finding.place;
    Found {
        kind: finding.kind.name(),
        rule: finding.rule.name(),
        text: finding.rule.text(),
        count: finding.count,
        record: made.origin.record,
        what: made.what.clone(),
        pc: made.origin.pc,
        functions: functions(made.origin),
        table: place.frame,
        level: place.level,
        address: place.va,
        cpu: place.cpu,
        space: place.space,
        note: in_records(&finding.note, made),
        history: finding
            .history
            .iter()
            .map(|h| {
                let origin = made.events.get(&h.event);
                let text = h.to_string();
                // What happened, without the number of the event.
                let what = text.split_once(": ").map_or(text.as_str(), |(_, what)| what).to_owned();
                Step {
                    record: origin.map(|o| o.record),
                    what,
                    pc: origin.and_then(|o| o.pc),
                    functions: origin.map(|o| functions(*o)).unwrap_or_default(),
                }
            })
            .collect(),
    }
}

/// Returns the note of a finding with numbers of records in place of those of events, where they
/// are known.
fn in_records(note: &str, made: &Made) -> String {
    let mut parts = note.split("event ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(digits);
        match number.parse().ok().and_then(|event: u64| made.events.get(&event)) {
            Some(origin) => text.push_str(&format!("record {}{rest}", origin.record)),
            None => text.push_str(&format!("event {part}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::machine::events_in;
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn events_become_records_where_they_are_known() {
        let origin = |record| Origin { record, pc: None };
        let events = HashMap::from([(1, origin(70)), (12, origin(5))]);
        let made = Made { origin: origin(9), what: String::new(), events };
        let note = "since event 12; its last flush (of all, event 1) came before event 120, event";
        assert_eq!(
            in_records(note, &made),
            "since record 5; its last flush (of all, record 70) came before event 120, event"
        );
        assert_eq!(events_in(note).collect::<Vec<_>>(), [12, 1, 120]);
        assert_eq!(in_records("", &made), "");
    }
}
