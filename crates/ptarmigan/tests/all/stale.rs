//! Checks the TLBs' stale translations after a flush that failed, was refused, or was told of
//! everything.
use crate::common::{fail_next, forgets_on};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::format::{Access, Attr, Cause, Format, FormatExt, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::gather::{Gather, GatherError};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Policy, Quicklists};
use ptarmigan::space::{Advice, AreaError, AreaFlags, Done, FaultError, SharedSpace, Space, SpaceMachine};
use ptarmigan::table::{KernelMap, MapError, Tree};
use ptarmigan::tlb::{Runs, Scope, SpaceTlb, TlbConfig, TlbRefusal};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::test::{Call, Method, TestMmu};
use ptarmigan_hosted::{CpuSlot, Delivery, Host, HostConfig, HostMachine, NoTlb};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

type X = X86_64;
type Hosted<'h, S> = HostMachine<'h, X, Quicklists<'h, DirectMap, &'h KernelMap<X, DirectMap>>, S>;
const PAGE: u64 = 4096;
const VA: u64 = 0x40_0000;
const NORMAL: AllocFlags = AllocFlags::NORMAL;

fn small(cpus: usize) -> HostConfig {
    HostConfig { cpus, bytes: 16 << 20, touch_data: true, prefault: 0, ..HostConfig::default() }
}

fn rw() -> AreaFlags {
    AreaFlags::READ.with(AreaFlags::WRITE)
}

fn pages(first: u64, n: u64) -> VirtRange {
    VirtRange::new(first, first + n * PAGE).unwrap()
}

fn unwinds<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err()
}

/// A space with one page that was written.
fn written<M: SpaceMachine>(on: On<'_, M>) -> Space<X> {
    let mut space = Space::<X>::new(on).unwrap();
    space.edit(on).unwrap().mmap(pages(VA, 1), rw(), 0).unwrap();
    space.fault(on, VirtAddr(VA), Access::Write).unwrap();
    space
}

/// A parent on CPUs 0 and 1 whose flush fails when it writes to a page that it shares with its
/// child; then `after`, with the parent and the child.
fn failed_copy<R>(
    after: impl FnOnce(&Host<X>, On<'_, Hosted<'_, &TestMmu<'_>>>, &mut Space<X>, &Space<X>) -> R,
) -> R {
    let host = Host::<X>::new(small(2)).unwrap();
    let model = TestMmu::new();
    let slots = host.slots();
    let (pin, pin1) = (slots[0].pin(), slots[1].pin());
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &model).unwrap();
    let on = m.on(&pin).unwrap();
    let mut parent = written(on);
    let child = parent.edit(on).unwrap().fork().unwrap();
    parent.activate(on).unwrap();
    parent.activate(m.on(&pin1).unwrap()).unwrap();
    let before = parent.tree().query(on, VirtAddr(VA));
    fail_next(&model);
    assert!(unwinds(|| parent.fault(on, VirtAddr(VA), Access::Write)));
    assert_eq!(parent.tree().query(on, VirtAddr(VA)), before);
    after(&host, on, &mut parent, &child)
}

#[test]
fn a_parent_does_not_write_to_its_childs_page_after_a_flush_that_failed() {
    failed_copy(|_, on, parent, child| {
        parent.fault(on, VirtAddr(VA), Access::Write).unwrap();
        let (ours, attr) = parent.tree().query(on, VirtAddr(VA)).unwrap();
        let (theirs, _) = child.tree().query(on, VirtAddr(VA)).unwrap();
        assert!(attr.has(Attr::WRITE));
        assert_ne!(ours, theirs);
    });
}

#[test]
fn a_childs_page_is_not_given_back_after_a_flush_of_its_parent_that_failed() {
    failed_copy(|host, on, parent, child| {
        parent.edit(on).unwrap().munmap(pages(VA, 1)).unwrap();
        let (theirs, _) = child.tree().query(on, VirtAddr(VA)).unwrap();
        let fresh = host.data().take(host.frames(), on.pin(), NORMAL).unwrap();
        assert_ne!(fresh.pfn(), theirs);
    });
}

