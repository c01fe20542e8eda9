//! The tree of files.

use crate::errno::Errno;
use crate::grown::{NewPage, Page, Record, Table};
use crate::task::records::Place;

/// Files and directories that have their places without frames.
const INODES: usize = 1024;
/// Bytes of a name at the most.
pub const NAME: usize = 60;
/// Symbolic links that have the places of their targets without frames.
const LINKS: usize = 256;
/// Bytes of a symbolic link's target at the most.
pub const TARGET: usize = 96;
/// The root directory.
pub const ROOT: u32 = 1;
/// No file.
pub const NONE: u32 = 0;

/// A device that needs no driver of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Takes everything, and is empty.
    Null,
    /// Endless zeroes.
    Zero,
    /// Endless zeroes, and full.
    Full,
    /// Random bytes.
    Random,
    /// Random bytes, by their other name.
    Urandom,
    /// The console.
    Console,
}

/// The contents of a file of `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proc {
    /// The kernel's command line.
    CommandLine,
    /// Memory.
    MemInfo,
    /// Mounts.
    Mounts,
    /// The lowest address that programs may map.
    LowestAddress,
    /// Time since boot.
    Uptime,
    /// The kernel's name.
    Version,
    /// The kernel's counts.
    Counts,
    /// A process's own file.
    Own(Own),
}

/// The contents of a file of a process in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// The arguments of its program.
    Arguments,
    /// The name of its program.
    Name,
    /// Its areas.
    Maps,
    /// Its areas, and the pages in them.
    Smaps,
    /// A number for each of its pages.
    PageMap,
    /// Its state in numbers.
    Stat,
    /// The sizes of its memory.
    Statm,
    /// Its state, to be read by people.
    Status,
}

/// A link of `/proc`, which leads to a file of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magic {
    /// To the caller's directory in `/proc`.
    Caller,
    /// To the process's program.
    Program,
    /// To the directory that it is in.
    Directory,
    /// To the root directory.
    Root,
    /// To the file of one of its descriptors.
    Descriptor,
}

/// The names in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Names that programs give.
    Given,
    /// Those of `/proc`: its own files, and the numbers of processes.
    Processes,
    /// Those of a process in `/proc`, or of the system there.
    OfProcess,
    /// The descriptors of a process.
    Descriptors,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A free slot.
    Free,
    /// A directory.
    Directory,
    /// A file, whose pages are those of this object.
    File(u32),
    /// A symbolic link, by its place in the table of targets.
    Link(u32),
    /// Another name of a file, which has one itself, or had one.
    Name(u32),
    /// A device.
    Device(Device),
    /// A file of `/proc`.
    Proc(Proc),
    /// A link of `/proc`.
    Magic(Magic),
}

/// A file or a directory.
#[derive(Clone, Copy)]
pub struct Inode {
    /// Its kind.
    pub kind: Kind,
    /// The names in it, if it is a directory.
    pub names: Names,
    /// Permissions.
    pub mode: u16,
    /// Its owner and its group, which no call asks for.
    pub owner: u32,
    /// See [`owner`](Self::owner).
    pub group: u32,
    /// The directory that it is in; its own number for the root.
    pub parent: u32,
    /// First file in it.
    child: u32,
    /// Next file of its directory; of a free slot, the next free one.
    next: u32,
    /// Who uses it besides its directory: open files, directories that tasks are in.
    uses: u32,
    /// It has a place in a directory.
    pub linked: bool,
    /// Names that lead to it beside its own. Each is a use.
    others: u16,
    /// When it was changed, in nanoseconds since 1970.
    pub changed: u64,
    len: u8,
    name: [u8; NAME],
}

impl Inode {
    const FREE: Inode = Inode {
        kind: Kind::Free,
        names: Names::Given,
        mode: 0,
        owner: 0,
        group: 0,
        parent: 0,
        child: 0,
        next: 0,
        uses: 0,
        linked: false,
        others: 0,
        changed: 0,
        len: 0,
        name: [0; NAME],
    };

