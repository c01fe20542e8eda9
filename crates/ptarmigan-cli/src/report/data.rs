//! The data behind the pictures, as CSV and as JSON.
use super::collect::TraceFigures;
use super::timeline;
use crate::csv;
use ptarmigan_replay::{Cause, Flushes};
use ptarmigan_term::{Context, Failure};
use serde_json::{Map, Value, json};

/// The number of the form that the JSON documents have. It changes when a field goes or means
/// something else.
const SCHEMA: u32 = 2;

/// The data behind one picture.
struct DataTable {
    name: &'static str,
    columns: &'static [&'static str],
    rows: fn(&TraceFigures, &mut Rows<'_>),
}

/// Takes the rows of one trace.
struct Rows<'a> {
    trace: usize,
    name: &'a str,
    unit: &'static str,
    rows: Vec<Vec<Value>>,
}

impl Rows<'_> {
    /// Adds a row, after the columns that all tables have.
    fn add(&mut self, cells: Vec<Value>) {
        let mut row = vec![json!(self.trace + 1), json!(self.name)];
        row.extend(cells);
        self.rows.push(row);
    }
}

/// The columns that all tables have: the number of the trace and its name.
const COMMON: [&str; 2] = ["trace", "name"];

const TABLES: [DataTable; 15] = [
    DataTable { name: "live-by-level", columns: &["at", "unit", "level", "tables"], rows: live_by_level },
    DataTable {
        name: "live-by-program",
        columns: &["at", "unit", "program", "tables"],
        rows: live_by_program,
    },
    DataTable { name: "fullness", columns: &["from", "to", "most", "when_taken"], rows: fullness },
    DataTable { name: "lifetimes", columns: &["from", "to", "unit", "leaf", "upper"], rows: lifetimes },
    DataTable { name: "causes", columns: &["event", "cause", "level", "tables"], rows: causes },
    DataTable {
        name: "policies",
        columns: &[
            "policy",
            "historic_lists",
            "level",
            "allocs",
            "hits",
            "refills",
            "misses",
            "total_ns",
            "min_ns",
            "mean_ns",
            "p50_ns",
            "p99_ns",
            "max_ns",
        ],
        rows: policies,
    },
    DataTable {
        name: "latency",
        columns: &["policy", "historic_lists", "level", "from_ns", "to_ns", "calls"],
        rows: latency,
    },
    DataTable { name: "kept", columns: &["at", "unit", "policy", "historic_lists", "bytes"], rows: kept },
    DataTable { name: "flushes", columns: &["at", "unit", "by", "size", "flushes"], rows: flushes },
    DataTable {
        name: "flushes-by-cause",
        columns: &["by", "what", "cause", "page", "range", "full"],
        rows: flushes_by_cause,
    },
    DataTable { name: "requests", columns: &["program", "cause", "page", "range", "full"], rows: requests },
    DataTable {
        name: "where",
        columns: &[
            "program", "kind", "object", "thread", "mappings", "address", "bytes", "faults", "share",
            "tables",
        ],
        rows: mappings,
    },
    DataTable {
        name: "calls",
        columns: &["call", "calls", "seconds", "longest_seconds", "clock_seconds", "longest_clock_seconds"],
        rows: calls,
    },
    DataTable {
        name: "functions",
        columns: &[
            "program", "work", "function", "module", "file", "line", "callers", "events", "share", "seconds",
        ],
        rows: functions,
    },
    DataTable {
        name: "userpte",
        columns: &["userpte", "peak_low_bytes", "peak_high_bytes", "tables", "high", "opened"],
        rows: userpte,
    },
];

fn live_by_level(one: &TraceFigures, rows: &mut Rows<'_>) {
    for point in &one.live.points {
        for (level, tables) in one.facts.levels.iter().zip(&point.levels) {
            rows.add(vec![json!(point.at), json!(rows.unit), json!(level), json!(tables)]);
        }
    }
}

fn live_by_program(one: &TraceFigures, rows: &mut Rows<'_>) {
    for point in &one.live.points {
        for (program, tables) in one.live.programs.iter().zip(&point.programs) {
            rows.add(vec![json!(point.at), json!(rows.unit), json!(program.label), json!(tables)]);
        }
    }
}

fn fullness(one: &TraceFigures, rows: &mut Rows<'_>) {
    for class in &one.tables.fullness.classes {
        rows.add(vec![json!(class.from), json!(class.to), json!(class.most), json!(class.when_taken)]);
    }
}

