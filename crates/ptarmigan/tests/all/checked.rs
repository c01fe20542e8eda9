//! Lists that look after their pages, sizes out of range, and the remains of an interval.
use crate::common;
use common::{At, any_frame, assert_zero, poke, small};
use fastrand::Rng;
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::cpu::{CpuId, NodeId};
use ptarmigan::format::X86_64;
use ptarmigan::frames::AllocFlags;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{CheckConfig, ListsConfig, Misuse, MisuseKind, Policy};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig};
use std::cell::RefCell;

const PTE: Level = Level(0);
const ROOT: Level = Level(3);

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
    ListsConfig { magazine, budget_divisor: 4, ..ListsConfig::new(2) }
}

fn machine() -> Host<X86_64> {
    Host::new(small(2, 1, 16)).unwrap()
}

/// A page as code has it that kept its address and uses it once more.
fn again(at: PhysAddr, level: Level) -> Clean {
    // SAFETY: this is the mistake that is to be found: the memory is the host's and nobody maps it.
    unsafe { Clean::from_raw(at, level) }
}

fn alloc(policy: &impl Policy, cpu: &CpuSlot, level: Level) -> Clean {
    policy.at(&cpu.pin()).alloc(level, AllocFlags::NORMAL).unwrap()
}

#[test]
fn a_page_freed_twice_is_refused_with_its_history() {
    for poison in [false, true] {
        let host = machine();
        let cpus = host.slots();
        let policy = host.quicklists_checked(lists(16), closely(poison)).unwrap();
        let page = alloc(&policy, &cpus[0], PTE);
        let at = page.addr();
        policy.at(&cpus[1].pin()).free_unlinked(page);
        assert_eq!(found(), []);
        policy.at(&cpus[0].pin()).free_unlinked(again(at, PTE));
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
    let theirs = host.frames().take(any_frame(0)).unwrap();
    // SAFETY: 1. the window is the host's, and the frame one that it backs.
    let theirs = unsafe { theirs.zeroed(&host.window()) };
    for at in [theirs.addr(), Pfn(0x00ff_ffff).addr()] {
        policy.at(&cpus[0].pin()).free_unlinked(again(at, PTE));
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
    policy.at(&cpus[0].pin()).free_unlinked(page);
    let found = found();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind, found[0].page), (MisuseKind::Dirty { offset: 8 * 77 }, at));
    for _ in 0..40 {
        assert_ne!(alloc(&policy, &cpus[0], PTE).addr(), at);
    }
}

#[test]
fn a_top_is_not_taken_back_as_another_table_or_the_reverse() {
    let host = machine();
    let cpus = host.slots();
    let policy = host.quicklists_checked(lists(16), closely(false)).unwrap();
    for (is, given) in [(ROOT, PTE), (PTE, ROOT)] {
        let page = again(alloc(&policy, &cpus[0], is).into_raw(), given);
        policy.at(&cpus[0].pin()).free_unlinked(page);
        assert_eq!(found().iter().map(|m| m.kind).collect::<Vec<_>>(), [MisuseKind::WrongClass]);
    }
    // Tables of the classes' own levels mix.
    let page = again(alloc(&policy, &cpus[0], Level(2)).into_raw(), PTE);
    policy.at(&cpus[0].pin()).free_unlinked(page);
    assert_eq!(found(), []);
}

