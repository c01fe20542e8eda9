//! Servers that fork a process for each connection, or for few requests.
//!
//! A process *serves* if its parent forked it, it starts no program, thread or process, and it
//! makes faults. A parent with many such children, of which few live at once, forks again and again
//! what it had a moment before: each child copies its tables, and faults on the same pages once
//! more.
//!
//! Two kinds of parents are told apart:
//!
//! * The children use shared memory of the parent, such as the buffers of a database.
//! * They do not. Then a parent that makes more faults than its children is no server: its children
//!   depend on its writes between the forks, such as a snapshot of its data.
//!
//! With a pooler connections stay open. In the recording as it would be written then, a new child
//! is a former one of the same parent that has ended: the fork and the end go, and so do faults on
//! pages that the former one has touched, and calls, which it has made already. Memory that a child
//! has mapped itself is not there in the former one, nor are faults on it.
use super::edit::Edit;
use super::seen::{Finder, Happens, PAGE, SpaceOperation};
use crate::advise::facts::Facts;
use foldhash::{HashMap, HashMapExt, HashSet};
use ptarmigan::space::AreaFlags;
use ptarmigan_replay::{PackedEvent, PackedKind, Trace, When};
use ptarmigan_trace::Kind;
use std::collections::BTreeMap;

/// The fewest children of one parent.
const LEAST: u64 = 16;
/// Of the children at most one in so many live at once.
const AT_ONCE: u64 = 2;

/// A child that may serve.
struct ServingChild {
    /// The event of its fork.
    fork: u32,
    /// The space of its parent.
    parent: u32,
    /// It has made a fault.
    serves: bool,
    /// It has touched shared memory.
    shares: bool,
    /// Ranges that it has mapped itself.
    mapped: Vec<(u64, u64)>,
}

/// Children that are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    all: u64,
    now: u64,
    at_once: u64,
}

impl Counted {
    fn begin(&mut self) {
        (self.all, self.now) = (self.all + 1, self.now + 1);
        self.at_once = self.at_once.max(self.now);
    }

    fn is_many(&self) -> bool {
        self.all >= LEAST && self.at_once * AT_ONCE <= self.all
    }
}

/// The children of one parent.
#[derive(Clone, Debug)]
pub struct Server {
    /// The program of the parent, as an index of [`Facts::programs`].
    pub program: usize,
    /// Its children that served.
    pub children: u64,
    /// The most at once.
    pub at_once: u64,
    /// They use its shared memory.
    pub shares: bool,
    /// Faults of the children.
    pub faults: u64,
}

/// A parent.
#[derive(Default)]
struct Parent {
    program: usize,
    /// Children that use its shared memory.
    sharing: Counted,
    /// Children that make faults.
    serving: Counted,
    /// Faults of children.
    by_children: u64,
    /// Its own faults, from the first fork on.
    by_parent: u64,
}

impl Parent {
    fn server(&self) -> Server {
        let shares = self.sharing.is_many();
        let Counted { all, at_once, .. } = if shares { self.sharing } else { self.serving };
        Server { program: self.program, children: all, at_once, shares, faults: self.by_children }
    }

    fn is_server(&self) -> bool {
        self.sharing.is_many() || self.serving.is_many() && self.by_parent <= self.by_children
    }
}

/// Looks for servers.
pub struct Servers<'f> {
    facts: &'f Facts,
    children: HashMap<u32, ServingChild>,
    servers: BTreeMap<u32, Parent>,
    /// The forks of children that served, with the space of the parent and whether the child used
    /// shared memory.
    forks: HashMap<u32, (u32, bool)>,
    /// Faults of children on memory that they have inherited; whether it is shared.
    inherited: HashMap<u32, bool>,
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
                    let (serves, shares, mapped) = (false, false, Vec::new());
                    self.children.insert(child, ServingChild { fork, parent, serves, shares, mapped });
                    self.servers.entry(parent).or_default().program = self.facts.program(seen.program);
                }
            }
            (Happens::Fault { page, .. }, When::Before) => self.fault(seen, page),
            (Happens::Call(kind), When::Before) => {
                let Some(child) = self.children.get_mut(&seen.space) else { return };
                child.mapped.extend(match kind {
                    Kind::Mmap { start, pages, .. } => Some((start, start + pages)),
                    Kind::Mremap { to, new_pages, .. } => Some((to, to + new_pages)),
                    _ => None,
                });
            }
            (Happens::End, _) => {
                if let Some(child) = self.children.remove(&seen.space)
                    && let Some(server) = self.servers.get_mut(&child.parent)
                {
                    server.serving.now -= u64::from(child.serves);
                    server.sharing.now -= u64::from(child.shares);
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
            inherited: HashMap::new(),
            starters: trace.steps.iter().zip(0..).filter_map(starts).collect(),
        }
    }

    fn fault(&mut self, seen: &SpaceOperation<'_>, page: u64) {
        let Some(child) = self.children.get_mut(&seen.space) else {
            if let Some(parent) = self.servers.get_mut(&seen.space) {
                parent.by_parent += 1;
            }
            return;
        };
        let Some(parent) = self.servers.get_mut(&child.parent) else { return };
        parent.by_children += 1;
        let Some(area) = seen.look.area(page << PAGE) else { return };
        let shared = area.flags.has(AreaFlags::SHARED);
        if shared || !child.mapped.iter().any(|(start, end)| (*start..*end).contains(&page)) {
            self.inherited.insert(seen.event, shared);
        }
        if !std::mem::replace(&mut child.serves, true) {
            parent.serving.begin();
        }
        if shared && !std::mem::replace(&mut child.shares, true) {
            parent.sharing.begin();
        }
        self.forks.insert(child.fork, (child.parent, child.shares));
    }

    /// Returns the servers that fork again and again, by the number of their space.
    pub fn found(&self) -> BTreeMap<u32, Server> {
        let servers = self.servers.iter().filter(|(_, parent)| parent.is_server());
        servers.map(|(space, parent)| (*space, parent.server())).collect()
    }

    /// Returns the parent with the most children that serve, of some programs.
    pub fn most(&self, of: impl Fn(usize) -> bool) -> Option<Server> {
        let servers = self.servers.values().map(Parent::server);
        let some = servers.filter(|server| server.children > 0 && of(server.program));
        some.max_by_key(|server| server.children)
    }

    /// Returns the recording with children that serve on, for the given parents.
    pub fn rewrite(&self, trace: &Trace, parents: &BTreeMap<u32, Server>) -> Trace {
        let chosen = |event: u32| {
            let (parent, shares) = self.forks.get(&event)?;
            parents.get(parent).is_some_and(|server| *shares || !server.shares).then_some(*parent)
        };
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
                    let write = flags.may_write(trace.access_unknown);
                    let new = pool.touched.entry(task).or_default().insert((page, write));
                    // Memory that only the newcomer has mapped is not there.
                    let kept = self.inherited.get(&event);
                    let kept = kept.is_some_and(|shared| *shared || !parents[&parent].shares);
                    if alias.is_none() || new && kept {
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
