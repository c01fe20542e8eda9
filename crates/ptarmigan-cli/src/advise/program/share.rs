//! Children that only start another program: with `vfork` they share their parent's tables until
//! then, and with `fork` they get copies.
//!
//! A fork counts if the child makes no call about memory and no task of its own before its
//! `execve`. A child that ends without one does the program's own work: it is not one that starts a
//! program. With `vfork` the child's events come first, in its parent's space. The saving is the
//! child's faults on pages that the parent has touched, and the parent's faults on pages that fork
//! had write-protected.
use super::edit::Edit;
use super::page_set::PageSet;
use foldhash::{HashMap, HashMapExt, HashSet};
use ptarmigan_replay::{PackedEvent, PackedKind, Trace};
use ptarmigan_trace::{CloneKind, FaultFlags, Kind};

/// A child that may share tables.
struct SharingChild {
    fork: u32,
    events: Vec<u32>,
}

/// The forks of a recording.
#[derive(Default)]
pub struct Forks {
    /// Forks, all of them.
    pub all: u64,
    /// Children by vfork.
    pub vforks: u64,
    /// The events of children that only start another program, by the event of their fork.
    starters: HashMap<u32, Vec<u32>>,
    moved: HashSet<u32>,
}

impl Forks {
    /// Looks at a recording.
    pub fn of(trace: &Trace) -> Self {
        let mut forks = Forks::default();
        let mut children: HashMap<u32, SharingChild> = HashMap::new();
        let openings = trace.opening_steps();
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            let kind = match step.what {
                PackedKind::Rare(_) if openings.contains_key(&event) => continue,
                PackedKind::Rare(rare) => Some(trace.rare[rare as usize]),
                PackedKind::Fault { .. } => None,
                PackedKind::Idle => continue,
            };
            if let Some(Kind::Clone { kind: CloneKind::Vfork, .. }) = kind {
                forks.vforks += 1;
            }
            if let Some(Kind::Clone { child, kind: CloneKind::Fork }) = kind {
                forks.all += 1;
                children.insert(child, SharingChild { fork: event, events: Vec::new() });
            }
            let Some(child) = children.get_mut(&step.task) else { continue };
            match kind {
                None | Some(Kind::Truth { .. } | Kind::Name(_) | Kind::Pid(_) | Kind::Note(_)) => {
                    child.events.push(event);
                }
                Some(Kind::Exec { .. }) => {
                    child.events.push(event);
                    if let Some(SharingChild { fork, events }) = children.remove(&step.task) {
                        forks.moved.extend(&events);
                        forks.starters.insert(fork, events);
                    }
                }
                Some(_) => {
                    children.remove(&step.task);
                }
            }
        }
        forks
    }

    /// Returns the events of forks that only start another program.
    pub fn starters(&self) -> HashSet<u32> {
        self.starters.keys().copied().collect()
    }

    /// Returns the forks of the chosen events alone.
    pub fn only(&self, chosen: impl Fn(u32) -> bool) -> Self {
        let some = self.starters.iter().filter(|(event, _)| chosen(**event));
        let starters: HashMap<u32, Vec<u32>> = some.map(|(event, events)| (*event, events.clone())).collect();
        let moved = starters.values().flatten().copied().collect();
        Forks { all: self.all, vforks: self.vforks, starters, moved }
    }

    /// Returns the recording with `vfork` in their place.
    pub fn rewrite(&self, trace: &Trace) -> Trace {
        let mut pages = Pages::new(trace);
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            if self.moved.contains(&event) {
                continue;
            }
            let (Some(events), Some(Kind::Clone { child, .. })) =
                (self.starters.get(&event), edit.kind(step))
            else {
                if pages.step(step, edit.kind(step)) {
                    edit.keep(step);
                }
                continue;
            };
            let vfork = Kind::Clone { child, kind: CloneKind::Vfork };
            pages.step(step, Some(vfork));
            edit.call(step, vfork);
            for &event in events {
                let step = &trace.steps[event as usize];
                let known = matches!(step.what, PackedKind::Fault { page, .. } if pages.has(step.task, page));
                if pages.step(step, edit.kind(step)) && !known {
                    edit.keep(step);
                }
            }
        }
        edit.finish()
    }
}

/// The pages that each space has touched and written since it was last copied.
pub struct Pages {
    space_of: Vec<u32>,
    spaces: Vec<SpacePages>,
    access_unknown: bool,
}

#[derive(Clone, Default)]
struct SpacePages {
    touched: PageSet,
    written: PageSet,
}

impl Pages {
    /// Begins at the start of a recording.
    pub fn new(trace: &Trace) -> Self {
        Pages {
            space_of: vec![0; trace.tasks as usize],
            spaces: vec![SpacePages::default()],
            access_unknown: trace.access_unknown,
        }
    }

    fn has(&self, task: u32, page: u64) -> bool {
        self.spaces[self.space_of[task as usize] as usize].touched.has(page)
    }

    /// Puts a task into a new space.
    fn new_space(&mut self, task: u32) {
        self.space_of[task as usize] = self.spaces.len() as u32;
        self.spaces.push(SpacePages::default());
    }

    /// Follows a step. Returns whether it happens with `vfork`, too: a write to a page that was
    /// written before, and that no fork has protected since, makes no fault.
    pub fn step(&mut self, step: &PackedEvent, kind: Option<Kind>) -> bool {
        let space = self.space_of[step.task as usize];
        let pages = &mut self.spaces[space as usize];
        match (step.what, kind) {
            (PackedKind::Fault { page, flags }, _) => {
                pages.touched.add(page);
                if self.access_unknown || !flags.may_write(false) {
                    return true;
                }
                return pages.written.add(page) || flags.0 & FaultFlags::PRESENT == 0;
            }
            (_, Some(Kind::Clone { child, kind: CloneKind::Fork })) => {
                pages.written = PageSet::default();
                self.new_space(child);
            }
            (_, Some(Kind::Clone { child, .. })) => self.space_of[child as usize] = space,
            (_, Some(Kind::Exec { .. })) => self.new_space(step.task),
            _ => {}
        }
        true
    }
}
