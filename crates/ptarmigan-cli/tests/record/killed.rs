//! Recorders and commands that get signals.
use super::common::{
    Dir, METHODS, go_on, kill, line_of, ptarmigan, recorder, report, run, run_on, spawned, started, wait_for,
};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn an_interrupt_keeps_what_is_there() {
    for method in METHODS {
        let dir = Dir::new(&format!("interrupt-{method}"));
        let file = dir.path("out.ptrace");
        let script = "for i in 1 2 3 4 5; do /bin/true; done; echo started; while :; do /bin/true; done";
        let Some(child) = started(method, &file, script) else { continue };
        let pid = child.id();
        kill(pid as i32, libc::SIGINT);
        let (status, stderr) = run_on(child);
        assert_eq!(status, Some(130), "{stderr}");
        assert!(report(&file).execs >= 6);
        assert_eq!(dir.files(), ["out.ptrace"]);
        assert!(!Path::new(&instance_of(pid)).exists(), "the tracefs instance is removed");
    }
}

#[test]
fn a_signal_to_the_process_group_counts_once() {
    // As `timeout` does it: both processes of the recorder and the command get the signal, and each
    // passes it on. The command takes its time to end.
    for method in METHODS {
        let dir = Dir::new(&format!("group-{method}"));
        let file = dir.path("out.ptrace");
        let script = "trap '/bin/sleep 0.5; exit 5' TERM; echo started; while :; do read x; done";
        let mut command = recorder(method, &file, script);
        let Some(mut child) = spawned(command.process_group(0)) else { continue };
        kill(-(child.id() as i32), libc::SIGTERM);
        for _ in 0..3 {
            go_on(&mut child);
        }
        let (status, stderr) = run_on(child);
        assert_eq!(status, Some(5), "{method}: {stderr}");
        assert!(report(&file).execs >= 2, "the trace is kept");
    }
}

#[test]
fn a_second_signal_ends_a_command_that_ignores_the_first() {
    for method in METHODS {
        let dir = Dir::new(&format!("second-{method}"));
        let file = dir.path("out.ptrace");
        let script = "trap '' INT TERM; echo started; while :; do /bin/true; done";
        let Some(child) = started(method, &file, script) else { continue };
        kill(child.id() as i32, libc::SIGTERM);
        std::thread::sleep(std::time::Duration::from_millis(400));
        kill(child.id() as i32, libc::SIGTERM);
        let (status, stderr) = run_on(child);
        assert_eq!(status, Some(137), "{method}: {stderr}");
        assert!(report(&file).execs >= 1, "the trace is kept");
    }
}

#[test]
fn a_command_outlives_its_recorder() {
    for (signal, name) in [(libc::SIGKILL, "KILL"), (libc::SIGQUIT, "QUIT")] {
        for method in METHODS {
            let dir = Dir::new(&format!("killed-{name}-{method}"));
            let (file, end) = (dir.path("out.ptrace"), dir.path("end"));
            let script = format!("echo started; read x; /bin/true && echo > {}", end.display());
            let Some(mut child) = started(method, &file, &script) else { continue };
            let mut input = child.stdin.take().expect("a pipe");
            kill(child.id() as i32, signal);
            child.wait().expect("it ends");
            std::io::Write::write_all(&mut input, b"\n").expect("the command reads");
            assert!(wait_for(|| end.exists()), "{method}: the command went on after SIG{name}");
            assert!(wait_for(|| dir.files() == ["end"]), "{method}: {:?}", dir.files());
        }
    }
}

#[test]
fn a_command_outlives_the_second_process_of_its_recorder() {
    let dir = Dir::new("killed-second");
    let (file, end) = (dir.path("out.ptrace"), dir.path("end"));
    let script = format!("echo started; read x; /bin/true && echo > {}", end.display());
    let Some(child) = started("tracefs", &file, &script) else { return };
    let first = child.id();
    let Some(second) = second_process(first) else {
        eprintln!("skipped: this kernel does not list children");
        run_on(child);
        return;
    };
    kill(second, libc::SIGKILL);
    let (status, stderr) = run_on(child);
    assert_eq!(status, Some(137), "{stderr}");
    assert!(end.exists(), "the command went on");
    assert_eq!(dir.files(), ["end"], "the first process has cleaned up");
    assert!(!Path::new(&instance_of(first)).exists());
}

/// The tracefs instance of a recorder.
fn instance_of(pid: u32) -> String {
    format!("/sys/kernel/tracing/instances/ptarmigan-{pid}")
}

