//! Ranges of the kernel's half whose owners share tables, and whose flushes fail.
use crate::common;
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr};
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::format::{Attr, X86_64};
use ptarmigan::frames::{AllocFlags, Frames};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layered, Policy, Quicklists};
use ptarmigan::table::{ClaimError, KernelMap, KernelRange, KernelRangeError, MapError};
use ptarmigan::tlb::{Mmu, TlbRefusal};
use ptarmigan::vmalloc::Vmalloc;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::test::{Call, LayerCall, TestLayer, TestMmu};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig, HostMachine, NoTlb};
use ptarmigan_linux::Rules;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

type F = X86_64;
const PAGE: u64 = 4096;
const LEAF: u64 = 2 << 20;
const START: u64 = 0xffff_c000_0000_0000;
/// As pages of the kernel's half have it.
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);
const NORMAL: AllocFlags = AllocFlags::NORMAL;

fn host(cpus: usize) -> Host<F> {
    Host::new(HostConfig { cpus, bytes: 16 << 20, prefault: 0, ..HostConfig::default() }).unwrap()
}

fn claim<'h>(host: &'h Host<F>, on: On<'_, impl Machine>, va: u64) -> KernelRange<'h, F, DirectMap> {
    host.kernel().claim(on, VirtAddr(va), LEAF).unwrap()
}

/// Maps the first page of a range.
fn map(range: &mut KernelRange<'_, F, DirectMap>, on: On<'_, impl Machine>, attr: Attr) {
    let at = range.start();
    // SAFETY: 1. no code reads or writes through the mapping.
    unsafe { range.map(on, at, Pfn(7), 1, attr, NORMAL).unwrap() };
}

fn unwinds<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err()
}

/// Where code of the test runs in the middle of the library's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// A table has been allocated.
    Allocated,
    /// A layer is told of a table that comes back: before the flush if the policy takes it then.
    Freeing,
    /// CPU 1 is to forget pages of the kernel's half.
    Invalidate,
}

/// A function, and the moment when it runs.
type Hook = (Moment, Box<dyn FnOnce()>);

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Has `f` run at the next `moment`.
fn at_next(moment: Moment, f: impl FnOnce() + 'static) {
    HOOK.set(Some((moment, Box::new(f))));
}

fn fail_at_next(moment: Moment) {
    at_next(moment, || panic!("code outside of the library fails"));
}

fn reach(moment: Moment) {
    let hook = HOOK.with_borrow_mut(|hook| hook.take_if(|(at, _)| *at == moment));
    if let Some((_, f)) = hook {
        f();
    }
}

/// Reaches the moments of a layer.
type Hooked = TestLayer<'static, fn(&Pinned<'_>, LayerCall)>;

fn hooked(frames: &'static Frames) -> Hooked {
    TestLayer::new(Some(frames), |_, call| match call {
        LayerCall::Allocated(..) => reach(Moment::Allocated),
        LayerCall::Freeing(..) => reach(Moment::Freeing),
        _ => {}
    })
}

/// TLBs of which CPU 1 reaches [`Moment::Invalidate`].
fn tlbs() -> &'static TestMmu<'static> {
    let tlbs: &'static TestMmu<'_> = Box::leak(Box::default());
    tlbs.before(|_, call| {
        if let Call::InvalidateKernel(CpuId(1), _) = call {
            reach(Moment::Invalidate);
        }
    });
    tlbs
}

type Construct = &'static KernelMap<F, DirectMap>;
type Lists = Quicklists<'static, DirectMap, Construct>;
type Hosted<P, S> = On<'static, HostMachine<'static, F, Layered<Hooked, P>, S>>;

/// A machine that code in the middle of others can use, too.
fn leaked<S: Mmu>(mmu: S) -> Hosted<Lists, S> {
    leaked_with(mmu, |host| host.quicklists().unwrap())
}