#[test]
fn a_permission_is_taken_from_all_cpus_also_if_one_fails() {
    let host = Host::<X>::new(small(3)).unwrap();
    let model = TestMmu::new();
    let slots = host.slots();
    let pins: Vec<_> = slots.iter().map(|slot| slot.pin()).collect();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &model).unwrap();
    let on = m.on(&pins[0]).unwrap();
    let mut space = written(on);
    let (frame, _) = space.tree().query(on, VirtAddr(VA)).unwrap();
    for pin in &pins[1..] {
        space.activate(m.on(pin).unwrap()).unwrap();
    }
    assert_eq!(model.access(CpuId(2), VA, Some(frame)), Some(frame));
    fail_next(&model);
    assert!(unwinds(|| space.edit(on).unwrap().mprotect(pages(VA, 1), AreaFlags::READ)));
    // The next call flushes, though the area is read only already.
    space.edit(on).unwrap().mprotect(pages(VA, 1), AreaFlags::READ).unwrap();
    let (_, attr) = space.tree().query(on, VirtAddr(VA)).unwrap();
    assert!(!attr.has(Attr::WRITE) && model.knows(CpuId(2), VA).is_none());
}

/// Another gather makes up for the flush that failed, and has not reached CPU 2 yet.
#[test]
fn an_mprotect_does_not_rely_on_a_flush_that_has_not_ended() {
    let host = Host::<X>::new(small(4)).unwrap();
    let model = Arc::new(TestMmu::new());
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &*model).unwrap();
    let space = {
        let slots = host.slots();
        let pins: Vec<_> = slots.iter().map(|slot| slot.pin()).collect();
        let on = m.on(&pins[0]).unwrap();
        let mut space = written(on);
        let (frame, _) = space.tree().query(on, VirtAddr(VA)).unwrap();
        for pin in &pins[1..3] {
            space.activate(m.on(pin).unwrap()).unwrap();
        }
        assert_eq!(model.access(CpuId(2), VA, Some(frame)), Some(frame));
        fail_next(&model);
        assert!(unwinds(|| space.edit(on).unwrap().mprotect(pages(VA, 1), AreaFlags::READ)));
        SharedSpace::new(space)
    };
    let (begun, may_protect) = mpsc::channel();
    let (protected, has_ended) = mpsc::channel();
    let known = Arc::new(AtomicBool::new(false));
    let (tlbs, seen) = (model.clone(), known.clone());
    model.before_next(forgets_on(1), move |_| {
        begun.send(()).unwrap();
        if has_ended.recv_timeout(Duration::from_millis(100)).is_ok() {
            seen.store(tlbs.knows(CpuId(2), VA).is_some(), SeqCst);
        }
    });
    std::thread::scope(|threads| {
        let (host, m, space, model) = (&host, &m, &space, &model);
        threads.spawn(move || {
            may_protect.recv().unwrap();
            let slot = host.slot(0).unwrap();
            let pin = slot.pin();
            let mut locked = space.lock(m.on(&pin).unwrap()).unwrap();
            locked.edit().mprotect(pages(VA, 1), AreaFlags::READ).unwrap();
            assert_eq!(model.knows(CpuId(2), VA), None);
            let _ = protected.send(());
        });
        let slot = host.slot(3).unwrap();
        let pin = slot.pin();
        let mut gather = Gather::new(m.on(&pin).unwrap(), space.tlb(), 12).unwrap();
        gather.changed(2 * VA, 2 * VA + PAGE);
        gather.flush().free();
    });
    assert!(!known.load(SeqCst), "it returned, and CPU 2 still wrote");
}

thread_local! {
    static HOOK: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// A machine of three CPUs for the whole process, as a hook needs it.
struct World {
    host: &'static Host<X>,
    slots: Vec<CpuSlot>,
    m: Hosted<'static, &'static TestMmu<'static>>,
    mmu: &'static TestMmu<'static>,
}

impl World {
    fn new() -> &'static World {
        let host: &'static Host<X> = Box::leak(Box::new(Host::new(small(3)).unwrap()));
        let mmu: &'static TestMmu<'_> = Box::leak(Box::default());
        let is_told = forgets_on(1);
        mmu.before(move |_, call| {
            if is_told(call)
                && let Some(hook) = HOOK.take()
            {
                hook();
            }
        });
        let m = HostMachine::new(host, host.quicklists().unwrap(), mmu).unwrap();
        Box::leak(Box::new(World { host, slots: host.slots(), m, mmu }))
    }

    fn told(&self, cpu: u16) -> Vec<Scope> {
        let calls = self.mmu.calls();
        calls.iter().filter(|call| forgets_on(cpu)(call)).filter_map(Call::scope).collect()
    }

    /// Runs `hook` in the middle of a flush of CPU 0.
    fn in_the_middle_of_a_flush(
        &'static self,
        hook: impl FnOnce(On<'_, Hosted<'static, &'static TestMmu<'static>>>) + 'static,
    ) {
        let (pin, pin1) = (self.slots[0].pin(), self.slots[1].pin());
        let on = self.m.on(&pin).unwrap();
        let mut space = written(on);
        space.activate(self.m.on(&pin1).unwrap()).unwrap();
        HOOK.set(Some(Box::new(move || {
            let pin = self.slots[0].pin();
            hook(self.m.on(&pin).unwrap());
        })));
        space.edit(on).unwrap().munmap(pages(VA, 1)).unwrap();
        assert!(HOOK.take().is_none(), "the hook has not run");
        space.end(on).unwrap();
    }
}

