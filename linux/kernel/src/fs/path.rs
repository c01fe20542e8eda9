//! Paths.

use super::open::What;
use super::tree::{Kind, Magic, NONE, Names, ROOT, TARGET, Tree};
use crate::errno::Errno;

/// Bytes of a path at the most.
pub const PATH: usize = 512;
/// The link to the caller's program, the one link of `/proc` that programs ask for: to be read and
/// to be executed.
pub const OWN_PROGRAM: &[u8] = b"/proc/self/exe";
/// Symbolic links that a path may lead through.
const MOST_LINKS: usize = 16;

/// The meaning of the names in `/proc`, as the caller of a path sees it.
pub trait Links {
    /// Returns the caller's process, by its slot.
    fn caller(&self) -> u16;

    /// Returns the process with a number, by its slot.
    fn process(&self, number: u32) -> Option<u16>;

    /// Returns the file that a process's link leads to; `descriptor` says which one of them.
    fn target(&self, process: u16, link: Magic, descriptor: u16) -> Option<What>;
}

/// The links of a caller without `/proc`.
pub struct NoLinks;

impl Links for NoLinks {
    fn caller(&self) -> u16 {
        0
    }

    fn process(&self, _: u32) -> Option<u16> {
        None
    }

    fn target(&self, _: u16, _: Magic, _: u16) -> Option<What> {
        None
    }
}

/// Where a path leads.
#[derive(Clone, Copy)]
pub struct Found {
    /// The directory that the last name is in.
    pub directory: u32,
    /// The last name: its place in `name`.
    name: [u8; super::tree::NAME],
    len: usize,
    /// The file; [`NONE`] if no file has that name.
    pub file: u32,
    /// The entry of the name in the directory.
    pub entry: u32,
    /// The path ends with a slash.
    pub wants_directory: bool,
    /// The process whose directory in `/proc` the path has led through, or the one that it began
    /// with.
    pub process: u16,
    /// The descriptor whose link is the file.
    pub descriptor: u16,
    /// The target of a link that is in no directory, such as a pipe.
    pub target: Option<What>,
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
    pub fn existing(&self, tree: &Tree) -> Result<u32, Errno> {
        match self.file {
            NONE => Err(Errno::ENOENT),
            file if self.wants_directory && !tree.is_directory(file) => Err(Errno::ENOTDIR),
            file => Ok(file),
        }
    }
}

/// A path that is being followed: the rest of it.
struct PathRest {
    bytes: [u8; PATH],
    start: usize,
    len: usize,
}

