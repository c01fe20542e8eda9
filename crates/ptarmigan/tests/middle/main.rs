//! The k-th flush, slot, new entry, colour or frame of a call fails or unwinds, for every k:
//! nothing is lost, and no CPU knows what is used for something else.
/// A machine of one CPU whose MMUs those are.
macro_rules! machine {
    ($host:expr, $tlbs:expr) => {{
        let config = ptarmigan::tlb::TlbConfig {
            costs: ptarmigan::tlb::CostModel::ALWAYS_PAGE,
            ..ptarmigan::tlb::TlbConfig::new(1)
        };
        ptarmigan_hosted::HostMachine::with_tlb(
            &$host,
            $host.plain().unwrap(),
            &$tlbs,
            config,
            ptarmigan_hosted::Delivery::AtOnce,
        )
        .unwrap()
    }};
}

#[cfg(not(miri))]
mod called;
#[cfg(not(miri))]
#[path = "../child/mod.rs"]
mod child;
#[cfg(not(miri))]
mod large;
#[cfg(not(miri))]
mod large_areas;
#[cfg(not(miri))]
mod owners;
#[cfg(not(miri))]
mod panics;
#[cfg(not(miri))]
#[path = "../common/reasons.rs"]
mod reasons;
#[cfg(not(miri))]
mod sleeping;
#[cfg(not(miri))]
mod spaces;

use ptarmigan::addr::{FRAME_SHIFT, Pfn, VirtAddr};
use ptarmigan::cpu::CpuId;
use ptarmigan::format::{Access, Attr, X86_64};
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, Request, ZoneClass};
use ptarmigan::highmem::local::{LocalMaps, TaskMaps};
use ptarmigan::highmem::pool::{Pool, PoolConfig, PoolError};
use ptarmigan::highmem::{Install, Remove, SlotError, Slots};
use ptarmigan::machine::{Machine, On};
use ptarmigan::table::{KernelRange, KernelSlots};
use ptarmigan::vmalloc::{Area, Vmalloc};
use ptarmigan::window::{DirectMap, Window};
use ptarmigan_hosted::test::{Method, Refilled, TestMmu};
use ptarmigan_hosted::{Host, HostConfig, StoreSlots};
use ptarmigan_linux::LinuxPool;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

const START: u64 = 0xffff_c000_0000_0000;
const PAGE: u64 = 4096;
const LEAF: u64 = 2 << 20;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0);
const NORMAL: AllocFlags = AllocFlags::NORMAL;
/// The first high frame.
const HIGH: u32 = 1024;
/// Slots of a pool.
const SLOTS: usize = 4;

/// Where a call fails or unwinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// The MMU's code unwinds before the CPU has forgotten anything.
    BeforeFlush,
    /// It unwinds when the CPU has forgotten its part.
    AfterFlush,
    /// The machine unwinds when it is told of a new entry.
    NewEntry,
    /// A slot cannot be filled.
    Install,
    /// A slot cannot be emptied.
    Remove,
    /// The function that names a colour unwinds.
    Color,
    /// The layer around the policy unwinds before a table is handed out.
    Alloc,
    /// It unwinds when it is told of a table that comes back.
    Freeing,
    // The methods of the layer by their names, and those of other traits.
    FreeUnlinked,
    Flushed,
    FlushedAfter,
    GatherEnd,
    Idle,
    EndInterval,
    Reclaim,
    Drain,
    BeforeLoad,
    AfterLoad,
    Lazy,
    Resume,
    BeforeUnload,
    AfterUnload,
    Send,
    Wait,
    Construct,
    Destruct,
    CheckMade,
    CheckGiven,
    CheckTaken,
    CheckLeaves,
    Charge,
    Uncharge,
    ClearData,
    CopyData,
    TakeAnonymous,
    ZeroBlock,
    BackingFrame,
    /// A function that is an argument of a call.
    Closure,
    Sleep,
    Wake,
    Stay,
}

const POINTS: [Point; 6] =
    [Point::BeforeFlush, Point::AfterFlush, Point::NewEntry, Point::Install, Point::Remove, Point::Color];

thread_local! {
    /// The point, and how many passes of it are left.
    static ARMED: Cell<Option<(Point, usize)>> = const { Cell::new(None) };
    /// The point that is armed when that one has failed.
    static THEN: Cell<Option<Point>> = const { Cell::new(None) };
}

