//! JSON documents: each has the number of its schema, and `docs/json.md` has every field.
use crate::program::{crate_file, json};
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields whose keys are data: kinds, advice, levels, names of Linux.
const MAPS: [&str; 9] =
    ["by_kind", "advice", "by_level", "kinds", "differences", "meminfo", "levels", "unknown", "options"];

/// Adds the names of all fields.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| fields(one, names)),
        Value::Object(all) => {
            for (name, inner) in all {
                names.insert(name.clone());
                let data = MAPS.contains(&name.as_str());
                match inner {
                    Value::Object(entries) if data => entries.values().for_each(|one| fields(one, names)),
                    _ => fields(inner, names),
                }
            }
        }
        _ => {}
    }
}

#[test]
#[ignore = "runs whole benchmarks: cargo xtask ci tests-long"]
fn every_document_has_a_schema_and_every_field_is_documented() {
    let runs: [&[&str]; 10] = [
        &["inspect", "fixture", "--json"],
        &["replay", "fixture", "--policy", "v5,ptarmigan", "--sanitize", "--counters", "--json"],
        &["replay", "fixture", "--policy", "ptarmigan", "--cpus", "2", "--copies", "2", "--json"],
        &["replay", "fixture", "--policy", "plain", "--touch-data", "--idle-zero", "8", "--json"],
        &["replay", "fixture", "--policy", "plain", "--arch", "ppc32", "--json"],
        &["replay", "fixture", "--policy", "plain", "--arch", "i386-pae", "--memory", "1G", "--json"],
        &["bench", "migration", "--json"],
        &["bench", "imbalance", "--json"],
        &["bench", "hash", "--json"],
        &["bench", "userpte", "--part", "memory", "--json"],
    ];
    let page = std::fs::read_to_string(crate_file("json.md")).expect("the page of documents");
    for args in runs {
        let document = json(args);
        let schema = if matches!(args[0], "inspect" | "replay") { 2 } else { 1 };
        assert_eq!(document["schema"], schema, "{args:?}");
        let mut names = BTreeSet::new();
        fields(&document, &mut names);
        let missing: Vec<_> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/json.md lacks {missing:?}, fields of {args:?}");
    }
}

#[test]
fn several_traces_are_an_array_of_documents() {
    let documents = json(&["replay", "fixture", "fixture", "--policy", "plain", "--json"]);
    let schemas: Vec<_> = documents.as_array().expect("an array").iter().map(|one| &one["schema"]).collect();
    assert_eq!(schemas, [2, 2]);
}
