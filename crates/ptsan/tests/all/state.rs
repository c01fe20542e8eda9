//! Attributes of a page beside its address and its permissions: dirty, global, memory type.
//! Clearing or changing it owes a flush. And entries that deny an access, which some CPUs keep.
use ptsan::{Access, Arch, Config, Fault, Flush, Kind, Rule, Session};

const VA: u64 = 0x5000;
const ENTRY: u64 = 0x4000 + 5 * 8;
const FRAME: u64 = 0x9000;

type Machine = Session<Vec<u8>>;

/// Two CPUs with a space loaded that maps the page at `VA` by an entry.
fn machine(config: Config, page: u64) -> Machine {
    let table = match config.arch.name.starts_with("AArch64") {
        true => 3,
        false => 7,
    };
    let mut s = Session::with(Config { cpus: 2, ..config }, vec![0; 1 << 16]);
    (1..=4).for_each(|n| s.alloc(n << 12));
    (1..=3).for_each(|n| s.put(n << 12, (n + 1) << 12 | table));
    s.put(ENTRY, page);
    s.each_cpu(|s| s.load(0x1000));
    s
}

fn x86() -> Config {
    Config::new(Arch::x86_64())
}

fn arm() -> Config {
    Config::new(Arch::aarch64_4k(48))
}

fn dirty(config: Config) -> Config {
    Config { accessed_dirty: true, ..config }
}

fn exchange(s: &mut Machine, raw: u64) {
    s.memory[ENTRY as usize..][..8].copy_from_slice(&raw.to_le_bytes());
    s.exchanged(ENTRY);
}

fn found(s: &Machine) -> Vec<(Kind, Rule)> {
    s.sanitizer.findings().iter().map(|f| (f.kind, f.rule)).collect()
}

/// Returns the findings after an exchange and a flush.
fn changed(config: &Config, old: u64, new: u64, flush: Option<Flush>) -> Vec<(Kind, Rule)> {
    let mut s = machine(config.clone(), old);
    let _ = s.on(1).access(VA);
    exchange(&mut s, new);
    if let Some(flush) = flush {
        s.sanitizer.flush_everywhere(&s.memory, flush);
    }
    s.flushes_done();
    found(&s)
}

fn missing(rule: Rule) -> Vec<(Kind, Rule)> {
    vec![(Kind::FlushMissing, rule)]
}

const PAGE: Option<Flush> = Some(Flush::page_in_every_space(VA));
const X86_DIRTY: u64 = FRAME | 0x67;
const X86_CLEAN: u64 = FRAME | 0x27;
/// Dirty and clean, with the Dirty Bit Modifier.
const ARM_DIRTY: u64 = FRAME | 0xc43 | 1 << 51;
const ARM_CLEAN: u64 = FRAME | 0xcc3 | 1 << 51;

#[test]
fn a_dirty_bit_that_is_cleared_owes_a_flush() {
    for (config, old, new) in [(x86(), X86_DIRTY, X86_CLEAN), (arm(), ARM_DIRTY, ARM_CLEAN)] {
        let config = dirty(config);
        assert_eq!(changed(&config, old, new, None), missing(Rule::DirtyNotFlushed), "{}", config.arch.name);
        assert_eq!(changed(&config, old, new, PAGE), []);
        assert_eq!(changed(&config, new, new, None), [], "it was clean");
    }
    assert_eq!(changed(&x86(), X86_DIRTY, X86_CLEAN, None), [], "the code sets the bit itself");
}

#[test]
fn a_restored_dirty_bit_owes_nothing_and_an_unmap_its_own() {
    let mut s = machine(dirty(x86()), X86_DIRTY);
    exchange(&mut s, X86_CLEAN);
    exchange(&mut s, X86_DIRTY);
    s.flushes_done();
    assert_eq!(found(&s), []);
    exchange(&mut s, X86_CLEAN);
    exchange(&mut s, 0);
    s.flushes_done();
    assert_eq!(found(&s), missing(Rule::UnmapNotFlushed), "one cause");
}

#[test]
fn a_page_no_longer_global_owes_a_global_flush() {
    for (config, old, new) in [(x86(), FRAME | 0x163, FRAME | 0x63), (arm(), FRAME | 0x403, FRAME | 0xc03)] {
        let name = config.arch.name;
        assert_eq!(changed(&config, old, new, None), missing(Rule::GlobalNotFlushed), "{name}");
        let space = Some(Flush::space(0x1000));
        assert_eq!(changed(&config, old, new, space), missing(Rule::GlobalNotFlushed), "{name}");
        assert_eq!(changed(&config, old, new, PAGE), [], "{name}");
        assert_eq!(changed(&config, old, new, Some(Flush::all())), [], "{name}");
    }
    // The reverse needs a break where hardware does.
    assert_eq!(
        changed(&arm(), FRAME | 0xc03, FRAME | 0x403, PAGE),
        [(Kind::BreakBeforeMake, Rule::ChangedReach)]
    );
    assert_eq!(changed(&x86(), FRAME | 0x63, FRAME | 0x163, None), []);
}