/// Passes a point; whether this is the time to fail.
fn fails(point: Point) -> bool {
    match ARMED.get() {
        Some((armed, left)) if armed == point => {
            let next = THEN.get().filter(|_| left == 1).map(|point| (point, 1));
            ARMED.set((left > 1).then_some((armed, left - 1)).or(next));
            left == 1
        }
        _ => false,
    }
}

/// Runs a call, the k-th pass of a point in which fails.
type Attempt<'a> = dyn FnMut(&mut dyn FnMut()) + 'a;

/// Runs `scenario` for every point and every k, until no call comes to a k-th pass. Returns how
/// many times a call failed at each point.
fn for_every_k(scenario: impl Fn(&mut Attempt<'_>)) -> Vec<(Point, usize)> {
    POINTS.into_iter().map(|point| (point, for_every_k_at(point, &scenario))).collect()
}

/// The same for one point.
fn for_every_k_at(point: Point, scenario: impl Fn(&mut Attempt<'_>)) -> usize {
    for_most_k_at(point, usize::MAX, scenario)
}

/// The same for every k up to `all`, and some of those that follow.
fn for_most_k_at(point: Point, all: usize, scenario: impl Fn(&mut Attempt<'_>)) -> usize {
    let mut k = 1;
    loop {
        let failed = Cell::new(false);
        scenario(&mut |call| {
            ARMED.set(Some((point, k)));
            let _ = catch_unwind(AssertUnwindSafe(call));
            failed.set(failed.get() | ARMED.take().is_none());
        });
        if !failed.get() {
            return k - 1;
        }
        k += if k < all { 1 } else { k / 3 };
    }
}

/// Each point was come to, and no other.
fn assert_passed(passed: &[(Point, usize)], expected: &[Point]) {
    for (point, times) in passed {
        assert_eq!(*times > 0, expected.contains(point), "{point:?} was passed {times} times");
    }
}

/// The TLB of the one CPU.
type Tlbs = TestMmu<'static, Refilled>;

/// Makes a TLB whose code may fail.
fn tlbs() -> Tlbs {
    let tlbs = Tlbs::default();
    tlbs.before(|_, call| match call.method() {
        Method::InvalidateKernel => assert!(!fails(Point::BeforeFlush), "the machine fails"),
        Method::EntryBecameValid => assert!(!fails(Point::NewEntry), "the machine fails"),
        _ => {}
    });
    tlbs.after(|_, call| {
        if call.method() == Method::InvalidateKernel {
            assert!(!fails(Point::AfterFlush), "the machine fails");
        }
    });
    tlbs
}

/// The CPU reads at `va`, where `pfn` is shown.
fn read(tlbs: &Tlbs, va: u64, pfn: Pfn) {
    let found = tlbs.access_kernel(CpuId(0), va, Some(pfn));
    assert_eq!(found, Some(pfn), "stale: the CPU reads another frame at {va:#x}");
}

/// Slots that may fail.
struct Failing<L>(L);

// SAFETY: 1. to 5. by the slots beneath; a call that fails has no effect. 6. they are those slots,
// by the same numbers.
unsafe impl<L: Slots> Slots for Failing<L> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn install(&self, install: Install) -> Result<u64, SlotError> {
        if fails(Point::Install) {
            return Err(SlotError { index: install.index(), code: 12 });
        }
        self.0.install(install)
    }
    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        if fails(Point::Remove) {
            return Err(SlotError { index: remove.index(), code: 12 });
        }
        self.0.remove(remove)
    }
    fn address(&self, index: usize) -> *mut u8 {
        self.0.address(index)
    }
    fn page(&self, index: usize) -> u64 {
        self.0.page(index)
    }
    fn shift(&self) -> u32 {
        self.0.shift()
    }
}

fn host() -> Host<X86_64> {
    let config = HostConfig { bytes: 8 << 20, low: 4 << 20, prefault: 0, ..HostConfig::default() };
    Host::new(config).unwrap()
}

fn high(n: u32) -> Pfn {
    Pfn(HIGH + n)
}

fn store(host: &Host<X86_64>, n: usize) -> Failing<StoreSlots> {
    let mut boot = host.boot(StoreSlots::bytes(n)).unwrap();
    // SAFETY: 1. it reaches all frames of the host.
    Failing(unsafe { StoreSlots::new(&mut boot, n, START, host.window()) }.unwrap())
}

/// The CPU reads in every slot.
fn read_all(tlbs: &Tlbs, slots: &Failing<StoreSlots>) {
    for slot in 0..slots.len() {
        if let Some(pfn) = slots.0.frame(slot) {
            read(tlbs, slots.page(slot), pfn);
        }
    }
}

fn color_of(pfn: Pfn) -> usize {
    assert!(!fails(Point::Color), "the caller's function fails");
    pfn.0 as usize
}

#[test]
fn a_pool_of_slots_loses_none_and_shows_nothing_stale() {
    let passed = for_every_k(|attempt| {
        let (host, tlbs) = (host(), tlbs());
        let m = machine!(host, tlbs);
        let slots = store(&host, SLOTS);
        let config = PoolConfig { colors: 2, color_of, ..PoolConfig::new(1, SLOTS) };
        let mut boot = host.boot(1 << 17).unwrap();
        let (frames, low) = (host.frames(), host.low_window());
        // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
        let pool = unsafe { Pool::new(&mut boot, config, m.tlb(), frames, low, &slots, &()) }.unwrap();
        let cpus = host.slots();
        let pin = cpus[0].pin();
        let call = &mut || {
            for n in 0..7 {
                let page = pool.try_map(&pin, high(n));
                read_all(&tlbs, &slots);
                let again = pool.try_map(&pin, high(n));
                assert!(
                    page.is_ok()
                        || matches!(page.err(), Some(PoolError::Slot(_) | PoolError::Exhausted { .. }))
                );
                drop(again);
            }
            let _ = pool.flush_unused(&pin);
            pool.idle(&pin);
        };
        attempt(call);
        for n in 20..30 {
            drop(pool.try_map(&pin, high(n)).unwrap());
            read_all(&tlbs, &slots);
        }
        // All slots at once.
        let all: Vec<_> = (40..40 + SLOTS as u32).map(|n| pool.try_map(&pin, high(n)).unwrap()).collect();
        read_all(&tlbs, &slots);
        drop(all);
        assert_eq!(pool.flush_unused(&pin).unwrap().pinned, 0);
        assert!((0..SLOTS).all(|slot| pool.state(slot) == 0 && slots.0.frame(slot).is_none()));
        assert_eq!(tlbs.translations(), 0);
    });
    assert_passed(&passed, &POINTS);
}

#[test]
fn the_pool_as_linux_has_it_loses_no_slot_and_shows_nothing_stale() {
    let passed = for_every_k(|attempt| {
        let (host, tlbs) = (host(), tlbs());
        let m = machine!(host, tlbs);
        let slots = store(&host, SLOTS);
        let mut boot = host.boot(1 << 16).unwrap();
        let (frames, low) = (host.frames(), host.low_window());
        // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
        let pool = unsafe { LinuxPool::new(&mut boot, m.tlb(), frames, low, &slots) }.unwrap();
        let cpus = host.slots();
        let pin = cpus[0].pin();
        let use_of = |n| {
            let mapped = pool.try_map(&pin, high(n));
            read_all(&tlbs, &slots);
            if mapped.is_ok() {
                // SAFETY: 1. mapped just now.
                assert_eq!(unsafe { pool.unmap(&pin, high(n)) }, Ok(true));
            }
            mapped.map(drop)
        };
        attempt(&mut || {
            (0..9).for_each(|n| _ = use_of(n));
            let _ = pool.flush_unused(&pin);
        });
        (20..30).for_each(|n| use_of(n).unwrap());
        // All slots at once.
        for n in 40..40 + SLOTS as u32 {
            pool.try_map(&pin, high(n)).unwrap();
            read_all(&tlbs, &slots);
        }
        for n in 40..40 + SLOTS as u32 {
            // SAFETY: 1. mapped above.
            assert_eq!(unsafe { pool.unmap(&pin, high(n)) }, Ok(true));
        }
        pool.flush_unused(&pin).unwrap();
        assert!((0..SLOTS).all(|slot| pool.state(slot) == 0 && slots.0.frame(slot).is_none()));
        assert_eq!(tlbs.translations(), 0);
    });
    assert_passed(&passed, &POINTS[..5]);
}

#[test]
fn local_maps_lose_no_slot_and_show_nothing_stale() {
    let passed = for_every_k(|attempt| {
        let (host, tlbs) = (host(), tlbs());
        let m = machine!(host, tlbs);
        let slots = store(&host, SLOTS);
        let mut boot = host.boot(1 << 16).unwrap();
        let (frames, low) = (host.frames(), host.low_window());
        // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
        let maps = unsafe { LocalMaps::new(&mut boot, SLOTS, m.tlb(), frames, low, &slots) }.unwrap();
        let cpus = host.slots();
        let pin = cpus[0].pin();
        attempt(&mut || {
            let run = maps.scope(&pin, |scope| {
                let window = scope.window();
                let a = window.map(high(1).addr());
                let b = window.map(high(2).addr());
                read_all(&tlbs, &slots);
                drop(a);
                maps.scope(&pin, |inner| drop(inner.map(high(3)))).unwrap();
                let c = window.map(high(4).addr());
                read_all(&tlbs, &slots);
                drop(b);
                drop(c);
            });
            run.unwrap();
        });
        assert_eq!(maps.depth(&pin), 0);
        let use_all = |first: u32| {
            maps.scope(&pin, |scope| {
                let window = scope.window();
                let n = SLOTS as u32;
                let all: Vec<_> = (first..first + n).map(|n| window.map(high(n).addr()).unwrap()).collect();
                read_all(&tlbs, &slots);
                drop(all);
            })
            .unwrap();
        };
        use_all(10);
        // A task is switched out and in with guards that live.
        maps.scope(&pin, |scope| {
            let window = scope.window();
            let guards = [1, 2, 3].map(|n| window.map(high(n).addr()).unwrap());
            read_all(&tlbs, &slots);
            let mut task = TaskMaps::default();
            // SAFETY: 1. the guards are not used before the task is switched in.
            attempt(&mut || _ = unsafe { maps.switch_out(&pin, &mut task) });
            assert_eq!(task.len(), 3);
            use_all(20);
            attempt(&mut || _ = maps.switch_in(&pin, &mut task));
            if !task.is_empty() {
                maps.switch_in(&pin, &mut task).unwrap();
            }
            assert_eq!([0, 1, 2].map(|slot| slots.0.frame(slot)), [1, 2, 3].map(|n| Some(high(n))));
            read_all(&tlbs, &slots);
            drop(guards);
        })
        .unwrap();
        assert_eq!(maps.depth(&pin), 0);
        use_all(30);
        assert!((0..SLOTS).all(|slot| slots.0.frame(slot).is_none()));
    });
    assert_passed(&passed, &POINTS[..5]);
}

type Range<'k> = KernelRange<'k, X86_64, DirectMap>;
type Areas<'k> = Vmalloc<'k, X86_64, DirectMap>;

/// Frames in use, those on lists of data frames given back first.
fn in_use<M: Machine>(on: On<'_, M>) -> u64 {
    while on.data().drain(on.frames(), on.pin()) != 0 {}
    let counts = on.frames().counts();
    (counts.total - counts.free) as u64
}

/// The CPU reads `pages` pages from `at` on.
fn read_pages<M: Machine>(tlbs: &Tlbs, on: On<'_, M>, range: &Range<'_>, at: u64, pages: u64) {
    for va in (at..at + pages * PAGE).step_by(PAGE as usize) {
        if let Some((pfn, attr)) = range.query(on, VirtAddr(va))
            && attr.has(Attr::READ)
        {
            read(tlbs, va, pfn);
        }
    }
}

fn release<M: Machine>(on: On<'_, M>, range: Range<'_>) {
    range.release(on, |_, _| panic!("a page is left")).unwrap_or_else(|(e, _)| panic!("{e}"));
}

/// Makes a call while no more than `left` frames are free.
fn with_frames_left(frames: &Frames, left: usize, call: &mut dyn FnMut()) {
    let taken = take_all_but(frames, left);
    call();
    taken.into_iter().for_each(|frame| frames.give(frame));
}

/// All free memory but `left` frames.
fn take_all_but(frames: &Frames, left: usize) -> Vec<Frame<Dirty>> {
    let request = Request {
        node: ptarmigan::cpu::NodeId(0),
        order: 0,
        zero: false,
        class: ZoneClass::High,
        end: End::High,
        flags: AllocFlags::URGENT,
    };
    let mut all = Vec::new();
    while let Ok(taken) = frames.take(request) {
        all.push(taken.dirty());
    }
    for _ in 0..left {
        frames.give(all.pop().unwrap());
    }
    all
}

/// Makes and frees areas; what is made, and not freed, is in `live`.
fn areas_of<'k, M: Machine>(
    tlbs: &Tlbs,
    on: On<'_, M>,
    areas: &mut Areas<'k>,
    live: &mut Vec<Area<'k>>,
    device: Pfn,
) {
    for pages in [3, 1, 2] {
        live.extend(areas.alloc(on, pages, RW, NORMAL));
        // SAFETY: 1. the frames are the test's.
        live.extend(unsafe { areas.map(on, device, pages, RW, NORMAL) });
        for area in &*live {
            read_pages(tlbs, on, areas.range(), area.start().0, area.pages());
        }
    }
    for area in &*live {
        let _ = areas.protect(on, area, |attr| attr.without(Attr::WRITE));
    }
    while let Some(area) = live.pop() {
        if let Err(refused) = areas.free(on, area) {
            live.push(refused.value);
            return;
        }
    }
}

