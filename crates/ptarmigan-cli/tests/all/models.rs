//! `--model`: cost models by name and by file, good and bad, with the built program.
use crate::program::{Ran, Temporary, crate_file, ptarmigan};
use serde_json::{Value, json};

/// Replays the fixture with the options.
fn replay(options: &[&str]) -> Ran {
    ptarmigan(&[&["replay", "fixture", "--json", "--policy", "ptarmigan"], options].concat())
}

/// Flushes of one page, of a range and of everything.
fn flushes(options: &[&str]) -> [u64; 3] {
    let report = replay(options).json();
    ["page", "range", "full"].map(|kind| report["runs"][0]["flushes"][kind].as_u64().expect(kind))
}

fn shipped(name: &str) -> Value {
    let text =
        std::fs::read_to_string(crate_file(&format!("../../costs/{name}.json"))).expect("a shipped model");
    serde_json::from_str(&text).expect("JSON")
}

/// Runs the replay with a model, which is refused in one line that names the file.
#[track_caller]
fn refused(name: &str, text: &str, because: &str) {
    let file = Temporary::file(name, text);
    let Ran { status, out, err } = replay(&["--model", file.path()]);
    assert_eq!((status, err.lines().count()), (Some(1), 1), "{name}: {err}");
    assert!(err.contains(file.path()) && err.contains(because), "{name}: {err}");
    assert!(out.is_empty());
}

#[test]
fn a_model_changes_what_is_flushed_and_linux_stays_the_default() {
    let [page, range, full] = flushes(&[]);
    assert!(page > 0 && range > 0 && full > 0);
    assert_eq!(flushes(&["--model", "linux-33"]), [page, range, full]);
    assert_eq!(flushes(&["--model", "always-full"]), [0, 0, page + range + full]);
    // No flush of single pages is dear enough there.
    let power3 = flushes(&["--model", "power3-2001"]);
    assert!(power3[2] < full, "{power3:?}");
}

#[test]
fn a_shipped_model_may_be_a_file_and_one_of_other_hosts_warns() {
    assert_eq!(flushes(&["--model", &crate_file("../../costs/linux-33.json")]), flushes(&[]));
    let file = Temporary::file("copy", shipped("power3-2001").to_string());
    let Ran { status, err, .. } = replay(&["--model", file.path()]);
    assert!(status == Some(0) && err.lines().count() == 1, "{err}");
    assert!(err.contains("warning") && err.contains("another host, POWER3"), "{err}");
    assert!(replay(&["--model", "power3-2001"]).err.is_empty(), "a name is meant");
}

