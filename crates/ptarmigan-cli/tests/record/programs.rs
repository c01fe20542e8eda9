//! A trace's records of the programs that ran.
use super::common::{Dir, ptarmigan, report, run, with_each_method};
use ptarmigan_term::{Bytes, Count};
use ptarmigan_trace::{AreaKind, Event, Kind, Reader};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn true_is_one_program() {
    with_each_method("true", &["/bin/true"], |status, stderr, file, dir| {
        assert_eq!(status, Some(0), "{stderr}");
        assert_eq!(dir.files(), ["out.ptrace"], "no temporary file is left");
        let r = report(file);
        assert_eq!((r.name.as_str(), r.tasks, r.execs, r.samples.exit, r.lost), ("true", 1, 1, 1, 0));
        assert!(!stderr.contains("without a recorded fault"), "{stderr}");
        let mut reader = Reader::open(file).expect("a trace");
        let events: Vec<Event> = reader.by_ref().map(|e| e.expect("an event")).collect();
        let settings = reader.settings();
        assert!(settings.get("kernel").is_some() && settings.get("page bytes") == Some("4096"));
        let words = settings.get("boot").unwrap_or_default();
        assert!(!words.contains("root=") && !words.contains("console="), "{words}");
        let events = &events[settings.iter().count()..];
        let Kind::Exec { arg_pages, .. } = events[0].kind else { panic!("{:?}", events[0]) };
        assert!((1..64).contains(&arg_pages), "{arg_pages} argument pages");
        let area = |wanted: AreaKind| {
            events.iter().filter(|e| matches!(e.kind, Kind::Area { kind, .. } if kind == wanted)).count()
        };
        assert_eq!(area(AreaKind::Stack), 1);
        assert!(area(AreaKind::File) >= 4 && area(AreaKind::Special) >= 1);
        assert!(matches!(
            events[events.len() - 1].kind,
            Kind::Exit { last: true } | Kind::TlbFlush { .. } | Kind::Idle | Kind::Note(_)
        ));
        // The trace contains no paths of the recorded machine.
        let bytes = std::fs::read(file).expect("it was recorded");
        assert!(!bytes.windows(5).any(|w| w == b"/bin/" || w == b"/usr/"));
    });
}

#[test]
fn a_script_that_forks_agrees_with_linux() {
    let script =
        "(:; :); /bin/true | /bin/true; for i in 1 2 3; do /bin/true; done; (exec /bin/true); exit 7";
    with_each_method("forks", &["sh", "-c", script], |status, stderr, file, _| {
        assert_eq!(status, Some(7), "{stderr}");
        let r = report(file);
        assert_eq!(r.lost, 0);
        assert!(r.forks >= 3 && r.execs == 7 && r.tasks >= 8, "{r:?}");
        assert_eq!(r.samples.exit, u64::from(r.tasks), "every task's end was sampled");
        assert_eq!(r.samples.exec, r.execs - 1, "every exec but the first, which is the recorder's own");
        let replay = ptarmigan()
            .args(["replay", "--policy", "plain", "--json"])
            .arg(file)
            .output()
            .expect("the program is there");
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
        let found: serde_json::Value = serde_json::from_slice(&replay.stdout).expect("one JSON document");
        let truth = &found["runs"][0]["truth"];
        assert_eq!(truth["checked"].as_u64(), Some(r.samples.exit + r.samples.exec), "{truth}");
        // The perf method does not see every fault of the kernel.
        let may_differ = if stderr.contains("with tracefs") { 0 } else { 1 };
        assert!(truth["equal"].as_u64() >= truth["checked"].as_u64().map(|n| n - may_differ), "{truth}");
    });
}

#[test]
fn the_recorder_and_inspect_count_alike() {
    with_each_method("counts", &["sh", "-c", "/bin/true; (:); exit 0"], |_, stderr, file, _| {
        let r = report(file);
        let samples = r.samples.exit + r.samples.exec;
        let faults = r.faults.user + r.faults.kernel;
        let line = format!(
            ": {} events ({} faults), {} tasks, {} execs, {} samples of VmPTE, {} lost, {}\n",
            Count(r.events),
            Count(faults),
            r.tasks,
            r.execs,
            samples,
            r.lost,
            Bytes(r.bytes)
        );
        assert!(stderr.contains(&line), "{line}: {stderr}");
        assert_eq!(r.by_kind["fault"], faults);
    });
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    with_each_method("status", &["sh", "-c", "kill -9 $$"], |status, stderr, file, _| {
        assert_eq!(status, Some(137), "{stderr}");
        assert!(stderr.contains("ended by signal 9"), "{stderr}");
        assert_eq!(report(file).execs, 1);
    });
}

#[test]
fn a_command_that_does_not_exist() {
    with_each_method("absent", &["/does/not/exist"], |status, stderr, _, dir| {
        assert_eq!(status, Some(127), "{stderr}");
        assert!(stderr.starts_with("ptarmigan: /does/not/exist: No such file"), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(dir.files(), [""; 0], "nothing is left");
    });
}

#[test]
fn a_32_bit_program_is_refused() {
    let dir = Dir::new("narrow");
    let (program, file) = (dir.path("program"), dir.path("out.ptrace"));
    std::fs::write(&program, b"\x7fELF\x01\x01\x01").expect("a file");
    let (status, stderr) = run(ptarmigan().args(["record", "-o"]).arg(&file).arg("--").arg(&program));
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("a 32-bit program"), "{stderr}");
    assert_eq!(dir.files(), ["program"]);
}

/// The most flushes of a replay, as a multiple of Linux's.
const MOST_FLUSHES: f64 = 1.5;

#[test]
fn a_replay_of_forked_children_has_about_linuxs_flushes() {
    let dir = Dir::new("forks");
    let program = dir.path("forks");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/forks.c");
    match Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(source).output() {
        Ok(cc) => assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr)),
        Err(e) => return eprintln!("skipped: no compiler: {e}"),
    }
    for kind in ["plain", "unmap", "pool"] {
        let file = dir.path(kind);
        let mut record = ptarmigan();
        record.args(["record", "--method", "tracefs", "-o"]).arg(&file).arg("--").arg(&program).arg(kind);
        let (status, stderr) = run(&mut record);
        if status != Some(0) {
            return eprintln!("skipped: {}", stderr.trim());
        }
        let out = ptarmigan().arg("replay").arg(&file).args(["--policy", "plain", "--json"]).output();
        let json: Value = serde_json::from_slice(&out.expect("the program is there").stdout).expect("JSON");
        let sum = |flushes: &Value| -> f64 {
            ["page", "range", "full"].iter().map(|size| flushes[size].as_f64().expect("a count")).sum()
        };
        // The tracepoint is silent at the end of a space.
        let rows = json["runs"][0]["flushes_by_cause"]["by_cause"].as_array().expect("causes");
        let ours: f64 = rows.iter().filter(|row| row["cause"] != "exit").map(sum).sum();
        let linux = sum(&json["trace"]["flushes"]["carried_out"]);
        eprintln!("{kind}: {ours} flushes in the replay, {linux} by Linux");
        assert!(linux >= 10.0 && ours <= linux * MOST_FLUSHES, "{kind}: {ours} flushes, {linux} by Linux");
        let truth = &json["runs"][0]["truth"];
        assert_eq!(truth["equal"], truth["checked"], "{kind}: {truth}");
    }
}
