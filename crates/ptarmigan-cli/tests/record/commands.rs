//! Commands of every kind: they cannot tell that they are recorded.
use super::common::{Dir, METHODS, ptarmigan, report, run, with_each_method};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Records `command` with each method that works here. Returns the output of each.
fn record(test: &str, command: &[&OsStr], check: impl Fn(&str, Output, &Path, &Dir)) {
    for method in METHODS {
        let dir = Dir::new(&format!("{test}-{method}"));
        let file = dir.path("out.ptrace");
        let mut probe = ptarmigan();
        let (status, stderr) =
            run(probe.args(["record", "--method", method, "-o"]).arg(&file).args(["--", "true"]));
        if status != Some(0) {
            eprintln!("skipped: {test} with {method}: {}", stderr.trim());
            continue;
        }
        std::fs::remove_file(&file).expect("it was recorded");
        let mut recorder = ptarmigan();
        recorder.args(["record", "--method", method, "-o"]).arg(&file).arg("--").args(command);
        let out = recorder.stdin(Stdio::null()).output().expect("the program is there");
        check(method, out, &file, &dir);
    }
}

fn words<'a>(words: &[&'a str]) -> Vec<&'a OsStr> {
    words.iter().copied().map(OsStr::new).collect()
}

/// Writes a program.
fn program(dir: &Dir, name: &str, text: &str, mode: u32) -> OsString {
    let path = dir.path(name);
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("our file");
    path.into_os_string()
}

#[test]
fn a_script_without_an_interpreter_is_run_by_the_shell() {
    let dir = Dir::new("script");
    let script = program(&dir, "script", "/bin/true\nexit 4\n", 0o755);
    record("script", &[&script], |method, out, file, _| {
        assert_eq!(out.status.code(), Some(4), "{method}: {out:?}");
        let r = report(file);
        // The program with more tables gives the name: addresses that are random decide which.
        assert!(["script", "true"].contains(&r.name.as_str()) && r.execs == 2, "{method}: {}", r.name);
    });
}

#[test]
fn what_is_no_program_is_refused_in_one_line() {
    let dir = Dir::new("no-program");
    let plain = program(&dir, "plain", "exit 0\n", 0o644);
    // Root may read every file, but execute only files that somebody may execute.
    for command in [dir.0.as_os_str(), &plain] {
        record("no-program", &[command], |method, out, _, dir| {
            let stderr = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(126), "{method}: {stderr}");
            assert!(stderr.contains("Permission denied") && stderr.lines().count() == 1, "{stderr}");
            assert_eq!(dir.files(), [""; 0], "nothing is left");
        });
    }
    record("empty", &words(&[""]), |method, out, _, dir| {
        assert_eq!(out.status.code(), Some(127), "{method}: {out:?}");
        assert_eq!(dir.files(), [""; 0], "nothing is left");
    });
}

#[test]
fn arguments_need_not_be_text() {
    let odd = OsString::from_vec(b"\xff\xfe\n\x1b[31m".to_vec());
    record("bytes", &[OsStr::new("printf"), OsStr::new("%s"), &odd], |method, out, file, _| {
        assert_eq!((out.status.code(), &out.stdout[..]), (Some(0), odd.as_bytes()), "{method}");
        assert_eq!(report(file).execs, 1);
    });
    // As the command itself it is named in one line, without its control characters.
    record("bytes-name", &[&odd], |method, out, _, _| {
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(127), "{method}: {stderr}");
        assert!(stderr.lines().count() == 1 && !stderr.contains('\x1b'), "{stderr}");
    });
}

#[test]
fn a_command_may_have_a_megabyte_of_arguments() {
    let long = "x".repeat(100 << 10);
    let command = [&["true"][..], &[long.as_str(); 10]].concat();
    record("arguments", &words(&command), |method, out, file, _| {
        assert_eq!(out.status.code(), Some(0), "{method}: {out:?}");
        let events = ptarmigan_trace::Reader::open(file).expect("a trace");
        let mut kinds = events.map(|e| e.expect("an event").kind);
        let first = kinds.find(|kind| !matches!(kind, ptarmigan_trace::Kind::Note(_)));
        let Some(ptarmigan_trace::Kind::Exec { arg_pages, .. }) = first else { panic!("{first:?}") };
        assert!((250..300).contains(&arg_pages), "{method}: {arg_pages} pages");
    });
}

#[test]
fn a_command_gets_no_open_file_of_the_recorder() {
    let list = ["sh", "-c", "ls /proc/$$/fd"];
    let bare = Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()).output().expect("a shell");
    record("files", &words(&list), |method, out, _, _| {
        assert_eq!(out.status.code(), Some(0), "{method}: {out:?}");
        assert_eq!(out.stdout, bare.stdout, "{method}");
    });
}

