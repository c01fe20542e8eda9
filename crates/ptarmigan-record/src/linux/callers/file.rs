//! Reads programs and libraries, if they are still what was mapped.
use crate::linux::object::MappedObject;
use object::{Object as _, ObjectKind};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};
use typed_arena::Arena;

/// The contents of programs and libraries.
pub(crate) type Files = Arena<Vec<u8>>;

/// The most bytes of all files.
const MOST_BYTES: u64 = 2 << 30;

/// Why the functions of a file are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unknown {
    Gone,
    OtherBuild,
    NoProgram,
    TooLarge,
}

impl Unknown {
    /// Returns the reason, as it follows the names of files.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Gone => "cannot be read any more",
            Self::OtherBuild => "is another build now than the one that ran",
            Self::NoProgram => "is no program or library of this machine",
            Self::TooLarge => "has no place beside the other files",
        }
    }
}

/// Tells files apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    path: String,
    inode: u64,
    build: Vec<u8>,
}

impl FileKey {
    pub(super) fn of(object: &MappedObject) -> Self {
        Self { path: object.path.clone(), inode: object.inode, build: object.build.clone() }
    }
}

/// Reads a file that was mapped at `time`. `loaded` bytes of other files are in memory.
pub(super) fn load(object: &MappedObject, time: u64, loaded: u64) -> Result<Vec<u8>, Unknown> {
    if object.is_removed() {
        return Err(Unknown::Gone);
    }
    let mut file = File::open(&object.path).map_err(|_| Unknown::Gone)?;
    let facts = file.metadata().map_err(|_| Unknown::Gone)?;
    if !facts.is_file() {
        return Err(Unknown::NoProgram);
    }
    if loaded.saturating_add(facts.len()) > MOST_BYTES {
        return Err(Unknown::TooLarge);
    }
    if object.build.is_empty() && !is_same(object, &facts, time) {
        return Err(Unknown::OtherBuild);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|_| Unknown::Gone)?;
    if !object.build.is_empty() && build_of(&bytes).is_none_or(|build| build != object.build) {
        return Err(Unknown::OtherBuild);
    }
    Ok(bytes)
}

/// Returns whether a file is the mapped one, and has not been changed since.
fn is_same(object: &MappedObject, facts: &Metadata, time: u64) -> bool {
    let since = Duration::from_nanos(crate::linux::system::sys::now().saturating_sub(time));
    let mapped = SystemTime::now().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH);
    let changed = Duration::new(
        u64::try_from(facts.ctime()).unwrap_or(0),
        u32::try_from(facts.ctime_nsec()).unwrap_or(0),
    );
    let unchanged = SystemTime::UNIX_EPOCH.checked_add(changed).is_some_and(|changed| changed <= mapped);
    object.inode == facts.ino() && unchanged
}

/// Returns the identifier of the build of a program or library.
pub(super) fn build_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let file = object::File::parse(bytes).ok()?;
    matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic | ObjectKind::Unknown)
        .then(|| file.build_id().ok().flatten().map(<[u8]>::to_vec))?
}