/// Runs a scenario of areas; `attempt` also gets the frames of the host.
fn areas_scenario(attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut())) {
    let (host, tlbs) = (host(), tlbs());
    let m = machine!(host, tlbs);
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let on = m.on(&pin).unwrap();
    // The table below the root stays.
    release(on, host.kernel().claim(on, VirtAddr(START), LEAF).unwrap());
    let device = on.data().take_block(on.frames(), &pin, 2, NORMAL).unwrap();
    let before = in_use(on);
    let range = host.kernel().claim(on, VirtAddr(START), LEAF).unwrap();
    let mut boot = host.boot(Areas::bytes(LEAF)).unwrap();
    let mut areas = Areas::new(&mut boot, range).unwrap();
    let mut live = Vec::new();
    attempt(on.frames(), &mut || areas_of(&tlbs, on, &mut areas, &mut live, device.pfn()));
    for area in live.drain(..) {
        areas.free(on, area).unwrap();
    }
    areas.finish(on).unwrap();
    assert_eq!((areas.counts().areas, areas.counts().pages), (0, 0));
    // Other frames at all addresses.
    while let Ok(area) = areas.alloc(on, 30, RW, NORMAL) {
        read_pages(&tlbs, on, areas.range(), area.start().0, 30);
        live.push(area);
    }
    assert!(live.len() > 10);
    for area in live.drain(..) {
        areas.free(on, area).unwrap();
    }
    release(on, areas.into_range().unwrap_or_else(|refused| panic!("{}", refused.error)));
    assert_eq!(in_use(on), before, "frames are lost");
    assert_eq!(tlbs.translations(), 0);
}

