//! Physical memory: the buddy allocator against a set of frames, watermarks, data frames, slabs.
use crate::physical;
use fastrand::Rng;
use physical::{any_frame, clear, give_last, poke, small};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{MachineId, NodeId, Pinned, WrongMachine};
use ptarmigan::format::X86_64;
use ptarmigan::frames::*;
use ptarmigan_hosted::{Host, HostConfig};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ptr::NonNull;

/// Frames of the given runs, records on the heap (never freed: tests are short).
fn frames(runs: &[MemoryRun]) -> Frames {
    // SAFETY: 1. no code ever reads this memory: only the allocator's books are asked. 2. the
    // identity is new.
    unsafe { Frames::new(&mut boot(runs), MachineId::new(), runs) }.expect("`bytes` says how much is needed")
}

fn boot(runs: &[MemoryRun]) -> BootMemory {
    let bytes = Frames::bytes(&MemorySize::of(runs));
    let block = Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice());
    let base = NonNull::new(block.as_mut_ptr().cast()).expect("a box is somewhere");
    // SAFETY: 1. the block was leaked just now: valid for ever, and nobody else has it.
    unsafe { BootMemory::new(base, bytes) }
}

fn run(start: u32, frames: u32, node: u8, class: ZoneClass) -> MemoryRun {
    MemoryRun { start: Pfn(start), frames, node: NodeId(node), class }
}

fn urgent(order: u8) -> Request {
    Request { order, flags: AllocFlags::URGENT, ..any_frame(0) }
}

/// All blocks that can be had, the largest first: the structure of the free lists.
fn blocks(frames: &Frames) -> BTreeSet<(u8, u32)> {
    let mut held = Vec::new();
    for order in (0..ORDERS as u8).rev() {
        while let Ok(taken) = frames.take(urgent(order)) {
            held.push(taken.dirty());
        }
    }
    let blocks = held.iter().map(|f| (f.order(), f.pfn().0)).collect();
    for frame in held {
        frames.give(frame);
    }
    blocks
}

enum Held {
    Zero(Frame<Zero>),
    Dirty(Frame<Dirty>),
}

