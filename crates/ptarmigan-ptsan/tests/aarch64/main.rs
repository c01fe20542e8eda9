//! A machine like AArch64 under the sanitizer: it broadcasts, its walk caches are tagged by
//! address, its MMUs cache entries that deny an access.
mod denied;
#[path = "../driver/mod.rs"]
mod driver;
mod executable;
mod kernel;

use driver::{COSTS, Found, host};
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Aarch64;
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{Access, Advice, AreaFlags, Space};
use ptarmigan::tlb::{Structures, TlbConfig};
use ptarmigan_hosted::{Delivery, HostMachine};
use ptarmigan_ptsan::{Broadcasting, MmuTraits, SoftMmu};
use ptsan::{Arch, Config, Kind};

const PAGE: u64 = 4096;
/// As [`Broadcasting`], but the library is told that any invalidation drops all links.
enum Untold {}

impl MmuTraits for Untold {
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = true;
}

/// Unmaps an area of two leaf tables, the second of which has no pages any more. Returns the number
/// of tables that came back while a walk cache knew them, and of flushes of a page, of several, and
/// of a whole space.
fn two_tables<T: MmuTraits>() -> (u64, [usize; 3]) {
    let host = host::<Aarch64>(1);
    let soft = SoftMmu::<_, T>::like(
        &host,
        Config { asids: true, barriers: true, ..Config::new(Arch::aarch64_4k(48)) },
    );
    let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
    let tlb = TlbConfig { asids: 8, costs: COSTS, ..TlbConfig::new(1) };
    let machine = HostMachine::with_tlb(&host, policy, &soft, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let mut space = Space::<Aarch64>::new(on).unwrap();
    space.activate(on).unwrap();
    let access = |at, access| soft.access(0, at, access);
    let (first, second) = (0x4000_0000, 0x4020_0000);
    let area = VirtRange::new(first, second + PAGE).unwrap();
    space.edit(on).unwrap().mmap(area, AreaFlags(3), 0).unwrap();
    for at in [first, second] {
        space.fault(on, VirtAddr(at), Access::Write).unwrap();
        assert!(access(at, ptsan::Access::WRITE));
    }
    // The page goes, its table stays; the access finds the table and no page.
    let page = VirtRange::new(second, second + PAGE).unwrap();
    space.edit(on).unwrap().madvise(page, Advice::DontNeed).unwrap();
    assert!(!access(second, ptsan::Access::READ));
    let before = machine.tlb().counts();
    // Both tables go; of their pages the first one alone is stale.
    space.edit(on).unwrap().munmap(area).unwrap();
    let after = machine.tlb().counts();
    let found = soft.with(|san, _| san.count(Kind::FreeBeforeFlush));
    space.end(on).unwrap();
    machine.drain(&slots);
    drop(machine);
    host.audit().unwrap();
    (found, [after.page - before.page, after.range - before.range, after.full - before.full])
}

#[test]
fn a_flush_names_an_address_of_each_table_without_stale_pages() {
    assert_eq!(two_tables::<Broadcasting>(), (0, [0, 1, 0]), "no flush of a whole space");
    // The sanitizer reports it if the address is left out.
    assert_eq!(two_tables::<Untold>(), (1, [1, 0, 0]), "a walk cache keeps what no page leads to");
}

/// Random calls on two CPUs, whose stores are not told.
fn random<T: MmuTraits>(seed: u64, asids: u16) -> Found {
    let config = Config { cpus: 2, barriers: true, ..Config::new(Arch::aarch64_4k(48)) };
    driver::random::<Aarch64, T>(seed, 2000, asids, config)
}

#[test]
fn random_runs_have_findings_only_without_named_tables() {
    for seed in 1..9 {
        for asids in [0, 3, 200] {
            let found = random::<Broadcasting>(seed, asids);
            assert_eq!(found.findings, 0, "seed {seed}, {asids} numbers:\n{}", found.report);
            let (served, passed) = (found.served, found.passed);
            assert!(served > 50 && passed > 10, "{served} faults, {passed} accesses");
        }
    }
    // One run of six meets a table that no stale page leads to.
    let found = (1..33).filter(|seed| random::<Untold>(*seed, 200).findings > 0).count();
    assert!(found > 0, "no run of 32 found one");
}
