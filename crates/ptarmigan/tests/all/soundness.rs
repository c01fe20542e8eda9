//! Checks that safe code cannot break memory safety.
use crate::common::forgets_on;
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::format::{Access, Attr, Format, FormatExt, Slot64, X86_64};
use ptarmigan::frames::{AllocFlags, DataFrames, Frames, NoFrame};
use ptarmigan::machine::Machine;
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::Quicklists;
use ptarmigan::space::{AreaFlags, Done, FaultError, LockError, SharedSpace, Space, SpaceMachine};
use ptarmigan::table::{Free, KernelMap, Tree};
use ptarmigan::tlb::{Invalidation, Scope, Tlb};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};
use ptarmigan_hosted::test::{Call, Method, TestMmu};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig, HostMachine, NoTlb, Wired};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, mpsc};

type X = X86_64;
const PAGE: u64 = 4096;
const VA: u64 = 0x40_0000;

fn small(cpus: usize, mib: u64) -> HostConfig {
    HostConfig { cpus, bytes: mib << 20, touch_data: true, prefault: 0, ..HostConfig::default() }
}

fn rw() -> AreaFlags {
    AreaFlags::READ.with(AreaFlags::WRITE)
}

fn pages(first: u64, n: u64) -> VirtRange {
    VirtRange::new(first, first + n * PAGE).unwrap()
}

/// How a parent gives up a page that it shares with its child.
#[derive(Clone, Copy, Debug)]
enum GivesUp {
    ByWriting,
    ByUnmapping,
}

/// A parent gives up a page that it shares with a child; before CPU 1, which reads the page in the
/// parent, has forgotten it, the child writes. Returns the result of the child's fault, and whether
/// CPU 1 knew the page before it and after it.
fn child_writes_before_the_flush(how: GivesUp) -> (Done, bool) {
    let host = Host::<X>::new(small(3, 16)).unwrap();
    let model = TestMmu::new();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &model).unwrap();
    let (m, host, model) = (&m, &host, &model);
    let slots = [host.slot(0).unwrap(), host.slot(1).unwrap()];
    let (pin, pin1) = (slots[0].pin(), slots[1].pin());
    let (on, on1) = (m.on(&pin).unwrap(), m.on(&pin1).unwrap());
    let mut parent = Space::<X>::new(on).unwrap();
    parent.edit(on).unwrap().mmap(pages(VA, 1), rw(), 0).unwrap();
    parent.fault(on, VirtAddr(VA), Access::Write).unwrap();
    let child = Mutex::new(Some(parent.edit(on).unwrap().fork().unwrap()));
    let (frame, attr) = parent.tree().query(on, VirtAddr(VA)).unwrap();
    assert!(!attr.has(Attr::WRITE));
    let parent = SharedSpace::new(parent);
    parent.activate(on).unwrap();
    parent.activate(on1).unwrap();
    assert_eq!(model.access(CpuId(1), VA, Some(frame)), Some(frame));
    let (to_child, at_child) = mpsc::channel::<()>();
    let (from_child, answer) = mpsc::channel::<(Done, bool)>();
    let seen = Mutex::new(None);
    std::thread::scope(|threads| {
        let (child, seen) = (&child, &seen);
        threads.spawn(move || {
            let slot = host.slot(2).unwrap();
            let pin = slot.pin();
            let on = m.on(&pin).unwrap();
            at_child.recv().unwrap();
            let mut child = child.lock().unwrap();
            let child = child.as_mut().unwrap();
            child.activate(on).unwrap();
            let known = || model.knows(CpuId(1), VA) == Some(frame);
            let before = known();
            let done = child.fault(on, VirtAddr(VA), Access::Write).unwrap();
            from_child.send((done, before && known())).unwrap();
            child.deactivate(on).unwrap();
        });
        let (told, done) = mpsc::channel();
        model.before_next(forgets_on(1), move |_| {
            to_child.send(()).unwrap();
            told.send(answer.recv().unwrap()).unwrap();
        });
        match how {
            GivesUp::ByWriting => {
                parent.fault(on, VirtAddr(VA), Access::Write).unwrap();
            }
            GivesUp::ByUnmapping => parent.lock(on).unwrap().edit().munmap(pages(VA, 1)).unwrap(),
        }
        *seen.lock().unwrap() = Some(done.recv().unwrap());
    });
    parent.deactivate(on1).unwrap();
    parent.end(on).unwrap();
    let child = child.lock().unwrap().take().unwrap();
    child.end(on).unwrap();
    drop(slots);
    m.drain(&host.slots());
    host.audit().unwrap();
    seen.lock().unwrap().take().unwrap()
}

