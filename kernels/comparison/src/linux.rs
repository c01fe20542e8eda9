//! Debian's Linux: the newest package of version 6.1, fetched into a cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::contender::Arch;
use crate::run;

fn cache() -> Result<PathBuf, String> {
    let base = match (env::var_os("XDG_CACHE_HOME"), env::var_os("HOME")) {
        (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
        (_, Some(home)) => PathBuf::from(home).join(".cache"),
        _ => return Err("neither XDG_CACHE_HOME nor HOME says where fetched packages go".into()),
    };
    Ok(base.join("ptarmigan/linux-guest"))
}

/// An apt tool with lists and packages of its own, for both architectures: nothing of the system's
/// is changed.
fn apt(tool: &str, cache: &Path) -> Command {
    let mut command = Command::new(tool);
    for option in [
        format!("Dir::State={}", cache.join("state").display()),
        format!("Dir::Cache={}", cache.join("cache").display()),
        "Dir::State::status=/dev/null".into(),
        "APT::Architecture=amd64".into(),
        "APT::Architectures::=amd64".into(),
        "APT::Architectures::=i386".into(),
        "APT::Sandbox::User=root".into(),
    ] {
        command.arg("-o").arg(option);
    }
    command
}

fn version(name: &str) -> Vec<u32> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn image(directory: &Path) -> Option<PathBuf> {
    let boot = fs::read_dir(directory.join("boot")).ok()?;
    boot.flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")))
}

/// Returns the path of Linux's image; fetches it unless it is in the cache.
///
/// # Errors
///
/// No package, no network, no tools.
pub fn kernel(arch: Arch) -> Result<PathBuf, String> {
    let cache = cache()?;
    let directory = cache.join(arch.to_string());
    if let Some(image) = image(&directory) {
        return Ok(image);
    }
    eprintln!("fetching Linux 6.1 for {arch} into {}", cache.display());
    for part in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(cache.join(part)).map_err(|e| format!("{}: {e}", cache.display()))?;
    }
    // One list that cannot be had does not matter if the package is in another.
    let updated = run(apt("apt-get", &cache).args(["update", "-qq"]));
    let names = run(apt("apt-cache", &cache).args(["pkgnames", "linux-image-6.1."]))?;
    let suffix = if arch == Arch::I386 { "-686-pae-unsigned" } else { "-cloud-amd64-unsigned" };
    let newest = names
        .lines()
        .map(|name| name.trim_end_matches(":i386"))
        .filter(|name| name.ends_with(suffix) && !name.contains("-rt-"))
        .max_by_key(|name| version(name))
        .ok_or_else(|| {
            let why = updated.err().map(|e| format!(" ({e})")).unwrap_or_default();
            format!("Debian's archive has no package linux-image-6.1*{suffix}{why}")
        })?;
    let name = if arch == Arch::I386 { format!("{newest}:i386") } else { newest.to_owned() };
    let packages = cache.join(format!("{arch}-package"));
    fs::create_dir_all(&packages).map_err(|e| format!("{}: {e}", packages.display()))?;
    run(apt("apt-get", &cache).args(["download", "-qq", &name]).current_dir(&packages))?;
    let package = fs::read_dir(&packages)
        .map_err(|e| format!("{}: {e}", packages.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| format!("{name} was not downloaded"))?;
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&directory))?;
    image(&directory).ok_or_else(|| format!("{} has no image of Linux", package.display()))
}
