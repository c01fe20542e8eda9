//! Hazards of quicklists (docs/requirements.md) that want a test of their own: calls while no lock
//! may be held, memory that does not count, and charged owners.
use crate::common;
use common::{At, Starved, small};
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::format::{Attr, Format, X86_64, X86Pae};
use ptarmigan::frames::{AllocFlags, Frames, MemoryRun, MemorySize, ZoneClass};
use ptarmigan::machine::Machine;
use ptarmigan::page::{Clean, Construct, Level, NoConstruct};
use ptarmigan::quicklist::{
    Charge, Charged, Check, Layered, ListsConfig, Owner, Policy, Quicklists, Site, Source, Unchecked,
};
use ptarmigan::table::{Free, Tree};
use ptarmigan::window::{DirectGuard, DirectMap, OpenWindow, Window};
use ptarmigan_hosted::test::{Method, TestMmu};
use ptarmigan_hosted::{Host, HostMachine};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::Mutex;

const ROOT: Level = X86_64::LAYOUT.root();
const PTE: Level = Level::PTE;

// --- H4 and H13: callbacks
// -----------------------------------------------------------------------------------------------

type Probed = Quicklists<'static, ProbedWindow, Probe>;

thread_local! {
    static LISTS: OnceCell<&'static Probed> = const { OnceCell::new() };
    static SPARE: RefCell<Option<Clean>> = const { RefCell::new(None) };
    /// How often it was looked, from a window and from a constructor or destructor.
    static LOOKS: [Cell<usize>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

/// Uses the lists of this CPU, as an interrupt would or another task that is let run: nobody may be
/// in them.
fn look(which: usize) {
    let Some(lists) = LISTS.with(|l| l.get().copied()) else { return };
    // Not while it is at it itself.
    let Some(spare) = SPARE.take() else { return };
    let pin = pin();
    // A page that rests, or otherwise the spare one, which then rests.
    let page = lists.at(&pin).at_hand(PTE).or_else(|| {
        lists.at(&pin).free_unlinked(again(&spare));
        lists.at(&pin).at_hand(PTE).inspect(|page| assert_eq!(page.addr(), spare.addr()))
    });
    let page = page.expect("the lists of this CPU are being held");
    if page.addr() != spare.addr() {
        lists.at(&pin).free_unlinked(page);
    }
    SPARE.set(Some(spare));
    LOOKS.with(|looks| looks[which].update(|n| n + 1));
}

/// The spare page once more.
fn again(spare: &Clean) -> Clean {
    // SAFETY: 1. the test that has the spare page gives it away and gets it back before it goes on.
    // 2. it is not written to. 3. it is never linked.
    unsafe { Clean::from_raw(spare.addr(), spare.level()) }
}

fn looks(which: usize) -> usize {
    LOOKS.with(|looks| looks[which].take())
}

/// A window that somebody may wait for.
struct ProbedWindow(DirectMap);

// SAFETY: a direct map, and looking on.
unsafe impl Window for ProbedWindow {
    type Guard<'a> = DirectGuard;
    type Error = Infallible;
    fn map(&self, at: PhysAddr) -> Result<DirectGuard, Infallible> {
        look(0);
        self.0.map(at)
    }
}

/// A constructor and destructor that use the lists.
struct Probe;

// SAFETY: 1. to 3. tables stay all zero, and no reference is kept.
unsafe impl Construct for Probe {
    unsafe fn construct(&self, _: &Frames, _: PhysAddr) {
        look(1);
    }
    unsafe fn destruct(&self, _: &Frames, _: PhysAddr) {
        look(1);
    }
}

std::thread_local! {
    /// The machine of the lists that this test made last.
    static MACHINE: Cell<Option<MachineId>> = const { Cell::new(None) };
}

fn pin() -> Pinned<'static> {
    let machine = MACHINE.get().expect("tests make their lists first");
    // SAFETY: 1. each test is the only CPU of its machine. 2. machines here have one CPU.
    unsafe { Pinned::assume(machine, CpuId(0), NodeId(0)) }
}

/// Memory that is never given back: tests are short.
fn leaked(bytes: usize) -> NonNull<u8> {
    NonNull::from(Box::leak(vec![0u64; bytes.div_ceil(8)].into_boxed_slice())).cast()
}

fn lists_over<W: OpenWindow, C: Construct>(
    low: u32,
    high: u32,
    config: ListsConfig,
    window: impl FnOnce(DirectMap) -> W,
    construct: C,
) -> Quicklists<'static, W, C> {
    lists_checked(low, high, config, window, construct, Unchecked)
}

