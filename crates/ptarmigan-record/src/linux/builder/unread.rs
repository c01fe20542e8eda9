//! Processes of whose address spaces nothing is known until they are read, and what happens to them
//! meanwhile ([`reading`](super::reading)).
use crate::linux::raw::{CLONE_THREAD, CLONE_VM, MmCall, Raw, RawKind};
use crate::linux::state::SpaceState;
use ptarmigan_trace::UnreadReason;
use std::collections::{HashMap, HashSet};

/// A system call in progress. It takes effect once it is locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallInProgress {
    pub(super) call: MmCall,
    pub(super) args: [u64; 5],
    pub(super) locked: bool,
}

impl CallInProgress {
    /// Returns whether the list of areas is the same before and after the call: it gives pages up
    /// or makes them present, and may be carried out again.
    fn keeps_areas(self) -> bool {
        const OF_PAGES: [i32; 9] = [
            libc::MADV_WILLNEED,
            libc::MADV_DONTNEED,
            libc::MADV_FREE,
            libc::MADV_COLD,
            libc::MADV_PAGEOUT,
            libc::MADV_POPULATE_READ,
            libc::MADV_POPULATE_WRITE,
            libc::MADV_DONTNEED_LOCKED,
            libc::MADV_COLLAPSE,
        ];
        self.call == MmCall::Madvise && OF_PAGES.iter().any(|advice| *advice as u64 == self.args[2])
    }

    /// Returns why a reading that the call falls into does not hold, if it does not.
    fn spoils(self, while_areas: bool) -> Option<Spoiled> {
        match self.call {
            MmCall::Mremap => Some(Spoiled::Moved),
            _ if while_areas && !self.keeps_areas() => Some(Spoiled::Areas),
            _ => None,
        }
    }
}

/// Why a reading does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoiled {
    Areas,
    Moved,
    Forked,
    Program,
}

impl Spoiled {
    /// The reason as a part of a sentence about the process.
    fn why(self) -> &'static str {
        match self {
            Self::Areas => "it changed its mappings",
            Self::Moved => "it moved a mapping",
            Self::Forked => "it forked",
            Self::Program => "it started another program",
        }
    }
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
    /// The process whose space it shares until it starts a program: its parent by vfork.
    pub(super) shares: Option<i32>,
    /// Whether its program ran before, or its start is known.
    pub(super) is_program: bool,
    /// Whether it is in the middle of an execve: the kernel is still mapping the program.
    pub(super) starting: bool,
    pub(super) readings: Readings,
    /// The name of its program, if a reading told it; empty otherwise.
    pub(super) name: String,
}

/// The readings of a process that did not hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readings {
    tried: u32,
    last: Option<Spoiled>,
}

impl Readings {
    fn why(self) -> String {
        match (self.tried, self.last) {
            (1, Some(why)) => format!("{} while it was read", why.why()),
            (n, Some(why)) => format!("at the last of {n} readings {} meanwhile", why.why()),
            _ => "no reading of it was complete".to_owned(),
        }
    }
}

/// A reading in progress.
pub(super) struct HeldBack {
    pub(super) since: u64,
    /// A call was changing areas at its start, or a task that shares the space from before it has
    /// changed them since.
    pub(super) unsteady: bool,
    pub(super) events: Vec<Raw>,
}

/// All such processes.
#[derive(Default)]
pub(super) struct UnreadProcesses {
    pub(super) by_group: HashMap<i32, Unread>,
    pub(super) groups: HashMap<i32, i32>,
    /// The processes that were named and are not in the trace, each with the reason once it has
    /// ended.
    named: HashMap<i32, Option<String>>,
}

impl UnreadProcesses {
    pub(super) fn of(named: &[i32]) -> Self {
        Self { named: named.iter().map(|pid| (*pid, None)).collect(), ..Self::default() }
    }

    /// Returns the thread group of a task of such a process.
    pub(super) fn group_of(&self, pid: i32) -> Option<i32> {
        self.groups.get(&pid).copied()
    }

    /// Takes out the processes that were not read up to the end, in the order of their numbers.
    pub(super) fn take_missed(&mut self) -> Vec<Unread> {
        let mut missed: Vec<(i32, Unread)> = self.by_group.drain().collect();
        missed.retain(|(_, unread)| unread.shares.is_none());
        missed.sort_unstable_by_key(|(pid, _)| *pid);
        missed.into_iter().map(|(_, unread)| unread).collect()
    }

    /// Returns a process that was named and was not read, and the reason.
    pub(super) fn named(&self) -> Option<(i32, String)> {
        let (pid, ended) = self.named.iter().min_by_key(|(pid, _)| **pid)?;
        let readings = self.by_group.get(pid).map(|unread| unread.readings).unwrap_or_default();
        Some((*pid, ended.clone().unwrap_or_else(|| readings.why())))
    }

