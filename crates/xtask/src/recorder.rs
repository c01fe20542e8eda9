//! Runs the command `ptarmigan`: records programs in a directory of its own, and reads what it
//! prints as JSON.
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The command, and a directory that is removed in the end.
pub struct Recorder {
    ptarmigan: PathBuf,
    dir: PathBuf,
}

impl Recorder {
    /// Makes the directory for `task`, and builds the command unless one is given.
    ///
    /// # Errors
    /// A text that names the file or the command, if there is no command or no directory.
    pub fn new(task: &str, ptarmigan: Option<&Path>) -> Result<Self, String> {
        let ptarmigan = match ptarmigan {
            Some(file) => file.canonicalize().map_err(|e| format!("{}: {e}", file.display()))?,
            None => built()?,
        };
        let dir = std::env::temp_dir().join(format!("ptarmigan-{task}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Self { ptarmigan, dir })
    }

    /// The directory, in which recorded commands run.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Records a command to `trace`, with `options` of `ptarmigan record`, and ends it after
    /// `most`. Returns its status, and the text that the recorder and it have written to standard
    /// error.
    ///
    /// # Errors
    /// If no trace came of it.
    pub fn record<'a>(
        &self,
        trace: &Path,
        options: &[&str],
        command: impl IntoIterator<Item = &'a OsStr>,
        most: Duration,
    ) -> Result<(ExitStatus, String), String> {
        self.record_under(&[], trace, options, command, most)
    }

    /// Does so with a command before the recorder, such as `taskset -c 0`, so that the recording
    /// has no program of it.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn record_under<'a>(
        &self,
        before: &[&str],
        trace: &Path,
        options: &[&str],
        command: impl IntoIterator<Item = &'a OsStr>,
        most: Duration,
    ) -> Result<(ExitStatus, String), String> {
        let _ = std::fs::remove_file(trace);
        let said = self.dir.join("said");
        let error = |e: std::io::Error| format!("{}: {e}", self.ptarmigan.display());
        // A file: daemons keep their standard error open.
        let errors = std::fs::File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
        let mut words = before.iter().map(OsStr::new).chain([self.ptarmigan.as_os_str()]);
        let recorder = Command::new(words.next().unwrap_or_default())
            .args(words)
            .arg("record")
            .args(options)
            .arg("-o")
            .arg(trace)
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

    /// Runs the command with `args`, and reads its standard output as JSON.
    ///
    /// # Errors
    /// The text that it has written to standard error, after its first argument, if standard output
    /// has no JSON.
    pub fn json<T: DeserializeOwned>(&self, args: &[&OsStr]) -> Result<T, String> {
        let run = Command::new(&self.ptarmigan)
            .args(args)
            .output()
            .map_err(|e| format!("{}: {e}", self.ptarmigan.display()))?;
        serde_json::from_slice(&run.stdout).map_err(|e| {
            let said = String::from_utf8_lossy(&run.stderr);
            let why = if said.trim().is_empty() { e.to_string() } else { said.trim().to_owned() };
            let subcommand = args.first().map(|name| name.to_string_lossy()).unwrap_or_default();
            format!("{subcommand}: {why}")
        })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Builds the command. Returns its file.
fn built() -> Result<PathBuf, String> {
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--profile", "dist", "--package", "ptarmigan-cli"])
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("the command cannot be built".to_owned());
    }
    let metadata = Command::new("cargo")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let start = Instant::now();
        let sleeper = Command::new("sleep").arg("100").spawn().expect("sleep is there");
        let status = ended(sleeper, Duration::from_millis(50)).expect("it can be waited for");
        assert!(!status.success() && start.elapsed() < Duration::from_secs(50));
    }
}