#[test]
fn calls_that_need_a_flush_are_refused_in_the_middle_of_one() {
    let world = World::new();
    let (pin, pin2) = (world.slots[0].pin(), world.slots[2].pin());
    let on = world.m.on(&pin).unwrap();
    let mut space = written(on);
    let _child = space.edit(on).unwrap().fork().unwrap();
    let mut tree = Tree::<X>::new(on, NORMAL).unwrap();
    space.activate(world.m.on(&pin2).unwrap()).unwrap();
    let before = space.tree().query(on, VirtAddr(VA));
    world.in_the_middle_of_a_flush(move |on| {
        let mut edit = space.edit(on).unwrap();
        let busy = AreaError::Refused(TlbRefusal::Busy(CpuId(0)));
        let all = pages(VA, 1);
        assert_eq!(edit.mprotect(all, AreaFlags::READ), Err(busy));
        assert_eq!(edit.munmap(all), Err(busy));
        assert_eq!(edit.mmap(all, rw(), 0), Err(busy));
        assert_eq!(edit.mremap(all, pages(2 * VA, 1), false), Err(busy));
        assert_eq!(edit.madvise(all, Advice::DontNeed), Err(busy));
        assert_eq!(edit.move_stack(pages(2 * VA, 1), rw()), Err(busy));
        assert_eq!(edit.fork().map(drop), Err(busy));
        let busy = TlbRefusal::Busy(CpuId(0));
        assert_eq!(edit.fault(VirtAddr(VA), Access::Write), Err(FaultError::Refused(busy)));
        assert_eq!(edit.area(VirtAddr(VA)).unwrap().flags.without(rw()), AreaFlags::PRIVATE_PAGES);
        assert_eq!(edit.query(VirtAddr(VA)), before);
        assert_eq!(Gather::new(on, space.tlb(), 12).err(), Some(GatherError::Refused(busy)));
        assert_eq!(tree.edit(on).err(), Some(busy));
    });
}

#[test]
fn a_space_that_is_to_end_in_the_middle_of_a_flush_comes_back() {
    let world = World::new();
    let (pin, pin2) = (world.slots[0].pin(), world.slots[2].pin());
    let on = world.m.on(&pin).unwrap();
    let (space, shared) = (written(on), SharedSpace::new(written(on)));
    let tree = Tree::<X>::new(on, NORMAL).unwrap();
    space.activate(world.m.on(&pin2).unwrap()).unwrap();
    let returned = Rc::new(Cell::new(None));
    let give = returned.clone();
    world.in_the_middle_of_a_flush(move |on| {
        let busy = TlbRefusal::Busy(CpuId(0));
        let space = space.end(on).unwrap_err();
        let shared = shared.end(on).unwrap_err();
        let tree = tree.end(on, |_, _, _| panic!("it has no pages")).unwrap_err();
        assert_eq!([space.error, shared.error, tree.error], [busy; 3]);
        assert_eq!(Space::<X>::exec(on, VirtAddr(VA), 1).map(drop), Err(AreaError::Refused(busy)));
        give.set(Some((space.value, shared.value, tree.value)));
    });
    let (space, shared, tree) = returned.take().unwrap();
    assert!(space.tree().query(on, VirtAddr(VA)).is_some());
    for space in [space, shared] {
        space.end(on).unwrap();
    }
    tree.end(on, |_, _, _| ()).unwrap();
    world.m.drain(&world.slots);
    world.host.audit().unwrap();
}

