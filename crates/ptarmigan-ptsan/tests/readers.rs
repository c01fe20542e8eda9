//! A CPU walks the tables of a shared space without a lock, while another one unmaps pages and with
//! them their tables. With the library's `Readers` a table is not reused before the walk has ended;
//! a walk that does not register is found by the sanitizer.
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::X86_64;
use ptarmigan::machine::{Machine, On};
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space, SpaceMachine};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{SoftMmu, Watchable};
use ptsan::Memory;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// The page that comes and goes, with three tables of its own.
const AT: u64 = 0x1234_5678_9000;
const ROUNDS: u32 = 50;

/// Walks for the page as software does, entry by entry. Counts walks that are in the last table.
fn walk(mmu: &SoftMmu<'_, X86_64>, root: u64, inside: &AtomicU32) {
    let reader = mmu.with(|san, memory| san.reader_begins(memory, root));
    let (mut table, mut tables) = (root, 0);
    for shift in [39, 30, 21, 12] {
        let below = mmu.with(|san, memory| {
            san.reader_reads(memory, reader, table);
            memory.read(table + (AT >> shift & 511) * 8, 8)
        });
        tables += 1;
        // Others have their turn between two entries.
        std::thread::yield_now();
        match below {
            Some(raw) if raw & 1 != 0 && shift > 12 => table = raw & 0x000f_ffff_ffff_f000,
            _ => break,
        }
    }
    if tables == 4 {
        inside.fetch_add(1, SeqCst);
        // Longer than an unmap takes to flush and to free.
        std::thread::sleep(Duration::from_micros(500));
    }
    mmu.with(|san, _| san.reader_ends(reader));
}

/// Maps and unmaps the page, with its tables: as soon as a walk is in the last of them.
fn change<M: SpaceMachine>(on: On<'_, M>, space: &SharedSpace<X86_64>, inside: &AtomicU32) {
    let (rw, range) = (AreaFlags::READ.with(AreaFlags::WRITE), VirtRange::new(AT, AT + PAGE).unwrap());
    space.lock(on).unwrap().edit().mmap(range, rw, 0).unwrap();
    let before = inside.load(SeqCst);
    space.fault(on, VirtAddr(AT), Access::Write).unwrap();
    let begun = Instant::now();
    while inside.load(SeqCst) == before && begun.elapsed() < Duration::from_secs(1) {
        std::thread::yield_now();
    }
    space.lock(on).unwrap().edit().munmap(range).unwrap();
}

/// Runs a walker beside the changes. Returns the number of findings, that of walks to the last
/// table, and the report.
fn findings(registers: bool) -> (u64, u32, String) {
    let config = HostConfig { cpus: 2, bytes: 32 << 20, prefault: 0, ..HostConfig::default() };
    let host = Host::<X86_64>::new(config).unwrap();
    let config = ptsan::Config { cpus: 2, ..ptsan::Config::new(<X86_64 as Watchable>::arch()) };
    let mmu = SoftMmu::new(&host, config);
    let zero = host.zero_frame().addr().0;
    mmu.with(|san, memory| san.table_allocated(memory, zero, PAGE, None, ptsan::Content::Zero));
    let policy = Layered::new(&mmu, host.quicklists().unwrap()).unwrap();
    let machine = HostMachine::with_tlb(&host, policy, &mmu, TlbConfig::new(2), Delivery::AtOnce).unwrap();
    let space = {
        let slot = host.slot(0).unwrap();
        let pin = slot.pin();
        SharedSpace::new(Space::new(machine.on(&pin).unwrap()).unwrap())
    };
    let (ends, inside) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let slot = host.slot(1).unwrap();
            let pin = slot.pin();
            let root = loop {
                match mmu.root(0) {
                    Some(root) => break root.0,
                    None => std::thread::yield_now(),
                }
            };
            while !ends.load(SeqCst) {
                let reading = registers.then(|| machine.tlb().readers().walk(&pin, space.tlb()).unwrap());
                walk(&mmu, root, &inside);
                drop(reading);
                machine.tlb().serve(&pin);
                std::thread::yield_now();
            }
            machine.on(&pin).unwrap().drain();
        });
        let slot = host.slot(0).unwrap();
        let pin = slot.pin();
        let on = machine.on(&pin).unwrap();
        space.activate(on).unwrap();
        (0..ROUNDS).for_each(|_| change(on, &space, &inside));
        space.deactivate(on).unwrap();
        ends.store(true, SeqCst);
        on.drain();
    });
    let slots = host.slots();
    let pin = slots[0].pin();
    space.end(machine.on(&pin).unwrap()).unwrap();
    machine.drain(&slots);
    drop(machine);
    host.audit().unwrap();
    let (found, report) = mmu.with(|san, _| (san.total(), san.to_string()));
    (found, inside.into_inner(), report)
}

#[test]
fn a_table_is_not_reused_under_a_reader_that_registers() {
    let (found, inside, report) = findings(true);
    assert!(inside >= ROUNDS, "{inside} walks came to the last table");
    assert_eq!(found, 0, "{report}");
}

#[test]
fn a_reader_that_does_not_register_is_found() {
    let (found, _, report) = findings(false);
    assert!(found > 0 && report.contains("free-under-reader"), "{found}: {report}");
}
