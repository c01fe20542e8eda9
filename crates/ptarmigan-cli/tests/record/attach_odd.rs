//! Attaching to processes that end, change or hide meanwhile: a trace or one line, no file beside
//! it, and the processes go on.
use super::attach::{NOBODY, Server, attach, end_of, field, is_root, program_for};
use super::common::{Dir, METHODS, heeds_signals, kill, report, run, wait_for};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Checks that a process is as it was before: no tracer, and not stopped. A recorder that a signal
/// has ended early has a second process, which may be at work still.
fn goes_on(pid: i32) {
    let tracer = || field(&pid.to_string(), "TracerPid:");
    assert!(wait_for(|| tracer() == 0), "{} traces it still", tracer());
    let state = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).expect("a state");
        state.trim().to_owned()
    };
    assert!(wait_for(|| !state().starts_with(['t', 'T', 'Z', 'X'])), "{}", state());
}

/// Checks that only these files are left, and no instance of a recorder that has ended.
fn is_clean(dir: &Dir) {
    // A recorder that a signal has ended early is cleaned up after by its second process.
    let left = || dir.files().iter().any(|name| name.starts_with('.'));
    assert!(wait_for(|| !left()), "{:?}", dir.files());
    // So is one of another test.
    let instances = || {
        let all = std::fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
        let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let of_none = |name: &String| {
            let recorder = name.strip_prefix("ptarmigan-").map(|pid| format!("/proc/{pid}"));
            recorder.is_some_and(|recorder| !Path::new(&recorder).exists())
        };
        names.filter(of_none).collect::<Vec<_>>()
    };
    assert!(wait_for(|| instances().is_empty()), "{:?} are left", instances());
}

fn odd(dir: &Dir, user: Option<u32>, args: &[&str]) -> Option<Server> {
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).expect("our directory");
    Server::start_as(dir, "odd.c", user, args)
}

#[test]
fn a_32_bit_program_of_an_attached_process_runs_unrecorded() {
    for method in METHODS {
        let dir = Dir::new(&format!("attached-32-{method}"));
        let (source, program) = (dir.path("narrow.c"), dir.path("narrow"));
        let exit = "void _start(void) { for (;;) __asm__ volatile(\"int $0x80\" :: \"a\"(1), \"b\"(42)); }";
        std::fs::write(&source, exit).expect("room");
        let mut cc = Command::new("cc");
        cc.args(["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pie", "-no-pie", "-o"]);
        let built = cc.arg(&program).arg(&source).output().is_ok_and(|out| out.status.success());
        let runs = Command::new(&program).status().is_ok_and(|status| status.code() == Some(42));
        if !built || !runs {
            return eprintln!("skipped: no 32-bit programs here");
        }
        let path = program.to_string_lossy().into_owned();
        let Some(mut server) = odd(&dir, None, &["", &path]) else { return };
        let Some(recorder) = attach(&dir, method, None, &server.pid().to_string(), &[]) else { continue };
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(server.answers("run"), "run 42", "{method}");
        kill(recorder.id() as i32, libc::SIGINT);
        let (status, stderr) = end_of(recorder, &dir);
        assert_eq!(status, Some(0), "{method}: {stderr}");
        assert!(stderr.contains("programs that were not recorded"), "{method}: {stderr}");
        let r = report(&dir.path("out.ptrace"));
        let noted: u64 = r.unread.iter().map(|row| row.programs).sum();
        assert_eq!((r.forks, noted), (1, r.programs.unrecorded), "{method}: {:?}", r.unread);
        goes_on(server.pid());
        is_clean(&dir);
    }
}

#[test]
fn a_setuid_program_of_an_attached_process_runs_as_the_caller() {
    if !is_root() {
        return eprintln!("skipped: only root can make such a program");
    }
    let dir = Dir::new("attached-suid");
    let id = dir.path("id");
    // It ends with 0 for root, and with 1 for others.
    let source = "#include <unistd.h>\nint main(void) { return geteuid() != 0; }";
    std::fs::write(dir.path("id.c"), source).expect("room");
    let built = Command::new("cc").arg("-o").arg(&id).arg(dir.path("id.c")).output();
    if !built.is_ok_and(|out| out.status.success()) {
        return eprintln!("skipped: no compiler");
    }
    std::fs::set_permissions(&id, std::fs::Permissions::from_mode(0o4755)).expect("our file");
    let path = id.to_string_lossy().into_owned();
    let Some(mut server) = odd(&dir, Some(NOBODY), &["", &path]) else { return };
    if server.answers("run") != "run 0" {
        return eprintln!("skipped: the file system ignores set-user-ID");
    }
    let pid = server.pid().to_string();
    let Some(recorder) = attach(&dir, "perf", Some(NOBODY), &pid, &[]) else { return };
    assert_eq!(server.answers("run"), "run 1", "it runs as the caller");
    kill(recorder.id() as i32, libc::SIGINT);
    let (status, stderr) = end_of(recorder, &dir);
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(report(&dir.path("out.ptrace")).execs, 1, "{stderr}");
    goes_on(server.pid());
    assert_eq!(server.answers("run"), "run 0", "and as root again");
    is_clean(&dir);
}

