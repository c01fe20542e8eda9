//! `replay --counters`: text, and the same as JSON.
use crate::program::ptarmigan;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the output of a replay of the small recording, on all policies and two nodes. One worker
/// makes it the same each time.
fn replay(options: &[&str]) -> String {
    let all = ["replay", "fixture", "--policy", "plain,v5,v2008,ptarmigan", "--nodes", "2"];
    ptarmigan(&[&all, options].concat()).good()
}

fn json() -> Vec<Value> {
    let doc: Value = serde_json::from_str(&replay(&["--counters", "--json"])).expect("one JSON document");
    doc["runs"].as_array().expect("runs").clone()
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("{v} is not a count"))
}

/// Returns the lines of meminfo, in order: name and kB.
fn meminfo(text: &str) -> Vec<(String, u64)> {
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_suffix(" kB")?.split_once(':')?;
        Some((name.to_owned(), rest.trim().parse().ok()?))
    });
    lines.collect()
}

#[test]
fn text_and_json_say_the_same() {
    let text = replay(&["--counters"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // The part before the first policy describes the trace.
    let parts: Vec<&str> = text.split("\npolicy ").skip(1).collect();
    let runs = json();
    assert_eq!(parts.len(), runs.len());
    for (part, run) in parts.into_iter().zip(&runs) {
        let counters = &run["counters"];
        let mut expected = BTreeMap::new();
        let mut expect = |node: String, block: &Value| {
            for (name, bytes) in block.as_object().expect("names") {
                expected.insert(format!("{node}{name}"), number(bytes).div_ceil(1024));
            }
        };
        expect(String::new(), &counters["meminfo"]);
        for node in counters["nodes"].as_array().expect("nodes") {
            expect(format!("Node {} ", node["node"]), &node["meminfo"]);
        }
        assert_eq!(meminfo(part).into_iter().collect::<BTreeMap<_, _>>(), expected);
        let ours = run["policy"] == "ptarmigan";
        assert_eq!(part.contains("\nNode 1 Quicklists:"), ours, "only these keep pages by node");
        // Lines of the table: CPU, level, and six counts.
        let rows = |who: &str, levels: &Value| {
            for (level, c) in levels.as_object().expect("levels") {
                let counts =
                    ["allocs", "hits", "refills", "misses", "frees", "returns"].map(|k| number(&c[k]));
                let row: Vec<String> = [who.to_owned(), level.clone()]
                    .into_iter()
                    .chain(counts.iter().map(u64::to_string))
                    .collect();
                let is_there =
                    part.lines().any(|line| line.split_whitespace().eq(row.iter().map(String::as_str)));
                let counted = number(&c["allocs"]) + number(&c["frees"]) + number(&c["misses"]) > 0;
                assert_eq!(is_there, counted || number(&c["returns"]) > 0, "{row:?} in {part}");
            }
        };
        for cpu in counters["cpus"].as_array().expect("CPUs") {
            rows(&cpu["cpu"].to_string(), &cpu["levels"]);
        }
        rows("all", &counters["levels"]);
    }
}

#[test]
fn cpus_and_nodes_add_up_to_what_the_report_says() {
    for run in json() {
        let counters = &run["counters"];
        let cpus = counters["cpus"].as_array().expect("CPUs");
        assert_eq!(cpus.len() as u64, number(&run["cpus"]));
        for (level, whole) in counters["levels"].as_object().expect("levels") {
            for key in ["allocs", "frees", "refills", "misses", "returns"] {
                let sum: u64 = cpus.iter().map(|cpu| number(&cpu["levels"][level][key])).sum();
                assert_eq!(sum, number(&whole[key]), "{level} {key}");
            }
            for key in ["allocs", "hits", "refills", "misses"] {
                assert_eq!(whole[key], run["levels"][level][key], "{level} {key}");
            }
            assert_eq!(whole["live"], 0, "every space has ended");
        }
        let memory = |key: &str| number(&counters["meminfo"][key]);
        assert_eq!(memory("PageTables"), 0);
        assert_eq!(memory("TableMemory"), memory("Quicklists"));
        assert!(memory("MemFree") + memory("TableMemory") < memory("MemTotal"));
        let keeps = run["policy"] != "plain";
        assert_eq!(memory("Quicklists") > 0, keeps, "nothing has been given back yet: {counters}");
        let nodes = counters["nodes"].as_array().expect("nodes");
        assert_eq!(nodes.len(), if run["policy"] == "ptarmigan" { 2 } else { 0 });
        if !nodes.is_empty() {
            let sum = |key: &str| -> u64 { nodes.iter().map(|n| number(&n["meminfo"][key])).sum() };
            for key in ["LowTotal", "LowFree", "TableMemory", "QuicklistsMax"] {
                assert_eq!(sum(key), memory(key), "{key}");
            }
            assert_eq!(sum("Quicklists") + memory("QuicklistsCpu"), memory("Quicklists"));
            let pages = |key: &str| -> u64 { nodes.iter().map(|n| number(&n["lists"][key])).sum() };
            assert_eq!((pages("pages") + pages("roots")) * 4096, memory("TableMemory"));
        }
    }
}

#[test]
fn nobody_who_did_not_ask_for_counters_sees_them() {
    let doc: Value = serde_json::from_str(&replay(&["--json"])).expect("JSON");
    assert!(doc["runs"].as_array().expect("runs").iter().all(|run| run["counters"].is_null()));
    assert_eq!(meminfo(&replay(&[])), []);
}
