//! The test rig: a hosted machine of which a sanitizer sees every table page and every
//! invalidation.
//!
//! The coupling with the sanitizer is `ptarmigan_ptsan`'s. [`Watch`] adds the queries of tests, and
//! [`WatchPages`] a check of root tables.
#![allow(dead_code, reason = "every test binary uses its own part of the rig")]
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Attr, Format, Formats};
use ptarmigan::frames::{AllocFlags, Dirty, Frame, Frames, NoFrame, ORDERS, Request, Taken, Use};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Layered, Policy};
use ptarmigan::space::{Space, SpaceMachine};
use ptarmigan::table::{KernelMap, TreeRef};
use ptarmigan::tlb::{Invalidation, Mmu, Root, Scope, SpaceId, Structures, TlbConfig};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::test::{Call, MmuTraits, TestMmu};
use ptarmigan_hosted::{CpuSlot, Delivery, Host, HostError, HostMachine};
use ptarmigan_linux::{Historic, Rules};
use ptarmigan_ptsan::SoftMmu;
pub mod kernel_tlbs;
pub use ptarmigan_ptsan::Watchable;
use ptsan::{Access, Config, Content, Fault, Flush, Kind, Translation};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A policy of Linux. The MMUs of these tests are models, and no test reads memory by a table that
/// it walks without a lock beside an operation on a machine with this policy.
pub fn historic<F: Format>(
    host: &Host<F>,
    rules: Rules,
    lists: usize,
) -> Result<HostHistoric<'_, F>, HostError> {
    // SAFETY: 1. nobody walks tables but models of MMUs and the operations of spaces.
    unsafe { host.historic(rules, lists) }
}

/// What [`historic`] makes.
pub type HostHistoric<'h, F> = Historic<'h, DirectMap, &'h KernelMap<F, DirectMap>>;

/// A sanitizer that watches one host.
pub struct Watch<'h, F: Format> {
    host: &'h Host<F>,
    mmu: SoftMmu<'h, F>,
}

impl<'h, F: Watchable> Watch<'h, F> {
    pub fn new(host: &'h Host<F>) -> Self {
        Self::with_asids(host, false)
    }

    /// TLBs that keep translations of other spaces, if `asids`.
    pub fn with_asids(host: &'h Host<F>, asids: bool) -> Self {
        let cpus = host.config().cpus;
        let mmu = SoftMmu::new(host, Config { cpus, eager_walkers: true, asids, ..Config::new(F::arch()) });
        // The host's own frame that stands for the kernel's tables.
        let zero = host.zero_frame().addr().0;
        mmu.with(|san, memory| san.table_allocated(memory, zero, 4096, None, Content::Zero));
        Watch { host, mmu }
    }

    /// Its CPUs' MMUs, for a machine.
    pub fn tlb(&self) -> WatchedTlb<'_, 'h, F> {
        &self.mmu
    }

    /// An access by a program on `cpu`.
    pub fn translate(&self, cpu: usize, va: u64, access: Access) -> Result<Translation, Fault> {
        self.mmu.with(|san, memory| san.translate(memory, cpu, va, access))
    }

    /// An access by a program on `cpu`, to the word that it is translated to; the CPU's
    /// translations cannot be invalidated in between, as on hardware.
    pub fn access<R>(
        &self,
        cpu: usize,
        va: u64,
        access: Access,
        f: impl FnOnce(u64) -> R,
    ) -> Result<R, Fault> {
        self.mmu.with(|san, memory| san.translate(memory, cpu, va, access).map(|t| f(t.phys)))
    }

    /// Runs something that changes tables. Until it returns, other CPUs may use their old
    /// translations.
    pub fn changing<R>(&self, f: impl FnOnce() -> R) -> R {
        let operation = self.mmu.with(|san, _| san.operation_begins());
        let result = f();
        self.mmu.with(|san, memory| san.operation_ends(memory, operation));
        result
    }

    /// Returns the sanitizer's report.
    pub fn report(&self) -> String {
        self.mmu.with(|san, _| san.to_string())
    }

    /// How often a defect was found.
    pub fn count(&self, kind: Kind) -> u64 {
        self.mmu.with(|san, _| san.count(kind))
    }

    pub fn total(&self) -> u64 {
        self.mmu.with(|san, _| san.total())
    }

    /// Asserts that there is no finding so far.
    #[track_caller]
    pub fn assert_clean(&self) {
        self.mmu.with(|san, _| san.assert_clean());
    }

