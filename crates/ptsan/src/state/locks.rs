//! The locks of tables.
use crate::hash::FastMap;

/// The most tables that have a lock.
const MOST: usize = 1 << 16;

/// The lock that guards a table, and those below it that have none of their own.
/// ```
/// use ptsan::{Arch, Config, Guard, Hold, Rule, Session};
///
/// let mut s = Session::with(Config { locks: true, ..Config::new(Arch::x86_2level()) }, vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// s.put(0x1000, 0x83);                                        // a page of 4 MiB
/// s.sanitizer.lock_guards(0x1000, Guard { lock: 1, flush_first: true });
/// s.load(0x1000);
/// s.sanitizer.lock_taken(0, 1, Hold::Exclusive);
/// s.put(0x1000, 0);
/// s.sanitizer.lock_released(&s.memory, 0, 1);                 // before the flush
/// assert_eq!(s.sanitizer.findings()[0].rule, Rule::ReleasedBeforeFlush);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The lock, by any number.
    pub lock: u64,
    /// Whether the flushes of changes under the lock have to be over when it is released: the next
    /// holder may free pages that are mapped no more.
    pub flush_first: bool,
}

/// How a CPU holds a lock.
/// ```
/// use ptsan::{Arch, Config, Guard, Hold, Rule, Session};
///
/// let mut s = Session::with(Config { locks: true, ..Config::new(Arch::x86_2level()) }, vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// s.sanitizer.lock_guards(0x1000, Guard { lock: 1, flush_first: false });
/// s.load(0x1000);
/// s.sanitizer.lock_taken(0, 1, Hold::Shared);
/// s.exchanged(0x1000);                                        // an atomic exchange is right,
/// s.stored(0x1000);                                           // a plain store is not
/// assert_eq!(s.sanitizer.findings()[0].rule, Rule::SharedLock);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// With others: entries are exchanged, not plainly stored to.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock that a CPU holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) lock: u64,
    pub(crate) cpu: usize,
    pub(crate) hold: Hold,
    /// Event at which it was taken.
    pub(crate) since: u64,
}

/// Which locks guard which tables, and which CPUs hold them.
#[derive(Default)]
pub(crate) struct Locks {
    guards: FastMap<u64, Guard>,
    held: FastMap<u64, Vec<Held>>,
}

impl Locks {
    pub(crate) fn guard(&mut self, table: u64, guard: Guard) {
        if self.guards.len() < MOST || self.guards.contains_key(&table) {
            self.guards.insert(table, guard);
        }
    }

    /// Returns the lock of a table itself.
    pub(crate) fn guard_of(&self, table: u64) -> Option<Guard> {
        self.guards.get(&table).copied()
    }

    /// Forgets the lock of a table that was freed.
    pub(crate) fn forget(&mut self, table: u64) {
        self.guards.remove(&table);
    }

    /// Takes a lock. Returns the CPU that holds it in a way that excludes that.
    pub(crate) fn take(&mut self, new: Held) -> Option<usize> {
        let held = self.held.entry(new.lock).or_default();
        let excludes =
            |h: &&Held| h.hold == Hold::Exclusive || new.hold == Hold::Exclusive || h.cpu == new.cpu;
        let other = held.iter().find(excludes).map(|h| h.cpu);
        if other.is_none() {
            held.push(new);
        }
        other
    }

    /// Releases a lock, and returns how it was held.
    pub(crate) fn release(&mut self, lock: u64, cpu: usize) -> Option<Held> {
        let held = self.held.get_mut(&lock)?;
        let at = held.iter().position(|h| h.cpu == cpu)?;
        let found = held.swap_remove(at);
        if held.is_empty() {
            self.held.remove(&lock);
        }
        Some(found)
    }

    /// Returns how a lock is held by a CPU, or by any.
    pub(crate) fn holder(&self, lock: u64, cpu: Option<usize>) -> Option<Held> {
        self.held.get(&lock)?.iter().find(|h| cpu.is_none_or(|cpu| cpu == h.cpu)).copied()
    }
}