#[test]
fn the_next_flush_makes_up_for_one_that_was_refused() {
    let world = World::new();
    let pin: &'static Pinned<'static> = Box::leak(Box::new(world.slots[0].pin()));
    let pin2 = world.slots[2].pin();
    let on = world.m.on(pin).unwrap();
    let tree: &'static Tree<X> = Box::leak(Box::new(Tree::new(on, NORMAL).unwrap()));
    tree.activate(world.m.on(&pin2).unwrap()).unwrap();
    // It is opened before the flush that it ends in the middle of.
    let mut gather = Gather::new(on, tree.tlb(), 12).unwrap();
    world.in_the_middle_of_a_flush(move |_| {
        gather.changed(VA, VA + PAGE);
        gather.flush().free();
    });
    assert_eq!(world.told(2), []);
    let mut gather = Gather::new(on, tree.tlb(), 12).unwrap();
    gather.changed(2 * VA, 2 * VA + PAGE);
    gather.flush().free();
    assert!(world.told(2).iter().any(|scope| scope.covers(VA)));
}

/// Both pages are in one leaf table, whose lock the first fault holds while it flushes.
#[test]
fn a_fault_in_the_middle_of_a_fault_does_not_wait_for_its_table() {
    let world = World::new();
    let (pin, pin1) = (world.slots[0].pin(), world.slots[1].pin());
    let on = world.m.on(&pin).unwrap();
    let mut space = Space::<X>::new(on).unwrap();
    space.edit(on).unwrap().mmap(pages(VA, 2), rw(), 0).unwrap();
    space.edit(on).unwrap().populate(pages(VA, 2), Access::Write).unwrap();
    let mut child = space.edit(on).unwrap().fork().unwrap();
    // Of the second page the parent is the only user again: it needs the lock and no flush.
    child.edit(on).unwrap().munmap(pages(VA + PAGE, 1)).unwrap();
    let space: &'static SharedSpace<X> = Box::leak(Box::new(SharedSpace::new(space)));
    space.activate(world.m.on(&pin1).unwrap()).unwrap();
    HOOK.set(Some(Box::new(|| {
        let pin = world.slots[0].pin();
        let on = world.m.on(&pin).unwrap();
        let busy = Err(FaultError::Refused(TlbRefusal::Busy(CpuId(0))));
        assert_eq!(space.fault(on, VirtAddr(VA + PAGE), Access::Write), busy);
        assert_eq!(space.fault(on, VirtAddr(VA), Access::Read), busy);
    })));
    assert_eq!(space.fault(on, VirtAddr(VA), Access::Write), Ok(Done::Copied));
    assert!(HOOK.take().is_none(), "the hook has not run");
    assert_eq!(space.fault(on, VirtAddr(VA + PAGE), Access::Write), Ok(Done::Reused));
    child.end(on).unwrap();
}

/// A gather with a table of other tables than the library's.
fn gives_a_table_up<'a, M: Machine>(on: On<'a, M>, space: &'a SpaceTlb) -> Gather<'a, M> {
    let page = on.alloc(Level::PTE, NORMAL).unwrap();
    // SAFETY: 1. the policy is the machine's.
    let at = unsafe { page.into_table(on.frames(), &X::LAYOUT) }.into_raw();
    let mut gather = Gather::new(on, space, 12).unwrap();
    // SAFETY: 1. it never was linked. 2. it came from the policy just now. 3. it was not written
    // to. 4. it mapped no page. 5. it is a leaf table.
    unsafe { gather.foreign_table(at, Level::PTE, VA).unwrap() };
    gather
}

