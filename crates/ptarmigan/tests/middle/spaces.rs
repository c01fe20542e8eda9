//! Spaces, kernel maps and trees: memory ends at the k-th frame, or the layer around the policy
//! unwinds at the k-th table. Programs read through the sanitizer's software MMUs on two CPUs.
use crate::{NORMAL, Point, fails, for_every_k_at, with_frames_left};
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::format::{Attr, Format, I386, MemoryType, X86_64, X86Pae};
use ptarmigan::frames::Frames;
use ptarmigan::machine::On;
use ptarmigan::page::Level;
use ptarmigan::quicklist::{Layered, Policy};
use ptarmigan::space::{
    Access, Advice, AreaFlags, CollapseLimits, EmptyTables, LargePages, Space, SpaceMachine, Unmapping,
};
use ptarmigan::table::{Free, Sizes, Tree};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::test::{LayerCall, TestLayer};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{SoftMmu, Watchable};

const PAGE: u64 = 4096;
/// What a leaf table maps at least.
const SPAN: u64 = 4 << 20;
const BASE: u64 = SPAN;

/// Unwinds when a table is handed out, and when one comes back.
fn unwind(_: &Pinned<'_>, call: LayerCall) {
    let point = match call {
        LayerCall::Alloc(_) => Point::Alloc,
        LayerCall::Freeing(..) => Point::Freeing,
        _ => return,
    };
    assert!(!fails(point), "the layer fails");
}

fn pages(at: u64, n: u64) -> VirtRange {
    VirtRange::new(at, at + n * PAGE).unwrap()
}

fn rw() -> AreaFlags {
    AreaFlags::READ.with(AreaFlags::WRITE)
}

/// The program on each CPU that runs in the space touches pages that are mapped there, and free
/// ones unless CPUs may still know these: they are to be forgotten `later`.
fn touch<F: Watchable, M: SpaceMachine>(mmu: &SoftMmu<'_, F>, later: bool, on: On<'_, M>, space: &Space<F>) {
    for at in (0..12).map(|n| BASE + n / 3 * SPAN + n % 3 * PAGE) {
        for cpu in [0, 1].into_iter().filter(|cpu| space.tlb().is_active_on(CpuId(*cpu as u16))) {
            let shown = space.tree().query(on, VirtAddr(at));
            if later && shown.is_none() {
                continue;
            }
            let found = mmu.with(|san, memory| san.translate(memory, cpu, at, ptsan::Access::READ));
            if let (Some((pfn, _)), Ok(found)) = (shown, found) {
                assert_eq!(found.phys / PAGE, u64::from(pfn.0), "CPU {cpu} reads another frame at {at:#x}");
            }
        }
    }
}

/// The program maps the free parts of its areas again, and uses them on both CPUs.
fn map_again<F: Watchable, M: SpaceMachine>(mmu: &SoftMmu<'_, F>, on: On<'_, M>, space: &mut Space<F>) {
    for at in (0..24).map(|n| BASE + n / 8 * SPAN + n % 8 * PAGE) {
        let mut edit = space.edit(on).unwrap();
        // Memory may have ended.
        if edit.area(VirtAddr(at)).is_none() && edit.mmap(pages(at, 1), rw(), 0).is_ok() {
            let _ = edit.fault(VirtAddr(at), Access::Write);
        }
    }
    touch(mmu, true, on, space);
}

/// Areas tell fork and faults of their private and their large pages.
fn assert_areas_know<F: Watchable, M: SpaceMachine>(number: usize, on: On<'_, M>, space: &Space<F>) {
    let all = VirtRange::up_to(F::USER_END);
    let see = |leaf: ptarmigan::table::Mapped| {
        let (is_large, private) = (leaf.level > Level::PTE, !leaf.attr.has(Attr::SPECIAL));
        let areas = space.areas().each(on, leaf.range(), |area| {
            let (at, flags) = (leaf.at, area.flags);
            let has_large = flags.has(AreaFlags::LARGE);
            assert!(!is_large || has_large, "call {number}: a large page at {at} in {flags:?}");
            let noted = flags.has(AreaFlags::PRIVATE_PAGES);
            assert!(!private || noted, "call {number}: fork does not find the page at {at}");
        });
        areas.unwrap();
    };
    space.tree().walk_leaves(on, all, see).unwrap();
}

