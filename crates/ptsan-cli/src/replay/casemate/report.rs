//! The report of a trace: the log that was read, the rules that were broken, then the report of the
//! sanitizer of each stage.
use super::discipline::Breach;
use super::machine::CasemateMachine;
use super::trace::Trace;
use crate::replay::report::total;
use crate::wrap;
use ptsan::Format;
use serde::Serialize;
use std::collections::BTreeMap;

/// The part of the log that was read, and the damage in the rest.
#[derive(Serialize)]
pub(super) struct CasemateOverview<'a> {
    schema: u32,
    #[serde(rename = "type")]
    what: &'static str,
    machine: String,
    /// The number of steps.
    records: u64,
    bytes: u64,
    damage: Option<String>,
    seed: Option<String>,
    counts: BTreeMap<&'static str, u64>,
    /// The verdicts of Casemate itself that the log has.
    verdicts: &'a [String],
    not_checked: u64,
    lies: u64,
    first_lies: Vec<StepEntry<'a>>,
    /// How often a rule of Casemate's own was broken.
    breaches: u64,
}

#[derive(Serialize)]
struct StepEntry<'a> {
    line: u64,
    what: &'a str,
    instead: &'static str,
}

/// A broken rule, as a line of JSON.
#[derive(Serialize)]
struct Rule<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    rule: &'static str,
    line: u64,
    count: u64,
    what: &'a str,
    instead: &'static str,
    source: Option<&'a str>,
}

impl<'a> CasemateOverview<'a> {
    pub(super) fn new(trace: &'a Trace, machine: &'a CasemateMachine) -> Self {
        let seed = machine.stages.iter().find_map(|c| c.sanitizer.summary().seed);
        let names: Vec<_> = machine.stages.iter().map(|c| c.name).collect();
        let cpus = trace.cpus();
        let names = if names.is_empty() { "no root loaded".to_owned() } else { names.join(" and ") };
        let c = machine.counts;
        let wrong = |lie: &'a super::machine::ImpossibleStep| StepEntry {
            line: lie.line,
            what: &lie.what,
            instead: lie.instead,
        };
        Self {
            schema: 1,
            what: "replay",
            machine: format!("trace of Casemate, {names}, {cpus} CPU{}", if cpus == 1 { "" } else { "s" }),
            records: trace.steps.len() as u64,
            bytes: trace.bytes,
            damage: trace.damage.as_ref().map(ToString::to_string),
            seed: seed.map(|seed| format!("{seed:#x}")),
            counts: BTreeMap::from([
                ("tables allocated", c.allocated),
                ("tables freed", c.freed),
                ("stores", c.stores),
                ("roots loaded", c.roots),
                ("invalidations", c.invalidations),
            ]),
            verdicts: &trace.verdicts,
            not_checked: machine.stages.iter().map(|c| c.sanitizer.stats().debts_dropped).sum(),
            lies: machine.lies.1,
            first_lies: machine.lies.0.iter().map(wrong).collect(),
            breaches: machine.discipline.total,
        }
    }

    /// Returns whether the log was read to its end and all of it can be.
    pub(super) const fn is_sound(&self) -> bool {
        self.lies == 0 && self.damage.is_none()
    }

    /// Returns the report in a format. `name` is that of the log.
    pub(super) fn report(
        &self,
        trace: &Trace,
        machine: &CasemateMachine,
        name: &str,
        format: Format,
    ) -> serde_json::Result<String> {
        let mut text = if format == Format::Json { serde_json::to_string(self)? } else { self.text() };
        text.push('\n');
        for breach in &machine.discipline.breaches {
            let source = breach.source.map(|source| trace.sources[source as usize].as_str());
            text.push_str(&shown(breach, source, name, format)?);
        }
        for checked in &machine.stages {
            text.push_str(&format!("{}\n", checked.sanitizer.report_as(format)));
        }
        Ok(text)
    }

    fn text(&self) -> String {
        let mut t = String::new();
        let read = format!("{}; {} steps, {} bytes", self.machine, self.records, self.bytes);
        wrap::line(&mut t, 0, &read);
        let counts: Vec<_> =
            self.counts.iter().filter(|(_, n)| **n > 0).map(|(what, n)| format!("{what}: {n}")).collect();
        if !counts.is_empty() {
            wrap::line(&mut t, 0, &counts.join(", "));
        }
        if let Some(seed) = &self.seed {
            wrap::line(&mut t, 0, &format!("CPUs walk at random, with seed {seed}"));
        }
        if self.not_checked > 0 {
            wrap::line(&mut t, 0, &format!("{} flushes that CPUs owed were not checked", self.not_checked));
        }
        for verdict in self.verdicts {
            wrap::line(&mut t, 0, &format!("Casemate said: {verdict}"));
        }
        if let Some(damage) = &self.damage {
            wrap::line(&mut t, 0, &format!("log: {damage}; what comes before was replayed"));
        }
        if self.lies > 0 {
            t.push('\n');
            let steps = if self.lies == 1 { "1 step".to_owned() } else { format!("{} steps", self.lies) };
            wrap::line(&mut t, 0, &format!("the log is wrong: {steps} cannot be, and had no effect"));
            for lie in &self.first_lies {
                wrap::line(&mut t, 2, &format!("line {}: {}", lie.line, lie.what));
                wrap::line(&mut t, 4, &format!("instead: {}", lie.instead));
            }
        }
        t
    }
}

/// Returns a broken rule in a format.
fn shown(b: &Breach, source: Option<&str>, name: &str, format: Format) -> serde_json::Result<String> {
    let mut t = String::new();
    match format {
        Format::Json => {
            let (kind, rule, what) = ("rule", b.rule, b.what.as_str());
            let (line, count, instead) = (b.line, b.count, b.instead);
            let rule = Rule { kind, rule, line, count, what, instead, source };
            t = serde_json::to_string(&rule)?;
            t.push('\n');
        }
        Format::Short => t = format!("{name}:{}: {}: {}\n", b.line, b.rule, b.what),
        Format::GitHub => {
            let place = source.and_then(|source| source.rsplit_once(':'));
            let (file, line) = place.map_or((name.to_owned(), b.line.to_string()), |(file, line)| {
                (file.to_owned(), line.to_owned())
            });
            t = format!("::error file={file},line={line},title=ptsan {}::{}\n", b.rule, b.what);
        }
        _ => {
            let times = if b.count == 1 { String::new() } else { format!(", {} times", b.count) };
            wrap::line(&mut t, 0, &format!("rule {}: {}", b.rule, b.what));
            let of = source.map_or(String::new(), |source| format!(", {source}"));
            wrap::line(&mut t, 2, &format!("at line {}{of}{times}", b.line));
            wrap::line(&mut t, 2, &format!("instead: {}", b.instead));
            t.push('\n');
        }
    }
    Ok(t)
}

/// Returns the number of findings about the system.
pub(super) fn findings(machine: &CasemateMachine) -> u64 {
    machine.stages.iter().map(|checked| total(&checked.sanitizer)).sum::<u64>() + machine.discipline.total
}
