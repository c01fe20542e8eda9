//! The figures of a run, taken from its JSON document.
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its subject: trace, policy and level, or case and contender.
    pub of: String,
    /// The name of the field in the JSON document.
    pub what: String,
    /// Its value, in `unit`.
    pub value: f64,
    /// Its unit, such as `ns`.
    pub unit: String,
}

/// The figure that is not compared: it has to be the same.
pub(super) const EVENTS: &str = "events";

/// Fields of a policy in the document of a replay, with units.
const OF_POLICY: [(&str, &str); 5] = [
    ("mean_alloc_ns", "ns"),
    ("events_per_s", "events/s"),
    ("peak_live_tables", "tables"),
    ("peak_table_bytes", "bytes"),
    ("peak_cached_bytes", "bytes"),
];
/// Fields of a level.
const OF_LEVEL: [(&str, &str); 4] =
    [("allocs", "pages"), ("misses", "pages"), ("mean_ns", "ns"), ("p99_ns", "ns")];
/// Fields of flushes.
const OF_FLUSHES: [(&str, &str); 3] = [("page", "flushes"), ("range", "flushes"), ("full", "flushes")];

/// Returns the figures of a replay of the trace `name`.
pub fn of_replay(name: &str, document: &Value) -> Vec<Figure> {
    let mut figures = Vec::new();
    // It tells recordings of one name apart.
    take(&mut figures, name, &document["trace"], &[(EVENTS, "events")]);
    for run in document["runs"].as_array().into_iter().flatten() {
        let policy = run["policy"].as_str().unwrap_or_default();
        let lists = run["historic_lists"].as_u64().map_or(String::new(), |lists| format!("({lists})"));
        let of = format!("{name}/{policy}{lists}");
        take(&mut figures, &of, run, &OF_POLICY);
        take(&mut figures, &format!("{of}/flushes"), &run["flushes"], &OF_FLUSHES);
        if run["sanitizer"]["ran"] == true {
            take(&mut figures, &of, &run["sanitizer"], &[("findings", "findings")]);
        }
        for (level, report) in run["levels"].as_object().into_iter().flatten() {
            take(&mut figures, &format!("{of}/{level}"), report, &OF_LEVEL);
        }
    }
    figures
}

/// Returns the figures of a benchmark: the value of each row, by the fields that name the row.
pub fn of_bench(document: &Value) -> Vec<Figure> {
    let (names, values): (&[&str], &[(&str, &str)]) = match document["bench"].as_str() {
        Some("imbalance") => (&["case", "cpus", "policy"], &[("kept_kib", "KiB"), ("free_kib", "KiB")]),
        Some("migration") => (&["nodes", "policy", "children"], &[("kept", "pages"), ("foreign", "pages")]),
        _ => (&["case", "contender"], &[("value", "")]),
    };
    let mut figures = Vec::new();
    for row in document["rows"].as_array().into_iter().flatten().filter_map(Value::as_object) {
        let of: Vec<String> = names.iter().filter_map(|name| named(row, name)).collect();
        take(&mut figures, &of.join("/"), &Value::Object(row.clone()), values);
    }
    figures
}

fn named(row: &Map<String, Value>, name: &str) -> Option<String> {
    match row.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(format!("{number} {name}")),
        _ => None,
    }
}

fn take(figures: &mut Vec<Figure>, of: &str, from: &Value, fields: &[(&str, &str)]) {
    for (what, unit) in fields {
        if let Some(value) = from[*what].as_f64() {
            let unit = from["unit"].as_str().unwrap_or(unit).to_owned();
            figures.push(Figure { of: of.to_owned(), what: (*what).to_owned(), value, unit });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_a_benchmark_are_named_by_case_and_contender() {
        let rows = json!([{"case": "map", "contender": "ours", "value": 2.5, "unit": "ns/page", "min": 2.0},
                          {"case": "map", "contender": "none", "value": null, "unit": "ns/page"}]);
        let figures = of_bench(&json!({"bench": "table", "rows": rows}));
        let unit = "ns/page".to_owned();
        assert_eq!(figures, [Figure { of: "map/ours".into(), what: "value".into(), value: 2.5, unit }]);
        let rows = json!([{"nodes": 2, "policy": "v5", "children": 1, "kept": 7, "foreign": 3}]);
        let figures = of_bench(&json!({"bench": "migration", "rows": rows}));
        assert_eq!(figures.len(), 2);
        assert_eq!(figures[1].of, "2 nodes/v5/1 children");
    }

    #[test]
    fn a_replay_has_figures_by_policy_and_level() {
        let level = json!({"allocs": 5, "misses": 1, "mean_ns": 9.5, "p99_ns": 20.0});
        let run = json!({"policy": "v5", "historic_lists": 2, "mean_alloc_ns": 9.0, "levels": {"pte": level},
                         "flushes": {"page": 1, "range": 2, "full": 3}, "sanitizer": {"ran": false}});
        let figures = of_replay("make", &json!({"trace": {"events": 7}, "runs": [run]}));
        let of: Vec<&str> = figures.iter().map(|figure| figure.of.as_str()).collect();
        assert_eq!(figures.len(), 9);
        assert!(of.contains(&"make/v5(2)") && of.contains(&"make/v5(2)/pte"), "{of:?}");
    }
}
