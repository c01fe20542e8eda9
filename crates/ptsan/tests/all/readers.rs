//! Software that walks tables without a lock, and devices that read entries of several words.
use ptsan::{Adversary, Arch, Config, DeviceEntry, Flush, Kind, Reader, Rule, Sanitizer, Session};

type Run = Session<Vec<u8>>;

/// Two tables below a root, one page each; no CPU has the root loaded.
fn tree(config: Config) -> Run {
    let mut s = Session::with(config, vec![0u8; 1 << 16]);
    for table in [0x1000, 0x2000, 0x3000] {
        s.alloc(table);
    }
    for (entry, raw) in [(0x2000, 0x9007), (0x3000, 0xa007), (0x1000, 0x2007), (0x1004, 0x3007)] {
        s.put(entry, raw);
    }
    s
}

fn x86() -> Config {
    Config::new(Arch::x86_2level())
}

fn begins(s: &mut Run, root: u64) -> Reader {
    let Session { sanitizer, memory, .. } = s;
    sanitizer.reader_begins(memory, root)
}

fn found(s: &Run) -> Vec<(Kind, Rule)> {
    s.sanitizer.findings().iter().map(|f| (f.kind, f.rule)).collect()
}

const HELD: (Kind, Rule) = (Kind::FreeUnderReader, Rule::HeldByReader);

#[test]
fn a_table_within_reach_of_a_reader_is_freed_after_its_end() {
    for (waits, silent) in [(false, false), (true, true)] {
        let mut s = tree(x86());
        let reader = begins(&mut s, 0x1000);
        s.put(0x1000, 0);
        if waits {
            s.sanitizer.reader_ends(reader);
        }
        s.free(0x2000);
        assert_eq!(found(&s), [HELD][usize::from(silent)..], "{}", s.sanitizer);
    }
}

#[test]
fn a_reader_that_began_after_the_unlink_cannot_be_in_the_table() {
    let mut s = tree(x86());
    s.put(0x1000, 0);
    let reader = begins(&mut s, 0x1000);
    s.free(0x2000);
    s.sanitizer.reader_ends(reader);
    assert_eq!(found(&s), []);
}

#[test]
fn readers_of_other_tables_and_other_tables_do_not_matter() {
    let mut s = tree(x86());
    s.alloc(0x4000);
    let (other, own) = (begins(&mut s, 0x4000), begins(&mut s, 0x1000));
    s.sanitizer.reader_reads(&s.memory.clone(), own, 0x3000);
    s.sanitizer.reader_ends(own);
    s.put(0x1000, 0);
    s.free(0x2000);
    assert_eq!(found(&s), []);
    // The root itself is read from the beginning.
    s.free(0x4000);
    assert_eq!(found(&s), [HELD]);
    s.sanitizer.reader_ends(other);
}

#[test]
fn without_told_stores_the_tables_that_it_reads_count() {
    for (reads, silent) in [(false, true), (true, false)] {
        let mut s = tree(x86());
        let reader = begins(&mut s, 0x1000);
        if reads {
            s.sanitizer.reader_reads(&s.memory.clone(), reader, 0x2000);
        }
        s.memory[0x1000..0x1004].fill(0);
        s.free(0x2000);
        assert_eq!(found(&s), [HELD][usize::from(silent)..], "{}", s.sanitizer);
        // Reported once: what it reads there follows from it.
        s.sanitizer.reader_reads(&s.memory.clone(), reader, 0x2000);
        assert_eq!(s.sanitizer.count(Kind::UseAfterFree), u64::from(silent));
    }
}

#[test]
fn a_table_used_again_is_another_one() {
    let mut s = tree(x86());
    let old = begins(&mut s, 0x1000);
    s.put(0x1000, 0);
    s.sanitizer.reader_ends(old);
    s.free(0x2000);
    let reader = begins(&mut s, 0x1000);
    s.alloc(0x2000);
    s.free(0x2000);
    s.sanitizer.reader_ends(reader);
    assert_eq!(found(&s), []);
}

#[test]
fn the_adversary_moves_readers() {
    let mut caught = 0;
    for seed in 0..100 {
        let mut s = tree(Config { adversary: Some(Adversary { rate: 4000, seed }), ..x86() });
        let reader = begins(&mut s, 0x1000);
        s.sanitizer.adversary_step(&s.memory.clone());
        s.memory[0x1000..0x1004].fill(0);
        s.free(0x2000);
        s.sanitizer.reader_ends(reader);
        caught += s.sanitizer.count(Kind::FreeUnderReader);
        assert_eq!(s.sanitizer.total(), s.sanitizer.count(Kind::FreeUnderReader));
    }
    assert!((20..100).contains(&caught), "{caught}");
}

#[test]
fn readers_that_are_none_are_refused() {
    let mut s = tree(x86());
    let reader = begins(&mut s, 0x1000);
    s.sanitizer.reader_ends(reader);
    s.sanitizer.reader_ends(reader);
    s.sanitizer.reader_reads(&s.memory.clone(), reader, 0x2000);
    assert_eq!(s.sanitizer.count(Kind::Misuse), 2);
}

/// A context entry of two words at 0x1000, read by a device.
struct Entry {
    ram: Vec<u8>,
    san: Sanitizer,
    device: usize,
}

