//! `bench userpte` with the built program.
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn bench(args: &[&str]) -> (Option<i32>, String, String) {
    let mut all = vec!["bench", "userpte"];
    all.extend(args);
    let out = Command::new(env!("CARGO_BIN_EXE_ptarmigan")).args(all).output().expect("the program is there");
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Returns the value of a row.
fn value(report: &Value, case: &str, contender: &str) -> f64 {
    let rows = report["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["case"] == case && row["contender"] == contender);
    row.and_then(|row| row["value"].as_f64()).unwrap_or_else(|| panic!("{case}, {contender}"))
}

#[test]
fn auto_lasts_where_low_tables_do_not() {
    let (status, out, err) = bench(&["--part", "memory", "--ram", "4G,16G", "--one-in", "1,10,64", "--json"]);
    assert_eq!(status, Some(0), "{err}");
    let report: Value = serde_json::from_str(&out).expect("one JSON document");
    for (case, died) in [
        ("processes/4G/1-in-1", false),
        ("processes/4G/1-in-64", true),
        ("processes/16G/1-in-10", true),
        ("processes/16G/1-in-64", true),
    ] {
        assert_eq!(value(&report, case, "nohigh") < 128.0, died, "{case}");
        assert_eq!((value(&report, case, "high"), value(&report, case, "auto")), (128.0, 128.0), "{case}");
        assert_eq!(value(&report, case, "auto-high-tables") > 0.0, died, "{case}");
        // The model counts no files and no page that the lists keep.
        let (predicted, real) = (value(&report, case, "model-nohigh"), value(&report, case, "nohigh"));
        assert!((predicted - real).abs() <= predicted * 0.1 + 1.0, "{case}: {predicted}, {real}");
    }
}

#[test]
fn a_recording_has_means_and_a_test_for_each_placement() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/fixture.ptrace");
    let fixture = fixture.to_str().expect("a path in UTF-8");
    let (status, out, err) = bench(&["--part", "time", "--trace", fixture, "--json"]);
    assert_eq!(status, Some(0), "{err}");
    let report: Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!(value(&report, "time/high-tables", "high"), 40.0);
    assert_eq!(value(&report, "time/high-tables", "nohigh"), 0.0);
    for placement in ["high", "nohigh", "auto"] {
        assert!(value(&report, "time/elapsed", placement) > 0.0);
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    for (args, expected) in [
        (&["--part", "memory", "--ram", "65G"][..], "at most 64G"),
        (&["--part", "memory", "--one-in", "1,2,3,4,5,6"], "5 at most"),
        (&["--part", "memory", "--kernel", "800M"], "leave nothing"),
        (&["--part", "time", "--memory", "512M"], "more than --low"),
        (&["--part", "time", "--trace", "/nowhere"], "/nowhere"),
        (&["--runs", "4"], "5..=1000"),
    ] {
        let (status, out, err) = bench(args);
        assert!(status != Some(0) && out.is_empty() && err.contains(expected), "{args:?}: {err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}