#[test]
fn areas_lose_no_frame_and_show_nothing_stale() {
    let passed = for_every_k(|attempt| areas_scenario(&mut |_, call| attempt(call)));
    assert_passed(&passed, &POINTS[..3]);
}

#[test]
fn areas_lose_no_frame_when_memory_ends() {
    for left in 0..24 {
        areas_scenario(&mut |frames, call| with_frames_left(frames, left, call));
    }
}

/// Maps, protects, unmaps and releases ranges; `range` is the one that is held, and `shown` are the
/// frames that are mapped.
fn range_calls<'k, M: Machine>(
    tlbs: &Tlbs,
    host: &'k Host<X86_64>,
    on: On<'_, M>,
    range: &mut Option<Range<'k>>,
    named: &RefCell<Vec<u32>>,
    whole: &RefCell<Vec<u32>>,
) {
    let gone = |_, pfn: Pfn| named.borrow_mut().push(pfn.0);
    for first in [100, 200] {
        *range = host.kernel().claim(on, VirtAddr(START), 2 * LEAF).ok();
        let Some(its) = range.as_mut() else { return };
        let at = VirtAddr(START + LEAF - 2 * PAGE);
        // SAFETY: 1. nothing uses the frames.
        if unsafe { its.map(on, at, high(first), 4, RW, NORMAL) }.is_ok() {
            whole.borrow_mut().push(first);
        }
        read_pages(tlbs, on, its, at.0, 4);
        assert_eq!(host.kernel().serve_fault(on, at, Access::Read), its.query(on, at).is_some());
        let _ = its.protect(on, at, 3, |attr| attr.without(Attr::WRITE));
        let _ = its.unmap(on, VirtAddr(at.0 + PAGE), 2, gone);
        if let Some(its) = range.take()
            && let Err((_, back)) = its.release(on, gone)
        {
            *range = Some(back);
            return;
        }
    }
}

