//! Builds the image of a board.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::board::{Board, Model};
use crate::here;
use crate::toolchain::{host, tool_of};

/// Variables of cargo that would change an image, or the program that is built for the host.
const FOREIGN: [&str; 3] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"];

/// An image that is to be built.
#[derive(Clone, Debug)]
pub struct Image<'a> {
    /// The board.
    pub board: &'a Board,
    /// The package.
    pub package: &'a str,
    /// The profile: `release` keeps the library's own checks, `lean` is an image as it would be
    /// shipped, `dev` is not optimised.
    pub profile: &'a str,
    /// Features of the package, beside the board's.
    pub features: &'a [&'a str],
    /// Whether it has the names of its functions and files, in a profile that has no others.
    pub has_lines: bool,
    /// The directory of builds.
    pub directory: PathBuf,
}

impl<'a> Image<'a> {
    /// Returns the board's own image, with the library's own checks.
    #[must_use]
    pub fn of(board: &'a Board) -> Self {
        Image {
            board,
            package: &board.package,
            profile: "release",
            features: &[],
            has_lines: false,
            directory: target_directory(),
        }
    }

    /// Builds it, and returns its path.
    ///
    /// # Errors
    ///
    /// A text that names the tool or the target that is missing; or the build fails.
    pub fn build(&self) -> Result<PathBuf, String> {
        let Image { board, package, profile, features, has_lines, directory } = self;
        board.check()?;
        let linker = tool_of(board.core_from_source, "rust-lld")?;
        if !linker.is_file() {
            return Err(format!("the toolchain has no rust-lld at {}", linker.display()));
        }
        // The linker itself, not a compiler driver: no start files and no libc come along. It is
        // chosen by a flag, because flags for a target that is named do not reach the build script,
        // while cargo's own linker setting would.
        let model = match board.model {
            Model::Pic => "pic",
            Model::Static => "static",
        };
        let flags =
            format!("-Clinker={} -Clinker-flavor=ld.lld -Crelocation-model={model}", linker.display());
        let variable = board.target.to_uppercase().replace('-', "_");
        let mut cargo = cargo(&board.workspace(), directory);
        cargo.env(format!("CARGO_TARGET_{variable}_RUSTFLAGS"), flags);
        cargo.args(["build", "--quiet", "--profile", profile, "--target", &board.target, "-p", package]);
        if *has_lines {
            cargo.env(format!("CARGO_PROFILE_{}_DEBUG", profile.to_uppercase()), "1");
        }
        let boards = board.features.iter().map(String::as_str).filter(|_| *package == board.package);
        let features: Vec<&str> = features.iter().copied().chain(boards).collect();
        if !features.is_empty() {
            cargo.args(["--features", &features.join(",")]);
        }
        if board.core_from_source {
            cargo.env("RUSTUP_TOOLCHAIN", "nightly");
            cargo.args(["-Zbuild-std=core", "-Zbuild-std-features=compiler-builtins-mem"]);
        }
        run(&mut cargo, package)?;
        let profile = if *profile == "dev" { "debug" } else { profile };
        Ok(directory.join(&board.target).join(profile).join(package))
    }
}

/// Returns the directory of builds: `CARGO_TARGET_DIR`, or `kernels/target`.
#[must_use]
pub fn target_directory() -> PathBuf {
    let given = env::var_os("CARGO_TARGET_DIR").filter(|given| !given.is_empty());
    let path = given.map_or_else(|| here().join("target"), PathBuf::from);
    std::path::absolute(&path).unwrap_or(path)
}

/// Returns cargo, in a workspace, with a directory of builds.
#[must_use]
pub fn cargo(workspace: &Path, directory: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace).env("CARGO_TARGET_DIR", directory);
    FOREIGN.iter().for_each(|name| {
        cargo.env_remove(name);
    });
    cargo
}

/// Builds packages of a workspace for the host, optimised; returns the directory of the results.
///
/// # Errors
///
/// The build fails.
pub fn build_for_host(workspace: &Path, directory: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    let host = host()?;
    let mut cargo = cargo(workspace, directory);
    cargo.args(["build", "--quiet", "--release", "--target", &host]);
    packages.iter().for_each(|package| {
        cargo.args(["-p", package]);
    });
    run(&mut cargo, &packages.join(", "))?;
    Ok(directory.join(host).join("release"))
}

/// Runs cargo, which prints its errors.
fn run(cargo: &mut Command, package: &str) -> Result<(), String> {
    let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{package} is not built: cargo ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_with_one_directory_have_the_same_profiles() {
        let profiles = |workspace: &Path| {
            let manifest = std::fs::read_to_string(workspace.join("Cargo.toml")).unwrap();
            toml::from_str::<toml::Table>(&manifest).unwrap()["profile"].clone()
        };
        assert_eq!(profiles(here()), profiles(&crate::linux()));
    }
}
