//! Recordings of processes that run already, and recordings that end before their command.
use super::common::{
    Dir, METHODS, Mounted, copy_program, go_on, heeds_signals, kill, line_of, ptarmigan, report, run,
    spawned, wait_for,
};
use ptarmigan_cli::inspect::Inspection;
use ptarmigan_trace::{Kind, Note, Object, Runtime};
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A user without privileges.
pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets a command run as `user`.
pub fn run_as(mut command: Command, user: Option<u32>) -> Command {
    if let Some(user) = user {
        command.uid(user).gid(user).current_dir("/");
    }
    command
}

/// A process that is killed on drop, with those that it started.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Builds and starts `server.c`. `None` if there is no compiler.
    fn start(dir: &Dir, user: Option<u32>) -> Option<Self> {
        Self::start_as(dir, "server.c", user, &[])
    }

    /// Builds and starts a program of this directory.
    pub fn start_as(dir: &Dir, source: &str, user: Option<u32>, args: &[&str]) -> Option<Self> {
        let program = dir.path(source.trim_end_matches(".c"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record").join(source);
        let cc = Command::new("cc").args(["-O1", "-g", "-pthread", "-o"]).arg(&program).arg(source).output();
        match cc {
            Ok(cc) => assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr)),
            Err(e) => {
                eprintln!("skipped: no compiler: {e}");
                return None;
            }
        }
        let mut command = run_as(Command::new(&program), user);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Self(command.spawn().expect("it was built"));
        assert_eq!(line_of(&mut server.0), "ready");
        Some(server)
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// Lets it do something, and waits for that.
    fn does(&mut self, what: &str) {
        assert_eq!(self.answers(what), what);
    }

    /// Lets it do something, and returns its answer.
    pub fn answers(&mut self, what: &str) -> String {
        let input = self.0.stdin.as_mut().expect("a pipe");
        writeln!(input, "{what}").expect("it reads");
        line_of(&mut self.0)
    }

    /// Returns Linux's counts of tables of it and its children, in order.
    fn tables(&self) -> Vec<u64> {
        let children = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = std::fs::read_to_string(children).expect("it is there");
        let pids = children.split_whitespace().map(str::to_owned).chain([self.pid().to_string()]);
        let mut all: Vec<u64> = pids.map(|pid| field(&pid, "VmPTE:") >> 2).collect();
        all.sort_unstable();
        all
    }
}

/// Returns a number that the status of a process has.
pub fn field(pid: &str, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
    line.split_whitespace().next().expect("a number").parse().expect("a number")
}

/// Copies the program where everybody can execute it.
pub fn program_for(dir: &Dir) -> Command {
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).expect("our directory");
    let program = dir.path("ptarmigan");
    // An earlier recorder may still run it.
    if !program.exists() {
        copy_program(env!("CARGO_BIN_EXE_ptarmigan"), &program);
    }
    Command::new(program)
}

/// Starts a recording of processes to `out.ptrace`, and waits until it has begun. `None` if this
/// machine cannot record.
pub fn attach(dir: &Dir, method: &str, user: Option<u32>, pids: &str, more: &[&str]) -> Option<Child> {
    let mut command = run_as(program_for(dir), user);
    command.args(["record", "--method", method, "--level", "3", "-o"]).arg(dir.path("out.ptrace"));
    command.args(["-p", pids]).args(more);
    let said = std::fs::File::create(dir.path("said")).expect("a file");
    let mut child = heeds_signals(&mut command).stderr(said).spawn().expect("the program is there");
    let text = || std::fs::read_to_string(dir.path("said")).expect("our file");
    let ended = wait_for(|| text().contains("recording with") || child.try_wait().is_ok_and(|s| s.is_some()));
    assert!(ended, "it begins");
    if text().contains("recording with") {
        return Some(child);
    }
    eprintln!("skipped: {}", text().trim());
    None
}