#[test]
fn permission_that_goes_away_ends_no_process() {
    for method in METHODS {
        let user = (method == "perf" && is_root()).then_some(NOBODY);
        let dir = Dir::new(&format!("attached-hides-{method}"));
        let Some(mut server) = odd(&dir, user, &[""]) else { return };
        let pid = server.pid().to_string();
        let Some(recorder) = attach(&dir, method, user, &pid, &[]) else { continue };
        std::thread::sleep(Duration::from_millis(300));
        // /proc belongs to root then.
        assert_eq!(server.answers("hide"), "hide");
        if method == "tracefs" {
            assert_eq!(server.answers("user"), "user");
        }
        assert_eq!(server.answers("more"), "more");
        kill(recorder.id() as i32, libc::SIGINT);
        let (status, stderr) = end_of(recorder, &dir);
        assert_eq!(status, Some(0), "{method}: {stderr}");
        assert_eq!(report(&dir.path("out.ptrace")).running.processes, 1, "{method}: {stderr}");
        assert_eq!(server.answers("still there"), "still there");
        goes_on(server.pid());
        is_clean(&dir);
        // A hidden process is refused in one line, or attached to.
        let mut again = super::attach::run_as(program_for(&dir), user);
        again.args(["record", "--method", method, "--duration", "0.2", "-o"]).arg(dir.path("again.ptrace"));
        let (status, stderr) = run(again.args(["-p", &pid]));
        assert!(status == Some(0) || status == Some(1) && stderr.lines().count() == 1, "{method}: {stderr}");
        goes_on(server.pid());
    }
}

#[test]
fn threads_that_end_while_they_are_attached_to() {
    for method in METHODS {
        let dir = Dir::new(&format!("attached-threads-{method}"));
        let Some(mut server) = odd(&dir, None, &["threads"]) else { return };
        for round in 0..4 {
            let duration = ["--duration", "0.3"];
            let Some(recorder) = attach(&dir, method, None, &server.pid().to_string(), &duration) else {
                break;
            };
            let (status, stderr) = end_of(recorder, &dir);
            // A process that never holds still may be missing: then one line says so.
            let missing = status == Some(1) && stderr.contains("nothing of process");
            assert!(status == Some(0) || missing && method == "tracefs", "{method}, {round}: {stderr}");
            assert_eq!(server.answers("on"), "on", "{method}, {round}");
            goes_on(server.pid());
            is_clean(&dir);
        }
    }
}

#[test]
fn a_thousand_threads() {
    for method in METHODS {
        let dir = Dir::new(&format!("attached-thousand-{method}"));
        let Some(mut server) = odd(&dir, None, &["many"]) else { return };
        let pid = server.pid().to_string();
        let Some(recorder) = attach(&dir, method, None, &pid, &["--duration", "0.5"]) else { continue };
        let (status, stderr) = end_of(recorder, &dir);
        assert_eq!(status, Some(0), "{method}: {stderr}");
        let r = report(&dir.path("out.ptrace"));
        assert_eq!((r.running.threads, r.threads, r.forks), (1000, 1000, 0), "{method}: {stderr}");
        assert_eq!(server.answers("on"), "on");
        goes_on(server.pid());
        is_clean(&dir);
    }
}

#[test]
fn of_two_processes_one_ends_at_once() {
    for method in METHODS {
        let dir = Dir::new(&format!("attached-two-{method}"));
        let Some(mut server) = odd(&dir, None, &[""]) else { return };
        for millis in [0, 1, 3, 10, 30] {
            let mut short =
                Command::new("sleep").arg(format!("0.{:03}", 20 + millis)).spawn().expect("sleep");
            let mut command = program_for(&dir);
            command.args(["record", "--method", method, "--level", "1", "--duration", "0.2", "-o"]);
            command.arg(dir.path("out.ptrace")).args(["-p", &format!("{},{}", short.id(), server.pid())]);
            let (status, stderr) = run(heeds_signals(&mut command));
            if stderr.contains("not available") || stderr.contains("cannot be recorded") {
                eprintln!("skipped: {}", stderr.trim());
                break;
            }
            assert_eq!(short.wait().expect("our child").code(), Some(0), "it ends by itself");
            let gone = stderr.contains("there is no such process") || stderr.contains("has ended");
            assert!(status == Some(0) || status == Some(1) && gone, "{method}: {stderr}");
            assert_eq!(dir.path("out.ptrace").exists(), status == Some(0), "{method}: {stderr}");
            let _ = std::fs::remove_file(dir.path("out.ptrace"));
            goes_on(server.pid());
            is_clean(&dir);
        }
        assert_eq!(server.answers("on"), "on");
    }
}

#[test]
fn recordings_ended_at_any_moment_leave_no_trace() {
    for method in METHODS {
        let dir = Dir::new(&format!("attached-ends-{method}"));
        let Some(mut server) = odd(&dir, None, &["threads"]) else { return };
        for n in 0..12_u64 {
            let mut command = program_for(&dir);
            command.args(["record", "--method", method, "--level", "1", "-o"]).arg(dir.path("out.ptrace"));
            command.args(["-p", &server.pid().to_string()]).stderr(Stdio::null());
            let mut recorder = heeds_signals(&mut command).spawn().expect("the program is there");
            std::thread::sleep(Duration::from_millis(n * n * 3));
            kill(recorder.id() as i32, libc::SIGINT);
            recorder.wait().expect("our child");
            goes_on(server.pid());
            is_clean(&dir);
        }
        assert_eq!(server.answers("on"), "on");
    }
}
