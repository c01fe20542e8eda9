//! Large pages of the kernel's half.
use super::*;
use ptarmigan::page::Level;

/// The first frame that is shown: the host does not have it.
const FAR: Pfn = Pfn(1 << 20);
const PAGES: u64 = LEAF / PAGE;

/// Maps, splits, protects, collapses and unmaps large pages, and parts of them; `range` is the one
/// that is held.
fn calls<'k, M: Machine>(
    tlbs: &Tlbs,
    host: &'k Host<X86_64>,
    on: On<'_, M>,
    range: &mut Option<Range<'k>>,
    named: &RefCell<Vec<u32>>,
) {
    let gone = |_, pfn: Pfn| named.borrow_mut().push(pfn.0);
    // The second time tables are in the way, and other frames are shown.
    for first in [FAR, Pfn(FAR.0 + 2048)] {
        if range.is_none() {
            *range = host.kernel().claim(on, VirtAddr(START), 2 * LEAF).ok();
        }
        let Some(its) = range.as_mut() else { return };
        let at = VirtAddr(START);
        // SAFETY: 1. nothing uses the frames.
        let _ = unsafe { its.map_range_large(on, at, first, 2 * PAGES, RW, Level(1), NORMAL) };
        read_pages(tlbs, on, its, START + LEAF - 2 * PAGE, 4);
        let _ = its.split(on, at, Level::PTE);
        let _ = its.collapse(on, at, Level(1));
        read_pages(tlbs, on, its, START, 4);
        let _ = its.protect(on, VirtAddr(START + PAGE), PAGES, |attr| attr.without(Attr::WRITE));
        let _ = its.unmap(on, VirtAddr(START + LEAF + 9 * PAGE), 20, gone);
        let _ = its.unmap(on, at, 2 * PAGES, gone);
    }
    // The release finds large pages, too.
    if let Some(its) = range.as_mut() {
        // SAFETY: 1. nothing uses the frames.
        let _ = unsafe {
            its.map_range_large(on, VirtAddr(START), Pfn(FAR.0 + 4096), 2 * PAGES, RW, Level(1), NORMAL)
        };
        read_pages(tlbs, on, its, START, 4);
    }
    if let Some(its) = range.take()
        && let Err((_, back)) = its.release(on, gone)
    {
        *range = Some(back);
    }
}

/// Runs a scenario; `attempt` also gets the frames of the host.
fn scenario(attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut())) {
    let (host, tlbs) = (host(), tlbs());
    let m = machine!(host, tlbs);
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let on = m.on(&pin).unwrap();
    release(on, host.kernel().claim(on, VirtAddr(START), 2 * LEAF).unwrap());
    let before = in_use(on);
    let (mut range, named) = (None, RefCell::default());
    attempt(on.frames(), &mut || calls(&tlbs, &host, on, &mut range, &named));
    let claim = || host.kernel().claim(on, VirtAddr(START), 2 * LEAF).unwrap();
    let mut range = range.unwrap_or_else(claim);
    let gone = |_, pfn: Pfn| named.borrow_mut().push(pfn.0);
    range.unmap(on, VirtAddr(START), 2 * PAGES, gone).unwrap();
    let mut all = named.take();
    all.sort_unstable();
    // A large page is named as a whole, unless the function that is told of it unwinds.
    assert!(all.windows(2).all(|two| two[0] != two[1]), "a frame is named twice");
    // SAFETY: 1. nothing uses the frames.
    let map = |range: &mut Range<'_>, largest| unsafe {
        range.map_range_large(on, VirtAddr(START), Pfn(1 << 21), 2 * PAGES, RW, largest, NORMAL)
    };
    for largest in [Level::PTE, Level(1)] {
        map(&mut range, largest).unwrap();
        read_pages(&tlbs, on, &range, START, 2 * PAGES);
        range.unmap(on, VirtAddr(START), 2 * PAGES, |_, _| {}).unwrap();
    }
    range.release(on, |_, _| {}).unwrap_or_else(|(e, _)| panic!("{e}"));
    assert_eq!(on.frames().reserved(), 0, "frames stay reserved");
    assert_eq!(in_use(on), before, "frames are lost");
    assert_eq!(tlbs.translations(), 0);
}

#[test]
fn large_pages_of_the_kernels_half_lose_no_frame_and_show_nothing_stale() {
    let passed = for_every_k(|attempt| scenario(&mut |_, call| attempt(call)));
    assert_passed(&passed, &POINTS[..3]);
}

#[test]
fn large_pages_of_the_kernels_half_lose_no_frame_when_memory_ends() {
    for left in 0..8 {
        scenario(&mut |frames, call| with_frames_left(frames, left, call));
    }
}

#[test]
fn the_flush_of_tables_that_unwound_comes_before_others_take_their_places() {
    let (host, tlbs) = (host(), tlbs());
    let m = machine!(host, tlbs);
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let on = m.on(&pin).unwrap();
    let mut range = host.kernel().claim(on, VirtAddr(START), LEAF).unwrap();
    let at = VirtAddr(START);
    // SAFETY: 1. nothing uses the frames.
    let map = |range: &mut Range<'_>, largest, pages| unsafe {
        range.map_range_large(on, at, FAR, pages, RW, largest, NORMAL)
    };
    map(&mut range, Level::PTE, 3).unwrap();
    range.unmap(on, at, 3, |_, _| {}).unwrap();
    ARMED.set(Some((Point::BeforeFlush, 1)));
    let unwound = catch_unwind(AssertUnwindSafe(|| map(&mut range, Level(1), PAGES)));
    assert!(unwound.is_err() && ARMED.take().is_none(), "the table in the way is not flushed");
    for flushes in [1, 0] {
        let before = on.tlb().counts().kernel;
        map(&mut range, Level::PTE, 3).unwrap();
        assert_eq!(on.tlb().counts().kernel - before, flushes);
        range.unmap(on, at, 3, |_, _| {}).unwrap();
    }
    range.release(on, |_, _| {}).unwrap_or_else(|(e, _)| panic!("{e}"));
}
