//! Finds programs of the system and of toolchains.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::output;

/// Whether a command is in a directory of `PATH`.
#[must_use]
pub fn has_command(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// Returns rustc: of the toolchain in use, or of a nightly, by the name that rustup knows.
fn rustc(is_nightly: bool) -> Command {
    let mut rustc = Command::new("rustc");
    if is_nightly {
        rustc.env("RUSTUP_TOOLCHAIN", "nightly");
    }
    rustc
}

/// Returns the directory of a toolchain.
///
/// # Errors
///
/// There is no such toolchain.
pub fn sysroot(is_nightly: bool) -> Result<PathBuf, String> {
    Ok(PathBuf::from(output(rustc(is_nightly).args(["--print", "sysroot"]))?.trim()))
}

/// Returns the target of programs for this machine.
///
/// # Errors
///
/// rustc does not say.
pub fn host() -> Result<String, String> {
    let said = output(rustc(false).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// Returns the path of a program that comes with a toolchain, whether it is there or not.
///
/// # Errors
///
/// There is no such toolchain.
pub fn tool_of(is_nightly: bool, name: &str) -> Result<PathBuf, String> {
    Ok(sysroot(is_nightly)?.join("lib/rustlib").join(host()?).join("bin").join(name))
}

/// Returns the path of a program of the rustup component llvm-tools, or its name if the system may
/// have it.
///
/// # Errors
///
/// A text that says how to install it if neither has it.
pub fn llvm_tool(name: &str) -> Result<PathBuf, String> {
    let path = tool_of(false, name)?;
    if path.is_file() {
        return Ok(path);
    }
    if has_command(name) {
        return Ok(PathBuf::from(name));
    }
    Err(format!("{name} is missing: rustup component add llvm-tools"))
}