/// What is made on the way.
struct Made<F: Format> {
    spaces: Vec<Space<F>>,
    trees: Vec<Tree<F>>,
}

/// A call, by number. Errors are those of a lack of memory.
fn call<F: Watchable, M: SpaceMachine>(
    number: usize,
    [on, other]: [On<'_, M>; 2],
    space: &mut Space<F>,
    made: &mut Made<F>,
) -> bool {
    let middle = |n: u64| pages(BASE + n * SPAN + 2 * PAGE, 1);
    match number {
        0 => (0..2).all(|n| space.edit(on).unwrap().mmap(middle(n), AreaFlags::READ, 0).is_ok()),
        1 => (0..3).all(|n| space.edit(on).unwrap().munmap(middle(n)).is_ok()),
        2 => (0..2).all(|n| space.edit(on).unwrap().mprotect(middle(n), AreaFlags::READ).is_ok()),
        3 => {
            let mut edit = space.edit(on).unwrap();
            let to = 0x4000_0000;
            edit.mremap(pages(BASE, 8), pages(to, 8), false).is_ok()
                && edit.mremap(middle(1), pages(to + SPAN, 1), true).is_ok()
        }
        4 => {
            let mut edit = space.edit(on).unwrap();
            edit.madvise(middle(0), Advice::DontFork(true)).is_ok()
                && edit.madvise(middle(1), Advice::WipeOnFork(true)).is_ok()
        }
        5 => {
            let child = space.edit(on).unwrap().fork();
            child.map(|child| made.spaces.push(child)).is_ok()
        }
        6 => match Space::<F>::exec(on, VirtAddr(0x9000_0000), 20) {
            Ok(child) => {
                made.spaces.push(child);
                let child = made.spaces.last_mut().unwrap();
                let to = VirtRange::fixed::<0x97f0_0000, 0x97ff_3000>();
                child.edit(on).unwrap().move_stack(to, rw()).is_ok()
            }
            Err(_) => false,
        },
        7 => (0..6).all(|n| {
            let at = 0x4000_0000 + n * (16 << 20);
            space.edit(on).unwrap().mmap(pages(at, 1), rw(), 0).is_ok()
                && space.fault(on, VirtAddr(at), [Access::Read, Access::Write][n as usize % 2]).is_ok()
                && space.fault(on, VirtAddr(at), Access::Write).is_ok()
        }),
        // Both sides write to what they share.
        8 => match space.edit(on).unwrap().fork() {
            Ok(child) => {
                made.spaces.push(child);
                let child = made.spaces.last_mut().unwrap();
                (0..8).all(|n| {
                    let at = VirtAddr(BASE + n * PAGE);
                    let first = child.fault(on, at, Access::Write).is_ok();
                    first && space.fault(on, at, Access::Write).is_ok()
                })
            }
            Err(_) => false,
        },
        9 => {
            let mut edit = space.edit(on).unwrap();
            let heap = 0x3000_0000;
            edit.make_tables(pages(BASE, 8), Level(0)).is_ok()
                && edit.brk(VirtAddr(heap)).is_ok()
                && edit.brk(VirtAddr(heap + (64 << 10))).is_ok()
                && edit.populate(pages(heap, 16), Access::Write).is_ok()
        }
        10 => match Tree::<F>::new(on, NORMAL) {
            Ok(tree) => {
                made.trees.push(tree);
                let tree = made.trees.last_mut().unwrap();
                let all = VirtRange::new(SPAN - PAGE, 6 * SPAN).unwrap();
                // SAFETY: 1. no program runs in the tree.
                unsafe { tree.edit(on).unwrap().map_range(all, Pfn(7), Attr::READ) }.is_ok()
            }
            Err(_) => false,
        },
        11 => (0..2).all(|n| space.edit(on).unwrap().retag(middle(n), |_| 7).is_ok()),
        // All of an area: its tables go.
        12 => {
            let mut edit = space.edit(on).unwrap();
            edit.munmap(pages(BASE + SPAN, 8)).is_ok()
                && edit.madvise(pages(BASE, 8), Advice::DontNeed).is_ok()
        }
        // CPUs rest, leave and come back.
        SWITCHES => {
            let rests = space.rest(on).is_ok() && space.activate(on).is_ok();
            rests && space.deactivate(on).is_ok() && space.activate(on).is_ok()
        }
        // A CPU has nothing to run, an interval ends, memory is short, a CPU goes.
        14 => {
            let ended = Space::<F>::new(on).map(|space| space.end(on).unwrap()).is_ok();
            let unused = on.alloc(Level::PTE, NORMAL).map(|page| {
                // SAFETY: 1. it has just come from there.
                unsafe { on.free_unlinked(page) }
            });
            on.idle();
            while on.clear_ahead(16) != 0 {}
            on.policy().end_interval();
            on.policy().reclaim(NodeId(0), 8);
            on.drain();
            ended && unused.is_ok()
        }
        // A file, shared and private.
        15 => [AreaFlags::SHARED, AreaFlags::BACKED].into_iter().zip(0..).all(|(kind, n)| {
            let at = 0x6000_0000 + n * SPAN;
            space.edit(on).unwrap().mmap(pages(at, 2), rw().with(kind), 7).is_ok()
                && space.fault(on, VirtAddr(at), Access::Read).is_ok()
                && space.fault(on, VirtAddr(at + PAGE), Access::Write).is_ok()
        }),
        // Functions of the caller.
        16 => {
            let see = || assert!(!fails(Point::Closure), "the caller's function fails");
            space.areas().each(on, pages(BASE, 8), |_| see()).unwrap();
            space.tree().walk(on, pages(BASE, 8), |_, _, _| see()).unwrap();
            let retagged = space.edit(on).unwrap().retag(middle(1), |tag| {
                see();
                tag + 1
            });
            let whole = space.edit(on).unwrap().retag_area(VirtAddr(BASE), |tag| {
                see();
                tag
            });
            whole.unwrap();
            let Ok(tree) = Tree::<F>::new(on, NORMAL) else { return false };
            made.trees.push(tree);
            let tree = made.trees.last_mut().unwrap();
            let all = VirtRange::new(SPAN - PAGE, 2 * SPAN).unwrap();
            // SAFETY: 1. no program runs in the tree.
            let mapped = unsafe { tree.edit(on).unwrap().map_range(all, Pfn(7), Attr::READ) };
            let mut edit = tree.edit(on).unwrap();
            let change = |attr: Attr| {
                see();
                attr.without_access()
            };
            edit.change_range(pages(SPAN, 3), change).unwrap();
            edit.unmap_range(pages(SPAN, 8), Free::Empty, |_, _, _| see());
            edit.flush();
            made.trees.pop().unwrap().end(on, |_, _, _| see()).unwrap();
            retagged.is_ok() && mapped.is_ok()
        }
        // Large pages: mapped, shared, split or copied, cut, moved, and made of pages.
        17 => {
            let mut edit = space.edit(on).unwrap();
            let size = edit.large_page_size().unwrap_or(SPAN);
            let large = VirtRange::new(64 * SPAN, 64 * SPAN + 2 * size).unwrap();
            let (first, second) =
                (VirtRange::new(large.start, large.start + size).unwrap(), large.start + size);
            let to = VirtRange::new(80 * SPAN, 80 * SPAN + size).unwrap();
            edit.set_large_pages(LargePages { in_new_areas: false, copy: true });
            let mapped = edit.mmap(large, rw().with(AreaFlags::LARGE), 0).is_ok();
            let mut faults = |at| space.fault(on, VirtAddr(at), Access::Write).is_ok();
            if !(mapped && faults(large.start) && faults(second)) {
                return false;
            }
            match space.edit(on).unwrap().fork() {
                Ok(child) => {
                    made.spaces.push(child);
                    let child = made.spaces.last_mut().unwrap();
                    let copied = child.fault(on, VirtAddr(large.start), Access::Write).is_ok();
                    let mut edit = child.edit(on).unwrap();
                    edit.set_large_pages(LargePages::default());
                    let moved = edit.mremap(first, to, false).is_ok();
                    let split = child.fault(on, VirtAddr(second), Access::Write).is_ok();
                    let mut edit = space.edit(on).unwrap();
                    let cut = edit.munmap(pages(large.start + 3 * PAGE, 2)).is_ok();
                    let limits = CollapseLimits { spans: 8, missing: 8 };
                    let collapsed = edit.collapse(VirtAddr(0), limits).is_ok();
                    copied && moved && split && cut && collapsed
                }
                Err(_) => false,
            }
        }
        // A device in large pages: mapped, given more rights, cut, protected, copied and moved.
        18 => {
            let mut edit = space.edit(on).unwrap();
            let size = edit.large_page_size().unwrap_or(SPAN);
            let all = VirtRange::new(64 * SPAN, 64 * SPAN + 2 * size + PAGE).unwrap();
            let (device, sizes) = (PhysAddr(2 << 30), Sizes::up_to(Level(1)).with_groups());
            // SAFETY: 1. the software MMUs make no accesses to it.
            let mapped = unsafe { edit.map_physical_large(all, rw(), device, MemoryType::WriteBack, sizes) };
            let populated = mapped.is_ok() && edit.populate(all, Access::Read).is_ok();
            if !(populated && space.fault(on, VirtAddr(all.start + 5 * PAGE), Access::Write).is_ok()) {
                return false;
            }
            let mut edit = space.edit(on).unwrap();
            let marked = edit.copy_on_fork(VirtAddr(all.start)).is_ok();
            let cut = edit.munmap(pages(all.start + 3 * PAGE, 2)).is_ok();
            let protected = edit.mprotect(pages(all.start + size + PAGE, 2), AreaFlags::READ).is_ok();
            let Ok(child) = edit.fork() else { return false };
            made.spaces.push(child);
            let mut edit = made.spaces.last_mut().unwrap().edit(on).unwrap();
            let (from, n) = (all.start + size + 8 * PAGE, size / PAGE - 8);
            let moved = edit.mremap(pages(from, n), pages(80 * SPAN, n), false).is_ok();
            marked && cut && protected && moved
        }
        // A shared object in large pages, where it has blocks: mapped, written, cut, and mapped
        // again.
        19 => {
            let mut edit = space.edit(on).unwrap();
            let size = edit.large_page_size().unwrap_or(SPAN);
            let all = VirtRange::new(64 * SPAN, 64 * SPAN + 2 * size).unwrap();
            let flags = rw().with(AreaFlags::SHARED).with(AreaFlags::LARGE);
            let mapped = edit.mmap(all, flags, 1).is_ok();
            if !(mapped && space.fault(on, VirtAddr(all.start), Access::Read).is_ok()) {
                return false;
            }
            let written = space.fault(on, VirtAddr(all.start), Access::Write).is_ok();
            let mut edit = space.edit(on).unwrap();
            let cut = edit.madvise(pages(all.start + 3 * PAGE, 2), Advice::DontNeed).is_ok();
            written && cut && edit.populate(pages(all.start, 8), Access::Read).is_ok()
        }
        // The block of zeroes: taken by a read, shown by a second one, shared with a child, and
        // left by writes of both.
        20 => {
            let mut edit = space.edit(on).unwrap();
            let size = edit.large_page_size().unwrap_or(SPAN);
            let large = VirtRange::new(64 * SPAN, 64 * SPAN + 2 * size).unwrap();
            let mapped = edit.mmap(large, rw().with(AreaFlags::LARGE), 0).is_ok();
            let mut faults = |at, access| space.fault(on, VirtAddr(at), access).is_ok();
            let (first, second) = (large.start, large.start + size);
            if !(mapped && faults(first, Access::Read) && faults(second, Access::Read)) {
                return false;
            }
            let Ok(child) = space.edit(on).unwrap().fork() else { return false };
            made.spaces.push(child);
            let child = made.spaces.last_mut().unwrap();
            let written = child.fault(on, VirtAddr(first), Access::Write).is_ok();
            let cut = space.edit(on).unwrap().munmap(pages(second + 3 * PAGE, 2)).is_ok();
            written && cut && space.fault(on, VirtAddr(first), Access::Write).is_ok()
        }
        // Pages become a large page, and it becomes pages again.
        21 => {
            let mut edit = space.edit(on).unwrap();
            let size = edit.large_page_size().unwrap_or(SPAN);
            let large = VirtRange::new(64 * SPAN, 64 * SPAN + size).unwrap();
            let mapped = edit.mmap(large, rw(), 0).is_ok()
                && edit.populate(pages(large.start, 3), Access::Write).is_ok()
                && edit.madvise(large, Advice::Large(true)).is_ok();
            let limits = CollapseLimits { spans: 8, missing: 1024 };
            let collapsed = mapped && edit.collapse(VirtAddr(0), limits).is_ok();
            collapsed && edit.madvise(large, Advice::Large(false)).is_ok()
        }
        // The other CPU unmaps, which may leave a flush to this one.
        CATCH_UP => {
            let gone = space.edit(other).unwrap().munmap(pages(BASE + SPAN, 2)).is_ok();
            on.tlb().catch_up(on.pin(), Some(space.tlb())).unwrap();
            other.collect();
            let parked = other.machine().parking().parked(other.pin());
            assert_eq!(parked, 0, "the CPU has forgotten that a flush is left to it");
            gone
        }
        // A space from its beginning to its end.
        _ => match Space::<F>::new(on) {
            Ok(new) => {
                made.spaces.push(new);
                let new = made.spaces.last_mut().unwrap();
                let area = pages(BASE, 4);
                let edited = new.edit(on).unwrap().mmap(area, rw(), 0);
                let filled = edited.is_ok() && new.edit(on).unwrap().populate(area, Access::Write).is_ok();
                let new = made.spaces.pop().unwrap();
                new.end(on).unwrap();
                filled
            }
            Err(_) => false,
        },
    }
}

pub const CALLS: usize = 24;
const SWITCHES: usize = 13;
const CATCH_UP: usize = 22;

/// Two CPUs' MMUs, which know the zero frame.
pub fn watched<F: Watchable>(host: &Host<F>) -> SoftMmu<'_, F> {
    let config = ptsan::Config { cpus: 2, eager_walkers: true, ..ptsan::Config::new(F::arch()) };
    let mmu = SoftMmu::new(host, config);
    let zero = host.zero_frame().addr().0;
    mmu.with(|san, memory| san.table_allocated(memory, zero, 4096, None, ptsan::Content::Zero));
    mmu
}

