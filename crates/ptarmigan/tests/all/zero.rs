//! Frames that are known to be zero: under random traffic, cleared ahead in idle time, and found by
//! faults.
use crate::physical;
use fastrand::Rng;
use physical::{any_frame, assert_zero, clear, give_last, poke, refill, refill_data, small};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::format::X86_64;
use ptarmigan::frames::*;
use ptarmigan::machine::Machine;
use ptarmigan::space::{Access, AreaFlags, Done, Space};
use ptarmigan::window::{DirectMap, Window};
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};

const NODE: NodeId = NodeId(0);

fn zero(order: u8) -> Request {
    Request { order, zero: true, ..any_frame(0) }
}

/// Asks for `n` zero frames, which makes demand for as many, and gives them back of unknown
/// content.
fn ask(frames: &Frames, n: usize) {
    let taken: Vec<_> = (0..n).map_while(|_| frames.take(zero(0)).ok()).collect();
    taken.into_iter().for_each(|taken| frames.give(taken.dirty()));
}

fn order_of(taken: &Taken) -> u8 {
    match taken {
        Taken::Zero(frame) => frame.order(),
        Taken::Dirty(frame) => frame.order(),
    }
}

/// All blocks that can be had, the largest first: the structure of the free lists.
fn blocks(frames: &Frames) -> HashSet<(u8, u32)> {
    let mut held = Vec::new();
    for order in (0..ORDERS as u8).rev() {
        while let Ok(taken) = frames.take(Request { order, flags: AllocFlags::URGENT, ..any_frame(0) }) {
            held.push(taken);
        }
    }
    held.into_iter()
        .map(|taken| match taken {
            Taken::Zero(frame) => (frame.order(), frame.pfn().0, frames.give(frame)),
            Taken::Dirty(frame) => (frame.order(), frame.pfn().0, frames.give(frame)),
        })
        .map(|(order, pfn, ())| (order, pfn))
        .collect()
}

/// A window that calls a function whenever a frame is about to be reached, as an interrupt or
/// another CPU may act between the steps of a refill.
struct Between<'a> {
    inner: DirectMap,
    hook: &'a (dyn Fn() + Sync),
}

// SAFETY: it is the direct map, of which it passes the promises on.
unsafe impl Window for Between<'_> {
    type Guard<'a>
        = <DirectMap as Window>::Guard<'a>
    where
        Self: 'a;
    type Error = Infallible;

    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Infallible> {
        (self.hook)();
        self.inner.map(at)
    }
}

/// Soils every frame of a block.
fn soil(host: &Host<X86_64>, pfn: Pfn, order: u8) {
    for i in 0..1u64 << order {
        poke(host, pfn.addr().0 + i * FRAME_SIZE as u64 + 8 * (i * 37 % 512), !0);
    }
}