/// The same with another policy.
fn leaked_with<P: Policy + 'static, S: Mmu>(
    mmu: S,
    make: impl FnOnce(&'static Host<F>) -> P,
) -> Hosted<P, S> {
    let host: &'static Host<F> = Box::leak(Box::new(host(3)));
    let policy = Layered::new(hooked(host.frames()), make(host)).unwrap();
    let m: &'static HostMachine<'_, _, _, _> =
        Box::leak(Box::new(HostMachine::new(host, policy, mmu).unwrap()));
    let slot: &'static CpuSlot = Box::leak(Box::new(host.slot(0).unwrap()));
    let pin: &'static Pinned<'_> = Box::leak(Box::new(slot.pin()));
    m.on(pin).unwrap()
}

fn host_of<P: Policy, S: Mmu>(on: Hosted<P, S>) -> &'static Host<F> {
    on.machine().host()
}

/// No range has an owner: all tables have come back but those below the root.
fn check_none_lost<P: Policy, S: Mmu>(on: Hosted<P, S>) {
    on.drain();
    on.policy().reclaim(on.node(), u32::MAX);
    host_of(on).audit().unwrap();
    assert_eq!(on.machine().policy().counts().live(), host_of(on).kernel().tables() - 1);
}

#[test]
fn a_table_that_another_owner_is_about_to_link_in_is_not_given_back() {
    let on = leaked(NoTlb);
    let host = host_of(on);
    let mut first = claim(host, on, START);
    let mut second = claim(host, on, START + LEAF);
    map(&mut first, on, RW);
    let taken: Rc<RefCell<Vec<PhysAddr>>> = Rc::default();
    let took = taken.clone();
    at_next(Moment::Allocated, move || {
        assert!(first.release(on, |_, _| ()).is_ok());
        took.borrow_mut().extend((0..4).map(|_| on.alloc(Level(1), NORMAL).unwrap().into_raw()));
    });
    map(&mut second, on, RW);
    assert_eq!(second.query(on, VirtAddr(START + LEAF)), Some((Pfn(7), RW)));
    assert_eq!(taken.borrow().len(), 4);
    for at in taken.take() {
        for word in 0..512 {
            // SAFETY: 1. the table is the test's.
            let raw = unsafe { host.read(PhysAddr(at.0 + 8 * word), 8) };
            assert_eq!(raw, Some(0), "word {word} of a table that was handed out was written");
        }
        // SAFETY: 1. to 3. taken above, clean, and never linked.
        let page = unsafe { Clean::from_raw(at, Level(1)) };
        // SAFETY: 1. it came from this policy.
        unsafe { on.free_unlinked(page) };
    }
    second.release(on, |_, _| ()).map_err(|(e, _)| e).unwrap();
    check_none_lost(on);
}

#[test]
fn the_last_of_two_owners_gives_the_shared_table_back_also_if_both_go_at_once() {
    // A layer is told of tables before the flush where the policy takes them then.
    let on = leaked_with(NoTlb, |host| common::historic(host, Rules::V5, 2).unwrap());
    let host = host_of(on);
    let mut first = claim(host, on, START);
    let mut second = claim(host, on, START + LEAF);
    map(&mut first, on, RW);
    map(&mut second, on, RW);
    // The second owner goes when the first one has unlinked its leaf table and not flushed yet.
    at_next(Moment::Freeing, move || {
        let taken = Err(ClaimError::Taken { at: VirtAddr(START) });
        assert_eq!(host.kernel().claim(on, VirtAddr(START), LEAF).map(|_| ()), taken, "it is being flushed");
        assert!(second.release(on, |_, _| ()).is_ok());
    });
    first.release(on, |_, _| ()).map_err(|(e, _)| e).unwrap();
    check_none_lost(on);
}

