//! Makes an initial file system: a cpio archive (newc).
//!
//! `kernel-initrd OUT ENTRY...`, where an entry is `NAME/` (a directory), `NAME@TARGET` (a symbolic
//! link), `NAME:MAJOR:MINOR` (a character device), `NAME=FILE` (a file with the content of a file
//! of the host's) or `+DIRECTORY` (all that a directory of the host's holds, by name). Entries come
//! in the order in which they are given, so that directories are named first.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const FILE: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

/// An archive that is being made.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &[u8], mode: u32, data: &[u8], device: [u32; 2]) -> Result<(), String> {
        self.add_of(name, mode, data, device, 0)
    }

    /// As [`add`](Self::add), of a file that was changed so many seconds after 1970.
    fn add_of(
        &mut self,
        name: &[u8],
        mode: u32,
        data: &[u8],
        device: [u32; 2],
        changed: u32,
    ) -> Result<(), String> {
        let shown = name.escape_ascii();
        let len = u32::try_from(data.len()).map_err(|_| format!("{shown} is too large"))?;
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let name_len = name.len() as u32 + 1;
        let [major, minor] = device;
        let fields = [self.entries, mode, 0, 0, links, changed, len, 0, 0, major, minor, name_len, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(data);
        self.pad();
        Ok(())
    }

    /// Adds the files of a directory of the host's. `name` is the directory's own, empty or with a
    /// slash at its end. Sockets, pipes and devices are left out, with a word.
    fn add_all(&mut self, name: &[u8], directory: &Path) -> io::Result<Result<(), String>> {
        let mut all = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
        all.sort_by_key(fs::DirEntry::file_name);
        for entry in all {
            let (path, kind) = (entry.path(), entry.file_type()?);
            let mut name = [name, entry.file_name().as_bytes()].concat();
            let facts = entry.metadata()?;
            let mode = facts.permissions().mode() & 0o7777;
            let changed = u32::try_from(facts.mtime()).unwrap_or(0);
            let added = if kind.is_dir() {
                let added = self.add_of(&name, DIRECTORY & !0o7777 | mode, &[], [0, 0], changed);
                name.push(b'/');
                added.and(self.add_all(&name, &path)?)
            } else if kind.is_file() {
                self.add_of(&name, FILE & !0o7777 | mode, &fs::read(&path)?, [0, 0], changed)
            } else if kind.is_symlink() {
                self.add(&name, LINK, fs::read_link(&path)?.as_os_str().as_bytes(), [0, 0])
            } else {
                eprintln!("kernel-initrd: {} is left out: no file, directory or link", path.display());
                Ok(())
            };
            if added.is_err() {
                return Ok(added);
            }
        }
        Ok(Ok(()))
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn make(arguments: &[String]) -> Result<(), String> {
    let (out, entries) = arguments.split_first().ok_or("usage: kernel-initrd OUT ENTRY...")?;
    let mut archive = Archive::default();
    for entry in entries {
        if let Some(directory) = entry.strip_prefix('+') {
            archive
                .add_all(b"", Path::new(directory))
                .map_err(|e| format!("{directory}: {e}"))
                .and_then(|added| added)?;
        } else if let Some(name) = entry.strip_suffix('/') {
            archive.add(name.as_bytes(), DIRECTORY, &[], [0, 0])?;
        } else if let Some((name, file)) = entry.split_once('=') {
            let data = fs::read(file).map_err(|e| format!("{file}: {e}"))?;
            archive.add(name.as_bytes(), FILE, &data, [0, 0])?;
        } else if let Some((name, target)) = entry.split_once('@') {
            archive.add(name.as_bytes(), LINK, target.as_bytes(), [0, 0])?;
        } else if let [name, major, minor] = entry.split(':').collect::<Vec<_>>()[..] {
            let number = |text: &str| text.parse::<u32>().map_err(|e| format!("{entry}: {text}: {e}"));
            archive.add(name.as_bytes(), DEVICE, &[], [number(major)?, number(minor)?])?;
        } else {
            return Err(format!(
                "{entry}: neither +DIRECTORY nor NAME/ nor NAME=FILE nor NAME@TARGET nor NAME:MAJOR:MINOR"
            ));
        }
    }
    archive.add(b"TRAILER!!!", 0, &[], [0, 0])?;
    fs::write(out, archive.bytes).map_err(|e| format!("{out}: {e}"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match make(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("kernel-initrd: {problem}");
            ExitCode::FAILURE
        }
    }
}