#[test]
fn the_next_recorder_cleans_up_after_killed_ones_alone() {
    for method in METHODS {
        let dir = Dir::new(&format!("left-{method}"));
        let script = "echo started; read x";
        let start = |name: &str| spawned(recorder(method, &dir.path(name), script).process_group(0));
        let (Some(living), Some(mut first), Some(mut second)) = (start("a"), start("b"), start("c")) else {
            continue;
        };
        let left = [&mut first, &mut second].map(|child| {
            let pid = child.id();
            let second = second_process(pid);
            // Both processes of the recorder at once, and the command.
            kill(-(pid as i32), libc::SIGKILL);
            child.wait().expect("our child");
            // The second process has the lock of the directory, and ends when it has its turn.
            let ended = |pid| {
                std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(true, |mut files| files.next().is_none())
            };
            assert!(wait_for(|| second.is_none_or(ended)), "{method}: the second process is still there");
            pid
        });
        let of = |name: &str, pid: u32| format!(".{name}.{pid}");
        // The number of a killed recorder is another process's by now.
        let again = of("c", std::process::id());
        std::fs::rename(dir.path(&of("c", left[1])), dir.path(&again)).expect("it was left");
        // Directories of others.
        for name in [".x.1", ".b.2147483647"] {
            std::fs::create_dir(dir.path(name)).expect("room");
            std::fs::write(dir.path(name).join("file"), "").expect("room");
        }
        // A recorder was killed before it made a file, or after it had removed the last.
        std::fs::create_dir(dir.path(".d.2147483647")).expect("room");
        let lives = of("a", living.id());
        let before = dir.files();
        for name in [&lives, &of("b", left[0]), &again] {
            assert!(before.contains(name), "{method}: {name}: {before:?}");
        }
        let record = || {
            let mut command = ptarmigan();
            command.args(["record", "--method", method, "-o"]).arg(dir.path("d")).args(["--", "true"]);
            run(&mut command)
        };
        let (status, stderr) = record();
        assert_eq!(status, Some(0), "{stderr}");
        let mut expected = vec![lives, ".b.2147483647".to_owned(), ".x.1".to_owned(), "d".to_owned()];
        expected.sort();
        assert_eq!(dir.files(), expected, "{method}");
        for pid in left {
            assert!(!Path::new(&instance_of(pid)).exists(), "{method}");
        }
        assert_eq!(Path::new(&instance_of(living.id())).exists(), method == "tracefs");
        let (status, stderr) = run_on(living);
        assert_eq!(status, Some(0), "{method}: {stderr}");
        assert!(report(&dir.path("a")).execs >= 1);
    }
}

/// Returns the second process of a recorder. `None` if this kernel does not list children.
fn second_process(first: u32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

#[test]
fn signals_for_users_do_not_end_a_recording() {
    for method in METHODS {
        let dir = Dir::new(&format!("users-{method}"));
        let file = dir.path("out.ptrace");
        let script = "trap '' USR1 USR2; echo started; read x; /bin/true; exit 7";
        let mut command = recorder(method, &file, script);
        let Some(child) = spawned(command.process_group(0)) else { continue };
        let first = child.id() as i32;
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            for pid in [Some(first), second_process(first as u32), Some(-first)].into_iter().flatten() {
                kill(pid, signal);
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        let (status, stderr) = run_on(child);
        assert_eq!(status, Some(7), "{method}: {stderr}");
        let r = report(&file);
        assert_eq!((r.execs, r.unseen.contains(&"the end of the command")), (2, false), "{method}: {stderr}");
        assert_eq!(dir.files(), ["out.ptrace"]);
    }
}

/// Returns the state of a process, one letter.
fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_command_that_stops_stays_stopped_until_it_is_continued() {
    for method in METHODS {
        let dir = Dir::new(&format!("stop-{method}"));
        let file = dir.path("out.ptrace");
        // Not SIGTSTP, which a group without a shell ignores.
        let script = "echo $$; kill -STOP $$; echo on; read x; kill -STOP $$; /bin/true; exit 3";
        let mut command = recorder(method, &file, script);
        command.stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("the program is there");
        let Ok(pid) = line_of(&mut child).parse() else {
            eprintln!("skipped: {}", run_on(child).1.trim());
            continue;
        };
        let stopped = || matches!(state(pid), Some('T' | 't'));
        assert!(wait_for(stopped), "{method}: it stops");
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(stopped(), "{method}: it stays stopped");
        kill(pid, libc::SIGCONT);
        assert_eq!(line_of(&mut child), "on", "{method}");
        go_on(&mut child);
        assert!(wait_for(stopped), "{method}: it stops again");
        kill(pid, libc::SIGCONT);
        let (status, stderr) = run_on(child);
        assert_eq!(status, Some(3), "{method}: {stderr}");
        assert_eq!(report(&file).execs, 2);
    }
}

/// Returns the signals of a process that runs in `command`: pending, blocked and ignored.
fn signals(command: &mut Command) -> Vec<String> {
    let ignored = |signal| {
        // SAFETY: ignoring a signal runs no code, and the call is async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    };
    // SAFETY: the closure makes async-signal-safe calls only. The set lives until they return.
    unsafe {
        command.pre_exec(move || {
            [libc::SIGHUP, libc::SIGINT, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM]
                .into_iter()
                .for_each(ignored);
            let mut set = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            libc::sigaddset(&raw mut set, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            Ok(())
        });
    }
    let out = command.output().expect("the program is there");
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_command_finds_the_signals_as_the_recorder_found_them() {
    let show = ["grep", "^Sig", "/proc/self/status"];
    let bare = signals(Command::new(show[0]).args(&show[1..]));
    assert!(bare.iter().any(|line| line.starts_with("SigIgn:") && !line.ends_with(" 0000000000000000")));
    for method in METHODS {
        let dir = Dir::new(&format!("signals-{method}"));
        let file = dir.path("out.ptrace");
        let probe =
            ptarmigan().args(["record", "--method", method, "-o"]).arg(&file).args(["--", "true"]).output();
        if !probe.is_ok_and(|out| out.status.success()) {
            eprintln!("skipped: {method} cannot record here");
            continue;
        }
        let mut command = ptarmigan();
        command.args(["record", "--method", method, "-o"]).arg(&file).arg("--").args(show);
        let recorded = signals(&mut command);
        // Of the queue only the limit belongs to the process.
        let same = |lines: &[String]| -> Vec<String> {
            lines.iter().filter(|line| !line.starts_with("SigQ")).cloned().collect()
        };
        assert_eq!(same(&recorded), same(&bare), "{method}");
    }
}