    /// Ends the machine: a frame that is still a table has leaked. Returns the number of findings
    /// of each kind.
    pub fn finish(&self) -> BTreeMap<&'static str, u64> {
        let zero = self.host.zero_frame().addr().0;
        self.mmu.with(|san, memory| {
            san.table_freed(memory, zero, 4096);
            san.finish();
            Kind::ALL.into_iter().map(|k| (k.name(), san.count(k))).filter(|(_, n)| *n > 0).collect()
        })
    }
}

/// A machine, seen from a CPU of it.
#[track_caller]
pub fn on<'a, M: Machine>(m: &'a M, pin: &'a Pinned<'a>) -> On<'a, M> {
    m.on(pin).expect("a CPU of this machine")
}

/// Has the sanitizer watch a policy's pages. Also checks that every root is handed out with the
/// kernel's entries (I10); the sanitizer checks that other tables are zero (I2).
pub struct WatchPages<'w, 'h, F: Format>(pub &'w Watch<'h, F>);

/// A policy whose pages are watched.
pub type WatchedPolicy<'w, 'h, F, P> = Layered<WatchPages<'w, 'h, F>, P>;

/// A constructed root shows exactly the kernel map of this moment.
#[track_caller]
pub fn assert_constructed<F: Format>(host: &Host<F>, at: PhysAddr) {
    for index in 0..F::entries(F::LAYOUT.root()) {
        let want = if index < F::USER_ROOT_ENTRIES { Some(0) } else { host.kernel().get(index) };
        // SAFETY: 1. the caller says that it is a root: its entries are written as such.
        let entry = unsafe { host.read(PhysAddr(at.0 + 8 * index as u64), 8) };
        assert_eq!(entry, want, "entry {index} of the constructed root at {at}");
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<F: Watchable, P: Policy> Layer<P> for WatchPages<'_, '_, F> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.0.host.frames())
    }

    fn alloc(
        &self,
        policy: &P,
        pin: &Pinned<'_>,
        level: Level,
        flags: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        self.0.tlb().alloc(policy, pin, level, flags, || {
            let page = inner()?;
            if level == F::LAYOUT.root() {
                assert_constructed(self.0.host, page.addr());
            }
            Ok(page)
        })
    }

    fn freeing(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr) {
        Layer::<P>::freeing(&self.0.tlb(), pin, level, at);
    }
}

/// The software MMUs of the sanitizer, told to forget.
pub type WatchedTlb<'w, 'h, F> = &'w SoftMmu<'h, F>;

/// MMUs without ASIDs that drop no translation when a root is loaded: the translations of all
/// roots, the kernel's among them, are under number 0. So are RISC-V's with an ASID field of no
/// bits.
pub struct Unnumbered<'w, 'h, F: Format> {
    pub watch: &'w Watch<'h, F>,
    /// Loading a space's root is followed by a fence.
    pub load_fence: bool,
    /// Loading the kernel's root is followed by a fence.
    pub unload_fence: bool,
}

impl<F: Watchable> Unnumbered<'_, '_, F> {
    fn switch(&self, pin: &Pinned<'_>, root: PhysAddr, fence: bool) {
        let cpu = pin.cpu().0 as usize;
        self.watch.mmu.with(|san, memory| {
            san.switch(memory, cpu, root.0, 0);
            if fence {
                san.flush(memory, cpu, Flush::space(0));
            }
        });
    }
}

// SAFETY: 1. and 2. the CPU's software MMU forgets everything. 3. and 4. the same after each change
// of the root; a test that leaves a fence out breaks that on purpose: only the sanitizer walks
// these tables, and it survives that. 5. It reaches one CPU, and walks tables by itself. 6. Neither
// is kept. 7. A test in which something unwinds has failed.
unsafe impl<F: Watchable> Mmu for Unnumbered<'_, '_, F> {
    const FORMATS: Formats = Formats::of::<F>();
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, _: &Invalidation) {
        self.watch.mmu.with(|san, memory| san.flush(memory, pin.cpu().0 as usize, Flush::space(0)));
    }

    fn invalidate_kernel(&self, pin: &Pinned<'_>, _: &Scope) {
        self.watch.mmu.with(|san, memory| san.flush(memory, pin.cpu().0 as usize, Flush::all()));
    }

    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        assert!(root.asid == 0 && !root.keep);
        self.switch(pin, root.at, self.load_fence);
    }

    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        // The host's own frame stands for the kernel's tables.
        self.switch(pin, self.watch.host.zero_frame().addr(), self.unload_fence);
    }
}

/// A machine that is watched.
pub type Watched<'w, 'h, F, P> = HostMachine<'h, F, WatchedPolicy<'w, 'h, F, P>, WatchedTlb<'w, 'h, F>>;