/// Waits for the end of a recording. Returns its status and its standard error.
pub fn end_of(mut child: Child, dir: &Dir) -> (Option<i32>, String) {
    let status = child.wait().expect("it ends").code();
    (status, std::fs::read_to_string(dir.path("said")).expect("our file"))
}

/// Returns the counts of a replay: samples checked, samples that are equal, calls that made no
/// sense.
pub fn replayed(file: &Path) -> (u64, u64, u64) {
    let out = ptarmigan().arg("replay").arg(file).args(["--policy", "plain", "--json"]).output();
    let json: Value = serde_json::from_slice(&out.expect("the program is there").stdout).expect("JSON");
    let run = &json["runs"][0];
    let count = |value: &Value| value.as_u64().expect("a count");
    (count(&run["truth"]["checked"]), count(&run["truth"]["equal"]), count(&run["odd_calls"]))
}

/// Returns the samples of a trace's end, in order.
fn last_tables(file: &Path) -> Vec<u64> {
    let events = ptarmigan_trace::Reader::open(file).expect("a trace");
    let samples = events.map(|e| e.expect("an event").kind).filter_map(|kind| match kind {
        ptarmigan_trace::Kind::Truth { tables, at: ptarmigan_trace::Sampled::Exit } => Some(tables.into()),
        _ => None,
    });
    let mut all: Vec<u64> = samples.collect();
    all.sort_unstable();
    all
}

/// Checks that a recording has printed the numbers that `inspect` counts.
fn agrees(stderr: &str, r: &Inspection) {
    let faults = r.faults.user + r.faults.kernel;
    let samples = r.samples.exit + r.samples.exec + r.running.samples;
    let said = stderr.lines().find(|line| line.contains(" of VmPTE, ")).expect("a line with numbers");
    let said = said.replace(',', "");
    for (n, thing) in [
        (r.events, "event"),
        (faults, "fault"),
        (r.tasks.into(), "task"),
        (r.execs, "exec"),
        (samples, "sample"),
    ] {
        let plural = if n == 1 { "" } else { "s" };
        let words = [" ", "("].map(|before| format!("{before}{n} {thing}{plural}"));
        assert!(words.iter().any(|words| said.contains(words)), "{n} {thing}: {said}");
    }
}

/// Records a server that works, and ends the recording with Ctrl-C.
fn a_server_is_recorded(method: &str, user: Option<u32>) {
    let dir = Dir::new(&format!("server-{method}-{}", user.is_some()));
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).expect("our directory");
    let Some(mut server) = Server::start(&dir, user) else { return };
    let Some(recorder) = attach(&dir, method, user, &server.pid().to_string(), &[]) else { return };
    // By tracepoints the first states are read at the start, the others are seen to be forks.
    std::thread::sleep(Duration::from_millis(500));
    for what in ["alloc", "worker", "free", "thread", "worker", "alloc"] {
        server.does(what);
    }
    std::thread::sleep(Duration::from_millis(300));
    let linux = server.tables();
    kill(recorder.id() as i32, libc::SIGINT);
    let (status, stderr) = end_of(recorder, &dir);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.contains("the recording ended before the processes did: a signal"), "{stderr}");
    let file = dir.path("out.ptrace");
    // Two workers were there, and two came.
    assert_eq!(last_tables(&file), linux, "{method}: {stderr}");
    assert_eq!(linux.len(), 5);
    let (checked, equal, odd) = replayed(&file);
    assert!(checked >= 5, "{method}: {checked} samples");
    assert_eq!((equal, odd), (checked, 0), "{method}: {stderr}");
    let r = report(&file);
    assert_eq!((r.name.as_str(), r.lost), ("server", 0));
    assert!(r.unseen.contains(&"the end of the command"), "{:?}", r.unseen);
    assert_eq!(r.unseen.contains(&"areas made by execve"), method == "tracefs");
    // The state of processes that ran already is not counted as forks, threads and execs.
    assert_eq!((r.running.processes, r.running.threads), (3, 1), "{method}: {stderr}");
    assert_eq!((r.forks, r.vforks, r.execs, r.threads), (2, 0, 0, 2), "{method}: {stderr}");
    assert!(stderr.contains(" tasks (3 processes were running already), 0 execs, "), "{method}: {stderr}");
    agrees(&stderr, &r);
    // It goes on, untraced.
    assert_eq!(field(&server.pid().to_string(), "TracerPid:"), 0);
    server.does("worker");
    server.does("free");
    assert!(!dir.files().iter().any(|name| name.starts_with('.')), "{:?}", dir.files());
}

