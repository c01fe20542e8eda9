//! Records real commands with the built program. A test that cannot record on this machine says so
//! and passes.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
use ptarmigan_cli::inspect::{self, Inspection};
use ptarmigan_trace::{AreaKind, Event, Kind, Reader};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const METHODS: [&str; 2] = ["tracefs", "perf"];

/// A directory for one test, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ptarmigan-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("our directory");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ptarmigan() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ptarmigan"))
}

fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("the program is there");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Records with each method that works on this machine.
fn with_each_method(test: &str, command: &[&str], check: impl Fn(Option<i32>, &str, &Path, &Dir)) {
    for method in METHODS {
        let dir = Dir::new(&format!("{test}-{method}"));
        let probe = dir.path("probe");
        let (status, stderr) =
            run(ptarmigan().args(["record", "--method", method, "-o"]).arg(&probe).args(["--", "true"]));
        if status != Some(0) {
            assert!(!stderr.contains("panicked"), "{stderr}");
            eprintln!("skipped: {test} with {method}: {}", stderr.trim());
            continue;
        }
        std::fs::remove_file(&probe).expect("it was recorded");
        let file = dir.path("out.ptrace");
        let (status, stderr) =
            run(ptarmigan().args(["record", "--method", method, "-o"]).arg(&file).arg("--").args(command));
        check(status, &stderr, &file, &dir);
    }
}

fn report(file: &Path) -> Inspection {
    inspect::report(file).expect("a whole trace")
}

