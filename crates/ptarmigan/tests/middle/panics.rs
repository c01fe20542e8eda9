//! Code of the caller that the library calls unwinds, at each trait method, before and after its
//! work, at the k-th pass. Nothing is lost and nothing is stale then, and the same call goes
//! through; where the contract says abort, a process of its own ends by it.
use crate::spaces::{CALLS, host_of, scenario_on, watched};
use crate::{ARMED, Point, THEN, child, fails, for_most_k_at};
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::cpu::{CpuSet, NodeId, Pinned};
use ptarmigan::format::{Format, Formats, X86_64};
use ptarmigan::frames::{AllocFlags, DataFrames, Frames, NoFrame};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::{Clean, Construct, Level};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::{
    Charge, Charged, Check, Layered, ListsConfig, Owner, Policy, Quicklists, Site, Source,
};
use ptarmigan::space::{SpaceMachine, ZeroBlock};
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, NewEntry, Root, Scope, SpaceId, Structures, Tlb, TlbConfig};
use ptarmigan::window::{DirectGuard, DirectMap, OpenWindow, Window, WindowGuard};
use ptarmigan_hosted::Host;
use ptarmigan_hosted::test::{LayerCall, TestLayer};
use ptarmigan_ptsan::SoftMmu;
use std::cell::Cell;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

type X = X86_64;

/// Unwinds at a point.
fn at(point: Point) {
    assert!(!fails(point), "code of the caller fails");
}

/// Something of the caller that the library calls.
struct Rough<T>(T);

// SAFETY: 1. to 7. by the MMU inside, whose calls are all passed on; `unload` unwinds at no time
// that 7. forbids, unless a test wants to see that the program ends then.
unsafe impl<S: Mmu> Mmu for Rough<S> {
    const FORMATS: Formats = S::FORMATS;
    const BROADCASTS: bool = S::BROADCASTS;
    const WALKS_TABLES: bool = S::WALKS_TABLES;
    const STRUCTURES: Structures = S::STRUCTURES;
    const NEEDS_ENTRY_VALID: bool = true;
    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        at(Point::BeforeFlush);
        self.0.invalidate(pin, what);
        at(Point::AfterFlush);
    }
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        at(Point::BeforeFlush);
        self.0.invalidate_kernel(pin, scope);
        at(Point::AfterFlush);
    }
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        at(Point::BeforeLoad);
        self.0.load(pin, root);
        at(Point::AfterLoad);
    }
    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        at(Point::Lazy);
        self.0.lazy(pin, space);
    }
    fn resume(&self, pin: &Pinned<'_>, space: SpaceId) {
        at(Point::Resume);
        self.0.resume(pin, space);
    }
    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        at(Point::BeforeUnload);
        self.0.unload(pin, space);
        at(Point::AfterUnload);
    }
    fn entry_became_valid(&self, _: &Pinned<'_>, _: &NewEntry) {
        at(Point::NewEntry);
    }
}

impl<S: Mmu> Ipi for Rough<S> {
    fn send(&self, pin: &Pinned<'_>, cpus: &CpuSet, serve: &dyn Fn(&Pinned<'_>)) {
        at(Point::Send);
        // Now and then a message is lost, so that there is a wait.
        if LOST.replace(!LOST.get()) {
            return;
        }
        for cpu in cpus.iter() {
            // SAFETY: 1. one thread acts for all CPUs of the test, and this is an interrupt to what
            // it does. 2. it is one of the CPUs that are asked; there is one node.
            serve(&unsafe { Pinned::assume(pin.machine(), cpu, NodeId(0)) });
        }
    }
    fn wait(&self, _: &Pinned<'_>, _: u32) {
        at(Point::Wait);
    }
}

