//! Memory as the firmware describes it: refused runs, the last frames that have a number, and
//! holes.
use ptarmigan::addr::{FRAME_SHIFT, Pfn, PhysAddr};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::frames::*;
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};
use std::collections::BTreeSet;
use std::ptr::NonNull;

fn run(start: u32, frames: u32) -> MemoryRun {
    MemoryRun { start: Pfn(start), frames, node: NodeId(0), class: ZoneClass::Low }
}

fn of_node(node: u8, run: MemoryRun) -> MemoryRun {
    MemoryRun { node: NodeId(node), ..run }
}

fn any_frame(node: u8) -> Request {
    Request {
        node: NodeId(node),
        order: 0,
        zero: false,
        class: ZoneClass::Low,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    }
}

/// A block on the heap that is never freed.
fn block(bytes: usize) -> BootMemory {
    let memory = Box::leak(vec![0u64; bytes.div_ceil(8) + 1].into_boxed_slice());
    // SAFETY: 1. the block was leaked just now: valid for ever, and no other code has it.
    unsafe { BootMemory::new(NonNull::from(&mut memory[1..]).cast(), bytes) }
}

/// Frames of these runs, in as much boot memory as they say they need.
fn manage(runs: &[MemoryRun]) -> Result<Frames, FramesError> {
    let bytes = Frames::bytes(&MemorySize::of(runs));
    // Runs of more than all numbers are refused before anything is carved.
    let mut boot = block(if bytes > 1 << 30 { 0 } else { bytes });
    // SAFETY: 1. no code ever reads this memory: only the allocator's books are asked. 2. the
    // identity is new.
    unsafe { Frames::new(&mut boot, MachineId::new(), runs) }
}

/// All single frames that can be had.
fn take_all(frames: &Frames) -> Vec<Frame<Dirty>> {
    let request = Request { flags: AllocFlags::URGENT, ..any_frame(0) };
    std::iter::from_fn(|| frames.take(request).ok().map(Taken::dirty)).collect()
}

#[test]
fn wrong_runs_are_refused_by_number_and_reason() {
    let fine = run(0x100, 64);
    let (touching, apart) = (run(0x140, 64), run(0x1000, 64));
    let cases = [
        (vec![run(5, 0)], 0, BadRun::Empty, "run 0 of memory (frames 0x5..0x5 of node 0) has no frames"),
        (vec![fine, apart, run(0x2000, 0)], 2, BadRun::Empty, "run 2"),
        (
            vec![fine, fine],
            1,
            BadRun::Overlaps(fine),
            "overlaps the run before it (frames 0x100..0x140 of node 0)",
        ),
        (vec![fine, run(0x13f, 1)], 1, BadRun::Overlaps(fine), "run 1"),
        (vec![apart, run(0xfff, 2)], 1, BadRun::Overlaps(apart), "run 1"),
        (vec![run(0, 0x2000), touching], 1, BadRun::Overlaps(run(0, 0x2000)), "run 1"),
        (vec![apart, fine], 1, BadRun::Unordered(apart), "sort the runs"),
        (vec![fine, run(u32::MAX, 1)], 1, BadRun::Beyond, "ends behind frame 0xfffffffe"),
        (vec![run(u32::MAX - 63, 64)], 0, BadRun::Beyond, "run 0"),
        (vec![run(u32::MAX - 31, 64)], 0, BadRun::Beyond, "(frames 0xffffffe0..0x100000020 of node 0)"),
        (vec![run(1, u32::MAX)], 0, BadRun::Beyond, "run 0"),
        (vec![of_node(64, fine)], 0, BadRun::Node, "is of no node from 0 to 63"),
        (vec![fine, of_node(255, apart)], 1, BadRun::Node, "run 1"),
        (vec![fine, of_node(2, apart)], 1, BadRun::Gap(NodeId(1)), "leaves node 1 without memory"),
        (vec![of_node(63, fine)], 0, BadRun::Gap(NodeId(0)), "leaves node 0 without memory"),
    ];
    for (runs, index, why, text) in cases {
        let refused = manage(&runs).err();
        assert_eq!(refused, Some(FramesError::Run { index, run: runs[index], why }), "{runs:?}");
        let message = refused.map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains(text), "{message:?} does not say {text:?}");
    }
    for runs in [vec![fine], vec![fine, touching], vec![fine, apart], vec![of_node(1, fine), apart]] {
        let frames = manage(&runs).expect("nothing is wrong with these");
        let total: u32 = runs.iter().map(|r| r.frames).sum();
        assert_eq!(frames.counts(), FrameCounts { total, free: total, zero: 0 });
    }
}

