//! Trees of other crates: memory ends at the k-th frame, or the policy or the way to a pin unwinds
//! at the k-th pass. All tables come back, and are zero.
use ptarmigan::cpu::{NodeId, Pinned, WithPin};
use ptarmigan::format::X86_64;
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, Request, ZoneClass};
use ptarmigan::page::FlushProof;
use ptarmigan::quicklist::{CheckConfig, Checked, Layered, ListsConfig, Policy, PolicyOn, Quicklists};
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_adapters::{Home, Pages};
use ptarmigan_hosted::test::{LayerCall, TestLayer};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Where a call unwinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Alloc,
    Freeing,
    FreeUnlinked,
    Flushed,
    FlushedAfter,
    GatherEnd,
    WithPin,
}

thread_local! {
    /// The point, and how many passes of it are left.
    static ARMED: Cell<Option<(Point, usize)>> = const { Cell::new(None) };
}

/// Passes a point, and unwinds if this is the time.
fn at(point: Point) {
    if let Some((armed, left)) = ARMED.get()
        && armed == point
    {
        ARMED.set((left > 1).then_some((armed, left - 1)));
        assert!(left > 1, "code of the caller fails");
    }
}

/// Runs `scenario` for every k, the k-th pass of the point in which unwinds, until no call comes to
/// a k-th pass. Returns how many times a call unwound.
fn for_every_k_at(point: Point, scenario: impl Fn(&mut dyn FnMut(&mut dyn FnMut()))) -> usize {
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
        k += 1;
    }
}

/// Takes all frames but `left`.
fn take_all_but(frames: &Frames, left: usize) -> Vec<Frame<Dirty>> {
    let (node, class, flags) = (NodeId(0), ZoneClass::High, AllocFlags::URGENT);
    let request = Request { node, order: 0, zero: false, class, end: End::High, flags };
    let mut all: Vec<_> = std::iter::from_fn(|| Some(frames.take(request).ok()?.dirty())).collect();
    for frame in all.drain(all.len() - left..) {
        frames.give(frame);
    }
    all
}

/// Unwinds in the hooks of a layer that pages call.
fn around(_: &Pinned<'_>, call: LayerCall) {
    at(match call {
        LayerCall::Alloc(_) => Point::Alloc,
        LayerCall::Freeing(..) => Point::Freeing,
        LayerCall::FreeUnlinked(_) => Point::FreeUnlinked,
        LayerCall::Flushed(_) => Point::Flushed,
        LayerCall::AfterFlushed => Point::FlushedAfter,
        LayerCall::GatherEnd => Point::GatherEnd,
        _ => return,
    });
}

type Around = TestLayer<'static, fn(&Pinned<'_>, LayerCall)>;
type Lists = Quicklists<'static, DirectMap, &'static KernelMap<X86_64, DirectMap>, Checked>;
type Roughly = Layered<Around, &'static Lists>;
type Mine = Pages<'static, &'static Roughly, RoughPin>;

/// A way to a pin that may unwind.
struct RoughPin(&'static CpuSlot);

impl WithPin for RoughPin {
    fn with_pin<R>(&self, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
        at(Point::WithPin);
        f(&self.0.pin())
    }
}

thread_local! {
    static PAGES: Cell<Option<&'static Mine>> = const { Cell::new(None) };
}

/// The pages of the test's thread.
#[derive(Clone, Copy, Debug)]
struct Here;

// SAFETY: 1. a test has one thread, and sets them up before each scenario. 2. tests do not call
// them. 3. it is not replaced.
unsafe impl Home for Here {
    type Policy = &'static Roughly;
    type Pin = RoughPin;
    fn pages() -> &'static Mine {
        PAGES.get().expect("set up first")
    }
}

/// The x86-64 crate's tree.
mod x64 {
    use super::Mine;
    use ptarmigan_adapters::x86_64::{Frames, Space};
    use x86_64::structures::paging::{
        FrameAllocator, FrameDeallocator, Page, PageTableFlags as Flags, PhysFrame,
    };
    use x86_64::{PhysAddr, VirtAddr};

