//! One program, recorded by both methods: calls and faults are counted alike.
use super::common::{Dir, METHODS, ptarmigan, recorder, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the program. `None` if there is no compiler.
fn program(dir: &Dir) -> Option<PathBuf> {
    let program = dir.path("alike");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/alike.c");
    match Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).output() {
        Ok(cc) => assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr)),
        Err(e) => {
            eprintln!("skipped: no compiler: {e}");
            return None;
        }
    }
    Some(program)
}

/// Returns everything that `inspect` says of a recording.
fn inspected(file: &Path) -> Value {
    let out = ptarmigan().args(["inspect", "--json"]).arg(file).output().expect("the program is there");
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

/// Records the shell's `script`. `None` if the method does not work on this machine.
fn record_script(dir: &Dir, method: &str, script: &str) -> Option<Value> {
    let file = dir.path(method);
    let (status, stderr) = run(&mut recorder(method, &file, script));
    if status != Some(0) {
        eprintln!("skipped: {method}: {}", stderr.trim());
        return None;
    }
    Some(inspected(&file))
}

/// A recording of the program, and the numbers that the program has said.
struct Recorded {
    inspected: Value,
    /// The number of calls of each kind that were timed, failed ones included.
    timed: BTreeMap<String, u64>,
    said: Vec<f64>,
}

/// Records the program. `None` if the method does not work on this machine.
fn record(dir: &Dir, program: &Path, method: &str, options: &[&str], arguments: &[&str]) -> Option<Recorded> {
    let (file, said) = (dir.path("out.ptrace"), dir.path("said"));
    let mut command = ptarmigan();
    command.args(["record", "--level", "1", "--method", method]).args(options).arg("-o").arg(&file);
    command.arg("--").arg(program).arg(arguments[0]).arg(&said).args(&arguments[1..]);
    let (status, stderr) = run(&mut command);
    if stderr.contains("is not available") || stderr.contains("perf_event_paranoid") {
        eprintln!("skipped: {method}: {}", stderr.trim());
        return None;
    }
    assert_eq!(status, Some(0), "{method}: {stderr}");
    let inspected = inspected(&file);
    let events = ptarmigan().args(["inspect", "--events", "--kind", "took"]).arg(&file).output();
    let mut timed = BTreeMap::new();
    for line in String::from_utf8_lossy(&events.expect("the program is there").stdout).lines() {
        let call = line.split("call=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a call");
        *timed.entry(call.to_owned()).or_default() += 1;
    }
    let said = std::fs::read_to_string(said).expect("it was written");
    let said = said.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    Some(Recorded { inspected, timed, said })
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn each_call_is_timed_once_and_never_longer_than_the_cpu_ran() {
    let dir = Dir::new("alike-calls");
    let Some(program) = program(&dir) else { return };
    let mut counts = Vec::new();
    for method in METHODS {
        let Some(Recorded { inspected, timed, .. }) = record(&dir, &program, method, &[], &["calls"]) else {
            return;
        };
        let times = &inspected["times"];
        // The five times that the program changes its mappings, and all others that it makes.
        let of = |call: &str| timed.get(call).copied().unwrap_or(0);
        assert_eq!(of("mprotect") / 400, 5, "{method}: {timed:?}");
        assert!(of("munmap") >= 4000 && of("mremap") == 2000, "{method}: {timed:?}");
        assert_eq!((of("fork"), of("vfork"), of("clone")), (12, 12, 4), "{method}: {timed:?}");
        // Each fork ends in one program, and the first has its own; each task ends once.
        assert_eq!((of("execve"), of("exit")), (13, 29), "{method}: {timed:?}");
        let calls = times["calls"].as_object().expect("calls");
        assert_eq!(calls.len(), timed.len(), "{method}: {times}");
        let (mut in_calls, mut seconds) = (0.0, BTreeMap::new());
        for (call, time) in calls {
            assert_eq!(number(&time["calls"]) as u64, of(call), "{method}: {call}: {times}");
            let [cpu, clock, longest, longest_clock] =
                ["seconds", "clock_seconds", "longest_seconds", "longest_clock_seconds"]
                    .map(|name| number(&time[name]));
            assert!(longest <= cpu && cpu <= clock && longest <= longest_clock, "{method}: {call}: {time}");
            assert!(longest_clock <= clock, "{method}: {call}: {time}");
            in_calls += if call == "vfork" { 0.0 } else { cpu };
            seconds.insert(call.clone(), cpu);
        }
        let kernel = number(&times["kernel_seconds"]);
        assert_eq!(times["processes"], times["processes_timed"], "{method}: {times}");
        assert!(in_calls <= kernel * 1.000_001, "{method}: calls {in_calls} s, in the kernel {kernel} s");
        eprintln!("{method}: {kernel} s in the kernel, {seconds:?}");
        counts.push(timed);
    }
    assert_eq!(counts[0], counts[1], "both methods");
}

#[test]
fn a_short_script_has_call_time_within_kernel_time() {
    let dir = Dir::new("alike-short");
    for method in METHODS {
        let Some(inspected) = record_script(&dir, method, "/bin/true; (:)") else { continue };
        let times = &inspected["times"];
        let calls = times["calls"].as_object().expect("calls").iter();
        let in_calls: f64 =
            calls.filter(|(call, _)| *call != "vfork").map(|(_, time)| number(&time["seconds"])).sum();
        let kernel = number(&times["kernel_seconds"]);
        assert!(in_calls > 0.0 && in_calls <= kernel, "{method}: {in_calls} of {kernel} s: {times}");
        let line = times["line"].as_str().expect("a line");
        assert!(line.contains("CPU time in the kernel"), "{method}: {line}");
    }
}

#[test]
fn as_many_faults_are_recorded_as_the_kernel_counts() {
    let dir = Dir::new("alike-faults");
    let Some(program) = program(&dir) else { return };
    for method in METHODS {
        for options in [&[][..], &["--symbols"]] {
            // The loader's faults and those of the exit are in both.
            let rounds = ["0", "20"].map(|rounds| {
                let recorded = record(&dir, &program, method, options, &["faults", rounds])?;
                let faults = &recorded.inspected["faults"];
                let lost = number(&recorded.inspected["lost"]);
                let faults = number(&faults["user"]) + number(&faults["kernel"]);
                Some((faults + lost, lost, recorded.said[1]))
            });
            let [Some((none, _, said_none)), Some((all, lost, said))] = rounds else { break };
            let (recorded, said) = (all - none, said - said_none);
            assert!(said > 300_000.0, "{said}");
            let off = (recorded - said).abs() / said;
            assert!(
                off <= 1e-4,
                "{method} {options:?}: {recorded} faults recorded or lost ({lost}), {said} by the kernel"
            );
        }
    }
}

#[test]
fn kernel_faults_in_new_processes_are_recorded_by_both_methods() {
    let dir = Dir::new("alike-forks");
    let script = "i=0; while [ $i -lt 200 ]; do (:); i=$((i+1)); done; /bin/true";
    for method in METHODS {
        // Who may use tracefs sees the kernel's faults by perf, too.
        let Some(inspected) = record_script(&dir, method, script) else { return };
        let (times, faults) = (&inspected["times"], &inspected["faults"]);
        // Each child has the kernel write its number.
        assert!(number(&faults["kernel"]) >= 200.0, "{method}: {faults}");
        let recorded = number(&faults["user"]) + number(&faults["kernel"]);
        let counted = number(&times["minor_faults"]) + number(&times["major_faults"]);
        // The kernel counts faults for the arguments of execve, too. A tracepoint also tells of
        // faults that the kernel gives up and takes again.
        let most = if method == "perf" { 1.005 } else { f64::INFINITY };
        assert!(
            (0.995..=most).contains(&(recorded / counted)),
            "{method}: {recorded} recorded, {counted} by the kernel"
        );
    }
}

#[test]
fn memory_that_was_only_read_is_not_copied_by_a_fork() {
    let dir = Dir::new("alike-reads");
    let Some(program) = program(&dir) else { return };
    for method in METHODS {
        if record(&dir, &program, method, &[], &["reads"]).is_none() {
            continue;
        }
        let mut replay = ptarmigan();
        replay.arg("replay").arg(dir.path("out.ptrace")).args(["--policy", "plain", "--json"]);
        let out = replay.output().expect("the program is there");
        let json: Value = serde_json::from_slice(&out.stdout).expect("one JSON document");
        let truth = &json["runs"][0]["truth"];
        assert!(truth["checked"].as_u64() >= Some(3), "{method}: {truth}");
        assert_eq!(truth["equal"], truth["checked"], "{method}: {truth}");
    }
}
