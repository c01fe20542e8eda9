//! Runs scripts of bash.
use std::process::{Command, Stdio};

/// Returns whether a script succeeds. Its output is dropped, and it is asked no question.
pub fn succeeds(script: &str) -> bool {
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).env("DEBIAN_FRONTEND", "noninteractive");
    bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    bash.status().is_ok_and(|status| status.success())
}
