//! JSON documents: each has the number of its schema, and `docs/json.md` has every field.
use crate::program::{json, undocumented};

#[test]
#[ignore = "runs whole benchmarks: cargo xtask ci tests-long"]
fn every_document_has_a_schema_and_every_field_is_documented() {
    let runs: [&[&str]; 4] = [
        &["migration", "--json"],
        &["imbalance", "--json"],
        &["hash", "--json"],
        &["userpte", "--part", "memory", "--json"],
    ];
    for args in runs {
        let document = json(args);
        assert_eq!(document["schema"], 1, "{args:?}");
        let missing = undocumented(&document);
        assert!(missing.is_empty(), "docs/json.md lacks {missing:?}, fields of {args:?}");
    }
}