#[test]
fn a_server_is_recorded_by_tracepoints_alone() {
    a_server_is_recorded("tracefs", None);
}

#[test]
fn a_server_is_recorded_by_stops() {
    a_server_is_recorded("perf", None);
}

#[test]
fn a_user_records_a_server_of_his_own() {
    if is_root() {
        a_server_is_recorded("perf", Some(NOBODY));
    } else {
        eprintln!("skipped: every test shows it here");
    }
}

/// The notes of a trace.
fn notes(file: &Path) -> Vec<Note> {
    let events = ptarmigan_trace::Reader::open(file).expect("a trace");
    let kinds = events.map(|event| event.expect("an event").kind);
    kinds.filter_map(|kind| if let Kind::Note(note) = kind { Some(note) } else { None }).collect()
}

#[test]
fn mappings_and_code_from_before_the_recording_are_described() {
    for method in METHODS {
        for options in [&["--names", "--symbols"][..], &[]] {
            let dir = Dir::new(&format!("described-{method}-{}", options.len()));
            let Some(mut server) = Server::start(&dir, None) else { return };
            let pid = server.pid().to_string();
            let Some(recorder) = attach(&dir, method, None, &pid, options) else { continue };
            std::thread::sleep(Duration::from_millis(500));
            for what in ["alloc", "worker", "alloc", "worker", "alloc"] {
                server.does(what);
            }
            kill(recorder.id() as i32, libc::SIGINT);
            let (status, stderr) = end_of(recorder, &dir);
            assert_eq!(status, Some(0), "{stderr}");
            let file = dir.path("out.ptrace");
            let notes = notes(&file);
            let mapped = |wanted: Object| {
                let of = |note: &&Note| matches!(note, Note::Mapped { object, .. } if *object == wanted);
                notes.iter().filter(of).count()
            };
            for object in [Object::Program, Object::Library, Object::SharedMemory, Object::ThreadStack] {
                assert!(mapped(object) > 0, "{method}: {object:?}: {notes:?}");
            }
            assert!(notes.contains(&Note::Runtime(Runtime::Glibc)), "{method}");
            let out = ptarmigan().args(["inspect", "--json"]).arg(&file).output().expect("the program");
            let json: Value = serde_json::from_slice(&out.stdout).expect("JSON");
            let rows = |name: &str| json[name].as_array().expect("rows").clone();
            let kinds: Vec<Value> = rows("mappings").into_iter().map(|row| row["kind"].clone()).collect();
            for kind in ["anonymous", "shared memory"] {
                assert!(kinds.contains(&kind.into()), "{method}: {kinds:?}");
            }
            let function = |work: &str, name: &str| {
                let row =
                    rows("functions").into_iter().find(|row| row["work"] == work && row["function"] == name);
                row.unwrap_or_else(|| panic!("{method}: no {work} by {name}: {json:#} {stderr}"))
            };
            if options.is_empty() {
                assert_eq!(rows("functions"), [Value::Null; 0]);
                assert!(rows("mappings").iter().all(|row| row["name"].is_null()), "{method}");
                continue;
            }
            let touch = function("fault", "touch");
            assert_eq!((&touch["file"], &touch["module"]), (&"server.c".into(), &"server".into()), "{touch}");
            // 15,360 faults of the three allocations, of which one in 61 is sampled.
            assert!(json["lost"] != 0 || touch["events"].as_u64() > Some(10_000), "{method}: {touch}");
            assert_eq!(function("fork", "more")["events"], 2, "{method}");
            let named = rows("mappings").into_iter().filter(|row| row["kind"] == "library");
            assert!(
                named.clone().count() > 0 && named.clone().all(|row| row["name"] != Value::Null),
                "{json:#}"
            );
        }
    }
}

