//! Several CPUs at the same time: spaces that share frames, and lists that share depots.
use crate::common;
use common::{At, small, va};
use fastrand::Rng;
use ptarmigan::addr::{PhysAddr, VirtRange};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::{Format, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{ListsConfig, Policy};
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan_hosted::{CpuSlot, Host, HostMachine, NoTlb};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

const PAGES: u64 = 256;
const BASE: u64 = 0x40_0000;

#[test]
fn parent_and_child_write_and_exit_at_the_same_time() {
    let host = Host::<X86_64>::new(small(2, 1, 32)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let mut slots = host.slots();
    let mine = slots.remove(0);
    drop(slots);
    let child: Mutex<Option<Space<X86_64>>> = Mutex::new(None);
    let barrier = Barrier::new(2);
    const ROUNDS: u32 = 1500;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let slots = host.slots();
            let pin = slots[0].pin();
            let on = m.on(&pin).unwrap();
            for _ in 0..ROUNDS {
                barrier.wait();
                let mut space = child.lock().unwrap().take().expect("the parent forked");
                barrier.wait();
                for i in 0..PAGES / 2 {
                    space.fault(on, va(BASE + i * 4096), Access::Write).unwrap();
                }
                space.end(on).unwrap();
                barrier.wait();
            }
            m.drain(&slots);
        });
        let pin = mine.pin();
        let on = m.on(&pin).unwrap();
        for _ in 0..ROUNDS {
            let mut space = Space::new(on).unwrap();
            let area = VirtRange::new(BASE, BASE + PAGES * 4096).unwrap();
            space.edit(on).unwrap().mmap(area, AreaFlags(3), 0).unwrap();
            for i in 0..PAGES {
                space.fault(on, va(BASE + i * 4096), Access::Write).unwrap();
            }
            *child.lock().unwrap() = Some(space.edit(on).unwrap().fork().unwrap());
            barrier.wait();
            barrier.wait();
            for i in 0..PAGES / 2 {
                space.fault(on, va(BASE + i * 4096), Access::Write).unwrap();
            }
            space.end(on).unwrap();
            barrier.wait();
        }
    });
    m.drain(&[mine]);
    host.audit().unwrap();
}

#[test]
fn spaces_of_their_own_on_four_cpus_share_only_the_allocators() {
    for nodes in [1, 2] {
        let host = Host::<X86_64>::new(small(4, nodes, 64)).unwrap();
        let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
        // A slot cannot leave its thread: each thread takes free ones, one at a time.
        let turn = Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let slot = {
                        let _turn = turn.lock().unwrap();
                        host.slots().swap_remove(0)
                    };
                    let pin = slot.pin();
                    let on = m.on(&pin).unwrap();
                    let mut rng = Rng::with_seed(u64::from(slot.cpu().0) + 1);
                    for _ in 0..40 {
                        let mut space = Space::<X86_64>::new(on).unwrap();
                        let area = VirtRange::new(BASE, BASE + (64 << 20)).unwrap();
                        space.edit(on).unwrap().mmap(area, AreaFlags(3), 0).unwrap();
                        for _ in 0..200 {
                            let at = BASE + rng.u64(..64 << 20);
                            space.fault(on, va(at), Access::Write).unwrap();
                        }
                        space
                            .edit(on)
                            .unwrap()
                            .munmap(VirtRange::new(BASE, BASE + (32 << 20)).unwrap())
                            .unwrap();
                        space.end(on).unwrap();
                    }
                    m.drain(&[slot]);
                });
            }
        });
        host.audit().unwrap();
    }
}

const ROOT: Level = X86_64::LAYOUT.root();

