//! `inspect` on good and bad files, with the built program.
use ptarmigan_trace::{CloneKind, Event, FaultFlags, Header, Kind, Method, Sampled, Writer};
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn trace() -> Vec<u8> {
    let mut w =
        Writer::new(Vec::new(), &Header::new("small", 2, Method::Synthetic), 3).expect("a good header");
    let fault = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER | FaultFlags::WRITE) };
    let kinds = [
        (0, Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: 1 }),
        (0, fault(0x400)),
        (0, fault(0x7_ffff_fffe)),
        (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
        (1, fault(0x400)),
        (1, Kind::Truth { tables: 3, at: Sampled::Exit }),
        (1, Kind::Exit { last: true }),
        (0, Kind::Truth { tables: 6, at: Sampled::Exit }),
        (0, Kind::Exit { last: true }),
    ];
    for (task, kind) in kinds {
        w.event(&Event { task, cpu: 1, kind }).expect("a good event");
    }
    w.finish(0).expect("memory takes everything").0
}

fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ptarmigan-inspect-{name}-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("a temporary file");
    path
}

/// Returns exit status, standard output and standard error of `inspect` on these bytes.
fn inspect(name: &str, bytes: &[u8], args: &[&str]) -> (Option<i32>, String, String) {
    let path = file(name, bytes);
    let out = Command::new(env!("CARGO_BIN_EXE_ptarmigan")).arg("inspect").arg(&path).args(args).output();
    let _ = std::fs::remove_file(&path);
    let out = out.expect("the program is there");
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_trace_is_counted() {
    let (status, out, err) = inspect("good", &trace(), &[]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    assert!(
        out.contains("2 (2 processes, 0 threads)") && out.contains("1 fork, 0 vforks, 1 exec\n"),
        "{out}"
    );
    assert!(out.contains("2 equal to the number of regions touched"), "{out}");
    let (status, out, _) = inspect("json", &trace(), &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(status, Some(0));
    assert_eq!(json["by_kind"]["fault"], 3);
    assert_eq!(json["samples"]["max"], 6);
}

#[test]
fn bad_files_get_one_line() {
    let good = trace();
    let mut changed = good.clone();
    changed[60] ^= 1;
    let mut newer = good.clone();
    newer[8] = 9;
    let cases: [(&str, &[u8], &str); 6] = [
        ("empty", b"", "not a trace"),
        ("text", b"hello, world\n", "not a trace"),
        ("cut", &good[..good.len() - 10], "truncated"),
        ("start", &good[..5], "truncated"),
        ("changed", &changed, "checksum"),
        ("newer", &newer, "newer version (format 9"),
    ];
    for (name, bytes, message) in cases {
        let (status, out, err) = inspect(name, bytes, &[]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{name}");
        assert!(
            err.starts_with("ptarmigan: ") && err.lines().count() == 1 && err.contains(message),
            "{name}: {err}"
        );
    }
}

#[test]
fn nobody_reads_the_output() {
    let path = file("closed", &trace());
    let mut child = Command::new(env!("CARGO_BIN_EXE_ptarmigan"))
        .args(["inspect", "--json"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program is there");
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("it ends");
    let _ = std::fs::remove_file(&path);
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn a_reader_of_events_may_stop_at_any_line() {
    // More events than a pipe holds.
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/configure.ptrace");
    for enough in [1, 100_000] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ptarmigan"))
            .args(["inspect", "--events"])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let mut text = vec![0; enough];
        let mut out = child.stdout.take().expect("a pipe");
        std::io::Read::read_exact(&mut out, &mut text).expect("so much is there");
        drop(out);
        assert!(text.starts_with(b"0"), "the first line is about event 0");
        let out = child.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&out.stderr), "");
        assert_eq!(out.status.code(), Some(0));
    }
}

#[test]
fn events_are_chosen_by_task_and_kind_and_keep_their_numbers() {
    let lines = |args: &[&str]| -> Vec<String> {
        let (status, out, err) = inspect("choice", &trace(), &[&["--events"], args].concat());
        assert_eq!((status, err.as_str()), (Some(0), ""));
        out.lines().map(str::to_owned).collect()
    };
    let all = lines(&[]);
    assert_eq!(all.len(), 9);
    for (n, line) in all.iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], n.to_string());
        assert!(words[2] == "cpu=1" && words[3].starts_with("task="), "{line}");
        assert!(words[5..].iter().all(|field| field.contains('=')), "{line}");
    }
    let numbers = |lines: Vec<String>| -> Vec<String> {
        lines.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(numbers(lines(&["--task", "1"])), ["4", "5", "6"]);
    assert_eq!(numbers(lines(&["--kind", "truth,exit", "--task", "0"])), ["7", "8"]);
    assert_eq!(lines(&["--kind", "lock"]), [""; 0]);
}

#[test]
fn everything_that_a_trace_may_have_fits_80_columns() {
    let mut header = Header::new(&"m".repeat(64), u16::MAX, Method::Perf);
    header.unseen = ptarmigan_trace::Unseen(2047);
    let mut w = Writer::new(Vec::new(), &header, 3).expect("a good header");
    let mut event = |kind| w.event(&Event { task: 0, cpu: 0, kind }).expect("a good event");
    for advice in 0..300 {
        event(Kind::Madvise { start: 1, pages: 1, advice });
    }
    for flags in [0, FaultFlags::USER] {
        event(Kind::Touched { start: 1 << 51, pages: 1 << 51, flags: FaultFlags(flags) });
    }
    event(Kind::LockAll { how: ptarmigan_trace::Locking(7) });
    event(Kind::StackLimit { pages: (1 << 52) - 1 });
    event(Kind::Pid(u32::MAX));
    event(Kind::Truth { tables: u32::MAX, at: Sampled::Exec });
    let trace = w.finish(u64::MAX).expect("memory takes everything").0;
    let (status, out, err) = inspect("wide", &trace, &[]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    for line in out.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(out.contains("at stops     2251799813685248 pages found in 1 run that"), "{out}");
    assert!(out.contains("system calls of 32-bit programs") && out.contains("stack-limit 1"), "{out}");
}

#[test]
fn wrong_usage() {
    let out =
        Command::new(env!("CARGO_BIN_EXE_ptarmigan")).arg("inspect").output().expect("the program is there");
    assert_eq!(out.status.code(), Some(2));
}
