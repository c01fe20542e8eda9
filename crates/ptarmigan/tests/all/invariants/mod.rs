//! The invariants I1 to I10 of quicklists, each a check and a test of its own: the same random
//! calls by any number of CPUs on any number of nodes, with magazines and budgets of any size, CPUs
//! that come and go, and memory that runs short.
//!
//! * I1 Each frame is in one place: free, in use, at rest at a CPU or in a depot; the sum is the
//!   number of frames taken.
//! * I2 A page that is handed out is in its state, bit for bit.
//! * I3 No page is used again before the flush has reached every CPU that could walk it, lazy ones
//!   too.
//! * I4 No page rests at a CPU of another node than its own.
//! * I5 Cached pages of a node are within its budget, magazines included.
//! * I6 No call trims more than 16 pages.
//! * I7 Pages handed out are hits and misses; those in use are handed out less taken back; all CPUs
//!   together are exact.
//! * I8 A CPU that is offline holds no page.
//! * I9 Tables are the same with and without lists.
//! * I10 Constructed tops show the kernel map as it is.
//!
//! `cargo xtask mistakes --list invariants` makes a mistake against each of them, which its test
//! must notice.
use crate::common;
mod run;
use common::world::World;
use common::{At, Pages, Watch, scan, small, watched};
use fastrand::Rng;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::CpuId;
use ptarmigan::format::{Format, FormatExt, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use ptarmigan_hosted::Host;
use run::{Case, LEVELS, Lists, Op, ROOT, Run, SPACES, Subject, case};
use std::collections::HashSet;

/// Pages given back in one call (I6).
const BOUND: usize = 16;

// --- The checks: conditions after every step
// -------------------------------------------------------------------

/// I1. Of each node: the lists know every taken frame; no page is handed out twice.
fn each_frame_is_in_one_place(run: &Run<'_, Lists<'_>>) {
    let used = run.used();
    let distinct: HashSet<PhysAddr> = used.iter().map(|(_, at)| *at).collect();
    assert_eq!(distinct.len(), used.len(), "I1: a page is in use twice");
    for node in run.nodes() {
        let counts = run.lists().node_counts(node);
        let known = (counts.pages + counts.roots) as usize;
        assert_eq!(run.taken(node), known, "I1: frames of node {} that nobody knows of", node.0);
        assert!(run.on(node, &used) <= known, "I1: in use on node {}, and free", node.0);
    }
}

/// I1, in the end. A frame that is neither in a magazine nor in a depot nor in use is free.
fn nothing_is_anywhere_else(run: &mut Run<'_, Lists<'_>>) {
    for cpu in 0..run.slots.len() {
        let found = run.empty(cpu);
        run.out.extend(found);
    }
    let pin = run.slots[0].pin();
    run.nodes().for_each(|node| {
        run.lists().at(&pin).reclaim(node, u32::MAX);
    });
    let used = run.used();
    let distinct: HashSet<PhysAddr> = used.iter().map(|(_, at)| *at).collect();
    assert_eq!(distinct.len(), used.len(), "I1: a page rested twice, or in use");
    for node in run.nodes() {
        assert_eq!(run.taken(node), run.on(node, &used), "I1: frames of node {} are lost", node.0);
    }
}

/// I2. A page that has just been handed out is zero; of roots the user's half.
fn what_is_handed_out_is_clean(run: &Run<'_, Lists<'_>>) {
    if let Some((level, at)) = run.out.last() {
        let bytes = if *level == ROOT { 8 * X86_64::USER_ROOT_ENTRIES as u64 } else { 4096 };
        for offset in (0..bytes).step_by(8) {
            // SAFETY: 1. no other thread is at work on the host.
            let word = unsafe { run.host.read(PhysAddr(at.0 + offset), 8) };
            assert_eq!(word, Some(0), "I2: byte {offset} of {at}");
        }
    }
}

/// I4. Pages that rest at a CPU are of its node.
fn cpus_keep_pages_of_their_node(run: &Run<'_, Lists<'_>>) {
    for cpu in 0..run.slots.len() {
        let found = run.empty(cpu);
        let node = run.slots[cpu].node();
        for (_, at) in &found {
            assert_eq!(run.host.frames().node_of(at.pfn()), node, "I4: {at} rests at CPU {cpu}");
        }
        run.refill(cpu, found);
    }
}

/// I5. Cached pages are within the budget, magazines included.
fn what_rests_is_within_the_budget(run: &Run<'_, Lists<'_>>) {
    let used = run.used();
    for node in run.nodes() {
        let rests = run.taken(node) - run.on(node, &used);
        let share = run.host.frames().node_frames(node) / run.case.share;
        let budget = run.case.keep.unwrap_or(share) as usize;
        assert!(rests <= budget, "I5: {rests} pages of node {} rest, its budget is {budget}", node.0);
    }
}

/// I7. Counts equal the pages.
fn counts_are_exact(run: &Run<'_, Lists<'_>>) {
    let counts = run.lists().counts();
    let used = run.used();
    for level in 0..LEVELS {
        let here = used.iter().filter(|(l, _)| l.at() == level).count();
        assert_eq!(counts.levels[level].live(), here, "I7: pages of level {level} in use");
    }
    let taken: usize = run.nodes().map(|node| run.taken(node)).sum();
    assert_eq!(counts.cached() + counts.live(), taken, "I7: misses less returns, and frames taken");
    let mut by_cpu = 0usize;
    for cpu in 0..run.slots.len() {
        by_cpu = by_cpu.wrapping_add(run.lists().counts_on(CpuId(cpu as u16)).live());
    }
    assert_eq!(by_cpu, used.len(), "I7: all CPUs together");
}

/// I8. A CPU that is offline holds no page.
fn offline_cpus_hold_nothing(run: &Run<'_, Lists<'_>>) {
    for cpu in (0..run.slots.len()).filter(|cpu| !run.online[*cpu]) {
        assert_eq!(run.empty(cpu), [], "I8: CPU {cpu} is offline");
    }
}

/// I10. Every root in use, the one just handed out first of all, shows the kernel map as it is.
fn tops_show_the_kernel_map(run: &Run<'_, Lists<'_>>) {
    for (_, at) in run.used().iter().filter(|(level, _)| *level == ROOT) {
        for index in X86_64::USER_ROOT_ENTRIES..X86_64::entries(ROOT) {
            // SAFETY: 1. no other thread is at work on the host.
            let entry = unsafe { run.host.read(PhysAddr(at.0 + 8 * index as u64), 8) };
            assert_eq!(entry, run.host.kernel().get(index), "I10: entry {index} of the root at {at}");
        }
    }
}

/// Makes the calls of `case`, and after each of them the check.
fn check(case: &Case, dirty: bool, check: impl Fn(&Run<'_, Lists<'_>>)) {
    all_of(case, dirty, check, |_| ());
}

fn all_of(
    case: &Case,
    dirty: bool,
    check: impl Fn(&Run<'_, Lists<'_>>),
    end: impl Fn(&mut Run<'_, Lists<'_>>),
) {
    let host = case.host();
    let policy = host.quicklists_with(case.config()).expect("lists");
    let mut run = Run::new(&host, case, policy);
    run.dirty = dirty;
    for (cpu, op) in &case.ops {
        let _ = run.step(*cpu, op);
        check(&run);
    }
    end(&mut run);
    // The remaining pages are the machine's, which ends.
    let pin = run.slots[0].pin();
    for tree in run.spaces.iter_mut().filter_map(Option::take) {
        tree.end(run.m.on(&pin).expect("its CPU"), |_, _, _| ()).expect("its tree");
    }
    run.held.drain(..).for_each(|frame| host.frames().give(frame));
}

/// Returns the mappings of the spaces of `case` now and then on a policy, and the results of calls.
fn looks<P: Subject>(host: &Host<X86_64>, case: &Case, policy: P) -> Vec<(Pages, Vec<u32>, bool)> {
    let mut run = Run::new(host, case, policy);
    let mut looks = Vec::new();
    for (cpu, op) in &case.ops {
        // With memory short they may well differ.
        if matches!(op, Op::Press(_)) {
            continue;
        }
        let told = run.step(*cpu, op).is_ok();
        let pin = run.slots[0].pin();
        let on = run.m.on(&pin).expect("its CPU");
        for tree in run.spaces.iter().flatten() {
            let tables = (0..LEVELS).map(|level| tree.count(Level(level as u8))).collect();
            looks.push((scan(host, on, tree.view()), tables, told));
        }
    }
    for which in 0..SPACES {
        let _ = run.step(0, &Op::End(which as u8));
    }
    looks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn i1_each_frame_is_in_one_place(case in case()) {
        all_of(&case, false, each_frame_is_in_one_place, nothing_is_anywhere_else);
    }

    #[test]
    fn i2_what_is_handed_out_is_clean(case in case()) {
        check(&case, true, what_is_handed_out_is_clean);
    }

    #[test]
    fn i4_what_rests_at_a_cpu_is_of_its_node(case in case()) {
        check(&case, false, cpus_keep_pages_of_their_node);
    }

    #[test]
    fn i5_what_rests_is_within_the_budget(case in case()) {
        check(&case, false, what_rests_is_within_the_budget);
    }

    #[test]
    fn i6_a_call_gives_back_a_bounded_number(case in case()) {
        let host = case.host();
        let mut run = Run::new(&host, &case, host.quicklists_with(case.config()).expect("lists"));
        for (cpu, op) in &case.ops {
            let (before, used) = (run.returns(), run.used().len());
            let _ = run.step(*cpu, op);
            let (given, less) = (run.returns() - before, used.saturating_sub(run.used().len()));
            // Each page of a chain may find no room; beyond that a call trims.
            let bound = match op {
                Op::Alloc(_) | Op::Map(..) | Op::Reclaim(..) | Op::Offline => continue,
                Op::Unused(_) | Op::Kernel(..) | Op::Online | Op::Press(_) | Op::Relieve => less,
                Op::Unmap(..) | Op::End(_) => less + BOUND,
                Op::Idle | Op::Age => BOUND,
            };
            prop_assert!(given <= bound, "I6: {given} pages in one call, {op:?}");
        }
    }

    #[test]
    fn i7_counts_are_exact(case in case()) {
        check(&case, false, counts_are_exact);
    }

    #[test]
    fn i8_a_cpu_that_is_offline_holds_nothing(case in case()) {
        check(&case, false, offline_cpus_hold_nothing);
    }

    #[test]
    fn i9_tables_are_the_same_with_and_without_lists(case in case()) {
        let (plain, cached) = (case.host(), case.host());
        let without = looks(&plain, &case, plain.plain().expect("plain"));
        let with = looks(&cached, &case, cached.quicklists_with(case.config()).expect("lists"));
        prop_assert_eq!(without.len(), with.len(), "I9: spaces");
        for (one, other) in without.iter().zip(&with) {
            prop_assert_eq!(one, other, "I9: content");
        }
    }

    #[test]
    fn i10_tops_show_the_kernel_map(case in case()) {
        check(&case, false, tops_show_the_kernel_map);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, rng_seed: RngSeed::Fixed(3), ..ProptestConfig::default() })]

    /// I3. Spaces are used, left lazily and taken down under the sanitizer's eyes, whose CPUs
    /// forget exactly the requested translations.
    #[test]
    fn i3_no_page_is_used_again_before_the_flush(case in case(), seed in any::<u64>()) {
        let host = Host::<X86_64>::new(small(case.cpus, case.nodes, 32)).expect("host");
        let watch = Watch::new(&host);
        let m = watched(&watch, host.quicklists_with(case.config()).expect("lists"));
        let slots = host.slots();
        let mut world = World::new(&watch, &m, &slots, Rng::with_seed(seed).u64(..), false, true);
        world.run(300);
        world.end();
        prop_assert_eq!(watch.total(), 0, "I3: {}", watch.report());
    }
}