impl Entry {
    fn new() -> Self {
        let mut san = Sanitizer::new(Config { cpus: 1, devices: 2, ..Config::new(Arch::x86_64()) });
        let (ram, device) = (vec![0u8; 1 << 16], san.device(1));
        san.device_entry(&ram, device, 0x1000, DeviceEntry::new(16));
        Self { ram, san, device }
    }

    fn store(&mut self, word: u64, value: u64) {
        self.ram[0x1000 + 8 * word as usize..][..8].copy_from_slice(&value.to_le_bytes());
        self.san.device_entry_written(&self.ram, 0x1000 + 8 * word);
    }

    fn forget(&mut self) {
        self.san.device_entries_flushed(self.device, Some(0x1000));
    }

    /// Another hook than a store to an entry.
    fn pause(&mut self) {
        self.san.adversary_step(&self.ram);
    }

    fn found(&self) -> Vec<(Kind, Rule)> {
        self.san.findings().iter().map(|f| (f.kind, f.rule)).collect()
    }
}

const TORN: (Kind, Rule) = (Kind::TornEntry, Rule::ChangedInPieces);

#[test]
fn an_entry_is_made_valid_by_its_last_store() {
    let mut entry = Entry::new();
    entry.store(1, 0x302);
    entry.store(0, 0x5001);
    assert_eq!(entry.found(), []);
    let mut entry = Entry::new();
    entry.store(0, 0x5001);
    entry.store(1, 0x302);
    assert_eq!(entry.found(), [TORN]);
    assert!(entry.san.to_string().contains("device 1"), "{}", entry.san);
}

#[test]
fn a_valid_entry_is_changed_by_one_store_or_made_invalid_first() {
    let valid = || {
        let mut entry = Entry::new();
        entry.store(1, 0x302);
        entry.store(0, 0x5001);
        entry.pause();
        entry
    };
    let mut entry = valid();
    entry.store(1, 0x402);
    entry.store(0, 0x6001);
    assert_eq!(entry.found(), [TORN]);
    // One word, and later the other: two updates.
    let mut entry = valid();
    entry.store(1, 0x402);
    entry.pause();
    entry.store(0, 0x6001);
    assert_eq!(entry.found(), []);
    // The same word twice is no piece of another.
    let mut entry = valid();
    entry.store(0, 0x6001);
    entry.store(0, 0x7001);
    assert_eq!(entry.found(), []);
    // Invalid, forgotten, valid again.
    let mut entry = valid();
    entry.store(0, 0);
    entry.forget();
    entry.store(1, 0x402);
    entry.store(0, 0x6001);
    assert_eq!(entry.found(), []);
}

#[test]
fn an_entry_is_made_invalid_by_its_first_store() {
    for (words, expected) in [([1, 0], &[TORN][..]), ([0, 1], &[])] {
        let mut entry = Entry::new();
        entry.store(1, 0x302);
        entry.store(0, 0x5001);
        entry.pause();
        words.into_iter().for_each(|word| entry.store(word, 0));
        assert_eq!(entry.found(), expected);
    }
}

#[test]
fn an_entry_that_is_valid_again_was_forgotten_before() {
    let stale = [(Kind::FlushMissing, Rule::EntryNotFlushed)];
    let again = |forget: fn(&mut Entry), word| {
        let mut entry = Entry::new();
        entry.store(0, 0x5001);
        entry.pause();
        entry.store(0, 0);
        forget(&mut entry);
        entry.store(0, word);
        entry.found()
    };
    assert_eq!(again(|_| {}, 0x6001), stale);
    assert_eq!(again(|_| {}, 0x5001), [], "as it was");
    assert_eq!(again(Entry::forget, 0x6001), []);
    assert_eq!(again(|e| e.san.device_entries_flushed(e.device, None), 0x6001), []);
    let misuse = (Kind::Misuse, Rule::BadArgument);
    let unknown = again(|e| e.san.device_entries_flushed(e.device, Some(0x2000)), 0x6001);
    assert_eq!(unknown, [misuse, stale[0]], "no such entry");
    assert_eq!(again(|e| e.san.device_entries_flushed(e.san.device(0), None), 0x6001), stale);
    // The caches of tables are another matter.
    assert_eq!(again(|e| e.san.flush(&e.ram, e.device, Flush::all()), 0x6001), stale);
}

#[test]
fn entries_that_make_no_sense_are_refused() {
    let mut entry = Entry::new();
    let bad = [
        (entry.device, 0x1008, DeviceEntry::new(16)),
        (entry.device, 0x1000, DeviceEntry::new(12)),
        (entry.device, 0x1000, DeviceEntry { bytes: 16, valid: (2, 1) }),
        (entry.device, 0x1000, DeviceEntry { bytes: 16, valid: (0, 0) }),
        (entry.device, 1 << 20, DeviceEntry::new(16)),
        (entry.device, !63, DeviceEntry::new(64)),
        (0, 0x1000, DeviceEntry::new(16)),
    ];
    for (device, phys, shape) in bad {
        entry.san.device_entry(&entry.ram, device, phys, shape);
    }
    entry.san.device_entry_written(&entry.ram, 0x1010);
    entry.san.device_entries_flushed(0, None);
    assert_eq!(entry.san.count(Kind::Misuse), 9, "{}", entry.san);
    assert_eq!(entry.san.total(), 9);
}