fn assert_all_zero(host: &Host<X86_64>, pfn: Pfn, order: u8) {
    for i in 0..1u64 << order {
        assert_zero(host, PhysAddr(pfn.addr().0 + i * FRAME_SIZE as u64));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take { node: u8, order: u8, zero: bool, root: bool },
    Give { which: usize },
    Refill { node: u8, budget: u32 },
    TakeData { cpu: usize, zero: bool },
    GiveData { cpu: usize, which: usize },
    RefillData { cpu: usize, budget: u32 },
    Drain { cpu: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let order = prop_oneof![5 => Just(0u8), 3 => 1u8..5, 1 => 5u8..10];
    let step = prop_oneof![
        6 => (0u8..2, order, any::<bool>(), any::<bool>())
            .prop_map(|(node, order, zero, root)| Step::Take { node, order, zero, root }),
        5 => any::<usize>().prop_map(|which| Step::Give { which }),
        3 => (0u8..2, 0u32..100).prop_map(|(node, budget)| Step::Refill { node, budget }),
        8 => (0usize..2, any::<bool>()).prop_map(|(cpu, zero)| Step::TakeData { cpu, zero }),
        7 => (0usize..2, any::<usize>()).prop_map(|(cpu, which)| Step::GiveData { cpu, which }),
        2 => (0usize..2, 0u32..40).prop_map(|(cpu, budget)| Step::RefillData { cpu, budget }),
        1 => (0usize..2).prop_map(|cpu| Step::Drain { cpu }),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, rng_seed: RngSeed::Fixed(41), ..ProptestConfig::default() })]

    #[test]
    fn what_is_handed_out_as_zero_is_zero_whatever_came_before(steps in steps()) {
        let host = Host::<X86_64>::new(small(2, 2, 8)).unwrap();
        let (frames, data, window) = (host.frames(), host.data(), host.window());
        let cpus = host.slots();
        let fresh = blocks(frames);
        let all = frames.counts().free as usize;
        let before = frames.zero_counts();
        let mut held: Vec<Taken> = Vec::new();
        let mut pages: Vec<DataFrame> = Vec::new();
        for step in steps {
            match step {
                Step::Take { node, order, zero, root } => {
                    let end = if root { End::High } else { End::Low };
                    let Ok(taken) = frames.take(Request { order, zero, end, ..any_frame(node) }) else { continue };
                    match taken {
                        // Some are given back as they were, some soiled.
                        Taken::Zero(frame) if frame.pfn().0 % 3 == 0 => {
                            assert_all_zero(&host, frame.pfn(), order);
                            held.push(Taken::Zero(frame));
                        }
                        taken => {
                            if matches!(taken, Taken::Zero(_)) {
                                assert_all_zero(&host, taken.pfn(), order);
                            }
                            soil(&host, taken.pfn(), order);
                            held.push(Taken::Dirty(taken.dirty()));
                        }
                    }
                }
                Step::Give { which } => {
                    if !held.is_empty() {
                        match held.swap_remove(which % held.len()) {
                            Taken::Zero(frame) => frames.give(frame),
                            Taken::Dirty(frame) => frames.give(frame),
                        }
                    }
                }
                Step::Refill { node, budget } => {
                    let counts = frames.counts();
                    let made = refill(frames, NodeId(node), budget, &window);
                    prop_assert!(made <= budget, "{} of {}", made, budget);
                    let after = FrameCounts { zero: counts.zero + made, ..counts };
                    prop_assert_eq!(frames.counts(), after, "nothing but zero frames changes");
                }
                Step::TakeData { cpu, zero } => {
                    let pin = cpus[cpu].pin();
                    let taken = if zero {
                        data.take_zero(frames, &pin, AllocFlags::NORMAL)
                    } else {
                        data.take(frames, &pin, AllocFlags::NORMAL).map(|frame| (frame, false))
                    };
                    if let Ok((frame, is_zero)) = taken {
                        let pfn = frame.pfn();
                        if is_zero {
                            assert_all_zero(&host, pfn, 0);
                        }
                        prop_assert!(!pages.iter().any(|page| page.pfn() == pfn), "{} handed out twice", pfn);
                        soil(&host, pfn, 0);
                        pages.push(frame);
                    }
                }
                Step::GiveData { cpu, which } => {
                    if !pages.is_empty() {
                        give_last(data, frames, &cpus[cpu].pin(), pages.swap_remove(which % pages.len()));
                    }
                }
                Step::RefillData { cpu, budget } => {
                    let free = frames.counts().free;
                    prop_assert!(refill_data(data, frames, &cpus[cpu].pin(), budget, &window) <= budget);
                    prop_assert_eq!(frames.counts().free, free);
                }
                Step::Drain { cpu } => {
                    data.drain(frames, &cpus[cpu].pin());
                }
            }
        }
        let counts = frames.zero_counts();
        prop_assert!(counts.found <= counts.asked && before.asked <= counts.asked);
        let blocks_held: usize = held.iter().map(|taken| 1usize << order_of(taken)).sum();
        let found = frames.counts().free as usize + data.resting() + pages.len() + blocks_held;
        prop_assert_eq!(found, all, "free frames, resting ones and those in use add up");
        for taken in held {
            match taken {
                Taken::Zero(frame) => frames.give(frame),
                Taken::Dirty(frame) => frames.give(frame),
            }
        }
        for frame in pages {
            give_last(data, frames, &cpus[0].pin(), frame);
        }
        cpus.iter().for_each(|cpu| { data.drain(frames, &cpu.pin()); });
        prop_assert_eq!(blocks(frames), fresh, "all memory merges to what it was");
        prop_assert_eq!(host.audit(), Ok(()));
    }
}

