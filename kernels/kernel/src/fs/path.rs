//! Paths.

use super::tree::{Kind, NONE, ROOT, TARGET, Tree};
use crate::errno::Errno;

/// Bytes of a path at the most.
pub const PATH: usize = 512;
/// The link to the caller's program, the one link of `/proc` that programs ask for: to be read and
/// to be executed.
pub const OWN_PROGRAM: &[u8] = b"/proc/self/exe";
/// Symbolic links that a path may lead through.
const MOST_LINKS: usize = 16;

/// Where a path leads.
#[derive(Clone, Copy)]
pub struct Found {
    /// The directory that the last name is in.
    pub directory: u16,
    /// The last name: its place in `name`.
    name: [u8; super::tree::NAME],
    len: usize,
    /// The file; [`NONE`] if no file has that name.
    pub file: u16,
    /// The path ends with a slash.
    pub wants_directory: bool,
}

impl Found {
    /// Returns the last name of the path.
    pub fn name(&self) -> &[u8] {
        &self.name[..self.len]
    }

    /// Returns the file.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`] if no file has that name; [`Errno::ENOTDIR`] if the path wants a directory
    /// and the file is not one.
    pub fn existing(&self, tree: &Tree) -> Result<u16, Errno> {
        match self.file {
            NONE => Err(Errno::ENOENT),
            file if self.wants_directory && !tree.is_directory(file) => Err(Errno::ENOTDIR),
            file => Ok(file),
        }
    }
}

/// A path that is being followed: the rest of it.
struct Rest {
    bytes: [u8; PATH],
    start: usize,
    len: usize,
}

impl Rest {
    fn new(path: &[u8]) -> Result<Self, Errno> {
        let mut bytes = [0; PATH];
        bytes.get_mut(..path.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
        Ok(Rest { bytes, start: 0, len: path.len() })
    }

    /// Takes the next name off; whether more follows it.
    fn next(&mut self) -> Option<(core::ops::Range<usize>, bool, bool)> {
        while self.start < self.len && self.bytes[self.start] == b'/' {
            self.start += 1;
        }
        if self.start == self.len {
            return None;
        }
        let from = self.start;
        while self.start < self.len && self.bytes[self.start] != b'/' {
            self.start += 1;
        }
        let rest = &self.bytes[self.start..self.len];
        let more = rest.iter().any(|byte| *byte != b'/');
        Some((from..self.start, more, !rest.is_empty()))
    }

    /// Puts the target of a link before the rest.
    fn insert(&mut self, target: &[u8]) -> Result<(), Errno> {
        let mut bytes = [0; PATH];
        let rest = self.len - self.start;
        let whole = bytes.get_mut(..target.len() + rest).ok_or(Errno::ENAMETOOLONG)?;
        whole[..target.len()].copy_from_slice(target);
        whole[target.len()..].copy_from_slice(&self.bytes[self.start..self.len]);
        (self.start, self.len, self.bytes) = (0, target.len() + rest, bytes);
        Ok(())
    }
}

/// Follows a path from `directory`. A link at the end is followed if `follow`.
///
/// # Errors
///
/// [`Errno::ENOENT`] and [`Errno::ENOTDIR`] if there is no directory on the way,
/// [`Errno::ENAMETOOLONG`], [`Errno::ELOOP`].
pub fn resolve(tree: &Tree, directory: u16, path: &[u8], follow: bool) -> Result<Found, Errno> {
    Errno::ENOENT.when(path.is_empty())?;
    let mut rest = Rest::new(path)?;
    let mut at = if path.first() == Some(&b'/') { ROOT } else { directory };
    let mut links = 0;
    let nowhere = [0; super::tree::NAME];
    let mut found =
        Found { directory: tree.get(at).parent, name: nowhere, len: 0, file: at, wants_directory: true };
    while let Some((range, more, slash)) = rest.next() {
        Errno::ENOTDIR.when(!tree.is_directory(at))?;
        let name = &rest.bytes[range];
        let file = match name {
            b"." => at,
            b".." => tree.get(at).parent,
            _ => tree.find(at, name).unwrap_or(NONE),
        };
        Errno::ENOENT.when(file == NONE && more)?;
        if file != NONE && matches!(tree.get(file).kind, Kind::Link(_)) && (more || slash || follow) {
            links += 1;
            Errno::ELOOP.when(links > MOST_LINKS)?;
            let mut target = [0; TARGET];
            let named = tree.target(file);
            target[..named.len()].copy_from_slice(named);
            rest.insert(&target[..named.len()])?;
            if target[0] == b'/' {
                at = ROOT;
            }
            found = Found { directory: tree.get(at).parent, len: 0, file: at, ..found };
            continue;
        }
        found = Found { directory: at, name: nowhere, len: name.len(), file, wants_directory: slash };
        found.name.get_mut(..name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
        at = file;
    }
    Ok(found)
}

/// Writes the path of a directory to the start of `path`, with a zero at its end; returns its
/// length, the zero included.
///
/// # Errors
///
/// [`Errno::ERANGE`] if it does not fit; [`Errno::ENOENT`] if the directory has gone.
pub fn path_of(tree: &Tree, file: u16, path: &mut [u8]) -> Result<usize, Errno> {
    let mut chain = [NONE; 64];
    let mut depth = 0;
    let mut at = file;
    while at != ROOT {
        Errno::ENOENT.when(!tree.get(at).linked)?;
        *chain.get_mut(depth).ok_or(Errno::ERANGE)? = at;
        depth += 1;
        at = tree.get(at).parent;
    }
    let mut len = 0;
    let mut put = |bytes: &[u8]| -> Result<(), Errno> {
        path.get_mut(len..len + bytes.len()).ok_or(Errno::ERANGE)?.copy_from_slice(bytes);
        len += bytes.len();
        Ok(())
    };
    if depth == 0 {
        put(b"/")?;
    }
    for file in chain[..depth].iter().rev() {
        put(b"/")?;
        put(tree.get(*file).name())?;
    }
    put(b"\0")?;
    Ok(len)
}
