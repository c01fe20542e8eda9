//! Servers that fork a process for each connection.
//!
//! A process *serves* if its parent forked it, it starts no program, and it maps the parent's
//! shared memory. A parent with many such children, of which few live at once, forks again and
//! again what it had a moment before: each child copies its tables, and faults on the shared pages
//! once more.
//!
//! With a pooler connections stay open. In the recording as it would be written then, a new child
//! is a former one of the same parent that has ended: the fork and the end go, and so do faults on
//! pages that the former one has touched, and calls, which it has made already.
use super::edit::Edit;
use super::seen::{Finder, Happens, PAGE, SpaceOperation};
use crate::advise::facts::Facts;
use ptarmigan::space::AreaFlags;
use ptarmigan_replay::{PackedEvent, PackedKind, Trace, When};
use ptarmigan_trace::{FaultFlags, Kind};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The fewest children of one parent.
const LEAST: u64 = 16;
/// Of the children at most one in so many live at once.
const AT_ONCE: u64 = 2;

/// A child that serves, or may.
#[derive(Clone, Copy)]
struct ServingChild {
    /// The event of its fork.
    fork: u32,
    /// The space of its parent.
    parent: u32,
    /// It has touched shared memory.
    serves: bool,
}

/// The children of one parent.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// The program of the parent, as an index of [`Facts::programs`].
    pub program: usize,
    /// Its children that served.
    pub children: u64,
    /// The most at once.
    pub at_once: u64,
    now: u64,
}

/// Looks for servers.
pub struct Servers<'f> {
    facts: &'f Facts,
    children: HashMap<u32, ServingChild>,
    servers: BTreeMap<u32, Server>,
    /// The forks of children that served, with the space of the parent.
    forks: HashMap<u32, u32>,
    /// Faults of children on shared memory.
    shared: HashSet<u32>,
    /// Tasks that start a program, a thread or a process.
    starters: HashSet<u32>,
}

impl Finder for Servers<'_> {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fork { child }, When::Before) => {
                let task = self.facts.forks.get(&seen.event).map(|fork| fork.child);
                if task.is_some_and(|task| !self.starters.contains(&task)) {
                    let (fork, parent) = (seen.event, seen.space);
                    self.children.insert(child, ServingChild { fork, parent, serves: false });
                }
            }
            (Happens::Fault { page, .. }, When::Before) => {
                let Some(child) = self.children.get_mut(&seen.space) else { return };
                if !seen.look.area(page << PAGE).is_some_and(|area| area.flags.has(AreaFlags::SHARED)) {
                    return;
                }
                self.shared.insert(seen.event);
                if !std::mem::replace(&mut child.serves, true) {
                    self.forks.insert(child.fork, child.parent);
                    let server = self.servers.entry(child.parent).or_default();
                    server.program = self.facts.program(seen.program);
                    (server.children, server.now) = (server.children + 1, server.now + 1);
                    server.at_once = server.at_once.max(server.now);
                }
            }
            (Happens::End, _) => {
                if let Some(child) = self.children.remove(&seen.space).filter(|child| child.serves)
                    && let Some(server) = self.servers.get_mut(&child.parent)
                {
                    server.now -= 1;
                }
            }
            _ => {}
        }
    }
}

/// Processes that wait for the next connection.
#[derive(Default)]
struct Pool {
    /// The parent's space of each child that serves.
    parent_of: HashMap<u32, u32>,
    /// The task that a child is now.
    aliases: HashMap<u32, u32>,
    /// Tasks without a connection, by the space of their parent.
    idle: BTreeMap<u32, Vec<u32>>,
    /// Pages that a task has touched, by reading and by writing.
    touched: HashMap<u32, HashSet<(u64, bool)>>,
}

impl<'f> Servers<'f> {
    /// Looks at a recording of which the facts are known.
    pub fn new(facts: &'f Facts, trace: &Trace) -> Self {
        let openings = trace.opening_steps();
        let starts = |(step, number): (&PackedEvent, u32)| {
            let PackedKind::Rare(rare) = step.what else { return None };
            let starts = matches!(trace.rare[rare as usize], Kind::Clone { .. } | Kind::Exec { .. });
            (starts && !openings.contains_key(&number)).then_some(step.task)
        };
        Servers {
            facts,
            children: HashMap::new(),
            servers: BTreeMap::new(),
            forks: HashMap::new(),
            shared: HashSet::new(),
            starters: trace.steps.iter().zip(0..).filter_map(starts).collect(),
        }
    }

    /// Returns the servers that fork again and again, by the number of their space.
    pub fn found(&self) -> BTreeMap<u32, Server> {
        let many = |server: &Server| server.children >= LEAST && server.at_once * AT_ONCE <= server.children;
        self.servers.iter().filter(|(_, s)| many(s)).map(|(space, server)| (*space, server.clone())).collect()
    }

    /// Returns the most forks of children that serve, of one parent, and how many lived at once.
    pub fn most(&self) -> Option<&Server> {
        self.servers.values().max_by_key(|server| server.children)
    }

    /// Returns the recording with children that serve on, for the given parents.
    pub fn rewrite(&self, trace: &Trace, parents: &BTreeMap<u32, Server>) -> Trace {
        let chosen = |event: u32| self.forks.get(&event).copied().filter(|p| parents.contains_key(p));
        let mut pool = Pool::default();
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            let kind = edit.kind(step);
            if let (Some(Kind::Clone { child, .. }), Some(parent)) = (kind, chosen(event)) {
                pool.parent_of.insert(child, parent);
                if let Some(former) = pool.idle.get_mut(&parent).and_then(Vec::pop) {
                    pool.aliases.insert(child, former);
                } else {
                    edit.keep(step);
                }
                continue;
            }
            let Some(&parent) = pool.parent_of.get(&step.task) else {
                edit.keep(step);
                continue;
            };
            let alias = pool.aliases.get(&step.task).copied();
            let task = alias.unwrap_or(step.task);
            match (step.what, kind) {
                (_, Some(Kind::Exit { .. })) => {
                    pool.idle.entry(parent).or_default().push(task);
                }
                (PackedKind::Fault { page, flags }, _) => {
                    let write = flags.0 & FaultFlags::WRITE != 0;
                    let new = pool.touched.entry(task).or_default().insert((page, write));
                    // Memory that only the newcomer has mapped is not there.
                    if alias.is_none() || new && self.shared.contains(&event) {
                        edit.keep(&PackedEvent { task, ..*step });
                    }
                }
                _ if alias.is_none() => edit.keep(step),
                _ => {}
            }
        }
        // Their spaces end with the server.
        if let Some(last) = trace.steps.last() {
            for task in pool.idle.into_values().flatten() {
                edit.call(&PackedEvent { task, ..*last }, Kind::Exit { last: true });
            }
        }
        edit.finish()
    }
}