thread_local! {
    static LOST: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: 1. to 3. by the map inside.
unsafe impl Window for Rough<DirectMap> {
    type Guard<'a> = Rough<DirectGuard>;
    type Error = Infallible;
    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Infallible> {
        Ok(Rough(self.0.open(at)))
    }
}

// SAFETY: by the guard inside.
unsafe impl WindowGuard for Rough<DirectGuard> {
    fn base(&self) -> *mut u8 {
        self.0.base()
    }
}

// SAFETY: 1. to 3. by the kernel map inside; what unwinds before has changed nothing.
unsafe impl<C: Construct> Construct for Rough<C> {
    unsafe fn construct(&self, frames: &Frames, root: PhysAddr) {
        at(Point::Construct);
        // SAFETY: 1. and 2. by the caller.
        unsafe { self.0.construct(frames, root) };
    }
    unsafe fn destruct(&self, frames: &Frames, root: PhysAddr) {
        at(Point::Destruct);
        // SAFETY: 1. by the caller.
        unsafe { self.0.destruct(frames, root) };
    }
}

/// Looks at pages.
struct Looks;

impl Check for Looks {
    fn made<W: OpenWindow, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean, _: bool) {
        at(Point::CheckMade);
    }
    fn given<W: OpenWindow, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        at(Point::CheckGiven);
        true
    }
    fn taken<W: OpenWindow, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) -> bool {
        at(Point::CheckTaken);
        true
    }
    fn leaves<W: OpenWindow, C: Construct>(&self, _: &Site<'_, '_, W, C>, _: &Clean) {
        at(Point::CheckLeaves);
    }
}

/// Unwinds in every hook of a layer.
fn around(_: &Pinned<'_>, call: LayerCall) {
    at(match call {
        LayerCall::Alloc(_) => Point::Alloc,
        LayerCall::Freeing(..) => Point::Freeing,
        LayerCall::FreeUnlinked(_) => Point::FreeUnlinked,
        LayerCall::Flushed(_) => Point::Flushed,
        LayerCall::AfterFlushed => Point::FlushedAfter,
        LayerCall::GatherEnd => Point::GatherEnd,
        LayerCall::Idle => Point::Idle,
        LayerCall::EndInterval => Point::EndInterval,
        LayerCall::Reclaim(..) => Point::Reclaim,
        LayerCall::Drain => Point::Drain,
        LayerCall::Allocated(..) | LayerCall::Adopted(_) => return,
    });
}

/// A machine all of whose parts may unwind.
struct RoughMachine<'h, P> {
    host: &'h Host<X>,
    window: Rough<DirectMap>,
    policy: P,
    tlb: Tlb<Rough<&'h SoftMmu<'h, X>>>,
    parking: Parking,
}

// SAFETY: 1. all parts are made for the host, with its number of CPUs; a test makes one machine of
// a host. 2. they are fields. 3. the window is the host's, and data is written to the frame alone.
unsafe impl<'h, P: Policy> Machine for RoughMachine<'h, P> {
    type Window = Rough<DirectMap>;
    type Policy = P;
    type Shootdown = Rough<&'h SoftMmu<'h, X>>;
    fn frames(&self) -> &Frames {
        self.host.frames()
    }
    fn data(&self) -> &DataFrames {
        self.host.data()
    }
    fn window(&self) -> &Self::Window {
        &self.window
    }
    fn policy(&self) -> &P {
        &self.policy
    }
    fn tlb(&self) -> &Tlb<Self::Shootdown> {
        &self.tlb
    }
    fn parking(&self) -> &Parking {
        &self.parking
    }
    unsafe fn clear_data(&self, _: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        at(Point::ClearData);
        // SAFETY: the frame is the caller's alone; the window reaches it.
        unsafe { self.host.window().open(frame.addr()).base().write_bytes(0, 4096) };
        Ok(())
    }
    unsafe fn copy_data(&self, _: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        at(Point::CopyData);
        let window = self.host.window();
        let (from, to) = (window.open(from.addr()), window.open(to.addr()));
        // SAFETY: `to` is the caller's alone, and `from` another frame; the window reaches both.
        unsafe { from.base().copy_to_nonoverlapping(to.base(), 4096) };
        Ok(())
    }
    fn take_anonymous(on: On<'_, Self>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        at(Point::TakeAnonymous);
        on.take_zeroed(flags)
    }
}

