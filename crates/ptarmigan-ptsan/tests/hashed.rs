//! A hosted machine with a hash table, under the sanitizer.
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Ppc32};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::tlb::TlbConfig;
use ptarmigan::tlb::hash::Refill;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{HashMemory, HashUse, HashedMmu, SoftMmu, Watchable, hash_size};
use ptsan::{Config, HashLayout, Kind};

/// Pages of 4 MiB apart share their groups: more of them than two groups hold.
const STRIDE: u64 = 4 << 20;
const PAGES: u64 = 40;
const BASE: u64 = 0x1000_0000;

/// Runs a parent and a child that use all their pages twice. `skips` has the software entry's note
/// left out, as a defect.
fn run(layout: HashLayout, bytes: u64, skips: bool) -> (HashUse, u64, u64) {
    let host = Host::<Ppc32>::new(HostConfig { cpus: 1, bytes: 64 << 20, ..HostConfig::default() }).unwrap();
    let memory = HashMemory::new(hash_size(layout, bytes).unwrap()).unwrap();
    let config = Config { asids: true, ..Config::new(Ppc32::arch()) };
    let soft = SoftMmu::with_hash_table(&host, config, memory.clone());
    let mmu = HashedMmu::new(memory, layout, 1).unwrap().watched_by(&soft);
    let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
    let tlb = TlbConfig { asids: 100, ..TlbConfig::new(1) };
    let machine = HostMachine::with_tlb(&host, policy, &mmu, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let use_all = |space: &mut Space<Ppc32>| {
        for access in [Access::Read, Access::Write] {
            for page in (0..PAGES).map(|n| BASE + n * STRIDE) {
                space.fault(on, VirtAddr(page), access).unwrap();
                let tree = space.tree().on(on).unwrap();
                let entry = || match skips {
                    true => tree
                        .query(VirtAddr(page))
                        .map(|(pfn, _)| Refill { entry: pfn.addr().0 | 5, was_hashed: true }),
                    false => tree.refill(VirtAddr(page), access),
                };
                assert!(mmu.access(0, page, access, &entry) || skips);
            }
        }
    };
    let mut parent = Space::<Ppc32>::new(on).unwrap();
    parent.activate(on).unwrap();
    let range = VirtRange::new(BASE, BASE + PAGES * STRIDE).unwrap();
    parent.edit(on).unwrap().mmap(range, AreaFlags(3), 0).unwrap();
    use_all(&mut parent);
    let mut child = parent.edit(on).unwrap().fork().unwrap();
    parent.deactivate(on).unwrap();
    child.activate(on).unwrap();
    use_all(&mut child);
    child.end(on).unwrap();
    parent.activate(on).unwrap();
    use_all(&mut parent);
    parent.end(on).unwrap();
    machine.drain(&slots);
    drop(machine);
    let found = soft.with(|sanitizer, memory| {
        sanitizer.check_hash_table(memory);
        if !skips {
            sanitizer.assert_clean();
        }
        (sanitizer.count(Kind::HashTable), sanitizer.total())
    });
    host.audit().unwrap();
    (mmu.usage(), found.0, found.1)
}

#[test]
fn pages_are_put_in_evicted_and_taken_out_without_a_finding() {
    for (layout, bytes) in [(HashLayout::Bits32, 64 << 10), (HashLayout::Bits64, 256 << 10)] {
        let (usage, ..) = run(layout, bytes, false);
        assert_eq!(usage.valid, 0, "{usage:?}");
        assert!(usage.refills > 3 * PAGES as usize && usage.table.evicted > 0, "{usage:?}");
    }
}

#[test]
fn a_page_whose_bits_were_taken_misses_and_gets_them_again() {
    let layout = HashLayout::Bits32;
    let host = Host::<Ppc32>::new(HostConfig { cpus: 1, bytes: 64 << 20, ..HostConfig::default() }).unwrap();
    let memory = HashMemory::new(hash_size(layout, 64 << 10).unwrap()).unwrap();
    let soft =
        SoftMmu::with_hash_table(&host, Config { asids: true, ..Config::new(Ppc32::arch()) }, memory.clone());
    let mmu = HashedMmu::new(memory, layout, 1).unwrap().watched_by(&soft);
    let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
    let tlb = TlbConfig { asids: 100, ..TlbConfig::new(1) };
    let machine = HostMachine::with_tlb(&host, policy, &mmu, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let mut space = Space::<Ppc32>::new(on).unwrap();
    space.activate(on).unwrap();
    let range = VirtRange::new(BASE, BASE + 0x4000).unwrap();
    space.edit(on).unwrap().mmap(range, AreaFlags(3), 0).unwrap();
    let write = |space: &Space<Ppc32>| {
        let tree = space.tree().on(on).unwrap();
        assert!(mmu.access(0, BASE, Access::Write, &|| tree.refill(VirtAddr(BASE), Access::Write)));
        tree.query(VirtAddr(BASE)).unwrap().1
    };
    space.fault(on, VirtAddr(BASE), Access::Write).unwrap();
    for _ in 0..3 {
        assert!(write(&space).has(Attr::ACCESSED | Attr::DIRTY));
        let mut told = Vec::new();
        space.edit(on).unwrap().take_dirty(range, Level::PTE, |page| told.push(page.at.0)).unwrap();
        space.edit(on).unwrap().take_accessed(range, |page| told.push(page.at.0)).unwrap();
        assert_eq!(told, [BASE, BASE]);
    }
    space.end(on).unwrap();
    machine.drain(&slots);
    drop(machine);
    soft.with(|sanitizer, memory| {
        sanitizer.check_hash_table(memory);
        sanitizer.assert_clean();
    });
}

#[test]
fn a_page_that_is_put_in_without_its_bit_is_found() {
    let (_, of_table, _) = run(HashLayout::Bits32, 64 << 10, true);
    assert!(of_table > 0);
}
