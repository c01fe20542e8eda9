//! Recordings of a named process that never holds still.
use super::attach::{Server, attach, end_of, field, replayed};
use super::common::{Dir, METHODS, kill, ptarmigan, report};
use std::time::Duration;

#[test]
fn a_process_whose_threads_keep_starting_programs_is_recorded() {
    for method in METHODS {
        let dir = Dir::new(&format!("named-{method}"));
        let Some(mut server) = Server::start_as(&dir, "spawner.c", None, &[]) else { return };
        let pid = server.pid().to_string();
        let Some(recorder) = attach(&dir, method, None, &pid, &[]) else { continue };
        let mut count = || server.answers("count").parse::<u64>().expect("a number");
        let before = count();
        std::thread::sleep(Duration::from_millis(1_500));
        let started = count() - before;
        kill(recorder.id() as i32, libc::SIGTERM);
        let (status, stderr) = end_of(recorder, &dir);
        assert_eq!(status, Some(0), "{stderr}");
        let file = dir.path("out.ptrace");
        let r = report(&file);
        // The first programs of it may have begun before it was read.
        assert!((r.forks + r.vforks) * 100 >= started * 95, "{method}: {} of {started}: {stderr}", r.vforks);
        assert!(r.vforks > r.forks && r.running.processes >= 1, "{method}: {stderr}");
        for line in stderr.lines().filter(|line| line.contains("stood still for")) {
            assert!(line.contains(&format!("process {pid} (spawner)")), "{line}");
            stood_at_most(server.pid(), line);
        }
        // What is missing is told wherever the recording is read.
        let part = format!("{} of ", r.programs.recorded);
        let says = |args: &[&str]| {
            let out = ptarmigan().args(args).arg(&file).output().expect("the program is there");
            String::from_utf8_lossy(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let (inspect, advise) = (says(&["inspect"]), says(&["advise"]));
        let missing = r.programs.unrecorded > 0;
        let noted: u64 = r.unread.iter().map(|row| row.programs).sum();
        assert_eq!(noted, r.programs.unrecorded, "{method}: each has a note");
        assert_eq!(inspect.contains("recorded; the others ended"), missing, "{method}: {inspect}");
        assert_eq!(advise.contains("nothing is known of the others"), missing, "{method}: {advise}");
        assert!(!missing || inspect.contains(&part), "{method}: {inspect}");
        assert!(!advise.contains("does not fork"), "{method}: {advise}");
    }
}

/// Checks that a stop took at most 20 ms for each 100 MiB mapped. A machine that is busy may take
/// longer, and the line says so.
fn stood_at_most(pid: i32, line: &str) {
    let (_, time) = line.split_once("stood still for ").expect("a stop");
    let mut words = time.split([' ', ',', ';']);
    let time: f64 = words.next().expect("a time").parse().expect("a number");
    let time = match words.next() {
        Some("µs") => time / 1e3,
        Some("ms") => time,
        Some("s") => time * 1e3,
        unit => panic!("{unit:?}: {line}"),
    };
    let mapped = field(&pid.to_string(), "VmSize:") / (100 << 10) + 1;
    let most = 20.0 * mapped as f64;
    assert!(time <= most || line.contains("as the machine was busy"), "at most {most} ms: {line}");
}

#[test]
fn a_process_whose_reading_takes_long_goes_on_meanwhile() {
    let dir = Dir::new("named-areas");
    let Some(mut server) = Server::start_as(&dir, "areas.c", None, &[]) else { return };
    let Some(recorder) = attach(&dir, "tracefs", None, &server.pid().to_string(), &[]) else { return };
    std::thread::sleep(Duration::from_millis(300));
    let pid = server.pid();
    kill(recorder.id() as i32, libc::SIGTERM);
    let (status, stderr) = end_of(recorder, &dir);
    assert_eq!(status, Some(0), "{stderr}");
    let stops: Vec<&str> = stderr.lines().filter(|line| line.contains("stood still for")).collect();
    assert!(!stops.is_empty(), "{stderr}");
    for line in &stops {
        stood_at_most(pid, line);
    }
    assert!(stops[0].contains("the rest was read while it ran"), "{stderr}");
    let r = report(&dir.path("out.ptrace"));
    assert_eq!((r.running.processes, r.running.threads), (1, 1), "{stderr}");
    let (checked, equal, odd) = replayed(&dir.path("out.ptrace"));
    assert_eq!((equal, odd), (checked, 0), "{stderr}");
    assert_eq!(server.answers(""), "on");
}

#[test]
fn a_named_process_that_ends_at_once_is_an_error() {
    let dir = Dir::new("named-ends");
    let mut child = std::process::Command::new("sleep").arg("0.3").spawn().expect("it is there");
    let pid = child.id().to_string();
    // It is gone before the recording could begin, or ends in the middle of it.
    child.wait().expect("our child");
    let out = ptarmigan().args(["record", "-p", &pid, "-o"]).arg(dir.path("out.ptrace")).output();
    let out = out.expect("the program is there");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.lines().count() == 1 && said.contains(&format!("process {pid}")), "{said}");
    assert!(!dir.path("out.ptrace").exists());
}
