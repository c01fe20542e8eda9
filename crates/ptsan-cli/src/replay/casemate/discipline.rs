//! Checks the rules that Casemate alone has: owners of tables and entries, the order of stores, and
//! locks that are taken twice. The sanitizer checks that stores hold the lock of their tree, and
//! that roots have numbers of their own.
use super::register::Stage;
use super::trace::Entry;
use super::trees::{PAGE, Trees, linked};
use std::collections::{HashMap, HashSet};

/// The most broken rules that are kept. All are counted.
const MOST: usize = 64;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Breach {
    /// Where it was broken first.
    pub(super) line: u64,
    pub(super) rule: &'static str,
    pub(super) what: String,
    pub(super) instead: &'static str,
    /// The code, as an index of the log's sources.
    pub(super) source: Option<u32>,
    /// How often this code broke the rule.
    pub(super) count: u64,
}

/// A lock.
struct Held {
    by: u16,
    /// Whether the holder has stored since it took the lock.
    stored: bool,
}

/// The state that the rules are about.
#[derive(Default)]
pub(super) struct Discipline {
    /// Whether locks are checked.
    locks: bool,
    /// The lock of each root.
    lock_of: HashMap<u64, u64>,
    /// The root that a page belongs to, by a hint.
    owner: HashMap<u64, u64>,
    /// The thread that owns an entry, by a hint.
    thread_of: HashMap<u64, u64>,
    held: HashMap<u64, Held>,
    /// The page that links a page.
    parent: HashMap<u64, u64>,
    /// The roots that were loaded.
    roots: HashSet<u64>,
    pub(super) breaches: Vec<Breach>,
    pub(super) total: u64,
}

impl Discipline {
    pub(super) fn new(locks: bool) -> Self {
        Self { locks, ..Self::default() }
    }

    fn breach(&mut self, entry: &Entry, rule: &'static str, what: String, instead: &'static str) {
        self.total += 1;
        let same = |b: &&mut Breach| b.rule == rule && b.source == entry.source && b.source.is_some();
        if let Some(known) = self.breaches.iter_mut().find(same) {
            known.count += 1;
        } else if self.breaches.len() < MOST {
            let (line, source) = (entry.line, entry.source);
            self.breaches.push(Breach { line, rule, what, instead, source, count: 1 });
        }
    }

    pub(super) fn root_lock(&mut self, root: u64, lock: u64) {
        self.lock_of.insert(root, lock);
    }

    /// Returns the lock of a root.
    pub(super) fn lock_of(&self, root: u64) -> Option<u64> {
        self.lock_of.get(&root).copied()
    }

    /// Returns whether a root was loaded, and has not been released since.
    pub(super) fn is_loaded(&self, root: u64) -> bool {
        self.roots.contains(&root)
    }

    /// Returns whether an entry belongs to a thread, and not to the lock of its tree.
    pub(super) fn is_of_thread(&self, at: u64) -> bool {
        self.thread_of.contains_key(&at)
    }

    /// Returns the lock of the tree that a table is part of, and the thread that holds it.
    pub(super) fn lock_over(&self, at: u64) -> Option<(u64, Option<u16>)> {
        let lock = self.lock_of(self.tree(at)?)?;
        Some((lock, self.held.get(&lock).map(|held| held.by)))
    }

    /// Makes a page part of a tree. Returns whether it was part of another.
    pub(super) fn owner_root(&mut self, at: u64, root: u64) -> bool {
        self.owner.insert(at / PAGE, root).is_some_and(|before| before != root)
    }

    /// Returns the root of the tree that a page is part of, by a hint or as the root itself.
    pub(super) fn tree(&self, at: u64) -> Option<u64> {
        let itself = (at / PAGE) * PAGE;
        let is_root = self.roots.contains(&itself) || self.lock_of.contains_key(&itself);
        self.owner.get(&(at / PAGE)).copied().or(is_root.then_some(itself))
    }

    pub(super) fn thread_owner(&mut self, at: u64, thread: u64) {
        self.thread_of.insert(at, thread);
    }

    /// A page belongs to no tree any more.
    pub(super) fn released(&mut self, page: u64) {
        self.owner.remove(&page);
        self.parent.remove(&page);
        self.lock_of.remove(&(page * PAGE));
        self.roots.remove(&(page * PAGE));
        self.thread_of.retain(|at, _| at / PAGE != page);
    }

