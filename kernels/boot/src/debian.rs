//! Fetches packages of Debian's into a cache outside of the repository, and unpacks them there.
//!
//! The cache is `$XDG_CACHE_HOME/ptarmigan/debian`, or `~/.cache/ptarmigan/debian`. It has lists of
//! apt's for all architectures: the system's are not changed. What the cache has is not fetched
//! again. A [root file system](Debian::root) has no documents, and no script of a package has run:
//! `/etc/passwd`, `/etc/group`, `/bin/sh` and the names that Debian's alternatives give are made
//! here.

use std::cmp::Ordering;
use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex_lite::Regex;

use crate::output;
use crate::toolchain::has_command;

/// Debian's names of architectures.
const ARCHITECTURES: [&str; 3] = ["i386", "amd64", "arm64"];
/// Directories below `/usr` that are links in the root.
const MERGED: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Directories that a root file system does without.
const DOCUMENTS: [&str; 6] = ["doc", "man", "info", "locale", "lintian", "bug"];
/// Names in `/usr/bin` that are links, if their targets are there.
const ALTERNATIVES: [(&str, &str); 8] = [
    ("sh", "dash"),
    ("sh", "bash"),
    ("awk", "gawk"),
    ("awk", "mawk"),
    ("vi", "vim.tiny"),
    ("cc", "gcc"),
    ("lua", "lua5.4"),
    ("lua", "lua5.3"),
];

/// The versions of the Linux of Debian 12.
pub const LINUX_6_1: &str = r"6\.1\.[0-9]*-[0-9]*";

/// The packages of one architecture. Others wait until this is dropped.
#[derive(Debug)]
pub struct Debian {
    arch: String,
    cache: PathBuf,
    /// Whether the release's backports are looked at, too, from the same servers.
    backports: bool,
    _lock: File,
}

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|e| format!("{}: {e}", path.display()))
}

/// Compares as versions: digits by their number.
fn by_version(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let ends = [a, b].map(|text| text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len()));
        let (texts, numbers) = ((&a[..ends[0]], &b[..ends[1]]), (&a[ends[0]..], &b[ends[1]..]));
        if texts.0 != texts.1 || (numbers.0.is_empty() && numbers.1.is_empty()) {
            return texts.0.cmp(texts.1);
        }
        let ends =
            [numbers.0, numbers.1].map(|text| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let digits = (&numbers.0[..ends[0]], &numbers.1[..ends[1]]);
        let number = |digits: &str| digits.parse::<u64>().ok();
        if number(digits.0) != number(digits.1) {
            return number(digits.0).cmp(&number(digits.1));
        }
        (a, b) = (&numbers.0[ends[0]..], &numbers.1[ends[1]..]);
    }
}

/// Returns the newest of the names that fit.
fn newest(names: impl Iterator<Item = String>, wanted: &Regex) -> Option<String> {
    names.filter(|name| wanted.is_match(name)).max_by(|a, b| by_version(a, b))
}

/// Returns the sources of a release, changed to its backports.
fn backports_of(release: &str, sources: &str) -> String {
    let stanzas = sources.split("\n\n").filter(|stanza| {
        let suites = stanza.lines().filter_map(|line| line.strip_prefix("Suites:"));
        suites.flat_map(str::split_whitespace).any(|suite| suite == release)
    });
    let changed = stanzas.map(|stanza| {
        let lines = stanza.trim().lines().map(|line| match line.starts_with("Suites:") {
            true => format!("Suites: {release}-backports\n"),
            false => format!("{line}\n"),
        });
        lines.collect::<String>() + "\n"
    });
    changed.collect()
}

impl Debian {
    /// Opens the cache.
    ///
    /// # Errors
    ///
    /// There are no packages for `arch`, no variable says where the cache is, or it cannot be made.
    pub fn open(arch: &str, backports: bool) -> Result<Self, String> {
        if !ARCHITECTURES.contains(&arch) {
            return Err(format!("no packages for '{arch}'; there are {}", ARCHITECTURES.join(", ")));
        }
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        let base = base.ok_or("neither XDG_CACHE_HOME nor HOME says where packages go")?;
        Self::in_cache(&base.join("ptarmigan/debian"), arch, backports)
    }

