//! Recorders in recordings, and other tracers.
use super::common::{Dir, ptarmigan, report, run, with_each_method};
use std::path::Path;

#[test]
fn a_command_that_traces_its_children_runs_as_ever() {
    let dir = Dir::new("traces");
    let (outer, inner) = (dir.path("outer.ptrace"), dir.path("inner.ptrace"));
    let program = env!("CARGO_BIN_EXE_ptarmigan");
    let mut command = ptarmigan();
    command.args(["record", "--method", "tracefs", "-o"]).arg(&outer);
    command.args(["--", program, "record", "--method", "perf", "-o"]).arg(&inner).args(["--", "true"]);
    let (status, stderr) = run(&mut command);
    if stderr.contains("not available") {
        eprintln!("skipped: tracefs cannot be used here");
        return;
    }
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.contains("programs that were not recorded (under another tracer): 1"), "{stderr}");
    assert_eq!(report(&inner).execs, 1);
    let outer = report(&outer);
    assert_eq!(outer.execs, 1, "the inner recorder itself");
    assert!(outer.unseen.contains(&"tasks under another tracer"));
}

#[test]
fn a_recording_of_a_recording_is_refused() {
    let program = env!("CARGO_BIN_EXE_ptarmigan");
    let inner = std::env::temp_dir().join(format!("ptarmigan-inner-{}", std::process::id()));
    let inner = inner.to_string_lossy();
    with_each_method(
        "nested",
        &[program, "record", "-o", &inner, "--", "true"],
        |status, stderr, file, dir| {
            assert_eq!(status, Some(1), "{stderr}");
            let refused =
                ["ptrace is refused: ", "listens to the system calls", "nothing of true was recorded"];
            assert!(refused.iter().any(|why| stderr.contains(why)), "{stderr}");
            assert!(!Path::new(&*inner).exists());
            assert_eq!(dir.files(), ["out.ptrace"]);
            assert!(report(file).execs >= 1);
        },
    );
}