/// Lists over `low` frames that tables can be made of and `high` others.
fn lists_checked<W: OpenWindow, C: Construct, K: Check>(
    low: u32,
    high: u32,
    config: ListsConfig,
    window: impl FnOnce(DirectMap) -> W,
    construct: C,
    check: K,
) -> Quicklists<'static, W, C, K> {
    let run = |start, frames, class| MemoryRun { start: Pfn(start), frames, node: NodeId(0), class };
    let runs = [run(1, low, ZoneClass::Low), run(1 + low, high, ZoneClass::High)];
    let runs = if high == 0 { &runs[..1] } else { &runs };
    let bytes = Frames::bytes(&MemorySize::of(runs));
    // SAFETY: 1. leaked just now: valid for ever, and nobody else has it.
    let mut boot = unsafe { BootMemory::new(leaked(bytes), bytes) };
    let machine = MachineId::new();
    MACHINE.set(Some(machine));
    // SAFETY: 1. only low frames are used, which lie in a block of their own. 2. the identity is
    // new.
    let frames = unsafe { Frames::new(&mut boot, machine, runs) }.expect("frames");
    let frames: &'static Frames = Box::leak(Box::new(frames));
    let limit = (low as usize + 1) * FRAME_SIZE;
    // SAFETY: 1. frames 1 to `low`, the only ones that tables are made of, lie in the block. 2.
    // leaked just now.
    let map = unsafe { DirectMap::new(leaked(limit).as_ptr(), limit as u64) };
    let map = map.expect("a block of memory ends below the highest address");
    // SAFETY: 1. low memory is frames 1 to `low`, which lie in the block. 2. the caller's is for
    // these frames. 3. the layout is the format's own. 4. their numbers are small.
    let source = unsafe { Source::new(frames, window(map), construct, X86_64::LAYOUT) };
    let bytes = Quicklists::<W, C, K>::bytes(&frames.size(), &config);
    // SAFETY: as above.
    let mut boot = unsafe { BootMemory::new(leaked(bytes), bytes) };
    Quicklists::with_check(&mut boot, config, source, check).expect("lists")
}

fn probed(magazine: usize, keep: u32) -> &'static Probed {
    let config = ListsConfig { magazine, fixed_budget: Some(keep), ..ListsConfig::new(1) };
    let lists: &'static Probed = Box::leak(Box::new(lists_over(1024, 0, config, ProbedWindow, Probe)));
    SPARE.set(Some(lists.at(&pin()).alloc(PTE, AllocFlags::NORMAL).expect("page")));
    lists.at(&pin()).drain();
    LISTS.with(|l| l.set(lists).ok().expect("once in each test's thread"));
    lists
}

fn take(policy: &impl Policy, level: Level, n: usize) -> Vec<Clean> {
    (0..n).map(|_| policy.at(&pin()).alloc(level, AllocFlags::NORMAL).expect("page")).collect()
}

fn put(policy: &impl Policy, pages: Vec<Clean>) {
    pages.into_iter().for_each(|page| policy.at(&pin()).free_unlinked(page));
}

/// Pages that missed are cleared through the window, by ones and by groups, and roots constructed.
fn misses_hold_nothing(magazine: usize) {
    let lists = probed(magazine, 64);
    let pages = take(lists, PTE, 20);
    assert!(looks(0) >= 20, "pages came from the allocator dirty, and were cleared");
    let roots = take(lists, ROOT, 3);
    assert_eq!(looks(1), 3, "roots were constructed");
    put(lists, pages);
    put(lists, roots);
}

#[test]
fn a_miss_happens_after_the_cpus_lists_are_given_up() {
    misses_hold_nothing(1);
}

#[test]
fn a_miss_that_fetches_a_group_happens_after_the_cpus_lists_are_given_up() {
    misses_hold_nothing(8);
}

#[test]
fn a_request_that_may_not_wait_does_not_look_for_pages_elsewhere() {
    let host = Host::<X86_64>::new(small(1, 1, 4)).expect("host");
    let cpus = host.slots();
    let policy = host.quicklists_with(ListsConfig { magazine: 8, ..ListsConfig::new(1) }).expect("lists");
    let pages: Vec<Clean> =
        (0..6).map(|_| policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).expect("page")).collect();
    pages.into_iter().for_each(|page| policy.at(&cpus[0].pin()).free_unlinked(page));
    let starved = Starved::new(&host, 0);
    let cached = policy.counts().cached();
    assert!(cached >= 6);
    assert!(policy.at(&cpus[0].pin()).alloc(ROOT, AllocFlags::ATOMIC).is_err());
    assert_eq!(policy.counts().cached(), cached, "nothing was given up for it");
    // A caller that may wait gets it from the cached pages.
    let top = policy
        .at(&cpus[0].pin())
        .alloc(ROOT, AllocFlags { may_fail: false, ..AllocFlags::NORMAL })
        .expect("a root");
    policy.at(&cpus[0].pin()).free_unlinked(top);
    drop(starved);
}