#[test]
fn a_program_that_an_attached_process_starts_is_recorded() {
    // A program whose mappings change while they are read is left out, and the recorder says so: on
    // a busy machine once in a while, but not each time.
    let left_out = |stderr: &str| stderr.contains("ended or changed before they were read");
    for method in METHODS {
        for attempt in 1..=4 {
            let dir = Dir::new(&format!("starts-{method}-{attempt}"));
            let Some(mut server) = Server::start(&dir, None) else { return };
            let Some(recorder) = attach(&dir, method, None, &server.pid().to_string(), &[]) else { break };
            std::thread::sleep(Duration::from_millis(500));
            server.does("exec");
            // Its program has to be at rest to be sampled, also on a machine that is busy.
            std::thread::sleep(Duration::from_millis(2_000));
            let linux = server.tables();
            kill(recorder.id() as i32, libc::SIGTERM);
            let (status, stderr) = end_of(recorder, &dir);
            assert_eq!(status, Some(0), "{stderr}");
            let file = dir.path("out.ptrace");
            let (checked, equal, odd) = replayed(&file);
            assert_eq!((equal, odd), (checked, 0), "{method}: {stderr}");
            let r = report(&file);
            agrees(&stderr, &r);
            if left_out(&stderr) && attempt < 4 {
                continue;
            }
            assert_eq!(last_tables(&file), linux, "{method}: {stderr}");
            assert_eq!((r.forks, r.execs), (1, 1), "{method}: {stderr}");
            break;
        }
    }
}

#[test]
fn the_end_of_all_processes_ends_the_recording() {
    for method in METHODS {
        let dir = Dir::new(&format!("all-end-{method}"));
        let Some(mut server) = Server::start(&dir, None) else { return };
        let Some(recorder) = attach(&dir, method, None, &server.pid().to_string(), &[]) else { continue };
        std::thread::sleep(Duration::from_millis(300));
        server.0.stdin.take();
        server.0.wait().expect("it ends");
        let (status, stderr) = end_of(recorder, &dir);
        assert_eq!(status, Some(0), "{stderr}");
        let r = report(&dir.path("out.ptrace"));
        assert!(!r.unseen.contains(&"the end of the command"), "{method}: {stderr}");
        assert!(r.by_kind["exit"] >= 1, "{method}");
    }
}

#[test]
fn a_recorder_that_is_killed_lets_the_processes_go_on() {
    for method in METHODS {
        let dir = Dir::new(&format!("attached-killed-{method}"));
        let Some(mut server) = Server::start(&dir, None) else { return };
        let Some(mut recorder) = attach(&dir, method, None, &server.pid().to_string(), &[]) else { continue };
        std::thread::sleep(Duration::from_millis(300));
        recorder.kill().expect("our child");
        recorder.wait().expect("our child");
        let pid = server.pid().to_string();
        assert!(wait_for(|| field(&pid, "TracerPid:") == 0), "{method}");
        server.does("worker");
        server.does("alloc");
        let left = || dir.files().iter().any(|name| name.starts_with('.') || name == "out.ptrace");
        assert!(wait_for(|| !left()), "{method}: {:?}", dir.files());
    }
}