    fn page(at: u64) -> Page {
        Page::containing_address(VirtAddr::new(at))
    }

    pub fn space(pages: &'static Mine) {
        let Some(mut space) = Space::new(pages) else { return };
        for at in super::PLACES {
            let frame = PhysFrame::containing_address(PhysAddr::new(0x7000));
            // SAFETY: no MMU.
            let _ = unsafe { space.map_to(page(at), frame, Flags::PRESENT) };
        }
        let _ = space.unmap(page(super::PLACES[1]));
        // SAFETY: 1. nothing is shared.
        unsafe { space.clean_up_addr_range(Page::range_inclusive(page(0), page(1 << 30))) };
    }

    pub fn frames(pages: &'static Mine) {
        // SAFETY: 1. tables come and go, and no data.
        let mut frames = unsafe { Frames::new(pages) };
        for _ in 0..9 {
            let Some(frame) = frames.allocate_frame() else { return };
            // SAFETY: it is zero, and nothing else has it.
            unsafe { frames.deallocate_frame(frame) };
        }
    }
}

/// Where pages are mapped: in tables of their own on all levels, and beside each other.
const PLACES: [u64; 5] = [0x1000, 0x20_1000, 0x20_2000, 1 << 30, 1 << 39];

fn multiarch(_: &'static Mine) {
    use memory_addr::{PhysAddr, VirtAddr};
    use page_table_entry::x86_64::X64PTE;
    use page_table_multiarch::x86_64::X64PagingMetaData;
    use page_table_multiarch::{MappingFlags, PageSize};
    use ptarmigan_adapters::page_table_multiarch::Space;
    let Ok(mut space) = Space::<X64PagingMetaData, X64PTE, Here>::try_new() else { return };
    let mut cursor = space.cursor();
    for at in PLACES {
        let (va, pa) = (VirtAddr::from_usize(at as usize), PhysAddr::from_usize(0x7000));
        let _ = cursor.map(va, pa, PageSize::Size4K, MappingFlags::READ);
    }
    let at = VirtAddr::from_usize(0x40_0000);
    let to = |at: VirtAddr| PhysAddr::from_usize(at.as_usize());
    let _ = cursor.map_region(at, to, 5 << 20, MappingFlags::READ, false);
    let _ = cursor.unmap_region(at, 1 << 20);
}

mod generic {
    use super::Here;
    use crate::generic::FourLevels;
    use page_table_generic::{MapConfig, PhysAddr, VirtAddr};
    use ptarmigan_adapters::page_table_generic::Space;

    pub fn space(_: &'static super::Mine) {
        let Ok(mut space) = Space::<FourLevels, Here>::new() else { return };
        for at in super::PLACES {
            let config = MapConfig {
                vaddr: VirtAddr::from_usize(at as usize),
                paddr: PhysAddr::from_usize(0x7000),
                size: 4096,
                pte: 7,
                allow_huge: false,
                flush: false,
            };
            let _ = space.map(&config);
        }
        let at = VirtAddr::from_usize(0x40_0000);
        let to = |at: VirtAddr| PhysAddr::from_usize(at.as_usize());
        let _ = space.map_region(at, to, 5 << 20, 7);
        let _ = space.unmap(at, 1 << 20);
    }
}

fn aarch64(pages: &'static Mine) {
    use aarch64_paging::descriptor::{El1Attributes as A, PhysicalAddress};
    use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, VaRange};
    use ptarmigan_adapters::aarch64_paging::Noted;
    let mut noted = Noted::table_with_va_range(pages, 0, El1And0, VaRange::Lower);
    for (n, at) in [0x1000, 0x20_1000, 1 << 30, 0x1000].into_iter().enumerate() {
        let region = MemoryRegion::new(at, at + 0x3000);
        let flags = if n == 3 { A::empty() } else { A::VALID | A::ACCESSED };
        let _ = noted.map_range(&region, PhysicalAddress(0x7000), flags, Constraints::NO_BLOCK_MAPPINGS);
    }
}

