//! JSON documents: each has the number of its schema, and `docs/json.md` has every field.
use crate::program::{json, undocumented};

#[test]
#[ignore = "runs whole benchmarks: cargo xtask ci tests-long"]
fn every_document_has_a_schema_and_every_field_is_documented() {
    let runs: [&[&str]; 7] = [
        &["inspect", "fixture", "--json"],
        &["replay", "fixture", "--policy", "v5,ptarmigan", "--sanitize", "--counters", "--json"],
        &["replay", "fixture", "--policy", "ptarmigan", "--cpus", "2", "--copies", "2", "--json"],
        &["replay", "fixture", "--policy", "plain", "--touch-data", "--idle-zero", "8", "--json"],
        &["replay", "fixture", "--policy", "plain", "--arch", "ppc32", "--json"],
        &["replay", "fixture", "--policy", "plain", "--arch", "i386-pae", "--memory", "1G", "--json"],
        &["bench", "faults", "--rounds", "1", "--json"],
    ];
    for args in runs {
        let document = json(args);
        let schema = if matches!(args[0], "inspect" | "replay") { 2 } else { 1 };
        assert_eq!(document["schema"], schema, "{args:?}");
        let missing = undocumented(&document);
        assert!(missing.is_empty(), "docs/json.md lacks {missing:?}, fields of {args:?}");
    }
}

#[test]
fn several_traces_are_an_array_of_documents() {
    let documents = json(&["replay", "fixture", "fixture", "--policy", "plain", "--json"]);
    let schemas: Vec<_> = documents.as_array().expect("an array").iter().map(|one| &one["schema"]).collect();
    assert_eq!(schemas, [2, 2]);
}