/// Two owners of neighbouring ranges come, do something with them, and go, at the same time.
fn neighbours(rounds: usize, work: fn(&mut KernelRange<'_, F, DirectMap>, On<'_, AtOnce<'_>>)) {
    let host = host(2);
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let failed = AtomicBool::new(false);
    let left = AtomicUsize::new(2);
    std::thread::scope(|threads| {
        for cpu in 0..2 {
            let (host, m, failed, left) = (&host, &m, &failed, &left);
            threads.spawn(move || {
                let slot = host.slot(cpu).unwrap();
                let pin = slot.pin();
                let on = m.on(&pin).unwrap();
                let at = START + cpu as u64 * LEAF;
                let unwound = unwinds(|| {
                    for _ in 0..rounds {
                        if failed.load(SeqCst) {
                            break;
                        }
                        let mut range = claim(host, on, at);
                        work(&mut range, on);
                        range.release(on, |_, _| ()).map_err(|(e, _)| e).unwrap();
                    }
                });
                if unwound {
                    failed.store(true, SeqCst);
                }
                left.fetch_sub(1, SeqCst);
                // The other one may wait for this CPU.
                while left.load(SeqCst) > 0 {
                    m.tlb().serve(&pin);
                    std::thread::yield_now();
                }
            });
        }
    });
    assert!(!failed.load(SeqCst));
    m.drain(&host.slots());
    host.audit().unwrap();
    assert_eq!(m.policy().counts().live(), host.kernel().tables() - 1);
    assert_eq!(host.frames().reserved(), 0);
}

type AtOnce<'h> = HostMachine<'h, F, Quicklists<'h, DirectMap, &'h KernelMap<F, DirectMap>>, NoTlb>;

#[test]
fn owners_of_neighbouring_ranges_come_and_go_at_once() {
    neighbours(if cfg!(miri) { 50 } else { 20_000 }, |range, on| {
        map(range, on, RW);
        assert_eq!(range.query(on, range.start()), Some((Pfn(7), RW)));
    });
}

#[test]
fn owners_of_large_pages_in_one_table_come_and_go_at_once() {
    neighbours(if cfg!(miri) { 5 } else { 1_000 }, |range, on| {
        let (at, first) = (range.start(), Pfn(1 << 20));
        let large = |range: &mut KernelRange<'_, F, DirectMap>| {
            // SAFETY: 1. no code reads or writes through the mapping.
            unsafe { range.map_large(on, at, Level(1), first, RW, NORMAL) }.unwrap();
        };
        large(range);
        range.unmap(on, at, LEAF / PAGE, |_, _| ()).unwrap();
        large(range);
        range.split(on, at, Level::PTE).unwrap();
        range.collapse(on, at, Level(1)).unwrap();
        range.unmap(on, VirtAddr(at.0 + 3 * PAGE), LEAF / PAGE - 3, |_, _| ()).unwrap();
        range.unmap(on, at, 3, |_, _| ()).unwrap();
        large(range);
        assert_eq!(range.query_leaf(on, at).map(|leaf| (leaf.frame, leaf.shift)), Some((first, 21)));
    });
}

