//! Open files.

use super::locks::Owner;
use super::tree::Gone;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::slots::Slots;
use crate::task::Wait;
use crate::{Kernel, State};

/// Open files at the most.
pub const OPEN: usize = 2048;

/// The object that an open file leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A free slot.
    Nothing,
    /// A file of the tree.
    Inode(u32),
    /// The end of a pipe that is read.
    PipeRead(u16),
    /// The end of a pipe that is written.
    PipeWrite(u16),
    /// A counter of events.
    Counter(u16),
    /// A timer.
    Timer(u16),
    /// A set of files to wait for.
    Set(u16),
}

impl What {
    /// Returns the name by which locks know the file; `file` is the open file.
    pub fn lock_name(self, file: usize) -> u32 {
        match self {
            What::Inode(inode) => inode,
            What::PipeRead(pipe) | What::PipeWrite(pipe) => 1 << 30 | u32::from(pipe),
            What::Nothing | What::Counter(_) | What::Timer(_) | What::Set(_) => 2 << 30 | file as u32,
        }
    }
}

/// An open file: descriptors that came from each other share one.
#[derive(Clone, Copy)]
pub struct OpenFile {
    /// Its object.
    pub what: What,
    /// `O_` flags.
    pub flags: u32,
    /// The position.
    pub offset: u64,
    /// A byte of the text of a process's areas, and the area whose part of it begins there: where
    /// the next read goes on.
    pub mark: (u64, u64),
    /// The number of the process whose directory in `/proc` it was found in; 0 without one.
    pub process: i32,
    users: u32,
}

impl OpenFile {
    const NONE: OpenFile =
        OpenFile { what: What::Nothing, flags: 0, offset: 0, mark: (0, 0), process: 0, users: 0 };

    /// Whether it may be read.
    pub fn reads(&self) -> bool {
        self.flags & 3 != 1
    }

    /// Whether it may be written.
    pub fn writes(&self) -> bool {
        self.flags & 3 != 0
    }
}

/// All open files.
pub struct OpenFiles {
    all: [OpenFile; OPEN],
    taken: Slots<{ OPEN / 64 }>,
}

impl OpenFiles {
    /// Makes a table without open files.
    pub const fn new() -> Self {
        OpenFiles { all: [const { OpenFile::NONE }; OPEN], taken: Slots::new() }
    }

    /// Returns an open file.
    pub fn get(&self, file: usize) -> &OpenFile {
        &self.all[file % OPEN]
    }

    /// Returns an open file, to be changed.
    pub fn get_mut(&mut self, file: usize) -> &mut OpenFile {
        &mut self.all[file % OPEN]
    }

    /// Opens something; one descriptor will lead to it.
    ///
    /// # Errors
    ///
    /// [`Errno::ENFILE`].
    pub fn open(&mut self, what: What, flags: u32) -> Result<usize, Errno> {
        let free = self.taken.claim().ok_or(Errno::ENFILE)?;
        self.all[free] = OpenFile { what, flags, users: 1, ..OpenFile::NONE };
        Ok(free)
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.taken.is_full()
    }

    /// Has one more descriptor lead to an open file.
    pub fn share(&mut self, file: usize) {
        self.get_mut(file).users += 1;
    }

    /// Removes one descriptor of an open file; returns its object if that was the last.
    pub fn release(&mut self, file: usize) -> Option<What> {
        let open = self.get_mut(file);
        open.users = open.users.saturating_sub(1);
        if open.users > 0 {
            return None;
        }
        let what = core::mem::replace(&mut open.what, What::Nothing);
        self.taken.release(file);
        Some(what)
    }
}

impl<A: Arch> Kernel<A> {
    /// Closes a descriptor of a process; false if it was not open.
    pub(crate) fn close(&'static self, state: &mut State, process: usize, descriptor: usize) -> bool {
        let Some(file) = state.tasks.process_mut(process).files.remove(descriptor) else { return false };
        if state.locks.any() {
            let name = state.open.get(file).what.lock_name(file);
            self.release_locks(state, name, Owner::Process(process as u16));
        }
        self.close_file(state, file);
        true
    }

    /// Takes one user of an open file away.
    pub(crate) fn close_file(&'static self, state: &mut State, file: usize) {
        let what = state.open.release(file);
        if let Some(what) = what
            && state.locks.any()
        {
            for owner in [Owner::Open(file as u16), Owner::Whole(file as u16)] {
                self.release_locks(state, what.lock_name(file), owner);
            }
        }
        if let Some(what) = what {
            state.interests.forget(file as u16);
            self.end_file(state, what);
        }
    }

    /// Takes the use away that an open file has of its object.
    pub(crate) fn end_file(&'static self, state: &mut State, what: What) {
        match what {
            What::Inode(inode) => self.let_go(state, inode),
            What::PipeRead(pipe) => self.close_pipe(state, pipe, true),
            What::PipeWrite(pipe) => self.close_pipe(state, pipe, false),
            What::Counter(counter) => state.events.close_counter(counter),
            What::Timer(timer) => state.events.close_timer(timer),
            What::Set(set) => state.interests.close(set),
            What::Nothing => {}
        }
    }

    /// Takes the locks of an owner on a file away, and has calls that wait for them look again.
    #[cold]
    fn release_locks(&'static self, state: &mut State, name: u32, owner: Owner) {
        if state.locks.release(name, owner) {
            self.locks_changed(state, name);
        }
    }

    /// Has calls that wait for a lock on a file look again.
    pub(crate) fn locks_changed(&'static self, state: &mut State, name: u32) {
        if state.tasks.wake(|wait| matches!(wait, Wait::Lock { file, .. } if file == name)) {
            self.wake_idle(state);
        }
    }

    /// Takes a use of a file away.
    pub(crate) fn let_go(&'static self, state: &mut State, inode: u32) {
        let gone = state.tree.drop_use(inode);
        self.free_pages(gone);
    }

    /// Gives the pages of a file back that is gone.
    pub(crate) fn free_pages(&'static self, gone: Gone) {
        if let Gone(Some(object)) = gone {
            self.objects().release(object);
        }
    }

    /// Gives the pages and the records of all files back: for the kernel's end.
    pub(crate) fn clear_tree(&'static self, state: &mut State) {
        state.tree.clear(|object| self.objects().release(object));
        while let Some(page) = state.tree.take_page() {
            self.give_frame(page.frame);
        }
    }
}
