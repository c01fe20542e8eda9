//! Areas of blocks.
use super::*;
use ptarmigan::frames::DataFrame;
use ptarmigan::page::Level;

const BLOCK: u64 = LEAF / PAGE;
const BYTES: u64 = 8 * LEAF;
/// Sizes of areas: blocks alone, with pages behind them, and pages alone.
const SIZES: [u64; 3] = [2 * BLOCK, BLOCK + 3, 5];

/// The CPU reads some pages of each leaf of an area.
fn read<M: Machine>(tlbs: &Tlbs, on: On<'_, M>, range: &Range<'_>, area: &Area<'_>) {
    for page in (0..area.pages()).filter(|page| page % BLOCK < 3 || page % BLOCK == BLOCK - 1) {
        read_pages(tlbs, on, range, area.start().0 + page * PAGE, 1);
    }
}

/// Makes, changes and frees areas; an area that is made, and not freed, is in `live`.
fn calls<'k, M: Machine>(tlbs: &Tlbs, on: On<'_, M>, areas: &mut Areas<'k>, live: &mut Vec<Area<'k>>) {
    // Tables of pages are in the way of the blocks.
    live.extend(areas.alloc(on, 3 * BLOCK, RW, NORMAL));
    if let Some(area) = live.pop()
        && let Err(refused) = areas.free(on, area)
    {
        live.push(refused.value);
    }
    for pages in SIZES {
        live.extend(areas.alloc_large(on, pages, RW, NORMAL));
        live.iter().for_each(|area| read(tlbs, on, areas.range(), area));
    }
    for area in &*live {
        let _ = areas.protect(on, area, |attr| attr.without(Attr::WRITE));
    }
    while let Some(area) = live.pop() {
        if let Err(refused) = areas.free(on, area) {
            live.push(refused.value);
            return;
        }
    }
}

/// Runs a scenario; `attempt` also gets the frames of the host. Returns how many blocks are free
/// afterwards.
fn scenario(attempt: &mut dyn FnMut(&Frames, &mut dyn FnMut())) -> usize {
    let config = HostConfig { bytes: 16 << 20, low: 16 << 20, prefault: 0, ..HostConfig::default() };
    let (host, tlbs) = (Host::new(config).unwrap(), tlbs());
    let m = machine!(host, tlbs);
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let on = m.on(&pin).unwrap();
    // The table below the root stays.
    release(on, host.kernel().claim(on, VirtAddr(START), BYTES).unwrap());
    let before = in_use(on);
    let range = host.kernel().claim(on, VirtAddr(START), BYTES).unwrap();
    let mut boot = host.boot(Areas::bytes(BYTES)).unwrap();
    let mut areas = Areas::new(&mut boot, range).unwrap();
    let mut live = Vec::new();
    attempt(on.frames(), &mut || calls(&tlbs, on, &mut areas, &mut live));
    for area in live.drain(..) {
        areas.free(on, area).unwrap();
    }
    areas.finish(on).unwrap();
    assert_eq!((areas.counts().areas, areas.counts().pages), (0, 0));
    // Other frames at all addresses.
    while let Ok(area) = areas.alloc(on, 300, RW, NORMAL) {
        read_pages(&tlbs, on, areas.range(), area.start().0, 300);
        live.push(area);
    }
    assert!(live.len() > 8);
    for area in live.drain(..) {
        areas.free(on, area).unwrap();
    }
    // And blocks.
    let area = areas.alloc_large(on, 3 * BLOCK, RW, NORMAL).unwrap();
    read(&tlbs, on, areas.range(), &area);
    assert_eq!(areas.range().query_leaf(on, area.start()).map(|leaf| leaf.level), Some(Level(1)));
    areas.free(on, area).unwrap();
    release(on, areas.into_range().unwrap_or_else(|refused| panic!("{}", refused.error)));
    assert_eq!(on.frames().reserved(), 0, "frames stay reserved");
    assert_eq!(in_use(on), before, "frames are lost");
    assert_eq!(tlbs.translations(), 0);
    take_blocks(on).len()
}

fn take_blocks<M: Machine>(on: On<'_, M>) -> Vec<DataFrame> {
    let block = || on.data().take_block(on.frames(), on.pin(), 9, AllocFlags::URGENT).ok();
    std::iter::from_fn(block).collect()
}

#[test]
fn areas_of_blocks_lose_no_frame_and_show_nothing_stale() {
    let whole = scenario(&mut |_, call| call());
    let passed = for_every_k(|attempt| assert_eq!(scenario(&mut |_, call| attempt(call)), whole));
    assert_passed(&passed, &POINTS[..3]);
}

#[test]
fn areas_of_blocks_lose_no_frame_when_memory_ends() {
    let whole = scenario(&mut |_, call| call());
    // So many blocks are left, and so many frames beside them.
    for blocks in 0..4 {
        for left in (0..12).chain((100..800).step_by(7)) {
            let blocks_left = |frames: &Frames, call: &mut dyn FnMut()| {
                let take = |order, flags| {
                    let (class, end) = (ZoneClass::High, End::High);
                    let node = ptarmigan::cpu::NodeId(0);
                    let request = Request { node, order, zero: false, class, end, flags };
                    frames.take(request).map(|taken| taken.dirty())
                };
                let held: Vec<_> = (0..blocks).map(|_| take(9, NORMAL).unwrap()).collect();
                let taken = take_all_but(frames, left);
                held.into_iter().for_each(|block| frames.give(block));
                call();
                taken.into_iter().for_each(|frame| frames.give(frame));
            };
            assert_eq!(scenario(&mut |frames, call| blocks_left(frames, call)), whole);
        }
    }
}
