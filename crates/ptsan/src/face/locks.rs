//! The hooks of locks ([`Config::locks`](crate::Config::locks)).
use crate::memory::Memory;
use crate::report::Place;
use crate::state::{Guard, Held, Hold, Sanitizer};

impl Sanitizer {
    /// Tells that a lock guards the entries of the table at `table`, and of all tables below it
    /// that have no lock of their own. A root with a lock has all its tables guarded.
    ///
    /// Of a table that trees with different locks share, any of these will do. Stores that a kernel
    /// makes without a lock on purpose (an exchange that only adds a permission, in a fast path)
    /// are reported: allow them ([`Config::allow`](crate::Config::allow)).
    ///
    /// With [`Config::locks`](crate::Config::locks), a told store to an entry that a walk can reach
    /// needs the lock ([`Kind::UnlockedWrite`](crate::Kind::UnlockedWrite)), and tables that a CPU
    /// has loaded need one. A table that is not linked yet needs none. The CPU that stores is the
    /// one that [`running_on`](Self::running_on) told of, else any.
    /// ```
    /// use ptsan::{Arch, Config, Guard, Hold, Kind, Session};
    ///
    /// let config = Config { locks: true, ..Config::new(Arch::x86_2level()) };
    /// let mut s = Session::with(config, vec![0u8; 1 << 16]);
    /// s.alloc(0x1000);
    /// s.sanitizer.lock_guards(0x1000, Guard { lock: 1, flush_first: false });
    /// s.load(0x1000);
    /// s.sanitizer.lock_taken(0, 1, Hold::Exclusive);
    /// s.put(0x1000, 0x83);
    /// s.sanitizer.lock_released(&s.memory, 0, 1);
    /// s.put(0x1000, 0);
    /// assert_eq!(s.sanitizer.count(Kind::UnlockedWrite), 1);
    /// ```
    pub fn lock_guards(&mut self, table: u64, guard: Guard) {
        self.hook(|s| s.locks.guard(table, guard));
    }

    /// Tells that a CPU has taken a lock. One that another holds, or the same CPU, is refused.
    pub fn lock_taken(&mut self, cpu: usize, lock: u64, hold: Hold) {
        self.hook(|s| {
            if !s.has_cpu(cpu) {
                return;
            }
            let held = Held { lock, cpu, hold, since: s.event };
            if let Some(other) = s.locks.take(held) {
                let other = s.reader(other);
                let needs = format!("lock_taken needs a lock that is free; {other} holds {lock:#x}");
                s.bad_argument(Place { cpu: Some(cpu), ..Place::default() }, &needs);
            }
        });
    }

    /// Tells that a CPU is about to release a lock. If the flushes of changes under it have to
    /// be over ([`Guard::flush_first`]), those that CPUs still owe are reported
    /// ([`Rule::ReleasedBeforeFlush`](crate::Rule::ReleasedBeforeFlush)).
    pub fn lock_released(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, lock: u64) {
        self.hook(|s| {
            if !s.has_cpu(cpu) {
                return;
            }
            match s.locks.release(lock, cpu) {
                Some(held) => s.check_released(memory, held),
                None => {
                    let needs =
                        format!("lock_released needs a lock that the CPU holds; it has not {lock:#x}");
                    s.bad_argument(Place { cpu: Some(cpu), ..Place::default() }, &needs);
                }
            }
        });
    }
}
