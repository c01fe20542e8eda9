//! Records a program and compares the replay with Linux.
use super::program::{Step, Text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What came of one program.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Samples that were compared.
    pub checked: u64,
    /// Samples that were equal.
    pub equal: u64,
    /// Findings of the sanitizer.
    pub findings: u64,
    /// Calls that the library refused.
    pub odd: u64,
    /// Tables that the trace knows from pages found at stops only: no rule explains them.
    pub unexplained: u64,
    /// What the replay says about the first difference.
    pub first: String,
}

impl Found {
    /// Whether everything was as Linux has it.
    pub fn is_right(&self) -> bool {
        self.equal == self.checked && self.findings == 0 && self.unexplained == 0
    }
}

/// Records and replays programs in a directory of its own.
pub struct Checker {
    ptarmigan: PathBuf,
    guest: PathBuf,
    dir: PathBuf,
}

impl Checker {
    /// Builds the command and makes the directory.
    pub fn new() -> Result<Self, String> {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--package", "ptarmigan-cli"])
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
        let dir = std::env::temp_dir().join(format!("ptarmigan-fidelity-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let guest = std::env::current_exe().map_err(|e| e.to_string())?;
        Ok(Self { ptarmigan: Path::new(target).join("release/ptarmigan"), guest, dir })
    }

    /// Says why nothing can be compared here, if that is so.
    pub fn probe(&self) -> Result<(), String> {
        let found = self.check(&[], 1)?;
        if found.checked == 0 { Err("the recording has no sample of VmPTE".to_owned()) } else { Ok(()) }
    }

    /// Records and replays `steps` on `cpus` CPUs.
    ///
    /// # Errors
    /// If the recording or the replay fails.
    pub fn check(&self, steps: &[Step], cpus: u32) -> Result<Found, String> {
        let (program, trace) = (self.dir.join("program"), self.dir.join("trace.ptrace"));
        std::fs::write(&program, Text(steps).to_string()).map_err(|e| e.to_string())?;
        let recorded = Command::new(&self.ptarmigan)
            .args(["record", "--method", "tracefs", "--level", "1", "-o"])
            .arg(&trace)
            .arg("--")
            .args(["setarch", "-R"])
            .arg(&self.guest)
            .arg("guest")
            .arg(&program)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("{}: {e}", self.ptarmigan.display()))?;
        if !recorded.status.success() {
            return Err(format!("recording: {}", String::from_utf8_lossy(&recorded.stderr).trim()));
        }
        let replayed = Command::new(&self.ptarmigan)
            .arg("replay")
            .arg(&trace)
            .args(["--policy", "plain,ptarmigan", "--sanitize", "--json", "--cpus", &cpus.to_string()])
            .output()
            .map_err(|e| format!("{}: {e}", self.ptarmigan.display()))?;
        let report: Value = serde_json::from_slice(&replayed.stdout)
            .map_err(|_| format!("replay: {}", String::from_utf8_lossy(&replayed.stderr).trim()))?;
        let mut found = Found::default();
        for run in report["runs"].as_array().into_iter().flatten() {
            let number = |value: &Value| value.as_u64().unwrap_or(0);
            let truth = &run["truth"];
            found.checked += number(&truth["checked"]);
            found.equal += number(&truth["equal"]);
            found.findings += number(&run["sanitizer"]["findings"]);
            found.odd += number(&run["odd_calls"]);
            found.unexplained += number(&truth["tables_from_stops"]);
            if found.first.is_empty() && !truth["differences"].is_null() {
                found.first = format!("{}; {}", truth["differences"], run["first_odd"]);
            }
        }
        Ok(found)
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
