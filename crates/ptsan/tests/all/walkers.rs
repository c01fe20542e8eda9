//! Walkers that set accessed and dirty bits in memory.
use ptsan::{
    Access, Adversary, Arch, Config, Content, Entry, Fault, Flush, Granule, HardwareBits, Kind, Memory, Rule,
    Session,
};
use std::sync::atomic::{AtomicU64, Ordering};

type Machine = Session<Vec<AtomicU64>>;

const VA: u64 = 0x5000;
const FRAME: u64 = 0x9000;
/// The table of the last level.
const LEAVES: u64 = 0x1000;
const ENTRY: u64 = LEAVES + VA / 4096 * 8;

/// A format with entries of 8 bytes: the root, an entry for a table, a clean page of a user that
/// was not used, and the bits that a read-only page keeps.
type Described = (Arch, u64, fn(u64) -> u64, u64, u64);

fn formats() -> [Described; 5] {
    [
        (Arch::x86_64(), 0x4000, |table| table | 7, FRAME | 7, !2),
        (Arch::ept(), 0x4000, |table| table | 7, FRAME | 0x37, !2),
        (Arch::riscv_sv39(), 0x3000, |table| table >> 2 | 1, FRAME >> 2 | 0x17, !4),
        (Arch::aarch64_4k(48), 0x4000, |table| table | 3, FRAME | 0xc3 | 1 << 51, !(1 << 51)),
        (
            Arch::aarch64_stage2(Granule::K4, 39, 1),
            0x3000,
            |table| table | 3,
            FRAME | 0x43 | 1 << 51,
            !(1 << 51),
        ),
    ]
}

fn store(s: &Machine, at: u64, raw: u64) {
    s.memory[at as usize / 8].store(raw, Ordering::Relaxed);
}

fn load(s: &Machine, at: u64) -> u64 {
    s.memory.read(at, 8).unwrap()
}

/// One page at `VA`, on two CPUs, as [`formats`] describes it.
fn machine((arch, root, link, page, _): Described, config: impl Fn(Config) -> Config) -> Machine {
    let memory = (0..1 << 13).map(|_| AtomicU64::new(0)).collect();
    let config = config(Config { cpus: 2, walkers_set_bits: true, ..Config::new(arch) });
    let mut s = Session::with(config, memory);
    (LEAVES..=root).step_by(4096).for_each(|table| s.alloc(table));
    for table in (LEAVES + 4096..=root).step_by(4096) {
        store(&s, table, link(table - 4096));
        s.stored(table);
    }
    store(&s, ENTRY, page);
    s.stored(ENTRY);
    s.each_cpu(|s| s.load(root));
    s
}

fn exchange(s: &mut Machine, raw: u64) {
    store(s, ENTRY, raw);
    s.exchanged(ENTRY);
}

fn bits(arch: &Arch, raw: u64) -> (bool, bool) {
    let HardwareBits { accessed, dirty, .. } = arch.hardware_bits.unwrap()(0, raw);
    (accessed, dirty)
}

fn found(s: &Machine) -> Vec<(Kind, Rule)> {
    s.sanitizer.findings().iter().map(|f| (f.kind, f.rule)).collect()
}

