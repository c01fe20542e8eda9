//! `replay --arch`, with the built program: of every machine, and of those that a build lacks.
use crate::program::{MORE, Ran, ptarmigan, shipped};

#[cfg(feature = "formats")]
#[test]
fn the_fixture_is_clean_on_all_machines_with_linuxs_tables() {
    use crate::program::json;

    let fixture = shipped("fixture.ptrace");
    for arch in ["x86-64", "i386-pae", "ppc32"].iter().chain(&MORE) {
        let args =
            ["--policy", "plain,ptarmigan", "--memory", "256M", "--sanitize", "--json", "--arch", arch];
        let doc = json(&[&["replay", &fixture[..]][..], &args].concat());
        let runs = doc["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 2, "{arch}");
        for run in runs {
            assert_eq!(run["sanitizer"]["ran"], true, "{arch}");
            assert_eq!(run["sanitizer"]["findings"], 0, "{arch}: {run}");
            assert_eq!((&run["faults_outside"], &run["odd_calls"]), (&0.into(), &0.into()), "{arch}: {run}");
            let alike = ["x86-64", "sv48", "aarch64-4k"].contains(arch);
            assert_eq!(run["truth"]["checked"].as_u64() > Some(0), alike, "{arch}: {run}");
            assert_eq!(run["truth"]["checked"], run["truth"]["equal"], "{arch}: {run}");
            let levels = run["levels"].as_object().expect("levels");
            for (level, counts) in levels {
                assert!(counts["allocs"].as_u64() > Some(0), "{arch}, {level}: {run}");
                assert_eq!(
                    counts["allocs"], runs[0]["levels"][level]["allocs"],
                    "{arch}: alike on all policies"
                );
            }
        }
    }
}

#[cfg(feature = "formats")]
#[test]
fn benchmarks_run_on_the_tables_of_every_machine() {
    use crate::program::json;

    for arch in ["i386-pae"].iter().chain(&MORE) {
        // Six on pages, four on large ones, and a device where entries have kinds of memory.
        let table = match *arch {
            "loongarch64" | "ia64" | "sparc64" => 6,
            arch if arch.starts_with("sv") => 10,
            _ => 11,
        };
        let doc = json(&["bench", "table", "--arch", arch, "--rounds", "1", "--json"]);
        assert_eq!((&doc["bench"], &doc["arch"]), (&"table".into(), &(*arch).into()));
        let rows = doc["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 2 * table, "{arch}: {doc}");
        assert!(rows.iter().all(|row| row["value"].as_f64() > Some(0.0)), "{arch}: {doc}");
    }
}

#[test]
fn a_benchmark_of_tables_refuses_a_machine_that_hashes_pages() {
    let Ran { status, out, err } = ptarmigan(&["bench", "table", "--arch", "ppc32"]);
    assert_eq!((status, out.as_str(), err.lines().count()), (Some(1), "", 1), "{err}");
    assert!(err.contains("--arch ppc32: its MMUs find pages in a hash table"), "{err}");
}

#[cfg(feature = "formats")]
#[test]
fn larger_pages_round_areas_and_refuse_high_memory() {
    let fixture = shipped("fixture.ptrace");
    for (arch, kib) in [("sparc64", 8), ("ia64", 16), ("aarch64-64k", 64), ("sv48", 4)] {
        let args = ["replay", &fixture, "--policy", "ptarmigan", "--memory", "256M", "--arch", arch];
        let out = ptarmigan(&args).good();
        let said = format!("areas rounded to pages of {kib} KiB; Linux's counts are left out");
        assert_eq!(out.contains(&said), kib > 4, "{arch}: {out}");
        assert_eq!(out.contains("VmPTE"), kib == 4, "{arch}: {out}");
        let Ran { status, out, err } = ptarmigan(&[&args[..], &["--low", "128M"]].concat());
        assert_eq!(status, Some(i32::from(kib > 4)), "{arch}: {out}{err}");
        assert_eq!(err.contains(&format!("pages of this machine have {kib} KiB")), kib > 4, "{arch}: {err}");
    }
}

#[cfg(feature = "formats")]
#[test]
fn memory_that_entries_do_not_reach_is_refused() {
    let args = ["replay", &shipped("fixture.ptrace"), "--arch", "sv32", "--memory", "32G"];
    let Ran { status, out, err } = ptarmigan(&args);
    assert_eq!((status, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("--memory 32768 MiB: Sv32 has at most 16384 MiB"), "{err}");
}

#[cfg(not(feature = "formats"))]
#[test]
fn a_machine_missing_in_the_build_is_refused_with_a_remedy() {
    let fixture = shipped("fixture.ptrace");
    let replays = MORE.map(|arch| (["replay", &fixture], arch));
    for (command, arch) in replays.into_iter().chain([(["bench", "table"], "i386-pae")]) {
        let Ran { status, out, err } = ptarmigan(&[&command[..], &["--arch", arch]].concat());
        assert_eq!((status, out.as_str()), (Some(1), ""), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        let said = format!(
            "--arch {arch}: this build has no such machine; build the command with --features formats"
        );
        assert!(err.contains(&said), "{err}");
    }
}