#[test]
fn a_frame_named_by_two_runs_is_never_handed_out_twice() {
    // Runs at random: either they are refused, or every frame is handed out once.
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut refused, mut fine) = (0, 0);
    for _ in 0..if cfg!(miri) { 3 } else { 2000 } {
        let n = 1 + rng.usize(..4);
        let mut start = rng.u32(..64);
        let runs: Vec<MemoryRun> = (0..n)
            .map(|_| {
                let new = run(start, 1 + rng.u32(..96));
                start = (start + new.frames + rng.u32(..20)).saturating_sub(rng.u32(..12));
                new
            })
            .collect();
        let named: Vec<u32> = runs.iter().flat_map(|r| r.start.0..r.start.0 + r.frames).collect();
        let distinct: BTreeSet<u32> = named.iter().copied().collect();
        let Ok(frames) = manage(&runs) else {
            refused += 1;
            assert!(!named.is_sorted() || distinct.len() < named.len(), "{runs:?} are refused");
            continue;
        };
        fine += 1;
        let mut got: Vec<u32> = take_all(&frames).iter().map(|f| f.pfn().0).collect();
        got.sort_unstable();
        assert_eq!(got, named, "{runs:?}");
    }
    assert!(cfg!(miri) || (refused > 0 && fine > 0));
}

#[test]
fn the_last_frames_that_have_a_number_are_managed_like_others() {
    let runs = [(u32::MAX - 63, 63), (u32::MAX - 1, 1), (u32::MAX - 1024, 1024), (u32::MAX - 3000, 3000)];
    for &(start, n) in &runs[..if cfg!(miri) { 2 } else { 4 }] {
        let frames = manage(&[run(start, n)]).expect("it ends at the last number");
        for _ in 0..3 {
            let taken = take_all(&frames);
            let numbers: BTreeSet<u32> = taken.iter().map(|f| f.pfn().0).collect();
            assert!(numbers.iter().copied().eq(start..u32::MAX), "{start:#x}+{n}");
            assert_eq!(frames.counts().free, 0);
            taken.into_iter().for_each(|frame| frames.give(frame));
            assert_eq!(frames.counts().free, n);
        }
        // Merged again as far as they go.
        let order = (0..ORDERS as u8).rev().find(|order| n >= 2 << order).unwrap_or(0);
        let whole = frames.take(Request { order, flags: AllocFlags::URGENT, ..any_frame(0) });
        let whole = whole.expect("blocks merge").dirty();
        assert_eq!(whole.order(), order);
        frames.give(whole);
    }
}

const GIB: u64 = 1 << (30 - FRAME_SHIFT);

