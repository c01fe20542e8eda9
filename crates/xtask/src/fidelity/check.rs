//! Records a command and compares the replay with Linux.
use super::program::{Step, Text};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The policies that a recording is replayed with.
const POLICIES: &str = "plain,ptarmigan";

/// The result of one recording.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Samples that were compared.
    pub checked: u64,
    /// Samples that were equal, whatever the policy.
    pub equal: u64,
    /// Findings of the sanitizer.
    pub findings: u64,
    /// Calls that the library refused.
    pub odd: u64,
    /// Events that the recorder lost.
    pub lost: u64,
    /// Tables that the trace knows from pages found at stops only: no rule explains them.
    pub unexplained: u64,
    /// Large pages that faults mapped, if the replay had some.
    pub large: u64,
    /// The replay's message about the first difference.
    pub first: String,
}

impl Found {
    /// Whether everything was as Linux has it.
    pub fn is_right(&self) -> bool {
        self.equal == self.checked && self.findings == 0 && self.unexplained == 0
    }

    /// Reads the replay's report.
    fn of(report: &Value) -> Self {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let mut found = Found { lost: number(&report["trace"]["lost"]), ..Found::default() };
        for (n, run) in report["runs"].as_array().into_iter().flatten().enumerate() {
            let truth = &run["truth"];
            let equal = number(&truth["equal"]);
            found.checked = number(&truth["checked"]);
            found.equal = if n == 0 { equal } else { found.equal.min(equal) };
            found.findings += number(&run["sanitizer"]["findings"]);
            found.large = found.large.max(number(&run["large_pages"]));
            found.odd = found.odd.max(number(&run["odd_calls"]));
            found.unexplained = found.unexplained.max(number(&truth["tables_from_stops"]));
            if found.first.is_empty() && equal != found.checked {
                let odd = run["first_odd_call"].as_str().map(|odd| format!("; {odd}")).unwrap_or_default();
                found.first = format!("{}{odd}", truth["differences"]);
            }
        }
        found
    }
}

/// Records and replays in a directory of its own.
pub struct Checker {
    ptarmigan: PathBuf,
    guest: PathBuf,
    dir: PathBuf,
}