    fn in_cache(cache: &Path, arch: &str, backports: bool) -> Result<Self, String> {
        for directory in [arch, "state/lists/partial", "archives/partial"] {
            let directory = cache.join(directory);
            at(&directory, fs::create_dir_all(&directory))?;
        }
        let path = cache.join("lock");
        let lock = at(&path, File::create(&path))?;
        // SAFETY: the descriptor is that of an open file; no memory is concerned.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(format!("{}: {}", path.display(), io::Error::last_os_error()));
        }
        Ok(Debian { arch: arch.to_owned(), cache: cache.to_owned(), backports, _lock: lock })
    }

    fn unpacked(&self, name: &str) -> PathBuf {
        self.cache.join(&self.arch).join(name)
    }

    /// Returns a command that uses the lists in the cache.
    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.cache.join("apt.conf"));
        command
    }

    /// Writes apt's configuration: its lists are in the cache.
    fn configure(&self, names: &str) -> Result<(), String> {
        for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
            if !has_command(tool) {
                return Err(format!("{tool} is not there to fetch {names} with"));
            }
        }
        let cache = self.cache.display();
        let mut text = format!(
            "Dir::State \"{cache}/state\";\nDir::State::status \"/dev/null\";\nDir::Cache \"{cache}\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; \"i386\"; \"arm64\"; }};\n\
             APT::Sandbox::User \"root\";\n"
        );
        if self.backports {
            self.add_backports()?;
            text.push_str(&format!("Dir::Etc::sourceparts \"{cache}/sources\";\n"));
        }
        let path = self.cache.join("apt.conf");
        at(&path, fs::write(&path, text))
    }

    fn add_backports(&self) -> Result<(), String> {
        let (system, own) = (Path::new("/etc/apt/sources.list.d"), self.cache.join("sources"));
        at(&own, fs::create_dir_all(&own))?;
        let mut sources = String::new();
        for entry in at(system, fs::read_dir(system))?.flatten() {
            let (path, copy) = (entry.path(), own.join(entry.file_name()));
            at(&path, fs::copy(&path, &copy))?;
            if path.extension().is_some_and(|extension| extension == "sources") {
                sources += &at(&path, fs::read_to_string(&path))?;
                sources += "\n\n";
            }
        }
        let os = Path::new("/etc/os-release");
        let text = at(os, fs::read_to_string(os))?;
        let release = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("");
        let backports = backports_of(release, &sources);
        if backports.is_empty() {
            return Err(format!(
                "no file of {} says where the release comes from, nor its backports",
                system.display()
            ));
        }
        let path = own.join("ptarmigan-backports.sources");
        at(&path, fs::write(&path, backports))
    }

    /// Leaves packages in the directory `new`.
    fn download(&self, names: &[String]) -> Result<bool, String> {
        let new = self.cache.join("new");
        // There is none, as a rule.
        let _ = fs::remove_dir_all(&new);
        at(&new, fs::create_dir(&new))?;
        eprintln!("fetching {} for {} into {}", names.join(" "), self.arch, self.cache.display());
        let mut command = self.apt("apt-get");
        command.args(["download", "-qq"]).args(names.iter().map(|name| format!("{name}:{}", self.arch)));
        let status = command.current_dir(&new).stdout(io::stderr()).status();
        Ok(status.map_err(|e| format!("apt-get: {e}"))?.success())
    }

    /// Unpacks the packages in `new`.
    fn unpack(&self) -> Result<(), String> {
        let (new, files) = (self.cache.join("new"), self.cache.join("new/unpacked"));
        for entry in at(&new, fs::read_dir(&new))?.flatten() {
            let package = entry.path();
            if package.extension().is_none_or(|extension| extension != "deb") {
                continue;
            }
            output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&files))?;
            let name = output(Command::new("dpkg-deb").arg("-f").arg(&package).arg("Package"))?;
            let place = self.unpacked(name.trim());
            // There is none, as a rule.
            let _ = fs::remove_dir_all(&place);
            at(&place, fs::rename(&files, &place))?;
        }
        at(&new, fs::remove_dir_all(&new))
    }

    /// Fetches apt's lists. A list that cannot be had does not matter if the package is in another.
    fn update(&self) -> String {
        let said = self.apt("apt-get").args(["update", "-qq"]).output();
        said.map_or_else(
            |e| format!("apt-get: {e}"),
            |said| {
                let text = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
                text.lines().next_back().unwrap_or("").to_owned()
            },
        )
    }

    /// Returns the directory of the newest package that fits: `name` is a regular expression.
    ///
    /// # Errors
    ///
    /// There is no such package, and it cannot be fetched.
    pub fn package(&self, name: &str) -> Result<PathBuf, String> {
        let wanted = Regex::new(&format!("^(?:{name})$")).map_err(|e| format!("{name}: {e}"))?;
        let directory = self.cache.join(&self.arch);
        let found = || -> Result<Option<PathBuf>, String> {
            let all = at(&directory, fs::read_dir(&directory))?.flatten();
            let all = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
            Ok(newest(all, &wanted).map(|name| directory.join(name)))
        };
        if let Some(place) = found()? {
            return Ok(place);
        }
        self.configure(name)?;
        let known = || -> Result<Option<String>, String> {
            let all = output(self.apt("apt-cache").arg("pkgnames"))?;
            let all = all.lines().map(|line| line.strip_suffix(&format!(":{}", self.arch)).unwrap_or(line));
            Ok(newest(all.filter(|name| !name.contains(':')).map(str::to_owned), &wanted))
        };
        let mut fetched = match known()? {
            Some(package) => self.download(&[package])?,
            None => false,
        };
        if !fetched {
            let said = self.update();
            if let Some(package) = known()? {
                fetched = self.download(&[package])?;
            }
            if !fetched {
                return Err(format!("no package {name} for {}: {said}", self.arch));
            }
        }
        self.unpack()?;
        found()?.ok_or_else(|| format!("{name} is not in {}", directory.display()))
    }

    /// Returns the directory of the newest Linux whose version fits a regular expression;
    /// [`vmlinuz`] finds its image.
    ///
    /// # Errors
    ///
    /// As [`package`](Self::package).
    pub fn linux(&self, version: &str) -> Result<PathBuf, String> {
        let flavour = match &*self.arch {
            "i386" => "686-pae".to_owned(),
            arch => format!("cloud-{arch}"),
        };
        self.package(&format!("linux-image-{version}-{flavour}-unsigned"))
    }

    /// Returns the names of packages and of their dependencies; none if one of them cannot be had.
    fn needed(&self, names: &[String]) -> Vec<String> {
        let mut command = self.apt("apt-get");
        command.args(["-o", &format!("APT::Architecture={}", self.arch)]);
        command.args(["--no-install-recommends", "--simulate", "install"]).args(names);
        let said = command.stderr(Stdio::null()).output().map(|said| said.stdout).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let installed = said.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
        installed.map(str::to_owned).collect()
    }

    /// Copies a package into the tree. Directories that are links there stay links.
    fn add(&self, name: &str, tree: &Path) -> Result<(), String> {
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(self.unpacked(name));
        pack.args(DOCUMENTS.map(|name| format!("--exclude=./usr/share/{name}"))).args(["-cf", "-", "."]);
        let mut packed = pack.stdout(Stdio::piped()).spawn().map_err(|e| format!("tar: {e}"))?;
        let mut unpack = Command::new("tar");
        unpack.arg("-C").arg(tree).args(["--keep-directory-symlink", "-xf", "-"]);
        if let Some(archive) = packed.stdout.take() {
            unpack.stdin(archive);
        }
        let copied = output(&mut unpack);
        let status = packed.wait().map_err(|e| format!("tar: {e}"))?;
        copied?;
        if status.success() { Ok(()) } else { Err(format!("tar of {name}: {status}")) }
    }

    /// Returns the directory of a root file system: the packages and all that they depend on. A
    /// package that cannot be had is named, and the root is made of the others.
    ///
    /// # Errors
    ///
    /// No package can be had, or a file cannot be made.
    pub fn root(&self, names: &[String]) -> Result<PathBuf, String> {
        let names: Vec<String> =
            names.iter().flat_map(|name| name.split_whitespace()).map(str::to_owned).collect();
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        let place = self.cache.join(format!("roots/{}-{:016x}", self.arch, hasher.finish()));
        if place.is_dir() {
            return Ok(place);
        }
        let (shown, arch) = (names.join(" "), &self.arch);
        self.configure(&shown)?;
        let mut needed = self.needed(&names);
        let mut is_complete = true;
        if needed.is_empty() {
            let said = self.update();
            let (wanted, left_out): (Vec<String>, Vec<String>) =
                names.iter().cloned().partition(|name| !self.needed(std::slice::from_ref(name)).is_empty());
            if !left_out.is_empty() {
                is_complete = false;
                eprintln!("left out, as they cannot be had for {arch}: {}", left_out.join(" "));
            }
            needed = if wanted.is_empty() { Vec::new() } else { self.needed(&wanted) };
            if needed.is_empty() {
                return Err(format!("no package of {shown} for {arch}: {said}"));
            }
        }
        let is_missing = |name: &&String| !self.unpacked(name).is_dir();
        let missing: Vec<String> = needed.iter().filter(is_missing).cloned().collect();
        // All in one go; if that fails, the packages that can be had.
        if !missing.is_empty() {
            let all = self.download(&missing)?;
            self.unpack()?;
            for name in missing.iter().filter(is_missing).filter(|_| !all) {
                self.download(std::slice::from_ref(name))?;
                self.unpack()?;
            }
        }
        let tree = self.tree()?;
        for name in &needed {
            if is_missing(&name) {
                is_complete = false;
                eprintln!("{name} for {arch} cannot be fetched, and is left out");
            } else {
                self.add(name, &tree)?;
            }
        }
        finish(&tree).map_err(|why| format!("{why}: {shown}"))?;
        // One that lacks a package is made again next time.
        let incomplete = self.cache.join(format!("roots/{arch}-incomplete"));
        let place = if is_complete { place } else { incomplete };
        let _ = fs::remove_dir_all(&place);
        at(&place, fs::create_dir_all(self.cache.join("roots")).and_then(|()| fs::rename(&tree, &place)))?;
        Ok(place)
    }

    /// Makes an empty tree.
    fn tree(&self) -> Result<PathBuf, String> {
        let tree = self.cache.join("tree");
        // There is none, as a rule.
        let _ = fs::remove_dir_all(&tree);
        for name in ["etc", "tmp", "root", "dev", "proc"] {
            at(&tree, fs::create_dir_all(tree.join(name)))?;
        }
        for name in MERGED {
            let target = format!("usr/{name}");
            at(
                &tree,
                fs::create_dir_all(tree.join(&target)).and_then(|()| symlink(target, tree.join(name))),
            )?;
        }
        Ok(tree)
    }
}