#[derive(Clone, Debug)]
enum Step {
    Take {
        order: u8,
        zero: bool,
        root: bool,
    },
    /// Gives the n-th block back; cleared before if asked for.
    Give {
        which: usize,
        clear: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let order = prop_oneof![4 => Just(0u8), 3 => 1u8..4, 1 => 4u8..9];
    let take = (order, any::<bool>(), any::<bool>()).prop_map(|(order, zero, root)| Step::Take {
        order,
        zero,
        root,
    });
    let give = (any::<usize>(), any::<bool>()).prop_map(|(which, clear)| Step::Give { which, clear });
    proptest::collection::vec(prop_oneof![take, give], 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: RngSeed::Fixed(20), ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_keeps_blocks_disjoint_counts_exact_zeros_zero(steps in steps()) {
        let host = Host::<X86_64>::new(small(1, 1, 4)).unwrap();
        let (frames, window) = (host.frames(), host.window());
        let fresh = blocks(frames);
        // Model: which free frames are known to be zero.
        let mut zero = BTreeSet::new();
        let mut owned = BTreeMap::new();
        let mut held: Vec<Held> = Vec::new();
        let total = frames.counts().total;
        let hosts_own = total - frames.counts().free;
        prop_assert_eq!(frames.counts().zero, 0, "nothing is known at first");
        for step in steps {
            match step {
                Step::Take { order, zero: want, root } => {
                    let end = if root { End::High } else { End::Low };
                    let request = Request { order, zero: want, end, flags: AllocFlags::URGENT, ..any_frame(0) };
                    let before = frames.counts();
                    let Ok(taken) = frames.take(request) else {
                        prop_assert_eq!(frames.counts(), before);
                        continue;
                    };
                    let pfn = taken.pfn().0;
                    prop_assert_eq!(pfn % (1 << order), 0, "aligned");
                    let known = (pfn..pfn + (1 << order)).all(|f| zero.contains(&f));
                    for f in pfn..pfn + (1 << order) {
                        prop_assert!(owned.insert(f, ()).is_none(), "frame {} handed out twice", f);
                        zero.remove(&f);
                    }
                    match taken {
                        Taken::Zero(frame) => {
                            prop_assert!(known, "said to be zero without proof");
                            for i in 0..1u64 << order {
                                physical::assert_zero(&host, PhysAddr(frame.addr().0 + i * FRAME_SIZE as u64));
                            }
                            held.push(Held::Zero(frame));
                        }
                        Taken::Dirty(frame) => {
                            prop_assert!(!known, "a frame that is known to be zero was forgotten to be");
                            // Content unknown: make it so.
                            for i in 0..1u64 << order {
                                poke(&host, frame.addr().0 + i * FRAME_SIZE as u64 + 8 * (i % 512), !0);
                            }
                            held.push(Held::Dirty(frame));
                        }
                    }
                }
                Step::Give { which, clear } => {
                    if held.is_empty() {
                        continue;
                    }
                    let (pfn, order, is_zero) = match held.swap_remove(which % held.len()) {
                        Held::Dirty(f) if clear => {
                            let at = (f.pfn().0, f.order(), true);
                            frames.give(self::clear(f, &window));
                            at
                        }
                        Held::Dirty(f) => {
                            let at = (f.pfn().0, f.order(), false);
                            frames.give(f);
                            at
                        }
                        Held::Zero(f) => {
                            let at = (f.pfn().0, f.order(), true);
                            frames.give(f);
                            at
                        }
                    };
                    for f in pfn..pfn + (1 << order) {
                        owned.remove(&f);
                        if is_zero {
                            zero.insert(f);
                        }
                    }
                }
            }
            let counts = frames.counts();
            prop_assert_eq!(counts.total, total);
            prop_assert_eq!(counts.free, total - hosts_own - owned.len() as u32);
            prop_assert_eq!(counts.zero, zero.len() as u32);
        }
        for h in held {
            match h {
                Held::Zero(f) => frames.give(f),
                Held::Dirty(f) => frames.give(f),
            }
        }
        prop_assert_eq!(blocks(frames), fresh, "all memory merges to what it was");
        prop_assert_eq!(host.audit(), Ok(()));
    }
}

#[test]
fn zeroes_come_out_as_long_as_there_are_any_and_are_not_wasted() {
    let host = Host::<X86_64>::new(small(1, 1, 4)).unwrap();
    let (frames, window) = (host.frames(), host.window());
    // One block of 64 frames cleared, given back frame by frame so that it merges with zero
    // buddies.
    let block = frames.take(Request { order: 6, ..any_frame(0) }).unwrap().dirty();
    let clean = clear(block, &window);
    frames.give(clean);
    assert_eq!(frames.counts().zero, 64);
    let mut dirty = Vec::new();
    // Requests that do not care leave them alone while there is anything else that is not mixed
    // with them.
    for _ in 0..32 {
        let taken = frames.take(Request { end: End::High, ..any_frame(0) }).unwrap();
        assert!(matches!(taken, Taken::Dirty(_)));
        dirty.push(taken.dirty());
    }
    assert_eq!(frames.counts().zero, 64);
    for f in dirty {
        frames.give(f);
    }
}

#[test]
fn known_zero_halves_survive_a_merge_and_the_split_that_follows() {
    let frames = frames(&[run(0, 1024, 0, ZoneClass::Low)]);
    let mut all = Vec::new();
    while let Ok(taken) = frames.take(urgent(0)) {
        all.push(taken.dirty());
    }
    all.sort_by_key(|f| f.pfn());
    // Every odd frame is known to be zero; all merge to one block.
    for frame in all {
        let pfn = frame.pfn();
        if pfn.0 % 2 == 1 {
            let raw = frame.into_raw();
            // SAFETY: 1. just taken apart. 2. no memory is behind these frames: any claim will do
            // for the records.
            frames.give(unsafe { Frame::<Zero>::from_raw(frames.machine(), raw, 0) });
        } else {
            frames.give(frame);
        }
    }
    assert_eq!(frames.counts().zero, 512);
    let mut zeroes = HashSet::new();
    let mut dirty = HashSet::new();
    while let Ok(taken) = frames.take(Request { zero: true, ..urgent(0) }) {
        match taken {
            Taken::Zero(f) => zeroes.insert(f.into_raw().0),
            Taken::Dirty(f) => dirty.insert(f.into_raw().0),
        };
    }
    assert!(zeroes.iter().all(|f| f % 2 == 1) && zeroes.len() == 512, "{} zero frames", zeroes.len());
    assert!(dirty.iter().all(|f| f % 2 == 0) && dirty.len() == 512, "{} others", dirty.len());
}

#[test]
fn ordinary_requests_stop_at_the_reserve_and_urgent_ones_go_on() {
    let frames = frames(&[run(16, 4096, 0, ZoneClass::Low)]);
    let mut held = Vec::new();
    while let Ok(taken) = frames.take(any_frame(0)) {
        held.push(taken.dirty());
    }
    let reserve = frames.counts().free;
    assert!(reserve > 0 && reserve <= 4096 / 16, "a reserve of {reserve}");
    let refused = frames.take(Request { flags: AllocFlags::ATOMIC, ..any_frame(0) });
    assert!(matches!(refused, Err(e) if e.free() == reserve));
    while let Ok(taken) = frames.take(urgent(0)) {
        held.push(taken.dirty());
    }
    assert_eq!(frames.counts().free, 0);
    assert!(frames.pressed(NodeId(0)));
    for f in held {
        frames.give(f);
    }
    assert!(!frames.pressed(NodeId(0)));
    assert_eq!(frames.counts().free, 4096);
}

#[test]
fn a_full_node_falls_back_and_high_memory_serves_its_class_only() {
    let frames = frames(&[
        run(0, 256, 0, ZoneClass::Low),
        run(256, 256, 0, ZoneClass::High),
        run(512, 256, 1, ZoneClass::Low),
        run(1024, 256, 2, ZoneClass::Low),
    ]);
    let high = frames.take(Request { class: ZoneClass::High, ..any_frame(0) }).unwrap().dirty();
    assert!((256..512).contains(&high.pfn().0), "high memory goes first where it will do");
    assert_eq!(frames.node_free(NodeId(0)), 256, "and does not count as memory for tables");
    let mut order = Vec::new();
    let mut held = vec![high];
    while let Ok(taken) = frames.take(any_frame(1)) {
        let frame = taken.dirty();
        assert!(!(256..512).contains(&frame.pfn().0), "a low request got high memory");
        let node = frames.node_of(frame.pfn());
        if order.last() != Some(&node) {
            order.push(node);
        }
        held.push(frame);
    }
    assert_eq!(order, [NodeId(1), NodeId(2), NodeId(0)], "each node is used up before the next is tried");
    for f in held {
        frames.give(f);
    }
    assert_eq!(frames.counts().free, 1024);
}

#[test]
fn data_frames_are_neither_lost_nor_handed_out_twice() {
    for nodes in [1, 2] {
        let host = Host::<X86_64>::new(small(2, nodes, 8)).unwrap();
        let cpus = host.slots();
        let (frames, data) = (host.frames(), host.data());
        let mut rng = Rng::with_seed(nodes as u64);
        let mut held = Vec::new();
        let mut out = HashSet::new();
        let fresh = frames.counts().free as usize;
        for _ in 0..20_000 {
            let pin = cpus[rng.usize(..2)].pin();
            if rng.u64(..100) < 52 {
                if let Ok(frame) = data.take(frames, &pin, AllocFlags::NORMAL) {
                    assert!(out.insert(frame.pfn()), "{} handed out twice", frame.pfn());
                    assert_eq!(DataFrames::is_sole(frames, &frame), Ok(true));
                    held.push(frame);
                }
            } else if !held.is_empty() {
                let frame = held.swap_remove(rng.usize(..held.len()));
                let other = DataFrames::share(frames, &frame).unwrap();
                assert_eq!(other.pfn(), frame.pfn());
                assert_eq!(DataFrames::is_sole(frames, &frame), Ok(false));
                assert!(!data.release(frames, &pin, other).unwrap());
                assert_eq!(DataFrames::is_sole(frames, &frame), Ok(true));
                out.remove(&frame.pfn());
                give_last(data, frames, &pin, frame);
            }
            let found = frames.counts().free as usize + data.resting() + held.len();
            assert_eq!(found, fresh, "free frames, resting ones and those in use add up");
        }
        for frame in held {
            give_last(data, frames, &cpus[0].pin(), frame);
        }
        for cpu in &cpus {
            data.drain(frames, &cpu.pin());
            assert_eq!(data.drain(frames, &cpu.pin()), 0);
        }
        assert_eq!(data.resting(), 0);
        host.audit().unwrap();
    }
}

#[test]
fn data_frames_that_rest_on_a_cpu_are_of_its_node() {
    let host = Host::<X86_64>::new(small(2, 2, 8)).unwrap();
    let cpus = host.slots();
    let (frames, data) = (host.frames(), host.data());
    // Taken on node 0, given back on node 1: no frame may stay there.
    let held: Vec<DataFrame> =
        (0..100).map(|_| data.take(frames, &cpus[0].pin(), AllocFlags::NORMAL).unwrap()).collect();
    data.drain(frames, &cpus[0].pin());
    for frame in held {
        assert_eq!(frames.node_of(frame.pfn()), NodeId(0));
        give_last(data, frames, &cpus[1].pin(), frame);
    }
    assert_eq!(data.drain(frames, &cpus[1].pin()), 0);
    host.audit().unwrap();
}

#[test]
fn slab_objects_are_distinct_and_zero_and_empty_slabs_go_back() {
    for shift in [3u8, 5, 8, 11] {
        let host = Host::<X86_64>::new(small(1, 1, 4)).unwrap();
        let (frames, window) = (host.frames(), host.window());
        let slab = Slab::new(shift);
        let mut rng = Rng::with_seed(u64::from(shift));
        let free = frames.counts().free;
        let size = 1u64 << shift;
        let mut held: Vec<u64> = Vec::new();
        let mut out = HashSet::new();
        for round in 0..6 {
            for _ in 0..1500 {
                if rng.u64(..10) < if round % 2 == 0 { 7 } else { 3 } {
                    // SAFETY: 1. always the host's frames and window.
                    let at = unsafe { slab.take(frames, &window, NodeId(0), AllocFlags::NORMAL) }.unwrap().0;
                    assert_eq!(at % size, 0, "aligned");
                    assert!(out.insert(at), "{at:#x} handed out twice");
                    for word in (at..at + size).step_by(8) {
                        assert_eq!(physical::peek(&host, word), 0);
                        poke(&host, word, !0);
                    }
                    held.push(at);
                } else if !held.is_empty() {
                    let at = held.swap_remove(rng.usize(..held.len()));
                    out.remove(&at);
                    // SAFETY: 1. taken above and forgotten here. 2. no other code knows it. 3.
                    // always the host's frames and window.
                    unsafe { slab.give(frames, &window, PhysAddr(at)) };
                }
            }
            let slabs: HashSet<u64> = held.iter().map(|at| at >> 12).collect();
            assert_eq!(slab.frames(), slabs.len() as u32);
            assert_eq!(
                free - frames.counts().free,
                slabs.len() as u32,
                "frames taken: those with objects in use"
            );
        }
        for at in held {
            // SAFETY: as above.
            unsafe { slab.give(frames, &window, PhysAddr(at)) };
        }
        host.audit().unwrap();
    }
}

#[test]
fn overflowing_data_frames_wait_for_their_cpu_until_others_lack() {
    let config = HostConfig { cpus: 2, bytes: 1 << 30, ..HostConfig::default() };
    let host = Host::<X86_64>::new(config).unwrap();
    let slots = host.slots();
    let (a, b) = (slots[0].pin(), slots[1].pin());
    let (frames, data) = (host.frames(), host.data());
    let free = frames.counts().free;
    let take = |pin: &Pinned<'_>, n: usize| -> Vec<DataFrame> {
        (0..n).map_while(|_| data.take(frames, pin, AllocFlags::NORMAL).ok()).collect()
    };
    let give = |pin: &Pinned<'_>, all: Vec<DataFrame>| {
        for frame in all {
            give_last(data, frames, pin, frame);
        }
    };
    // More than a CPU's list and batches hold together: the excess goes back to the zone.
    const MANY: usize = 20_000;
    let first = take(&a, MANY);
    assert_eq!(first.len(), MANY);
    let known: HashSet<Pfn> = first.iter().map(DataFrame::pfn).collect();
    assert_eq!(known.len(), MANY, "every frame once");
    give(&a, first);
    let kept = free - frames.counts().free;
    assert!((2048 + 8128..=2048 + 8192 + 64).contains(&kept), "{kept} frames are kept");
    // The CPU gets them back without asking the zone.
    let before = frames.counts().free;
    let again = take(&a, 6000);
    assert_eq!(frames.counts().free, before);
    assert!(again.iter().all(|frame| known.contains(&frame.pfn())));
    give(&a, again);
    assert_eq!(frames.counts().free, before);
    // The other one asks the zone, until only the reserve is left there; then it takes that too.
    let part = take(&b, 6000);
    assert!(before - frames.counts().free >= 6000);
    let rest = take(&b, usize::MAX);
    let low = frames.counts().free;
    let all: HashSet<Pfn> = part.iter().chain(&rest).map(DataFrame::pfn).collect();
    assert_eq!(all.len(), part.len() + rest.len(), "every frame once");
    let out = free as usize - low as usize - all.len();
    assert!(out <= 2048, "{out} frames rest where the other CPU cannot reach them: more than a list");
    give(&b, part);
    give(&b, rest);
    for pin in [&a, &b] {
        data.drain(frames, pin);
    }
    assert_eq!(frames.counts().free, free);
    host.audit().unwrap();
}

