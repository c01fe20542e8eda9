//! Policies: pages that they hand out and keep, their counts, and those of history against a model
//! of their own. The invariants have tests of their own, `invariants`.
use crate::common;
use common::{At, any_frame, assert_constructed, assert_zero, peek, small};
use fastrand::Rng;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::format::{Format, X86_64, X86Pae};
use ptarmigan::frames::{AllocFlags, Frames, MemoryRun, MemorySize, ZoneClass};
use ptarmigan::page::{Clean, Level, NoConstruct};
use ptarmigan::quicklist::{ListsConfig, Policy, PolicyCounts, Source};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{CpuSlot, Host};
use ptarmigan_linux::{Historic, Rules};
use std::collections::HashSet;
use std::ptr::NonNull;

const ROOT: Level = Level(3);
const PTE: Level = Level::PTE;

/// Gives pages back the way a gather does, without an MMU that walked them.
fn give_back<P: Policy>(policy: &P, cpu: &CpuSlot, page: Clean) {
    policy.at(&cpu.pin()).free_unlinked(page);
}

fn lists(cpus: usize, magazine: usize, share: u32) -> ListsConfig {
    ListsConfig { magazine, budget_divisor: share, ..ListsConfig::new(cpus) }
}

/// Returns a policy's limit of cached pages of a node: its share of the node's memory, magazines
/// included.
fn budget<F: Format>(host: &Host<F>, node: u8, share: u32) -> usize {
    (host.frames().node_frames(NodeId(node)) / share) as usize
}

/// Frames of a node that are neither free nor the host's own.
fn taken<F: Format>(host: &Host<F>, node: u8) -> usize {
    let of = NodeId(node);
    (host.frames().node_frames(of) - host.frames().node_free(of)) as usize - if node == 0 { 3 } else { 0 }
}

/// Random traffic of several CPUs on one policy.
fn churn<P: Policy>(host: &Host<X86_64>, policy: &P, share: u32, seed: u64, steps: usize) {
    let cpus = host.slots();
    let mut rng = Rng::with_seed(seed);
    let mut live: Vec<(Level, PhysAddr)> = Vec::new();
    let mut out = HashSet::new();
    let nodes = host.config().nodes as u8;
    for _ in 0..steps {
        let cpu = &cpus[rng.usize(..cpus.len())];
        let level = Level(rng.u8(..4));
        // Waves: growth, then decline.
        let grows = if live.len() < 300 { 6 } else { 4 };
        if rng.u64(..10) < grows {
            if let Ok(page) = policy.at(&cpu.pin()).alloc(level, AllocFlags::NORMAL) {
                let at = page.into_raw();
                assert!(out.insert(at), "{at} handed out twice");
                if level == ROOT {
                    assert_constructed(host, at)
                } else {
                    assert_zero(host, at)
                }
                live.push((level, at));
            }
        } else if !live.is_empty() {
            let (level, at) = live.swap_remove(rng.usize(..live.len()));
            out.remove(&at);
            // SAFETY: 1. handed out above and forgotten here. 2. not written to. 3. never linked.
            give_back(policy, cpu, unsafe { Clean::from_raw(at, level) });
        }
        if rng.u64(..50) == 0 {
            policy.at(&cpu.pin()).idle();
        }
        let counts = policy.counts();
        assert_eq!(counts.live(), live.len(), "pages out");
        let all: usize = (0..nodes).map(|n| taken(host, n)).sum();
        assert_eq!(counts.cached() + live.len(), all, "I1: each frame is out, or cached, or free");
        for node in 0..nodes {
            let of_node = |at: &PhysAddr| host.frames().node_of(at.pfn()) == NodeId(node);
            let cached = taken(host, node) - live.iter().filter(|(_, at)| of_node(at)).count();
            assert!(
                cached <= budget(host, node, share),
                "node {node} caches {cached} pages, its budget is {}",
                budget(host, node, share)
            );
        }
        for l in counts.levels {
            assert!(l.misses.wrapping_add(l.refills) <= l.allocs.wrapping_add(l.misses), "I7");
        }
    }
    for (level, at) in live {
        // SAFETY: as above.
        give_back(policy, &cpus[0], unsafe { Clean::from_raw(at, level) });
    }
    assert_eq!(policy.counts().live(), 0);
    for cpu in &cpus {
        policy.at(&cpu.pin()).drain();
    }
    for node in 0..nodes {
        policy.at(&cpus[0].pin()).reclaim(NodeId(node), u32::MAX);
    }
    assert_eq!(policy.counts().cached(), 0, "I8: nothing is left after a drain");
    host.audit().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, rng_seed: RngSeed::Fixed(20), ..ProptestConfig::default() })]

    #[test]
    fn quicklists_and_their_counts_stay_right_under_any_traffic(
        seed in any::<u64>(),
        cpus in 1usize..9,
        nodes in 1usize..4,
        magazine in 0usize..65,
        share in prop_oneof![Just(4u32), Just(16), Just(64)],
    ) {
        let nodes = nodes.min(cpus);
        let host = Host::<X86_64>::new(small(cpus, nodes, 8)).unwrap();
        let policy = host.quicklists_with(lists(cpus, magazine, share)).unwrap();
        churn(&host, &policy, share, seed, 1500);
    }

    #[test]
    fn plain_caches_nothing(seed in any::<u64>(), nodes in 1usize..3) {
        let host = Host::<X86_64>::new(small(2, nodes, 8)).unwrap();
        churn(&host, &host.plain().unwrap(), u32::MAX, seed, 800);
    }
}