/// Runs a scenario of ranges; `attempt` also gets the frames of the host.
fn ranges_scenario(attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut())) {
    let (host, tlbs) = (host(), tlbs());
    let m = machine!(host, tlbs);
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let on = m.on(&pin).unwrap();
    release(on, host.kernel().claim(on, VirtAddr(START), 2 * LEAF).unwrap());
    let before = in_use(on);
    let (mut range, named, whole) = (None, RefCell::default(), RefCell::default());
    attempt(on.frames(), &mut || range_calls(&tlbs, &host, on, &mut range, &named, &whole));
    let claim = || host.kernel().claim(on, VirtAddr(START), 2 * LEAF).unwrap();
    let gone = |_, pfn: Pfn| named.borrow_mut().push(pfn.0);
    let mut range = range.unwrap_or_else(claim);
    range.unmap(on, VirtAddr(START), 2 * LEAF / PAGE, gone).unwrap();
    // No frame twice, and all of a mapping that was made.
    let mut all = named.take();
    all.sort_unstable();
    assert!(all.windows(2).all(|two| two[0] != two[1]), "{all:?}");
    for first in whole.take() {
        assert!((first..first + 4).all(|n| all.contains(&high(n).0)), "{first}: {all:?}");
    }
    // Other frames at all addresses.
    // SAFETY: 1. nothing uses the frames.
    unsafe { range.map(on, VirtAddr(START), Pfn(0), 2 * LEAF / PAGE, RW, NORMAL) }.unwrap();
    read_pages(&tlbs, on, &range, START, 2 * LEAF / PAGE);
    range.release(on, |_, _| {}).unwrap_or_else(|(e, _)| panic!("{e}"));
    assert_eq!(in_use(on), before, "frames are lost");
    assert_eq!(tlbs.translations(), 0);
}