#[test]
fn zero_frames_in_a_block_are_found_although_others_are_dirty() {
    let host = Host::<X86_64>::new(small(1, 1, 32)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    // Two blocks that cannot merge with each other: one with a zero frame in its middle goes first,
    // so that the dirty one is at the end of the list that is looked at.
    let mut taken: Vec<_> =
        (0..2).map(|_| frames.take(Request { order: 10, ..any_frame(0) }).unwrap()).collect();
    let rest: Vec<_> =
        std::iter::from_fn(|| frames.take(Request { order: 0, ..any_frame(0) }).ok()).collect();
    let clean = clear(taken.remove(0).dirty(), &window);
    frames.give(clean);
    // Soil all of it but one frame.
    let mut parts: Vec<_> = (0..1024).map(|_| frames.take(zero(0)).unwrap()).collect();
    let kept = match parts.swap_remove(500) {
        Taken::Zero(frame) => frame,
        Taken::Dirty(_) => panic!("all of the block is known to be zero"),
    };
    let pfn = kept.pfn();
    parts.into_iter().for_each(|part| frames.give(part.dirty()));
    frames.give(kept);
    frames.give(taken.remove(0).dirty());
    for end in [End::Low, End::High] {
        let found = frames.take(Request { end, ..zero(0) }).unwrap();
        assert!(matches!(found, Taken::Zero(_)) && found.pfn() == pfn, "from the {end:?}: {}", found.pfn());
        let Taken::Zero(found) = found else { continue };
        frames.give(found);
        // A caller that does not want zeros gets another one.
        let other = frames.take(Request { end, ..any_frame(0) }).unwrap();
        assert!(matches!(other, Taken::Dirty(_)), "from the {end:?}");
        frames.give(other.dirty());
    }
    // If only the mixed block is left, they get its dirty frames.
    let dirty = frames.take(Request { order: 10, ..any_frame(0) }).unwrap();
    let urgent = Request { flags: AllocFlags::URGENT, ..any_frame(0) };
    let others: Vec<_> = (0..1000).map(|_| frames.take(urgent).unwrap()).collect();
    assert!(others.iter().all(|taken| matches!(taken, Taken::Dirty(_))));
    assert_eq!(frames.counts().zero, 1);
    others.into_iter().chain([dirty]).chain(rest).for_each(|taken| frames.give(taken.dirty()));
}

#[test]
fn as_many_are_cleared_as_were_asked_for_and_no_more() {
    let host = Host::<X86_64>::new(small(1, 1, 32)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    // The host has taken three zero frames for itself: that demand is met first.
    let own = frames.zero_counts().asked as u32;
    assert_eq!(refill(frames, NODE, 1000, &window), own);
    // Nobody asks for more.
    assert_eq!(refill(frames, NODE, 1000, &window), 0);
    ask(frames, 300);
    let mut made = Vec::new();
    loop {
        match refill(frames, NODE, 70, &window) {
            0 => break,
            n => made.push(n),
        }
    }
    assert_eq!(made, [70, 70, 70, 70, 20], "in portions of the budget");
    assert_eq!(frames.counts().zero, 300);
    // As many again find all they want, and make as much demand.
    let found = frames.zero_counts().found;
    ask(frames, 300);
    assert_eq!(frames.zero_counts().found, found + 300);
    assert_eq!(refill(frames, NODE, 1000, &window), 300);
    // Demand that has gone is forgotten.
    for _ in 0..100 {
        assert_eq!(refill(frames, NODE, 1000, &window), 0);
    }
    ask(frames, 10);
    assert_eq!(refill(frames, NODE, 1000, &window), 0, "290 are left, of which 10 are wanted");
    ask(frames, 290);
    assert_eq!(refill(frames, NODE, u32::MAX, &window), 290);
}

#[test]
fn zeros_that_went_to_others_are_not_cleared_again() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    refill(frames, NODE, u32::MAX, &window);
    ask(frames, 500);
    assert_eq!(refill(frames, NODE, u32::MAX, &window), 500);
    // As many are asked for again, and come back unused: that they should be ready is clear.
    let taken: Vec<_> = (0..500).map(|_| frames.take(zero(0)).unwrap()).collect();
    for taken in taken {
        let Taken::Zero(frame) = taken else { panic!("500 are zero") };
        frames.give(frame);
    }
    // All of memory goes to a caller that does not want zeros.
    let held: Vec<_> = std::iter::from_fn(|| frames.take(any_frame(0)).ok()).collect();
    let wasted = frames.zero_counts().wasted as u32;
    // But for the reserve.
    assert!(wasted > 300, "{wasted}");
    held.into_iter().for_each(|taken| frames.give(taken.dirty()));
    assert!(refill(frames, NODE, u32::MAX, &window) <= 500 - wasted);
}

#[test]
fn the_node_asked_for_is_the_one_that_is_filled() {
    let host = Host::<X86_64>::new(small(2, 2, 32)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    refill(frames, NodeId(0), u32::MAX, &window);
    let before = frames.counts().zero;
    let taken: Vec<_> =
        (0..100).map(|_| frames.take(Request { zero: true, ..any_frame(1) }).unwrap()).collect();
    taken.into_iter().for_each(|taken| frames.give(taken.dirty()));
    assert_eq!(refill(frames, NodeId(0), 1000, &window), 0);
    assert_eq!(refill(frames, NodeId(1), 1000, &window), 100);
    assert_eq!(frames.counts().zero, before + 100);
    let one = frames.take(Request { zero: true, ..any_frame(1) }).unwrap();
    assert!(matches!(&one, Taken::Zero(frame) if frames.node_of(frame.pfn()) == NodeId(1)));
    frames.give(one.dirty());
}

#[test]
fn blocks_of_any_size_are_cleared_in_pieces_and_merge_again() {
    let host = Host::<X86_64>::new(small(1, 1, 64)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    let fresh = blocks(frames);
    let huge = frames.take(zero(10)).unwrap();
    frames.give(huge.dirty());
    let total = frames.counts();
    let most = Mutex::new(0);
    let hook = || {
        let out = total.free - frames.counts().free;
        let mut most = most.lock().unwrap();
        *most = out.max(*most);
    };
    assert_eq!(refill(frames, NODE, 100, &Between { inner: window, hook: &hook }), 100);
    assert!((1..=16).contains(&*most.lock().unwrap()), "{} frames were out at once", most.lock().unwrap());
    while refill(frames, NODE, 100, &window) > 0 {}
    let counts = frames.zero_counts();
    assert!(counts.ahead <= counts.asked, "each frame asked for pays for one: {counts:?}");
    assert_eq!(blocks(frames), fresh);
    let huge = frames.take(zero(10)).unwrap();
    assert!(matches!(huge, Taken::Zero(_)), "the pieces make up whole blocks");
    assert_all_zero(&host, huge.pfn(), 10);
    frames.give(huge.dirty());
}

#[test]
fn the_last_block_of_the_largest_size_stays_whole() {
    let host = Host::<X86_64>::new(small(1, 1, 32)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    ask(frames, 1500);
    let big: Vec<_> =
        std::iter::from_fn(|| frames.take(Request { order: 10, ..any_frame(0) }).ok()).collect();
    assert!(big.len() > 2);
    let mut held: Vec<_> = big.into_iter().map(Taken::dirty).collect();
    frames.give(held.pop().unwrap());
    // It is the only block of its size, and more than the watermark.
    let hook = || {
        let whole = frames.take(Request { order: 10, ..any_frame(0) }).expect("it is there at any instant");
        match whole {
            Taken::Zero(frame) => frames.give(frame),
            Taken::Dirty(frame) => frames.give(frame),
        }
    };
    refill(frames, NODE, u32::MAX, &Between { inner: window, hook: &hook });
    hook();
    held.into_iter().for_each(|frame| frames.give(frame));
}

#[test]
fn the_reserve_is_untouched_and_ordinary_requests_still_succeed() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    let mut held: Vec<_> = std::iter::from_fn(|| frames.take(zero(0)).ok()).map(Taken::dirty).collect();
    let reserve = frames.counts().free;
    let high = reserve + reserve / 2;
    // Short of the watermark, no frame is cleared, however much is asked for.
    while frames.counts().free < high {
        assert_eq!(refill(frames, NODE, u32::MAX, &window), 0);
        frames.give(held.pop().unwrap());
    }
    (0..20).for_each(|_| frames.give(held.pop().unwrap()));
    // At every instant an ordinary request is served.
    let served = Mutex::new(0);
    let hook = || {
        assert!(
            frames.counts().free >= high,
            "{} frames, of which {high} have to stay",
            frames.counts().free
        );
        frames.give(frames.take(any_frame(0)).expect("above the reserve").dirty());
        *served.lock().unwrap() += 1;
    };
    let made = refill(frames, NODE, 50, &Between { inner: window, hook: &hook });
    assert!(made > 0 && *served.lock().unwrap() == made);
    held.into_iter().for_each(|frame| frames.give(frame));
    host.audit().unwrap();
}

#[test]
fn what_others_do_between_taking_and_giving_loses_nothing() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    let fresh = blocks(frames);
    ask(frames, 2000);
    let rng = Mutex::new(Rng::with_seed(7));
    let held: Mutex<Vec<Taken>> = Mutex::default();
    let hook = || {
        let (mut rng, mut held) = (rng.lock().unwrap(), held.lock().unwrap());
        for _ in 0..rng.u64(..4) {
            let order = rng.u8(..4);
            let zero = rng.bool();
            if let Ok(taken) = frames.take(Request { order, zero, flags: AllocFlags::URGENT, ..any_frame(0) })
            {
                if let Taken::Zero(frame) = &taken {
                    assert_all_zero(&host, frame.pfn(), order);
                }
                soil(&host, taken.pfn(), order);
                held.push(Taken::Dirty(taken.dirty()));
            }
            if rng.u64(..3) > 0 && !held.is_empty() {
                let at = rng.usize(..held.len());
                frames.give(held.swap_remove(at).dirty());
            }
        }
    };
    for _ in 0..30 {
        refill(frames, NODE, 100, &Between { inner: window, hook: &hook });
    }
    held.into_inner().unwrap().into_iter().for_each(|taken| frames.give(taken.dirty()));
    assert_eq!(blocks(frames), fresh);
    host.audit().unwrap();
}

#[test]
fn two_cpus_that_clear_at_once_do_not_clear_more_than_one_would() {
    let host = Host::<X86_64>::new(small(2, 1, 32)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    refill(frames, NODE, u32::MAX, &window);
    // These are soiled, the host's own demand too.
    ask(frames, 100);
    // The other one comes while this one has a piece in hand.
    let nested = Mutex::new(0);
    let hook = || *nested.lock().unwrap() += refill(frames, NODE, 3, &window);
    let made = refill(frames, NODE, u32::MAX, &Between { inner: window, hook: &hook });
    assert_eq!(made + *nested.lock().unwrap(), 100);
    assert!(*nested.lock().unwrap() > 0);
    // Not even if more have been asked for than are missing: 110, and there are 90.
    let taken: Vec<_> = (0..100).map(|_| frames.take(zero(0)).unwrap()).collect();
    for taken in taken {
        let Taken::Zero(frame) = taken else { panic!("100 are zero") };
        frames.give(frame);
    }
    ask(frames, 10);
    *nested.lock().unwrap() = 0;
    let made = refill(frames, NODE, u32::MAX, &Between { inner: window, hook: &hook });
    assert_eq!(made + *nested.lock().unwrap(), 20);
    host.audit().unwrap();
}

#[test]
fn cpus_clear_take_and_give_at_the_same_time() {
    let host = Host::<X86_64>::new(small(3, 1, 32)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    let fresh = blocks(frames);
    let (working, done) = (&Barrier::new(3), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                working.wait();
                while !done.load(Relaxed) {
                    refill(frames, NODE, 40, &window);
                }
            });
        }
        let host = &host;
        scope.spawn(move || {
            let mut rng = Rng::with_seed(3);
            let mut held = Vec::new();
            working.wait();
            for step in 0..50_000_000_u64 {
                // The others may come late, on a machine with other work.
                let counts = frames.zero_counts();
                if step > 20_000 && counts.ahead > 1000 && counts.found > 100 {
                    break;
                }
                if rng.bool() {
                    let order = rng.u8(..3);
                    if let Ok(taken) = frames.take(Request { zero: rng.u64(..3) > 0, order, ..any_frame(0) })
                    {
                        if let Taken::Zero(frame) = &taken {
                            assert_all_zero(host, frame.pfn(), order);
                        }
                        soil(host, taken.pfn(), order);
                        held.push(taken.dirty());
                    }
                } else if !held.is_empty() {
                    frames.give(held.swap_remove(rng.usize(..held.len())));
                }
            }
            held.into_iter().for_each(|frame| frames.give(frame));
            done.store(true, Relaxed);
        });
    });
    let counts = frames.zero_counts();
    assert!(counts.ahead > 0 && counts.found > 0, "{counts:?}");
    assert_eq!(blocks(frames), fresh);
    host.audit().unwrap();
}