/// A call that allocates on one CPU and frees on others, again and again (H10).
fn imbalance(cpus: usize, nodes: usize, magazine: usize) {
    const SHARE: u32 = 16;
    let host = Host::<X86_64>::new(small(cpus, nodes, 64)).unwrap();
    let policy = host.quicklists_with(lists(cpus, magazine, SHARE)).unwrap();
    let slots = host.slots();
    let budgets: Vec<usize> = (0..nodes as u8).map(|n| budget(&host, n, SHARE)).collect();
    for round in 0..300 {
        let pages: Vec<Clean> =
            (0..100).map(|_| policy.at(&slots[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap()).collect();
        let exit = &slots[if cpus > 1 { 1 + round % (cpus - 1) } else { 0 }];
        let mut out = pages.len();
        for page in pages {
            give_back(&policy, exit, page);
            out -= 1;
            let all: usize = (0..nodes as u8).map(|n| taken(&host, n)).sum();
            assert!(all - out <= budgets.iter().sum(), "{cpus} CPUs cache {} pages", all - out);
        }
        for (node, most) in budgets.iter().enumerate() {
            assert!(taken(&host, node as u8) <= *most, "node {node} of {nodes}, {cpus} CPUs");
        }
    }
    // Producers feed consumers: hardly anything comes from the allocator once the lists are full.
    if policy.magazine() > 0 {
        let before = policy.counts();
        for round in 0..50 {
            let pages: Vec<Clean> = (0..100)
                .map(|_| policy.at(&slots[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap())
                .collect();
            for page in pages {
                give_back(&policy, &slots[if cpus > 1 { 1 + round % (cpus - 1) } else { 0 }], page);
            }
        }
        let after = policy.counts();
        let misses = after.levels[0].misses - before.levels[0].misses;
        let room = budgets[0].saturating_sub(4 * policy.magazine() * (cpus / nodes + 1)) > 400;
        assert!(!room || misses < 500, "{misses} of 5000 pages came from the allocator with {cpus} CPUs");
    }
    for slot in &slots {
        policy.at(&slot.pin()).drain();
    }
    for node in 0..nodes as u8 {
        policy.at(&slots[0].pin()).reclaim(NodeId(node), u32::MAX);
    }
    host.audit().unwrap();
}

#[test]
fn fork_here_and_exit_there_stays_within_the_budget_to_64_cpus() {
    for (cpus, nodes) in [(1, 1), (2, 1), (4, 2), (8, 1), (16, 4), (64, 1), (64, 2)] {
        for magazine in [0, 1, 16, 64] {
            imbalance(cpus, nodes, magazine);
        }
    }
}

#[test]
fn a_magazine_of_none_is_the_plain_policy() {
    let host = Host::<X86_64>::new(small(1, 1, 8)).unwrap();
    let policy = host.quicklists_with(lists(1, 0, 16)).unwrap();
    let cpus = host.slots();
    for _ in 0..100 {
        let page = policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap();
        give_back(&policy, &cpus[0], page);
        assert_eq!(policy.counts().cached(), 0);
    }
    assert_eq!(policy.counts().levels[0].misses, 100);
    host.audit().unwrap();
}

#[test]
fn a_page_just_freed_is_handed_out_again_without_a_miss() {
    for magazine in [1, 2, 16] {
        let host = Host::<X86_64>::new(small(1, 1, 64)).unwrap();
        let policy = host.quicklists_with(lists(1, magazine, 16)).unwrap();
        let cpus = host.slots();
        let first = policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap();
        let at = first.addr();
        give_back(&policy, &cpus[0], first);
        let misses = policy.counts().levels[0].misses;
        for _ in 0..100 {
            let page = policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap();
            assert_eq!(page.addr(), at, "the last one in is the first one out");
            give_back(&policy, &cpus[0], page);
        }
        let counts = policy.counts().levels[0];
        assert_eq!((counts.misses, counts.refills), (misses, 0));
        assert_eq!((counts.allocs, counts.frees), (101, 101));
    }
}

#[test]
fn tables_that_cpus_fetch_in_turn_share_no_line_of_records() {
    let host = Host::<X86_64>::new(small(2, 1, 32)).unwrap();
    let cpus = host.slots();
    let policy = host.quicklists().unwrap();
    let mut held = Vec::new();
    for _ in 0..50 {
        for cpu in &cpus {
            held.push((cpu, policy.at(&cpu.pin()).alloc(Level::PTE, AllocFlags::NORMAL).unwrap()));
        }
    }
    let line = |page: &Clean| page.addr().pfn().0 / 4;
    for (cpu, page) in &held {
        let others = held.iter().filter(|(other, _)| other.cpu() != cpu.cpu());
        assert!(others.into_iter().all(|(_, other)| line(other) != line(page)), "{}", page.addr());
    }
    for (cpu, page) in held {
        give_back(&policy, cpu, page);
    }
    policy.at(&cpus[0].pin()).drain();
    policy.at(&cpus[1].pin()).drain();
    policy.at(&cpus[0].pin()).reclaim(NodeId(0), u32::MAX);
    assert_eq!(policy.counts().cached(), 0);
    host.audit().unwrap();
}

#[test]
fn pages_freed_on_a_foreign_node_go_home() {
    for nodes in [2usize, 4] {
        let cpus = nodes;
        let host = Host::<X86_64>::new(small(cpus, nodes, 32)).unwrap();
        let policy = host.quicklists(); // one CPU for each node
        let policy = policy.unwrap();
        let slots = host.slots();
        let mut rng = Rng::with_seed(nodes as u64);
        for _ in 0..200 {
            let from = rng.usize(..nodes);
            let pages: Vec<Clean> = (0..40)
                .map(|_| policy.at(&slots[from].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap())
                .collect();
            let to = rng.usize(..nodes);
            for page in pages {
                give_back(&policy, &slots[to], page);
            }
        }
        // Pages that rest on a CPU come out at that CPU first, and must be of its node, as must the
        // refills.
        for slot in &slots {
            let node = slot.pin().node();
            let misses = policy.counts().levels[0].misses;
            let mut held = Vec::new();
            while policy.counts().levels[0].misses == misses {
                held.push(policy.at(&slot.pin()).alloc(PTE, AllocFlags::NORMAL).unwrap());
                let at = held[held.len() - 1].addr();
                assert_eq!(host.frames().node_of(at.pfn()), node, "a frame rested on a foreign node");
            }
            assert!(held.len() > 1, "something rested");
            for page in held {
                give_back(&policy, slot, page);
            }
        }
    }
}

#[test]
fn pages_that_come_home_one_by_one_are_all_still_there() {
    for magazine in [1, 2, 16, 63, 64] {
        let host = Host::<X86_64>::new(small(2, 2, 64)).unwrap();
        let policy = host.quicklists_with(lists(2, magazine, 4)).unwrap();
        let slots = host.slots();
        let pages: Vec<Clean> =
            (0..200).map(|_| policy.at(&slots[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap()).collect();
        for page in pages {
            give_back(&policy, &slots[1], page);
        }
        // The home CPU fetches the returned pages, and frees more than it can keep.
        let pages: Vec<Clean> =
            (0..300).map(|_| policy.at(&slots[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap()).collect();
        for page in pages {
            give_back(&policy, &slots[0], page);
        }
        for slot in &slots {
            policy.at(&slot.pin()).drain();
        }
        for node in 0..2 {
            policy.at(&slots[0].pin()).reclaim(NodeId(node), u32::MAX);
        }
        assert_eq!(policy.counts().cached(), 0, "magazines of {magazine}");
        host.audit().unwrap();
    }
}

#[test]
fn constructed_tops_follow_the_kernel_map_live_and_cached() {
    let host = Host::<X86_64>::new(small(2, 1, 16)).unwrap();
    let cpus = host.slots();
    fn follows<P: Policy>(host: &Host<X86_64>, cpus: &[CpuSlot], policy: P) {
        let mut rng = Rng::with_seed(7);
        let mut live = Vec::new();
        for round in 0..400u64 {
            let cpu = &cpus[rng.usize(..2)];
            match rng.u64(..4) {
                0 if !live.is_empty() => {
                    let page: Clean = live.swap_remove(rng.usize(..live.len()));
                    give_back(&policy, cpu, page);
                }
                1 => {
                    let index = 256 + rng.usize(..256);
                    let raw = if rng.u64(..3) == 0 { 0 } else { round << 12 | 1 };
                    // SAFETY: 1. no MMU walks these tops. 2. there is no range. 3. the host's own.
                    unsafe { host.kernel().set(host.frames(), index, raw) };
                }
                _ => {
                    let page = policy.at(&cpu.pin()).alloc(ROOT, AllocFlags::NORMAL).unwrap();
                    assert_constructed(host, page.addr());
                    live.push(page);
                }
            }
            for page in &live {
                assert_constructed(host, page.addr());
            }
        }
        for page in live {
            give_back(&policy, &cpus[0], page);
        }
        for cpu in cpus {
            policy.at(&cpu.pin()).drain();
        }
        policy.at(&cpus[0].pin()).reclaim(NodeId(0), u32::MAX);
        // No top is left: a change reaches nobody.
        // SAFETY: 1. the entry is empty. 2. there is no range. 3. the host's own.
        assert_eq!(unsafe { host.kernel().set(host.frames(), 300, 0) }, 0);
        host.audit().unwrap();
    }
    follows(&host, &cpus, host.quicklists().unwrap());
    follows(&host, &cpus, host.plain().unwrap());
    for n in 1..=3 {
        follows(&host, &cpus, common::historic(&host, Rules::V5, n).unwrap());
        follows(&host, &cpus, common::historic(&host, Rules::V2008, n).unwrap());
    }
}

#[test]
fn small_tops_come_from_slabs_and_carry_the_kernels_entry() {
    let host = Host::<X86Pae>::new(small(1, 1, 8)).unwrap();
    let policy = host.quicklists().unwrap();
    let cpus = host.slots();
    let top = X86Pae::LAYOUT.root();
    let mut live = Vec::new();
    for _ in 0..300 {
        let page = policy.at(&cpus[0].pin()).alloc(top, AllocFlags::NORMAL).unwrap();
        assert_constructed(&host, page.addr());
        live.push(page);
    }
    assert_eq!(live.iter().map(Clean::addr).collect::<HashSet<_>>().len(), 300);
    for page in live {
        give_back(&policy, &cpus[0], page);
    }
    policy.at(&cpus[0].pin()).drain();
    policy.at(&cpus[0].pin()).reclaim(NodeId(0), u32::MAX);
    host.audit().unwrap();
}

#[test]
fn a_policy_without_memory_says_so_and_changes_nothing() {
    let host = Host::<X86_64>::new(small(2, 1, 2)).unwrap();
    let cpus = host.slots();
    fn fails<P: Policy>(host: &Host<X86_64>, cpus: &[CpuSlot], policy: P) {
        let mut live = Vec::new();
        while let Ok(page) = policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL) {
            live.push(page);
        }
        let before = (host.frames().counts(), policy.counts());
        assert!(policy.at(&cpus[0].pin()).alloc(ROOT, AllocFlags::ATOMIC).is_err());
        assert!(policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::ATOMIC).is_err());
        assert_eq!((host.frames().counts(), policy.counts()), before);
        // The lists are empty when a request that may wait fails.
        assert_eq!(policy.counts().cached(), 0);
        for page in live {
            give_back(&policy, &cpus[1], page);
        }
        for cpu in cpus {
            policy.at(&cpu.pin()).drain();
        }
        policy.at(&cpus[0].pin()).reclaim(NodeId(0), u32::MAX);
        host.audit().unwrap();
    }
    fails(&host, &cpus, host.quicklists_with(lists(2, 16, 4)).unwrap());
    fails(&host, &cpus, host.plain().unwrap());
    fails(&host, &cpus, common::historic(&host, Rules::V5, 2).unwrap());
    fails(&host, &cpus, common::historic(&host, Rules::V2008, 2).unwrap());
}

#[test]
fn what_cpus_cache_is_given_up_when_memory_is_short() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let policy = host.quicklists_with(lists(1, 32, 4)).unwrap();
    let cpus = host.slots();
    let pages: Vec<Clean> =
        (0..600).map(|_| policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap()).collect();
    for page in pages {
        give_back(&policy, &cpus[0], page);
    }
    let cached = policy.counts().cached();
    assert!(cached >= 500, "{cached} pages rest");
    let mut frames = Vec::new();
    while let Ok(f) = host.frames().take(any_frame(0)) {
        frames.push(f.dirty());
    }
    // Under pressure every gather trims a bounded number (I6).
    while host.frames().pressed(NodeId(0)) && policy.counts().cached() > 128 {
        let before = policy.counts().cached();
        policy.at(&cpus[0].pin()).gather_end();
        let freed = before - policy.counts().cached();
        assert!((1..=16).contains(&freed), "{freed} pages in one call");
    }
    assert_eq!(policy.at(&cpus[0].pin()).reclaim(NodeId(0), 5), 5.min(policy.counts().cached() as u32));
    // And a request that may wait gets the remaining pages.
    while let Ok(f) = host.frames().take(any_frame(0)) {
        frames.push(f.dirty());
    }
    let _top = policy.at(&cpus[0].pin()).alloc(ROOT, AllocFlags::NORMAL).unwrap();
    for f in frames {
        host.frames().give(f);
    }
}

// --- The historic policies against a model
// ---------------------------------------------------------------------------

/// One CPU's lists in the patch's own words: for each list its pages, the front first.
#[derive(Default, Clone)]
struct ModelCpu {
    lists: [Vec<u64>; 3],
}

struct Model {
    of: Of,
    nr: usize,
    nodes: usize,
    cpus: Vec<ModelCpu>,
}

/// The versions that are modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    Y2007,
    Y2008,
}

impl Model {
    fn list(&self, level: Level) -> usize {
        match (self.nr, level == ROOT, level == PTE) {
            (1, ..) => 0,
            (2, top, _) => usize::from(!top),
            (_, true, _) => 0,
            (_, _, true) => 2,
            _ => 1,
        }
    }

    /// `min(count − cap, 16)` if `count > 25`, where `cap` is `max(F/16, 25)`, and later
    /// `max(F/16/C, 25)`.
    fn trim(&self, node: NodeId, count: usize, free: u32) -> usize {
        if count <= 25 {
            return 0;
        }
        let on = |cpu: usize| cpu * self.nodes / self.cpus.len();
        let sharing = (0..self.cpus.len()).filter(|cpu| on(*cpu) == usize::from(node.0)).count();
        let share = match self.of {
            Of::Y2007 => i64::from(free) / 16,
            Of::Y2008 => i64::from(free) / 16 / sharing as i64,
        };
        (count as i64 - share.max(25)).clamp(0, 16) as usize
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, rng_seed: RngSeed::Fixed(20), ..ProptestConfig::default() })]

    #[test]
    fn the_policies_of_history_do_what_the_kernel_did_page_by_page(
        of in prop_oneof![Just(Of::Y2007), Just(Of::Y2008)],
        seed in any::<u64>(),
        nr in 1usize..4,
        cpus in 1usize..5,
        nodes in 1usize..3,
        mib in prop_oneof![Just(2u64), Just(4), Just(16)],
    ) {
        let nodes = nodes.min(cpus);
        let host = Host::<X86_64>::new(small(cpus, nodes, mib)).unwrap();
        let slots = host.slots();
        let policy = match of {
            Of::Y2007 => common::historic(&host, Rules::V5, nr).unwrap(),
            Of::Y2008 => common::historic(&host, Rules::V2008, nr).unwrap(),
        };
        let mut model = Model { of, nr, nodes, cpus: vec![ModelCpu::default(); cpus] };
        let mut rng = Rng::with_seed(seed);
        let mut live: Vec<(Level, PhysAddr)> = Vec::new();
        for _ in 0..1500 {
            let c = rng.usize(..cpus);
            let pin = slots[c].pin();
            let grow = rng.bool();
            match rng.u64(..20) {
                0 => {
                    // The trim reads F anew for each list, after the pages that earlier lists gave
                    // back.
                    let mut free = host.frames().node_free(pin.node());
                    for list in 0..nr {
                        let k = model.trim(pin.node(), model.cpus[c].lists[list].len(), free);
                        let given: Vec<u64> = model.cpus[c].lists[list].drain(..k).collect();
                        let home = |at: &&u64| host.frames().node_of(PhysAddr(**at).pfn()) == pin.node();
                        free += given.iter().filter(home).count() as u32;
                    }
                    if rng.bool() { policy.at(&pin).idle() } else { policy.at(&pin).gather_end() }
                    prop_assert_eq!(host.frames().node_free(pin.node()), free);
                }
                1..=10 if grow || live.is_empty() => {
                    let level = Level(rng.u8(..4));
                    let list = model.list(level);
                    let expect = (!model.cpus[c].lists[list].is_empty()).then(|| model.cpus[c].lists[list].remove(0));
                    let misses = policy.counts().levels[level.at()].misses;
                    let Ok(page) = policy.at(&pin).alloc(level, AllocFlags::NORMAL) else {
                        prop_assert!(expect.is_none(), "a listed page was not handed out");
                        continue;
                    };
                    let missed = policy.counts().levels[level.at()].misses - misses;
                    prop_assert_eq!(missed, usize::from(expect.is_none()));
                    if let Some(at) = expect {
                        prop_assert_eq!(page.addr().0, at, "the front of the list");
                    }
                    if level == ROOT {
                        assert_constructed(&host, page.addr());
                    } else {
                        assert_zero(&host, page.addr());
                    }
                    live.push((level, page.into_raw()));
                }
                _ if !live.is_empty() => {
                    let (level, at) = live.swap_remove(rng.usize(..live.len()));
                    let off_node = of == Of::Y2007 && host.frames().node_of(at.pfn()) != pin.node();
                    let free = host.frames().counts().free;
                    // SAFETY: handed out above, not written to, never linked.
                    let page = unsafe { Clean::from_raw(at, level) };
                    policy.at(&pin).free_unlinked(page);
                    if off_node {
                        prop_assert_eq!(host.frames().counts().free, free + 1, "straight to the allocator");
                    } else {
                        let list = model.list(level);
                        let front = model.cpus[c].lists[list].first().copied().unwrap_or(0);
                        prop_assert_eq!(peek(&host, at.0), front, "word 0 is the link");
                        for word in 1..if level == ROOT { 256 } else { 512 } {
                            prop_assert_eq!(peek(&host, at.0 + 8 * word), 0);
                        }
                        model.cpus[c].lists[list].insert(0, at.0);
                    }
                }
                _ => {}
            }
            let cached: usize = model.cpus.iter().flat_map(|c| &c.lists).map(Vec::len).sum();
            prop_assert_eq!(policy.counts().cached(), cached);
            // Tops keep the kernel's entries while they rest on a list of their own.
            if nr > 1 {
                for at in model.cpus.iter().flat_map(|c| &c.lists[0]) {
                    for index in 256..512 {
                        prop_assert_eq!(Some(peek(&host, at + 8 * index)), host.kernel().get(index as usize));
                    }
                }
            }
        }
        for (level, at) in live {
            // SAFETY: as above.
            policy.at(&slots[0].pin()).free_unlinked(unsafe { Clean::from_raw(at, level) });
        }
        for slot in &slots {
            policy.at(&slot.pin()).drain();
        }
        prop_assert_eq!(policy.counts().cached(), 0);
        prop_assert_eq!(host.audit(), Ok(()));
    }
}

/// A policy over a machine with `low` frames that tables can be made of and `high` others, one CPU,
/// one list; how many of `pages` pages it keeps when it has been idle often enough.
fn kept(rules: Rules, low: u32, high: u32, pages: usize) -> usize {
    let run = |start, frames, class| MemoryRun { start: Pfn(start), frames, node: NodeId(0), class };
    let runs = [run(1, low, ZoneClass::Low), run(1 + low, high, ZoneClass::High)];
    // Leaked: the test is short. Only low frames have memory behind them.
    let memory = |bytes: usize| Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice());
    let bytes = Frames::bytes(&MemorySize::of(runs)) + Historic::<DirectMap, NoConstruct>::bytes(1);
    let base = NonNull::new(memory(bytes).as_mut_ptr().cast()).expect("a box is somewhere");
    // SAFETY: 1. leaked just now: valid for ever, and nobody else has it.
    let mut boot = unsafe { BootMemory::new(base, bytes) };
    // SAFETY: 1. only low frames are used, which lie in a block of their own. 2. the identity is
    // new.
    let frames = unsafe { Frames::new(&mut boot, MachineId::new(), &runs) };
    let frames = frames.expect("`bytes` says how much is needed");
    let limit = (low as usize + 1) * FRAME_SIZE;
    // SAFETY: 1. frames 1 to `low`, the only ones that tables are made of, lie in the block. 2.
    // leaked just now.
    let window = unsafe { DirectMap::new(memory(limit).as_mut_ptr().cast(), limit as u64) };
    let window = window.expect("a block of memory ends below the highest address");
    // SAFETY: 1. low memory is frames 1 to `low`, which lie in the block. 2. no page is
    // constructed. 3. the layout is the format's own. 4. no tree is made.
    let source = unsafe { Source::new(&frames, window, NoConstruct, X86_64::LAYOUT) };
    // SAFETY: 1. no tree is made.
    let policy = unsafe { Historic::new(&mut boot, rules, &[NodeId(0)], 1, source) }
        .expect("`bytes` says how much is needed");
    // SAFETY: 1. this thread is the machine's only CPU. 2. the policy was made for one.
    let pin = unsafe { Pinned::assume(frames.machine(), CpuId(0), NodeId(0)) };
    let taken: Vec<Clean> =
        (0..pages).map(|_| policy.at(&pin).alloc(PTE, AllocFlags::NORMAL).unwrap()).collect();
    taken.into_iter().for_each(|page| policy.at(&pin).free_unlinked(page));
    for _ in 0..pages {
        let before = policy.counts().cached();
        policy.at(&pin).idle();
        assert!(before - policy.counts().cached() <= 16, "more than 16 in one call");
    }
    let cached = policy.counts().cached();
    assert_eq!(frames.node_free(NodeId(0)) as usize + cached, low as usize);
    policy.at(&pin).drain();
    cached
}

#[test]
fn high_memory_lets_only_the_2007_patch_eat_low_memory() {
    // Of 1,024 low frames 600 are listed; high memory is plenty.
    assert_eq!(kept(Rules::V5, 1024, 1 << 16, 600), 600);
    for rules in [Rules::LINUX_2_6_24, Rules::V2008] {
        let kept = kept(rules, 1024, 1 << 16, 600);
        // The last trim went down to the cap as it was before that trim.
        let cap = (1024 - kept) / 16;
        assert!((cap - 1..=cap).contains(&kept), "{kept} pages kept, a sixteenth of what is free is {cap}");
    }
}

#[test]
fn what_is_freed_on_a_foreign_node_stays_there_since_2008() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).unwrap();
    let cpus = host.slots();
    for (policy, stays) in [
        (common::historic(&host, Rules::V5, 1).unwrap(), false),
        (common::historic(&host, Rules::V2008, 1).unwrap(), true),
    ] {
        let page = policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap();
        let at = page.addr();
        give_back(&policy, &cpus[1], page);
        assert_eq!(policy.counts().cached(), usize::from(stays));
        if stays {
            let again = policy.at(&cpus[1].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap();
            assert_eq!(again.addr(), at, "a table of node 1 made of node 0's memory");
            give_back(&policy, &cpus[1], again);
        }
        policy.at(&cpus[1].pin()).drain();
    }
    host.audit().unwrap();
}

#[test]
fn counts_of_a_moment_never_say_that_less_than_no_page_rests() {
    // A CPU has counted a page that it gave back, and not yet the free before it.
    let mut counts = PolicyCounts::default();
    (counts.levels[0].allocs, counts.levels[0].misses, counts.levels[0].returns) = (1, 1, 1);
    assert_eq!((counts.cached(), counts.levels[0].cached()), (0, 0));
    assert_eq!(counts.cached_bytes(&X86_64::LAYOUT), 0);
}

#[test]
fn counts_are_kept_by_cpu_level_node_and_state() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).unwrap();
    let policy = host.quicklists_with(lists(2, 8, 4)).unwrap();
    let cpus = host.slots();
    let pages: Vec<Clean> =
        (0..40).map(|_| policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap()).collect();
    let top = policy.at(&cpus[1].pin()).alloc(ROOT, AllocFlags::NORMAL).unwrap();
    let on = |cpu: u16, level: Level| policy.counts_on(CpuId(cpu)).levels[level.at()];
    assert_eq!((on(0, PTE).allocs, on(1, PTE).allocs), (40, 0));
    assert_eq!((on(0, ROOT).allocs, on(1, ROOT).allocs), (0, 1));
    let [home, away] = [NodeId(0), NodeId(1)].map(|node| policy.node_counts(node));
    assert_eq!((home.pages, home.roots), (40, 0));
    assert_eq!((away.pages, away.roots), (0, 1));
    // Freed on the other node, all of them come home, where they wait for a CPU of the node.
    for page in pages {
        give_back(&policy, &cpus[1], page);
    }
    let home = policy.node_counts(NodeId(0));
    assert_eq!((home.pages, home.remote_returns, home.depot_zero, home.depot_roots), (40, 40, 0, 0));
    assert!(home.remote_returns <= home.budget);
    let first = policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).unwrap();
    assert!(policy.node_counts(NodeId(0)).remote_returns < 40, "it takes a magazine of them");
    give_back(&policy, &cpus[0], first);
    assert_eq!(on(1, PTE).frees, 40);
    give_back(&policy, &cpus[1], top);
    assert_eq!(policy.counts_on(CpuId(9)), Default::default(), "no such CPU, nothing counted");
    for cpu in &cpus {
        policy.at(&cpu.pin()).drain();
    }
    for node in [NodeId(0), NodeId(1)] {
        policy.at(&cpus[0].pin()).reclaim(node, u32::MAX);
        let left = policy.node_counts(node);
        assert_eq!((left.pages, left.roots, left.depot_zero, left.depot_roots), (0, 0, 0, 0));
    }
    host.audit().unwrap();
}

