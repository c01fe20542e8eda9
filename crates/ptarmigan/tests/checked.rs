//! Lists that look after their pages, sizes out of range, and what an interval leaves.
mod common;
use common::{Rng, any_frame, assert_zero, poke, small};
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::cpu::{CpuId, NodeId};
use ptarmigan::format::X86_64;
use ptarmigan::frames::AllocFlags;
use ptarmigan::hosted::{CpuSlot, Host, HostConfig};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{CheckConfig, ListsConfig, Misuse, MisuseKind, Policy};
use std::cell::RefCell;

const PTE: Level = Level(0);
const TOP: Level = Level(3);

thread_local! {
    static FOUND: RefCell<Vec<Misuse>> = const { RefCell::new(Vec::new()) };
}

fn found() -> Vec<Misuse> {
    FOUND.take()
}

fn closely(poison: bool) -> CheckConfig {
    CheckConfig { sample: 1, poison, report: |misuse| FOUND.with_borrow_mut(|found| found.push(*misuse)) }
}

fn lists(magazine: usize) -> ListsConfig {
    ListsConfig { magazine, share: 4, ..ListsConfig::new(2) }
}

fn machine() -> Host<X86_64> {
    Host::new(small(2, 1, 16)).unwrap()
}

/// A page as somebody has it who kept its address and uses it once more.
fn again(at: PhysAddr) -> Clean {
    // SAFETY: this is the mistake that is to be found: the memory is the host's and nobody maps it.
    unsafe { Clean::from_raw(at) }
}

fn alloc(policy: &impl Policy, cpu: &CpuSlot, level: Level) -> Clean {
    policy.alloc(&cpu.pin(), level, AllocFlags::NORMAL).unwrap()
}

#[test]
fn a_page_that_is_given_back_twice_is_refused_and_its_history_named() {
    for poison in [false, true] {
        let host = machine();
        let cpus = host.slots();
        let policy = host.quicklists_checked(lists(16), closely(poison)).unwrap();
        let page = alloc(&policy, &cpus[0], PTE);
        let at = page.addr();
        policy.unused(&cpus[1].pin(), PTE, page);
        assert_eq!(found(), []);
        policy.unused(&cpus[0].pin(), PTE, again(at));
        let found = found();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].page, found[0].cpu), (MisuseKind::GivenTwice, at, CpuId(0)));
        assert_eq!(
            found[0].to_string(),
            format!(
                "page {at}, CPU 0, level 0: given back twice; given back on CPU 1 at level 0, handed out on CPU 0 at \
                 level 0 before that"
            )
        );
        assert_eq!(policy.check().refused(), 1);
        let mut out: Vec<PhysAddr> = (0..40).map(|n| alloc(&policy, &cpus[n % 2], PTE).addr()).collect();
        out.sort();
        assert!(out.windows(2).all(|two| two[0] != two[1]), "handed out once only");
    }
}

#[test]
fn what_was_never_handed_out_is_refused() {
    let host = machine();
    let cpus = host.slots();
    let policy = host.quicklists_checked(lists(16), closely(false)).unwrap();
    let theirs = host.frames().take(any_frame(0)).unwrap().zeroed(&host.window());
    for at in [theirs.addr(), Pfn(0x00ff_ffff).addr()] {
        policy.unused(&cpus[0].pin(), PTE, again(at));
        let found = found();
        assert_eq!(found.len(), 1, "{at}");
        assert_eq!((found[0].kind, found[0].page), (MisuseKind::Foreign, at));
    }
    assert_eq!(policy.counts().cached(), 0);
    host.frames().give(theirs);
}

#[test]
fn a_page_with_an_entry_left_is_refused_and_nobody_gets_it() {
    let host = machine();
    let cpus = host.slots();
    let policy = host.quicklists_checked(lists(16), closely(false)).unwrap();
    let page = alloc(&policy, &cpus[0], PTE);
    let at = page.addr();
    poke(&host, at.0 + 8 * 77, 1);
    policy.unused(&cpus[0].pin(), PTE, page);
    let found = found();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind, found[0].page), (MisuseKind::Dirty { offset: 8 * 77 }, at));
    for _ in 0..40 {
        assert_ne!(alloc(&policy, &cpus[0], PTE).addr(), at);
    }
}

#[test]
fn a_top_is_not_taken_back_as_another_table_nor_the_other_way_round() {
    let host = machine();
    let cpus = host.slots();
    let policy = host.quicklists_checked(lists(16), closely(false)).unwrap();
    for (is, given) in [(TOP, PTE), (PTE, TOP)] {
        let page = alloc(&policy, &cpus[0], is);
        policy.unused(&cpus[0].pin(), given, page);
        assert_eq!(found().iter().map(|m| m.kind).collect::<Vec<_>>(), [MisuseKind::WrongClass]);
    }
    // Tables of the classes' own levels mix.
    let page = alloc(&policy, &cpus[0], Level(2));
    policy.unused(&cpus[0].pin(), Level(1), page);
    assert_eq!(found(), []);
}