#[test]
fn a_write_to_a_resting_page_is_found_when_it_leaves_the_list() {
    for (poison, leaves) in [(false, false), (true, false), (false, true), (true, true)] {
        let host = machine();
        let cpus = host.slots();
        let policy = host.quicklists_checked(lists(16), closely(poison)).unwrap();
        let page = alloc(&policy, &cpus[0], PTE);
        let at = page.addr();
        policy.at(&cpus[0].pin()).free_unlinked(page);
        poke(&host, at.0 + 4088, 0x1234_5000);
        if leaves {
            policy.at(&cpus[0].pin()).drain();
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
fn poisoned_pages_hold_no_valid_entry_and_come_out_zero() {
    let host = machine();
    let cpus = host.slots();
    let policy = host.quicklists_checked(lists(16), closely(true)).unwrap();
    let page = alloc(&policy, &cpus[0], PTE);
    let at = page.addr();
    policy.at(&cpus[0].pin()).free_unlinked(page);
    let word = common::peek(&host, at.0);
    assert!(word != 0 && word & 1 == 0, "{word:#x}");
    let page = alloc(&policy, &cpus[0], PTE);
    assert_eq!(page.addr(), at);
    assert_zero(&host, at);
    policy.at(&cpus[0].pin()).free_unlinked(page);
    policy.at(&cpus[0].pin()).drain();
    host.audit().unwrap();
    assert_eq!(found(), []);
}

#[test]
fn any_rightful_traffic_passes_with_any_magazine_and_poison() {
    for magazine in [0, 1, 4, 64] {
        for poison in [false, true] {
            for nodes in [1, 2] {
                let host = Host::<X86_64>::new(small(2, nodes, 16)).unwrap();
                let cpus = host.slots();
                let policy = host.quicklists_checked(lists(magazine), closely(poison)).unwrap();
                let mut rng = Rng::with_seed(magazine as u64 + 7);
                let mut held: Vec<(Level, Clean)> = Vec::new();
                for _ in 0..4000 {
                    let cpu = &cpus[rng.usize(..2)];
                    if rng.u64(..100) < 51 {
                        let level = Level(rng.u8(..4));
                        let Ok(page) = policy.at(&cpu.pin()).alloc(level, AllocFlags::NORMAL) else {
                            continue;
                        };
                        if level != ROOT {
                            assert_zero(&host, page.addr());
                        }
                        held.push((level, page));
                    } else if !held.is_empty() {
                        let (_, page) = held.swap_remove(rng.usize(..held.len()));
                        policy.at(&cpu.pin()).free_unlinked(page);
                    }
                    if rng.u64(..50) == 0 {
                        policy.at(&cpu.pin()).idle();
                        policy.at(&cpu.pin()).end_interval();
                    }
                }
                for (_, page) in held {
                    policy.at(&cpus[0].pin()).free_unlinked(page);
                }
                for cpu in &cpus {
                    policy.at(&cpu.pin()).drain();
                }
                for node in 0..nodes as u8 {
                    policy.at(&cpus[0].pin()).reclaim(NodeId(node), u32::MAX);
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
    let none = ListsConfig { budget_divisor: 0, ..lists(8) };
    assert_eq!(refused(none), format!("quicklists: the budget's divisor must be 1 to {}, not 0", u32::MAX));
}

#[test]
fn an_interval_gives_back_sixteen_pages_of_any_class_for_all() {
    let host = Host::<X86_64>::new(HostConfig { bytes: 256 << 20, ..small(1, 1, 16) }).unwrap();
    let cpus = host.slots();
    let policy = host.quicklists_with(lists(4)).unwrap();
    let pin = cpus[0].pin();
    let rest = |level, n: usize| {
        let pages: Vec<Clean> = (0..n).map(|_| alloc(&policy, &cpus[0], level)).collect();
        pages.into_iter().for_each(|page| policy.at(&pin).free_unlinked(page));
        policy.at(&pin).hand_over();
    };
    let depots = || {
        let counts = policy.node_counts(NodeId(0));
        (counts.depot_zero, counts.depot_roots)
    };
    for (zero, roots, left) in [(40, 0, (24, 0)), (0, 40, (0, 24)), (12, 40, (0, 36)), (4, 4, (0, 0))] {
        rest(PTE, zero);
        rest(ROOT, roots);
        assert_eq!(depots(), (zero as u32, roots as u32));
        assert_eq!(policy.at(&pin).end_interval(), 0, "none of them lay there when it began");
        assert_eq!(policy.at(&pin).end_interval(), 16.min(zero + roots) as u32);
        assert_eq!(depots(), left);
        policy.at(&pin).reclaim(NodeId(0), u32::MAX);
    }
}

#[test]
fn pages_unused_for_an_interval_go_back_a_few_at_a_time() {
    let host = Host::<X86_64>::new(HostConfig { bytes: 256 << 20, ..small(2, 1, 16) }).unwrap();
    let cpus = host.slots();
    let policy = host.quicklists_with(lists(16)).unwrap();
    let pin = cpus[0].pin();
    let turn = |n: usize| {
        let pages: Vec<Clean> = (0..n).map(|_| alloc(&policy, &cpus[0], PTE)).collect();
        for page in pages {
            policy.at(&pin).free_unlinked(page);
        }
    };
    turn(1000);
    policy.at(&pin).end_interval();
    let most = policy.node_counts(NodeId(0)).depot_zero;
    // As long as they are all needed now and then, they stay.
    for _ in 0..20 {
        turn(1000);
        let freed = policy.at(&pin).end_interval();
        assert!(freed <= 16, "{freed} pages in one call");
        assert!(freed == 0 || policy.node_counts(NodeId(0)).depot_zero + 64 >= most, "the working set stays");
    }
    let before = policy.node_counts(NodeId(0)).depot_zero;
    assert!(before > 800, "{before}");
    // Then only 200 are: the others go, and no more misses come of it.
    let mut calls = 0;
    while policy.node_counts(NodeId(0)).depot_zero > 250 {
        turn(200);
        assert!(policy.at(&pin).end_interval() <= 16);
        calls += 1;
        assert!(calls < 1000, "{:?}", policy.node_counts(NodeId(0)));
    }
    let misses = policy.counts().levels[0].misses;
    for _ in 0..50 {
        turn(200);
        policy.at(&pin).end_interval();
    }
    assert_eq!(policy.counts().levels[0].misses, misses, "the working set stays");
    policy.at(&pin).drain();
    policy.at(&pin).reclaim(NodeId(0), u32::MAX);
    host.audit().unwrap();
}
