//! Debian's Linux: the newest package of version 6.1 that there is, or of the backports, fetched
//! into a cache.

use std::path::PathBuf;

use kernel_boot::debian::{Debian, LINUX_6_1, vmlinuz};

use crate::contender::TargetArch;

/// Returns the path of Linux's image; fetches it unless it is in the cache.
///
/// # Errors
///
/// No package, no network, no tools.
pub fn kernel(arch: TargetArch) -> Result<PathBuf, String> {
    fetch(arch, LINUX_6_1, false)
}

/// Returns the path of the image of a later Linux, from Debian's backports.
///
/// # Errors
///
/// As [`kernel`].
pub fn newer(arch: TargetArch) -> Result<PathBuf, String> {
    fetch(arch, r"[0-9.]*\+deb[0-9]*", true)
}

/// Fetches the newest package whose version fits a regular expression.
fn fetch(arch: TargetArch, version: &str, backports: bool) -> Result<PathBuf, String> {
    let architecture = match arch {
        TargetArch::I386 => "i386",
        TargetArch::X86_64 => "amd64",
        TargetArch::Aarch64 => "arm64",
    };
    vmlinuz(&Debian::open(architecture, backports)?.linux(version)?)
}