#[test]
fn destructors_run_while_nobody_holds_the_cpus_lists() {
    let lists = probed(2, 32);
    // Two magazines of roots, room for few in the depot: most go straight back.
    let roots = take(lists, ROOT, 30);
    looks(1);
    put(lists, roots);
    let unmade = looks(1);
    assert!(unmade > 10, "{unmade} roots found no room");
    lists.at(&pin()).end_interval();
    assert!(lists.at(&pin()).end_interval() > 0 && looks(1) > 0, "an interval");
    let roots = take(lists, ROOT, 8);
    put(lists, roots);
    looks(1);
    assert!(lists.at(&pin()).reclaim(NodeId(0), u32::MAX) > 0 && looks(1) > 0, "the shrinker");
    lists.at(&pin()).drain();
    assert_eq!(looks(1), 4, "going offline");
}

// --- Interrupts that find the lists in use
// -------------------------------------------------------------------------------

type Interrupted = Quicklists<'static, DirectMap, NoConstruct, Interrupts>;

thread_local! {
    static INTERRUPTED: OnceCell<&'static Interrupted> = const { OnceCell::new() };
    /// The page that the next interrupt gives back; the interrupt comes if there is one.
    static NEXT: RefCell<Option<Clean>> = const { RefCell::new(None) };
    /// Pages that interrupts have taken.
    static TAKEN: RefCell<Vec<Clean>> = const { RefCell::new(Vec::new()) };
}

/// Looks on from inside the lists: where it is called by [`Quicklists::top_to_hand`], they are in
/// use.
struct Interrupts;

impl Check for Interrupts {
    fn made<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean, _: bool) {}
    fn given<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        let Some(page) = NEXT.take() else { return true };
        let lists = INTERRUPTED.with(|l| *l.get().expect("set"));
        assert!(lists.at(&pin()).at_hand(PTE).is_none(), "what is in use is used");
        // One goes and one comes, past the magazines.
        let depot = lists.in_depots(NodeId(0));
        lists.at(&pin()).free_unlinked(page);
        assert_eq!(lists.in_depots(NodeId(0)), depot + 1, "to the depot");
        let page = lists.at(&pin()).alloc(PTE, AllocFlags::ATOMIC).expect("from the depot");
        assert_eq!(lists.in_depots(NodeId(0)), depot);
        let fresh = lists.at(&pin()).alloc(PTE, AllocFlags::ATOMIC).expect("from the depot or the allocator");
        assert_ne!(page.addr(), fresh.addr());
        lists.at(&pin()).free_unlinked(fresh);
        TAKEN.with_borrow_mut(|taken| taken.push(page));
        true
    }
    fn taken<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        true
    }
    fn leaves<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) {}
}

#[test]
fn an_interrupt_that_finds_the_lists_in_use_goes_past_them() {
    let config = ListsConfig { magazine: 4, fixed_budget: Some(64), ..ListsConfig::new(1) };
    let lists = lists_checked(1024, 0, config, |map| map, NoConstruct, Interrupts);
    let lists: &'static Interrupted = Box::leak(Box::new(lists));
    let free = lists.source().frames().counts().free;
    INTERRUPTED.with(|l| l.set(lists).ok().expect("once"));
    let pages = take(lists, PTE, 24);
    // Magazines have room from the first page on.
    let top = take(lists, ROOT, 1);
    put(lists, top);
    let roots = take(lists, ROOT, 6);
    let mut pages = pages.into_iter();
    // Some rest in the magazines: an interrupt must not get at them.
    put(lists, pages.by_ref().take(4).collect());
    for top in roots {
        let at = top.addr();
        NEXT.set(pages.next());
        // SAFETY: 1. it is one of the roots that the lists handed out.
        unsafe { lists.at(&pin()).top_to_hand(top) }.expect("room");
        // SAFETY: 1. the lists were made for four levels.
        let back = unsafe { lists.at(&pin()).root_at_hand(ROOT) }.expect("the one that was put");
        assert_eq!(back.addr(), at, "whatever came in between");
        lists.at(&pin()).free_unlinked(back);
    }
    let mut left = TAKEN.take();
    assert_eq!(left.len(), 6, "as many interrupts as calls");
    left.extend(pages);
    let distinct: HashSet<PhysAddr> = left.iter().map(Clean::addr).collect();
    assert_eq!(distinct.len(), left.len());
    put(lists, left);
    lists.at(&pin()).drain();
    lists.at(&pin()).reclaim(NodeId(0), u32::MAX);
    assert_eq!(lists.source().frames().counts().free, free);
}

