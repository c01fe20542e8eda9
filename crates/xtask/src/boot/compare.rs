//! `cargo xtask boot compare`: builds the comparison with Linux, and runs it.
use kernel_boot::image::{build_for_host, target_directory};
use kernel_boot::{here, linux};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Runs the comparison in place of this program.
///
/// # Errors
///
/// It is not built.
pub fn run(words: &[String]) -> Result<ExitCode, String> {
    let directory = target_directory();
    let counter = build_for_host(here(), &directory, &["kernel-counter"])?.join("libkernel_counter.so");
    let built = build_for_host(&linux(), &directory, &["kernel-comparison"])?;
    let mut command = Command::new(built.join("kernel-comparison"));
    command.arg("--counter").arg(counter).args(words);
    Err(format!("kernel-comparison: {}", command.exec()))
}