// SAFETY: 1. and 2. the frames are the host's own for as long as it is there, and nothing writes to
// the zero frame.
unsafe impl<P: Policy> SpaceMachine for RoughMachine<'_, P> {
    fn zero_frame(&self) -> Pfn {
        self.host.zero_frame()
    }
    fn backing_frame(&self, _: u32, _: u64) -> Option<Pfn> {
        at(Point::BackingFrame);
        Some(self.host.backing_frame())
    }
    fn zero_block(&self) -> Option<&ZeroBlock> {
        at(Point::ZeroBlock);
        self.host.zero_block()
    }
    fn fault_around(&self) -> u32 {
        4
    }
    fn frames_at_hand(&self, object: u32, first: u64, frames: &mut [Pfn]) {
        for (page, frame) in (first..).zip(frames) {
            *frame = self.backing_frame(object, page).expect("an endless object");
        }
    }
    fn backing_block(&self, _: u32, _: u64, _: u32) -> Option<Pfn> {
        at(Point::BackingFrame);
        // Of an object that is shared, whose pages nobody copies.
        Some(Pfn(1 << 19))
    }
}

/// Accounts that count what is charged.
#[derive(Default)]
struct Accounts(AtomicI64);

impl Charge for &Accounts {
    fn charge(&self, _: &Pinned<'_>, _: Level, _: usize) -> Option<Owner> {
        at(Point::Charge);
        self.0.fetch_add(1, Relaxed);
        Some(Owner(NonZeroU32::MIN))
    }
    fn uncharge(&self, _: Owner, _: Level, _: usize) {
        self.0.fetch_sub(1, Relaxed);
        at(Point::Uncharge);
    }
}

/// Makes a call on a machine all of whose parts may unwind, which `parks` pages, so that flushes
/// are left to other CPUs, or not.
fn rough(
    number: usize,
    parks: bool,
    leaks: bool,
    attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut()),
) -> bool {
    let host = host_of::<X>(number);
    let accounts = Accounts::default();
    let mmu = watched(&host);
    let (frames, kernel) = (host.frames(), Rough(host.kernel()));
    let config = ListsConfig { magazine: 4, ..ListsConfig::new(2) };
    type Lists<'h> = Quicklists<'h, Rough<DirectMap>, Rough<&'h KernelMap<X, DirectMap>>, Looks>;
    let mut boot = host.boot(Lists::bytes(&frames.size(), &config)).unwrap();
    // SAFETY: 1. the window is the host's. 2. the map was made for the host's frames and format.
    // 3. and 4. the host has checked the format.
    let source = unsafe { Source::new(frames, Rough(host.window()), kernel, X::LAYOUT) };
    let lists: Lists<'_> = Quicklists::with_check(&mut boot, config, source, Looks).unwrap();
    let mut boot = host.boot(Charged::<&Accounts>::bytes(&frames.size())).unwrap();
    let charged = Charged::new(&mut boot, frames, X::LAYOUT, &accounts).unwrap();
    let policy = Layered::new(charged, lists).map_err(|e| e.error).unwrap();
    let policy = Layered::new(TestLayer::new(Some(frames), around), policy).map_err(|e| e.error).unwrap();
    let policy = Layered::new(&mmu, policy).map_err(|e| e.error).unwrap();
    let config = TlbConfig { park: if parks { 8 } else { 0 }, ..TlbConfig::new(2) };
    type Tlbs<'h> = Tlb<Rough<&'h SoftMmu<'h, X>>>;
    let mut boot = host.boot(Tlbs::bytes(&config) + Parking::bytes(2)).unwrap();
    // SAFETY: 1. no other machine is made of the host.
    let tlb = unsafe { Tlb::new(&mut boot, frames.machine(), config, Rough(&mmu)) }.unwrap();
    let parking = Parking::new(&mut boot, frames.machine(), 2, config.park).unwrap();
    let m = RoughMachine { host: &host, window: Rough(host.window()), policy, tlb, parking };
    let went = scenario_on(number, parks, &mmu, &m, leaks, attempt);
    drop(m);
    if !leaks {
        assert_eq!(accounts.0.load(Relaxed), 0, "call {number}: charges are left");
        host.audit().unwrap_or_else(|e| panic!("call {number}: {e}"));
    }
    went
}