    /// A thread takes a lock. Returns whether it was free.
    pub(super) fn locked(&mut self, entry: &Entry, lock: u64) -> bool {
        let by = self.held.get(&lock).map(|held| held.by);
        if let Some(by) = by {
            let what = format!("thread {} takes the lock {lock:#x}, which thread {by} holds", entry.thread);
            let instead = "record lock when the lock was taken, and unlock before it is released";
            self.breach_of_locks(entry, "lock-held", what, instead);
        } else {
            self.held.insert(lock, Held { by: entry.thread, stored: false });
        }
        by.is_none()
    }

    /// A thread releases a lock. Returns whether it held it.
    pub(super) fn unlocked(&mut self, entry: &Entry, lock: u64) -> bool {
        let own = self.held.get(&lock).is_some_and(|held| held.by == entry.thread);
        if own {
            self.held.remove(&lock);
        } else {
            let what = format!("thread {} releases the lock {lock:#x}, which it does not hold", entry.thread);
            let instead = "the thread that takes a lock must release it";
            self.breach_of_locks(entry, "lock-not-held", what, instead);
        }
        own
    }

    fn breach_of_locks(&mut self, entry: &Entry, rule: &'static str, what: String, instead: &'static str) {
        if self.locks {
            self.breach(entry, rule, what, instead);
        }
    }

    /// A thread loads a root with a number. Returns whether the root is new.
    pub(super) fn loaded(&mut self, entry: &Entry, stage: Stage, root: u64, number: u64) -> bool {
        if stage == Stage::One && number != 0 {
            let name = stage.register();
            let what = format!("{name} is loaded with the ASID {number}, and these bits are reserved");
            self.breach(
                entry,
                "reserved-asid",
                what,
                "load the root of EL2 alone; it has no ASID without VHE",
            );
        }
        self.roots.insert(root)
    }

    /// Returns the loaded root that leads to a page.
    fn live_root(&self, page: u64) -> Option<u64> {
        let mut at = page;
        // A tree has at most four levels; tables that a lying log links in a circle have no root.
        for _ in 0..=4 {
            if self.roots.contains(&(at * PAGE)) {
                return Some(at * PAGE);
            }
            at = *self.parent.get(&at)?;
        }
        None
    }

    /// A thread stores to an entry.
    pub(super) fn stored(&mut self, entry: &Entry, trees: &Trees, store: Store) {
        let page = store.at / PAGE;
        if self.locks {
            self.check_locks(entry, store, page);
        }
        if !trees.may_link(store.at) {
            return;
        }
        if let Some(table) = linked(store.old)
            && self.parent.get(&(table / PAGE)) == Some(&page)
        {
            self.parent.remove(&(table / PAGE));
        }
        if let Some(table) = linked(store.new) {
            self.parent.insert(table / PAGE, page);
        }
    }

    fn check_locks(&mut self, entry: &Entry, store: Store, page: u64) {
        let Some(root) = self.live_root(page) else { return };
        let at = store.at;
        if let Some(owner) = self.thread_of.get(&at) {
            if *owner != u64::from(entry.thread) {
                let what = format!("thread {} stores to {at:#x}, which is thread {owner}'s", entry.thread);
                self.breach(entry, "thread-owner", what, "let the thread that owns the entry store to it");
            }
            return;
        }
        let owner = if page * PAGE == root { Some(root) } else { self.owner.get(&page).copied() };
        if owner.is_none() {
            let what =
                format!("a store to {at:#x}, whose table belongs to no tree; the root {root:#x} leads to it");
            self.breach(entry, "no-owner", what, "hint set_owner_root before the table is linked");
            return;
        }
        let (plain, touches_valid) = (!store.release, (store.old | store.new) & 1 != 0);
        let Some(lock) = owner.and_then(|owner| self.lock_of(owner)) else { return };
        let Some(held) = self.held.get_mut(&lock).filter(|held| held.by == entry.thread) else { return };
        if std::mem::replace(&mut held.stored, true) && plain && touches_valid {
            let what = format!("a plain store to {at:#x}, the second under the lock {lock:#x}");
            let instead = "store with release order, so that walkers see earlier stores first";
            self.breach(entry, "plain-store", what, instead);
        }
    }
}

/// A store to an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) at: u64,
    pub(super) old: u64,
    pub(super) new: u64,
    pub(super) release: bool,
}
