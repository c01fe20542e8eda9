//! `ptarmigan-papers hash`, with the built program.
use crate::program::json;

#[test]
fn the_benchmark_of_hash_tables_has_rows_with_units() {
    let doc = json(&["hash", "--json"]);
    assert_eq!((&doc["bench"], &doc["model"]), (&"hash".into(), &"power3-2001".into()));
    let rows = doc["rows"].as_array().expect("rows");
    for row in rows {
        assert!(row["case"].is_string() && row["contender"].is_string() && row["unit"].is_string(), "{row}");
        assert!(row["value"].as_f64() >= Some(0.0), "{row}");
    }
    let wipe = rows.iter().find(|row| row["case"] == "wipe-price" && row["contender"] == "power3-4096K");
    let wipe = wipe.and_then(|row| row["value"].as_f64()).expect("a price");
    assert!((10.5..12.8).contains(&wipe), "within a tenth of 11.65 ms: {wipe}");
}
