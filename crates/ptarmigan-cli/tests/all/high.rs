//! `replay` on machines with high memory, with the built program.
use crate::program::{Ran, json, ptarmigan, shipped};
use serde_json::Value;

fn replay(args: &[&str]) -> Value {
    let fixture = shipped("fixture.ptrace");
    let mut all = vec!["replay", &fixture, "--policy", "ptarmigan", "--memory", "64M", "--json"];
    all.extend(args);
    json(&all)["runs"][0].clone()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name} in {of}"))
}

#[test]
fn slots_of_either_kind_fill_alike_without_findings() {
    let mut maps = Vec::new();
    for window in ["store", "real"] {
        for kmap in ["local", "pool", "linux"] {
            let mut args =
                vec!["--low", "16M", "--window", window, "--kmap", kmap, "--sanitize", "--touch-data"];
            if kmap != "local" {
                args.extend(["--pool-slots", "64"]);
            }
            let run = replay(&args);
            assert_eq!(number(&run["sanitizer"], "findings"), 0, "{run}");
            let found = &run["kmap"];
            assert_eq!((&found["kmap"], &found["window"]), (&kmap.into(), &window.into()));
            let [cleared, copied, arguments] =
                ["cleared", "copied", "arguments"].map(|name| number(found, name));
            assert!(cleared > 0 && copied > 0 && arguments > 0, "{found}");
            assert!(number(found, "filled") <= cleared + copied + arguments);
            maps.push((cleared, copied, arguments));
            if let Some(sweep) = found.get("per_sweep") {
                let part = |name: &str| sweep[name].as_f64().expect("a number");
                assert_eq!(part("stale") + part("pinned") + part("free"), part("slots"), "{found}");
                assert_ne!(kmap, "local");
            }
        }
    }
    // The mapped pages are the trace's; their uses, and how often each is mapped, do not depend on
    // the slots.
    assert!(maps.windows(2).all(|pair| pair[0] == pair[1]), "{maps:?}");
}

#[test]
fn sweeps_are_flushed_as_the_parameter_says() {
    let flushes = |params: &str| {
        let mut args = vec!["--low", "16M", "--pool-slots", "16", "--touch-data", "--cpus", "1"];
        if !params.is_empty() {
            args.extend(["--params", params]);
        }
        let plans = replay(&args)["kmap"]["flushes"].clone();
        ["pages", "runs", "window", "full"].map(|plan| number(&plans, plan))
    };
    let [pages, runs, window, full] = flushes("kmap.flush=auto");
    let sweeps = pages + runs + window + full;
    assert!(sweeps > 0, "the recording has no sweep");
    assert_eq!(flushes(""), [pages, runs, window, full]);
    assert_eq!(flushes("kmap.flush=page"), [sweeps, 0, 0, 0]);
    assert_eq!(flushes("kmap.flush=run"), [0, sweeps, 0, 0]);
    assert_eq!(flushes("kmap.flush=window"), [0, 0, sweeps, 0]);
    assert_eq!(flushes("kmap.flush=full"), [0, 0, 0, sweeps]);
}

#[test]
fn a_machine_without_high_memory_maps_nothing() {
    assert!(replay(&[]).get("kmap").is_none());
}

#[test]
fn contradictions_are_refused_in_one_line() {
    let fixture = shipped("fixture.ptrace");
    let cases: [(&[&str], &str); 10] = [
        (&["--low", "64M"], "no high memory"),
        (&["--low", "16M", "--nodes", "2"], "one node"),
        (&["--low", "16M", "--idle-zero", "16"], "idle CPUs"),
        (&["--low", "16M", "--kmap", "local", "--pool-slots", "64"], "local maps have no pool"),
        (&["--low", "16M", "--pool-slots", "1"], "1 slots: "),
        (&["--low", "16M", "--window", "real", "--pool-slots", "100000"], "100000 slots: "),
        (&["--params", "kmap.flush=page"], "is for pools"),
        (&["--low", "16M", "--kmap", "linux", "--params", "kmap.flush=page"], "is for pools"),
        (&["--pool-slots", "64"], "--low"),
        (&["--window", "real"], "--low"),
    ];
    for (args, expected) in cases {
        let mut all = vec!["replay", &fixture, "--policy", "plain", "--memory", "64M"];
        all.extend(args);
        let Ran { status, out, err } = ptarmigan(&all);
        assert!(status != Some(0) && out.is_empty() && err.contains(expected), "{args:?}: {err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}