#[test]
fn who_writes_to_a_page_that_rests_is_found_when_it_is_handed_out_or_goes_back() {
    for (poison, leaves) in [(false, false), (true, false), (false, true), (true, true)] {
        let host = machine();
        let cpus = host.slots();
        let policy = host.quicklists_checked(lists(16), closely(poison)).unwrap();
        let page = alloc(&policy, &cpus[0], PTE);
        let at = page.addr();
        policy.unused(&cpus[0].pin(), PTE, page);
        poke(&host, at.0 + 4088, 0x1234_5000);
        if leaves {
            policy.drain(&cpus[0].pin());
        } else {
            let other = alloc(&policy, &cpus[0], PTE);
            assert_ne!(other.addr(), at);
            assert_zero(&host, other.addr());
        }
        let found = found();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].page), (MisuseKind::WrittenAtRest { offset: 4088 }, at));
    }
}

#[test]
fn poisoned_pages_hold_no_entry_that_a_walker_would_follow_and_are_zero_when_they_come_out() {
    let host = machine();
    let cpus = host.slots();
    let policy = host.quicklists_checked(lists(16), closely(true)).unwrap();
    let page = alloc(&policy, &cpus[0], PTE);
    let at = page.addr();
    policy.unused(&cpus[0].pin(), PTE, page);
    let word = common::peek(&host, at.0);
    assert!(word != 0 && word & 1 == 0, "{word:#x}");
    let page = alloc(&policy, &cpus[0], PTE);
    assert_eq!(page.addr(), at);
    assert_zero(&host, at);
    policy.unused(&cpus[0].pin(), PTE, page);
    policy.drain(&cpus[0].pin());
    host.audit().unwrap();
    assert_eq!(found(), []);
}

#[test]
fn any_rightful_traffic_is_let_through_with_magazines_of_0_1_and_more_poisoned_or_not() {
    for magazine in [0, 1, 4, 64] {
        for poison in [false, true] {
            for nodes in [1, 2] {
                let host = Host::<X86_64>::new(small(2, nodes, 16)).unwrap();
                let cpus = host.slots();
                let policy = host.quicklists_checked(lists(magazine), closely(poison)).unwrap();
                let rng = Rng::new(magazine as u64 + 7);
                let mut held: Vec<(Level, Clean)> = Vec::new();
                for _ in 0..4000 {
                    let cpu = &cpus[rng.below(2) as usize];
                    if rng.below(100) < 51 {
                        let level = Level(rng.below(4) as u8);
                        let Ok(page) = policy.alloc(&cpu.pin(), level, AllocFlags::NORMAL) else { continue };
                        if level != TOP {
                            assert_zero(&host, page.addr());
                        }
                        held.push((level, page));
                    } else if !held.is_empty() {
                        let (level, page) = held.swap_remove(rng.below(held.len() as u64) as usize);
                        policy.unused(&cpu.pin(), level, page);
                    }
                    if rng.below(50) == 0 {
                        policy.idle(&cpu.pin());
                        policy.age(&cpu.pin());
                    }
                }
                for (level, page) in held {
                    policy.unused(&cpus[0].pin(), level, page);
                }
                for cpu in &cpus {
                    policy.drain(&cpu.pin());
                }
                for node in 0..nodes as u8 {
                    policy.reclaim(&cpus[0].pin(), NodeId(node), u32::MAX);
                }
                assert_eq!(found(), [], "magazines of {magazine}, poison {poison}, {nodes} nodes");
                host.audit().unwrap();
            }
        }
    }
}

#[test]
fn sizes_out_of_range_are_refused_and_the_range_is_named() {
    let host = machine();
    let refused = |config| host.quicklists_with(config).err().unwrap().to_string();
    assert_eq!(refused(lists(65)), "quicklists: pages per magazine must be 0 to 64, not 65");
    let none = ListsConfig { share: 0, ..lists(8) };
    assert_eq!(refused(none), format!("quicklists: share must be 1 to {}, not 0", u32::MAX));
}

#[test]
fn pages_that_a_node_did_not_need_for_an_interval_go_back_a_few_at_a_time() {
    let host = Host::<X86_64>::new(HostConfig { bytes: 256 << 20, ..small(2, 1, 16) }).unwrap();
    let cpus = host.slots();
    let policy = host.quicklists_with(lists(16)).unwrap();
    let pin = cpus[0].pin();
    let turn = |n: usize| {
        let pages: Vec<Clean> = (0..n).map(|_| alloc(&policy, &cpus[0], PTE)).collect();
        for page in pages {
            policy.unused(&pin, PTE, page);
        }
    };
    turn(1000);
    policy.age(&pin);
    let most = policy.node_counts(NodeId(0)).depot_zero;
    // As long as they are all needed now and then, they stay.
    for _ in 0..20 {
        turn(1000);
        let freed = policy.age(&pin);
        assert!(freed <= 16, "{freed} pages in one call");
        assert!(freed == 0 || policy.node_counts(NodeId(0)).depot_zero + 64 >= most, "the working set stays");
    }
    let before = policy.node_counts(NodeId(0)).depot_zero;
    assert!(before > 800, "{before}");
    // Then only 200 are: the others go, and no more misses come of it.
    let mut calls = 0;
    while policy.node_counts(NodeId(0)).depot_zero > 250 {
        turn(200);
        assert!(policy.age(&pin) <= 16);
        calls += 1;
        assert!(calls < 1000, "{:?}", policy.node_counts(NodeId(0)));
    }
    let misses = policy.counts().levels[0].misses;
    for _ in 0..50 {
        turn(200);
        policy.age(&pin);
    }
    assert_eq!(policy.counts().levels[0].misses, misses, "the working set stays");
    policy.drain(&pin);
    policy.reclaim(&pin, NodeId(0), u32::MAX);
    host.audit().unwrap();
}