#[test]
fn tables_in_the_way_of_large_pages_stay_in_the_middle_of_a_flush_and_areas_have_pages() {
    let on = leaked(tlbs());
    let host = host_of(on);
    let (mut first, start) = (claim(host, on, START), START + 8 * LEAF);
    map(&mut first, on, RW);
    let range = host.kernel().claim(on, VirtAddr(start), 4 * LEAF).unwrap();
    let mut boot = host.boot(Vmalloc::<F, DirectMap>::bytes(4 * LEAF)).unwrap();
    let mut areas = Vmalloc::new(&mut boot, range).unwrap_or_else(|refused| panic!("{}", refused.error));
    let all = areas.alloc(on, 2000, RW, NORMAL).unwrap();
    areas.free(on, all).unwrap();
    let mut second = claim(host, on, START + LEAF);
    map(&mut second, on, RW);
    second.unmap(on, VirtAddr(START + LEAF), 1, |_, _| ()).unwrap();
    let done: Rc<RefCell<Option<_>>> = Rc::default();
    let out = done.clone();
    at_next(Moment::Invalidate, move || {
        let at = second.start();
        // SAFETY: 1. no code reads or writes through the mappings.
        let refused = unsafe { second.map_large(on, at, Level(1), Pfn(1 << 20), RW, NORMAL) };
        assert_eq!(refused, Err(MapError::Refused(TlbRefusal::Busy(CpuId(0)))));
        assert!(second.query(on, at).is_none() && host.frames().reserved() == 0);
        // SAFETY: 1. as above.
        let area = unsafe { areas.map(on, Pfn(1 << 20), 512, RW, NORMAL) }.unwrap();
        assert_eq!(areas.range().query_leaf(on, area.start()).map(|leaf| leaf.shift), Some(12));
        *out.borrow_mut() = Some((second, areas, area));
    });
    first.unmap(on, VirtAddr(START), 1, |_, _| ()).unwrap();
    let (mut second, mut areas, area) = done.take().expect("CPU 1 was asked");
    let at = second.start();
    // SAFETY: 1. as above.
    unsafe { second.map_large(on, at, Level(1), Pfn(1 << 20), RW, NORMAL) }.unwrap();
    areas.free(on, area).unwrap();
    let range = areas.into_range().unwrap_or_else(|refused| panic!("{}", refused.error));
    for range in [first, second, range] {
        range.release(on, |_, _| ()).map_err(|(e, _)| e).unwrap();
    }
    assert_eq!(host.frames().reserved(), 0);
    check_none_lost(on);
}

#[test]
fn a_permission_of_the_kernel_is_taken_from_all_cpus_also_if_one_fails() {
    let host = host(3);
    let tlbs = tlbs();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), tlbs).unwrap();
    let on = m.on(&pin).unwrap();
    let mut range = claim(&host, on, START);
    map(&mut range, on, RW);
    for page in [START, START + 9 * PAGE] {
        tlbs.access_kernel(CpuId(2), START, Some(Pfn(7)));
        fail_at_next(Moment::Invalidate);
        let read_only = |_| Attr::READ;
        assert!(unwinds(|| range.protect(on, VirtAddr(START), 1, read_only)));
        assert!(tlbs.knows(CpuId(2), START).is_some(), "CPU 1 fails before CPU 2 is asked");
        // Whatever the owner changes next makes up for it.
        range.protect(on, VirtAddr(page), 1, read_only).unwrap();
        assert_eq!(tlbs.knows(CpuId(2), START), None, "CPU 2 still writes");
        range.protect(on, VirtAddr(START), 1, |_| RW).unwrap();
    }
    // A callback that fails: its earlier changes are flushed all the same. SAFETY: 1. no code reads
    // or writes through the mapping.
    unsafe { range.map(on, VirtAddr(START + PAGE), Pfn(8), 1, Attr::READ, NORMAL).unwrap() };
    tlbs.access_kernel(CpuId(2), START, Some(Pfn(7)));
    let calls = Cell::new(0);
    let change = |_| {
        calls.set(calls.get() + 1);
        // Each page is asked for once before any changes.
        assert!(calls.get() < 4, "the caller's code fails");
        Attr::READ | Attr::ACCESSED
    };
    assert!(unwinds(|| range.protect(on, VirtAddr(START), 2, change)));
    assert_eq!(calls.get(), 4);
    assert_eq!(tlbs.knows(CpuId(2), START), None);
    range.release(on, |_, _| ()).map_err(|(e, _)| e).unwrap();
}