/// A host of 4 MiB nodes with lists, for the calls that move pages because of time.
fn keeping(nodes: usize, keep: u32) -> (Host<X86_64>, ListsConfig) {
    let host = Host::new(small(2, nodes, 16)).expect("host");
    (host, ListsConfig { fixed_budget: Some(keep), ..lists(2, 16, 16) })
}

/// Takes `n` tables on a CPU and gives them all back.
fn fill_up<P: Policy>(policy: &P, cpu: &CpuSlot, n: usize) {
    let pages: Vec<_> = (0..n)
        .map(|_| policy.at(&cpu.pin()).alloc(PTE, AllocFlags::NORMAL).expect("there is room"))
        .collect();
    pages.into_iter().for_each(|page| give_back(policy, cpu, page));
}

#[test]
fn one_cpu_has_large_magazines_and_several_scale_to_the_depot() {
    let host = Host::<X86_64>::new(small(4, 1, 64)).expect("host");
    let policy = host.quicklists_with(lists(4, 64, 4)).expect("policy");
    let cpus = host.slots();
    let size = || policy.node_counts(NodeId(0)).magazine_zero;
    fill_up(&policy, &cpus[0], 512);
    assert_eq!(size(), 64, "a CPU is alone");
    for cpu in &cpus[1..] {
        fill_up(&policy, cpu, 8);
    }
    let in_depot = || policy.in_depots(NodeId(0));
    assert!(size() > 4 && size() * 2 * 3 <= in_depot(), "{} for {}", size(), in_depot());
    // As the depot runs low they become small.
    let mut out = Vec::new();
    while in_depot() > 16 {
        out.push(policy.at(&cpus[1].pin()).alloc(PTE, AllocFlags::NORMAL).expect("there is room"));
    }
    let little = policy.node_counts(NodeId(0)).pages / (16 * 4);
    assert!(size() <= little, "{} for {}", size(), in_depot());
    out.into_iter().for_each(|page| give_back(&policy, &cpus[1], page));
    // Those that give up all they have take no part any more, as often as they like.
    for cpu in cpus[1..].iter().chain(&cpus[1..]) {
        policy.at(&cpu.pin()).drain();
    }
    assert_eq!(size(), 64);
}