#[test]
fn standard_input_and_output_may_be_closed() {
    for method in METHODS {
        let dir = Dir::new(&format!("closed-{method}"));
        let (file, end) = (dir.path("out.ptrace"), dir.path("end"));
        for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let script = format!(
                "exec \"$0\" record --method {method} -o \"$1\" -- sh -c 'exec 2>/dev/null; read x; echo on; \
                 echo >\"$0\"; exit 6' \"$2\" {closed}"
            );
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_ptarmigan")]).arg(&file).arg(&end);
            let out = shell.stdin(Stdio::null()).output().expect("a shell");
            if out.status.code() == Some(1) && !end.exists() {
                eprintln!("skipped: {method} cannot record here");
                break;
            }
            assert_eq!(out.status.code(), Some(6), "{method} {closed}: {out:?}");
            assert_eq!(report(&file).execs, 1, "{method} {closed}");
            assert_eq!(dir.files(), ["end", "out.ptrace"]);
            std::fs::remove_file(&end).expect("it was written");
        }
    }
}

#[test]
fn thousands_of_short_processes_are_all_there() {
    let script = "i=0; while [ $i -lt 1500 ]; do (:); i=$((i+1)); done; \
        i=0; while [ $i -lt 100 ]; do /bin/true & i=$((i+1)); done; wait";
    with_each_method("processes", &["sh", "-c", script], |status, stderr, file, _| {
        assert_eq!(status, Some(0), "{stderr}");
        let r = report(file);
        assert_eq!((r.tasks, r.execs, r.lost), (1601, 101, 0), "{stderr}");
        assert_eq!(r.samples.exit, 1601, "every task's end was sampled");
    });
}

/// Set in a recorded run of this program, which then only makes the child of
/// [`a_child_without_a_tracer_runs_as_ever`].
const HELPER: &str = "PTARMIGAN_TEST_UNTRACED";

/// Makes a child that no tracer follows, which starts a program. Returns its status.
fn untraced_child(newer: bool) -> i32 {
    let flags = libc::CLONE_UNTRACED as u64;
    let path = c"/bin/sh".as_ptr();
    let argv = [path, c"-c".as_ptr(), c"/bin/true && exit 9".as_ptr(), std::ptr::null()];
    // The fields of `clone_args` up to the stack's size, and the thread pointer.
    let args: [u64; 8] = [flags, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    // SAFETY: both calls copy this process. The child makes async-signal-safe calls only, with
    // pointers to memory that it has, and never returns.
    let pid = unsafe {
        let pid = if newer {
            libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args))
        } else {
            libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD as u64, 0, 0, 0, 0)
        };
        if pid == 0 {
            libc::execv(path, argv.as_ptr());
            libc::_exit(100);
        }
        pid
    };
    let mut status = 0;
    // SAFETY: waitpid writes one int, which lives until it returns.
    assert_eq!(unsafe { libc::waitpid(pid as i32, &raw mut status, 0) }, pid as i32);
    libc::WEXITSTATUS(status)
}

#[test]
fn a_child_without_a_tracer_runs_as_ever() {
    if std::env::var_os(HELPER).is_some() {
        assert_eq!((untraced_child(false), untraced_child(true)), (9, 9));
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let test = "commands::a_child_without_a_tracer_runs_as_ever";
    let command = [OsStr::new("env"), OsStr::new("PTARMIGAN_TEST_UNTRACED=1"), program.as_os_str()];
    let command = [&command[..], &words(&["--exact", test])].concat();
    record("untraced", &command, |method, out, file, _| {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(out.status.code(), Some(0), "{method}: {} {}", text(&out.stdout), text(&out.stderr));
        assert!(text(&out.stdout).contains("1 passed"), "{}", text(&out.stdout));
        // `env`, this program, and two shells with a program each.
        assert_eq!(report(file).execs, 6, "{method}");
    });
}

#[test]
fn the_end_of_a_child_is_seen_where_such_signals_are_ignored() {
    for method in METHODS {
        let dir = Dir::new(&format!("ignored-{method}"));
        let file = dir.path("out.ptrace");
        let mut command = ptarmigan();
        command.args(["record", "--method", method, "-o"]).arg(&file).args(["--", "sh", "-c", "exit 7"]);
        // SAFETY: signal is async-signal-safe, and ignoring a signal runs no code.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                Ok(())
            });
        }
        let (status, stderr) = run(&mut command);
        if status == Some(1) {
            eprintln!("skipped: {}", stderr.trim());
            continue;
        }
        assert_eq!(status, Some(7), "{method}: {stderr}");
    }
}