/// Returns the image in the directory of a package of Linux.
///
/// # Errors
///
/// It has none.
pub fn vmlinuz(package: &Path) -> Result<PathBuf, String> {
    let boot = package.join("boot");
    let is_image =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    let mut files = at(&boot, fs::read_dir(&boot))?.flatten().map(|entry| entry.path());
    files.find(is_image).ok_or_else(|| format!("{} has no image of Linux", boot.display()))
}

/// Makes the files of a tree that scripts of packages would make.
fn finish(tree: &Path) -> Result<(), String> {
    let programs = tree.join("usr/bin");
    if at(&programs, fs::read_dir(&programs))?.next().is_none() {
        return Err("none of the packages could be fetched".into());
    }
    let write = |name: &str, text: &str| at(tree, fs::write(tree.join(name), text));
    write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")?;
    write("etc/group", "root:x:0:\n")?;
    for (name, target) in ALTERNATIVES {
        let link = programs.join(name);
        if fs::symlink_metadata(&link).is_err() && programs.join(target).exists() {
            at(&link, symlink(target, &link))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let all = ["a-6.1.0-9-x", "a-6.1.0-38-x", "a-6.1.0-38-xy", "a-6.1.1-1-x"];
        for pair in all.windows(2) {
            assert_eq!(by_version(pair[0], pair[1]), Ordering::Less, "{pair:?}");
        }
        assert_eq!(by_version("a", "a"), Ordering::Equal);
        let wanted = Regex::new("^(?:a-6.1.0-[0-9]*-x)$").unwrap();
        assert_eq!(newest(all.iter().map(|&name| name.to_owned()), &wanted).as_deref(), Some("a-6.1.0-38-x"));
    }

    #[test]
    fn sources_of_the_release_become_its_backports() {
        let sources = "Types: deb\nURIs: http://a\nSuites: b b-updates\n\nTypes: deb\nSuites: b-security\n";
        assert_eq!(backports_of("b", sources), "Types: deb\nURIs: http://a\nSuites: b-backports\n\n");
        assert_eq!(backports_of("c", sources), "");
    }

    #[test]
    fn a_package_in_the_cache_is_not_fetched() {
        let scratch = Scratch::new().unwrap();
        let debian = Debian::in_cache(&scratch.file("cache"), "amd64", false).unwrap();
        for name in ["tool-9", "tool-10", "tool-11-dbg"] {
            fs::create_dir(debian.unpacked(name)).unwrap();
        }
        assert_eq!(debian.package("tool-[0-9]*").unwrap(), debian.unpacked("tool-10"));
        assert!(debian.package("tool-(").unwrap_err().starts_with("tool-("));
        assert!(Debian::open("vax", false).unwrap_err().contains("i386, amd64, arm64"));
    }

    #[test]
    fn a_tree_has_links_users_and_alternatives() {
        let scratch = Scratch::new().unwrap();
        let debian = Debian::in_cache(&scratch.file("cache"), "amd64", false).unwrap();
        let tree = debian.tree().unwrap();
        assert!(finish(&tree).unwrap_err().contains("none of the packages"));
        let package = debian.unpacked("dash");
        for name in ["bin", "usr/share/doc/dash"] {
            fs::create_dir_all(package.join(name)).unwrap();
        }
        fs::write(package.join("bin/dash"), "").unwrap();
        debian.add("dash", &tree).unwrap();
        finish(&tree).unwrap();
        assert!(tree.join("usr/bin/dash").is_file() && !tree.join("usr/share/doc").exists());
        assert_eq!(fs::read_link(tree.join("usr/bin/sh")).unwrap(), Path::new("dash"));
        assert_eq!(fs::read_link(tree.join("bin")).unwrap(), Path::new("usr/bin"));
        assert!(!tree.join("usr/bin/awk").exists() && tree.join("etc/passwd").is_file());
    }
}