#[test]
fn a_gather_refuses_a_root_table_and_the_registry_of_roots_stays_whole() {
    let host = Host::<X>::new(small(1)).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let level = X::LAYOUT.root();
    // Three registered roots: the one in the middle has a neighbour on either side.
    let [before, middle, after] = core::array::from_fn(|_| on.alloc(level, NORMAL).unwrap());
    let at = middle.into_raw();
    let usage = || on.frames().record(at.pfn()).unwrap().usage();
    let used = usage();
    let space = m.tlb().new_space();
    let mut gather = Gather::new(on, &space, 12).unwrap();
    // SAFETY: 1. no entry links the root. 2. it came from the policy just now. 3. it was not
    // written to. 4. it mapped no page. 5. the policy says its roots.
    assert_eq!(unsafe { gather.foreign_table(at, level, VA) }, Err(GatherError::Root(at)));
    assert_eq!((usage(), gather.waiting()), (used, (0, 0)), "nothing is taken, nothing is written");
    gather.finish();
    // SAFETY: of `from_raw`: 1. to 3. as above. Of `free_unlinked`: 1. they came from the policy.
    unsafe {
        on.free_unlinked(Clean::from_raw(at, level));
        on.free_unlinked(before);
        on.free_unlinked(after);
    }
    // All are taken out of the registry, each by its neighbours' links.
    on.drain();
    on.policy().reclaim(on.node(), u32::MAX);
    assert_eq!(on.policy().policy().counts().cached(), 0);
}

#[test]
fn flushes_of_tables_that_are_not_the_librarys_wait_for_readers_too() {
    let host = Host::<X>::new(small(2)).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let space = m.tlb().new_space();
    let ended = AtomicBool::new(false);
    let (begun, may_flush) = mpsc::channel();
    std::thread::scope(|threads| {
        let (host, m, space, ended) = (&host, &m, &space, &ended);
        threads.spawn(move || {
            let slot = host.slot(1).unwrap();
            let pin = slot.pin();
            let reading = m.tlb().readers().walk(&pin, space).unwrap();
            begun.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            ended.store(true, SeqCst);
            drop(reading);
        });
        may_flush.recv().unwrap();
        gives_a_table_up(on, space).flush().free();
        assert!(ended.load(SeqCst));
    });
    assert_eq!(m.policy().counts().live(), 0);
}

#[test]
fn a_cpu_that_gives_up_tables_that_it_reads_does_not_wait_for_itself() {
    let host = Host::<X>::new(small(1)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let space = m.tlb().new_space();
    let reading = on.tlb().readers().walk(on.pin(), &space).unwrap();
    gives_a_table_up(on, &space).flush().free();
    drop(reading);
    assert_eq!(m.policy().counts().live(), 1, "it is leaked");
    gives_a_table_up(on, &space).flush().free();
    assert_eq!(m.policy().counts().live(), 1);
}

/// Two CPUs, each of which reads the tree of which the other one gives up a table.
fn read_each_others_trees(park: u32) {
    let host = Host::<X>::new(small(2)).unwrap();
    let config = TlbConfig { park, ..TlbConfig::new(2) };
    let policy = host.quicklists().unwrap();
    let m = HostMachine::with_tlb(&host, policy, NoTlb, config, Delivery::AtOnce).unwrap();
    let spaces = [m.tlb().new_space(), m.tlb().new_space()];
    let abandoned = m.tlb().hardware().messages().abandoned();
    let (reading, flushed) = (Barrier::new(2), Barrier::new(2));
    let (ended, end) = mpsc::channel();
    std::thread::scope(|threads| {
        for cpu in 0..2 {
            let (host, m, spaces, ended) = (&host, &m, &spaces, ended.clone());
            let (reading, flushed) = (&reading, &flushed);
            threads.spawn(move || {
                let slot = host.slot(cpu).unwrap();
                let pin = slot.pin();
                let on = m.on(&pin).unwrap();
                let walk = m.tlb().readers().walk(&pin, &spaces[1 - cpu]).unwrap();
                reading.wait();
                let waited = unwinds(|| gives_a_table_up(on, &spaces[cpu]).flush().free());
                // The other CPU may have found the table.
                let given_back = on.unpark();
                flushed.wait();
                drop(walk);
                ended.send((waited, given_back)).unwrap();
            });
        }
        let each = [(); 2].map(|()| end.recv_timeout(Duration::from_secs(5)));
        abandoned.store(true, SeqCst);
        assert_eq!(each, [Ok((false, 0)); 2], "they waited for each other until they were abandoned");
    });
    let slots = host.slots();
    m.drain(&slots);
    assert_eq!(m.policy().counts().live(), if park == 0 { 2 } else { 0 });
}

#[test]
fn cpus_that_read_each_others_trees_do_not_wait_for_each_other() {
    read_each_others_trees(64);
    // Tables that cannot be parked are leaked.
    read_each_others_trees(0);
}

#[test]
fn a_root_entry_that_changed_is_reason_enough_for_a_flush() {
    let host = Host::<X86Pae>::new(small(1)).unwrap();
    let model = TestMmu::new();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &model).unwrap();
    let on = m.on(&pin).unwrap();
    let tree = Tree::<X86Pae>::new(on, NORMAL).unwrap();
    tree.activate(on).unwrap();
    let before = model.count(Method::Invalidate);
    let mut gather = Gather::new(on, tree.tlb(), 12).unwrap();
    gather.root_entry_changed();
    gather.flush().free();
    assert_eq!(model.count(Method::Invalidate), before + 1);
}

