//! The locks of tables.
use ptsan::{Arch, Config, Guard, Hold, Kind, Rule, Session};

type Run = Session<Vec<u8>>;

const ROOT: u64 = 0x1000;
const TABLE: u64 = 0x2000;
const TREE: u64 = 1;
const LEAVES: u64 = 2;

/// A root under lock 1 whose only table has lock 2, loaded on both CPUs.
fn tree(locks: bool, flush_first: bool) -> Run {
    let mut s =
        Session::with(Config { cpus: 2, locks, ..Config::new(Arch::x86_2level()) }, vec![0u8; 1 << 16]);
    s.alloc(ROOT);
    s.alloc(TABLE);
    s.sanitizer.lock_guards(ROOT, Guard { lock: TREE, flush_first: false });
    s.sanitizer.lock_guards(TABLE, Guard { lock: LEAVES, flush_first });
    s.each_cpu(|s| s.load(ROOT));
    s.on(0);
    s.sanitizer.running_on(0);
    s.put(TABLE, 0x9007); // before it is linked: nobody else's
    take(&mut s, 0, TREE);
    s.put(ROOT, TABLE | 7);
    release(&mut s, 0, TREE);
    s
}

fn take(s: &mut Run, cpu: usize, lock: u64) {
    s.sanitizer.lock_taken(cpu, lock, Hold::Exclusive);
}

fn release(s: &mut Run, cpu: usize, lock: u64) {
    let Session { sanitizer, memory, .. } = s;
    sanitizer.lock_released(memory, cpu, lock);
}

fn exchange(s: &mut Run, at: u64, raw: u32) {
    s.memory[at as usize..][..4].copy_from_slice(&raw.to_le_bytes());
    s.exchanged(at);
}

fn found(s: &Run) -> Vec<(Kind, Rule)> {
    s.sanitizer.findings().iter().map(|f| (f.kind, f.rule)).collect()
}

#[test]
fn a_store_needs_the_storing_cpus_lock_nearest_to_its_table() {
    let with = |cpu, lock| {
        let mut s = tree(true, false);
        take(&mut s, cpu, lock);
        s.put(TABLE + 4, 0xa007);
        found(&s)
    };
    let unlocked = [(Kind::UnlockedWrite, Rule::NotLocked)];
    assert_eq!(with(0, LEAVES), []);
    assert_eq!(with(0, TREE), unlocked);
    assert_eq!(with(1, LEAVES), unlocked);
    // Off, no lock is asked for.
    let mut s = tree(false, false);
    s.put(TABLE + 4, 0xa007);
    assert_eq!(found(&s), []);
}

#[test]
fn under_a_shared_lock_entries_are_exchanged() {
    let mut s = tree(true, false);
    s.sanitizer.lock_taken(0, LEAVES, Hold::Shared);
    s.sanitizer.lock_taken(1, LEAVES, Hold::Shared);
    exchange(&mut s, TABLE + 4, 0xa007);
    assert_eq!(found(&s), []);
    s.put(TABLE + 8, 0xb007);
    assert_eq!(found(&s), [(Kind::UnlockedWrite, Rule::SharedLock)]);
}

#[test]
fn tables_that_are_loaded_have_a_lock() {
    let mut s = Session::with(Config { locks: true, ..Config::new(Arch::x86_2level()) }, vec![0u8; 1 << 16]);
    s.alloc(ROOT);
    s.put(ROOT, 0x83);
    assert_eq!(found(&s), [], "nobody uses it yet");
    s.load(ROOT);
    s.put(ROOT, 0);
    assert_eq!(found(&s), [(Kind::UnlockedWrite, Rule::NoLock)]);
}

#[test]
fn a_table_that_was_taken_out_is_its_owners_alone() {
    let mut s = tree(true, false);
    take(&mut s, 0, TREE);
    s.put(ROOT, 0);
    release(&mut s, 0, TREE);
    s.each_cpu(|s| s.flush(None));
    s.put(TABLE, 0);
    s.free(TABLE);
    // The frame has no lock when it is used again.
    s.alloc(TABLE);
    take(&mut s, 0, TREE);
    s.put(ROOT, TABLE | 7);
    s.put(TABLE, 0x9007);
    assert_eq!(found(&s), []);
}

#[test]
fn a_lock_is_released_after_the_flush_where_that_was_asked_for() {
    for (flush_first, flushes, silent) in [(true, false, false), (true, true, true), (false, false, true)] {
        let mut s = tree(true, flush_first);
        take(&mut s, 0, LEAVES);
        s.put(TABLE, 0);
        if flushes {
            s.each_cpu(|s| s.flush(0));
        }
        release(&mut s, 0, LEAVES);
        let early = [(Kind::FlushMissing, Rule::ReleasedBeforeFlush)];
        assert_eq!(found(&s), early[usize::from(silent)..], "{}", s.sanitizer);
        // The flush comes, too late.
        s.each_cpu(|s| s.flush(0));
        s.frame_freed(0x9000);
        assert_eq!(s.sanitizer.total(), u64::from(!silent), "{}", s.sanitizer);
    }
}

#[test]
fn changes_under_another_lock_are_not_this_ones() {
    let mut s = tree(true, true);
    take(&mut s, 0, LEAVES);
    s.put(TABLE, 0);
    take(&mut s, 1, TREE);
    release(&mut s, 1, TREE);
    s.each_cpu(|s| s.flush(0));
    release(&mut s, 0, LEAVES);
    assert_eq!(found(&s), []);
}

#[test]
fn locks_that_are_taken_twice_or_not_held_are_refused() {
    let mut s = tree(true, false);
    take(&mut s, 0, LEAVES);
    take(&mut s, 0, LEAVES);
    take(&mut s, 1, LEAVES);
    s.sanitizer.lock_taken(1, LEAVES, Hold::Shared);
    release(&mut s, 1, LEAVES);
    take(&mut s, 9, LEAVES);
    release(&mut s, 0, LEAVES);
    release(&mut s, 0, LEAVES);
    assert_eq!(s.sanitizer.count(Kind::Misuse), 6, "{}", s.sanitizer);
    assert_eq!(s.sanitizer.total(), 6);
}