#[test]
fn memory_zero_from_the_start_is_known_zero_however_it_is_split() {
    let runs = [run(3, 1061, 0, ZoneClass::Low), run(2048, 700, 1, ZoneClass::Low)];
    // SAFETY: 1. and 3. no code ever reads this memory: only the records are read. 2. the
    // identity is new.
    let frames = unsafe { Frames::new_zero(&mut boot(&runs), MachineId::new(), &runs) };
    let frames = frames.expect("`bytes` says how much is needed");
    let counts = frames.counts();
    assert_eq!((counts.total, counts.zero), (1761, 1761));
    // One dirty frame, so that halves of merged blocks differ.
    let dirty = frames.take(urgent(0)).expect("1761 are free").dirty();
    let pfn = dirty.pfn();
    frames.give(dirty);
    assert_eq!(frames.counts().zero, 1760);
    let mut held = Vec::new();
    for order in [2, 0, 5, 1].into_iter().cycle().take(40).chain(std::iter::repeat_n(0, 2000)) {
        let Ok(taken) = frames.take(Request { zero: true, ..urgent(order) }) else { continue };
        let has_dirty = (taken.pfn().0..taken.pfn().0 + (1 << order)).contains(&pfn.0);
        assert_eq!(matches!(taken, Taken::Dirty(_)), has_dirty, "order {order} at {}", taken.pfn());
        held.push(taken);
    }
    assert_eq!((frames.counts().free, frames.counts().zero), (0, 0));
}

