//! The objects that mappings show: files, libraries, shared memory, devices.
use ptarmigan_trace::{MAX_TEXT, Object};

/// A mapping of a file or of memory that has a name, as the kernel reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappedObject {
    /// First page.
    pub(crate) start: u64,
    /// Length in pages.
    pub(crate) pages: u64,
    /// Where in its file the mapping begins, in bytes.
    pub(crate) offset: u64,
    pub(crate) executable: bool,
    pub(crate) shared: bool,
    /// The number of its file on its device, 0 if unknown.
    pub(crate) inode: u64,
    /// The identifier of the build, if the kernel has read it.
    pub(crate) build: Vec<u8>,
    /// The path as the kernel shows it. It stays in temporary files.
    pub(crate) path: String,
}

/// Stands behind the paths of files that are removed.
const REMOVED: &str = " (deleted)";

impl MappedObject {
    /// Encodes the object as 64-bit words.
    pub(crate) fn encode(&self, to: &mut Vec<u64>) {
        let bits = u64::from(self.executable) | u64::from(self.shared) << 1;
        to.extend([self.start, self.pages, self.offset, bits, self.inode]);
        for bytes in [&self.build[..], self.path.as_bytes()] {
            to.push(bytes.len() as u64);
            to.extend(bytes.chunks(8).map(|b| b.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b))));
        }
    }

    /// Decodes the words of [`encode`](Self::encode).
    pub(crate) fn decode(mut word: impl FnMut() -> Option<u64>) -> Option<Self> {
        let (start, pages, offset, bits, inode) = (word()?, word()?, word()?, word()?, word()?);
        let mut bytes = || {
            let len = usize::try_from(word()?).ok().filter(|len| *len <= 1 << 16)?;
            let mut bytes = Vec::with_capacity(len + 7);
            while bytes.len() < len {
                bytes.extend(word()?.to_le_bytes());
            }
            bytes.truncate(len);
            Some(bytes)
        };
        let (build, path) = (bytes()?, String::from_utf8_lossy(&bytes()?).into_owned());
        let (executable, shared) = (bits & 1 != 0, bits & 2 != 0);
        Some(Self { start, pages, offset, executable, shared, inode, build, path })
    }

    /// Returns whether the kernel shows a name only for memory without one: `[heap]`, `//anon`.
    pub(crate) fn is_nameless(&self) -> bool {
        let inside = self.path.starts_with('[') || self.path.starts_with("//");
        self.path.is_empty() || inside || (self.path.starts_with("/dev/zero") && !self.shared)
    }

    /// Returns whether the file was removed before it was mapped.
    pub(crate) fn is_removed(&self) -> bool {
        self.path.ends_with(REMOVED)
    }

    /// Returns the name without directories.
    pub(crate) fn base(&self) -> &str {
        let path = self.path.strip_suffix(REMOVED).unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the kind of object. `program` is the path of the program that maps it.
    pub(crate) fn kind(&self, program: &str) -> Object {
        let path = &*self.path;
        let memory = ["/memfd:", "/SYSV", "/dev/zero", "/dev/shm/", "/dev/hugepages/", "/anon_hugepage"];
        if memory.iter().any(|start| path.starts_with(start)) {
            Object::SharedMemory
        } else if path.starts_with("/dev/") || path.starts_with("anon_inode:") {
            Object::Device
        } else if path == program {
            Object::Program
        } else if self.executable || is_library(self.base()) {
            Object::Library
        } else {
            Object::File
        }
    }

    /// Returns the name for a trace, without directories: `None` if there is none.
    pub(crate) fn name(&self) -> Option<String> {
        // Shared memory without a name has one of the kernel's.
        let unnamed = ["/dev/zero", "/anon_hugepage"].iter().any(|start| self.path.starts_with(start));
        if unnamed { None } else { plain(self.base()) }
    }
}

/// Returns a name as a trace may have it: without directories, without control characters, and no
/// longer than it may be. `None` if nothing is left.
pub(crate) fn plain(name: &str) -> Option<String> {
    fit(name.rsplit('/').next()?)
}

/// Returns a name without control characters, and no longer than it may be. `None` if nothing is
/// left.
pub(crate) fn fit(name: &str) -> Option<String> {
    let mut fit = String::new();
    for c in name.chars().filter(|c| !c.is_control()) {
        if fit.len() + c.len_utf8() > MAX_TEXT {
            break;
        }
        fit.push(c);
    }
    (!fit.is_empty()).then_some(fit)
}

/// Whether a file is a shared library by its name: `libc.so.6`, `x.so`.
fn is_library(base: &str) -> bool {
    // `ld.so.cache` is none.
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    base.ends_with(".so") || base.rsplit_once(".so.").is_some_and(|(_, rest)| is_version(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str) -> MappedObject {
        MappedObject { path: path.to_owned(), ..MappedObject::default() }
    }

    #[test]
    fn objects_are_told_by_their_paths() {
        let kind = |path| object(path).kind("/bin/a");
        assert_eq!(kind("/bin/a"), Object::Program);
        assert_eq!(kind("/lib/libc.so.6"), Object::Library);
        assert_eq!(kind("/lib/x.so (deleted)"), Object::Library);
        assert_eq!(kind("/home/u/data.soup"), Object::File);
        assert_eq!(kind("/etc/ld.so.cache"), Object::File);
        assert_eq!(kind("/dev/shm/pg.1"), Object::SharedMemory);
        assert_eq!(kind("/memfd:x (deleted)"), Object::SharedMemory);
        assert_eq!(kind("/SYSV00000000 (deleted)"), Object::SharedMemory);
        assert_eq!(kind("/dev/dri/card0"), Object::Device);
        assert_eq!(kind("anon_inode:[io_uring]"), Object::Device);
        let code = MappedObject { executable: true, ..object("/opt/plugin") };
        assert_eq!(code.kind("/bin/a"), Object::Library);
    }

    #[test]
    fn names_have_no_directories_and_no_control_characters() {
        assert_eq!(object("/home/u/a\nb (deleted)").name().as_deref(), Some("ab"));
        assert_eq!(object("/memfd:pool (deleted)").name().as_deref(), Some("memfd:pool"));
        assert_eq!(object("/dev/zero (deleted)").name(), None);
        assert_eq!(plain("\u{7}"), None);
        let long = "ü".repeat(MAX_TEXT);
        assert_eq!(plain(&long).map(|name| name.len()), Some(MAX_TEXT));
        assert_eq!(plain(&format!("x{long}")).map(|name| name.len()), Some(MAX_TEXT - 1));
        assert!(object("//anon").is_nameless() && object("[heap]").is_nameless());
        assert!(!object("/memfd:x").is_nameless());
    }

    #[test]
    fn words_and_back() {
        for path in ["", "/1234567", "/12345678", "/123456789ü"] {
            let all = MappedObject {
                start: 1,
                pages: 2,
                offset: 4096,
                executable: true,
                shared: path.len() > 8,
                inode: 7,
                build: vec![3; 20],
                path: path.to_owned(),
            };
            let mut words = Vec::new();
            all.encode(&mut words);
            let mut words = words.into_iter();
            assert_eq!(MappedObject::decode(|| words.next()), Some(all));
            assert_eq!(words.next(), None);
        }
        let mut cut = vec![1, 2, 3, 0, 0, u64::MAX].into_iter();
        assert_eq!(MappedObject::decode(|| cut.next()), None);
    }
}
