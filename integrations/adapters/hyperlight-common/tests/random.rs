//! Random operations of `hyperlight-common` on four CPUs: in place, and copied from a snapshot.
#![cfg(target_arch = "x86_64")]
use fastrand::Rng;
use hyperlight_common::vmem::{self, BasicMapping, CowMapping, Mapping, MappingKind, TableOps};
use ptsan::adapters::Machine;
use ptsan::{Access, Adversary, Arch, Config, Expected, Flush, Kind, Perms};
use ptsan_hyperlight::Tables;

const CPUS: usize = 4;
const PAGES: u64 = 1024;
const PAGE: u64 = 4096;
/// Behind the machine's memory.
const DATA: u64 = 1 << 32;

fn kind(random: &mut Rng) -> MappingKind {
    let basic = BasicMapping { readable: true, writable: random.bool(), executable: random.bool() };
    match random.u64(..5) {
        0 => MappingKind::Unmapped,
        1 => MappingKind::ZeroInit(basic),
        2 => MappingKind::Cow(CowMapping { readable: true, executable: basic.executable }),
        _ => MappingKind::Basic(basic),
    }
}

fn machine(seed: u64) -> Machine {
    let adversary = Some(Adversary::new(seed));
    let config = Config { cpus: CPUS, adversary, ..Config::new(Arch::x86_64()) };
    let machine = Machine::with_frames(config, 4096);
    machine.sanitizer(|san, _| san.space_created(1));
    machine
}

/// Changes a part of the first pages at random, and flushes it unless `flushed` is false.
fn change<Op: TableOps>(machine: &Machine, ops: &Op, random: &mut Rng, flushed: bool) {
    let first = random.u64(..PAGES);
    let pages = 1 + random.u64(..(PAGES - first).min(40));
    let (virt_base, len, kind) = (first * PAGE, pages * PAGE, kind(random));
    // SAFETY: the memory is simulated, and there is one thread.
    unsafe {
        if random.u64(..3) == 0 {
            vmem::modify_mapping(ops, virt_base, len, |_, old| match old.kind {
                MappingKind::Unmapped => MappingKind::Unmapped,
                _ if old.phys_base == 0 => old.kind,
                _ => kind,
            });
        } else {
            vmem::map(ops, Mapping { phys_base: DATA + random.u64(..4096) * PAGE, virt_base, len, kind });
        }
    }
    if flushed {
        machine.flush_everywhere(Flush::range(1, virt_base, virt_base + len, PAGE));
    }
    machine.sanitizer(|san, memory| san.flushes_done(memory));
    for n in 0..16 {
        let access = if n & 1 == 0 { Access::READ } else { Access::WRITE };
        let _ = machine.access(n % CPUS, random.u64(..PAGES) * PAGE, access.kernel());
    }
}

/// Compares each page with the crate's own walk.
fn compare<Op: TableOps + AsRef<Op>>(machine: &Machine, ops: &Op) {
    for at in (0..PAGES).map(|n| n * PAGE) {
        // SAFETY: the memory is simulated, and nothing changes the tables meanwhile.
        let found = unsafe { vmem::virt_to_phys(ops, at, PAGE) }.next();
        let rights = found.and_then(|m| match m.kind {
            MappingKind::Basic(b) => Some((m.phys_base, b.writable, b.executable)),
            MappingKind::Cow(c) => Some((m.phys_base, false, c.executable)),
            MappingKind::Unmapped | MappingKind::ZeroInit(_) => None,
        });
        let says = rights.map(|(phys, writable, executable)| {
            let write = if writable { Perms::WRITE } else { Perms::NONE };
            let execute = if executable { Perms::EXEC } else { Perms::NONE };
            Expected { phys, size: Some(PAGE), perms: Some(Perms::READ | write | execute) }
        });
        machine.expect(0, at, says);
    }
}

#[test]
fn random_operations_in_place_are_silent() {
    for seed in 1..=8 {
        let (machine, mut random) = (machine(seed), Rng::with_seed(seed));
        let tables = Tables::new(&machine).unwrap();
        (0..CPUS).for_each(|cpu| machine.load(cpu, tables.root(), 1));
        (0..200).for_each(|_| change(&machine, &tables, &mut random, true));
        compare(&machine, &tables);
        assert_eq!(machine.sanitizer(|san, _| san.total()), 0, "seed {seed}: {machine}");
    }
}

#[test]
fn snapshot_tables_are_copied_up_to_the_root_and_unchanged() {
    for seed in 1..=8 {
        let (machine, mut random) = (machine(seed), Rng::with_seed(seed));
        let tables = Tables::new(&machine).unwrap();
        (0..CPUS).for_each(|cpu| machine.load(cpu, tables.root(), 1));
        (0..40).for_each(|_| change(&machine, &tables, &mut random, true));
        let before = tables.clone();
        let old = |at| {
            // SAFETY: as above.
            unsafe { vmem::virt_to_phys(&before, at, PAGE) }.next().map(|m| (m.phys_base, m.kind))
        };
        let old_pages: Vec<_> = (0..PAGES).map(|n| old(n * PAGE)).collect();
        let snapshot = tables.freeze((0..CPUS).collect(), 1);
        let first = snapshot.root();
        (0..100).for_each(|_| change(&machine, &snapshot, &mut random, true));
        compare(&machine, &snapshot);
        assert!(
            snapshot.root() != first && snapshot.is_frozen(first) && !snapshot.is_frozen(snapshot.root())
        );
        assert_eq!((0..PAGES).map(|n| old(n * PAGE)).collect::<Vec<_>>(), old_pages);
        assert_eq!(machine.sanitizer(|san, _| san.total()), 0, "seed {seed}: {machine}");
    }
}

#[test]
fn changes_without_a_flush_are_found() {
    let (machine, mut random) = (machine(1), Rng::with_seed(1));
    let tables = Tables::new(&machine).unwrap();
    (0..CPUS).for_each(|cpu| machine.load(cpu, tables.root(), 1));
    (0..60).for_each(|_| change(&machine, &tables, &mut random, false));
    assert!(machine.sanitizer(|san, _| san.count(Kind::FlushMissing)) > 0, "{machine}");
}
