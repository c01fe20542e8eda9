//! Hazards of quicklists (docs/hazards.md) that want a test of their own: what is called while nothing may be held, what does
//! not count, who is charged.
mod common;
use common::{Starved, small};
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::format::{Attr, Format, X86_64, X86Pae};
use ptarmigan::frames::{AllocFlags, Frames, MemoryRun, ZoneClass};
use ptarmigan::hosted::{Host, HostMachine};
use ptarmigan::page::{Clean, Construct, Level, NoConstruct};
use ptarmigan::quicklist::{
    Charge, Charged, Check, ListsConfig, Owner, Policy, Quicklists, Site, Source, Unchecked,
};
use ptarmigan::table::{Free, Machine, Tree, parts};
use ptarmigan::tlb::{Gather, Invalidation, Mmu, Root, Scope, SpaceId};
use ptarmigan::window::{DirectGuard, DirectMap, Window};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::Mutex;

const TOP: Level = X86_64::LAYOUT.top();
const PTE: Level = Level::PTE;

// --- H4 and H13: callbacks -----------------------------------------------------------------------------------------------

type Probed = Quicklists<'static, ProbedWindow, Probe>;

thread_local! {
    static LISTS: OnceCell<&'static Probed> = const { OnceCell::new() };
    static SPARE: RefCell<Option<Clean>> = const { RefCell::new(None) };
    /// How often it was looked, from a window and from a constructor or destructor.
    static LOOKS: [Cell<usize>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

/// Uses the lists of this CPU, as an interrupt would or another task that is let run: nobody may be in them.
fn look(which: usize) {
    let Some(lists) = LISTS.with(|l| l.get().copied()) else { return };
    // Not while it is at it itself.
    let Some(spare) = SPARE.take() else { return };
    let pin = pin();
    // One that rests, or if none does the spare one, which then rests.
    let page = lists.at_hand(&pin, PTE).or_else(|| {
        lists.unused(&pin, PTE, again(&spare));
        lists.at_hand(&pin, PTE).inspect(|page| assert_eq!(page.addr(), spare.addr()))
    });
    let page = page.expect("the lists of this CPU are being held");
    if page.addr() != spare.addr() {
        lists.unused(&pin, PTE, page);
    }
    SPARE.set(Some(spare));
    LOOKS.with(|looks| looks[which].update(|n| n + 1));
}

/// The spare page once more.
fn again(spare: &Clean) -> Clean {
    // SAFETY: 1. whoever has the spare page gives it away and gets it back before he goes on. 2. it is not written to. 3. it is
    // never linked.
    unsafe { Clean::from_raw(spare.addr()) }
}

fn looks(which: usize) -> usize {
    LOOKS.with(|looks| looks[which].take())
}

/// A window that somebody may wait for.
struct ProbedWindow(DirectMap);

// SAFETY: a direct map, and looking on.
unsafe impl Window for ProbedWindow {
    type Guard<'a> = DirectGuard;
    fn map(&self, at: PhysAddr) -> DirectGuard {
        look(0);
        self.0.map(at)
    }
}

/// A constructor and destructor that use the lists.
struct Probe;

impl Construct for Probe {
    fn construct(&self, _: &Frames, _: PhysAddr) {
        look(1);
    }
    fn destruct(&self, _: &Frames, _: PhysAddr) {
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

fn lists_over<W: Window, C: Construct>(
    low: u32,
    high: u32,
    config: ListsConfig,
    window: impl FnOnce(DirectMap) -> W,
    construct: C,
) -> Quicklists<'static, W, C> {
    lists_checked(low, high, config, window, construct, Unchecked)
}

/// Lists over `low` frames that tables can be made of and `high` others.
fn lists_checked<W: Window, C: Construct, K: Check>(
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
    let bytes = Frames::bytes((low + high) as usize, 2);
    // SAFETY: 1. leaked just now: valid for ever, and nobody else has it.
    let mut boot = unsafe { BootMemory::new(leaked(bytes), bytes) };
    let machine = MachineId::new();
    MACHINE.set(Some(machine));
    // SAFETY: 1. only low frames are used, which lie in a block of their own. 2. the identity is new.
    let frames = unsafe { Frames::new(&mut boot, machine, runs) }.expect("frames");
    let frames: &'static Frames = Box::leak(Box::new(frames));
    // SAFETY: 1. frames 1 to `low`, the only ones that tables are made of, lie in the block. 2. leaked just now.
    let map = unsafe { DirectMap::new(leaked((low as usize + 1) * FRAME_SIZE).as_ptr()) };
    let source = Source::new(frames, window(map), construct, X86_64::LAYOUT);
    let bytes = Quicklists::<W, C, K>::bytes(frames, &config);
    // SAFETY: as above.
    let mut boot = unsafe { BootMemory::new(leaked(bytes), bytes) };
    Quicklists::with_check(&mut boot, config, source, check).expect("lists")
}

fn probed(magazine: usize, keep: u32) -> &'static Probed {
    let config = ListsConfig { magazine, keep: Some(keep), ..ListsConfig::new(1) };
    let lists: &'static Probed = Box::leak(Box::new(lists_over(1024, 0, config, ProbedWindow, Probe)));
    SPARE.set(Some(lists.alloc(&pin(), PTE, AllocFlags::NORMAL).expect("page")));
    lists.drain(&pin());
    LISTS.with(|l| l.set(lists).ok().expect("once in each test's thread"));
    lists
}

fn take(policy: &impl Policy, level: Level, n: usize) -> Vec<Clean> {
    (0..n).map(|_| policy.alloc(&pin(), level, AllocFlags::NORMAL).expect("page")).collect()
}

fn put(policy: &impl Policy, level: Level, pages: Vec<Clean>) {
    pages.into_iter().for_each(|page| policy.unused(&pin(), level, page));
}

/// Pages that missed are cleared through the window, by ones and by groups, and tops constructed.
fn misses_hold_nothing(magazine: usize) {
    let lists = probed(magazine, 64);
    let pages = take(lists, PTE, 20);
    assert!(looks(0) >= 20, "pages came from the allocator dirty, and were cleared");
    let tops = take(lists, TOP, 3);
    assert_eq!(looks(1), 3, "tops were constructed");
    put(lists, PTE, pages);
    put(lists, TOP, tops);
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
        (0..6).map(|_| policy.alloc(&cpus[0].pin(), PTE, AllocFlags::NORMAL).expect("page")).collect();
    pages.into_iter().for_each(|page| policy.unused(&cpus[0].pin(), PTE, page));
    let starved = Starved::new(&host, 0);
    let cached = policy.counts().cached();
    assert!(cached >= 6);
    assert!(policy.alloc(&cpus[0].pin(), TOP, AllocFlags::ATOMIC).is_err());
    assert_eq!(policy.counts().cached(), cached, "nothing was given up for it");
    // Who may wait gets it: from what rests.
    let top = policy
        .alloc(&cpus[0].pin(), TOP, AllocFlags { may_fail: false, ..AllocFlags::NORMAL })
        .expect("a top");
    policy.unused(&cpus[0].pin(), TOP, top);
    drop(starved);
}

#[test]
fn destructors_run_while_nobody_holds_the_cpus_lists() {
    let lists = probed(2, 32);
    // Two magazines of tops, room for few in the depot: most go straight back.
    let tops = take(lists, TOP, 30);
    looks(1);
    put(lists, TOP, tops);
    let unmade = looks(1);
    assert!(unmade > 10, "{unmade} tops found no room");
    lists.age(&pin());
    assert!(lists.age(&pin()) > 0 && looks(1) > 0, "an interval");
    let tops = take(lists, TOP, 8);
    put(lists, TOP, tops);
    looks(1);
    assert!(lists.reclaim(&pin(), NodeId(0), u32::MAX) > 0 && looks(1) > 0, "the shrinker");
    lists.drain(&pin());
    assert_eq!(looks(1), 4, "going offline");
}

// --- Interrupts that find the lists in use -------------------------------------------------------------------------------

type Interrupted = Quicklists<'static, DirectMap, NoConstruct, Interrupts>;

thread_local! {
    static INTERRUPTED: OnceCell<&'static Interrupted> = const { OnceCell::new() };
    /// What the next interrupt gives back; it comes if there is something.
    static NEXT: RefCell<Option<Clean>> = const { RefCell::new(None) };
    /// What interrupts have taken.
    static TAKEN: RefCell<Vec<Clean>> = const { RefCell::new(Vec::new()) };
}

/// Looks on from inside the lists: where it is called by [`Quicklists::top_to_hand`], they are in use.
struct Interrupts;

impl Check for Interrupts {
    fn made<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean, _: bool) {}
    fn given<W: Window, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        let Some(page) = NEXT.take() else { return true };
        let lists = INTERRUPTED.with(|l| *l.get().expect("set"));
        assert!(lists.at_hand(&pin(), PTE).is_none(), "what is in use is used");
        // One goes and one comes, past the magazines.
        let depot = lists.in_depots(NodeId(0));
        lists.unused(&pin(), PTE, page);
        assert_eq!(lists.in_depots(NodeId(0)), depot + 1, "to the depot");
        let page = lists.alloc(&pin(), PTE, AllocFlags::ATOMIC).expect("from the depot");
        assert_eq!(lists.in_depots(NodeId(0)), depot);
        let fresh = lists.alloc(&pin(), PTE, AllocFlags::ATOMIC).expect("from the depot or the allocator");
        assert_ne!(page.addr(), fresh.addr());
        lists.unused(&pin(), PTE, fresh);
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
    let config = ListsConfig { magazine: 4, keep: Some(64), ..ListsConfig::new(1) };
    let lists = lists_checked(1024, 0, config, |map| map, NoConstruct, Interrupts);
    let lists: &'static Interrupted = Box::leak(Box::new(lists));
    let free = lists.source().frames().counts().free;
    INTERRUPTED.with(|l| l.set(lists).ok().expect("once"));
    let pages = take(lists, PTE, 24);
    // Magazines have room from the first page on.
    let top = take(lists, TOP, 1);
    put(lists, TOP, top);
    let tops = take(lists, TOP, 6);
    let mut pages = pages.into_iter();
    // Some rest in the magazines: an interrupt must not get at them.
    put(lists, PTE, pages.by_ref().take(4).collect());
    for top in tops {
        let at = top.addr();
        NEXT.set(pages.next());
        lists.top_to_hand(&pin(), TOP, top).expect("room");
        let back = lists.top_at_hand(&pin(), TOP).expect("the one that was put");
        assert_eq!(back.addr(), at, "whatever came in between");
        lists.unused(&pin(), TOP, back);
    }
    let mut left = TAKEN.take();
    assert_eq!(left.len(), 6, "as many interrupts as calls");
    left.extend(pages);
    let distinct: HashSet<PhysAddr> = left.iter().map(Clean::addr).collect();
    assert_eq!(distinct.len(), left.len());
    put(lists, PTE, left);
    lists.drain(&pin());
    lists.reclaim(&pin(), NodeId(0), u32::MAX);
    assert_eq!(lists.source().frames().counts().free, free);
}

// --- H8 ------------------------------------------------------------------------------------------------------------------

#[test]
fn high_memory_does_not_count_in_the_budget() {
    let config = ListsConfig { magazine: 2, ..ListsConfig::new(1) };
    let kept = |high| {
        let lists = lists_over(1024, high, config, |map| map, NoConstruct);
        let pages = take(&lists, PTE, 600);
        assert!(lists.budget(NodeId(0)) <= 1024 / config.share, "of what is free for tables");
        put(&lists, PTE, pages);
        (0..100).for_each(|_| lists.idle(&pin()));
        let counts = lists.counts();
        assert!(counts.cached() <= 1024 / config.share as usize, "{} pages rest", counts.cached());
        counts.cached()
    };
    assert!(kept(0) > 0);
    assert_eq!(kept(1 << 16), kept(0), "as much as without high memory");
}

// --- H18 -----------------------------------------------------------------------------------------------------------------

/// Charges to whoever is said to be at work, up to a limit.
#[derive(Default)]
struct Accounts {
    owner: Mutex<u32>,
    limit: Mutex<Option<usize>>,
    charged: Mutex<HashMap<Owner, usize>>,
    /// Bytes of each charge, in order.
    charges: Mutex<Vec<(Level, usize)>>,
    /// What was charged to all when a TLB was told to forget.
    at_flushes: Mutex<Vec<usize>>,
}

/// An MMU that looks at the accounts when it is told to forget.
struct Auditor(&'static Accounts);

// SAFETY: nothing is ever cached, so all promises hold at once.
unsafe impl Mmu for Auditor {
    const NEEDS_ENTRY_VALID: bool = false;
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {
        self.0.at_flushes.lock().unwrap().push(self.0.all());
    }
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
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

fn charged<F: Format>(host: &Host<F>, magazine: usize) -> Charged<'_, impl Policy, &'static Accounts> {
    let lists = host
        .quicklists_with(ListsConfig { magazine, ..ListsConfig::new(host.config().cpus) })
        .expect("lists");
    let bytes = Charged::<Quicklists<'_, DirectMap, NoConstruct>, &'static Accounts>::bytes(host.frames());
    let mut boot = host.boot(bytes).expect("memory");
    let hook: &'static Accounts = Box::leak(Box::default());
    hook.work_for(1);
    Charged::new(&mut boot, host.frames(), F::LAYOUT, lists, hook).expect("it fits")
}

#[test]
fn a_page_that_rests_is_charged_to_nobody_and_one_in_use_always() {
    let host = Host::<X86_64>::new(small(2, 1, 16)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    for _ in 0..2 {
        let fresh = policy.counts().cached() == 0;
        let pages: Vec<Clean> =
            (0..12).map(|_| policy.alloc(&cpus[0].pin(), PTE, AllocFlags::NORMAL).expect("page")).collect();
        let misses = policy.counts().levels[0].misses;
        assert_eq!(policy.hook().all(), 12 * FRAME_SIZE, "new ones and cached ones alike");
        let seen = policy.hook().charges.lock().unwrap().split_off(0);
        assert_eq!(seen, [(PTE, FRAME_SIZE); 12]);
        pages.into_iter().for_each(|page| policy.unused(&cpus[0].pin(), PTE, page));
        assert_eq!(policy.hook().all(), 0, "what rests is charged to nobody");
        assert!(policy.counts().cached() >= 12 && (fresh || misses == 12), "the second time none is new");
    }
}

#[test]
fn a_page_is_uncharged_from_whoever_was_charged_wherever_it_comes_back() {
    let host = Host::<X86_64>::new(small(2, 2, 16)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    let one = policy.alloc(&cpus[0].pin(), PTE, AllocFlags::NORMAL).expect("page");
    policy.hook().work_for(2);
    let two = policy.alloc(&cpus[0].pin(), TOP, AllocFlags::NORMAL).expect("page");
    assert_eq!((policy.owner(one.addr()), policy.owner(two.addr())), (Some(owner(1)), Some(owner(2))));
    policy.unused(&cpus[1].pin(), PTE, one);
    assert_eq!((policy.hook().of(1), policy.hook().of(2)), (0, FRAME_SIZE));
    policy.unused(&cpus[1].pin(), TOP, two);
    assert_eq!(policy.hook().all(), 0);
}

#[test]
fn tables_are_charged_from_their_making_to_the_flush() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    let accounts = *policy.hook();
    let m = HostMachine::new(&host, policy, Auditor(accounts)).expect("machine");
    let tlb = m.tlb().new_space();
    let pin = cpus[0].pin();
    let mut tree = Tree::<X86_64>::new(&m, &pin, AllocFlags::NORMAL).expect("top");
    let attr = Attr::READ | Attr::SPECIAL;
    for at in 0..20u64 {
        tree.map(&m, &pin, VirtAddr(at << 21), host.zero_frame(), attr, AllocFlags::NORMAL).expect("mapped");
    }
    assert_eq!(accounts.all(), (20 + 3) * FRAME_SIZE);
    m.tlb().activate(&pin, &tlb, tree.root()).unwrap();
    let mut gather = Gather::new(parts(&m, &pin), &tlb, 12);
    tree.unmap_range(&m, VirtRange { start: 0, end: 5 << 21 }, Free::Empty, &mut gather, |_, _, _| ());
    gather.finish();
    let seen = accounts.at_flushes.lock().unwrap().clone();
    assert_eq!(seen, [(20 + 3) * FRAME_SIZE], "unhooked, and not yet anybody else's");
    assert_eq!(accounts.all(), (15 + 3) * FRAME_SIZE);
    let mut gather = Gather::ending(parts(&m, &pin), &tlb, 12);
    tree.end(&m, &mut gather, |_, _, _| ());
    gather.finish();
    assert_eq!(accounts.all(), 0);
    m.drain(&cpus);
    host.audit().expect("all is back");
}

#[test]
fn a_charge_that_is_refused_and_a_page_that_is_not_had_change_nothing() {
    let host = Host::<X86_64>::new(small(1, 1, 4)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    let before = || (host.frames().counts(), policy.counts(), policy.hook().all());
    *policy.hook().limit.lock().unwrap() = Some(2 * FRAME_SIZE);
    let pages: Vec<Clean> =
        (0..2).map(|_| policy.alloc(&cpus[0].pin(), PTE, AllocFlags::NORMAL).expect("page")).collect();
    let state = before();
    let refused = policy.alloc(&cpus[0].pin(), PTE, AllocFlags::NORMAL).expect_err("more than he may have");
    assert!(refused.free() > 0, "for lack of charge, not of frames");
    assert_eq!(before(), state);
    pages.into_iter().for_each(|page| policy.unused(&cpus[0].pin(), PTE, page));
    *policy.hook().limit.lock().unwrap() = None;
    policy.drain(&cpus[0].pin());
    let starved = Starved::new(&host, 0);
    let state = before();
    assert!(policy.alloc(&cpus[0].pin(), PTE, AllocFlags::NORMAL).is_err());
    assert_eq!(before(), state, "no frame, no charge");
    drop(starved);
}

#[test]
fn tables_smaller_than_a_frame_are_not_charged() {
    let host = Host::<X86Pae>::new(small(1, 1, 8)).expect("host");
    let cpus = host.slots();
    let policy = charged(&host, 8);
    let top = X86Pae::LAYOUT.top();
    let page = policy.alloc(&cpus[0].pin(), top, AllocFlags::NORMAL).expect("top");
    let leaf = policy.alloc(&cpus[0].pin(), PTE, AllocFlags::NORMAL).expect("page");
    assert_eq!(policy.hook().all(), FRAME_SIZE);
    policy.unused(&cpus[0].pin(), top, page);
    assert_eq!(policy.hook().all(), FRAME_SIZE);
    policy.unused(&cpus[0].pin(), PTE, leaf);
    assert_eq!(policy.hook().all(), 0);
}
