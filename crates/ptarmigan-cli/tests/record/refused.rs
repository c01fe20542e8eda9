//! Machines that lack something: each names the missing part, before the command runs.
use super::common::{Dir, copy_program, ptarmigan, report, run};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes a command fail in these system calls, it and its descendants.
fn without<'a>(command: &'a mut Command, calls: &[i64], errno: i32) -> &'a mut Command {
    let op = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call as u32, 0, 1));
        filter.push(op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0));
    }
    filter.push(op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    // SAFETY: both calls are async-signal-safe and get a program that the closure owns.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            match libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    }
}

/// Returns whether a method can record here.
fn works(method: &str, dir: &Dir) -> bool {
    let file = dir.path("probe");
    let (status, stderr) =
        run(ptarmigan().args(["record", "--method", method, "-o"]).arg(&file).args(["--", "true"]));
    let _ = std::fs::remove_file(&file);
    if status != Some(0) {
        eprintln!("skipped: {}", stderr.trim());
    }
    status == Some(0)
}

/// Runs a recorder that must say in one line why it cannot record `touch`, which must not run.
fn says(recorder: &mut Command, dir: &Dir, what: &str) {
    let ran = dir.path("ran");
    let (status, stderr) =
        run(recorder.arg("-o").arg(dir.path("out.ptrace")).args(["--", "touch"]).arg(&ran));
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.starts_with("ptarmigan: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains(what), "{stderr}");
    assert_eq!(dir.files(), [""; 0], "nothing ran, and nothing is left: {stderr}");
}

fn recorder(method: &str) -> Command {
    let mut command = ptarmigan();
    command.args(["record", "--method", method]);
    command
}

#[test]
fn a_filter_that_forbids_ptrace() {
    for method in ["tracefs", "perf"] {
        let dir = Dir::new(&format!("no-ptrace-{method}"));
        if works(method, &dir) {
            let mut command = recorder(method);
            let command = without(&mut command, &[libc::SYS_ptrace], libc::EPERM);
            says(command, &dir, "ptrace is refused: Operation not permitted");
        }
    }
}

#[test]
fn a_filter_that_forbids_filters_or_their_listeners() {
    for method in ["tracefs", "perf"] {
        let dir = Dir::new(&format!("no-seccomp-{method}"));
        if works(method, &dir) {
            let mut command = recorder(method);
            let command = without(&mut command, &[libc::SYS_seccomp], libc::EPERM);
            says(command, &dir, "cannot be started with a system-call filter");
        }
    }
    let dir = Dir::new("no-listener");
    if works("tracefs", &dir) {
        let mut command = recorder("tracefs");
        says(without(&mut command, &[libc::SYS_pidfd_getfd], libc::ENOSYS), &dir, "use --method perf");
    }
}

#[test]
fn a_filter_that_forbids_perf_events() {
    let dir = Dir::new("no-perf");
    if works("perf", &dir) {
        for errno in [libc::EACCES, libc::EPERM, libc::ENOSYS] {
            let mut command = recorder("perf");
            let command = without(&mut command, &[libc::SYS_perf_event_open], errno);
            says(command, &dir, "perf: page faults cannot be recorded: ");
        }
    }
    // tracefs does without them.
    if works("tracefs", &dir) {
        let file = dir.path("out.ptrace");
        let mut command = recorder("tracefs");
        without(&mut command, &[libc::SYS_perf_event_open], libc::EPERM);
        let (status, stderr) = run(command.arg("-o").arg(&file).args(["--", "true"]));
        assert_eq!(status, Some(0), "{stderr}");
        assert_eq!(report(&file).execs, 1);
    }
}

/// Runs `command` in new namespaces, made by `unshare` with these options, after the shell's
/// `prepare`. `None` if they cannot be made.
fn unshared(options: &[&str], prepare: &str, command: &Command) -> Option<Command> {
    let probe = Command::new("unshare")
        .args(options)
        .args(["sh", "-c", prepare])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no namespaces can be made here");
        return None;
    }
    let mut inside = Command::new("unshare");
    inside.args(options).args(["sh", "-c", &format!("{prepare} && exec \"$@\"")]).arg("sh");
    inside.arg(command.get_program()).args(command.get_args());
    Some(inside)
}

/// Records two programs in namespaces without a method named. They must be recorded with perf.
fn falls_back(options: &[&str], prepare: &str, dir: &Dir, why: &str) {
    let file = dir.path("out.ptrace");
    let Some(mut auto) = unshared(options, prepare, &recorder("auto")) else { return };
    let (status, stderr) = run(auto.arg("-o").arg(&file).args(["--", "sh", "-c", "/bin/true; exit 3"]));
    assert_eq!(status, Some(3), "{stderr}");
    assert!(stderr.contains(why), "{stderr}");
    let r = report(&file);
    assert_eq!((r.method, r.execs, r.tasks), ("perf", 2, 2), "{stderr}");
}