/// Takes `n` data frames for pages that begin as zero, soils them and gives them back.
fn burst(host: &Host<X86_64>, pin: &Pinned<'_>, n: usize) -> usize {
    let (frames, data) = (host.frames(), host.data());
    let taken: Vec<_> = (0..n).map(|_| data.take_zero(frames, pin, AllocFlags::NORMAL).unwrap()).collect();
    let zero = taken.iter().filter(|(_, is_zero)| *is_zero).count();
    for (frame, is_zero) in &taken {
        if *is_zero {
            assert_all_zero(host, frame.pfn(), 0);
        }
        soil(host, frame.pfn(), 0);
    }
    for (frame, _) in taken {
        give_last(data, frames, pin, frame);
    }
    zero
}

#[test]
fn faults_find_as_many_zero_frames_as_the_last_ones_asked_for() {
    let host = Host::<X86_64>::new(small(1, 1, 256)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let (frames, data, window) = (host.frames(), host.data(), host.window());
    assert_eq!(refill_data(data, frames, &pin, 1000, &window), 0, "nobody has asked");
    assert_eq!(burst(&host, &pin, 100), 0);
    assert_eq!(refill_data(data, frames, &pin, 60, &window), 60, "within the budget");
    assert_eq!(refill_data(data, frames, &pin, 1000, &window), 40, "and within the demand");
    assert_eq!(refill_data(data, frames, &pin, 1000, &window), 0);
    assert_eq!(burst(&host, &pin, 100), 100);
    assert_eq!(refill_data(data, frames, &pin, 1000, &window), 100);
    // A caller that does not want zeros leaves them alone.
    let other = data.take(frames, &pin, AllocFlags::NORMAL).unwrap();
    give_last(data, frames, &pin, other);
    assert_eq!(burst(&host, &pin, 100), 100);
    let counts = data.zero_counts();
    assert_eq!((counts.asked, counts.found, counts.ahead, counts.wasted), (300, 200, 200, 0));
    // Frames that rest on the CPU go back in their state.
    refill_data(data, frames, &pin, 1000, &window);
    let known = frames.counts().zero;
    data.drain(frames, &pin);
    assert_eq!(frames.counts().zero, known + 100);
    host.audit().unwrap();
}

#[test]
fn zero_frames_count_towards_what_a_cpu_may_hold() {
    let host = Host::<X86_64>::new(small(1, 1, 64)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let (frames, data, window) = (host.frames(), host.data(), host.window());
    // 1/64 of 16,384 frames on the list and 1/32 behind it.
    let most = 256 + 512;
    let free = frames.counts().free;
    for round in 0..20 {
        burst(&host, &pin, 2000);
        refill_data(data, frames, &pin, u32::MAX, &window);
        let kept = free - frames.counts().free;
        assert!(kept <= most, "round {round}: {kept} frames are kept, {most} may be");
        let zero = data.zero_counts();
        assert!(
            zero.ahead > 0 && zero.ahead <= zero.found + 64,
            "a quarter of a list is zero at most: {zero:?}"
        );
    }
    data.drain(frames, &pin);
    assert_eq!(frames.counts().free, free);
}

#[test]
fn the_last_frames_are_had_by_anybody_even_if_they_are_zero() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let (frames, data, window) = (host.frames(), host.data(), host.window());
    let free = frames.counts().free;
    burst(&host, &pin, 16);
    assert_eq!(refill_data(data, frames, &pin, 16, &window), 16);
    let taken: Vec<_> = std::iter::from_fn(|| data.take(frames, &pin, AllocFlags::URGENT).ok()).collect();
    assert_eq!(taken.len() as u32, free, "all frames there are");
    assert_eq!(data.zero_counts().wasted, 16);
    assert!(data.take_zero(frames, &pin, AllocFlags::URGENT).is_err());
    assert_eq!(refill_data(data, frames, &pin, 100, &window), 0);
    assert_eq!(refill(frames, NODE, 100, &window), 0);
    for frame in taken {
        give_last(data, frames, &pin, frame);
    }
    // While memory is short, no frame is set apart either.
    let rest: Vec<_> = std::iter::from_fn(|| frames.take(any_frame(0)).ok()).collect();
    burst(&host, &pin, 8);
    assert!(frames.pressed(NODE));
    assert_eq!(refill_data(data, frames, &pin, 100, &window), 0);
    rest.into_iter().for_each(|taken| frames.give(taken.dirty()));
    data.drain(frames, &pin);
    host.audit().unwrap();
}

#[test]
fn an_interrupt_may_take_and_give_while_its_cpu_clears() {
    let host = Host::<X86_64>::new(small(1, 1, 64)).unwrap();
    let slots = host.slots();
    let (frames, data, window) = (host.frames(), host.data(), host.window());
    let pin = slots[0].pin();
    let rng = Mutex::new(Rng::with_seed(11));
    // The interrupt runs on the CPU that the refill runs on, and returns before that goes on.
    struct SameCpu<'a>(Pinned<'a>);
    // SAFETY: the hook is called on the thread that made the pin, inside of `refill_zero`.
    unsafe impl Sync for SameCpu<'_> {}
    let there = SameCpu(slots[0].pin());
    let hook = || {
        let SameCpu(pin) = &there;
        if rng.lock().unwrap().u64(..3) == 0 {
            burst(&host, pin, 40);
        }
    };
    let mut made = 0;
    for _ in 0..50 {
        burst(&host, &pin, 100);
        made += refill_data(data, frames, &pin, 30, &Between { inner: window, hook: &hook });
    }
    assert!(made > 100);
    data.drain(frames, &pin);
    assert_eq!(host.audit(), Ok(()));
}

