//! Runs scripts of jobs, each into a log of its own, and says how they ended.
//!
//! ```text
//!  run       bash in a group of its own ── GROUPS[lane] = group ── wait ── GROUPS[lane] = 0
//!  signal    end ──> SIGTERM to each group, three times ──> exit 130
//!  failed    another lane has failed: ended ──> end_group of this lane
//! ```
//!
//! # Why
//!
//! A job starts compilers, emulators and tests. If only the script were killed, they would go on
//! and keep the machine busy. So each job is a process group, and the whole group is told to end.
//! The handler of signals must not take a lock, so the groups stand in atomics. It tells each group
//! several times, because a shell that is about to start a command misses the first signal.
use super::jobs::Job;
use indicatif::{ProgressBar, ProgressStyle};
use ptarmigan_term::Time;
use std::{
    fs::{self, File},
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// Directory of the logs, below the root of the repository.
const LOGS: &str = "target/ci";
/// Lines of the log of a job that failed which are printed.
const SHOWN: usize = 400;
/// Process groups of the jobs that run, one for each lane; 0 for a lane without a job.
static GROUPS: [AtomicI32; 8] = [const { AtomicI32::new(0) }; 8];

/// A job that has ended.
pub struct Ended {
    /// Why it failed.
    pub failed: Option<String>,
    /// Time by the clock.
    pub wall: Duration,
    /// Time of CPUs, if the script has said it.
    pub cpu: Option<Duration>,
    /// Its output.
    pub log: PathBuf,
}

impl Ended {
    /// Returns a line about `job`.
    pub fn line(&self, job: &Job) -> String {
        let result = if self.failed.is_some() { "FAILED" } else { "passed" };
        let cpu = self.cpu.map_or_else(String::new, |cpu| format!("{:>8} of CPUs", Time::from(cpu)));
        format!("{result} {:<36}{:>8}{cpu}", job.name, Time::from(self.wall))
    }

    /// Prints the end of the log of a job that failed.
    pub fn print_log(&self) -> io::Result<()> {
        let text = fs::read(&self.log)?;
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.len().saturating_sub(SHOWN);
        if first > 0 {
            println!("[{first} lines before these are in {}]", self.log.display());
        }
        lines[first..].iter().for_each(|line| println!("{line}"));
        Ok(())
    }
}

/// Ends all jobs when this program is told to end.
pub fn end_jobs_on_signals() {
    extern "C" fn end(_: libc::c_int) {
        for _ in 0..3 {
            GROUPS.iter().for_each(end_group);
            // SAFETY: handlers of signals may call it; no memory is concerned.
            unsafe { libc::usleep(50_000) };
        }
        // SAFETY: handlers of signals may call it, and it ends this process.
        unsafe { libc::_exit(130) };
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler calls functions that handlers may call: it loads atomics, kills,
        // sleeps, and ends the process.
        unsafe { libc::signal(signal, end as *const () as libc::sighandler_t) };
    }
}

/// Tells a job to end. A shell that is about to start a command can miss it: the caller tells it
/// again.
fn end_group(group: &AtomicI32) {
    let group = group.load(SeqCst);
    if group > 0 {
        // SAFETY: no memory is concerned; the group is that of a child that was not waited for.
        unsafe { libc::kill(-group, libc::SIGTERM) };
    }
}

/// Runs `job` in `root`, in lane `lane` of at most eight; `ended` is set when another has failed.
///
/// # Errors
///
/// If its log cannot be made, or bash cannot be run.
pub fn run(root: &Path, job: &Job, lane: usize, ended: &AtomicBool) -> io::Result<Ended> {
    let logs = root.join(LOGS);
    fs::create_dir_all(&logs)?;
    let name = job.name.replace(|c: char| !c.is_alphanumeric() && c != '-', "_");
    let (log, times) = (logs.join(format!("{name}.log")), logs.join(format!("{name}.times")));
    let output = File::create(&log)?;
    let _ = fs::remove_file(&times);

    let mut bash = Command::new("bash");
    bash.arg("-c").arg(&job.run).current_dir(root);
    bash.env("BASH_ENV", root.join(".ci/prelude.sh"))
        .env("CI_TIMES", &times)
        .env("CI_XTASK", own_copy(&logs)?);
    bash.env("PART", job.part.to_string()).env("PARTS", job.parts.unwrap_or(1).to_string());
    bash.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);

    let start = Instant::now();
    let mut child = bash.spawn()?;
    let group = &GROUPS[lane % GROUPS.len()];
    group.store(child.id().cast_signed(), SeqCst);
    let bar = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a template without errors"),
    );
    bar.set_message(job.name.clone());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if ended.load(SeqCst) {
            end_group(group);
        }
        bar.tick();
        std::thread::sleep(Duration::from_millis(100));
    };
    group.store(0, SeqCst);
    bar.finish_and_clear();
    let cpu = fs::read_to_string(&times).ok().and_then(|text| cpu(&text));
    let _ = fs::remove_file(&times);
    Ok(Ended { failed: failure(status), wall: start.elapsed(), cpu, log })
}