/// Makes a space that two CPUs run in, has `attempt` make the call, and ends everything. Returns
/// whether the call went through.
fn scenario<F: Watchable, P: Policy>(
    number: usize,
    later: bool,
    host: &Host<F>,
    policy: P,
    attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut()),
) -> bool {
    let mmu = watched(host);
    let unwinding =
        Layered::new(TestLayer::new(Some(host.frames()), unwind), policy).map_err(|e| e.error).unwrap();
    let policy = Layered::new(&mmu, unwinding).map_err(|e| e.error).unwrap();
    let config = TlbConfig { park: if later { 64 } else { 0 }, ..TlbConfig::new(2) };
    let m = HostMachine::with_tlb(host, policy, &mmu, config, Delivery::AtOnce).unwrap();
    scenario_on(number, later, &mmu, &m, false, attempt)
}

/// The same on any machine of the host whose MMUs these are, with `number` as `call` knows it. If
/// it is `later`, other CPUs forget what is unmapped later, and empty tables go. If it `leaks`,
/// tables need not come back.
pub fn scenario_on<F: Watchable>(
    number: usize,
    later: bool,
    mmu: &SoftMmu<'_, F>,
    m: &impl SpaceMachine,
    leaks: bool,
    attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut()),
) -> bool {
    let host = mmu.host();
    let zero = host.zero_frame().addr().0;
    let slots = host.slots();
    let mut went_through = false;
    {
        let pins = [slots[0].pin(), slots[1].pin()];
        let (on, other) = (m.on(&pins[0]).unwrap(), m.on(&pins[1]).unwrap());
        let mut space = Space::<F>::new(on).unwrap();
        if later {
            space.edit(on).unwrap().set_unmapping(Unmapping::Deferred);
            space.edit(on).unwrap().set_empty_tables(EmptyTables::Freed);
        }
        for n in 0..3 {
            let area = pages(BASE + n * SPAN, 8);
            space.edit(on).unwrap().mmap(area, rw(), 0).unwrap();
            space.edit(on).unwrap().populate(area, Access::Write).unwrap();
        }
        // Another record of areas fills the first frame of them.
        for n in 0..121 {
            let at = 0x2000_0000 + n * 2 * PAGE;
            space.edit(on).unwrap().mmap(pages(at, 1), AreaFlags::READ, 0).unwrap();
        }
        [on, other].into_iter().for_each(|on| space.activate(on).unwrap());
        touch(mmu, later, on, &space);
        on.drain();
        let mut made = Made { spaces: Vec::new(), trees: Vec::new() };
        attempt(host.frames(), &mut || {
            went_through = call(number, [on, other], &mut space, &mut made);
            touch(mmu, later, on, &space);
            map_again(mmu, on, &mut space);
        });
        made.spaces.iter().chain([&space]).for_each(|space| assert_areas_know(number, on, space));
        // Before a CPU loads the root again.
        match number {
            CATCH_UP => _ = call(number, [on, other], &mut space, &mut made),
            SWITCHES => {}
            _ => map_again(mmu, on, &mut space),
        }
        [on, other].into_iter().for_each(|on| space.activate(on).unwrap());
        touch(mmu, later, on, &space);
        // The same call goes through then, unless it has done its part already.
        let _ = call(number, [on, other], &mut space, &mut made);
        made.spaces.iter().chain([&space]).for_each(|space| assert_areas_know(number, on, space));
        [on, other].into_iter().for_each(|on| space.activate(on).unwrap());
        touch(mmu, later, on, &space);
        [on, other].into_iter().for_each(|on| space.deactivate(on).unwrap());
        made.spaces.into_iter().for_each(|space| space.end(on).unwrap());
        made.trees.into_iter().for_each(|tree| tree.end(on, |_, _, _| {}).unwrap());
        space.end(on).unwrap();
    }
    for slot in &slots {
        let pin = slot.pin();
        let on = m.on(&pin).unwrap();
        on.drain();
        on.policy().reclaim(NodeId(0), u32::MAX);
    }
    mmu.with(|san, memory| {
        san.table_freed(memory, zero, 4096);
        if !leaks {
            san.finish();
        }
        san.assert_clean();
    });
    went_through
}