    /// Returns its name.
    pub fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.len).min(NAME)]
    }

    /// Returns the number of its names.
    pub fn links(&self) -> u32 {
        u32::from(self.linked) + u32::from(self.others)
    }

    /// Returns its type and permissions, as `stat` shows them.
    pub fn full_mode(&self) -> u32 {
        let kind = match self.kind {
            Kind::Free | Kind::Name(_) => 0,
            Kind::Directory => 0o040_000,
            Kind::File(_) | Kind::Proc(_) => 0o100_000,
            Kind::Link(_) | Kind::Magic(_) => 0o120_000,
            Kind::Device(_) => 0o020_000,
        };
        kind | u32::from(self.mode)
    }
}

impl Record for Inode {
    const FREE: Self = Inode::FREE;

    fn set_free(&mut self, next: u32) {
        *self = Inode { next, ..Inode::FREE };
    }

    fn next_free(&self) -> u32 {
        self.next
    }
}

/// The target of a symbolic link.
#[derive(Clone, Copy)]
struct Target {
    bytes: [u8; TARGET],
    len: u8,
    next: u32,
}

impl Record for Target {
    const FREE: Self = Target { bytes: [0; TARGET], len: 0, next: 0 };

    fn set_free(&mut self, next: u32) {
        (self.len, self.next) = (0, next);
    }

    fn next_free(&self) -> u32 {
        self.next
    }
}

/// All files.
pub struct Tree {
    all: Table<Inode, INODES>,
    /// Stands for a file that there is not.
    nothing: Inode,
    targets: Table<Target, LINKS>,
    new_page: NewPage,
    /// The directory that every process has in `/proc`; [`NONE`] without one.
    pub own: u32,
    /// The link that every descriptor is in `/proc`; [`NONE`] without one.
    pub descriptor: u32,
}

/// The work that is left when a file goes: its pages are given back.
#[must_use = "pages of a file that is gone are lost"]
#[derive(Debug, PartialEq, Eq)]
pub struct Gone(pub Option<u32>);

impl Tree {
    /// Makes a tree without files, which are not more than fit without frames. [`begin`] makes the
    /// root directory.
    ///
    /// [`begin`]: Self::begin
    pub const fn new() -> Self {
        Tree {
            all: Table::new(),
            nothing: Inode::FREE,
            targets: Table::new(),
            new_page: || Err(Errno::ENOSPC),
            own: NONE,
            descriptor: NONE,
        }
    }

    /// Makes the root directory; more files have frames that `new_page` makes.
    pub fn begin(&mut self, new_page: NewPage) {
        self.new_page = new_page;
        let root =
            Inode { kind: Kind::Directory, mode: 0o755, parent: ROOT, linked: true, uses: 1, ..Inode::FREE };
        let made = self.all.claim(root, new_page);
        debug_assert_eq!(made, Ok(ROOT), "the first file");
    }

    /// Returns a file.
    pub fn get(&self, number: u32) -> &Inode {
        self.all.get(number).unwrap_or(&self.nothing)
    }

    /// Returns a file, to be changed.
    pub fn get_mut(&mut self, number: u32) -> &mut Inode {
        self.all.get_mut(number).unwrap_or(&mut self.nothing)
    }

    /// Returns the object with a file's pages; `None` for other files.
    pub fn object_of(&self, number: u32) -> Option<u32> {
        match self.get(number).kind {
            Kind::File(object) if number != NONE => Some(object),
            _ => None,
        }
    }

    /// Returns the file that has an object.
    pub fn file_of(&self, object: u32) -> Option<u32> {
        self.all.each().find(|(_, inode)| inode.kind == Kind::File(object)).map(|(number, _)| number)
    }

    /// Whether it is a directory.
    pub fn is_directory(&self, number: u32) -> bool {
        number != NONE && self.get(number).kind == Kind::Directory
    }

    /// Returns the files of a directory, in order.
    pub fn each(&self, directory: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = if self.is_directory(directory) { self.get(directory).child } else { NONE };
        core::iter::from_fn(move || {
            let this = next;
            if this == NONE {
                return None;
            }
            next = self.get(this).next;
            Some(this)
        })
    }