#[test]
fn from_0_to_the_end_is_the_whole_address_space() {
    let host = Host::<X>::new(small(1)).unwrap();
    let model = TestMmu::new();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &model).unwrap();
    let on = m.on(&pin).unwrap();
    let tree = Tree::<X>::new(on, NORMAL).unwrap();
    tree.activate(on).unwrap();
    model.access(CpuId(0), VA, Some(Pfn(77))).unwrap();
    let mut gather = Gather::new(on, tree.tlb(), 12).unwrap();
    gather.changed(0, 0);
    gather.flush().free();
    assert_eq!(model.knows(CpuId(0), VA), None);
    let all = Runs::one(0, 0, 12);
    assert!(all.contains(0) && all.contains(VA) && all.contains(u64::MAX));
    assert_eq!(all.hull(), Some((0, 0)));
}

#[test]
fn a_gather_of_pages_larger_than_a_frame_is_a_promise_of_the_callers() {
    let host = Host::<X>::new(small(1)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let tree = Tree::<X>::new(on, NORMAL).unwrap();
    for stride in [0, 21, 64, u32::MAX] {
        assert_eq!(Gather::new(on, tree.tlb(), stride).err(), Some(GatherError::Stride(stride)));
    }
    // SAFETY: 1. it is told of no entry.
    let large = |stride| unsafe { Gather::with_large_pages(on, tree.tlb(), stride) };
    assert!(large(21).is_ok());
    assert_eq!(large(64).err(), Some(GatherError::Stride(64)));
    let mut pages = Gather::new(on, tree.tlb(), 12).unwrap();
    for stride in [0, 12, 64, u32::MAX] {
        // SAFETY: 1. nothing is mapped there.
        let refused = unsafe { pages.large_changed(VA, VA + (1 << 21), stride) };
        assert_eq!(refused, Err(GatherError::Stride(stride)));
    }
}

/// A TLB keeps global translations when it leaves a space.
#[test]
fn a_page_of_a_tree_that_was_to_be_global_is_refused() {
    let host = Host::<X>::new(small(1)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X>::new(on, NORMAL).unwrap();
    let mut edit = tree.edit(on).unwrap();
    let global = Attr::USER | Attr::READ | Attr::GLOBAL;
    let at = |page| VirtAddr(VA + page * PAGE);
    let refused = X::expresses_in_tree(global).unwrap_err();
    assert_eq!(refused.cause(), Cause::Without(Attr::GLOBAL));
    assert_eq!(refused.to_string(), "x86-64 has no page with r--ug---: leave g out");
    let error = MapError::Inexpressible(refused);
    // SAFETY: 1. no program runs in the tree.
    unsafe {
        assert_eq!(edit.map(at(0), Pfn(77), global, NORMAL), Err(error));
        assert_eq!(edit.map_range(pages(VA + PAGE, 1), Pfn(77), global), Err(error));
        assert_eq!(edit.cursor(pages(VA + 2 * PAGE, 1)).map(Pfn(77), global, NORMAL), Err(error));
        edit.map_range(pages(VA + 3 * PAGE, 3), Pfn(77), Attr::USER | Attr::READ).unwrap();
    }
    assert_eq!(edit.protect(at(3), global), Err(refused));
    assert_eq!(edit.cursor(pages(VA + 4 * PAGE, 1)).protect(global), Err(refused));
    let last = pages(VA + 5 * PAGE, 1);
    assert_eq!(edit.change_range(last, |attr| attr | Attr::GLOBAL), Err(refused));
    for page in 0..6 {
        let attr = edit.query(at(page)).map(|(_, attr)| attr);
        assert_eq!(attr, (page > 2).then_some(Attr::USER | Attr::READ), "page {page}");
    }
    edit.flush();
    tree.end(on, |_, _, _| {}).unwrap();
}
