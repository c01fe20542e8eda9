//! Processes of whose address spaces nothing is known until they are read, and what happens to them
//! meanwhile ([`reading`](super::reading)).
use crate::record::linux::raw::{MmCall, Raw, RawKind};
use crate::record::linux::state::SpaceState;
use std::collections::{HashMap, HashSet};

/// A system call in progress. It takes effect once it is locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallInProgress {
    pub(super) call: MmCall,
    pub(super) args: [u64; 5],
    pub(super) locked: bool,
}

/// A process of whose space nothing is known.
#[derive(Default)]
pub(super) struct Unread {
    /// The number of its task in the trace, if it has one already.
    pub(super) number: Option<u32>,
    pub(super) tasks: HashSet<i32>,
    /// Tasks that have ended. A list of threads may be older.
    pub(super) gone: HashSet<i32>,
    pub(super) calls: HashMap<i32, CallInProgress>,
    pub(super) reading: Option<HeldBack>,
    /// Whether it was read at least once.
    pub(super) tried: bool,
}

/// A reading in progress.
pub(super) struct HeldBack {
    pub(super) since: u64,
    /// A call was changing areas at its start.
    pub(super) unsteady: bool,
    pub(super) events: Vec<Raw>,
}

/// All such processes.
#[derive(Default)]
pub(super) struct UnreadProcesses {
    pub(super) by_group: HashMap<i32, Unread>,
    pub(super) groups: HashMap<i32, i32>,
}

impl UnreadProcesses {
    /// Returns the thread group of a task of such a process.
    pub(super) fn group_of(&self, pid: i32) -> Option<i32> {
        self.groups.get(&pid).copied()
    }

    /// Returns how many processes were read in vain.
    pub(super) fn missed(&self) -> u64 {
        self.by_group.values().filter(|unread| unread.tried && unread.number.is_none()).count() as u64
    }

    pub(super) fn add(&mut self, group: i32, pid: i32) -> &mut Unread {
        self.groups.insert(pid, group);
        let unread = self.by_group.entry(group).or_default();
        unread.tasks.insert(pid);
        unread
    }

    /// Adds a process whose only task has just started a program. `number` is that of its task.
    pub(super) fn add_program(&mut self, pid: i32, number: Option<u32>) {
        self.add(pid, pid).number = number;
    }

    /// Takes out a process, with its tasks.
    pub(super) fn take(&mut self, group: i32) -> Option<Unread> {
        let unread = self.by_group.remove(&group)?;
        self.groups.retain(|_, of| *of != group);
        Some(unread)
    }
}

impl HeldBack {
    /// Returns whether the state is of one moment.
    pub(super) fn agrees(&self, state: &SpaceState, calls: &HashMap<i32, CallInProgress>) -> bool {
        let mut calls = calls.clone();
        !self.unsteady
            && self.events.iter().all(|raw| {
                let while_areas = raw.time <= state.areas_at;
                match raw.what {
                    RawKind::Enter { call, args } => {
                        calls.insert(raw.pid, CallInProgress { call, args, locked: false });
                        true
                    }
                    RawKind::Locked => {
                        let call = calls.get(&raw.pid).map(|one| one.call);
                        // A fork takes the lock, too.
                        call.is_some_and(|call| !while_areas && call != MmCall::Mremap)
                    }
                    RawKind::Leave { .. } => {
                        // A call of which nothing was seen may have done anything.
                        let call = calls.remove(&raw.pid).map(|one| one.call);
                        call.is_some_and(|call| !while_areas && call != MmCall::Mremap)
                    }
                    RawKind::Clone { flags, .. } => flags & libc::CLONE_THREAD as u64 != 0,
                    RawKind::ExecStart | RawKind::ExecDone { .. } => false,
                    _ => true,
                }
            })
    }

    /// Returns whether nothing has happened that makes or frees a table.
    pub(super) fn is_silent(&self) -> bool {
        let silent = |raw: &Raw| {
            matches!(
                raw.what,
                RawKind::Idle
                    | RawKind::TlbFlush { .. }
                    | RawKind::LockedToRead
                    | RawKind::BadAddress
                    | RawKind::Enter { .. }
                    | RawKind::Took { .. }
            )
        };
        self.events.iter().all(silent)
    }
}
