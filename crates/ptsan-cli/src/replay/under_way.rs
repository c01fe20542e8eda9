//! Remembers which operations and readers are under way, and which locks CPUs hold.
use super::error::RecordError;
use std::collections::{HashMap, HashSet};

/// The most operations, and the most readers, under way.
const MOST: usize = 1 << 10;
/// The most locks that are held at a time.
const MOST_LOCKS: usize = 1 << 16;

/// Things that a log numbers, and that begin and end.
pub(super) struct Numbered {
    /// What a message calls one of them.
    name: &'static str,
    /// The advice for a number that is under way, or for too many.
    own: &'static str,
    /// The advice for a number that is not.
    begin: &'static str,
    under_way: HashSet<u64>,
}

impl Numbered {
    pub(super) fn operations() -> Self {
        Self {
            name: "operation",
            own: "give each operation that is under way a number of its own, and end it",
            begin: "record operation-begins with this number before",
            under_way: HashSet::new(),
        }
    }

    pub(super) fn readers() -> Self {
        Self {
            name: "reader",
            own: "give each reader that is under way a number of its own, and end it",
            begin: "record reader-begins with this number before",
            under_way: HashSet::new(),
        }
    }

    pub(super) fn begin(&mut self, number: u64) -> Result<(), RecordError> {
        if self.under_way.len() >= MOST {
            return Err((format!("{MOST} {}s are under way", self.name), self.own));
        }
        if self.under_way.insert(number) {
            Ok(())
        } else {
            Err((format!("{} {number} is under way", self.name), self.own))
        }
    }

    pub(super) fn expect(&self, number: u64) -> Result<(), RecordError> {
        if self.under_way.contains(&number) {
            return Ok(());
        }
        Err((format!("{} {number} is not under way", self.name), self.begin))
    }

    pub(super) fn end(&mut self, number: u64) -> Result<(), RecordError> {
        self.expect(number)?;
        self.under_way.remove(&number);
        Ok(())
    }
}

/// The locks that CPUs hold: for each, its holders, and whether they share it.
#[derive(Default)]
pub(super) struct Locks(HashMap<u64, (bool, HashSet<u16>)>);

impl Locks {
    pub(super) fn take(&mut self, cpu: u16, lock: u64, shared: bool) -> Result<(), RecordError> {
        if self.0.len() >= MOST_LOCKS {
            return Err((format!("{MOST_LOCKS} locks are held"), "record lock-released for each"));
        }
        let (with_others, holders) = self.0.entry(lock).or_insert_with(|| (shared, HashSet::new()));
        let other = match holders.contains(&cpu) {
            true => Some(&cpu),
            false => holders.iter().next().filter(|_| !(shared && *with_others)),
        };
        if let Some(other) = other {
            return Err((
                format!("CPU {other} holds lock {lock:#x}"),
                "record lock-taken once the CPU has the lock, and lock-released right before it gives it up",
            ));
        }
        holders.insert(cpu);
        Ok(())
    }

    pub(super) fn release(&mut self, cpu: u16, lock: u64) -> Result<(), RecordError> {
        let held = self.0.get_mut(&lock).filter(|(_, holders)| holders.contains(&cpu));
        let Some((_, holders)) = held else {
            return Err((
                format!("CPU {cpu} does not hold lock {lock:#x}"),
                "record lock-taken of this CPU and this lock before",
            ));
        };
        holders.remove(&cpu);
        if holders.is_empty() {
            self.0.remove(&lock);
        }
        Ok(())
    }
}