#[test]
fn a_child_copies_a_page_that_a_cpu_of_its_parent_may_still_read() {
    for how in [GivesUp::ByWriting, GivesUp::ByUnmapping] {
        let (done, known) = child_writes_before_the_flush(how);
        assert!(known, "{how:?}: the case that this is about did not come up");
        assert_eq!(done, Done::Copied, "{how:?}: written in place while the parent's CPU reads the frame");
    }
}

#[test]
fn entries_that_were_cleared_before_a_callback_panicked_are_flushed() {
    let host = Host::<X>::new(small(1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let model = TestMmu::new();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &model).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X>::new(on, AllocFlags::NORMAL).unwrap();
    let mut edit = tree.edit(on).unwrap();
    for i in 0..3 {
        // SAFETY: 1. no program runs in the tree.
        unsafe {
            edit.map(VirtAddr(VA + i * PAGE), Pfn(77), Attr::USER | Attr::READ, AllocFlags::NORMAL).unwrap()
        };
    }
    edit.flush();
    tree.activate(on).unwrap();
    let before = model.count(Method::Invalidate);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut seen = 0;
        tree.edit(on).unwrap().unmap_range(pages(VA, 3), Free::Never, |_, _, _| {
            seen += 1;
            assert!(seen < 2, "the callback fails");
        });
    }));
    assert!(unwound.is_err());
    assert_eq!(tree.query(on, VirtAddr(VA)), None, "the first entry is gone");
    assert!(model.count(Method::Invalidate) > before, "and no CPU was told");
    // The record still names the other entries.
    tree.edit(on).unwrap().unmap_range(pages(VA, 3), Free::Empty, |_, _, _| {});
    assert_eq!(tree.tables_below_root(), 0);
    tree.end(on, |_, _, _| {}).unwrap();
    m.drain(&slots);
    host.audit().unwrap();
}

