//! The state that the threads of a process share.

use ptarmigan::addr::VirtRange;

use crate::fs::Descriptors;
use crate::signal::Pending;
use crate::signal::set::Actions;
use crate::timer::Intervals;

use super::family::Family;
use super::groups::Groups;
use super::limits::Limits;
use super::mapped_pages::MappedPages;
use super::usage::Usage;

/// The slot of process 1 and of its first task.
pub const INIT: usize = 0;
/// The slot of no process.
pub const NO_PROCESS: usize = usize::MAX;
/// The number of no space's record.
pub const NO_SPACE: usize = usize::MAX;

/// A process, without its threads.
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent, a process; its own for process 1.
    pub parent: usize,
    /// Its children, and its place among those of its parent.
    pub family: Family,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Tasks that have not ended.
    pub threads: u32,
    /// The status with which it ends, as soon as that is known.
    pub status: Option<i32>,
    /// Its descriptors.
    pub files: Descriptors,
    /// The directory that it is in.
    pub directory: u32,
    /// Its groups beside group 0.
    pub groups: Groups,
    /// Permissions that new files do not get.
    pub umask: u16,
    /// The program that it runs.
    pub program: u32,
    /// The record of its space; [`NO_SPACE`] once it has ended.
    pub space: usize,
    /// Its actions on signals.
    pub actions: Actions,
    /// Signals that any of its threads may take.
    pub pending: Pending,
    /// It may write to the port of the exit device.
    pub ports: bool,
    /// An operation of its own has caused a signal that ends it.
    pub is_forced: bool,
    /// When it was started, in nanoseconds since boot.
    pub started: u64,
    /// Its limits.
    pub limits: Limits,
    /// The use of its tasks that have ended.
    pub usage: Usage,
    /// The use of its children that it has waited for, and of theirs.
    pub children: Usage,
    /// How it is to be favoured, from -20 to 19.
    pub nice: i8,
    /// Its timers of `setitimer` and `alarm`.
    pub intervals: Intervals,
}

impl Process {
    /// Makes an empty slot.
    pub const fn none() -> Self {
        Process {
            pid: 0,
            parent: 0,
            family: Family::NONE,
            group: 0,
            session: 0,
            threads: 0,
            status: None,
            files: Descriptors::new(),
            directory: 0,
            groups: Groups::NONE,
            umask: 0,
            program: 0,
            space: NO_SPACE,
            actions: Actions::new(),
            pending: Pending::new(),
            ports: false,
            is_forced: false,
            started: 0,
            limits: Limits::NONE,
            usage: Usage::NONE,
            children: Usage::NONE,
            nice: 0,
            intervals: Intervals::NONE,
        }
    }

    /// Returns whether a call means the process by `wanted`: its number, its group's negated, or 0
    /// for the caller's group. `kill` means other processes by -1, and does not ask.
    pub fn is_named(&self, wanted: i32, own_group: i32) -> bool {
        match wanted {
            0 => self.group == own_group,
            pid if pid > 0 => self.pid == pid,
            group => self.group == group.wrapping_neg(),
        }
    }

    /// Copies the state that a child inherits from its parent: all but number, parent, threads and
    /// space.
    pub fn inherit(&mut self, parent: &Process) {
        (self.group, self.session) = (parent.group, parent.session);
        self.files.copy_from(&parent.files);
        self.groups.copy_from(&parent.groups);
        (self.directory, self.umask, self.program) = (parent.directory, parent.umask, parent.program);
        self.actions.clone_from(&parent.actions);
        (self.limits, self.nice) = (parent.limits, parent.nice);
        (self.usage, self.children) = (Usage::NONE, Usage::NONE);
        self.pending.clear();
        self.intervals = Intervals::NONE;
        self.family = Family::NONE;
        (self.ports, self.is_forced, self.status) = (parent.ports, false, None);
    }
}

/// Whether areas that are mapped from now on are locked (`mlockall`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocksNew {
    /// They are not.
    No,
    /// They are, and their pages come at once.
    Now,
    /// They are, and their pages come when they are touched.
    OnFault,
}

/// The kernel's record of a space, beside the space itself.
pub struct SpaceRecord {
    /// Tasks that run in it.
    pub users: u32,
    /// Where the heap begins.
    pub heap: u64,
    /// Where it ends, to the byte.
    pub heap_end: u64,
    /// Where the arguments of its program were written.
    pub arguments: VirtRange,
    /// The pages that it shows. It is a user of each of their objects.
    pub shown: MappedPages,
    /// Areas of it may be locked.
    pub has_locks: bool,
    /// Whether new areas are.
    pub locks_new: LocksNew,
    /// Areas of it may be left out by fork.
    pub forks_in_part: bool,
    /// Where the search for pages that can become a large page goes on.
    pub collapse_from: u64,
}

impl SpaceRecord {
    /// Makes one that nobody uses.
    pub const fn none() -> Self {
        SpaceRecord {
            users: 0,
            heap: 0,
            heap_end: 0,
            arguments: VirtRange::fixed::<0, 0>(),
            shown: MappedPages::new(),
            has_locks: false,
            locks_new: LocksNew::No,
            forks_in_part: false,
            collapse_from: 0,
        }
    }
}