#[test]
fn a_read_sets_the_accessed_bit_and_a_write_the_dirty_bit() {
    for format in formats() {
        let (arch, root, ..) = format.clone();
        let link_bit = if arch.name.starts_with("x86") { 0x20 } else { 0x100 };
        let links = arch.levels[0].entry_bytes == 8 && ["x86-64", "EPT"].contains(&arch.name);
        let mut s = machine(format, |config| config);
        let before = load(&s, ENTRY);
        assert_eq!(bits(&arch, before), (false, false), "{}", arch.name);
        s.sanitizer.probe_walk(&s.memory, 1, VA);
        assert_eq!(bits(&arch, load(&s, ENTRY)), (true, false), "{}: speculative", arch.name);
        assert_eq!(s.translate(VA, Access::READ).map(|t| t.phys), Ok(FRAME));
        assert_eq!(bits(&arch, load(&s, ENTRY)), (true, false), "{}", arch.name);
        assert_eq!(load(&s, root) & link_bit != 0, links, "{}: bits of links", arch.name);
        // Through the translation that it holds.
        assert!(s.translate(VA, Access::WRITE).is_ok());
        assert_eq!(bits(&arch, load(&s, ENTRY)), (true, true), "{}", arch.name);
        let read = |raw| (arch.decode)(0, raw);
        let (Entry::Leaf { phys, .. }, Entry::Leaf { phys: same, .. }) =
            (read(before), read(load(&s, ENTRY)))
        else {
            panic!("{}", arch.name)
        };
        assert_eq!(phys, same);
        // Without a translation.
        s.sanitizer.flush_everywhere(&s.memory, Flush::all());
        exchange(&mut s, before);
        assert!(s.translate(VA, Access::WRITE).is_ok());
        assert_eq!(bits(&arch, load(&s, ENTRY)), (true, true), "{}: in a walk", arch.name);
        assert_eq!(found(&s), [], "{}", arch.name);
    }
}

#[test]
fn a_write_through_a_clean_translation_looks_at_the_entry_again() {
    for format in formats() {
        let (name, read_only) = (format.0.name, format.4);
        let mut s = machine(format, |config| config);
        assert!(s.translate(VA, Access::READ).is_ok());
        let restricted = load(&s, ENTRY) & read_only;
        exchange(&mut s, restricted);
        assert_eq!(s.translate(VA, Access::WRITE), Err(Fault::Permission), "{name}");
        assert_eq!(load(&s, ENTRY), restricted, "{name}");
        assert_eq!(s.sanitizer.count(Kind::StaleUse), 0, "{name}");
        exchange(&mut s, 0);
        assert!(s.translate(VA, Access::WRITE).is_err(), "{name}");
        assert_eq!(load(&s, ENTRY), 0, "{name}: nothing is stored to an entry that is gone");
    }
}

/// The code under test did not set the bit itself, and owes a flush when it clears it.
#[test]
fn a_dirty_bit_of_hardware_that_is_cleared_owes_a_flush() {
    for told in [0, 1 << 20] {
        for format in formats() {
            let (arch, name) = (format.0.clone(), format.0.name);
            for flush in [None, Some(Flush::all())] {
                let mut s = machine(format.clone(), |config| Config { accessed_dirty: true, told, ..config });
                assert!(s.translate(VA, Access::READ).is_ok());
                let clean = load(&s, ENTRY);
                assert!(s.translate(VA, Access::WRITE).is_ok());
                exchange(&mut s, clean);
                if let Some(flush) = flush {
                    s.sanitizer.flush_everywhere(&s.memory, flush);
                    assert!(s.translate(VA, Access::WRITE).is_ok());
                    assert!(bits(&arch, load(&s, ENTRY)).1, "{name}: it sets the bit again");
                }
                s.flushes_done();
                let missing = (Kind::FlushMissing, Rule::DirtyNotFlushed);
                assert_eq!(found(&s), [missing][usize::from(flush.is_some())..], "{name}: {}", s.sanitizer);
                if flush.is_none() {
                    assert!(s.translate(VA, Access::WRITE).is_ok());
                    assert!(!bits(&arch, load(&s, ENTRY)).1, "{name}: the CPU holds it as dirty");
                }
            }
        }
    }
}