#[test]
fn references_to_any_block_are_counted_and_the_last_frees_it() {
    let host = Host::<X86_64>::new(small(1, 1, 32)).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let (frames, data) = (host.frames(), host.data());
    let free = frames.counts().free;
    for order in 0..ORDERS as u8 {
        let mut held = vec![data.take_block(frames, &pin, order, AllocFlags::NORMAL).unwrap()];
        assert_eq!(DataFrames::order_of(frames, &held[0]), Ok(order));
        assert_eq!(held[0].pfn().0 % (1 << order), 0);
        if order > 0 {
            assert_eq!(free - frames.counts().free, 1 << order);
        }
        for _ in 0..5 {
            held.push(DataFrames::share(frames, &held[0]).unwrap());
        }
        let last = held.pop().unwrap();
        for frame in held {
            assert!(!data.release(frames, &pin, frame).unwrap());
        }
        assert_eq!(DataFrames::is_sole(frames, &last), Ok(true));
        give_last(data, frames, &pin, last);
        data.drain(frames, &pin);
        assert_eq!(frames.counts().free, free, "order {order}");
    }
    assert!(matches!(
        data.take_block(frames, &pin, ORDERS as u8, AllocFlags::URGENT),
        Err(DataError::NoFrame(none)) if none.order() == ORDERS as u8
    ));
    host.audit().unwrap();
}