type Work = fn(&'static Mine);
const WORKS: [(&str, Work); 5] = [
    ("x86_64, a space", x64::space),
    ("x86_64, frames", x64::frames),
    ("page_table_multiarch", multiarch),
    ("page-table-generic", generic::space),
    ("aarch64-paging", aarch64),
];

/// Works with pages of a machine of its own, once in `attempt`, and then as it should be.
fn scenario((name, work): (&str, Work), at_once: bool, attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut())) {
    let config = HostConfig { bytes: 1 << 20, prefault: 0, ..HostConfig::default() };
    let host: &'static _ = Box::leak(Box::new(Host::<X86_64>::new(config).unwrap()));
    let check = CheckConfig { sample: 1, ..CheckConfig::new(|misuse| println!("{misuse:?}")) };
    let lists: &'static Lists =
        Box::leak(Box::new(host.quicklists_checked(ListsConfig::new(1), check).unwrap()));
    let policy = Layered::new(Around::new(Some(host.frames()), around), lists).map_err(|e| e.error).unwrap();
    let policy: &'static _ = Box::leak(Box::new(policy));
    let slot: &'static CpuSlot = Box::leak(Box::new(host.slot(0).unwrap()));
    // SAFETY: 1. the lists' own source.
    let pages = unsafe { Pages::with_policy(policy, lists.source(), RoughPin(slot)) };
    // SAFETY: 1. no MMU walks the tables.
    let pages = if at_once { unsafe { pages.unwrap().at_once() } } else { pages.unwrap() };
    let pages: &'static Mine = Box::leak(Box::new(pages));
    PAGES.set(Some(pages));
    // What a call owes is made up for by the next flush.
    let flush = || {
        // SAFETY: 1. no CPU has loaded a root.
        pages.take_waiting().flushed(unsafe { FlushProof::claim() });
    };
    attempt(host.frames(), &mut || {
        work(pages);
        flush();
    });
    flush();
    assert_eq!(lists.counts().live(), 0, "{name}: tables have not come back");
    work(pages);
    flush();
    assert_eq!(lists.counts().live(), 0, "{name}: tables have not come back");
    assert_eq!(lists.check().refused(), 0, "{name}: tables came back with something in them");
    let pin = slot.pin();
    let here = PolicyOn::new(lists, &pin).unwrap();
    here.drain();
    here.reclaim(NodeId(0), u32::MAX);
    host.audit().unwrap_or_else(|e| panic!("{name}: {e}"));
}

#[test]
fn trees_of_other_crates_lose_no_table_when_memory_ends() {
    for work in WORKS {
        for (left, at_once) in (0..30).flat_map(|left| [(left, false), (left, true)]) {
            scenario(work, at_once, &mut |frames, call| {
                let taken = take_all_but(frames, left);
                // One of the crates unwinds where there is no memory.
                let _ = catch_unwind(AssertUnwindSafe(call));
                taken.into_iter().for_each(|frame| frames.give(frame));
            });
        }
    }
}

#[test]
fn trees_of_other_crates_lose_no_table_when_the_policy_or_the_way_to_a_pin_unwinds() {
    let points = [
        Point::Alloc,
        Point::Freeing,
        Point::FreeUnlinked,
        Point::Flushed,
        Point::FlushedAfter,
        Point::GatherEnd,
        Point::WithPin,
    ];
    for point in points {
        let mut passed = 0;
        for (work, at_once) in WORKS.into_iter().flat_map(|work| [(work, false), (work, true)]) {
            passed += for_every_k_at(point, |attempt| {
                scenario(work, at_once, &mut |_, call| attempt(call));
            });
        }
        assert!(passed > 5, "{point:?} was passed {passed} times");
    }
}