#[test]
fn holes_cost_no_records() {
    let (gib, tib) = (GIB as u32, (GIB << 10) as u32);
    let holes = [run(0, gib), of_node(1, run(gib + tib, gib))];
    let close = [run(0, gib), of_node(1, run(gib, gib))];
    let size = MemorySize::of(holes);
    assert_eq!((size.frames() as u64, size.nodes(), size.runs()), (2 * GIB, 2, 2));
    assert_eq!(Frames::bytes(&size), Frames::bytes(&MemorySize::of(close)), "the hole costs something");
    let records = 2 * GIB as usize * size_of::<FrameMeta>();
    assert!(Frames::bytes(&size) < records + 8192, "{} bytes", Frames::bytes(&size));
    if cfg!(miri) {
        return;
    }
    let frames = manage(&holes).expect("as much as it says suffices");
    assert_eq!(frames.records() as u64, 2 * GIB);
    for (pfn, there) in [
        (0, true),
        (gib - 1, true),
        (gib, false),
        (gib + tib - 1, false),
        (gib + tib, true),
        (2 * gib + tib - 1, true),
        (2 * gib + tib, false),
        (u32::MAX, false),
    ] {
        assert_eq!(frames.record(Pfn(pfn)).is_some(), there, "{pfn:#x}");
    }
    for node in [0, 1] {
        let taken = frames.take(any_frame(node)).expect("there is some").dirty();
        assert_eq!(frames.node_of(taken.pfn()), NodeId(node));
        assert_eq!(frames.meta(taken.pfn()).usage(), Use::Taken);
        frames.give(taken);
    }
}

/// A number for each frame, from 0 on.
fn numbered(frames: &Frames) -> PerFrame<usize> {
    let mut boot = block(PerFrame::<usize>::bytes(&frames.size()));
    let mut next = 0..;
    PerFrame::new(&mut boot, frames, || next.next().unwrap()).expect("as much as it says suffices")
}

#[test]
fn every_frame_has_a_record_of_its_own_whatever_holes_there_are() {
    let mut rng = fastrand::Rng::with_seed(11);
    // An interpreter takes time for each frame of an array at each look at one.
    let longest = if cfg!(miri) { 12 } else { 200 };
    for _ in 0..if cfg!(miri) { 2 } else { 300 } {
        let mut start = rng.u32(..100);
        let mut runs = Vec::new();
        for _ in 0..1 + rng.u64(..6) {
            let new = run(start, 1 + rng.u64(..longest) as u32);
            // Half of them touch the next.
            start += new.frames + rng.u32(..2) * rng.u32(..5000);
            runs.push(new);
        }
        let frames = manage(&runs).expect("they ascend");
        let named: Vec<u32> = runs.iter().flat_map(|r| r.start.0..r.start.0 + r.frames).collect();
        let records: BTreeSet<usize> =
            named.iter().map(|pfn| std::ptr::from_ref(frames.meta(Pfn(*pfn))) as usize).collect();
        let elements = numbered(&frames);
        let numbers: BTreeSet<usize> =
            named.iter().filter_map(|pfn| elements.of(&frames, Pfn(*pfn)).copied()).collect();
        assert_eq!(records.len(), named.len(), "{runs:?}");
        assert!(numbers.into_iter().eq(0..named.len()), "{runs:?}");
        assert_eq!(frames.records(), named.len());
        for r in &runs {
            for beside in [r.start.0.wrapping_sub(1), r.start.0 + r.frames] {
                let named = runs.iter().any(|r| (r.start.0..r.start.0 + r.frames).contains(&beside));
                assert_eq!(frames.record(Pfn(beside)).is_some(), named, "{beside} beside {r}");
                assert_eq!(elements.of(&frames, Pfn(beside)).is_some(), named, "{beside} beside {r}");
            }
        }
        let taken = take_all(&frames);
        assert_eq!(taken.len(), named.len());
        taken.into_iter().for_each(|frame| frames.give(frame));
    }
}

#[test]
fn a_frame_without_a_record_is_said_so_once() {
    let frames = manage(&[run(16, 16), run(64, 8)]).expect("fine");
    for pfn in [0, 15, 32, 63, 72, u32::MAX] {
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| frames.meta(Pfn(pfn)).usage()));
        let message = died.expect_err("there is none");
        let message = message.downcast_ref::<String>().expect("a message");
        assert_eq!(*message, format!("frame {pfn:#x} is not under management"));
    }
}

