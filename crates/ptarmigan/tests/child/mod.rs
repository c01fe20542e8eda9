//! Tests that need a process of their own, as it ends.
use std::process::{Command, Output};

const VARIABLE: &str = "PTARMIGAN_TEST_CHILD";

/// Runs the test of this name in a process of its own. Returns its output, `None` in that process.
pub fn of(test: &str) -> Option<Output> {
    if std::env::var_os(VARIABLE).is_some() {
        return None;
    }
    let itself = std::env::current_exe().expect("a test has a file");
    let mut command = Command::new(itself);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(VARIABLE, "1");
    Some(command.output().expect("a test can be run again"))
}