impl Checker {
    /// Makes the directory, and builds the command unless one is given.
    pub fn new(ptarmigan: Option<&Path>) -> Result<Self, String> {
        let ptarmigan = match ptarmigan {
            Some(file) => file.canonicalize().map_err(|e| format!("{}: {e}", file.display()))?,
            None => built()?,
        };
        let dir = std::env::temp_dir().join(format!("ptarmigan-fidelity-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let guest = std::env::current_exe().map_err(|e| e.to_string())?;
        Ok(Self { ptarmigan, guest, dir })
    }

    /// The directory, in which recorded commands run.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of the trace that was recorded last.
    fn trace(&self) -> PathBuf {
        self.dir.join("trace.ptrace")
    }

    /// The file of the random program that was recorded last.
    fn program(&self) -> PathBuf {
        self.dir.join("program")
    }

    /// Keeps the trace that was recorded last, and its program if that was a random one, in `to`.
    ///
    /// # Errors
    /// If they cannot be copied.
    pub fn keep(&self, to: &Path, name: &str) -> Result<(), String> {
        let error = |e: std::io::Error| format!("{}: {e}", to.display());
        std::fs::create_dir_all(to).map_err(error)?;
        std::fs::copy(self.trace(), to.join(name).with_extension("ptrace")).map_err(error)?;
        if self.program().exists() {
            std::fs::copy(self.program(), to.join(name).with_extension("program")).map_err(error)?;
        }
        Ok(())
    }

    /// Returns an error with the reason if this host cannot compare.
    pub fn probe(&self) -> Result<(), String> {
        let found = self.check(&[], 1)?;
        let _ = std::fs::remove_file(self.program());
        if found.checked == 0 { Err("the recording has no sample of VmPTE".to_owned()) } else { Ok(()) }
    }

    /// Records and replays `steps` on `cpus` CPUs.
    ///
    /// # Errors
    /// If the recording or the replay fails.
    pub fn check(&self, steps: &[Step], cpus: u32) -> Result<Found, String> {
        let program = self.program();
        std::fs::write(&program, Text(steps).to_string()).map_err(|e| e.to_string())?;
        let guest = [self.guest.as_os_str(), OsStr::new("guest"), program.as_os_str()];
        let command = [OsStr::new("setarch"), OsStr::new("-R")].into_iter().chain(guest);
        let (status, said) = self.record(command, Duration::MAX)?;
        if !status.success() {
            return Err(format!("recording: {}", said.trim()));
        }
        self.replay(cpus, false)
    }

    /// Records a command, which is ended after `most`. Returns its status, and the text that the
    /// recorder and it have written to standard error.
    ///
    /// # Errors
    /// If no trace came of it.
    pub fn record<'a>(
        &self,
        command: impl IntoIterator<Item = &'a OsStr>,
        most: Duration,
    ) -> Result<(ExitStatus, String), String> {
        let trace = self.trace();
        let _ = std::fs::remove_file(&trace);
        let said = self.dir.join("said");
        let error = |e: std::io::Error| format!("{}: {e}", self.ptarmigan.display());
        // A file: daemons keep their standard error open.
        let errors = std::fs::File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
        let recorder = Command::new(&self.ptarmigan)
            .args(["record", "--method", "tracefs", "--level", "1", "-o"])
            .arg(&trace)
            .arg("--")
            .args(command)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(error)?;
        let status = ended(recorder, most).map_err(error)?;
        let said = std::fs::read(&said).map_err(error)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if trace.exists() { Ok((status, said)) } else { Err(format!("recording: {}", said.trim())) }
    }

    /// Replays the trace that was recorded last, on `cpus` CPUs, with large pages if they are
    /// wanted.
    ///
    /// # Errors
    /// If the replay fails.
    pub fn replay(&self, cpus: u32, large: bool) -> Result<Found, String> {
        let replayed = Command::new(&self.ptarmigan)
            .arg("replay")
            .arg(self.trace())
            .args(["--policy", POLICIES, "--sanitize", "--json", "--cpus", &cpus.to_string()])
            .args(large.then_some("--large-pages"))
            .output()
            .map_err(|e| format!("{}: {e}", self.ptarmigan.display()))?;
        let report: Value = serde_json::from_slice(&replayed.stdout)
            .map_err(|_| format!("replay: {}", String::from_utf8_lossy(&replayed.stderr).trim()))?;
        Ok(Found::of(&report))
    }
}

/// Builds the command. Returns its file.
fn built() -> Result<PathBuf, String> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "dist", "--package", "ptarmigan-cli"])
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("the command cannot be built".to_owned());
    }
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout).map_err(|e| e.to_string())?;
    let target = metadata["target_directory"].as_str().ok_or("cargo metadata names no directory")?;
    Ok(Path::new(target).join("dist/ptarmigan"))
}

/// Waits for the recorder. After `most` the recorded command is asked to end, and soon made to.
fn ended(mut recorder: Child, most: Duration) -> std::io::Result<ExitStatus> {
    if most == Duration::MAX {
        return recorder.wait();
    }
    let (start, mut asked) = (Instant::now(), false);
    loop {
        if let Some(status) = recorder.try_wait()? {
            return Ok(status);
        }
        if !asked && start.elapsed() > most {
            asked = true;
            // SAFETY: the recorder is our child and has not been waited for. It passes the signal
            // on, and kills the remaining processes after three seconds.
            unsafe { libc::kill(recorder.id() as libc::pid_t, libc::SIGTERM) };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_count_once_and_every_policy_must_match() {
        let report = serde_json::json!({ "trace": { "lost": 2 }, "runs": [
            { "truth": { "checked": 7, "equal": 7, "differences": {}, "tables_from_stops": 3 },
              "sanitizer": { "findings": 0 }, "odd_calls": 1, "large_pages": 4 },
            { "truth": { "checked": 7, "equal": 5, "differences": { "-2": [2, 0] }, "tables_from_stops": 3 },
              "sanitizer": { "findings": 1 }, "odd_calls": 1, "first_odd_call": "why" },
        ]});
        let found = Found::of(&report);
        let Found { checked, equal, findings, odd, lost, unexplained, large, ref first } = found;
        assert_eq!((checked, equal, findings, odd, lost, unexplained, large), (7, 5, 1, 1, 2, 3, 4));
        assert_eq!(first, r#"{"-2":[2,0]}; why"#);
        assert!(!found.is_right());
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let start = Instant::now();
        let sleeper = Command::new("sleep").arg("100").spawn().expect("sleep is there");
        let status = ended(sleeper, Duration::from_millis(50)).expect("it can be waited for");
        assert!(!status.success() && start.elapsed() < Duration::from_secs(50));
    }
}