/// The host of a call, by number: those of large pages have memory for a copy of one.
pub fn host_of<F: Format>(number: usize) -> Host<F> {
    let (large, zero_block) = ([17, 20, 21].contains(&number), number == 20);
    Host::new(HostConfig {
        bytes: if large { 16 << 20 } else { 4 << 20 },
        cpus: 2,
        prefault: 0,
        touch_data: true,
        zero_block,
        ..HostConfig::default()
    })
    .unwrap()
}

/// Memory ends at every frame of every call. Returns how many calls failed.
fn memory_ends<F: Watchable>() -> usize {
    let mut failed = 0;
    for number in 0..CALLS {
        for later in [false, true] {
            let went_through = (0..160).any(|left| {
                let host = host_of::<F>(number);
                let went = scenario(number, later, &host, host.quicklists().unwrap(), &mut |frames, call| {
                    with_frames_left(frames, left, call)
                });
                host.audit().unwrap_or_else(|e| panic!("{} call {number}, {left} frames: {e}", F::NAME));
                failed += usize::from(!went);
                went
            });
            assert!(went_through, "{} call {number} never goes through", F::NAME);
        }
    }
    failed
}

#[test]
fn spaces_lose_no_frame_and_show_nothing_stale_when_memory_ends() {
    let failed = [memory_ends::<X86_64>(), memory_ends::<X86Pae>(), memory_ends::<I386>()];
    assert!(failed.iter().all(|n| *n > 40), "{failed:?}");
}

#[test]
fn spaces_lose_no_frame_and_show_nothing_stale_when_a_layer_unwinds() {
    let mut passed = [0; 2];
    for number in 0..CALLS {
        for (at, point) in [Point::Alloc, Point::Freeing].into_iter().enumerate() {
            let n = for_every_k_at(point, |attempt| {
                let host = host_of::<X86_64>(number);
                scenario(number, true, &host, host.quicklists().unwrap(), &mut |_, call| attempt(call));
                host.audit().unwrap_or_else(|e| panic!("call {number}, {point:?}: {e}"));
            });
            passed[at] += n;
        }
    }
    assert!(passed[0] > 30 && passed[1] > 5, "{passed:?}");
}