    pub(super) fn add(&mut self, group: i32, pid: i32) -> &mut Unread {
        self.groups.insert(pid, group);
        let unread = self.by_group.entry(group).or_default();
        unread.tasks.insert(pid);
        unread
    }

    /// Adds a process whose only task is about to start a program. `number` is that of its task.
    pub(super) fn add_program(&mut self, pid: i32, number: Option<u32>) {
        let unread = self.add(pid, pid);
        (unread.number, unread.is_program, unread.starting) = (number, true, true);
    }

    /// Takes out a process, with its tasks.
    pub(super) fn take(&mut self, group: i32) -> Option<Unread> {
        let unread = self.by_group.remove(&group)?;
        self.groups.retain(|_, of| *of != group);
        Some(unread)
    }

    /// A process has begun in the trace.
    pub(super) fn begun(&mut self, group: i32) {
        self.named.remove(&group);
    }

    /// Takes out a process that has ended.
    pub(super) fn ended(&mut self, group: i32) -> Option<Unread> {
        let unread = self.by_group.remove(&group)?;
        if let Some(why) = self.named.get_mut(&group) {
            *why = Some("it has ended before it was read".to_owned());
        }
        Some(unread)
    }

    /// The space that a process shares was changed by a call of it.
    pub(super) fn changed_shared(&mut self, group: i32) {
        let shares = self.by_group.get(&group).and_then(|unread| unread.shares);
        let reading = shares.and_then(|of| self.by_group.get_mut(&of)?.reading.as_mut());
        reading.into_iter().for_each(|held| held.unsteady = true);
    }
}

/// A descendant that was made during a reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Descendant {
    /// By vfork: it runs in the space that is read until it starts a program.
    Shares,
    /// In a space of its own.
    Apart,
}

impl HeldBack {
    /// Checks that the state is of one moment.
    pub(super) fn check(
        &self,
        state: &SpaceState,
        calls: &HashMap<i32, CallInProgress>,
    ) -> Result<(), Spoiled> {
        if self.unsteady {
            return Err(Spoiled::Areas);
        }
        let mut calls = calls.clone();
        let mut children: HashMap<i32, Descendant> = HashMap::new();
        for raw in &self.events {
            let by = children.get(&raw.pid).copied();
            if by == Some(Descendant::Apart) {
                if let RawKind::Clone { child, .. } = raw.what {
                    children.insert(child, Descendant::Apart);
                }
                continue;
            }
            let while_areas = raw.time <= state.areas_at;
            let spoiled = match raw.what {
                RawKind::Enter { call, args } => {
                    calls.insert(raw.pid, CallInProgress { call, args, locked: false });
                    None
                }
                RawKind::Locked | RawKind::Leave { .. } => {
                    let call = match raw.what {
                        RawKind::Leave { .. } => calls.remove(&raw.pid),
                        _ => calls.get(&raw.pid).copied(),
                    };
                    match (call, by) {
                        (Some(call), _) => call.spoils(while_areas),
                        // The lock of the space of the program that it is about to start.
                        (None, Some(_)) => None,
                        // A fork takes the lock, too; a call of which nothing was seen may have
                        // done anything.
                        (None, None) => Some(Spoiled::Areas),
                    }
                }
                RawKind::Clone { flags, .. } if flags & CLONE_VM == 0 => Some(Spoiled::Forked),
                RawKind::Clone { child, flags } => {
                    if by.is_some() || flags & CLONE_THREAD == 0 {
                        children.insert(child, Descendant::Shares);
                    }
                    None
                }
                RawKind::ExecStart | RawKind::ExecDone { .. } if by.is_some() => {
                    children.insert(raw.pid, Descendant::Apart);
                    None
                }
                RawKind::ExecStart | RawKind::ExecDone { .. } => Some(Spoiled::Program),
                _ => None,
            };
            if let Some(spoiled) = spoiled {
                return Err(spoiled);
            }
        }
        Ok(())
    }

    /// Returns whether nothing has happened that makes or frees a table.
    pub(super) fn is_silent(&self) -> bool {
        let silent = |raw: &Raw| {
            matches!(
                raw.what,
                RawKind::Idle
                    | RawKind::TlbFlush { .. }
                    | RawKind::LockedToRead
                    | RawKind::NotLocked
                    | RawKind::BadAddress
                    | RawKind::Enter { .. }
                    | RawKind::Took { .. }
            )
        };
        self.events.iter().all(silent)
    }
}

impl Unread {
    /// A reading has ended, and does not hold. It tells the name of the program at least.
    pub(super) fn spoiled(&mut self, why: Option<Spoiled>, name: &str) {
        self.readings.tried += 1;
        self.readings.last = why.or(self.readings.last);
        name.clone_into(&mut self.name);
    }

    /// Why it is not in the recording, which has ended.
    pub(super) fn why(&self) -> UnreadReason {
        match self.readings.last {
            Some(_) => UnreadReason::Changed,
            None => UnreadReason::RecordingEnded,
        }
    }
}