/// Has a CPU respond to its node: a gather ends, or the CPU is idle.
fn respond<P: Policy>(policy: &P, cpu: &CpuSlot, idles: bool) {
    let pin = cpu.pin();
    if idles { policy.at(&pin).idle() } else { policy.at(&pin).gather_end() }
}

#[test]
fn a_cpu_that_runs_short_gets_anothers_surplus_at_a_gather_end() {
    gives_to_a_cpu_that_runs_short(false);
}

#[test]
fn an_idle_cpu_gives_to_one_that_runs_short() {
    gives_to_a_cpu_that_runs_short(true);
}

fn gives_to_a_cpu_that_runs_short(idles: bool) {
    let host = Host::<X86_64>::new(small(2, 1, 64)).expect("host");
    let policy = host.quicklists_with(lists(2, 64, 4)).expect("policy");
    let cpus = host.slots();
    let take = |cpu: &CpuSlot| policy.at(&cpu.pin()).alloc(PTE, AllocFlags::NORMAL).expect("there is room");
    let misses = || policy.counts().levels[0].misses;
    let in_depot = || policy.in_depots(NodeId(0));
    // Both have pages at hand, as many as there are while the depot has plenty.
    fill_up(&policy, &cpus[0], 600);
    fill_up(&policy, &cpus[1], 16);
    fill_up(&policy, &cpus[0], 600);
    respond(&policy, &cpus[0], idles);
    let before = misses();
    let mut out = Vec::new();
    while misses() == before {
        out.push(take(&cpus[1]));
    }
    assert_eq!(in_depot(), 0);
    respond(&policy, &cpus[0], idles);
    let left = in_depot();
    assert!(left > 0, "nothing was left to the depot");
    // Nobody calls again before that is used up, and nobody leaves more.
    respond(&policy, &cpus[0], idles);
    assert_eq!(in_depot(), left);
    let before = misses();
    out.extend((0..left + 3).map(|_| take(&cpus[1])));
    assert_eq!(misses(), before, "the last miss brought three more");
    out.into_iter().for_each(|page| give_back(&policy, &cpus[1], page));
}