// --- H8 ------------------------------------------------------------------------------------------

#[test]
fn high_memory_does_not_count_in_the_budget() {
    let config = ListsConfig { magazine: 2, ..ListsConfig::new(1) };
    let kept = |high| {
        let lists = lists_over(1024, high, config, |map| map, NoConstruct);
        let pages = take(&lists, PTE, 600);
        assert!(lists.budget(NodeId(0)) <= 1024 / config.budget_divisor, "of what is free for tables");
        put(&lists, pages);
        (0..100).for_each(|_| lists.at(&pin()).idle());
        let counts = lists.counts();
        assert!(counts.cached() <= 1024 / config.budget_divisor as usize, "{} pages rest", counts.cached());
        counts.cached()
    };
    assert!(kept(0) > 0);
    assert_eq!(kept(1 << 16), kept(0), "as much as without high memory");
}

// --- H18 -----------------------------------------------------------------------------------------

/// Charges the owner that is set, up to a limit.
#[derive(Default)]
struct Accounts {
    owner: Mutex<u32>,
    limit: Mutex<Option<usize>>,
    charged: Mutex<HashMap<Owner, usize>>,
    /// Bytes of each charge, in order.
    charges: Mutex<Vec<(Level, usize)>>,
    /// The bytes charged to all owners at each invalidation.
    at_flushes: Mutex<Vec<usize>>,
}

impl Accounts {
    fn work_for(&self, owner: u32) {
        *self.owner.lock().unwrap() = owner;
    }
    fn of(&self, owner: u32) -> usize {
        self.charged.lock().unwrap().get(&self::owner(owner)).copied().unwrap_or(0)
    }
    fn all(&self) -> usize {
        self.charged.lock().unwrap().values().sum()
    }
}

fn owner(n: u32) -> Owner {
    Owner(NonZeroU32::new(n).expect("owners are not 0"))
}

impl Charge for Accounts {
    fn charge(&self, _: &Pinned<'_>, level: Level, bytes: usize) -> Option<Owner> {
        let owner = owner(*self.owner.lock().unwrap());
        let mut charged = self.charged.lock().unwrap();
        let now = charged.entry(owner).or_default();
        if self.limit.lock().unwrap().is_some_and(|limit| *now + bytes > limit) {
            return None;
        }
        *now += bytes;
        self.charges.lock().unwrap().push((level, bytes));
        Some(owner)
    }
    fn uncharge(&self, owner: Owner, _: Level, bytes: usize) {
        let mut charged = self.charged.lock().unwrap();
        let now = charged.get_mut(&owner).expect("was charged");
        *now = now.checked_sub(bytes).expect("no more than was charged");
    }
}

fn charged<F: Format>(
    host: &Host<F>,
    magazine: usize,
) -> Layered<Charged<'_, &'static Accounts>, impl Policy> {
    let lists = host
        .quicklists_with(ListsConfig { magazine, ..ListsConfig::new(host.config().cpus) })
        .expect("lists");
    let bytes = Charged::<&'static Accounts>::bytes(&host.frames().size());
    let mut boot = host.boot(bytes).expect("memory");
    let hook: &'static Accounts = Box::leak(Box::default());
    hook.work_for(1);
    let layer = Charged::new(&mut boot, host.frames(), F::LAYOUT, hook).expect("it fits");
    Layered::new(layer, lists).unwrap()
}

#[test]
fn a_page_that_rests_is_charged_to_nobody_and_one_in_use_always() {
    let host = Host::<X86_64>::new(small(2, 1, 16)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    for _ in 0..2 {
        let fresh = policy.counts().cached() == 0;
        let pages: Vec<Clean> = (0..12)
            .map(|_| policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).expect("page"))
            .collect();
        let misses = policy.counts().levels[0].misses;
        assert_eq!(policy.layer().hook().all(), 12 * FRAME_SIZE, "new ones and cached ones alike");
        let seen = policy.layer().hook().charges.lock().unwrap().split_off(0);
        assert_eq!(seen, [(PTE, FRAME_SIZE); 12]);
        pages.into_iter().for_each(|page| policy.at(&cpus[0].pin()).free_unlinked(page));
        assert_eq!(policy.layer().hook().all(), 0, "what rests is charged to nobody");
        assert!(policy.counts().cached() >= 12 && (fresh || misses == 12), "the second time none is new");
    }
}