/// Small pages that are made large, in place: the bit is in the entry of a table that goes.
#[test]
fn a_dirty_bit_that_is_left_in_the_table_is_lost() {
    for carries in [false, true] {
        let memory: Vec<_> = (0..1 << 13).map(|_| AtomicU64::new(0)).collect();
        let config =
            Config { cpus: 2, accessed_dirty: true, walkers_set_bits: true, ..Config::new(Arch::x86_64()) };
        let mut s = Session::with(config, memory);
        (LEAVES..=0x4000).step_by(4096).for_each(|table| s.alloc(table));
        let put = |s: &mut Machine, at: u64, raw: u64| {
            store(s, at, raw);
            s.stored(at);
        };
        for n in 0..512 {
            put(&mut s, LEAVES + n * 8, (0x4000_0000 + n * 4096) | 7);
        }
        for table in [0x2000, 0x3000, 0x4000] {
            put(&mut s, table, (table - 4096) | 7);
        }
        s.each_cpu(|s| s.load(0x4000));
        s.on(1).translate(VA, Access::READ).unwrap();
        let clean = 0x4000_0087;
        let promotion = s.sanitizer.operation_begins();
        store(&s, 0x2000, 0);
        s.on(0).exchanged(0x2000);
        // CPU 1 has the table in its paging-structure cache, and writes before it flushes.
        s.on(1).translate(VA, Access::WRITE).unwrap();
        s.each_cpu(|s| s.sanitizer.flush(&s.memory, s.cpu, Flush::all()));
        let dirty = (0..512).any(|n| load(&s, LEAVES + n * 8) & 0x40 != 0);
        assert!(dirty, "the write is in the table");
        put(s.on(0), 0x2000, clean | if carries { 0x40 } else { 0 });
        s.free(LEAVES);
        s.sanitizer.operation_ends(&s.memory, promotion);
        let lost = (Kind::BitLost, Rule::DirtyLeftBehind);
        assert_eq!(found(&s), [lost][usize::from(carries)..], "{}", s.sanitizer);
    }
}

#[test]
fn memory_that_walkers_cannot_store_to_is_one_misuse() {
    let mut s = Session::with(
        Config { walkers_set_bits: true, ..Config::new(Arch::x86_2level()) },
        vec![0u8; 1 << 16],
    );
    s.alloc(0x1000);
    s.put(0x1000, 0x40_0087);
    s.put(0x1004, 0x80_0087);
    s.load(0x1000);
    assert_eq!(s.access(0x123), Ok(0x40_0123), "it goes on as without");
    assert_eq!(s.access(0x40_0123), Ok(0x80_0123));
    assert!(s.translate(0x123, Access::WRITE).is_ok());
    let found: Vec<_> = s.sanitizer.findings().iter().map(|f| (f.rule, f.count, f.note.as_str())).collect();
    assert_eq!(
        found,
        [(Rule::BadArgument, 1, "Config::walkers_set_bits needs memory with Memory::exchange")]
    );
}

/// Formats of which hardware sets no bits, and the registers of PAE, are as without.
#[test]
fn entries_without_such_bits_stay_as_they_are() {
    let memory: Vec<_> = (0..1 << 13).map(|_| AtomicU64::new(0)).collect();
    let adversary = Some(Adversary { rate: 3000, ..Adversary::new(3) });
    let config = Config { walkers_set_bits: true, adversary, ..Config::new(Arch::x86_pae()) };
    let mut s = Session::with(config, memory);
    s.sanitizer.table_allocated(&s.memory, 0x3000, 32, Some(2), Content::Zero);
    [0x1000, 0x2000].into_iter().for_each(|table| s.alloc(table));
    for (at, raw) in [(0x3000, 0x2001), (0x2000, 0x1007), (0x1000, 0x9007)] {
        store(&s, at, raw);
        s.stored(at);
    }
    s.load(0x3000);
    assert!(s.translate(0x123, Access::WRITE).is_ok());
    assert_eq!([0x3000, 0x2000, 0x1000].map(|at| load(&s, at)), [0x2001, 0x1027, 0x9067]);
    assert_eq!(found(&s), []);
    let mut s = Session::with(
        Config { walkers_set_bits: true, ..Config::new(Arch::loongarch64()) },
        (0..1 << 13).map(|_| AtomicU64::new(0)).collect::<Vec<_>>(),
    );
    s.alloc(0x4000);
    s.load(0x4000);
    assert!(s.access(0).is_err());
    assert_eq!(found(&s), []);
}