#[test]
fn zero_frames_that_rest_on_a_cpu_are_of_its_node() {
    let host = Host::<X86_64>::new(small(2, 2, 64)).unwrap();
    let cpus = host.slots();
    let (frames, data, window) = (host.frames(), host.data(), host.window());
    let pin = cpus[1].pin();
    burst(&host, &pin, 20);
    refill_data(data, frames, &pin, 20, &window);
    // Zero frames of its node's zone come to it as well, but not those of the other node.
    data.drain(frames, &pin);
    refill(frames, NodeId(1), 64, &window);
    for _ in 0..2 {
        let (frame, is_zero) = data.take_zero(frames, &pin, AllocFlags::NORMAL).unwrap();
        assert!(is_zero);
        assert_eq!(frames.node_of(frame.pfn()), NodeId(1));
        give_last(data, frames, &cpus[0].pin(), frame);
    }
    assert_eq!(data.drain(frames, &cpus[0].pin()), 0, "nothing of it stays on the other node's CPU");
    data.drain(frames, &pin);
    host.audit().unwrap();
}

#[test]
fn a_fault_maps_a_frame_cleared_ahead_and_copies_take_others() {
    let host = Host::<X86_64>::new(small(1, 1, 64)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let area = VirtRange::fixed::<0x40_0000, 0x44_0000>();
    for round in 0..3 {
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.edit(on).unwrap().mmap(area, AreaFlags(3), 0).unwrap();
        // The first page by a read, which maps the shared zero frame, and a write.
        space.fault(on, VirtAddr(area.start), Access::Read).unwrap();
        assert_eq!(space.fault(on, VirtAddr(area.start), Access::Write), Ok(Done::Copied));
        for at in (area.start + 4096..area.end).step_by(4096) {
            assert_eq!(space.fault(on, VirtAddr(at), Access::Write), Ok(Done::Fresh));
        }
        let mut dirty = Vec::new();
        space.tree().walk(on, area, |_, pfn, _| dirty.push(pfn)).unwrap();
        assert_eq!(dirty.len(), 64);
        for pfn in dirty {
            assert_all_zero(&host, pfn, 0);
            soil(&host, pfn, 0);
        }
        // A copy is overwritten whole: it needs no zeros.
        let before = host.data().zero_counts();
        let mut child = space.edit(on).unwrap().fork().unwrap();
        child.fault(on, VirtAddr(area.start), Access::Write).unwrap();
        assert_eq!(host.data().zero_counts(), before);
        child.end(on).unwrap();
        space.end(on).unwrap();
        let counts = host.data().zero_counts();
        assert_eq!((counts.asked, counts.found), (64 * (round + 1), 64 * round));
        while on.clear_ahead(16) > 0 {}
    }
    m.drain(&slots);
    host.audit().unwrap();
}

#[test]
fn an_idle_cpu_clears_nothing_ahead_with_high_memory() {
    let config = HostConfig { low: 4 << 20, ..small(1, 1, 16) };
    let host = Host::<X86_64>::new(config).unwrap();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    burst(&host, &pin, 64);
    // The window of a machine need not reach its high memory.
    assert_eq!(m.on(&pin).unwrap().clear_ahead(64), 0);
    m.drain(&slots);
    host.audit().unwrap();
}