#[test]
fn a_cpu_above_its_part_leaves_it_to_others_at_a_gather_end() {
    let host = Host::<X86_64>::new(small(4, 1, 64)).expect("host");
    let policy = host.quicklists_with(lists(4, 64, 4)).expect("policy");
    let cpus = host.slots();
    fill_up(&policy, &cpus[0], 200);
    let mut others = Vec::new();
    for cpu in &cpus[1..] {
        others.extend(
            (0..8).map(|_| policy.at(&cpu.pin()).alloc(PTE, AllocFlags::NORMAL).expect("there is room")),
        );
    }
    let misses = |policy: &dyn Policy| policy.counts().levels[0].misses;
    let before = (misses(&policy), policy.in_depots(NodeId(0)));
    policy.at(&cpus[0].pin()).gather_end();
    assert!(policy.in_depots(NodeId(0)) > before.1, "nothing came into the depot");
    // So others need not go to the allocator for as many.
    let more = policy.in_depots(NodeId(0));
    others.extend(
        (0..more).map(|_| policy.at(&cpus[1].pin()).alloc(PTE, AllocFlags::NORMAL).expect("there is room")),
    );
    assert_eq!(misses(&policy), before.0);
    others.into_iter().for_each(|page| give_back(&policy, &cpus[1], page));
}