fn lifetimes(one: &TraceFigures, rows: &mut Rows<'_>) {
    for bin in &one.tables.lifetimes.bins {
        rows.add(vec![json!(bin.from), json!(bin.to), json!(rows.unit), json!(bin.leaf), json!(bin.upper)]);
    }
}

fn calls(one: &TraceFigures, rows: &mut Rows<'_>) {
    let seconds = |nanos: u64| json!(nanos as f64 / 1e9);
    let made = one.times.as_ref().map(|times| times.all.dearest()).unwrap_or_default();
    for (call, time) in made {
        rows.add(vec![
            json!(call.name()),
            json!(time.calls),
            seconds(time.nanos),
            seconds(time.longest),
            seconds(time.by_clock()),
            seconds(time.longest_by_clock),
        ]);
    }
}

fn causes(one: &TraceFigures, rows: &mut Rows<'_>) {
    for (event, causes) in [("made", &one.tables.made_by), ("taken", &one.tables.taken_by)] {
        for row in causes {
            for (level, tables) in one.facts.levels.iter().zip(&row.levels) {
                rows.add(vec![json!(event), json!(row.cause), json!(level), json!(tables)]);
            }
        }
    }
}

fn policies(one: &TraceFigures, rows: &mut Rows<'_>) {
    for policy in &one.policies {
        for level in &policy.levels {
            let r = &level.report;
            rows.add(vec![
                json!(policy.policy),
                json!(policy.historic_lists),
                json!(level.level),
                json!(r.allocs),
                json!(r.hits),
                json!(r.refills),
                json!(r.misses),
                json!(r.total_ns),
                json!(r.min_ns),
                json!(r.mean_ns),
                json!(r.p50_ns),
                json!(r.p99_ns),
                json!(r.max_ns),
            ]);
        }
    }
}

fn latency(one: &TraceFigures, rows: &mut Rows<'_>) {
    for policy in &one.policies {
        for level in &policy.levels {
            for bin in level.histogram.iter().filter(|bin| bin.calls > 0) {
                rows.add(vec![
                    json!(policy.policy),
                    json!(policy.historic_lists),
                    json!(level.level),
                    json!(bin.from),
                    json!(bin.to),
                    json!(bin.calls),
                ]);
            }
        }
    }
}

fn kept(one: &TraceFigures, rows: &mut Rows<'_>) {
    for policy in &one.policies {
        for (point, bytes) in one.live.points.iter().zip(&policy.kept) {
            let (policy, lists) = (json!(policy.policy), json!(policy.historic_lists));
            rows.add(vec![json!(point.at), json!(rows.unit), policy, lists, json!(bytes)]);
        }
    }
}

fn flushes(one: &TraceFigures, rows: &mut Rows<'_>) {
    for point in &one.flushes.points {
        let linux = one.flushes.linux.as_ref().map(|_| ("linux", point.linux));
        for (by, sizes) in [("library", point.ours)].into_iter().chain(linux) {
            for (size, n) in ["page", "range", "full"].into_iter().zip(sizes) {
                rows.add(vec![json!(point.at), json!(rows.unit), json!(by), json!(size), json!(n)]);
            }
        }
    }
}

fn flushes_by_cause(one: &TraceFigures, rows: &mut Rows<'_>) {
    let mut add = |by: &str, what: &str, cause: Cause, flushes: Flushes| {
        let [page, range, full] = flushes.by_size();
        rows.add(vec![json!(by), json!(what), json!(cause), json!(page), json!(range), json!(full)]);
    };
    for row in &one.flushes.ours_by_cause.by_cause {
        add("library", "carried out", row.cause, row.flushes);
    }
    for row in one.flushes.linux.iter().flat_map(|linux| &linux.by_cause) {
        add("linux", "carried out", row.cause, row.carried_out);
        add("linux", "requested", row.cause, row.requested);
    }
}

fn requests(one: &TraceFigures, rows: &mut Rows<'_>) {
    for row in one.flushes.linux.iter().flat_map(|linux| &linux.requests) {
        let [page, range, full] = row.requested.by_size();
        rows.add(vec![json!(row.program), json!(row.cause), json!(page), json!(range), json!(full)]);
    }
}