#[test]
fn ranges_of_the_kernels_half_lose_no_frame_and_show_nothing_stale() {
    let passed = for_every_k(|attempt| ranges_scenario(&mut |_, call| attempt(call)));
    assert_passed(&passed, &POINTS[..3]);
}

#[test]
fn ranges_of_the_kernels_half_lose_no_frame_when_memory_ends() {
    for left in 0..8 {
        ranges_scenario(&mut |frames, call| with_frames_left(frames, left, call));
    }
}

#[test]
fn kernel_slots_give_their_range_back_when_memory_ends_and_after_flushes_that_unwind() {
    let scenario = |attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut())| {
        let (host, tlbs) = (host(), tlbs());
        let m = machine!(host, tlbs);
        let cpus = host.slots();
        let pin = cpus[0].pin();
        let on = m.on(&pin).unwrap();
        release(on, host.kernel().claim(on, VirtAddr(START), LEAF).unwrap());
        let before = in_use(on);
        let mut held = Some(host.kernel().claim(on, VirtAddr(START), LEAF).unwrap());
        let mut boot = host.boot(1 << 17).unwrap();
        attempt(on.frames(), &mut || {
            let Some(range) = held.take() else { return };
            match KernelSlots::new(&mut boot, on, range, RW) {
                Err(refused) => held = Some(refused.value),
                Ok(slots) => {
                    // SAFETY: 1. no address of a slot is used.
                    held = unsafe { slots.into_range(on) }.ok();
                }
            }
        });
        // If the call unwound, the range is had again as it was left.
        let range = held.unwrap_or_else(|| host.kernel().claim(on, VirtAddr(START), LEAF).unwrap());
        range.release(on, |_, _| {}).unwrap_or_else(|(e, _)| panic!("{e}"));
        assert_eq!(in_use(on), before, "frames are lost");
        assert_eq!(tlbs.translations(), 0);
    };
    for left in 0..4 {
        scenario(&mut |frames, call| with_frames_left(frames, left, call));
    }
    let passed = for_every_k(|attempt| scenario(&mut |_, call| attempt(call)));
    assert!(passed.iter().any(|(point, times)| *point == Point::BeforeFlush && *times > 0));
    assert_eq!(1 << FRAME_SHIFT, PAGE);
}
