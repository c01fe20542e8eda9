//! The report of a replay: for people and for programs.
use super::machine::{Machine, Made};
use super::recent::Origin;
use crate::dump::header_line;
use crate::symbols::Symbols;
use crate::wrap;
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
    counts: BTreeMap<&'static str, u64>,
    /// Tables that were allocated at the end.
    tables_left: u64,
    /// Findings about the code, repetitions included.
    pub(super) total: u64,
    /// The same by kind.
    by_kind: BTreeMap<&'static str, u64>,
    findings: Vec<Found>,
    /// Records that cannot be.
    pub(super) lies: u64,
    first_lies: Vec<Wrong>,
}

/// Writes an address as text: many readers of JSON keep 53 bits of a number.
#[expect(clippy::ref_option, reason = "serde passes the field by reference")]
fn hexadecimal<S: Serializer>(address: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{:#x}", address.unwrap_or_default()))
}

/// A finding.
#[derive(Serialize)]
struct Found {
    kind: &'static str,
    rule: &'static str,
    text: &'static str,
    count: u64,
    record: u64,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "hexadecimal")]
    pc: Option<u64>,
    functions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "hexadecimal")]
    table: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "hexadecimal")]
    address: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<u64>,
    note: String,
    history: Vec<Step>,
}

/// Something that happened before.
#[derive(Serialize)]
struct Step {
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<u64>,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "hexadecimal")]
    pc: Option<u64>,
    functions: Vec<String>,
}

/// A record that cannot be.
#[derive(Serialize)]
struct Wrong {
    record: u64,
    kind: &'static str,
    what: String,
    instead: &'static str,
    functions: Vec<String>,
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

    /// Returns the report as text within 80 columns.
    pub(super) fn text(&self) -> String {
        let mut t = String::new();
        wrap::line(&mut t, 0, &format!("{}; {} records, {} bytes", self.machine, self.records, self.bytes));
        let counts: Vec<_> =
            self.counts.iter().filter(|(_, n)| **n > 0).map(|(what, n)| format!("{what}: {n}")).collect();
        if !counts.is_empty() {
            wrap::line(&mut t, 0, &format!("{}, tables left: {}", counts.join(", "), self.tables_left));
        }
        if self.counts["data frames"] > 0 {
            wrap::line(&mut t, 0, "note: freed and reused data frames are not checked by this version");
        }
        match self.seed {
            Some(seed) => wrap::line(&mut t, 0, &format!("CPUs also walk at random, with seed {seed:#x}")),
            None => wrap::line(&mut t, 0, "CPUs walk only where the log has an access"),
        }
        if let Some(damage) = &self.damage {
            wrap::line(&mut t, 0, &format!("log: {damage}; what comes before was replayed"));
        }
        if self.lies > 0 {
            self.say_lies(&mut t);
        }
        t.push('\n');
        match self.total {
            0 => wrap::line(&mut t, 0, "no findings"),
            1 => wrap::line(&mut t, 0, "1 finding"),
            many => wrap::line(&mut t, 0, &format!("{many} findings")),
        }
        for (kind, count) in &self.by_kind {
            wrap::line(&mut t, 2, &format!("{count:>8}  {kind}"));
        }
        self.findings.iter().for_each(|found| say_finding(&mut t, found));
        let shown: u64 = self.findings.iter().map(|f| f.count).sum();
        if shown < self.total {
            t.push('\n');
            wrap::line(
                &mut t,
                0,
                &format!("{} more are counted above and not kept (--keep)", self.total - shown),
            );
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

/// Returns the note of a finding with numbers of records in place of those of events, where they are
/// known.
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

fn say_finding(t: &mut String, found: &Found) {
    t.push('\n');
    wrap::line(t, 0, &format!("{}: {}", found.kind, found.text));
    let mut place = format!("at record {}", found.record);
    let mut add = |what: &str, number: Option<String>| {
        if let Some(number) = number {
            place.push_str(&format!(", {what} {number}"));
        }
    };
    add("table", found.table.map(|n| format!("{n:#x}")));
    add("level", found.level.map(|n| n.to_string()));
    add("address", found.address.map(|n| format!("{n:#x}")));
    add("CPU", found.cpu.map(|n| n.to_string()));
    add("space", found.space.map(|n| n.to_string()));
    if found.count > 1 {
        place.push_str(&format!(" ({} times)", found.count));
    }
    wrap::line(t, 2, &place);
    if !found.note.is_empty() {
        wrap::line(t, 2, &found.note);
    }
    for step in &found.history {
        let record = step.record.map_or_else(|| "before".to_owned(), |n| format!("record {n}"));
        wrap::line(t, 4, &format!("{record}: {}", step.what));
        // The function that did it, and the one that the image has for it.
        let names: Vec<_> = match &step.functions[..] {
            [first, .., last] => vec![first.clone(), last.clone()],
            few => few.to_vec(),
        };
        say_code(t, 6, step.pc, &names);
    }
    wrap::line(t, 2, &format!("found at: {}", found.what));
    say_code(t, 4, found.pc, &found.functions);
}

/// Says which code it was.
fn say_code(t: &mut String, indent: usize, pc: Option<u64>, functions: &[String]) {
    match (pc, functions) {
        (Some(pc), []) => wrap::line(t, indent, &format!("by the instruction at {pc:#x}")),
        (Some(pc), [first, callers @ ..]) => {
            wrap::line(t, indent, &format!("in {first}, at {pc:#x}"));
            callers.iter().for_each(|name| wrap::line(t, indent, &format!("inlined into {name}")));
        }
        (None, _) => {}
    }
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
