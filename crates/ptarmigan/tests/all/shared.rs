//! One space, several CPUs: faults in parallel, structural calls that have the space for
//! themselves, readers without a lock, all under a sanitizer whose CPUs run on threads.
use crate::common;
use common::{Watch, peek, poke, scan, small, va, watched_with};
use fastrand::Rng;
use ptarmigan::addr::VirtRange;
use ptarmigan::format::X86_64;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::space::{Access, AreaFlags, Done, FaultError, SharedSpace, Space};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{Delivery, Host, HostMachine, NoTlb};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;
const BASE: u64 = 0x4000_0000;
const REGION: u64 = 2 << 20;

fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start, start + n * PAGE).unwrap()
}

#[test]
fn every_page_is_mapped_once_however_many_cpus_fault_it_in() {
    for cpus in [2, 4] {
        let host = Host::<X86_64>::new(small(cpus, 1, 64)).unwrap();
        let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
        for _ in 0..20 {
            let slot = host.slot(0).unwrap();
            let pin = slot.pin();
            let on = m.on(&pin).unwrap();
            let mut space = Space::<X86_64>::new(on).unwrap();
            space.edit(on).unwrap().mmap(pages(BASE, 2048), RW, 0).unwrap();
            drop(slot);
            let space = SharedSpace::new(space);
            let fresh = AtomicU32::new(0);
            let barrier = Barrier::new(cpus);
            std::thread::scope(|scope| {
                for cpu in 0..cpus {
                    let (host, m, space, fresh, barrier) = (&host, &m, &space, &fresh, &barrier);
                    scope.spawn(move || {
                        let slot = host.slot(cpu).unwrap();
                        let pin = slot.pin();
                        let on = m.on(&pin).unwrap();
                        barrier.wait();
                        for i in 0..2048 {
                            let at = va(BASE + i * PAGE);
                            match space.fault(on, at, Access::Write).unwrap() {
                                Done::Fresh => _ = fresh.fetch_add(1, Relaxed),
                                done => assert_eq!(done, Done::Spurious),
                            }
                        }
                        m.drain(&[slot]);
                    });
                }
            });
            assert_eq!(fresh.load(Relaxed), 2048, "each page was made by one CPU");
            let slot = host.slot(0).unwrap();
            let pin = slot.pin();
            let on = m.on(&pin).unwrap();
            let space = space.into_inner();
            assert_eq!(scan(&host, on, space.tree()).len(), 2048);
            assert_eq!(space.tree().count(Level::PTE), 4);
            space.end(on).unwrap();
            m.drain(&[slot]);
            host.audit().unwrap();
        }
    }
}

#[test]
fn a_path_of_tables_that_two_cpus_make_is_linked_once() {
    let host = Host::<X86_64>::new(small(2, 1, 64)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    const ROUNDS: u64 = 400;
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<X86_64>::new(on).unwrap();
    // A page every 512 GiB: a whole path of tables each.
    for i in 0..64 {
        space.edit(on).unwrap().mmap(pages((i + 1) << 39, 8), RW, 0).unwrap();
    }
    drop(slot);
    let space = SharedSpace::new(space);
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for cpu in 0..2u64 {
            let (host, m, space, barrier) = (&host, &m, &space, &barrier);
            scope.spawn(move || {
                let slot = host.slot(cpu as usize).unwrap();
                let pin = slot.pin();
                let on = m.on(&pin).unwrap();
                for round in 0..ROUNDS {
                    let at = (round % 64 + 1) << 39;
                    barrier.wait();
                    space.fault(on, va(at + cpu * PAGE), Access::Write).unwrap();
                    barrier.wait();
                    if cpu == 0 {
                        space
                            .lock(on)
                            .unwrap()
                            .edit()
                            .madvise(pages(at, 8), ptarmigan::space::Advice::DontNeed)
                            .unwrap();
                        assert_eq!(
                            space.lock(on).unwrap().edit().tree().count(Level(2)),
                            1 + round.min(63) as u32
                        );
                    }
                    // Waiting here is no wait the library knows of: mail has to be looked after.
                    m.tlb().serve(&pin);
                }
                m.drain(&[slot]);
            });
        }
    });
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    space.end(on).unwrap();
    m.drain(&[slot]);
    host.audit().unwrap();
}

