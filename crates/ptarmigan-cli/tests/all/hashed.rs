//! `replay --arch ppc32`, with the built program.
use crate::program::{Ran, Temporary, json, ptarmigan, shipped};
use ptarmigan_trace::{Event, FaultFlags, Header, Kind, MapFlags, Method, Prot, Writer};
use serde_json::Value;

fn file(name: &str, kinds: &[Kind]) -> Temporary {
    let mut w = Writer::new(Vec::new(), &Header::new(name, 1, Method::Synthetic), 3).expect("a header");
    for kind in kinds {
        w.event(&Event { task: 0, cpu: 0, kind: *kind }).expect("a valid event");
    }
    Temporary::file(name, w.finish(0).expect("memory takes everything").0)
}

/// Checks a report: no finding, no page left, every address moved.
#[track_caller]
fn is_clean(doc: &Value, faults: u64) {
    let moved = &doc["relayout"];
    assert_eq!(moved["format"], "ppc32");
    assert!(moved["most_regions"].as_u64() <= Some(768), "{moved}");
    for run in doc["runs"].as_array().expect("runs") {
        let hash = &run["hash"];
        assert_eq!(
            (&run["sanitizer"]["ran"], &run["sanitizer"]["findings"]),
            (&true.into(), &0.into()),
            "{run}"
        );
        assert_eq!(hash["left"], 0, "{hash}");
        assert!(hash["refills"].as_u64() > Some(faults), "{hash}");
        assert!(hash["hashed_at_flushes"].as_u64() > Some(0), "{hash}");
        assert_eq!((&run["truth"]["checked"], &run["odd_calls"]), (&0.into(), &0.into()), "{run}");
    }
}

#[test]
#[ignore = "replays whole traces: cargo xtask ci tests-long"]
fn the_fixture_replays_cleanly_on_both_layouts() {
    let trace = shipped("fixture.ptrace");
    for layout in [["--hash-layout", "604", "64K"], ["--hash-layout", "power3", "256K"]] {
        let [option, name, size] = layout;
        let all =
            ["replay", &trace, "--arch", "ppc32", "--policy", "plain,ptarmigan", "--sanitize", "--json"];
        let table = [option, name, "--hash-size", size];
        is_clean(&json(&[&all[..], &table].concat()), 100);
        // CPUs speculate, with a worker each.
        is_clean(&json(&[&all[..], &table, &["--seed", "3", "--seeds", "2", "--cpus", "2"]].concat()), 100);
    }
}

#[test]
#[ignore = "replays whole traces: cargo xtask ci tests-long"]
fn the_compile_replays_page_for_page_and_no_entry_is_left() {
    let out =
        ptarmigan(&["replay", &shipped("compile.ptrace"), "--arch", "ppc32", "--policy", "ptarmigan"]).good();
    for part in ["moved to ppc32, page for page", "packed in order", "0 entries at the end"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn an_area_that_does_not_fit_is_named() {
    let flags = MapFlags(MapFlags::ANON);
    let kinds = [
        Kind::Mmap { start: 0x7_0000_0000, pages: 4 << 18, prot: Prot(3), flags },
        Kind::Fault { page: 0x7_0000_0000, flags: FaultFlags(FaultFlags::WRITE) },
    ];
    let trace = file("large", &kinds);
    let Ran { status, out, err } = ptarmigan(&["replay", trace.path(), "--arch", "ppc32"]);
    assert_eq!((status, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("needs 4100 MiB") && err.contains("3072 MiB for the user"), "{err}");
    assert!(err.contains("its largest area has 4096 MiB, at 0x700000000000"), "{err}");
}

#[test]
fn a_table_that_there_is_not_is_refused() {
    let trace = shipped("fixture.ptrace");
    for (args, what) in [
        (&["--arch", "ppc32", "--hash-size", "96K"][..], "at least 65536"),
        (&["--arch", "ppc32", "--hash-size", "64K", "--hash-layout", "power3"], "at least 262144"),
        (&["--arch", "ppc32", "--memory", "8G"], "at most 4096 MiB"),
        (&["--hash-size", "64K"], "are for --arch ppc32"),
    ] {
        let Ran { status, out, err } = ptarmigan(&[&["replay", &trace[..]][..], args].concat());
        assert_eq!((status, out.as_str()), (Some(1), ""), "{args:?}: {err}");
        assert!(err.contains(what), "{args:?}: {err}");
    }
}