#[test]
fn processes_outlive_the_second_process_of_their_recorder() {
    let dir = Dir::new("attached-killed-second");
    let Some(mut server) = Server::start(&dir, None) else { return };
    let Some(recorder) = attach(&dir, "tracefs", None, &server.pid().to_string(), &[]) else { return };
    let first = recorder.id();
    let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
    let Ok(second) = children.unwrap_or_default().trim().parse() else {
        kill(first as i32, libc::SIGINT);
        end_of(recorder, &dir);
        return eprintln!("skipped: this kernel does not list children");
    };
    kill(second, libc::SIGKILL);
    let (status, stderr) = end_of(recorder, &dir);
    assert_eq!(status, Some(137), "{stderr}");
    assert!(stderr.contains("ended by signal 9; the processes go on"), "{stderr}");
    server.does("alloc");
}

/// Attaches in vain: one line, status 1, and no file.
fn refused(method: &str, user: Option<u32>, pids: &str, expected: &str) {
    let dir = Dir::new(&format!("no-attach-{method}-{pids}-{}", user.is_some()));
    let mut command = run_as(program_for(&dir), user);
    command.args(["record", "--method", method, "-o"]).arg(dir.path("out.ptrace"));
    let (status, stderr) = run(command.args(["-p", pids, "--duration", "1"]));
    assert_eq!(status, Some(1), "{pids}: {stderr}");
    assert!(stderr.starts_with("ptarmigan: ") && stderr.lines().count() == 1, "{pids}: {stderr}");
    assert!(stderr.contains(expected), "{pids}: {stderr}");
    assert_eq!(dir.files(), ["ptarmigan"], "{pids}: {stderr}");
}

#[test]
fn processes_that_cannot_be_attached_to() {
    let own = std::process::id().to_string();
    let dir = Dir::new("attach-to");
    let Some(server) = Server::start(&dir, None) else { return };
    let pid = server.pid().to_string();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there").flatten();
    let names = tasks.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let thread = names.filter(|name| *name != pid).max().expect("it has a thread");
    let mut zombie = Command::new("true").spawn().expect("it is there");
    let dead = zombie.id().to_string();
    let stat = || std::fs::read_to_string(format!("/proc/{dead}/stat")).expect("it is not waited for");
    assert!(wait_for(|| stat().contains(") Z ")));
    for method in METHODS {
        refused(method, None, "2147483647", "process 2147483647: there is no such process");
        refused(method, None, &own, "is an ancestor of this recorder");
        refused(method, None, &thread, &format!("is a thread of process {pid}; name that"));
        refused(method, None, &dead, "has ended, and its parent has not asked for its status yet");
        refused(method, None, &format!("{pid},{pid}"), "is named twice");
    }
    if is_root() {
        refused("perf", Some(NOBODY), &pid, "belongs to another user; root can attach to it");
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
            refused("perf", None, "2", "is a thread of the kernel");
        }
    }
    zombie.wait().expect("our child");
    assert_eq!(field(&pid, "TracerPid:"), 0);
}

#[test]
fn another_tracer_blocks_ptrace_and_not_tracepoints() {
    let dir = Dir::new("two-tracers");
    let Some(mut server) = Server::start(&dir, None) else { return };
    let pid = server.pid();
    // SAFETY: the request takes numbers. The task is let go at the end of this thread at the
    // latest.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
    if seized != 0 {
        return eprintln!("skipped: ptrace is refused");
    }
    refused("perf", None, &pid.to_string(), "traces it already");
    if let Some(recorder) = attach(&dir, "tracefs", None, &pid.to_string(), &["--duration", "0.5"]) {
        let (status, stderr) = end_of(recorder, &dir);
        assert_eq!(status, Some(0), "{stderr}");
        assert!(stderr.contains("the recording ended before the processes did: after 500 ms"), "{stderr}");
    }
    server.does("alloc");
}