#[test]
fn true_is_one_program() {
    with_each_method("true", &["/bin/true"], |status, stderr, file, dir| {
        assert_eq!(status, Some(0), "{stderr}");
        assert_eq!(dir.files(), ["out.ptrace"], "no temporary file is left");
        let r = report(file);
        assert_eq!((r.name.as_str(), r.tasks, r.execs, r.samples.exit, r.lost), ("true", 1, 1, 1, 0));
        let events: Vec<Event> = Reader::open(file).expect("a trace").map(|e| e.expect("an event")).collect();
        let Kind::Exec { arg_pages, .. } = events[0].kind else { panic!("{:?}", events[0]) };
        assert!((1..64).contains(&arg_pages), "{arg_pages} argument pages");
        let area = |wanted: AreaKind| {
            events.iter().filter(|e| matches!(e.kind, Kind::Area { kind, .. } if kind == wanted)).count()
        };
        assert_eq!(area(AreaKind::Stack), 1);
        assert!(area(AreaKind::File) >= 4 && area(AreaKind::Special) >= 1);
        assert!(matches!(
            events[events.len() - 1].kind,
            Kind::Exit { last: true } | Kind::TlbFlush { .. } | Kind::Idle
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
fn an_interrupt_keeps_what_is_there() {
    for method in METHODS {
        let dir = Dir::new(&format!("interrupt-{method}"));
        let file = dir.path("out.ptrace");
        let mut child = ptarmigan()
            .args(["record", "--method", method, "-o"])
            .arg(&file)
            .args(["--", "sh", "-c", "echo started; while :; do /bin/true; done"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let mut first = [0; 1];
        let out = child.stdout.as_mut().expect("a pipe");
        if std::io::Read::read(out, &mut first).unwrap_or(0) == 0 {
            eprintln!("skipped: interrupt with {method}: it cannot record here");
            let _ = child.wait();
            continue;
        }
        std::thread::sleep(Duration::from_millis(200));
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
        assert!(kill.success());
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
        assert!(report(&file).events > 50);
        assert_eq!(dir.files(), ["out.ptrace"]);
        let instance = format!("/sys/kernel/tracing/instances/ptarmigan-{}", child.id());
        assert!(!Path::new(&instance).exists(), "the tracefs instance is removed");
    }
}

/// Starts a recording of `script` and waits for its first word. `None` if nothing can be recorded.
fn started(method: &str, file: &Path, script: &str) -> Option<std::process::Child> {
    let mut child = ptarmigan()
        .args(["record", "--method", method, "-o"])
        .arg(file)
        .args(["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program is there");
    let mut first = [0; 1];
    let out = child.stdout.as_mut().expect("a pipe");
    if std::io::Read::read(out, &mut first).unwrap_or(0) > 0 {
        return Some(child);
    }
    eprintln!("skipped: {method} cannot record here");
    let _ = child.wait();
    None
}

/// Waits until a condition holds, for ten seconds at most.
fn wait_for(mut holds: impl FnMut() -> bool) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        holds()
    })
}

#[test]
fn a_command_outlives_its_recorder() {
    for method in METHODS {
        let dir = Dir::new(&format!("killed-{method}"));
        let (file, end) = (dir.path("out.ptrace"), dir.path("end"));
        let script = format!("echo started; sleep 0.5; /bin/true && echo > {}", end.display());
        let Some(mut child) = started(method, &file, &script) else { continue };
        child.kill().expect("a signal");
        child.wait().expect("it ends");
        assert!(wait_for(|| end.exists()), "{method}: the command went on");
        assert!(wait_for(|| dir.files() == ["end"]), "{method}: {:?}", dir.files());
    }
}

#[test]
fn a_command_outlives_the_second_process_of_its_recorder() {
    let dir = Dir::new("killed-second");
    let (file, end) = (dir.path("out.ptrace"), dir.path("end"));
    let script = format!("echo started; sleep 0.5; /bin/true && echo > {}", end.display());
    let Some(mut child) = started("tracefs", &file, &script) else { return };
    let found = Command::new("pgrep").args(["-P", &child.id().to_string()]).output();
    let second = found.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    if second.is_empty() {
        eprintln!("skipped: no pgrep here");
        child.wait().expect("it ends");
        return;
    }
    assert!(Command::new("kill").args(["-KILL", &second]).status().is_ok_and(|s| s.success()));
    assert_eq!(child.wait().expect("it ends").code(), Some(137));
    assert!(end.exists(), "the command went on");
    let (status, stderr) = run(ptarmigan().args(["record", "-o"]).arg(&file).args(["--", "true"]));
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(dir.files(), ["end", "out.ptrace"], "the next recording cleans up");
}

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

/// A file system that is unmounted on drop.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_command() {
    for method in METHODS {
        let dir = Dir::new(&format!("full-{method}"));
        let small = dir.path("small");
        std::fs::create_dir(&small).expect("a directory");
        let mount = ["-t", "tmpfs", "-o", "size=6m", "none"];
        let mount = Command::new("mount").args(mount).arg(&small).stderr(Stdio::null()).status();
        if !mount.is_ok_and(|status| status.success()) {
            eprintln!("skipped: nothing can be mounted here");
            return;
        }
        let mounted = Mounted(small.clone());
        let file = small.join("out.ptrace");
        let script = "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done; exit 5";
        let mut command = ptarmigan();
        command.args(["record", "--method", method, "-o"]).arg(&file).args(["--", "sh", "-c", script]);
        let (status, stderr) = run(&mut command);
        if status != Some(5) && stderr.lines().count() == 1 {
            eprintln!("skipped: {method} cannot record here");
            continue;
        }
        assert_eq!(status, Some(5), "{stderr}");
        assert!(stderr.contains("the recording ended before the command did"), "{stderr}");
        let found = report(&file);
        assert!(found.execs > 20 && found.execs < 3000, "{method}: {}", found.execs);
        assert!(found.unseen.contains(&"the end of the command"));
        drop(mounted);
    }
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

#[test]
fn an_output_that_cannot_be_written() {
    for output in ["/does/not/exist/out.ptrace", "/"] {
        let (status, stderr) = run(ptarmigan().args(["record", "-o", output, "--", "true"]));
        assert_eq!(status, Some(1), "{stderr}");
        assert!(stderr.starts_with("ptarmigan: ") && stderr.lines().count() == 1, "{stderr}");
    }
}

/// Records `true` to `output`. This must be refused in one line, before the command runs.
fn refused(output: &Path) -> String {
    let (status, stderr) = run(ptarmigan().args(["record", "-o"]).arg(output).args(["--", "true"]));
    assert_eq!(status, Some(1), "{}: {stderr}", output.display());
    let start = format!("ptarmigan: {}: ", output.display());
    assert!(stderr.starts_with(&start) && stderr.lines().count() == 1, "{stderr}");
    stderr
}

#[test]
fn only_a_regular_file_is_replaced() {
    let dir = Dir::new("kinds");
    // The test makes its own device node. It uses the real one only where a defect could not
    // replace it.
    let null = dir.path("null");
    let made = Command::new("mknod").arg(&null).args(["c", "1", "3"]).stderr(Stdio::null()).status();
    let made = made.is_ok_and(|status| status.success());
    if made || !rustix::process::geteuid().is_root() {
        let device = if made { null } else { "/dev/null".into() };
        assert!(refused(&device).contains("a device"));
        let linked = dir.path("linked-device");
        symlink(&device, &linked).expect("a link");
        assert!(refused(&linked).contains("a device"), "a link does not hide what it leads to");
        assert!(device.metadata().expect("the device").file_type().is_char_device(), "it is what it was");
    } else {
        eprintln!("skipped: no device node can be made here");
    }

    let pipe = dir.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    assert!(refused(&pipe).contains("a pipe"));

    let dangling = dir.path("dangling");
    symlink("nothing", &dangling).expect("a link");
    assert!(refused(&dangling).contains("a symbolic link to nothing"));
    let circle = dir.path("circle");
    symlink("circle", &circle).expect("a link");
    refused(&circle);

    assert!(refused(&dir.0).contains("a directory"));
    let directory = dir.path("linked-directory");
    symlink(&dir.0, &directory).expect("a link");
    assert!(refused(&directory).contains("a directory"));
    refused(&dir.path("absent/out.ptrace"));
    for name in ["new/", "new/."] {
        assert!(refused(&dir.path(name)).contains("not the name of a file"));
    }
    for link in [dangling, circle, directory] {
        assert!(link.symlink_metadata().expect("the link").is_symlink(), "it is what it was");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_before_the_command_runs() {
    let dir = Dir::new("read-only");
    let ran = dir.path("ran");
    // No user can create a file there, root included.
    let (status, stderr) =
        run(ptarmigan().args(["record", "-o", "/proc/out.ptrace", "--", "touch"]).arg(&ran));
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.starts_with("ptarmigan: /proc/out.ptrace: cannot be written: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!ran.exists());
}

#[test]
fn a_link_to_a_regular_file_stays_and_the_file_gets_the_trace() {
    with_each_method("link", &["/bin/true"], |status, stderr, file, dir| {
        assert_eq!(status, Some(0), "{stderr}");
        let link = dir.path("link.ptrace");
        let elsewhere =
            Dir::new(&format!("elsewhere-{}", dir.0.file_name().unwrap_or_default().to_string_lossy()));
        let target = elsewhere.path("target.ptrace");
        std::fs::rename(file, &target).expect("same file system");
        symlink(&target, &link).expect("a link");
        let (status, stderr) =
            run(ptarmigan().args(["record", "-o"]).arg(&link).args(["--name", "linked", "--", "true"]));
        assert_eq!(status, Some(0), "{stderr}");
        assert_eq!(std::fs::read_link(&link).expect("still a link"), target);
        assert_eq!(report(&target).name, "linked");
        assert_eq!(elsewhere.files(), ["target.ptrace"], "no temporary file is left");
        assert_eq!(dir.files(), ["link.ptrace"]);
    });
}