fn mappings(one: &TraceFigures, rows: &mut Rows<'_>) {
    for row in &one.work.mappings {
        rows.add(vec![
            json!(row.program),
            json!(row.kind),
            json!(row.name),
            json!(row.thread),
            json!(row.mappings),
            json!(row.address),
            json!(row.bytes),
            json!(row.faults),
            json!(row.share),
            json!(row.tables),
        ]);
    }
}

fn functions(one: &TraceFigures, rows: &mut Rows<'_>) {
    for row in &one.work.functions {
        rows.add(vec![
            json!(row.program),
            json!(row.work),
            json!(row.function),
            json!(row.module),
            json!(row.file),
            json!(row.line),
            json!(row.callers.join(" < ")),
            json!(row.events),
            json!(row.share),
            json!(row.seconds),
        ]);
    }
}

fn userpte(one: &TraceFigures, rows: &mut Rows<'_>) {
    for placed in &one.userpte {
        rows.add(vec![
            json!(placed.userpte),
            json!(placed.peak_low_bytes),
            json!(placed.peak_high_bytes),
            json!(placed.tables),
            json!(placed.high),
            json!(placed.opened),
        ]);
    }
}

/// Returns the names of all files, for the data of pictures with `userpte=` or without.
pub(super) fn names(with_userpte: bool) -> Vec<String> {
    let tables = TABLES.iter().filter(|table| with_userpte || table.name != "userpte");
    let tables = tables.flat_map(|table| ["csv", "json"].map(|form| format!("{}.{form}", table.name)));
    tables.chain(["report.json".to_owned(), "timeline.json".to_owned()]).collect()
}

/// Returns the contents of a file.
///
/// # Errors
/// If there is no such file.
pub(super) fn contents(name: &str, all: &[TraceFigures]) -> Result<Vec<u8>, Failure> {
    let document = match name {
        "report.json" => json!({ "schema": SCHEMA, "traces": all }),
        "timeline.json" => timeline::events(all),
        name => {
            let (stem, form) = name.split_once('.').unwrap_or((name, ""));
            let table = TABLES.iter().find(|table| table.name == stem);
            let table = table.ok_or_else(|| Failure::new(format!("{name}: no data of that name")))?;
            if form == "csv" {
                return Ok(table.csv(all).into_bytes());
            }
            table.json(all)
        }
    };
    let mut text = serde_json::to_vec(&document).context(name)?;
    text.push(b'\n');
    Ok(text)
}

impl DataTable {
    fn collect(&self, all: &[TraceFigures]) -> Vec<Vec<Value>> {
        let each = all.iter().enumerate().flat_map(|(trace, one)| {
            let mut rows = Rows { trace, name: &one.facts.name, unit: one.facts.axis, rows: Vec::new() };
            (self.rows)(one, &mut rows);
            rows.rows
        });
        each.collect()
    }

    fn columns(&self) -> impl Iterator<Item = &'static str> {
        COMMON.into_iter().chain(self.columns.iter().copied())
    }

    fn csv(&self, all: &[TraceFigures]) -> String {
        let mut text = self.columns().collect::<Vec<_>>().join(",") + "\n";
        for row in self.collect(all) {
            text += &(row.iter().map(cell).collect::<Vec<_>>().join(",") + "\n");
        }
        text
    }

    fn json(&self, all: &[TraceFigures]) -> Value {
        let rows = self.collect(all).into_iter().map(|row| {
            let cells = self.columns().map(str::to_owned).zip(row);
            Value::Object(cells.collect::<Map<String, Value>>())
        });
        json!({ "schema": SCHEMA, "data": self.name, "rows": rows.collect::<Vec<_>>() })
    }
}

/// Returns the data of one name as CSV, or `None` if there is no such data.
pub(super) fn table_of(name: &str, all: &[TraceFigures]) -> Option<String> {
    Some(TABLES.iter().find(|table| table.name == name)?.csv(all))
}

/// Formats a cell of a CSV file.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => csv::foreign(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_in_its_cell() {
        let cells =
            [json!("a,b"), json!("say \"x\""), json!(null), json!(3), json!("plain")].map(|v| cell(&v));
        assert_eq!(cells, ["\"a,b\"", "\"say \"\"x\"\"\"", "", "3", "plain"]);
    }

    #[test]
    fn every_name_has_contents() {
        for name in names(true) {
            assert!(contents(&name, &[]).is_ok_and(|bytes| !bytes.is_empty()), "{name}");
        }
        assert!(contents("other.csv", &[]).is_err());
    }
}