/// Copies this program to where no build replaces it, once for all lanes.
fn own_copy(logs: &Path) -> io::Result<PathBuf> {
    static COPY: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut made = COPY.lock().unwrap_or_else(PoisonError::into_inner);
    if made.is_none() {
        let (new, copy) = (logs.join(format!("xtask-{}", std::process::id())), logs.join("xtask"));
        fs::copy(std::env::current_exe()?, &new)?;
        fs::rename(new, &copy)?;
        *made = Some(copy);
    }
    Ok(made.clone().unwrap_or_default())
}

fn failure(status: ExitStatus) -> Option<String> {
    match (status.success(), status.code(), status.signal()) {
        (true, ..) => None,
        (_, Some(code), _) => Some(format!("exit code {code}")),
        (_, _, signal) => Some(format!("ended by signal {}", signal.unwrap_or(0))),
    }
}

/// Returns the sum of the times that bash's `times` prints (`0m1.250s`) for the shell and for
/// its children.
fn cpu(times: &str) -> Option<Duration> {
    let seconds = |time: &str| {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let sum: Option<f64> = times.split_whitespace().map(seconds).sum();
    sum.and_then(|sum| Duration::try_from_secs_f64(sum).ok())
}

/// Returns the load average of the last minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn job(name: &str, run: &str) -> Job {
        Job { name: name.into(), parts: Some(4), run: run.into(), part: 3, ..Job::default() }
    }

    /// A root of a repository with the prelude of this one.
    fn root() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(".ci")).unwrap();
        let prelude = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/prelude.sh");
        fs::copy(prelude, root.path().join(".ci/prelude.sh")).unwrap();
        root
    }

    #[test]
    fn a_job_stops_at_the_first_command_that_fails() {
        let root = root();
        let never = AtomicBool::new(false);
        let ended =
            run(root.path(), &job("a b", "echo one $PART/$PARTS\nfalse | cat\necho two"), 0, &never).unwrap();
        assert_eq!(ended.failed.as_deref(), Some("exit code 1"));
        assert!(ended.log.ends_with("a_b.log"));
        assert_eq!(fs::read_to_string(&ended.log).unwrap().lines().next(), Some("one 3/4"));
        assert!(!fs::read_to_string(&ended.log).unwrap().contains("two"));
        let passed = run(root.path(), &job("c", "true"), 0, &never).unwrap();
        assert!(passed.failed.is_none() && passed.cpu.is_some());
        assert!(passed.line(&job("c", "")).starts_with("passed c"));
    }

    #[test]
    fn commands_at_once_all_have_to_pass() {
        let root = root();
        let never = AtomicBool::new(false);
        let ended = run(root.path(), &job("t", "together 'echo a' 'false' 'echo b'"), 0, &never).unwrap();
        assert_eq!(ended.failed.as_deref(), Some("exit code 1"));
        let log = fs::read_to_string(&ended.log).unwrap();
        assert!(log.contains("a\nb\n") && log.contains("failed: false"), "{log}");
    }

    #[test]
    fn a_job_ends_when_another_has_failed() {
        let root = root();
        let ended = run(root.path(), &job("e", "sleep 100; sleep 100"), 1, &AtomicBool::new(true)).unwrap();
        assert!(ended.failed.is_some() && ended.wall < Duration::from_secs(50));
    }

    #[test]
    fn times_of_a_shell_and_its_children_are_added_up() {
        assert_eq!(cpu("0m0.250s 0m0.500s\n1m1.000s 0m0.250s\n"), Some(Duration::from_secs(62)));
        assert_eq!(cpu("x"), None);
    }
}