/// Puts a policy under the sanitizer's eyes.
pub fn watched<'w, 'h, F: Watchable, P: Policy>(watch: &'w Watch<'h, F>, policy: P) -> Watched<'w, 'h, F, P> {
    HostMachine::new(watch.host, Layered::new(WatchPages(watch), policy).unwrap(), watch.tlb())
        .expect("the host has memory for the TLB state")
}

/// The same with TLBs of another shape and interrupts that come when they come.
pub fn watched_with<'w, 'h, F: Watchable, P: Policy>(
    watch: &'w Watch<'h, F>,
    policy: P,
    config: TlbConfig,
    delivery: Delivery,
) -> Watched<'w, 'h, F, P> {
    let policy = Layered::new(WatchPages(watch), policy).unwrap();
    HostMachine::with_tlb(watch.host, policy, watch.tlb(), config, delivery)
        .expect("the host has memory for the TLB state")
}

/// MMUs that broadcast, are told of new entries, or drop links of tables by address.
pub struct Mmus<const BROADCASTS: bool, const TOLD: bool = false, const TAGGED: bool = false>;

impl<const B: bool, const TOLD: bool, const TAGGED: bool> MmuTraits for Mmus<B, TOLD, TAGGED> {
    const BROADCASTS: bool = B;
    const STRUCTURES: Structures = if TAGGED { Structures::Tagged } else { Structures::AnyInvalidation };
    const NEEDS_ENTRY_VALID: bool = TOLD;
}

/// Whether the CPU is told to forget pages of a space.
pub fn forgets_on(cpu: u16) -> impl Fn(&Call) -> bool {
    move |call| matches!(call, Call::Invalidate(on, _) if on.0 == cpu)
}

/// Has CPU 1's next invalidation fail.
pub fn fail_next(mmu: &TestMmu<'_>) {
    mmu.before_next(forgets_on(1), |_| panic!("the MMU's code fails"));
}

/// Has a policy's `k`-th allocation fail.
pub struct FailAt {
    left: AtomicUsize,
}

impl FailAt {
    pub fn new() -> Self {
        FailAt { left: AtomicUsize::new(usize::MAX) }
    }

    /// The `k`-th allocation from now on fails, and so do all after it; `usize::MAX`: no failure.
    pub fn set(&self, k: usize) {
        self.left.store(k, Ordering::Relaxed);
    }
}

/// Calls `run` with the number of an allocation that is to fail, from 0 on, until it returns false:
/// there was no such allocation. It must have been called more than `least` times.
pub fn each_allocation_fails(least: usize, mut run: impl FnMut(usize) -> bool) {
    let runs = 1 + (0..).take_while(|k| run(*k)).count();
    assert!(runs > least, "{runs} allocations were refused");
}

/// Unmaps `parts` of a space while every allocation fails, and ends it. No table stays reserved.
pub fn ends_without_memory<F: Format, M: SpaceMachine>(
    on: On<'_, M>,
    fail: &FailAt,
    mut space: Space<F>,
    parts: &[VirtRange],
    k: usize,
) {
    fail.set(0);
    let mut edit = space.edit(on).unwrap();
    for part in parts {
        edit.munmap(*part).unwrap();
    }
    fail.set(usize::MAX);
    space.end(on).unwrap();
    assert_eq!(on.machine().frames().reserved(), 0, "allocation {k}");
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy> Layer<P> for FailAt {
    fn frames(&self) -> Option<&Frames> {
        None
    }

    fn alloc(
        &self,
        _: &P,
        pin: &Pinned<'_>,
        _: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(NoFrame::new(0, pin.node(), 0));
        }
        if left != usize::MAX {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        inner()
    }
}

/// Takes memory away until ordinary requests get exactly `leave` more single frames of node 0.
pub struct Starved<'h, F: Format> {
    host: &'h Host<F>,
    held: Vec<Frame<Dirty>>,
}

impl<'h, F: Format> Starved<'h, F> {
    /// The lists of all CPUs should be drained before.
    pub fn new(host: &'h Host<F>, leave: usize) -> Self {
        let take = |order| host.frames().take(Request { order, ..any_frame(0) }).map(Taken::dirty);
        let left: Vec<_> = (0..leave).map(|_| take(0).expect("the machine has that many frames")).collect();
        // Large blocks first: a few calls instead of one for each frame.
        let mut held: Vec<Frame<Dirty>> = Vec::new();
        for order in (0..ORDERS as u8).rev() {
            while let Ok(frame) = take(order) {
                held.push(frame);
            }
        }
        for frame in left {
            host.frames().give(frame);
        }
        Starved { host, held }
    }
}

impl<F: Format> Drop for Starved<'_, F> {
    fn drop(&mut self) {
        for frame in self.held.drain(..) {
            self.host.frames().give(frame);
        }
    }
}