impl PathRest {
    fn new(path: &[u8]) -> Result<Self, Errno> {
        let mut bytes = [0; PATH];
        bytes.get_mut(..path.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
        Ok(PathRest { bytes, start: 0, len: path.len() })
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

/// Returns the number that a name is, without zeroes before it.
fn number(name: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(name).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    if text.len() > 1 && text.starts_with('0') { None } else { text.parse().ok() }
}

/// Follows a path from `directory`, without the links of `/proc`. A link at the end is followed if
/// `follow`.
///
/// # Errors
///
/// As [`follow_path`].
pub fn resolve(tree: &Tree, directory: u32, path: &[u8], follow: bool) -> Result<Found, Errno> {
    follow_path(tree, &NoLinks, (directory, 0), path, follow)
}

/// Follows a path from a directory, which in `/proc` is that of a process. A link at the end is
/// followed if `follow`.
///
/// # Errors
///
/// [`Errno::ENOENT`] and [`Errno::ENOTDIR`] if there is no directory on the way,
/// [`Errno::ENAMETOOLONG`], [`Errno::ELOOP`].
pub fn follow_path(
    tree: &Tree,
    links: &impl Links,
    (directory, process): (u32, u16),
    path: &[u8],
    follow: bool,
) -> Result<Found, Errno> {
    Errno::ENOENT.when(path.is_empty())?;
    let mut rest = PathRest::new(path)?;
    let mut at = if path.first() == Some(&b'/') { ROOT } else { directory };
    let mut links_left = MOST_LINKS;
    let nowhere = [0; super::tree::NAME];
    let mut found = Found {
        directory: tree.get(at).parent,
        name: nowhere,
        len: 0,
        file: at,
        entry: at,
        wants_directory: true,
        process,
        descriptor: 0,
        target: None,
    };
    while let Some((range, more, slash)) = rest.next() {
        Errno::ENOTDIR.when(!tree.is_directory(at))?;
        let name = &rest.bytes[range];
        let entry = match (name, tree.get(at).names) {
            (b".", _) => at,
            (b"..", _) => tree.get(at).parent,
            (_, Names::Descriptors) => {
                let descriptor = number(name).and_then(|number| u16::try_from(number).ok());
                let is_open = |n: &u16| links.target(found.process, Magic::Descriptor, *n).is_some();
                match descriptor.filter(is_open) {
                    Some(descriptor) => {
                        found.descriptor = descriptor;
                        tree.descriptor
                    }
                    None => NONE,
                }
            }
            (_, names) => match tree.find(at, name) {
                None if names == Names::Processes => {
                    match number(name).and_then(|number| links.process(number)) {
                        Some(process) => {
                            found.process = process;
                            tree.own
                        }
                        None => NONE,
                    }
                }
                file => file.unwrap_or(NONE),
            },
        };
        let file = tree.file(entry);
        Errno::ENOENT.when(file == NONE && more)?;
        let kind = if file == NONE { Kind::Free } else { tree.get(file).kind };
        if matches!(kind, Kind::Link(_) | Kind::Magic(_)) && (more || slash || follow) {
            links_left = links_left.checked_sub(1).ok_or(Errno::ELOOP)?;
            at = match kind {
                Kind::Magic(Magic::Caller) => {
                    found.process = links.caller();
                    tree.own
                }
                Kind::Magic(link) => match links.target(found.process, link, found.descriptor) {
                    Some(What::Inode(inode)) => inode,
                    Some(target) => {
                        Errno::ENOTDIR.when(more || slash)?;
                        return Ok(Found { len: 0, file: NONE, target: Some(target), ..found });
                    }
                    None => return Err(Errno::ENOENT),
                },
                _ => {
                    let mut target = [0; TARGET];
                    let named = tree.target(file);
                    target[..named.len()].copy_from_slice(named);
                    rest.insert(&target[..named.len()])?;
                    if target[0] == b'/' { ROOT } else { at }
                }
            };
            let directory = tree.get(at).parent;
            found = Found { directory, len: 0, file: at, entry: at, wants_directory: slash, ..found };
            continue;
        }
        let len = name.len();
        found = Found { directory: at, name: nowhere, len, file, entry, wants_directory: slash, ..found };
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
pub fn path_of(tree: &Tree, file: u32, path: &mut [u8]) -> Result<usize, Errno> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::proc;

    /// Two processes: the caller, in slot 3 with number 7, and another one in slot 4 with number 8.
    struct Two(u32);

    impl Links for Two {
        fn caller(&self) -> u16 {
            3
        }

        fn process(&self, number: u32) -> Option<u16> {
            (7..9).contains(&number).then(|| number as u16 - 4)
        }

        fn target(&self, process: u16, link: Magic, descriptor: u16) -> Option<What> {
            match (link, descriptor) {
                (Magic::Descriptor, 0) => Some(What::Inode(self.0)),
                (Magic::Descriptor, 5) if process == 4 => Some(What::PipeRead(2)),
                (Magic::Program | Magic::Directory, _) => Some(What::Inode(self.0)),
                _ => None,
            }
        }
    }

    /// A tree with `/proc`, a directory, and links to descriptors as `/dev` has them.
    fn tree() -> (std::boxed::Box<Tree>, Two) {
        let mut tree = std::boxed::Box::new(Tree::new());
        tree.begin(crate::grown::tests::page);
        let proc = tree.create(ROOT, b"proc", Kind::Directory, 0o555).unwrap();
        proc::fill(&mut tree, proc).unwrap();
        proc::fill(&mut tree, proc).unwrap();
        let directory = tree.create(ROOT, b"home", Kind::Directory, 0o755).unwrap();
        tree.create(directory, b"file", Kind::File(1), 0o644).unwrap();
        tree.create_link(ROOT, b"fd", b"/proc/self/fd").unwrap();
        tree.create_link(ROOT, b"stdin", b"/proc/self/fd/0").unwrap();
        (tree, Two(directory))
    }

    /// Runs a test where there is room for trees: a test's own stack has too little.
    fn with_room(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(test).unwrap();
        thread.join().unwrap();
    }

    fn follow(path: &[u8], to_end: bool) -> Result<Found, Errno> {
        let (tree, links) = tree();
        follow_path(&tree, &links, (ROOT, 3), path, to_end)
    }

    #[test]
    fn names_of_proc_lead_to_what_processes_have() {
        with_room(|| {
            let (tree, Two(home)) = tree();
            let leads = |path: &[u8], file, process| {
                let found = follow(path, true).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                assert_eq!((found.file, found.process), (file, process), "{path:?}");
            };
            leads(b"/proc/self", tree.own, 3);
            leads(b"/proc/7", tree.own, 3);
            leads(b"/proc/8/", tree.own, 4);
            leads(b"/proc/8/../home", NONE, 4);
            leads(b"/proc/8/../../home", home, 4);
            leads(b"/proc/self/cwd", home, 3);
            leads(b"/proc/8/cwd/.", home, 4);
            leads(b"/proc/8/fd/0", home, 4);
            leads(b"/fd/0/../home", home, 3);
            leads(b"/stdin", home, 3);
            for nothing in [&b"/proc/9/maps"[..], b"/proc/07/maps", b"/proc/8/fd/5/x", b"/proc/8/fd/5/"] {
                assert!(follow(nothing, true).is_err(), "{nothing:?}");
            }
            for nothing in [&b"/proc/9"[..], b"/fd/5", b"/fd/00", b"/proc/self/nothing"] {
                assert_eq!(follow(nothing, true).map(|found| found.file), Ok(NONE), "{nothing:?}");
            }
            assert_eq!(follow(b"/proc/8/fd/5", true).map(|found| found.target), Ok(Some(What::PipeRead(2))));
        });
    }

    #[test]
    fn links_of_proc_are_found_where_they_are_not_followed() {
        with_room(|| {
            let (tree, _) = tree();
            let found = follow(b"/proc/8/fd/5", false).unwrap();
            assert_eq!((found.file, found.descriptor, found.process), (tree.descriptor, 5, 4));
            let kind = |path: &[u8]| follow(path, false).map(|found| tree.get(found.file).kind);
            assert_eq!(kind(b"/proc/self"), Ok(Kind::Magic(Magic::Caller)));
            assert_eq!(kind(b"/proc/self/exe"), Ok(Kind::Magic(Magic::Program)));
            assert_eq!(resolve(&tree, ROOT, b"/proc/self/exe", true).err(), Some(Errno::ENOENT));
        });
    }

    #[test]
    fn names_of_proc_are_not_given_by_programs() {
        with_room(|| {
            let (mut tree, _) = tree();
            let proc = tree.find(ROOT, b"proc").unwrap();
            for directory in [proc, tree.own] {
                assert_eq!(tree.create(directory, b"x", Kind::Directory, 0), Err(Errno::EPERM));
            }
            assert_eq!(tree.each(proc).filter(|file| *file == tree.own).count(), 0);
        });
    }
}