    /// Returns the file that an entry of a directory leads to: itself, but for other names.
    pub fn file(&self, entry: u32) -> u32 {
        match self.get(entry).kind {
            Kind::Name(file) if entry != NONE => file,
            _ => entry,
        }
    }

    /// Returns the entry of a name in a directory.
    pub fn find(&self, directory: u32, name: &[u8]) -> Option<u32> {
        self.each(directory).find(|file| self.get(*file).name() == name)
    }

    /// Makes a file in a directory.
    ///
    /// # Errors
    ///
    /// [`Errno::EEXIST`], [`Errno::ENOTDIR`], [`Errno::ENAMETOOLONG`], [`Errno::ENOSPC`];
    /// [`Errno::EPERM`] if the names in the directory are not given by programs.
    pub fn create(&mut self, directory: u32, name: &[u8], kind: Kind, mode: u16) -> Result<u32, Errno> {
        Errno::ENOTDIR.when(!self.is_directory(directory))?;
        self.may_change(directory)?;
        self.add(directory, name, kind, mode)
    }

    /// Checks that programs may change the names in a directory.
    ///
    /// # Errors
    ///
    /// [`Errno::EPERM`].
    pub fn may_change(&self, directory: u32) -> Result<(), Errno> {
        Errno::EPERM.when(self.get(directory).names != Names::Given)
    }

    /// Makes a file in a directory, whatever the names in it.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn add(&mut self, directory: u32, name: &[u8], kind: Kind, mode: u16) -> Result<u32, Errno> {
        Errno::EEXIST
            .when(name.is_empty() || name == b"." || name == b".." || self.find(directory, name).is_some())?;
        Errno::ENOENT.when(!self.get(directory).linked)?;
        let mut bytes = [0; NAME];
        bytes.get_mut(..name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
        let inode = Inode {
            kind,
            mode: mode & 0o7777,
            parent: directory,
            next: self.get(directory).child,
            linked: true,
            len: name.len() as u8,
            name: bytes,
            ..Inode::FREE
        };
        let number = self.all.claim(inode, self.new_page)?;
        self.get_mut(directory).child = number;
        Ok(number)
    }

    /// Makes a file that is in no directory, with one use, which goes with it. Its name is shown as
    /// `memfd:` and as much of `name` as fits.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOSPC`].
    pub fn create_unnamed(&mut self, name: &[u8], kind: Kind, mode: u16) -> Result<u32, Errno> {
        const PREFIX: &[u8] = b"memfd:";
        let mut bytes = [0; NAME];
        let n = name.len().min(NAME - PREFIX.len());
        bytes[..PREFIX.len()].copy_from_slice(PREFIX);
        bytes[PREFIX.len()..PREFIX.len() + n].copy_from_slice(&name[..n]);
        let len = (PREFIX.len() + n) as u8;
        let inode = Inode { kind, mode, parent: ROOT, uses: 1, len, name: bytes, ..Inode::FREE };
        self.all.claim(inode, self.new_page)
    }

    /// Makes a symbolic link in a directory.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_link(&mut self, directory: u32, name: &[u8], target: &[u8]) -> Result<u32, Errno> {
        Errno::ENOENT.when(target.is_empty())?;
        let mut bytes = [0; TARGET];
        bytes.get_mut(..target.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(target);
        let target = Target { bytes, len: target.len() as u8, next: 0 };
        let place = self.targets.claim(target, self.new_page)?;
        let made = self.create(directory, name, Kind::Link(place), 0o777);
        let made = made.inspect_err(|_| self.targets.release(place))?;
        Ok(made)
    }