#[test]
fn a_page_is_uncharged_from_whoever_was_charged_wherever_it_comes_back() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    let one = policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).expect("page");
    policy.layer().hook().work_for(2);
    let two = policy.at(&cpus[0].pin()).alloc(ROOT, AllocFlags::NORMAL).expect("page");
    assert_eq!(
        (policy.layer().owner(one.addr()), policy.layer().owner(two.addr())),
        (Some(owner(1)), Some(owner(2)))
    );
    policy.at(&cpus[1].pin()).free_unlinked(one);
    assert_eq!((policy.layer().hook().of(1), policy.layer().hook().of(2)), (0, FRAME_SIZE));
    policy.at(&cpus[1].pin()).free_unlinked(two);
    assert_eq!(policy.layer().hook().all(), 0);
}

#[test]
fn tables_are_charged_from_their_making_to_the_flush() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    let accounts = *policy.layer().hook();
    let mmu = TestMmu::new();
    mmu.before(|_, call| {
        if call.method() == Method::Invalidate {
            accounts.at_flushes.lock().unwrap().push(accounts.all());
        }
    });
    let m = HostMachine::new(&host, policy, &mmu).expect("machine");
    let pin = cpus[0].pin();
    let on = m.on(&pin).expect("its CPU");
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).expect("root");
    let attr = Attr::READ | Attr::SPECIAL;
    let mut edit = tree.edit(on).expect("its tree");
    for at in 0..20u64 {
        // SAFETY: 1. no program runs in the tree.
        unsafe { edit.map(VirtAddr(at << 21), host.zero_frame(), attr, AllocFlags::NORMAL) }.expect("mapped");
    }
    edit.flush();
    assert_eq!(accounts.all(), (20 + 3) * FRAME_SIZE);
    tree.activate(on).expect("its tree");
    let mut edit = tree.edit(on).expect("its tree");
    edit.unmap_range(VirtRange::new(0, 5 << 21).unwrap(), Free::Empty, |_, _, _| ());
    edit.flush();
    let seen = accounts.at_flushes.lock().unwrap().clone();
    assert_eq!(seen, [(20 + 3) * FRAME_SIZE], "unhooked, and not yet anybody else's");
    assert_eq!(accounts.all(), (15 + 3) * FRAME_SIZE);
    tree.end(on, |_, _, _| ()).expect("its tree");
    assert_eq!(accounts.all(), 0);
    m.drain(&cpus);
    host.audit().expect("all is back");
}

#[test]
fn a_charge_that_is_refused_and_a_page_that_is_not_had_change_nothing() {
    let host = Host::<X86_64>::new(small(1, 1, 4)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    let before = || (host.frames().counts(), policy.counts(), policy.layer().hook().all());
    *policy.layer().hook().limit.lock().unwrap() = Some(2 * FRAME_SIZE);
    let pages: Vec<Clean> =
        (0..2).map(|_| policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).expect("page")).collect();
    let state = before();
    let refused =
        policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).expect_err("more than he may have");
    assert!(refused.free() > 0, "for lack of charge, not of frames");
    assert_eq!(before(), state);
    pages.into_iter().for_each(|page| policy.at(&cpus[0].pin()).free_unlinked(page));
    *policy.layer().hook().limit.lock().unwrap() = None;
    policy.at(&cpus[0].pin()).drain();
    let starved = Starved::new(&host, 0);
    let state = before();
    assert!(policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).is_err());
    assert_eq!(before(), state, "no frame, no charge");
    drop(starved);
}

#[test]
fn tables_smaller_than_a_frame_are_not_charged() {
    let host = Host::<X86Pae>::new(small(1, 1, 8)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    let top = X86Pae::LAYOUT.root();
    let page = policy.at(&cpus[0].pin()).alloc(top, AllocFlags::NORMAL).expect("top");
    let leaf = policy.at(&cpus[0].pin()).alloc(PTE, AllocFlags::NORMAL).expect("page");
    assert_eq!(policy.layer().hook().all(), FRAME_SIZE);
    policy.at(&cpus[0].pin()).free_unlinked(page);
    assert_eq!(policy.layer().hook().all(), FRAME_SIZE);
    policy.at(&cpus[0].pin()).free_unlinked(leaf);
    assert_eq!(policy.layer().hook().all(), 0);
}