#[test]
fn a_machine_without_tracefs() {
    let dir = Dir::new("no-tracefs");
    if !works("perf", &dir) {
        return;
    }
    // The place where it would be mounted is hidden.
    let (options, prepare) = (["-m"], "mount -t tmpfs none /sys/kernel");
    if let Some(mut command) = unshared(&options, prepare, &recorder("tracefs")) {
        says(&mut command, &dir, "method tracefs is not available: tracefs cannot be mounted at ");
        let mut command = unshared(&options, prepare, &recorder("tracefs")).expect("again");
        says(&mut command, &dir, "; use --method perf");
        falls_back(&options, prepare, &dir, "method tracefs is not available: ");
    }
}

#[test]
fn a_pid_namespace_as_containers_have() {
    let dir = Dir::new("namespace");
    if !works("perf", &dir) {
        return;
    }
    let options = ["-p", "-f", "--mount-proc"];
    if let Some(mut command) = unshared(&options, "true", &recorder("tracefs")) {
        says(&mut command, &dir, "this pid namespace");
        falls_back(&options, "true", &dir, "this pid namespace");
    }
}

#[test]
fn a_user_without_privileges() {
    // Root becomes nobody; others are it already.
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: every test shows it here");
        return;
    }
    let dir = Dir::new("nobody");
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).expect("our directory");
    // A copy, as the directory of this program may be root's alone.
    let program = dir.path("program");
    copy_program(env!("CARGO_BIN_EXE_ptarmigan"), &program);
    let nobody = |method| {
        let mut command = Command::new(&program);
        command.args(["record", "--method", method, "-o"]).arg(dir.path("out.ptrace"));
        command.args(["--", "sh", "-c", "/bin/true; exit 3"]).uid(65534).gid(65534).current_dir("/");
        command
    };
    let (status, stderr) = run(&mut nobody("tracefs"));
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("it needs root; use --method perf"), "{stderr}");
    let (status, stderr) = run(&mut nobody("auto"));
    if status == Some(1) && stderr.contains("perf: page faults cannot be recorded: ") {
        eprintln!("skipped: {}", stderr.trim());
        return;
    }
    assert_eq!(status, Some(3), "{stderr}");
    assert!(!stderr.contains("not available"), "no surprise for a user: {stderr}");
    assert_eq!(report(&dir.path("out.ptrace")).method, "perf");
}

/// Runs a command with everything that it starts under a tracer: this thread. Returns its status.
fn traced(command: &mut Command) -> i32 {
    // SAFETY: ptrace is async-signal-safe, and this request accesses no memory.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    // It stops at its execve, which ends the wait for its start.
    let first = command.spawn().expect("the program is there").id() as i32;
    let options = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
    let mut begun = false;
    loop {
        let mut status = 0;
        // Other threads' children are not waited for.
        let flags = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: waitpid writes one int, which lives until it returns. The ptrace requests take
        // numbers.
        unsafe {
            let pid = libc::waitpid(-1, &raw mut status, flags);
            assert!(pid > 0, "its end is seen first");
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                if pid == first {
                    return if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 255 };
                }
                continue;
            }
            if !begun {
                begun = true;
                libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options | libc::PTRACE_O_EXITKILL);
            }
            let signal = libc::WSTOPSIG(status);
            let quiet = status >> 16 != 0 || matches!(signal, libc::SIGTRAP | libc::SIGSTOP);
            libc::ptrace(libc::PTRACE_CONT, pid, 0, if quiet { 0 } else { signal });
        }
    }
}

#[test]
fn a_tracer_that_follows_the_recorder() {
    for method in ["tracefs", "perf"] {
        let dir = Dir::new(&format!("traced-{method}"));
        if !works(method, &dir) {
            continue;
        }
        let (ran, said) = (dir.path("ran"), dir.path("said"));
        let stderr = std::fs::File::create(&said).expect("a file");
        let mut command = recorder(method);
        command.arg("-o").arg(dir.path("out.ptrace")).args(["--", "touch"]).arg(&ran).stderr(stderr);
        let status = traced(&mut command);
        let stderr = std::fs::read_to_string(&said).expect("our file");
        assert_eq!(status, 1, "{method}: {stderr}");
        assert!(
            stderr.starts_with("ptarmigan: ptrace is refused: ") && stderr.lines().count() == 1,
            "{stderr}"
        );
        assert!(stderr.contains("traces the command already; record without it"), "{stderr}");
        assert_eq!(dir.files(), ["said"], "nothing ran, and nothing is left");
    }
}

#[test]
fn a_disk_that_is_full_at_the_start() {
    for method in ["tracefs", "perf"] {
        let dir = Dir::new(&format!("full-start-{method}"));
        if !works(method, &dir) {
            continue;
        }
        let small = dir.path("small");
        let Some(_mounted) = super::common::Mounted::new(&small, "64k") else { return };
        std::fs::write(small.join("rest"), vec![0; 128 << 10]).expect_err("it is full");
        let ran = dir.path("ran");
        let mut command = recorder(method);
        let file = small.join("out.ptrace");
        let (status, stderr) = run(command.arg("-o").arg(&file).args(["--", "touch"]).arg(&ran));
        assert_eq!(status, Some(1), "{stderr}");
        assert!(stderr.contains("cannot be written: No space left"), "{stderr}");
        assert!(stderr.lines().count() == 1 && !ran.exists(), "{stderr}");
        assert!(!Path::new(&file).exists(), "{stderr}");
    }
}