    /// Gives a file another name, in a directory.
    ///
    /// # Errors
    ///
    /// [`Errno::EPERM`] if it is a directory, [`Errno::ENOENT`] if it has no name, and
    /// [`Errno::EMLINK`] if it has too many; as [`create`](Self::create).
    pub fn link(&mut self, number: u32, directory: u32, name: &[u8]) -> Result<(), Errno> {
        let inode = self.get(number);
        Errno::EPERM.when(inode.kind == Kind::Directory)?;
        Errno::ENOENT.when(inode.links() == 0)?;
        Errno::EMLINK.when(inode.others == u16::MAX)?;
        self.create(directory, name, Kind::Name(number), 0)?;
        self.get_mut(number).others += 1;
        self.hold(number);
        Ok(())
    }

    /// Returns the target of a symbolic link; empty for other files.
    pub fn target(&self, number: u32) -> &[u8] {
        let Kind::Link(place) = self.get(number).kind else { return &[] };
        self.targets.get(place).map_or(&[], |target| &target.bytes[..usize::from(target.len).min(TARGET)])
    }

    /// Takes an entry out of its directory. Its file goes when its last user is gone.
    pub fn unlink(&mut self, entry: u32) -> Gone {
        self.detach(entry);
        if let Kind::Name(file) = self.get(entry).kind {
            self.all.release(entry);
            self.get_mut(file).others -= 1;
            return self.drop_use(file);
        }
        self.get_mut(entry).linked = false;
        self.collect(entry)
    }

    /// Takes a file out of its directory's names; other names than it lead to it.
    pub fn hide(&mut self, number: u32) {
        self.detach(number);
        self.get_mut(number).next = NONE;
    }

    fn detach(&mut self, number: u32) {
        let Inode { parent, next, .. } = *self.get(number);
        if self.get(parent).child == number {
            self.get_mut(parent).child = next;
            return;
        }
        let before = self.each(parent).find(|file| self.get(*file).next == number);
        if let Some(before) = before {
            self.get_mut(before).next = next;
        }
    }

    /// Moves an entry to another directory, under another name, which must be free there.
    ///
    /// # Errors
    ///
    /// [`Errno::ENAMETOOLONG`]; [`Errno::EINVAL`] if the directory lies in the file itself.
    pub fn rename(&mut self, number: u32, directory: u32, name: &[u8]) -> Result<(), Errno> {
        let mut bytes = [0; NAME];
        bytes.get_mut(..name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
        let mut above = directory;
        while above != ROOT {
            Errno::EINVAL.when(above == number)?;
            above = self.get(above).parent;
        }
        self.detach(number);
        let next = self.get(directory).child;
        let inode = self.get_mut(number);
        (inode.parent, inode.next, inode.name, inode.len) = (directory, next, bytes, name.len() as u8);
        self.get_mut(directory).child = number;
        Ok(())
    }

    /// Adds a use of a file.
    pub fn hold(&mut self, number: u32) {
        if number != NONE {
            self.get_mut(number).uses += 1;
        }
    }

    /// Takes a use of a file away.
    pub fn drop_use(&mut self, number: u32) -> Gone {
        if number == NONE {
            return Gone(None);
        }
        let inode = self.get_mut(number);
        inode.uses = inode.uses.saturating_sub(1);
        self.collect(number)
    }

    fn collect(&mut self, number: u32) -> Gone {
        let inode = self.get_mut(number);
        if inode.linked || inode.uses > 0 {
            return Gone(None);
        }
        let kind = inode.kind;
        self.all.release(number);
        match kind {
            Kind::File(object) => Gone(Some(object)),
            Kind::Link(place) => {
                self.targets.release(place);
                Gone(None)
            }
            _ => Gone(None),
        }
    }

    /// Calls `f` with the objects of all files, each of which is free afterwards: for the kernel's
    /// end.
    pub fn clear(&mut self, mut f: impl FnMut(u32)) {
        self.all.each_mut(|inode| {
            if let Kind::File(object) = core::mem::replace(&mut inode.kind, Kind::Free) {
                f(object);
            }
        });
    }

    /// Takes out a frame: of a tree that was [cleared](Self::clear).
    pub fn take_page(&mut self) -> Option<Place<Page>> {
        self.all.take_page().or_else(|| self.targets.take_page())
    }
}
