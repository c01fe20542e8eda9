//! Checks the TLB state under interrupts, panics and pins of another machine: a CPU answers only
//! after its work, no pointer outlives its object, and invalid calls are refused.
use crate::common;
use common::{small, va};
use ptarmigan::addr::{PhysAddr, VirtRange};
use ptarmigan::cpu::{MachineId, Pinned};
use ptarmigan::format::{Access, X86_64};
use ptarmigan::gather::Gather;
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Quicklists;
use ptarmigan::space::{AreaFlags, SharedSpace, Space};
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{Runs, Tlb, TlbConfig, TlbError, TlbRefusal};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::test::{Call, Method, TestMmu};
use ptarmigan_hosted::{Host, HostMachine, NoTlb};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};

type F = X86_64;
type Lists = Quicklists<'static, DirectMap, &'static KernelMap<F, DirectMap>>;
type M = HostMachine<'static, F, Lists, &'static Mmus>;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;
const AREA: VirtRange = VirtRange::fixed::<0x40_0000, 0x40_4000>();

type Mmus = TestMmu<'static>;

/// Returns the calls since the last time, in order.
fn take(mmu: &Mmus) -> Vec<(u16, Method)> {
    mmu.take_calls().iter().map(|call| (call.cpu().0, call.method())).collect()
}

/// A machine for as long as the test lasts, for hooks to know.
fn machine(cpus: usize) -> (&'static Host<F>, &'static M, &'static Mmus) {
    let host: &'static Host<F> = Box::leak(Box::new(Host::new(small(cpus, 1, 16)).unwrap()));
    let mmu: &'static Mmus = Box::leak(Box::default());
    let m = HostMachine::new(host, host.quicklists().unwrap(), mmu).unwrap();
    (host, Box::leak(Box::new(m)), mmu)
}

/// A shared space with pages, which CPU 0 makes and which is to be unmapped.
fn shared(m: &M, pin: &Pinned<'_>) -> SharedSpace<F> {
    let on = m.on(pin).unwrap();
    let mut space = Space::<F>::new(on).unwrap();
    fill(&mut space, m, pin);
    SharedSpace::new(space)
}

fn fill(space: &mut Space<F>, m: &M, pin: &Pinned<'_>) {
    let on = m.on(pin).unwrap();
    space.edit(on).unwrap().mmap(AREA, RW, 0).unwrap();
    space.fault(on, va(AREA.start), Access::Write).unwrap();
}

fn unmap(space: &SharedSpace<F>, m: &M, pin: &Pinned<'_>) {
    space.lock(m.on(pin).unwrap()).unwrap().edit().munmap(AREA).unwrap();
}