#[test]
fn a_number_that_an_entry_kept_is_a_reference_again() {
    let host = Host::<X86_64>::new(small(1, 1, 4)).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let (frames, data) = (host.frames(), host.data());
    let frame = data.take(frames, &pin, AllocFlags::NORMAL).unwrap();
    let entry = DataFrames::share(frames, &frame).unwrap().into_raw();
    assert_eq!(DataFrames::is_sole(frames, &frame), Ok(false));
    // SAFETY: 1. this is the reference that was given up two lines above.
    let again = unsafe { DataFrame::from_raw(host.machine(), entry) };
    assert!(!data.release(frames, &pin, frame).unwrap());
    give_last(data, frames, &pin, again);
    data.drain(frames, &pin);
    host.audit().unwrap();
}

#[test]
fn a_reference_that_is_dropped_is_missing_in_the_audit() {
    let host = Host::<X86_64>::new(small(1, 1, 4)).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let frame = host.data().take(host.frames(), &pin, AllocFlags::NORMAL).unwrap();
    drop(frame);
    host.data().drain(host.frames(), &pin);
    assert_eq!(host.audit().map_err(|missing| missing.expected - missing.free), Err(1));
}

#[test]
fn frames_and_pins_of_another_machine_are_refused_without_loss() {
    let (a, b) = (Host::<X86_64>::new(small(1, 1, 4)).unwrap(), Host::<X86_64>::new(small(2, 1, 8)).unwrap());
    let (cpus_a, cpus_b) = (a.slots(), b.slots());
    let (pin_a, pin_b) = (cpus_a[0].pin(), cpus_b[0].pin());
    let wrong = |called: &Host<X86_64>, given: &Host<X86_64>| WrongMachine {
        called: called.machine(),
        given: given.machine(),
    };
    // Frames.
    let frame = a.frames().take(any_frame(0)).unwrap().dirty();
    let refused = b.frames().try_give(frame).unwrap_err();
    assert_eq!(refused.error, wrong(&b, &a));
    a.frames().try_give(refused.value).unwrap();
    // Data frames: taken with a foreign pin, or from foreign frames.
    for (frames, pin, given) in [(a.frames(), &pin_b, &b), (b.frames(), &pin_a, &b), (b.frames(), &pin_b, &b)]
    {
        let expected = DataError::WrongMachine(wrong(&a, given));
        assert_eq!(a.data().take(frames, pin, AllocFlags::NORMAL).unwrap_err(), expected);
        assert_eq!(a.data().take_zero(frames, pin, AllocFlags::NORMAL).unwrap_err(), expected);
        assert_eq!(a.data().take_block(frames, pin, 3, AllocFlags::NORMAL).unwrap_err(), expected);
        assert_eq!(a.data().drain(frames, pin), 0);
    }
    // References: shared and given back elsewhere.
    let mut frame = a.data().take(a.frames(), &pin_a, AllocFlags::NORMAL).unwrap();
    assert_eq!(DataFrames::share(b.frames(), &frame).unwrap_err(), wrong(&b, &a));
    assert_eq!(DataFrames::is_sole(b.frames(), &frame), Err(wrong(&b, &a)));
    assert_eq!(DataFrames::order_of(b.frames(), &frame), Err(wrong(&b, &a)));
    for (data, frames, pin) in [
        (b.data(), b.frames(), &pin_b),
        (a.data(), b.frames(), &pin_a),
        (a.data(), a.frames(), &pin_b),
        (b.data(), a.frames(), &pin_a),
    ] {
        frame = data.release(frames, pin, frame).expect_err("one of them is another machine's").value;
    }
    give_last(a.data(), a.frames(), &pin_a, frame);
    a.data().drain(a.frames(), &pin_a);
    a.audit().unwrap();
    b.audit().unwrap();
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "was given what belongs to"))]
fn a_frame_given_to_another_machine_is_lost_and_panics_in_debug() {
    let (a, b) = (Host::<X86_64>::new(small(1, 1, 4)).unwrap(), Host::<X86_64>::new(small(1, 1, 4)).unwrap());
    let before = b.frames().counts();
    b.frames().give(a.frames().take(any_frame(0)).unwrap().dirty());
    assert_eq!(b.frames().counts(), before);
    assert_eq!(a.audit().map_err(|missing| missing.expected - missing.free), Err(1));
}