/// Runs `work(cpu, slot)` on a thread for each CPU; CPUs that are done go on answering until all
/// are.
fn on_all_cpus<M: Machine>(
    host: &Host<X86_64>,
    m: &M,
    cpus: usize,
    work: impl Fn(usize, &ptarmigan_hosted::CpuSlot) + Sync,
) {
    let done = AtomicU32::new(0);
    let turn = Barrier::new(cpus);
    std::thread::scope(|scope| {
        for cpu in 0..cpus {
            let (done, turn, work) = (&done, &turn, &work);
            scope.spawn(move || {
                let slot = host.slot(cpu).unwrap();
                turn.wait();
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(cpu, &slot)));
                done.fetch_add(1, Relaxed);
                while done.load(Relaxed) < cpus as u32 {
                    m.tlb().serve(&slot.pin());
                    std::thread::yield_now();
                }
                if let Err(panic) = result {
                    std::panic::resume_unwind(panic);
                }
            });
        }
    });
}

#[test]
fn no_stale_entry_is_used_amid_fault_unmap_protect_and_fork() {
    for (seed, (asids, park, delivery)) in [
        (0, 0, Delivery::AtOnce),
        (0, 0, Delivery::Adverse(1)),
        (2, 0, Delivery::Adverse(2)),
        (6, 64, Delivery::Adverse(3)),
        (0, 64, Delivery::AtOnce),
    ]
    .into_iter()
    .enumerate()
    {
        let cpus = 3;
        let host = Host::<X86_64>::new(small(cpus, 1, 64)).unwrap();
        let watch = Watch::with_asids(&host, asids > 0);
        let config = TlbConfig { asids, park, ..TlbConfig::new(cpus) };
        let m = watched_with(&watch, host.quicklists().unwrap(), config, delivery);
        let slot = host.slot(0).unwrap();
        let pin = slot.pin();
        let on = m.on(&pin).unwrap();
        let space = Space::<X86_64>::new(on).unwrap();
        drop(slot);
        let space = SharedSpace::new(space);
        let used = AtomicU32::new(0);
        on_all_cpus(&host, &m, cpus, |cpu, slot| {
            let pin = slot.pin();
            let on = m.on(&pin).unwrap();
            let mut rng = Rng::with_seed((seed * cpus + cpu) as u64 + 1);
            space.activate(on).unwrap();
            for _ in 0..1500 {
                m.tlb().serve(&pin);
                if rng.u64(..8) == 0 {
                    // However few processors there are: all take turns.
                    std::thread::yield_now();
                }
                let at = BASE + rng.u64(..4) * REGION + rng.u64(..6) * PAGE;
                match rng.u64(..40) {
                    0 => {
                        watch.changing(|| {
                            _ = space.lock(on).unwrap().edit().mmap(pages(at, 1 + rng.u64(..600)), RW, 0)
                        });
                    }
                    1 => {
                        watch.changing(|| {
                            _ = space.lock(on).unwrap().edit().munmap(pages(at, 1 + rng.u64(..600)))
                        });
                    }
                    2 => watch.changing(|| {
                        let flags = AreaFlags(1 + rng.u16(..3));
                        _ = space.lock(on).unwrap().edit().mprotect(pages(at, 1 + rng.u64(..600)), flags);
                    }),
                    3 => {
                        let child = watch.changing(|| space.lock(on).unwrap().edit().fork().unwrap());
                        child.end(on).unwrap();
                    }
                    4 => {
                        space.rest(on).unwrap();
                        m.tlb().serve(&pin);
                        space.activate(on).unwrap();
                    }
                    5 => {
                        space.deactivate(on).unwrap();
                        m.tlb().serve(&pin);
                        space.activate(on).unwrap();
                    }
                    6 => _ = space.query(on, va(at)).unwrap(),
                    n => {
                        let (access, kind) = if n % 2 == 0 {
                            (Access::Write, ptsan::Access::WRITE)
                        } else {
                            (Access::Read, ptsan::Access::READ)
                        };
                        if watch.translate(cpu, at, kind).is_ok() {
                            used.fetch_add(1, Relaxed);
                            continue;
                        }
                        match watch.changing(|| space.fault(on, va(at), access)) {
                            Ok(_) | Err(FaultError::NoArea(_) | FaultError::Denied(_)) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                }
            }
            space.deactivate(on).unwrap();
        });
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let space = space.into_inner();
        scan(&host, on, space.tree());
        space.end(on).unwrap();
        m.drain(&slots);
        assert_eq!(watch.finish(), Default::default(), "asids {asids}, park {park}: {}", watch.report());
        host.audit().unwrap();
        assert!(m.tlb().counts().asked > 0, "CPUs were asked");
        assert!(used.load(Relaxed) > 100, "pages were used");
    }
}

/// Adds one to the word at `at`, through the CPU's own translations, faulting where they do not let
/// it.
fn add_one<M: ptarmigan::space::SpaceMachine>(
    (host, m, watch): (&Host<X86_64>, &M, &Watch<'_, X86_64>),
    space: &SharedSpace<X86_64>,
    slot: &ptarmigan_hosted::CpuSlot,
    at: u64,
) {
    let cpu = slot.cpu().0 as usize;
    loop {
        m.tlb().serve(&slot.pin());
        let added = watch.access(cpu, at, ptsan::Access::WRITE, |phys| {
            poke(host, phys, peek(host, phys) + 1);
        });
        if added.is_ok() {
            return;
        }
        watch.changing(|| space.fault(m.on(&slot.pin()).unwrap(), va(at), Access::Write).unwrap());
    }
}

#[test]
fn no_write_is_lost_while_pages_are_copied() {
    // All CPUs add to the same words while one of them forks again and again, which makes every
    // page be copied at the next write: a CPU that went on writing to the old frame would lose its
    // additions.
    let cpus = 3;
    for delivery in [Delivery::AtOnce, Delivery::Adverse(7)] {
        let host = Host::<X86_64>::new(small(cpus, 1, 64)).unwrap();
        let watch = Watch::new(&host);
        let m = watched_with(&watch, host.quicklists().unwrap(), TlbConfig::new(cpus), delivery);
        let slot = host.slot(0).unwrap();
        let pin = slot.pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.edit(on).unwrap().mmap(pages(BASE, 4), RW, 0).unwrap();
        drop(slot);
        let space = SharedSpace::new(space);
        const ADDS: u64 = 1200;
        let copies = AtomicU64::new(0);
        on_all_cpus(&host, &m, cpus, |cpu, slot| {
            let pin = slot.pin();
            let on = m.on(&pin).unwrap();
            space.activate(on).unwrap();
            let mut rng = Rng::with_seed(cpu as u64 + 40);
            let mut children = Vec::new();
            for i in 0..ADDS {
                if cpu == 0 && i % 12 == 0 {
                    children.push(watch.changing(|| space.lock(on).unwrap().edit().fork().unwrap()));
                    copies.fetch_add(1, Relaxed);
                    if children.len() > 3 {
                        children.remove(0).end(on).unwrap();
                    }
                }
                add_one((&host, &m, &watch), &space, slot, BASE + (i + rng.u64(..2)) % 4 * PAGE + 8);
            }
            for child in children {
                child.end(on).unwrap();
            }
            space.deactivate(on).unwrap();
        });
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let space = space.into_inner();
        let sum: u64 =
            scan(&host, on, space.tree()).values().map(|(pfn, _)| peek(&host, pfn.addr().0 + 8)).sum();
        assert_eq!(sum, ADDS * cpus as u64, "after {} forks", copies.load(Relaxed));
        space.end(on).unwrap();
        m.drain(&slots);
        watch.assert_clean();
        host.audit().unwrap();
    }
}

#[test]
fn what_a_lockless_reader_finds_was_mapped_there() {
    // The frame of a page says which page it is; a reader that walked a table in its next life
    // would find another.
    let cpus = 2;
    let host = Host::<X86_64>::new(small(cpus, 1, 64)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    let space = Space::<X86_64>::new(on).unwrap();
    drop(slot);
    let space = SharedSpace::new(space);
    let (end, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    on_all_cpus(&host, &m, cpus, |cpu, slot| {
        let pin = slot.pin();
        let on = m.on(&pin).unwrap();
        let mut rng = Rng::with_seed(cpu as u64 + 5);
        if cpu == 1 {
            while !end.load(Relaxed) {
                m.tlb().serve(&pin);
                let at = BASE + rng.u64(..8) * REGION;
                if let Some((_, attr)) = space.query(on, va(at)).unwrap() {
                    hits.fetch_add(1, Relaxed);
                    assert!(attr.has(ptarmigan::format::Attr::USER), "a link was taken for a page");
                } else {
                    std::thread::yield_now();
                }
            }
            return;
        }
        // On a busy machine the reader may come late: it is waited for.
        let mut rounds = 0;
        while rounds < 3000 || hits.load(Relaxed) == 0 && rounds < 3_000_000 {
            rounds += 1;
            let at = BASE + rng.u64(..8) * REGION;
            let mut locked = space.lock(on).unwrap();
            let mut space = locked.edit();
            space.mmap(pages(at, 512), RW, 0).unwrap();
            space.fault(va(at), Access::Write).unwrap();
            space.munmap(pages(BASE + rng.u64(..8) * REGION, 512)).unwrap();
            drop(locked);
            if rng.u64(..30) == 0 {
                std::thread::yield_now();
            }
        }
        end.store(true, Relaxed);
    });
    assert!(hits.load(Relaxed) > 0, "the reader found something");
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    space.end(on).unwrap();
    m.drain(&slots);
    host.audit().unwrap();
}

#[test]
fn a_stack_grows_while_others_fault() {
    let cpus = 2;
    let host = Host::<X86_64>::new(small(cpus, 1, 64)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<X86_64>::new(on).unwrap();
    let stacks = [0x7000_0000u64, 0x7800_0000];
    for root in stacks {
        space.edit(on).unwrap().mmap(pages(root - PAGE, 1), RW.with(AreaFlags::GROWS_DOWN), 0).unwrap();
    }
    drop(slot);
    let space = SharedSpace::new(space);
    on_all_cpus(&host, &m, cpus, |cpu, slot| {
        for i in 1..=600 {
            if i % 20 == 0 {
                std::thread::yield_now();
            }
            space.fault(m.on(&slot.pin()).unwrap(), va(stacks[cpu] - i * PAGE), Access::Write).unwrap();
            m.tlb().serve(&slot.pin());
        }
    });
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let space = space.into_inner();
    assert_eq!(scan(&host, on, space.tree()).len(), 1200);
    assert_eq!(space.areas().len(), 2);
    space.end(on).unwrap();
    m.drain(&slots);
    host.audit().unwrap();
}

#[test]
fn lack_of_memory_in_parallel_loses_nothing() {
    let cpus = 3;
    let host = Host::<X86_64>::new(small(cpus, 1, 4)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    for round in 0..8 {
        let slot = host.slot(0).unwrap();
        let pin = slot.pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.edit(on).unwrap().mmap(pages(BASE, 8192), RW, 0).unwrap();
        drop(slot);
        let space = SharedSpace::new(space);
        let failed = AtomicU32::new(0);
        on_all_cpus(&host, &m, cpus, |cpu, slot| {
            let mut rng = Rng::with_seed(round * 10 + cpu as u64);
            for _ in 0..3000 {
                let at = BASE + rng.u64(..8192) * PAGE;
                match space.fault(m.on(&slot.pin()).unwrap(), va(at), Access::Write) {
                    Ok(_) => {}
                    Err(FaultError::NoFrame(_)) => _ = failed.fetch_add(1, Relaxed),
                    Err(e) => panic!("{e}"),
                }
                m.tlb().serve(&slot.pin());
            }
        });
        assert!(failed.load(Relaxed) > 0, "memory ran out");
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let space = space.into_inner();
        scan(&host, on, space.tree());
        space.end(on).unwrap();
        m.drain(&slots);
        host.audit().unwrap();
    }
}

#[test]
fn two_writers_take_turns() {
    let cpus = 2;
    let host = Host::<X86_64>::new(small(cpus, 1, 64)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    let space = SharedSpace::new(Space::<X86_64>::new(on).unwrap());
    drop(slot);
    let inside = Mutex::new(());
    on_all_cpus(&host, &m, cpus, |cpu, slot| {
        let pin = slot.pin();
        let on = m.on(&pin).unwrap();
        for i in 0..2000u64 {
            let mut locked = space.lock(on).unwrap();
            let alone = inside.try_lock().expect("nobody else is inside");
            let at = BASE + (cpu as u64 * 2000 + i) * 2 * PAGE;
            locked.edit().mmap(pages(at, 1), RW, 0).unwrap();
            drop(alone);
        }
    });
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let space = space.into_inner();
    assert_eq!(space.areas().len(), 4000);
    space.end(on).unwrap();
    m.drain(&slots);
    host.audit().unwrap();
}
