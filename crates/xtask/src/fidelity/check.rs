//! Records a command and compares the replay with Linux.
use super::program::{Step, Text};
use crate::recorder::Recorder;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

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
    recorder: Recorder,
    guest: PathBuf,
}

impl Checker {
    /// Makes the directory, and builds the command unless one is given.
    pub fn new(ptarmigan: Option<&Path>) -> Result<Self, String> {
        let recorder = Recorder::new("fidelity", ptarmigan)?;
        let guest = std::env::current_exe().map_err(|e| e.to_string())?;
        Ok(Self { recorder, guest })
    }

    /// The directory, in which recorded commands run.
    pub fn dir(&self) -> &Path {
        self.recorder.dir()
    }

    /// The file of the trace that was recorded last.
    fn trace(&self) -> PathBuf {
        self.dir().join("trace.ptrace")
    }

    /// The file of the random program that was recorded last.
    fn program(&self) -> PathBuf {
        self.dir().join("program")
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
        self.recorder.record(&self.trace(), &["--method", "tracefs", "--level", "1"], command, most)
    }

    /// Replays the trace that was recorded last, on `cpus` CPUs, with large pages if they are
    /// wanted.
    ///
    /// # Errors
    /// If the replay fails.
    pub fn replay(&self, cpus: u32, large: bool) -> Result<Found, String> {
        let cpus = cpus.to_string();
        let trace = self.trace();
        let mut args =
            vec![OsStr::new("replay"), trace.as_os_str(), OsStr::new("--policy"), OsStr::new(POLICIES)];
        args.extend(["--sanitize", "--json", "--cpus", &cpus].map(OsStr::new));
        args.extend(large.then_some(OsStr::new("--large-pages")));
        let report: Value = self.recorder.json(&args)?;
        Ok(Found::of(&report))
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
}
