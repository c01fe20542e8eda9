//! `ptarmigan-papers kmap`, with the built program.
use crate::program::json;

#[test]
#[ignore = "runs whole benchmarks: cargo xtask ci tests-long"]
fn the_benchmark_has_rows_for_every_part() {
    let report = json(&["kmap", "--part", "pool,plans", "--rounds", "2", "--json"]);
    assert_eq!(report["bench"], "kmap");
    let rows = report["rows"].as_array().expect("rows");
    for row in rows {
        assert!(row["case"].is_string() && row["contender"].is_string() && row["unit"].is_string(), "{row}");
        assert!(row["value"].as_f64().is_some_and(|value| value.is_finite() && value >= 0.0), "{row}");
    }
    let has = |case: &str, contender: &str| {
        rows.iter().any(|row| row["case"] == case && row["contender"] == contender)
    };
    for contender in ["ptarmigan", "ptarmigan-two", "linux", "linux-two"] {
        assert!(["hit", "another", "same"].iter().all(|case| has(case, contender)), "{contender}");
    }
    for contender in ["pages-real", "runs-real", "window-real", "window-here", "full-power3-2001"] {
        assert!(has("sweep/contiguous-free-1024", contender), "{contender}");
    }
    assert!(has("planner-to-best", "planner") && has("above-1.10", "twin"));
}