#[test]
fn a_once_global_page_is_not_free_after_a_flush_of_its_space() {
    for flush in [Flush::space(0x1000), Flush::page_in_every_space(VA)] {
        let mut s = machine(x86(), FRAME | 0x163);
        let _ = s.on(1).access(VA);
        s.put(ENTRY, FRAME | 0x63);
        s.put(ENTRY, 0);
        s.sanitizer.flush_everywhere(&s.memory, flush);
        s.frame_freed(FRAME);
        let wanted = if flush == Flush::space(0x1000) { 1 } else { 0 };
        assert_eq!(s.sanitizer.count(Kind::DataFreedBeforeFlush), wanted, "{}", s.sanitizer);
        assert_eq!(s.sanitizer.total(), wanted);
    }
}

#[test]
fn a_memory_type_that_is_changed_owes_a_flush() {
    let (cached, uncached) = (FRAME | 0x67, FRAME | 0x77);
    assert_eq!(changed(&x86(), cached, uncached, None), missing(Rule::TypeNotFlushed));
    assert_eq!(changed(&x86(), cached, uncached, PAGE), []);
    // AArch64 needs a break.
    let found = changed(&arm(), FRAME | 0xc03, FRAME | 0xc07, PAGE);
    assert_eq!(found, [(Kind::BreakBeforeMake, Rule::ChangedType)]);
}

/// Writes to a page that was read-only and is writable now. Returns the answer of each access.
fn upgraded(config: Config, old: u64, new: u64, flush: bool) -> (Machine, [bool; 3]) {
    let mut s = machine(config, old);
    let write = |s: &mut Machine| {
        let answer = s.on(0).translate(VA, Access::WRITE).map(|_| ());
        assert!(matches!(answer, Ok(()) | Err(Fault::Permission)), "{answer:?}");
        answer.is_ok()
    };
    assert!(!write(&mut s), "read-only");
    s.put(ENTRY, new);
    let first = write(&mut s);
    if flush && !first {
        s.on(0).flush(VA); // the handler sees that the entry allows it, and flushes here
    }
    let answers = [first, write(&mut s), write(&mut s)];
    (s, answers)
}

#[test]
fn an_unflushed_denying_entry_faults_twice_on_aarch64() {
    let (read, write) = (FRAME | 0xcc3, FRAME | 0xc43);
    let (s, answers) = upgraded(arm(), read, write, false);
    assert_eq!(found(&s), [(Kind::StaleUse, Rule::DeniedTwice)], "{}", s.sanitizer);
    assert_eq!(answers, [false, true, true], "what was reported once goes on as if it were flushed");
    let (s, answers) = upgraded(arm(), read, write, true);
    assert_eq!((found(&s), answers), (vec![], [false, true, true]));
    // On x86 the first fault drops the entry, and the access is made again.
    let (s, answers) = upgraded(x86(), FRAME | 0x25, FRAME | 0x27, false);
    assert_eq!((found(&s), answers), (vec![], [true, true, true]));
}

#[test]
fn a_fault_within_an_operation_that_will_flush_is_no_finding() {
    let mut s = machine(arm(), FRAME | 0xcc3);
    assert!(s.on(0).translate(VA, Access::WRITE).is_err());
    let operation = s.sanitizer.operation_begins();
    s.put(ENTRY, FRAME | 0xc43);
    for _ in 0..3 {
        assert!(s.on(0).translate(VA, Access::WRITE).is_err());
    }
    s.on(0).flush(VA);
    s.sanitizer.operation_ends(&s.memory, operation);
    assert!(s.on(0).translate(VA, Access::WRITE).is_ok());
    assert_eq!(found(&s), []);
}

/// Without room for debts, the simulated TLBs are all there is.
#[test]
fn a_frame_with_a_cached_translation_is_not_free() {
    for (page, away) in [(FRAME | 0x67, false), (FRAME | 0x163, false), (FRAME | 0x163, true)] {
        for flush in [false, true] {
            let mut s = machine(Config { debts: 0, ..x86() }, page);
            s.on(1).access(VA).unwrap();
            if away {
                s.on(1).leave();
            }
            s.put(ENTRY, 0);
            if flush {
                s.sanitizer.flush_everywhere(&s.memory, Flush::page_in_every_space(VA));
            }
            s.frame_freed(FRAME);
            let wanted =
                if flush { vec![] } else { vec![(Kind::DataFreedBeforeFlush, Rule::DataNotFlushed)] };
            assert_eq!(found(&s), wanted, "{page:#x} {away} {flush}: {}", s.sanitizer);
        }
    }
    // The kernel's own mapping of all memory stays.
    let mut s = machine(x86(), FRAME | 0x163);
    s.on(1).access(VA).unwrap();
    s.frame_freed(FRAME);
    assert_eq!(found(&s), []);
}
