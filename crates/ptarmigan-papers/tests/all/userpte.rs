//! `ptarmigan-papers userpte`, with the built program.
use crate::program::{Ran, ptarmigan, shipped};
use serde_json::Value;

fn bench(args: &[&str]) -> String {
    let mut all = vec!["userpte"];
    all.extend(args);
    ptarmigan(&all).good()
}

/// The rows of a report.
struct Rows(Vec<Value>);

impl Rows {
    fn of(args: &[&str]) -> Self {
        let mut all = args.to_vec();
        all.push("--json");
        let report: Value = serde_json::from_str(&bench(&all)).expect("one JSON document");
        assert_eq!(report["bench"], "userpte");
        Rows(report["rows"].as_array().expect("rows").clone())
    }

    fn value(&self, case: &str, contender: &str) -> f64 {
        let row = self.0.iter().find(|row| row["case"] == case && row["contender"] == contender);
        let value = row.and_then(|row| row["value"].as_f64());
        value.unwrap_or_else(|| panic!("{case} {contender}"))
    }
}

#[test]
fn placements_make_equal_tables_and_only_high_take_windows() {
    let fixture = shipped("fixture.ptrace");
    let args = ["--part", "time", "--trace", &fixture, "--memory", "64M", "--low", "16M"];
    let rows = Rows::of(&args);
    assert!(rows.value("time/high-tables", "high") > 0.0 && rows.value("time/windows", "high") > 0.0);
    for other in ["nohigh", "auto"] {
        assert_eq!(rows.value("time/high-tables", other), 0.0);
        assert_eq!(rows.value("time/windows", other), 0.0);
    }
    for case in ["elapsed", "user", "system"] {
        for contender in ["high", "nohigh", "auto"] {
            assert!(rows.value(&format!("time/{case}"), contender) > 0.0);
        }
        for contender in ["high-nohigh", "auto-nohigh"] {
            let p = rows.value(&format!("welch/{case}/p"), contender);
            assert!((0.0..=1.0).contains(&p), "{p}");
            assert!((4.0..=8.0).contains(&rows.value(&format!("welch/{case}/df"), contender)), "five runs");
        }
    }
    let text = bench(&args);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn auto_finishes_where_nohigh_dies_as_the_model_says() {
    let args = ["--part", "memory", "--ram", "4G,16G", "--one-in", "1,10,64"];
    let rows = Rows::of(&args);
    let (mut died, mut lasted) = (0, 0);
    for ram in [4, 16] {
        for one_in in [1, 10, 64] {
            let case = format!("processes/{ram}G/1-in-{one_in}");
            let [model, nohigh, high, auto] =
                ["model-nohigh", "nohigh", "high", "auto"].map(|name| rows.value(&case, name));
            assert_eq!((high, auto), (128.0, 128.0), "{case}");
            // The reserve and pages at hand are some of the last frames.
            assert!(nohigh <= model && nohigh >= 0.9 * model - 1.0, "{case}: {nohigh}, model {model}");
            if nohigh < 128.0 {
                died += 1;
                assert!(rows.value(&case, "auto-high-tables") > 0.0);
            } else {
                lasted += 1;
            }
        }
    }
    assert!(died >= 2 && lasted >= 2, "{died} died, {lasted} lasted");
    let text = bench(&args);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn the_model_is_that_of_the_argument_of_2010() {
    let bare = ["--kernel", "0", "--slab", "0", "--processes", "0", "--mapped", "100"];
    let mut args = vec!["--part", "memory", "--one-in", "1", "--ram", "4G,8G,16G,32G,64G"];
    args.extend(bare);
    let rows = Rows::of(&args);
    for (ram, dense, records, left) in
        [(4, 8.0, 32.0, 728.0), (8, 16.0, 64.0, 688.0), (16, 32.0, 128.0, 608.0), (32, 64.0, 256.0, 448.0)]
            .into_iter()
            .chain([(64, 128.0, 512.0, 128.0)])
    {
        let case = format!("low/{ram}G/linux");
        assert_eq!(rows.value(&case, "dense-tables"), dense);
        assert_eq!(rows.value(&case, "records"), records);
        assert_eq!(rows.value(&case, "room") - dense, left);
        // Where all of low memory is left but records, S is the room over dense tables.
        let sharing = rows.value(&format!("sharing/{ram}G/linux/1-in-1"), "nohigh-exhausted");
        assert!((sharing - (left + dense) / dense).abs() < 1e-9, "{sharing}");
    }
}

#[test]
fn the_picture_is_written_and_mistakes_are_refused_in_one_line() {
    let file = std::env::temp_dir().join(format!("ptarmigan-userpte-{}.svg", std::process::id()));
    let path = file.to_str().expect("a path in UTF-8");
    bench(&["--part", "memory", "--ram", "1G,2G", "--one-in", "512", "--svg", path]);
    let picture = std::fs::read_to_string(&file).expect("a picture");
    std::fs::remove_file(&file).expect("our file");
    assert!(picture.starts_with("<svg ") && picture.contains("d = 1/512"), "{picture}");
    let cases: [(&[&str], &str); 8] = [
        (&["--runs", "4"], "4 is not in 5..=1000"),
        (&["--memory", "512M"], "more than --low 768M"),
        (&["--memory", "65G"], "at most 64G"),
        (&["--ram", "128G"], "at most 64G"),
        (&["--one-in", "513"], "513 is not in 1..=512"),
        (&["--kernel", "1G"], "leave nothing"),
        (&["--part", "memory", "--ram", "512M", "--svg", path], "nothing to draw"),
        (&["--part", "time", "--trace", "/nowhere.ptrace"], "/nowhere.ptrace"),
    ];
    for (args, expected) in cases {
        let mut all = vec!["userpte"];
        all.extend(args);
        let Ran { status, out, err } = ptarmigan(&all);
        assert!(status != Some(0) && out.is_empty() && err.contains(expected), "{args:?}: {err}");
        assert!(!err.contains("panicked"), "{err}");
    }
    assert!(!file.exists());
}