#[test]
fn who_may_keep_any_number_of_pages_keeps_them() {
    let host = Host::<X86_64>::new(small(1, 1, 64)).expect("host");
    let policy = host
        .quicklists_with(ListsConfig { fixed_budget: Some(u32::MAX), ..lists(1, 16, 4) })
        .expect("policy");
    fill_up(&policy, &host.slots()[0], 512);
    assert_eq!(policy.counts().cached(), 512);
}

#[test]
fn pages_handed_over_serve_another_cpu() {
    let (host, config) = keeping(1, 400);
    let policy = host.quicklists_with(config).expect("lists");
    let cpus = host.slots();
    let pages: Vec<Clean> =
        (0..20).map(|_| policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).expect("page")).collect();
    pages.into_iter().for_each(|page| give_back(&policy, &cpus[0], page));
    let misses = policy.counts().levels[0].misses;
    assert!(policy.at(&cpus[0].pin()).at_hand(PTE).map(|page| give_back(&policy, &cpus[0], page)).is_some());
    policy.at(&cpus[0].pin()).hand_over();
    assert!(policy.at(&cpus[0].pin()).at_hand(PTE).is_none(), "nothing is left behind");
    assert_eq!(policy.in_depots(NodeId(0)) as usize, policy.counts().cached());
    for _ in 0..20 {
        give_back(&policy, &cpus[1], policy.at(&cpus[1].pin()).alloc(PTE, AllocFlags::NORMAL).expect("page"));
    }
    assert_eq!(policy.counts().levels[0].misses, misses, "the other CPU lives on them");
}