#[test]
fn a_forgotten_guard_of_a_shared_space_leaves_nothing_behind_that_points_to_it() {
    let host = Host::<X>::new(small(1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let space = Space::<X>::new(on).unwrap();
    let id = space.tlb().id();
    let space = {
        let shared = Box::new(SharedSpace::new(space));
        std::mem::forget(shared.lock(on).unwrap());
        (*shared).into_inner()
    };
    let junk: Vec<_> = (0..64).map(|_| vec![0x41u8; size_of::<SharedSpace<X>>()]).collect();
    assert_eq!(space.tlb().id(), id);
    drop(junk);
    space.end(on).unwrap();
}

/// The entry of `va`, where it lies in memory.
fn entry_of(host: &Host<X>, root: PhysAddr, va: u64) -> *const AtomicU64 {
    let mut at = root;
    for level in (1..4).map(Level).rev() {
        // SAFETY: 1. it is an entry of a table in use.
        let entry = unsafe { host.read(PhysAddr(at.0 + 8 * X::index(level, va) as u64), 8) }.unwrap();
        at = X::linked(level, entry).unwrap();
    }
    let guard = host.window().open(PhysAddr(at.0 + 8 * X::index(Level::PTE, va) as u64));
    guard.base().cast::<AtomicU64>().cast_const()
}

#[test]
fn a_dirty_bit_that_an_mmu_sets_while_permissions_change_is_kept() {
    const DIRTY: u64 = 1 << 6;
    let host = Host::<X>::new(small(2, 64)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let attr = Attr::READ | Attr::WRITE | Attr::USER | Attr::ACCESSED;
    let mut tree = Tree::<X>::new(on, AllocFlags::NORMAL).unwrap();
    // SAFETY: 1. no program runs in the tree.
    unsafe { tree.edit(on).unwrap().map(VirtAddr(VA), Pfn(7), attr, AllocFlags::NORMAL).unwrap() };
    let entry = entry_of(&host, tree.root(), VA);
    // SAFETY: the entry lies in a table of the tree, which stays.
    let entry = unsafe { &*entry };
    tree.activate(on).unwrap();
    let mut times = Cell::new(0);
    let change = |attr: Attr| {
        // The MMU of another CPU writes through the entry between the library's load and its store.
        // The first call is before any change.
        times.set(times.get() + 1);
        if times.get() > 1 {
            entry.fetch_or(DIRTY, SeqCst);
        }
        attr.without(Attr::WRITE)
    };
    tree.edit(on).unwrap().change_range(pages(VA, 1), change).unwrap();
    assert!(*times.get_mut() > 2, "the change was worked out anew");
    let (_, attr) = tree.query(on, VirtAddr(VA)).unwrap();
    assert!(attr.has(Attr::DIRTY) && !attr.has(Attr::WRITE), "{attr}");
    // A cursor and the change of one page as well: bits that were set since the caller looked are
    // kept.
    entry.fetch_and(!DIRTY, SeqCst);
    let mut edit = tree.edit(on).unwrap();
    let old = edit.protect(VirtAddr(VA), Attr::READ | Attr::USER).unwrap().unwrap();
    assert!(!old.has(Attr::DIRTY));
    edit.flush();
    tree.deactivate(on).unwrap();
    tree.end(on, |_, _, _| {}).unwrap();
}

#[test]
fn a_jump_into_a_page_that_may_not_be_executed_is_never_spurious() {
    let host = Host::<X>::new(small(1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<X>::new(on).unwrap();
    space.edit(on).unwrap().mmap(pages(VA, 2), rw(), 0).unwrap();
    let at = VirtAddr(VA);
    space.fault(on, at, Access::Write).unwrap();
    assert_eq!(space.fault(on, at, Access::Exec), Err(FaultError::Denied(at)));
    // Allowed later: the entry gains the permission, and only then a fault is spurious.
    space.edit(on).unwrap().mprotect(pages(VA, 1), rw().with(AreaFlags::EXEC)).unwrap();
    let (frame, attr) = space.tree().query(on, at).unwrap();
    let attr = attr.without(Attr::EXEC);
    let mut edit = space.edit(on).unwrap();
    edit.mprotect(pages(VA, 1), rw()).unwrap();
    assert!(!edit.query(at).unwrap().1.has(Attr::EXEC));
    assert_eq!(edit.fault(at, Access::Exec), Err(FaultError::Denied(at)));
    edit.mprotect(pages(VA, 1), rw().with(AreaFlags::EXEC)).unwrap();
    let done = edit.fault(at, Access::Exec).unwrap();
    assert!(matches!(done, Done::Spurious | Done::Reused));
    let now = edit.query(at).unwrap();
    assert!(now.1.has(Attr::EXEC) && now.0 == frame && now.1.has(attr));
    // A page that is fetched first is mapped so that it can be.
    assert_eq!(edit.fault(VirtAddr(VA + PAGE), Access::Exec), Err(FaultError::Denied(VirtAddr(VA + PAGE))));
    space.end(on).unwrap();
}

type Policy = Quicklists<'static, DirectMap, &'static KernelMap<X, DirectMap>>;

/// A machine that works on the space that faults, from inside the fault.
struct Reentrant {
    inner: HostMachine<'static, X, Policy, NoTlb>,
}

static SPACE: OnceLock<SharedSpace<X>> = OnceLock::new();
static MACHINE: OnceLock<Reentrant> = OnceLock::new();
thread_local! {
    static SLOT: Cell<Option<&'static CpuSlot>> = const { Cell::new(None) };
    static REFUSED: Cell<Option<LockError>> = const { Cell::new(None) };
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: 1. to 3. all parts are those of the hosted machine inside.
unsafe impl Machine for Reentrant {
    type Window = DirectMap;
    type Policy = Policy;
    type Shootdown = Wired<X, NoTlb>;
    fn frames(&self) -> &Frames {
        self.inner.frames()
    }
    fn data(&self) -> &DataFrames {
        self.inner.data()
    }
    fn window(&self) -> &DirectMap {
        self.inner.window()
    }
    fn policy(&self) -> &Policy {
        Machine::policy(&self.inner)
    }
    fn tlb(&self) -> &Tlb<Wired<X, NoTlb>> {
        self.inner.tlb()
    }
    fn parking(&self) -> &Parking {
        self.inner.parking()
    }
    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        // SAFETY: 1. passed on.
        unsafe { self.inner.clear_data(pin, frame) }
    }
    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        // SAFETY: 1. and 2. passed on.
        unsafe { self.inner.copy_data(pin, from, to) }
    }
}

// SAFETY: 1. and 2. the frames are those of the hosted machine inside.
unsafe impl SpaceMachine for Reentrant {
    fn zero_frame(&self) -> Pfn {
        self.inner.zero_frame()
    }
    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        if ARMED.take() {
            let pin = SLOT.get().unwrap().pin();
            let on = MACHINE.get().unwrap().on(&pin).unwrap();
            REFUSED.set(SPACE.get().unwrap().lock(on).err());
        }
        self.inner.backing_frame(object, page)
    }
}

#[test]
fn a_callback_cannot_take_the_space_that_its_own_fault_is_reading() {
    let host: &'static Host<X> = Box::leak(Box::new(Host::new(small(1, 16)).unwrap()));
    let slot: &'static CpuSlot = Box::leak(Box::new(host.slot(0).unwrap()));
    SLOT.set(Some(slot));
    let pin = slot.pin();
    let inner = HostMachine::new(host, host.quicklists().unwrap(), NoTlb).unwrap();
    let _ = MACHINE.set(Reentrant { inner });
    let on = MACHINE.get().unwrap().on(&pin).unwrap();
    let mut space = Space::<X>::new(on).unwrap();
    let area = VirtRange::new(VA, VA + 0x20_0000).unwrap();
    space.edit(on).unwrap().mmap(area, AreaFlags::READ.with(AreaFlags::BACKED), 0).unwrap();
    space.fault(on, VirtAddr(VA), Access::Read).unwrap();
    let _ = SPACE.set(SharedSpace::new(space));
    ARMED.set(true);
    SPACE.get().unwrap().fault(on, VirtAddr(VA + PAGE), Access::Read).unwrap();
    assert_eq!(REFUSED.get(), Some(LockError::Reading(CpuId(0))));
    // Outside of the fault it can be had.
    SPACE.get().unwrap().lock(on).unwrap().edit().munmap(area).unwrap();
}

#[test]
fn a_cpu_does_not_wait_for_a_space_that_it_has_for_itself() {
    let host = Host::<X>::new(small(1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let space = SharedSpace::new(Space::<X>::new(on).unwrap());
    let held = space.lock(on).unwrap();
    let fault = space.fault(on, VirtAddr(VA), Access::Read);
    assert_eq!(fault, Err(FaultError::Locked(CpuId(0))));
    assert_eq!(space.lock(on).err(), Some(LockError::Writing(CpuId(0))));
    drop(held);
    assert!(space.lock(on).is_ok());
    space.end(on).unwrap();
}

/// The frames that keep one machine's areas are other frames in another.
#[test]
fn the_areas_of_a_space_are_not_read_on_another_machine() {
    let (a, b) = (Host::<X>::new(small(1, 16)).unwrap(), Host::<X>::new(small(1, 16)).unwrap());
    let ma = HostMachine::new(&a, a.quicklists().unwrap(), NoTlb).unwrap();
    let mb = HostMachine::new(&b, b.quicklists().unwrap(), NoTlb).unwrap();
    let (slots_a, slots_b) = (a.slots(), b.slots());
    let (pin_a, pin_b) = (slots_a[0].pin(), slots_b[0].pin());
    let (on_a, on_b) = (ma.on(&pin_a).unwrap(), mb.on(&pin_b).unwrap());
    let (mut of_a, mut of_b) = (Space::<X>::new(on_a).unwrap(), Space::<X>::new(on_b).unwrap());
    of_a.edit(on_a).unwrap().mmap(pages(VA, 1), rw(), 0).unwrap();
    of_b.edit(on_b).unwrap().mmap(pages(2 * VA, 1), rw(), 0).unwrap();
    let areas = of_a.areas();
    for va in [VA, 2 * VA] {
        assert!(areas.find(on_b, va).is_none() && areas.at_or_after(on_b, va).is_none());
    }
    assert!(areas.last_before(on_b, u64::MAX).is_none());
    assert!(areas.each(on_b, pages(0, 1 << 20), |_| unreachable!()).is_err());
    assert_eq!(areas.find(on_a, VA).unwrap().range(), pages(VA, 1));
    of_a.end(on_a).unwrap();
    of_b.end(on_b).unwrap();
}

#[test]
fn a_space_and_a_pin_of_another_machine_are_refused() {
    let (a, b) = (Host::<X>::new(small(1, 16)).unwrap(), Host::<X>::new(small(1, 16)).unwrap());
    let ma = HostMachine::new(&a, a.quicklists().unwrap(), NoTlb).unwrap();
    let mb = HostMachine::new(&b, b.quicklists().unwrap(), NoTlb).unwrap();
    let (slots_a, slots_b) = (a.slots(), b.slots());
    let (pin_a, pin_b) = (slots_a[0].pin(), slots_b[0].pin());
    assert!(ma.on(&pin_b).is_err());
    let (on_a, on_b) = (ma.on(&pin_a).unwrap(), mb.on(&pin_b).unwrap());
    let mut space = Space::<X>::new(on_a).unwrap();
    assert!(space.edit(on_b).is_err());
    assert!(space.activate(on_b).is_err() && space.rest(on_b).is_err() && space.deactivate(on_b).is_err());
    assert!(matches!(space.fault(on_b, VirtAddr(VA), Access::Read), Err(FaultError::WrongMachine(_))));
    assert_eq!(space.tree().query(on_b, VirtAddr(VA)), None);
    assert!(space.areas().find(on_b, VA).is_none());
    let space = space.end(on_b).unwrap_err().value;
    let shared = SharedSpace::new(space);
    assert!(shared.lock(on_b).is_err() && shared.query(on_b, VirtAddr(VA)).is_err());
    shared.end(on_a).unwrap();
    let mut tree = Tree::<X>::new(on_a, AllocFlags::NORMAL).unwrap();
    assert!(tree.edit(on_b).is_err());
    let tree = tree.end(on_b, |_, _, _| {}).unwrap_err().value;
    tree.end(on_a, |_, _, _| {}).unwrap();
    ma.drain(&slots_a);
    a.audit().unwrap();
}

#[test]
fn a_policy_of_another_machine_is_refused() {
    let (a, b) = (Host::<X>::new(small(1, 1)).unwrap(), Host::<X>::new(small(1, 64)).unwrap());
    assert!(HostMachine::new(&a, b.quicklists().unwrap(), NoTlb).is_err());
}

/// As x86-64, but three quarters of the root are the user's, as on i386 with 3 GiB for programs.
#[derive(Clone, Copy, Debug, Default)]
struct ThreeQuarters;

// SAFETY: 1. to 5. the entries are those of `X86_64`.
unsafe impl Format for ThreeQuarters {
    type Slot = Slot64;
    const NAME: &'static str = "three quarters";
    const LAYOUT: Layout = X::LAYOUT;
    const LEVEL_NAMES: &'static [&'static str] = X::LEVEL_NAMES;
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = X::INDEX_BITS;
    const USER_END: u64 = 3 << 46;
    const KERNEL_START: u64 = 0xffff_c000_0000_0000;
    const USER_ROOT_ENTRIES: usize = 384;
    const PHYS_BITS: u32 = X::PHYS_BITS;
    const LEAF_LEVELS: u8 = X::LEAF_LEVELS;
    const EVER_BREAKS: bool = true;
    entries_of_x86_64!();
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        X::leaf(level, pfn, attr)
    }
    fn frame(level: Level, raw: u64) -> Pfn {
        X::frame(level, raw)
    }
    fn needs_break(level: Level, old: u64, new: u64) -> bool {
        Self::is_present(level, old)
            && Self::is_present(level, new)
            && Self::frame(level, old) != Self::frame(level, new)
    }
}

#[test]
fn roots_of_which_three_quarters_are_the_users_follow_the_kernel_map() {
    let host = Host::<ThreeQuarters>::new(small(1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = m.on(&pin).unwrap();
    let mut spaces: Vec<_> = (0..4).map(|_| Space::<ThreeQuarters>::new(on).unwrap()).collect();
    // Pages all over the user's part, so that every bit of the map of touched lines is in use.
    for space in &mut spaces {
        let mut edit = space.edit(on).unwrap();
        for index in (0..384u64).step_by(13) {
            let at = (index << 39) + VA;
            edit.mmap(pages(at, 1), rw(), 0).unwrap();
            edit.fault(VirtAddr(at), Access::Write).unwrap();
        }
    }
    let link = ThreeQuarters::link(ThreeQuarters::LAYOUT.root(), host.zero_frame().addr());
    // SAFETY: 1. the zero frame is an empty table for as long as the host is there. 2. there is no
    // range. 3. the host's own.
    let roots = unsafe { host.kernel().set(host.frames(), 500, link) };
    assert_eq!(roots, spaces.len());
    for space in &spaces {
        let root = space.tree().root();
        // SAFETY: 1. it is an entry of a table in use.
        let word = unsafe { host.read(PhysAddr(root.0 + 8 * 500), 8) };
        assert_eq!(word, Some(link));
        assert!(space.tree().query(on, VirtAddr((377 << 39) + VA)).is_some());
    }
    for space in spaces {
        space.end(on).unwrap();
    }
    m.drain(&slots);
    host.audit().unwrap();
}

/// Whether the leaf entry of `va` below `root` is valid, if there is such a table.
fn is_valid(host: &Host<ThreeQuarters>, root: PhysAddr, va: u64) -> Option<bool> {
    let mut at = root;
    for level in (1..4).map(Level).rev() {
        // SAFETY: 1. it is an entry of a table in use.
        let raw = unsafe { host.read(PhysAddr(at.0 + 8 * X::index(level, va) as u64), 8) }.unwrap();
        at = X::linked(level, raw)?;
    }
    // SAFETY: 1. as above.
    let raw = unsafe { host.read(PhysAddr(at.0 + 8 * X::index(Level::PTE, va) as u64), 8) }.unwrap();
    Some(X::is_present(Level::PTE, raw))
}

#[test]
fn a_format_that_breaks_before_it_makes_does_so_on_one_cpu_and_for_the_zero_frame_too() {
    let host = Host::<ThreeQuarters>::new(small(1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    // Whether each page was valid when the MMU was told to forget it.
    let flushes = Mutex::new(Vec::new());
    let root = AtomicU64::new(0);
    let mmu = TestMmu::new();
    mmu.before(|_, call| match call {
        Call::Load(_, loaded) => root.store(loaded.at.0, SeqCst),
        Call::Invalidate(_, Invalidation { scope: Scope::Page { at, .. }, .. }) => {
            flushes.lock().unwrap().extend(is_valid(&host, PhysAddr(root.load(SeqCst)), *at));
        }
        _ => {}
    });
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &mmu).unwrap();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<ThreeQuarters>::new(on).unwrap();
    space.edit(on).unwrap().mmap(pages(VA, 2), rw(), 0).unwrap();
    space.activate(on).unwrap();
    // The zero frame is replaced by a fresh one.
    space.fault(on, VirtAddr(VA), Access::Read).unwrap();
    assert_eq!(space.fault(on, VirtAddr(VA), Access::Write), Ok(Done::Copied));
    assert_eq!(*flushes.lock().unwrap(), [false], "one flush, of an entry that is not valid");
    // And a shared one by a copy.
    let child = space.edit(on).unwrap().fork().unwrap();
    flushes.lock().unwrap().clear();
    assert_eq!(space.fault(on, VirtAddr(VA), Access::Write), Ok(Done::Copied));
    assert_eq!(*flushes.lock().unwrap(), [false]);
    child.end(on).unwrap();
    space.end(on).unwrap();
    m.drain(&slots);
    host.audit().unwrap();
}
