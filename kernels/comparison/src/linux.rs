//! Debian's Linux: the newest package of version 6.1 that there is, or of the backports, fetched
//! into a cache.

use std::fs;
use std::path::PathBuf;

use kernel_boot::debian::Debian;

use crate::contender::Arch;

/// Returns the path of Linux's image; fetches it unless it is in the cache.
///
/// # Errors
///
/// No package, no network, no tools.
pub fn kernel(arch: Arch) -> Result<PathBuf, String> {
    fetch(arch, r"6\.1\.[0-9]*-[0-9]*", false)
}

/// Returns the path of the image of a later Linux, from Debian's backports.
///
/// # Errors
///
/// As [`kernel`].
pub fn newer(arch: Arch) -> Result<PathBuf, String> {
    fetch(arch, r"[0-9.]*\+deb[0-9]*", true)
}

/// Fetches the newest package whose version fits a regular expression.
fn fetch(arch: Arch, version: &str, backports: bool) -> Result<PathBuf, String> {
    let (architecture, flavour) = match arch {
        Arch::I386 => ("i386", "686-pae"),
        Arch::X86_64 => ("amd64", "cloud-amd64"),
        Arch::Aarch64 => ("arm64", "cloud-arm64"),
    };
    let name = format!("linux-image-{version}-{flavour}-unsigned");
    let boot = Debian::open(architecture, backports)?.package(&name)?.join("boot");
    fs::read_dir(&boot)
        .map_err(|e| format!("{}: {e}", boot.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")))
        .ok_or_else(|| format!("{} has no image of Linux", boot.display()))
}
