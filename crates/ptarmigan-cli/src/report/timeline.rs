//! Time lines as Trace Event Format, which Perfetto and chrome://tracing show: a counter for each
//! line, a process for each trace.
//!
//! The format knows microseconds only. A recording without times has one microsecond for each
//! event, and its process says so.
use super::collect::TraceFigures;
use serde_json::{Map, Value, json};

/// Returns the document.
pub(super) fn events(all: &[TraceFigures]) -> Value {
    let mut events = Vec::new();
    for (n, one) in all.iter().enumerate() {
        add(&mut events, n + 1, one);
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

fn add(events: &mut Vec<Value>, process: usize, one: &TraceFigures) {
    let unit = if one.facts.is_time() { "" } else { " (1 µs is 1 event)" };
    let name = format!("{}{unit}", one.facts.name);
    events.push(json!({
        "ph": "M", "name": "process_name", "pid": process, "tid": 0, "ts": 0, "args": { "name": name }
    }));
    let mut counter = |name: &str, at: u64, values: Map<String, Value>| {
        events.push(json!({
            "ph": "C", "name": name, "pid": process, "tid": 0, "ts": at, "args": values
        }));
    };
    let labels = |labels: &[&str], values: &[u64]| -> Map<String, Value> {
        labels.iter().zip(values).map(|(label, value)| ((*label).to_owned(), json!(value))).collect()
    };
    for (part, point) in one.live.points.iter().enumerate() {
        let levels: Vec<u64> = point.levels.iter().map(|n| u64::from(*n)).collect();
        counter("tables by level", point.at, labels(one.facts.levels, &levels));
        let programs = one.live.programs.iter().zip(&point.programs);
        let programs = programs.map(|(program, tables)| (program.label.clone(), json!(tables)));
        counter("tables by program", point.at, programs.collect());
        let kept = one.policies.iter().map(|policy| (policy.label(), json!(policy.kept.get(part))));
        counter("bytes kept", point.at, kept.collect());
    }
    for point in &one.flushes.points {
        let sizes = ["one page", "range", "full"];
        counter("flushes by the library", point.at, labels(&sizes, &point.ours));
        if one.flushes.linux.is_some() {
            counter("flushes by Linux", point.at, labels(&sizes, &point.linux));
        }
    }
}
