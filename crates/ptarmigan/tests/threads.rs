//! Several CPUs at the same time: spaces that share frames, and lists that share depots.
mod common;
use common::{Rng, small, va};
use ptarmigan::addr::VirtRange;
use ptarmigan::format::X86_64;
use ptarmigan::hosted::{Host, HostMachine, NoTlb};
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::tlb::SpaceId;
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
            for _ in 0..ROUNDS {
                barrier.wait();
                let mut space = child.lock().unwrap().take().expect("the parent forked");
                barrier.wait();
                for i in 0..PAGES / 2 {
                    space.fault(&m, &pin, va(BASE + i * 4096), Access::Write).unwrap();
                }
                space.end(&m, &pin);
                barrier.wait();
            }
            m.drain(&slots);
        });
        let pin = mine.pin();
        for round in 0..ROUNDS {
            let mut space = Space::new(&m, &pin, SpaceId(2 * round)).unwrap();
            let area = VirtRange { start: BASE, end: BASE + PAGES * 4096 };
            space.mmap(&m, &pin, area, AreaFlags(3), 0).unwrap();
            for i in 0..PAGES {
                space.fault(&m, &pin, va(BASE + i * 4096), Access::Write).unwrap();
            }
            *child.lock().unwrap() = Some(space.fork(&m, &pin, SpaceId(2 * round + 1)).unwrap());
            barrier.wait();
            barrier.wait();
            for i in 0..PAGES / 2 {
                space.fault(&m, &pin, va(BASE + i * 4096), Access::Write).unwrap();
            }
            space.end(&m, &pin);
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
        // A slot cannot leave its thread: each thread takes what is free, one at a time.
        let turn = Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let slot = {
                        let _turn = turn.lock().unwrap();
                        host.slots().swap_remove(0)
                    };
                    let pin = slot.pin();
                    let rng = Rng::new(u64::from(slot.cpu().0) + 1);
                    for round in 0..40 {
                        let mut space = Space::<X86_64>::new(&m, &pin, SpaceId(round)).unwrap();
                        let area = VirtRange { start: BASE, end: BASE + (64 << 20) };
                        space.mmap(&m, &pin, area, AreaFlags(3), 0).unwrap();
                        for _ in 0..200 {
                            let at = BASE + rng.below(64 << 20);
                            space.fault(&m, &pin, va(at), Access::Write).unwrap();
                        }
                        space.munmap(&m, &pin, VirtRange { start: BASE, end: BASE + (32 << 20) }).unwrap();
                        space.end(&m, &pin);
                    }
                    m.drain(&[slot]);
                });
            }
        });
        host.audit().unwrap();
    }
}
