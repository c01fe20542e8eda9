//! Runs scripts of bash.
use std::process::{Command, Stdio};

/// Returns whether a script succeeds. Its output is dropped, and it is asked no question.
pub fn succeeds(script: &str) -> bool {
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).env("DEBIAN_FRONTEND", "noninteractive");
    bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    bash.status().is_ok_and(|status| status.success())
}

/// Returns the output of a script, without spaces at its ends.
///
/// # Errors
/// The script and the text that it has written to standard error, if it fails.
pub fn output(script: &str) -> Result<String, String> {
    let run = Command::new("bash").args(["-c", script]).output().map_err(|e| format!("bash: {e}"))?;
    if !run.status.success() {
        return Err(format!("{script}: {}", String::from_utf8_lossy(&run.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&run.stdout).trim().to_owned())
}