#[test]
fn a_range_whose_release_unwound_is_claimed_as_it_was_left() {
    let tlbs = tlbs();
    // This policy takes tables before the flush, and the layer is told of them then.
    let on = leaked_with(tlbs, |host| common::historic(host, Rules::V5, 2).unwrap());
    let host = host_of(on);
    let again = move || host.kernel().claim(on, VirtAddr(START), LEAF);
    for moment in [Moment::Invalidate, Moment::Freeing] {
        let mut range = claim(host, on, START);
        map(&mut range, on, RW);
        tlbs.access_kernel(CpuId(2), START, Some(Pfn(7)));
        tlbs.access_kernel(CpuId(2), START + PAGE, Some(Pfn(8)));
        fail_at_next(moment);
        let mut named = 0;
        assert!(unwinds(|| range.release(on, |_, _| named += 1).map_err(|(e, _)| e)));
        assert_eq!(named == 1, moment == Moment::Freeing);
        // A larger range is not had.
        let more = host.kernel().claim(on, VirtAddr(START), 2 * LEAF).map(|_| ());
        assert_eq!(more, Err(ClaimError::Taken { at: VirtAddr(START) }));
        // Nor is it had without the flush that is missing.
        fail_at_next(Moment::Invalidate);
        assert!(unwinds(again));
        let refused = Rc::new(RefCell::new(None));
        let seen = refused.clone();
        at_next(Moment::Invalidate, move || {
            // CPU 1 is in the middle of its flush, and CPU 0 waits for its answer.
            *seen.borrow_mut() = Some(again().map(|_| ()));
        });
        let mut other = claim(host, on, START + (1 << 40));
        map(&mut other, on, RW);
        other.unmap(on, other.start(), 1, |_, _| ()).unwrap();
        let busy = ClaimError::Refused(TlbRefusal::Busy(CpuId(0)));
        assert_eq!(refused.take(), Some(Err(busy)));
        assert!(tlbs.knows(CpuId(2), START + PAGE).is_some());
        let range = again().unwrap();
        assert_eq!([START, START + PAGE].map(|va| tlbs.knows(CpuId(2), va)), [None; 2]);
        assert_eq!(again().map(|_| ()), Err(ClaimError::Taken { at: VirtAddr(START) }));
        range
            .release(on, |va, pfn| {
                assert_eq!((va, pfn), (VirtAddr(START), Pfn(7)));
                named += 1;
            })
            .map_err(|(e, _)| e)
            .unwrap();
        assert_eq!(named, 1, "a frame is named once");
        other.release(on, |_, _| ()).map_err(|(e, _)| e).unwrap();
    }
}

#[test]
fn a_range_whose_owner_fails_while_a_frame_is_named_is_not_lost() {
    let on = leaked(NoTlb);
    let host = host_of(on);
    let mut range = claim(host, on, START);
    // SAFETY: 1. no code reads or writes through the mapping.
    unsafe { range.map(on, VirtAddr(START), Pfn(7), 3, RW, NORMAL).unwrap() };
    let mut named = Vec::new();
    let mut name = |_: VirtAddr, pfn: Pfn| {
        named.push(pfn.0);
        assert_ne!(pfn, Pfn(8), "the caller's code fails");
    };
    assert!(unwinds(|| range.release(on, &mut name).map_err(|(e, _)| e)));
    let mut range = claim(host, on, START);
    assert_eq!(range.unmap(on, VirtAddr(START), 3, &mut name), Ok::<_, KernelRangeError>(()));
    assert_eq!(named, [7, 8, 9]);
    map(&mut range, on, RW);
    range.release(on, |_, _| ()).map_err(|(e, _)| e).unwrap();
    check_none_lost(on);
}

#[test]
fn a_range_whose_claim_unwound_is_claimed_again() {
    let on = leaked(NoTlb);
    let host = host_of(on);
    fail_at_next(Moment::Allocated);
    assert!(unwinds(|| claim(host, on, START)));
    let mut range = claim(host, on, START);
    map(&mut range, on, RW);
    range.release(on, |_, _| ()).map_err(|(e, _)| e).unwrap();
    // The page that the layer has lost stays lost.
    on.drain();
    assert_eq!(on.machine().policy().counts().live(), 1 + host.kernel().tables() - 1);
}
