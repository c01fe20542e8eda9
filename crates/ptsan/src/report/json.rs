//! JSON: an object on a line for the run, then one for each finding.
//! docs/ptsan-reference.md describes the fields.
use super::caller::TraceFrame;
use super::finding::Finding;
use super::kind::Kind;
use super::machine::MachineNames;
use super::place::Place;
use super::reports::Reports;
use super::severity::Severity;
use super::trace::Trace;
use std::fmt::{self, Write};

/// The version of the fields. It rises when one changes its meaning or goes.
const SCHEMA: u32 = 1;

pub(super) fn write(f: &mut fmt::Formatter<'_>, reports: &Reports) -> fmt::Result {
    f.write_str(&run(reports))?;
    for index in reports.order() {
        write!(f, "\n{}", finding(&reports.findings()[index]))?;
    }
    Ok(())
}

fn run(reports: &Reports) -> String {
    let summary = reports.summary();
    let mut object = Object::new("run");
    object.number("total", summary.total()).number("causes", summary.causes);
    object.number("not_kept", summary.not_kept).number("allowed", summary.allowed);
    let severities = Severity::ALL.map(|s| (s.name(), summary.count(s)));
    object.raw("severities", &counts(&severities));
    let kinds = Kind::ALL.map(|kind| (kind.name(), reports.count(kind)));
    object.raw("kinds", &counts(&kinds));
    object.string("seed", summary.seed.map(hex).as_deref());
    object.string("test", summary.test.as_deref());
    object.string("replay", summary.replay().as_deref());
    let unused: Vec<_> =
        reports.unused().filter(|_| reports.is_finished()).map(|allow| quoted(&allow.to_string())).collect();
    object.raw("unused_suppressions", &array(&unused));
    object.string("unknown_format", reports.choice().unknown.as_deref());
    object.end()
}

fn finding(finding: &Finding) -> String {
    let first: Vec<_> = finding.spread.first.iter().map(|at| place(at, &finding.machine)).collect();
    let mut object = Object::new("finding");
    object.string("severity", Some(finding.severity().name()));
    object.string("kind", Some(finding.kind.name()));
    object.string("rule", Some(finding.rule.name()));
    object.string("text", Some(finding.rule.text()));
    object.string("advice", Some(&finding.advice).filter(|a| !a.is_empty()).map(String::as_str));
    object.string("note", Some(&finding.note).filter(|n| !n.is_empty()).map(String::as_str));
    object.number("event", finding.event);
    object.number("count", finding.count).number("places", finding.spread.places);
    object.number("total", finding.total());
    object.raw("at", &finding.innermost().as_ref().map_or("null".to_owned(), caller));
    object.raw("first", &array(&first));
    object.raw("frames", &range(finding.spread.frames));
    object.raw("addresses", &range(finding.spread.addresses));
    object.string("level_name", finding.level_name().as_deref());
    let callers_in = |trace: &Trace| array(&trace.frames().iter().map(caller).collect::<Vec<_>>());
    if finding.noted().next().is_some() {
        let noted = finding.noted().map(|(event, callers)| {
            let mut object = Object::default();
            object.number("event", event).raw("in", &callers_in(callers));
            object.end()
        });
        object.raw("noted", &array(&noted.collect::<Vec<_>>()));
    }
    let history = finding.history.iter().enumerate().map(|(index, h)| {
        let mut object = Object::default();
        object.number("event", h.event).string("what", Some(&h.what.text(&finding.machine)));
        if let Some(callers) = finding.callers_of(index) {
            object.raw("in", &callers_in(callers));
        }
        object.end()
    });
    let history: Vec<_> = history.collect();
    object.raw("history", &array(&history));
    for (key, trace) in [
        ("found_in", &finding.trace),
        ("stored_in", &finding.store),
        ("freed_in", &finding.origins.freed),
        ("allocated_in", &finding.origins.allocated),
    ] {
        let callers = trace.as_ref().map(Trace::frames).unwrap_or_default();
        object.raw(key, &array(&callers.iter().map(caller).collect::<Vec<_>>()));
    }
    let consequences = finding.consequences.iter().map(|c| {
        let mut object = Object::default();
        object.string("kind", Some(c.kind.name())).string("rule", Some(c.rule.name()));
        object.number("event", c.event).number("count", c.count).number("places", c.places);
        object.raw("first", &place(&c.place, &finding.machine));
        object.end()
    });
    object.raw("consequences", &array(&consequences.collect::<Vec<_>>()));
    object.end()
}

fn place(place: &Place, machine: &MachineNames) -> String {
    let (devices, cpus): (Vec<_>, Vec<_>) = place.cpu.into_iter().partition(|&n| machine.is_device(n));
    let mut object = Object::default();
    object.string("frame", place.frame.map(hex).as_deref());
    object.string("address", place.va.map(hex).as_deref());
    object.string("space", place.space.map(hex).as_deref());
    object.raw("cpu", &cpus.first().map_or("null".to_owned(), |cpu| cpu.to_string()));
    if let Some(device) = devices.first() {
        object.number("device", (device - machine.cpus) as u64);
    }
    object.raw("level", &place.level.map_or("null".to_owned(), |level| level.to_string()));
    object.end()
}

fn caller(frame: &TraceFrame) -> String {
    let mut object = Object::default();
    object.string("function", Some(&frame.symbol));
    let position = frame.position();
    object.string("file", position.map(|p| p.0));
    object.raw("line", &position.map_or("null".to_owned(), |p| p.1.to_string()));
    object.raw("column", &position.and_then(|p| p.2).map_or("null".to_owned(), |c| c.to_string()));
    object.end()
}

/// Returns an address. JSON has no integers above 2^53 that all readers keep, so it is a string.
fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn range(range: Option<(u64, u64)>) -> String {
    range.map_or("null".to_owned(), |(low, high)| array(&[quoted(&hex(low)), quoted(&hex(high))]))
}

fn counts(all: &[(&str, u64)]) -> String {
    let mut object = Object::default();
    for &(name, count) in all.iter().filter(|(_, count)| *count > 0) {
        object.number(name, count);
    }
    object.end()
}

fn array(elements: &[String]) -> String {
    format!("[{}]", elements.join(","))
}

/// Returns a string of JSON (RFC 8259, section 7).
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // A string takes any character.
            c if c < ' ' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// An object under construction.
#[derive(Default)]
struct Object(String);

impl Object {
    fn new(what: &str) -> Self {
        let mut new = Self::default();
        new.number("schema", u64::from(SCHEMA)).string("type", Some(what));
        new
    }

    fn raw(&mut self, key: &str, value: &str) -> &mut Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        _ = write!(self.0, "{comma}{}:{value}", quoted(key));
        self
    }

    fn number(&mut self, key: &str, value: u64) -> &mut Self {
        self.raw(key, &value.to_string())
    }

    fn string(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        self.raw(key, &value.map_or("null".to_owned(), quoted))
    }

    fn end(self) -> String {
        format!("{{{}}}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n\r\t\u{1}é"), "\"a\\\"b\\\\c\\n\\r\\t\\u0001é\"");
    }

    #[test]
    fn objects_have_commas_between_their_fields() {
        let mut object = Object::new("x");
        object.string("none", None).raw("list", &array(&["1".to_owned(), "2".to_owned()]));
        assert_eq!(object.end(), r#"{"schema":1,"type":"x","none":null,"list":[1,2]}"#);
        assert_eq!(Object::default().end(), "{}");
    }
}