/// The points of [`rough`], and the methods that they stand for.
pub const POINTS: [(Point, &[&str]); 34] = [
    (Point::BeforeFlush, &["Mmu::invalidate", "Mmu::invalidate_kernel"]),
    (Point::AfterFlush, &[]),
    (Point::BeforeLoad, &["Mmu::load"]),
    (Point::AfterLoad, &[]),
    (Point::Lazy, &["Mmu::lazy"]),
    (Point::Resume, &["Mmu::resume"]),
    (Point::BeforeUnload, &["Mmu::unload"]),
    (Point::AfterUnload, &[]),
    (Point::NewEntry, &["Mmu::entry_became_valid"]),
    (Point::Send, &["Ipi::send"]),
    (Point::Wait, &["Ipi::wait"]),
    (Point::Construct, &["Construct::construct", "Construct::try_construct"]),
    (Point::Destruct, &["Construct::destruct", "Construct::destruct_all"]),
    (Point::CheckMade, &["Check::made"]),
    (Point::CheckGiven, &["Check::given"]),
    (Point::CheckTaken, &["Check::taken", "Policy::alloc_at_hand"]),
    (Point::CheckLeaves, &["Check::leaves"]),
    (Point::Alloc, &["Layer::alloc", "Policy::alloc"]),
    (Point::Freeing, &["Layer::freeing", "TakesUnhooked::take_unhooked"]),
    (Point::FreeUnlinked, &["Layer::free_unlinked", "Policy::free_unlinked"]),
    (Point::Flushed, &["Layer::flushed", "Policy::flushed"]),
    (Point::FlushedAfter, &["Layer::after_flushed"]),
    (Point::GatherEnd, &["Layer::gather_end", "Policy::gather_end"]),
    (Point::Idle, &["Layer::idle", "Policy::idle"]),
    (Point::EndInterval, &["Layer::end_interval", "Policy::end_interval"]),
    (Point::Reclaim, &["Layer::reclaim", "Policy::reclaim"]),
    (Point::Drain, &["Layer::drain", "Policy::drain"]),
    (Point::Charge, &["Charge::charge"]),
    (Point::Uncharge, &["Charge::uncharge"]),
    (Point::ClearData, &["Machine::clear_data"]),
    (Point::CopyData, &["Machine::copy_data"]),
    (Point::TakeAnonymous, &["Machine::take_anonymous"]),
    (Point::ZeroBlock, &["SpaceMachine::zero_block"]),
    (
        Point::BackingFrame,
        &[
            "SpaceMachine::backing_frame",
            "SpaceMachine::frames_at_hand",
            "SpaceMachine::backing_block",
            "Objects::frame",
            "Objects::frames_at_hand",
            "Objects::block",
        ],
    ),
];

/// The points after which pages are leaked on purpose: their state is unknown, or who knows them.
const LEAKING: [Point; 10] = [
    Point::BeforeFlush,
    Point::AfterFlush,
    Point::Send,
    Point::Wait,
    Point::Construct,
    Point::Destruct,
    Point::CheckMade,
    Point::CheckGiven,
    Point::CheckTaken,
    Point::CheckLeaves,
];

/// Runs all calls with failures at a point. Returns how often it was passed.
fn calls_at(point: Point, parks: bool) -> usize {
    let of = |number| {
        for_most_k_at(point, 6, |attempt| {
            rough(number, parks, LEAKING.contains(&point), &mut |_, call| attempt(call));
        })
    };
    (0..CALLS).map(of).sum()
}

#[test]
fn spaces_lose_nothing_and_show_nothing_stale_wherever_code_of_the_caller_unwinds() {
    let only = std::env::var("PTARMIGAN_POINT").ok();
    for (point, _) in POINTS.into_iter().chain([(Point::Closure, &[][..])]) {
        if only.as_ref().is_some_and(|only| *only != format!("{point:?}")) {
            continue;
        }
        for parks in [false, true] {
            assert!(calls_at(point, parks) > 0, "{point:?} is never passed");
        }
    }
}

/// `load` unwinds, and so does the `unload` that must come next.
#[test]
fn an_unload_that_unwinds_after_a_load_that_did_ends_the_program() {
    let ends = child::of("panics::an_unload_that_unwinds_after_a_load_that_did_ends_the_program");
    let Some(output) = ends else {
        // A hang ends by another signal.
        // SAFETY: no memory is touched.
        unsafe { libc::alarm(60) };
        THEN.set(Some(Point::BeforeUnload));
        rough(13, false, false, &mut |_, call| {
            ARMED.set(Some((Point::BeforeLoad, 1)));
            let _ = catch_unwind(AssertUnwindSafe(call));
        });
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}: {text}", output.status);
}