#[test]
fn what_a_cpu_hands_over_goes_to_the_node_that_it_is_of() {
    let (host, config) = keeping(2, 400);
    let policy = host.quicklists_with(config).expect("lists");
    let cpus = host.slots();
    fill_up(&policy, &cpus[0], 20);
    let before = policy.in_depots(NodeId(0));
    // The CPU is on another node by now.
    // SAFETY: 1. nobody else uses the slot of this CPU meanwhile. 2. the lists were made for it.
    policy.at(&unsafe { Pinned::assume(host.machine(), CpuId(0), NodeId(1)) }).hand_over();
    assert_eq!(policy.in_depots(NodeId(1)), 0);
    assert!(policy.in_depots(NodeId(0)) > before);
    assert_eq!(policy.in_depots(NodeId(0)) as usize, policy.counts().cached());
}

#[test]
fn the_idle_pages_of_a_depot_are_known_and_the_oldest_go_first() {
    let (host, config) = keeping(1, 400);
    let policy = host.quicklists_with(config).expect("lists");
    let cpus = host.slots();
    let pin = || cpus[0].pin();
    let node = NodeId(0);
    let put = |n: usize| {
        let pages: Vec<Clean> =
            (0..n).map(|_| policy.at(&pin()).alloc(PTE, AllocFlags::NORMAL).expect("page")).collect();
        pages.into_iter().for_each(|page| give_back(&policy, &cpus[0], page));
        policy.at(&pin()).hand_over();
    };
    put(100);
    let all = policy.in_depots(node);
    assert!(all >= 100);
    assert_eq!(policy.unneeded(node), 0, "none of them was there all the time");
    put(30);
    assert_eq!(policy.in_depots(node), all, "the same pages again");
    let unneeded = policy.unneeded(node);
    assert!(unneeded >= all - 60 && unneeded <= all - 30, "{unneeded} of {all}: magazines move in whole");
    let newest = policy.at(&pin()).alloc(PTE, AllocFlags::NORMAL).expect("page");
    let at = newest.addr();
    give_back(&policy, &cpus[0], newest);
    policy.at(&pin()).hand_over();
    let free = host.frames().node_free(node);
    let mut left = unneeded;
    while left > 0 {
        let given = policy.at(&pin()).give_back_piece(node, &mut [0; 16][..left.min(16) as usize]);
        assert!((1..=16).contains(&given), "bounded, and not nothing");
        left -= given;
    }
    assert_eq!(host.frames().node_free(node), free + unneeded, "the allocator has them");
    assert_eq!(policy.in_depots(node), all - unneeded);
    let kept: Vec<Clean> = (0..all - unneeded)
        .map(|_| policy.at(&pin()).alloc(PTE, AllocFlags::NORMAL).expect("page"))
        .collect();
    assert!(kept.iter().any(|page| page.addr() == at), "what was used last is still there");
    kept.into_iter().for_each(|page| give_back(&policy, &cpus[0], page));
}