/// A machine whose memory is a block of the heap, with one CPU, so that interpreters can run it.
#[test]
fn memory_of_the_heap_is_cleared_shared_cut_up_and_given_back() {
    const FRAMES: u32 = 256;
    let layout = std::alloc::Layout::from_size_align((FRAMES as usize + 1) << FRAME_SHIFT, 1 << FRAME_SHIFT);
    let layout = layout.expect("a power of two");
    // SAFETY: the size is not 0.
    let base = unsafe { std::alloc::alloc(layout) };
    assert!(!base.is_null());
    // SAFETY: 1. and 2. the block was allocated just now for these frames, and is freed at the end.
    let window = unsafe { DirectMap::new(base, layout.size() as u64) }.expect("it is mapped");
    assert!(window.reaches(Pfn(FRAMES).addr(), 4096) && !window.reaches(Pfn(FRAMES + 1).addr(), 1));
    let runs = [run(1, FRAMES)];
    let size = MemorySize::of(runs);
    let mut boot = block(Frames::bytes(&size) + DataFrames::bytes(1, 1));
    let machine = MachineId::new();
    // SAFETY: 1. all frames lie in the block. 2. the identity is new.
    let frames = unsafe { Frames::new(&mut boot, machine, &runs) }.expect("`bytes` suffices");
    let data = DataFrames::new(&mut boot, &frames, 1).expect("`bytes` suffices");
    // SAFETY: 1. this thread is the only CPU. 2. there is one, and one node.
    let pin = unsafe { Pinned::assume(machine, CpuId(0), NodeId(0)) };
    let bytes = |at: PhysAddr, n: usize| {
        // SAFETY: tests of one thread read frames that they have taken and written to.
        unsafe { std::slice::from_raw_parts(window.open(at).base(), n).to_vec() }
    };

    // Blocks are cleared both ways, and known to be zero afterwards.
    for order in [0, 3] {
        let taken = frames.take(Request { order, ..any_frame(0) }).expect("plenty").dirty();
        // SAFETY: 1. the window reaches all frames.
        let clean = unsafe { taken.clear(&window) };
        assert!(bytes(clean.addr(), 4096 << order).iter().all(|byte| *byte == 0));
        // SAFETY: as above.
        frames.give(unsafe { clean.dirty().clear_nontemporal(&window) });
    }
    assert_eq!(frames.counts().zero, 1 + 8);

    // Data: taken, shared, released; zero where it is said to be.
    let mut held = Vec::new();
    for i in 0..40 {
        let (frame, is_zero) = data.take_zero(&frames, &pin, AllocFlags::NORMAL).expect("plenty");
        if is_zero {
            assert!(bytes(frame.addr(), 4096).iter().all(|byte| *byte == 0), "{}", frame.pfn());
        }
        // SAFETY: the frame is this test's own.
        unsafe { window.open(frame.addr()).base().write_bytes(i, 4096) };
        held.push(DataFrames::share(&frames, &frame).expect("of this machine"));
        held.push(frame);
    }
    for frame in held {
        data.release(&frames, &pin, frame).expect("of this machine");
    }
    // SAFETY: 1. and 2. all are of this machine.
    assert!(unsafe { data.refill_zero(&frames, &pin, 10, &window) } > 0);
    // SAFETY: 1. the window reaches all frames.
    unsafe { frames.refill_zero(NodeId(0), 20, &window) };
    data.drain(&frames, &pin);

    // Slabs.
    let slab = Slab::new(5);
    let objects: Vec<PhysAddr> = (0..150)
        // SAFETY: 1. always these frames and this window.
        .map(|_| unsafe { slab.take(&frames, &window, NodeId(0), AllocFlags::NORMAL) }.expect("plenty"))
        .collect();
    for at in objects {
        assert_eq!(bytes(at, 32), [0; 32]);
        // SAFETY: 1. taken above. 2. forgotten here. 3. always these frames and this window.
        unsafe { slab.give(&frames, &window, at) };
    }
    assert_eq!(frames.counts().free, FRAMES);
    // SAFETY: allocated above with this layout; no code reaches it any more.
    unsafe { std::alloc::dealloc(base, layout) };
}