/// A thread's own CPU, once the thread that had it has left it.
fn slot(host: &Host<X86_64>, cpu: usize) -> CpuSlot {
    loop {
        match host.slot(cpu) {
            Some(slot) => return slot,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn tops_in_use_and_at_rest_show_each_change_as_cpus_take_them() {
    const CPUS: usize = 4;
    const FIRST: usize = X86_64::USER_ROOT_ENTRIES + 1;
    const ENTRIES: usize = 8;
    for magazine in [0, 1, 4, 64] {
        let host = Host::<X86_64>::new(small(CPUS, 2, 32)).unwrap();
        let lists = host.quicklists_with(ListsConfig { magazine, ..ListsConfig::new(CPUS) }).unwrap();
        // Counts down when its CPU is done, or has failed.
        struct AtWork<'a>(&'a AtomicUsize);
        impl Drop for AtWork<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Release);
            }
        }
        // The last change of each entry that has been made everywhere.
        let made: [AtomicU64; ENTRIES] = Default::default();
        let at_work = AtomicUsize::new(CPUS);
        let barrier = Barrier::new(CPUS + 1);
        let shows = |top: PhysAddr, since: &[u64]| {
            for (i, least) in since.iter().enumerate() {
                // SAFETY: 1. it is an entry of a root, which is in use or rests.
                let entry = unsafe { host.read(PhysAddr(top.0 + 8 * (FIRST + i) as u64), 8) }.unwrap() >> 12;
                assert!(
                    entry >= *least,
                    "entry {i} of {top} shows change {entry}, and {least} is everywhere"
                );
            }
        };
        let now = || made.each_ref().map(|entry| entry.load(Ordering::Acquire));
        std::thread::scope(|scope| {
            for cpu in 0..CPUS {
                let (host, lists, shows, now, at_work, barrier) =
                    (&host, &lists, &shows, &now, &at_work, &barrier);
                scope.spawn(move || {
                    let slot = slot(host, cpu);
                    let mut rng = Rng::with_seed(cpu as u64 + 1);
                    let mut live: Vec<Clean> = Vec::new();
                    barrier.wait();
                    let _at_work = AtWork(at_work);
                    for _ in 0..3000 {
                        let pin = slot.pin();
                        match rng.u64(..16) {
                            0..8 if live.len() < 12 => {
                                let since = now();
                                live.push(lists.at(&pin).alloc(ROOT, AllocFlags::NORMAL).unwrap());
                                shows(live[live.len() - 1].addr(), &since);
                            }
                            0..13 if !live.is_empty() => {
                                let since = now();
                                let page = live.swap_remove(rng.usize(..live.len()));
                                shows(page.addr(), &since);
                                lists.at(&pin).free_unlinked(page);
                            }
                            13 => lists.at(&pin).hand_over(),
                            14 => lists.at(&pin).drain(),
                            15 => drop(lists.at(&pin).end_interval()),
                            _ => lists.at(&pin).idle(),
                        }
                    }
                    live.into_iter().for_each(|page| lists.at(&slot.pin()).free_unlinked(page));
                    lists.at(&slot.pin()).drain();
                });
            }
            barrier.wait();
            let mut change = 0;
            while at_work.load(Ordering::Acquire) > 0 {
                change += 1;
                let i = change as usize % ENTRIES;
                // SAFETY: 1. the entry is not present: it gives no access and links no table. 2.
                // there is no range. 3. the host's own.
                unsafe { host.kernel().set(host.frames(), FIRST + i, change << 12) };
                made[i].store(change, Ordering::Release);
            }
        });
        let slot = slot(&host, 0);
        for node in 0..2 {
            lists.at(&slot.pin()).reclaim(NodeId(node), u32::MAX);
        }
        // SAFETY: 1. the entry is empty. 2. and 3. as above.
        let roots = unsafe { host.kernel().set(host.frames(), FIRST, 0) };
        assert_eq!(roots, 0, "a root that is gone is still known");
        host.audit().unwrap();
    }
}

#[test]
fn cpus_go_and_come_and_die_under_load_and_leave_nothing_behind() {
    const CPUS: usize = 4;
    let host = Host::<X86_64>::new(small(CPUS, 2, 32)).unwrap();
    let lists = host.quicklists_with(ListsConfig { magazine: 16, ..ListsConfig::new(CPUS) }).unwrap();
    // Pages that any CPU gives back.
    let shared: Mutex<Vec<(Level, Clean)>> = Mutex::new(Vec::new());
    // A CPU that died without a word is taken down once.
    let died: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let is_empty =
        |slot: &CpuSlot| [ROOT, Level::PTE].iter().all(|l| lists.at(&slot.pin()).at_hand(*l).is_none());
    std::thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (host, lists, shared, died, is_empty) = (&host, &lists, &shared, &died, &is_empty);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(cpu as u64 + 11);
                for round in 0..60 {
                    let mine = slot(host, cpu);
                    for _ in 0..200 {
                        let level = Level(rng.u8(..4));
                        if rng.bool() {
                            let page = lists.at(&mine.pin()).alloc(level, AllocFlags::NORMAL).unwrap();
                            shared.lock().unwrap().push((level, page));
                        } else {
                            let page = shared.lock().unwrap().pop();
                            page.into_iter().for_each(|(_, page)| lists.at(&mine.pin()).free_unlinked(page));
                        }
                    }
                    if round % 3 == 0 {
                        // Without a word: another thread has to look after its pages.
                        drop(mine);
                        died.lock().unwrap().push(cpu);
                        while died.lock().unwrap().contains(&cpu) {
                            let other = died.lock().unwrap().iter().copied().find(|dead| *dead != cpu);
                            // The last one at work finds nobody: it does it itself.
                            let dead = other.unwrap_or(cpu);
                            if let Some(its) = host.slot(dead) {
                                lists.at(&its.pin()).drain();
                                assert!(is_empty(&its), "CPU {dead} is down and holds something");
                                died.lock().unwrap().retain(|gone| *gone != dead);
                            }
                        }
                    } else if round % 3 == 1 {
                        lists.at(&mine.pin()).drain();
                        assert!(is_empty(&mine), "CPU {cpu} goes and holds something");
                    }
                }
                let mine = slot(host, cpu);
                lists.at(&mine.pin()).drain();
            });
        }
    });
    let slot = slot(&host, 0);
    for (_, page) in shared.into_inner().unwrap() {
        lists.at(&slot.pin()).free_unlinked(page);
    }
    lists.at(&slot.pin()).drain();
    for node in 0..2 {
        lists.at(&slot.pin()).reclaim(NodeId(node), u32::MAX);
    }
    assert_eq!((lists.counts().live(), lists.counts().cached()), (0, 0));
    host.audit().unwrap();
}