#[test]
fn the_time_begins_when_the_processes_have_been_read() {
    for method in METHODS {
        let dir = Dir::new(&format!("from-its-start-{method}"));
        let Some(mut server) = Server::start(&dir, None) else { return };
        server.does("worker");
        let pid = server.pid().to_string();
        let Some(recorder) = attach(&dir, method, None, &pid, &["--duration", "2"]) else { continue };
        std::thread::sleep(Duration::from_millis(500));
        server.does("alloc");
        let (status, stderr) = end_of(recorder, &dir);
        assert_eq!(status, Some(0), "{stderr}");
        let lines: Vec<&str> = stderr.lines().collect();
        let at = |text: &str| lines.iter().position(|line| line.contains(text));
        let (reading, recording) = (at("reading "), at(&format!("recording with {method} for 2 s")));
        assert!(reading.is_some() && reading < recording, "{stderr}");
        assert_eq!(at("stop at each system call").is_some(), method == "perf", "{stderr}");
        assert!(at("stop at each system call") <= reading, "{stderr}");
        let file = dir.path("out.ptrace");
        let mut events = ptarmigan_trace::Reader::open(&file).expect("a trace");
        let (mut openings, mut processes) = (ptarmigan_trace::Openings::default(), 0);
        while let Some(event) = events.next() {
            let opening = openings.see(&event.expect("an event"));
            if let Some(ptarmigan_trace::Opening::Process { .. }) = opening {
                processes += 1;
                assert_eq!(events.time(), 0, "a process that ran already was there at the start");
            }
        }
        assert!(processes >= 2, "{processes}");
        let out = ptarmigan().args(["inspect", "--json"]).arg(&file).output();
        let json: Value = serde_json::from_slice(&out.expect("it is there").stdout).expect("JSON");
        let times = &json["times"];
        let elapsed = times["elapsed_seconds"].as_f64().expect("a number");
        assert!((1.5..20.0).contains(&elapsed), "{times}");
        // The processes go on, and their CPU time in these seconds is known.
        assert_eq!(times["processes"], times["processes_timed"], "{times}");
        let line = times["line"].as_str().expect("a line");
        assert!(line.contains(" CPU time in the kernel; "), "{line}");
        let all = times["kernel_seconds"].as_f64().unwrap_or(99.0);
        assert!(all <= 2.0 * elapsed, "{times}");
        server.does("free");
    }
}

#[test]
fn times_and_numbers_that_make_no_sense() {
    for args in [
        &["--duration", "0", "true"][..],
        &["--duration", "-1", "true"],
        &["--duration", "1e12", "true"],
        &["--duration", "soon", "true"],
        &["--duration", "nan", "true"],
        &["-p", "0"],
        &["-p", "-3"],
        &["-p", "x"],
        &["-p", "99999999999"],
        &["-p", "1", "true"],
    ] {
        let dir = Dir::new("no-sense");
        let (status, stderr) = run(ptarmigan().arg("record").args(args).current_dir(&dir.0));
        assert_eq!(status, Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && !stderr.contains("panicked"), "{stderr}");
        assert_eq!(dir.files(), [""; 0]);
    }
}

#[test]
fn process_ids_are_suggested_where_no_command_is_given() {
    let dir = Dir::new("hints");
    // A name that no other process has.
    let name = format!("nap{}", std::process::id());
    let path = dir.path(&name);
    copy_program("/bin/sleep", &path);
    let mut sleeps = [0, 1].map(|_| Server(Command::new(&path).arg("600").spawn().expect("a copy")));
    let mut pids = sleeps.each_ref().map(Server::pid);
    pids.sort_unstable();
    let list = format!("{},{}", pids[0], pids[1]);
    let record = |args: &[&str]| run(ptarmigan().arg("record").args(args).current_dir(&dir.0));
    let (status, stderr) = record(&["-p", &name]);
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains(&format!("processes of {name}: -p {list}")), "{stderr}");
    let (status, stderr) = record(&[&pids[0].to_string(), &pids[1].to_string()]);
    assert_eq!((status, stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.ends_with(&format!("attach to it with: ptarmigan record -p {list}\n")), "{stderr}");
    let pid = pids[1].to_string();
    sleeps.iter_mut().filter(|one| one.pid() == pids[0]).for_each(|one| {
        one.0.kill().expect("our child");
        one.0.wait().expect("our child");
    });
    let (_, stderr) = record(&["-p", &name]);
    assert!(stderr.contains(&format!("{name} is process {pid}: -p {pid}")), "{stderr}");
    let (_, stderr) = record(&["-p", "no such name"]);
    assert!(stderr.contains("no process is named no such name"), "{stderr}");
    // A number that no process has is a program that is not there.
    let (status, stderr) = record(&[&pids[0].to_string()]);
    assert!(status != Some(2) && !stderr.contains("-p "), "{stderr}");
    // A program of such a name is run.
    copy_program("/bin/true", &dir.path(&pid));
    let mut named = ptarmigan();
    named.args(["record", &pid]).env("PATH", &dir.0).current_dir(&dir.0);
    let (_, stderr) = run(&mut named);
    assert!(!stderr.contains("-p "), "{stderr}");
    assert_eq!(dir.files().iter().filter(|file| file.starts_with('.')).count(), 0);
}