#[test]
fn bad_costs_name_the_file_the_field_and_what_is_allowed() {
    let number = "a number of nanoseconds from 0.001 to 1000000000";
    for (name, value) in [
        ("zero", json!(0)),
        ("negative", json!(-5)),
        ("absurd", json!(1e15)),
        ("huge", json!(1e300)),
        ("tiny", json!(1e-9)),
        ("text", json!("110")),
        ("null", json!(null)),
    ] {
        let mut model = shipped("power3-2001");
        model["costs"]["page"]["value"] = value.clone();
        let text = model.to_string();
        refused(name, &text, &format!("costs.page.value is {value}; it must be {number}"));
    }
    let with = |change: &dyn Fn(&mut Value)| {
        let mut model = shipped("power3-2001");
        change(&mut model);
        model.to_string()
    };
    for (name, text, because) in [
        (
            "entries",
            with(&|m| m["costs"]["entries"]["value"] = json!(1.5)),
            "costs.entries.value is 1.5; it must be a whole",
        ),
        (
            "unit",
            with(&|m| m["costs"]["step"]["unit"] = json!("us")),
            "costs.step.unit is \"us\"; it must be ns",
        ),
        (
            "basis",
            with(&|m| m["costs"]["step"]["basis"] = json!("guessed")),
            "costs.step.basis is \"guessed\"; it must be measured or fitted or assumed",
        ),
        ("wipe", with(&|m| m["costs"]["wipe_byte"]["value"] = json!(0)), "costs.wipe_byte.value is 0"),
        (
            "hashed",
            with(&|m| m["costs"]["page_hashed"]["value"] = json!(100)),
            "costs.page_hashed.value is 100 ns; it must be at least costs.page",
        ),
        ("more", with(&|m| m["costs"]["pages"] = json!(1)), "unknown field `pages`"),
        ("schema", with(&|m| m["schema"] = json!(2)), "schema is 2; it must be 1"),
        ("rule", with(&|m| m["rule"] = json!("best")), "rule is \"best\"; it must be one of costs, ceiling"),
        (
            "no-rule",
            with(&|m| {
                m.as_object_mut().unwrap().remove("rule");
            }),
            "missing field `rule`",
        ),
        (
            "no-costs",
            with(&|m| {
                m.as_object_mut().unwrap().remove("costs");
            }),
            "costs is missing",
        ),
        (
            "no-page",
            with(&|m| {
                m["costs"].as_object_mut().unwrap().remove("page");
            }),
            "costs.page is missing",
        ),
        (
            "no-entries",
            with(&|m| {
                m["costs"].as_object_mut().unwrap().remove("entries");
            }),
            "costs.entries is missing",
        ),
        ("host", with(&|m| m["host"]["cpus"] = json!(-1)), "invalid value: integer `-1`"),
        ("number", with(&|m| m["costs"]["page"] = json!(110)), "expected an object of value, unit and basis"),
        ("unused", with(&|m| m["pages"] = json!(33)), "pages is 33; it must be left out"),
        (
            "resident",
            with(&|m| m["costs"]["resident"] = json!({"value": 5, "unit": "pages", "basis": "fitted"})),
            "costs.refill is missing",
        ),
    ] {
        refused(name, &text, because);
    }
    refused(
        "ceiling",
        r#"{"schema":1,"name":"x","rule":"ceiling","pages":0}"#,
        "pages is 0; it must be a whole number from 1",
    );
    refused(
        "unused-costs",
        r#"{"schema":1,"name":"x","rule":"ceiling","pages":3,"costs":{}}"#,
        "costs is \"there\"; it must be left out",
    );
    let power3 = shipped("power3-2001").to_string();
    for number in ["NaN", "1e400", "-Infinity"] {
        refused("no-number", &power3.replace("998.5", number), "line 1 column");
    }
    refused("cut", r#"{"schema":1,"#, "line 1 column");
    refused(
        "twice",
        r#"{"schema":1,"schema":1,"name":"x","rule":"always-full"}"#,
        "duplicate field `schema`",
    );
    refused("empty", "", "line 1 column 0");
}

#[test]
fn a_model_that_is_not_there_lists_those_that_are() {
    let Ran { status, err, .. } = replay(&["--model", "power4-2001"]);
    assert_eq!((status, err.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("linux-33, power3-2001, always-full, always-page"), "{err}");
    let both = replay(&["--model", "linux-33", "--params", "tlb.model=always-full"]);
    assert!(both.err.contains("give one of both"));
    assert_eq!(both.status, Some(1));
}

#[test]
fn a_calibration_that_cannot_be_written_does_not_begin() {
    let calibrate = |options: &[&str]| {
        let ran = ptarmigan(&[&["calibrate"], options].concat());
        assert!(ran.out.is_empty());
        (ran.status, ran.err)
    };
    let (status, err) = calibrate(&["-o", "/nowhere/at/all.json"]);
    assert!(status == Some(1) && err.contains("/nowhere/at/all.json"), "{err}");
    let (status, err) = calibrate(&["-o", "/"]);
    assert!(status == Some(1) && err.lines().count() == 1, "{err}");
    let (status, err) = calibrate(&["--rounds", "8"]);
    assert!(status == Some(2) && err.contains("9..=1000"), "{err}");
}