/// Mappings by page: frame and attributes.
pub type Pages = BTreeMap<u64, (Pfn, Attr)>;

/// Reads a tree entry by entry, as an MMU would that never forgets, and compares every record and
/// every count of the tree with the entries. Returns the mappings.
#[track_caller]
pub fn scan<F: Format, M: Machine>(host: &Host<F>, on: On<'_, M>, tree: TreeRef<'_, F>) -> Pages {
    let mut pages = Pages::new();
    let mut tables = [0u32; 5];
    scan_table::<F>(host, tree.root(), F::LAYOUT.root(), 0, &mut tables, &mut pages);
    for (level, n) in tables.iter().enumerate().take(F::LAYOUT.levels as usize) {
        assert_eq!(tree.count(Level(level as u8)), *n, "tables of level {level}");
    }
    // `walk` follows the maps of touched cache lines: a mapping that it does not find has lost its
    // line.
    let mut walked = Pages::new();
    tree.walk(on, VirtRange::up_to(F::USER_END), |va, pfn, attr| {
        assert!(walked.insert(va.0, (pfn, attr)).is_none(), "{va} was visited twice");
    })
    .expect("a tree of this machine");
    assert_eq!(walked, pages, "pages found by way of touched lines, and all pages");
    pages
}

fn scan_table<F: Format>(
    host: &Host<F>,
    at: PhysAddr,
    level: Level,
    base: u64,
    tables: &mut [u32; 5],
    pages: &mut Pages,
) {
    tables[level.at()] += 1;
    let top = level == F::LAYOUT.root();
    let entries = if top { F::USER_ROOT_ENTRIES } else { F::entries(level) };
    let words = host.words();
    let mut live = 0;
    // Most of the time of some tests goes by here, in code that is not optimised: hence no range.
    let mut next_index = 0;
    while next_index < entries {
        let index = next_index;
        next_index += 1;
        // SAFETY: 1. it is an entry of a table in use.
        let Some(raw) = (unsafe { words.read(PhysAddr(at.0 + 8 * index as u64), 8) }) else {
            panic!("the table at {at} does not lie in memory");
        };
        if raw == 0 {
            continue;
        }
        live += 1;
        let va = base + ((index as u64) << F::shift(level));
        if level == Level::PTE {
            pages.insert(va, (F::frame(Level::PTE, raw), F::attr(Level::PTE, raw)));
        } else {
            let next = F::linked(level, raw).expect("an entry that is not empty links a table");
            scan_table::<F>(host, next, Level(level.0 - 1), va, tables, pages);
        }
    }
    if F::LAYOUT.is_small(level) {
        return;
    }
    let meta = host.frames().meta(at.pfn());
    assert_eq!(meta.usage(), Use::Table, "use of the table at {at}");
    assert!(
        !meta.is_counted() || meta.live() == live,
        "live entries of the table at {at}, level {}",
        level.0
    );
}

/// Returns the mappings of a space, frames renamed in the order of addresses: equal for equal
/// histories, whatever the policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    pub pages: Vec<(u64, usize, Attr)>,
    pub tables: Vec<u32>,
}

/// The shapes of several spaces, with frames named across all of them.
pub fn shapes<F: Format, M: Machine>(host: &Host<F>, on: On<'_, M>, spaces: &[&Space<F>]) -> Vec<Shape> {
    let mut names = BTreeMap::new();
    spaces
        .iter()
        .map(|space| Shape {
            pages: scan(host, on, space.tree())
                .into_iter()
                .map(|(va, (pfn, attr))| {
                    let fresh = names.len();
                    (va, *names.entry(pfn).or_insert(fresh), attr)
                })
                .collect(),
            tables: (0..F::LAYOUT.levels).map(|l| space.tree().count(Level(l))).collect(),
        })
        .collect()
}

/// Enters a space on a CPU, as a scheduler does, and tells the sanitizer of a lazy CPU that it goes
/// on.
pub fn activate<F: Watchable, P: Policy>(
    m: &Watched<'_, '_, F, P>,
    watch: &Watch<'_, F>,
    slot: &CpuSlot,
    space: &Space<F>,
) {
    space.activate(on(m, &slot.pin())).expect("a space of this machine");
    watch.mmu.with(|san, _| san.resume(slot.cpu().0 as usize));
}

pub fn va(at: u64) -> VirtAddr {
    VirtAddr(at)
}

pub fn range(start: u64, end: u64) -> VirtRange {
    VirtRange::new(start, end).unwrap()
}

mod policy;
pub mod world;

#[allow(unused_imports, reason = "every test binary uses its own part of the rig")]
pub use crate::physical::{any_frame, assert_zero, peek, poke, small};
#[allow(unused_imports, reason = "as above")]
pub use policy::At;