/// Waits until `is_so`, or for long enough that it would have been.
fn wait(mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Long enough for a call that does not wait to return.
const A_WHILE: Duration = Duration::from_millis(30);

/// CPU 1 runs `switch`. In the middle of that, CPU 0 unmaps, and CPU 1 is interrupted for it.
/// Returns the MMU functions called on CPU 1 from the interrupt on until munmap returns.
fn interrupted(
    point: Method,
    prepare: impl FnOnce(&SharedSpace<F>, &M, &Pinned<'_>) + Send + 'static,
    switch: impl FnOnce(&SharedSpace<F>, &M, &Pinned<'_>) + Send + 'static,
) -> Vec<Method> {
    let (host, m, mmu) = machine(2);
    let space: &'static OnceLock<SharedSpace<F>> = Box::leak(Box::default());
    let go: &'static Barrier = Box::leak(Box::new(Barrier::new(2)));
    let returned: &'static AtomicBool = Box::leak(Box::default());
    let a = host.slot(0).unwrap();
    assert!(space.set(shared(m, &a.pin())).is_ok());
    std::thread::scope(|s| {
        let cpu_1 = s.spawn(move || {
            let b = host.slot(1).unwrap();
            let space = space.get().unwrap();
            prepare(space, m, &b.pin());
            let is_point = move |call: &Call| call.method() == point;
            mmu.before_next(is_point, move |pin| {
                let asked = m.tlb().counts().asked;
                go.wait();
                assert!(wait(|| m.tlb().counts().asked > asked), "munmap asks nobody");
                std::thread::sleep(A_WHILE);
                take(mmu);
                // The interrupt.
                m.tlb().serve(pin);
                std::thread::sleep(A_WHILE);
                assert!(!returned.load(SeqCst), "munmap has returned in the middle of {point:?}");
                assert_eq!(take(mmu), [], "a request was carried out in the middle of {point:?}");
            });
            switch(space, m, &b.pin());
            // From here on no request is served: the switch has done it.
            assert!(wait(|| returned.load(SeqCst)), "munmap waits for ever");
        });
        go.wait();
        unmap(space.get().unwrap(), m, &a.pin());
        let done = take(mmu);
        returned.store(true, SeqCst);
        cpu_1.join().unwrap();
        done.into_iter().filter(|(cpu, _)| *cpu == 1).map(|(_, point)| point).collect()
    })
}

#[test]
fn a_request_in_the_middle_of_a_switch_is_carried_out_before_it_is_answered() {
    use Method::{Invalidate, InvalidateKernel, Lazy, Load, Resume, Unload};
    let nothing = |_: &SharedSpace<F>, _: &M, _: &Pinned<'_>| {};
    let active = |s: &SharedSpace<F>, m: &M, pin: &Pinned<'_>| s.activate(m.on(pin).unwrap()).unwrap();
    let lazy = move |s: &SharedSpace<F>, m: &M, pin: &Pinned<'_>| {
        active(s, m, pin);
        s.rest(m.on(pin).unwrap()).unwrap();
    };
    assert_eq!(interrupted(Load, nothing, active), [Load, Invalidate]);
    // Tables have gone: a lazy CPU leaves the space.
    assert_eq!(interrupted(Lazy, active, |s, m, pin| s.rest(m.on(pin).unwrap()).unwrap()), [Lazy, Unload]);
    assert_eq!(interrupted(Resume, lazy, active), [Resume, Invalidate]);
    // It forgets by leaving: no work is left.
    assert_eq!(interrupted(Unload, active, |s, m, pin| s.deactivate(m.on(pin).unwrap()).unwrap()), [Unload]);
    // In the middle of the answer to another CPU's request, and of a flush of its own.
    let flush_kernel = |_: &SharedSpace<F>, m: &M, pin: &Pinned<'_>| {
        // CPU 0 is in munmap, and answers there.
        m.tlb().flush_kernel(pin, &Runs::one(0, PAGE, 12)).unwrap();
    };
    assert_eq!(interrupted(InvalidateKernel, active, flush_kernel), [InvalidateKernel, Invalidate]);
}

#[test]
fn a_cpu_is_active_for_as_long_as_its_mmu_takes_it_for_that() {
    let (host, m, mmu) = machine(1);
    let slots = host.slots();
    let (pin, cpu) = (slots[0].pin(), slots[0].cpu());
    let space: &'static SharedSpace<F> = Box::leak(Box::new(shared(m, &pin)));
    let calls: &'static AtomicUsize = Box::leak(Box::default());
    mmu.before(move |_, call| {
        assert!(space.tlb().is_active_on(cpu), "{call:?}");
        calls.fetch_add(1, SeqCst);
    });
    let on = m.on(&pin).unwrap();
    space.activate(on).unwrap();
    space.rest(on).unwrap();
    assert!(!space.tlb().is_active_on(cpu));
    space.activate(on).unwrap();
    space.deactivate(on).unwrap();
    assert!(!space.tlb().is_active_on(cpu));
    assert_eq!(calls.load(SeqCst), 4);
}

#[test]
fn a_switch_in_the_middle_of_a_switch_is_refused_and_changes_nothing() {
    let (host, m, mmu) = machine(1);
    let slots = host.slots();
    let (pin, cpu) = (slots[0].pin(), slots[0].cpu());
    let space: &'static SharedSpace<F> = Box::leak(Box::new(shared(m, &pin)));
    let other: &'static SharedSpace<F> = Box::leak(Box::new(shared(m, &pin)));
    let tried: &'static AtomicUsize = Box::leak(Box::default());
    mmu.before(move |pin, _| {
        let on = m.on(pin).unwrap();
        let busy = Err(TlbRefusal::Busy(cpu));
        assert_eq!(other.activate(on), busy);
        assert_eq!(space.rest(on), busy);
        assert_eq!(space.deactivate(on), busy);
        assert_eq!(m.tlb().flush_kernel(pin, &Runs::one(0, PAGE, 12)), busy);
        tried.fetch_add(1, SeqCst);
    });
    let on = m.on(&pin).unwrap();
    space.activate(on).unwrap();
    space.rest(on).unwrap();
    space.activate(on).unwrap();
    space.deactivate(on).unwrap();
    assert_eq!(tried.load(SeqCst), 4);
    let cpu_0 = take(mmu).into_iter().map(|(_, point)| point).collect::<Vec<_>>();
    assert_eq!(cpu_0, [Method::Load, Method::Lazy, Method::Resume, Method::Unload]);
    assert!(!other.tlb().is_active_on(cpu) && !space.tlb().is_active_on(cpu));
}

#[test]
fn pins_and_spaces_of_another_machine_are_refused() {
    let (host, m, mmu) = machine(1);
    let (other_host, other, _) = machine(2);
    let (slot, foreign) = (host.slot(0).unwrap(), other_host.slot(0).unwrap());
    let foreign_1 = other_host.slot(1).unwrap();
    let space = m.tlb().new_space();
    let foreign_space = other.tlb().new_space();
    let is_wrong = |result: Result<(), TlbRefusal>| {
        assert!(matches!(result, Err(TlbRefusal::WrongMachine(_))), "{result:?}");
    };
    for (pin, space) in [(foreign.pin(), &space), (foreign_1.pin(), &space), (slot.pin(), &foreign_space)] {
        // SAFETY: 1. no MMU walks anything here.
        is_wrong(unsafe { m.tlb().activate(&pin, space, PhysAddr(0x1000)) });
        is_wrong(m.tlb().rest(&pin, space));
        is_wrong(m.tlb().deactivate(&pin, space));
        assert!(space.is_unloaded());
    }
    for pin in [foreign.pin(), foreign_1.pin()] {
        is_wrong(m.tlb().flush_kernel(&pin, &Runs::one(0, PAGE, 12)));
        assert!(m.tlb().readers().walk(&pin, &space).is_err());
        // Of another machine's CPU nobody asks anything here.
        m.tlb().serve(&pin);
    }
    assert!(Gather::new(m.on(&slot.pin()).unwrap(), &foreign_space, 12).is_err());
    assert_eq!(take(mmu), []);
}

#[test]
fn no_two_spaces_of_a_machine_have_one_name() {
    let (host, m, mmu) = machine(2);
    let slots = host.slots();
    let (a, b) = (slots[0].pin(), slots[1].pin());
    let (on, on_b) = (m.on(&a).unwrap(), m.on(&b).unwrap());
    let mut one = Space::<F>::new(on).unwrap();
    fill(&mut one, m, &a);
    let mut two = one.edit(on).unwrap().fork().unwrap();
    assert_ne!(one.tlb().id(), two.tlb().id());
    one.activate(on_b).unwrap();
    two.activate(on_b).unwrap();
    assert_eq!(take(mmu), [(1, Method::Load), (1, Method::Load)], "each has a root of its own");
    two.edit(on).unwrap().munmap(AREA).unwrap();
    assert!(take(mmu).contains(&(1, Method::Invalidate)));
    one.edit(on).unwrap().munmap(AREA).unwrap();
    assert_eq!(m.tlb().counts().skipped, 0);
    one.end(on).unwrap();
    two.end(on).unwrap();
    let names = std::thread::scope(|s| {
        let name = |_| s.spawn(|| (0..1000).map(|_| m.tlb().new_space().id()).collect::<Vec<_>>());
        (0..4).map(name).collect::<Vec<_>>().into_iter().flat_map(|t| t.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 4000);
}

#[test]
fn more_cpus_than_can_be_named_are_refused() {
    let (host, ..) = machine(1);
    let config = TlbConfig::new(257);
    let mut boot = host.boot(1 << 20).unwrap();
    // SAFETY: 1. the identity is new.
    let tlb = unsafe { Tlb::new(&mut boot, MachineId::new(), config, NoTlb) };
    assert_eq!(tlb.err(), Some(TlbError::TooManyCpus { cpus: 257 }));
    let config = TlbConfig::new(256);
    let mut boot = host.boot(64).unwrap();
    // SAFETY: 1. the identity is new.
    let tlb = unsafe { Tlb::new(&mut boot, MachineId::new(), config, NoTlb) };
    assert!(matches!(tlb.err(), Some(TlbError::Boot(_))));
}

#[test]
fn readers_protect_what_they_found_in_whatever_order_they_end() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (host, m, _) = machine(2);
        let a = host.slot(0).unwrap();
        let space = shared(m, &a.pin());
        let (returned, begun) = (AtomicBool::new(false), Barrier::new(2));
        std::thread::scope(|s| {
            let (space, returned, begun) = (&space, &returned, &begun);
            s.spawn(move || {
                let slot = host.slot(1).unwrap();
                let pin = slot.pin();
                // One of the three reads another space.
                let readers = m.tlb().readers();
                let other = m.tlb().new_space();
                let mut readings =
                    [space.tlb(), &other, space.tlb()].map(|space| Some(readers.walk(&pin, space).unwrap()));
                begun.wait();
                for at in order {
                    std::thread::sleep(A_WHILE / 2);
                    assert!(!returned.load(SeqCst), "munmap returned before reader {at} of {order:?} ended");
                    readings[at] = None;
                }
                assert!(wait(|| returned.load(SeqCst)), "{order:?}: ended readers are waited for");
            });
            begun.wait();
            unmap(space, m, &a.pin());
            returned.store(true, SeqCst);
        });
    }
}

/// CPU 0 unmaps and its wait fails while CPU 1, which has the space active, does not answer; then
/// `then` is CPU 1.
fn abandoned(then: impl FnOnce(&'static M, &'static Mmus, &Pinned<'_>) + Send + 'static) {
    let (host, m, mmu) = machine(2);
    let (go, failed): (&'static Barrier, &'static Barrier) =
        (Box::leak(Box::new(Barrier::new(2))), Box::leak(Box::new(Barrier::new(2))));
    let space: &'static Mutex<Option<std::sync::Arc<SharedSpace<F>>>> = Box::leak(Box::default());
    let a = host.slot(0).unwrap();
    let mine = std::sync::Arc::new(shared(m, &a.pin()));
    *space.lock().unwrap() = Some(mine.clone());
    std::thread::scope(|s| {
        let cpu_1 = s.spawn(move || {
            let b = host.slot(1).unwrap();
            // It keeps no handle of the space: it has it active.
            space.lock().unwrap().take().unwrap().activate(m.on(&b.pin()).unwrap()).unwrap();
            go.wait();
            failed.wait();
            then(m, mmu, &b.pin());
        });
        go.wait();
        take(mmu);
        m.tlb().hardware().messages().abandoned().store(true, SeqCst);
        let unmapped = catch_unwind(AssertUnwindSafe(|| unmap(&mine, m, &a.pin())));
        assert!(unmapped.is_err(), "the wait is to fail");
        m.tlb().hardware().messages().abandoned().store(false, SeqCst);
        // The last handle, and with it the TLB state that the request pointed to.
        drop(mine);
        failed.wait();
        cpu_1.join().unwrap();
    });
}

#[test]
fn a_wait_that_panics_takes_its_requests_back() {
    abandoned(|m, mmu, pin| {
        m.tlb().serve(pin);
        assert_eq!(take(mmu), [], "a request for a space that is gone was carried out");
        // The mailboxes are as good as new: both CPUs are asked again.
        let on = m.on(pin).unwrap();
        let mut space = Space::<F>::new(on).unwrap();
        fill(&mut space, m, pin);
        space.activate(on).unwrap();
        take(mmu);
        space.edit(on).unwrap().munmap(AREA).unwrap();
        assert_eq!(take(mmu), [(1, Method::Invalidate)]);
        space.end(on).unwrap();
    });
}

#[test]
fn a_wait_that_panics_lets_a_cpu_finish_that_is_at_it() {
    let (host, m, mmu) = machine(2);
    let a = host.slot(0).unwrap();
    let space: &'static SharedSpace<F> = Box::leak(Box::new(shared(m, &a.pin())));
    let unwound: &'static AtomicBool = Box::leak(Box::default());
    let go: &'static Barrier = Box::leak(Box::new(Barrier::new(2)));
    std::thread::scope(|s| {
        let cpu_1 = s.spawn(move || {
            let b = host.slot(1).unwrap();
            space.activate(m.on(&b.pin()).unwrap()).unwrap();
            mmu.before(|_, call| {
                if call.method() == Method::Invalidate {
                    // CPU 0 begins to unwind, and must not get far.
                    m.tlb().hardware().messages().abandoned().store(true, SeqCst);
                    std::thread::sleep(A_WHILE);
                    assert!(
                        !unwound.load(SeqCst),
                        "the space could be gone while CPU 1 works on the request"
                    );
                }
            });
            go.wait();
            assert!(wait(|| {
                m.tlb().serve(&b.pin());
                unwound.load(SeqCst)
            }));
        });
        go.wait();
        let unmapped = catch_unwind(AssertUnwindSafe(|| unmap(space, m, &a.pin())));
        unwound.store(true, SeqCst);
        cpu_1.join().unwrap();
        assert!(take(mmu).contains(&(1, Method::Invalidate)));
        // Whether the answer or the failure came first.
        drop(unmapped);
    });
}

#[test]
fn a_cpu_that_panics_at_a_request_has_not_answered_it() {
    let (host, m, mmu) = machine(2);
    let a = host.slot(0).unwrap();
    let space: &'static SharedSpace<F> = Box::leak(Box::new(shared(m, &a.pin())));
    let returned: &'static AtomicBool = Box::leak(Box::default());
    let go: &'static Barrier = Box::leak(Box::new(Barrier::new(2)));
    std::thread::scope(|s| {
        let cpu_1 = s.spawn(move || {
            let b = host.slot(1).unwrap();
            space.activate(m.on(&b.pin()).unwrap()).unwrap();
            mmu.before(|pin, call| {
                assert!(call.method() != Method::Invalidate || pin.cpu().0 == 0, "injected");
            });
            go.wait();
            // It is asked at some time, and fails.
            assert!(wait(|| catch_unwind(AssertUnwindSafe(|| m.tlb().serve(&b.pin()))).is_err()));
            std::thread::sleep(A_WHILE);
            assert!(!returned.load(SeqCst), "munmap returned, and CPU 1 has forgotten nothing");
            mmu.unhook();
            take(mmu);
            m.tlb().serve(&b.pin());
            assert!(take(mmu).contains(&(1, Method::Invalidate)));
            assert!(wait(|| returned.load(SeqCst)));
        });
        go.wait();
        unmap(space, m, &a.pin());
        returned.store(true, SeqCst);
        cpu_1.join().unwrap();
    });
}
