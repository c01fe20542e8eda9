//! Makes an initial file system: a cpio archive (newc).

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::{fs, io};

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
                eprintln!("{} is left out: no file, directory or link", path.display());
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

/// Writes the archive of `entries` to `out`. An entry is `NAME/` (a directory), `NAME@TARGET` (a
/// symbolic link), `NAME:MAJOR:MINOR` (a character device), `NAME=FILE` (a file with the content of
/// a file of the host's) or `+DIRECTORY` (all that a directory of the host's holds, by name).
/// Entries come in the order in which they are given, so that directories are named first.
///
/// # Errors
///
/// A text that names the entry that has no such form, or whose file cannot be read; or `out`.
pub fn write(out: &Path, entries: &[String]) -> Result<(), String> {
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
    fs::write(out, archive.bytes).map_err(|e| format!("{}: {e}", out.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn entries_are_directories_links_devices_and_files() {
        let scratch = Scratch::new().unwrap();
        let [out, file] = ["out", "file"].map(|name| scratch.file(name));
        fs::write(&file, "four").unwrap();
        let entries =
            ["bin/", "bin/sh@dash", "console:5:1", &format!("init={}", file.display())].map(str::to_owned);
        write(&out, &entries).unwrap();
        let bytes = fs::read(&out).unwrap();
        let heads: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"070701")).collect();
        assert_eq!(heads.len(), 5);
        let modes = heads.iter().map(|head| &bytes[head + 14..head + 22]);
        let wanted: [&[u8]; 5] = [b"000041ed", b"0000a1ff", b"00002180", b"000081ed", b"00000000"];
        assert!(modes.eq(wanted));
        for (text, part) in [("init", "init: neither"), ("c:5:x", "c:5:x: x"), ("a=/none", "/none: ")] {
            assert!(write(&out, &[text.to_owned()]).unwrap_err().starts_with(part));
        }
    }

    #[test]
    fn a_directory_comes_with_its_files_in_order() {
        let scratch = Scratch::new().unwrap();
        let root = scratch.file("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/passwd"), "").unwrap();
        fs::write(root.join("a"), "").unwrap();
        write(&scratch.file("out"), &[format!("+{}", root.display())]).unwrap();
        let bytes = fs::read(scratch.file("out")).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let at = ["a\0", "etc\0", "etc/passwd\0", "TRAILER!!!"].map(|name| text.find(name));
        assert!(at.is_sorted() && at[0].is_some(), "{at:?}");
    }
}
