//! `ptarmigan-papers flush`, with the built program.
use crate::program::{Temporary, crate_file, json as document};
use serde_json::{Value, json};

#[test]
fn doubling_a_cost_moves_exactly_the_cases_that_use_it() {
    let values = |model: &str| -> Vec<(String, f64)> {
        let report = document(&["flush", "--json", "--model", model]);
        let rows = report["rows"].as_array().expect("rows");
        // Rows that follow from other rows were not carried out.
        assert!(rows.iter().all(|row| row["counts"].is_object() != (row["case"] == "page-to-everything")));
        assert!(rows.iter().any(|row| row["contender"] == "host") || report["notes"][0].is_string());
        rows.iter()
            .filter(|row| row["contender"] == "model")
            .map(|row| (row["case"].as_str().unwrap().to_owned(), row["value"].as_f64().unwrap()))
            .collect()
    };
    let before = values("power3-2001");
    let all = [
        "page-unhashed",
        "page-hashed",
        "range-1024",
        "kernel-full",
        "hash-wipe",
        "wipe-synchronised",
        "page-to-everything",
    ];
    assert_eq!(before.iter().map(|(case, _)| case.as_str()).collect::<Vec<_>>(), all);
    let shipped = crate_file("../../costs/power3-2001.json");
    let shipped = std::fs::read_to_string(shipped).expect("a shipped model");
    for (cost, moved) in [
        ("page", &["page-unhashed", "wipe-synchronised"][..]),
        (
            "page_hashed",
            &["page-hashed", "range-1024", "kernel-full", "wipe-synchronised", "page-to-everything"],
        ),
        ("step", &["range-1024", "kernel-full", "page-to-everything"]),
        ("full_entry", &["kernel-full", "page-to-everything"]),
        ("wipe_byte", &["hash-wipe"]),
    ] {
        let mut model: Value = serde_json::from_str(&shipped).expect("JSON");
        let value = model["costs"][cost]["value"].as_f64().expect(cost);
        model["costs"][cost]["value"] = json!(2.0 * value);
        let file = Temporary::file(cost, model.to_string());
        let after = values(file.path());
        let changed: Vec<_> =
            before.iter().zip(&after).filter(|(b, a)| b != a).map(|(b, _)| b.0.as_str()).collect();
        assert_eq!(changed, moved, "{cost}");
    }
}
