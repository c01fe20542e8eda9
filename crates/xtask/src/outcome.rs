//! Ends a task with the exit status that its outcome has.
use std::process::ExitCode;

/// Prints a line for each failure. Returns whether there is no failure.
pub fn passed(failures: &[String]) -> bool {
    failures.iter().for_each(|failure| eprintln!("FAILED: {failure}"));
    failures.is_empty()
}

/// Returns the exit status of `cargo xtask TASK`: 1 if it has failed, and 2, with a line that says
/// why, if it could not run.
pub fn exit(task: &str, outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("cargo xtask {task}: {why}");
            ExitCode::from(2)
        }
    }
}
