//! Helpers of the tests of recordings.
use ptarmigan_cli::inspect::{self, Inspection};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const METHODS: [&str; 2] = ["tracefs", "perf"];

/// A directory for one test, removed at its end.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ptarmigan-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        Self(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn files(&self) -> Vec<String> {
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

pub fn ptarmigan() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ptarmigan"))
}

pub fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().expect("the program is there");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Records with each method that works on this machine.
pub fn with_each_method(test: &str, command: &[&str], check: impl Fn(Option<i32>, &str, &Path, &Dir)) {
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

pub fn report(file: &Path) -> Inspection {
    inspect::report(file).expect("a whole trace")
}

/// Returns the command that records the shell's `script`.
pub fn recorder(method: &str, file: &Path, script: &str) -> Command {
    let mut command = ptarmigan();
    command.args(["record", "--method", method, "-o"]).arg(file).args(["--", "sh", "-c", script]);
    command
}

/// Starts a recording of the shell's `script`, which prints a line and may then read one, and waits
/// for that line. `None` if this machine cannot record.
pub fn started(method: &str, file: &Path, script: &str) -> Option<Child> {
    spawned(heeds_signals(&mut recorder(method, file, script)))
}

/// Lets a command start with `SIGINT` and `SIGQUIT` at their defaults. A shell starts background
/// commands with these ignored, and a recorder leaves that as it is.
pub fn heeds_signals(command: &mut Command) -> &mut Command {
    // SAFETY: signal is async-signal-safe, and the default of a signal runs no code.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            Ok(())
        })
    }
}

/// Starts a recording as [`started`] does.
pub fn spawned(command: &mut Command) -> Option<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program is there");
    if line_of(&mut child).is_empty() {
        eprintln!("skipped: {}", run_on(child).1.trim());
        return None;
    }
    Some(child)
}

/// Returns the next line that the command prints.
pub fn line_of(child: &mut Child) -> String {
    let out = child.stdout.as_mut().expect("a pipe");
    let mut line = Vec::new();
    let mut byte = [0; 1];
    while out.read(&mut byte).unwrap_or(0) > 0 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// Lets the command read a line.
pub fn go_on(child: &mut Child) {
    // A command that has ended does not read.
    let _ = child.stdin.as_mut().expect("a pipe").write_all(b"\n");
}

/// Lets the command read a line, and waits for the end of the recording. Returns its status and its
/// standard error.
pub fn run_on(mut child: Child) -> (Option<i32>, String) {
    go_on(&mut child);
    let out = child.wait_with_output().expect("it ends");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// Sends a signal to a process, or with a negative number to a group.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: kill takes two numbers and accesses no memory.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "signal {signal} to {pid}");
}

/// Waits until a condition holds. A loaded machine may take its time.
pub fn wait_for(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// A file system that is unmounted on drop.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts an empty file system of `size` at `at`. `None` if the mount fails.
    pub fn new(at: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(at).expect("a directory");
        let size = format!("size={size}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(at)
            .stderr(Stdio::null())
            .status();
        if mount.is_ok_and(|status| status.success()) {
            return Some(Self(at.to_owned()));
        }
        eprintln!("skipped: nothing can be mounted here");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Copies a program. Another process does it: a child that another test forks meanwhile would keep
/// our file open, and an open file cannot be executed.
pub fn copy_program(from: impl AsRef<std::ffi::OsStr>, to: &Path) {
    let status = Command::new("cp").args([from.as_ref(), to.as_os_str()]).status().expect("cp");
    assert!(status.success(), "{}: {status}", to.display());
}