#[test]
fn a_command_goes_on_after_the_duration() {
    for method in METHODS {
        let dir = Dir::new(&format!("duration-{method}"));
        let file = dir.path("out.ptrace");
        let mut command = ptarmigan();
        command.args(["record", "--method", method, "--duration", "1", "-o"]).arg(&file);
        let script = "echo on; /bin/true; read x; /bin/true; (/bin/true); exit 6";
        let Some(mut child) = spawned(command.args(["sh", "-c", script])) else { continue };
        let before = Instant::now();
        assert!(wait_for(|| file.exists()), "{method}: the trace is written while the command waits");
        assert!(before.elapsed() < Duration::from_secs(30));
        assert!(child.try_wait().expect("our child").is_none(), "{method}: the command goes on");
        let r = report(&file);
        assert_eq!(r.execs, 2, "{method}");
        assert!(r.unseen.contains(&"the end of the command"), "{method}: {:?}", r.unseen);
        go_on(&mut child);
        let out = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(6), "{method}: {stderr}");
        assert!(stderr.contains("the recording ended before the command did: after 1 s"), "{stderr}");
        assert_eq!(dir.files(), ["out.ptrace"]);
    }
}

#[test]
fn a_target_directory_that_is_full_or_vanishes() {
    for method in METHODS {
        let dir = Dir::new(&format!("attach-target-{method}"));
        let Some(mut server) = Server::start(&dir, None) else { return };
        let pid = server.pid().to_string();
        let gone = dir.path("gone");
        std::fs::create_dir(&gone).expect("a directory");
        let mut command = ptarmigan();
        command.args(["record", "--method", method, "--duration", "1", "-p", &pid]).current_dir(&gone);
        let child = command.stderr(Stdio::piped()).spawn().expect("the program is there");
        assert!(wait_for(|| std::fs::read_dir(&gone).is_ok_and(|dir| dir.count() > 0)), "{method}");
        std::thread::sleep(Duration::from_millis(300));
        // The recorder may be making files in it.
        assert!(wait_for(|| std::fs::remove_dir_all(&gone).is_ok()), "our directory");
        let out = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&out.stderr);
        if stderr.contains("not available") || stderr.contains("cannot be recorded") {
            eprintln!("skipped: {}", stderr.trim());
            continue;
        }
        assert_eq!(out.status.code(), Some(1), "{method}: {stderr}");
        assert!(!stderr.contains("panicked") && !gone.exists(), "{method}: {stderr}");
        let small = dir.path("small");
        let Some(_mounted) = Mounted::new(&small, "64k") else { return };
        std::fs::write(small.join("rest"), vec![0; 128 << 10]).expect_err("it is full");
        let mut command = ptarmigan();
        command.args(["record", "--method", method, "-o"]).arg(small.join("x.ptrace"));
        let (status, stderr) = run(command.args(["-p", &pid]));
        assert_eq!((status, stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(stderr.contains("cannot be written: No space left"), "{stderr}");
        server.does("alloc");
    }
}
