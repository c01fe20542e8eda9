//! Areas with frames of their own in blocks, which large pages show.
use crate::common;
use common::kernel_tlbs::KernelTlbs;
use ptarmigan::addr::VirtAddr;
use ptarmigan::format::{Attr, X86_64};
use ptarmigan::frames::{AllocFlags, DataFrame};
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::SpaceMachine;
use ptarmigan::tlb::TlbConfig;
use ptarmigan::vmalloc::{Area, AreaError, Vmalloc};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};

const PAGE: u64 = 4096;
const BLOCK: u64 = 512;
const ORDER: u8 = 9;
const LEAF: u64 = BLOCK * PAGE;
const START: u64 = 0xffff_c000_0000_0000;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0);
/// As pages of the kernel's half have it.
const NOTED: Attr = Attr(RW.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);
const NORMAL: AllocFlags = AllocFlags::NORMAL;

type Areas<'k> = Vmalloc<'k, X86_64, DirectMap>;

fn host(mib: u64) -> Host<X86_64> {
    Host::new(HostConfig { cpus: 1, bytes: mib << 20, prefault: 0, ..HostConfig::default() }).unwrap()
}

fn areas<'k, M: Machine>(host: &'k Host<X86_64>, on: On<'_, M>, bytes: u64) -> Areas<'k> {
    let range = host.kernel().claim(on, VirtAddr(START), bytes).unwrap();
    let mut boot = host.boot(Areas::bytes(bytes)).unwrap();
    Vmalloc::new(&mut boot, range).unwrap()
}

fn machine<'h>(host: &'h Host<X86_64>, tlbs: &'h KernelTlbs) -> impl SpaceMachine + 'h {
    HostMachine::with_tlb(host, host.plain().unwrap(), tlbs, TlbConfig::new(1), Delivery::AtOnce).unwrap()
}

/// Frames in use, those on lists of data frames given back first.
fn in_use<M: Machine>(on: On<'_, M>) -> u32 {
    while on.data().drain(on.frames(), on.pin()) != 0 {}
    let counts = on.frames().counts();
    counts.total - counts.free
}

/// The sizes of an area's pages by their binary logarithm, with the number of each in a row. No
/// frame is shown twice, and no page next to the area is mapped.
fn leaves<M: Machine>(on: On<'_, M>, areas: &Areas<'_>, area: &Area<'_>) -> Vec<(u32, u64)> {
    let (mut leaves, mut frames) = (Vec::<(u32, u64)>::new(), Vec::new());
    let (mut at, end) = (area.start().0, area.start().0 + area.pages() * PAGE);
    while at < end {
        let leaf = areas.range().query_leaf(on, VirtAddr(at)).expect("the area is mapped");
        assert_eq!((leaf.at, leaf.attr), (VirtAddr(at), NOTED));
        match leaves.last_mut() {
            Some((shift, n)) if *shift == leaf.shift => *n += 1,
            _ => leaves.push((leaf.shift, 1)),
        }
        frames.extend((0..leaf.range().len() / PAGE).map(|page| leaf.frame.0 + page as u32));
        at += leaf.range().len();
    }
    assert_eq!(at, end);
    frames.sort_unstable();
    assert!(frames.windows(2).all(|two| two[0] != two[1]), "a frame is shown twice");
    for guard in [area.start().0 - PAGE, end] {
        assert_eq!(areas.range().query_leaf(on, VirtAddr(guard)), None, "a guard page is mapped");
    }
    leaves
}

/// Takes all free blocks, but `left` of them.
fn take_blocks<M: Machine>(on: On<'_, M>, left: usize) -> Vec<DataFrame> {
    let block = || on.data().take_block(on.frames(), on.pin(), ORDER, AllocFlags::URGENT).ok();
    let mut all: Vec<_> = std::iter::from_fn(block).collect();
    for block in all.drain(..left) {
        give(on, block);
    }
    all
}

fn give<M: Machine>(on: On<'_, M>, frame: DataFrame) {
    assert!(on.data().release(on.frames(), on.pin(), frame).unwrap());
}

#[test]
fn an_area_of_64_mib_has_no_leaf_table_and_goes_with_one_flush() {
    let host = host(160);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut areas = areas(&host, on, 80 << 20);
    let pages = 32 * BLOCK;
    let before = in_use(on);
    let large = areas.alloc_large(on, pages, RW, NORMAL).unwrap();
    // The table of level 1, and no other.
    assert_eq!((in_use(on) - before, on.frames().reserved()), (pages as u32 + 1, 32));
    assert_eq!(leaves(on, &areas, &large), [(21, 32)]);
    let counts = on.tlb().counts();
    areas.free(on, large).unwrap();
    assert_eq!(on.tlb().counts().kernel - counts.kernel, 1);
    assert_eq!((in_use(on) - before, on.frames().reserved()), (1, 0));
    let small = areas.alloc(on, pages, RW, NORMAL).unwrap();
    assert_eq!(leaves(on, &areas, &small), [(12, pages)]);
    areas.free(on, small).unwrap();
    // It begins and ends within a table.
    assert_eq!(in_use(on) - before, 1 + 33);
}

#[test]
fn blocks_are_shown_as_far_as_they_are_free_and_pages_beside_them() {
    let host = host(32);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut areas = areas(&host, on, 16 * LEAF);
    // Memory in pieces: of some blocks one half is free.
    let mut blocks = take_blocks(on, 4);
    let halves: Vec<_> = (0..10)
        .flat_map(|_| {
            give(on, blocks.pop().unwrap());
            [(); 2].map(|()| on.data().take_block(on.frames(), &pin, ORDER - 1, NORMAL).unwrap())
        })
        .collect();
    let mut kept = Vec::new();
    for (n, half) in halves.into_iter().enumerate() {
        if n % 2 == 0 { kept.push(half) } else { give(on, half) }
    }
    blocks.extend(take_blocks(on, 4));
    let before = in_use(on);
    let all = [
        (2 * BLOCK, vec![(21, 2)]),
        (BLOCK - 1, vec![(12, BLOCK - 1)]),
        (BLOCK + 5, vec![(21, 1), (12, 5)]),
        (2 * BLOCK + 7, vec![(21, 1), (12, BLOCK + 7)]),
        (BLOCK, vec![(12, BLOCK)]),
    ];
    let mut live = Vec::new();
    for (pages, expected) in all {
        let area = areas.alloc_large(on, pages, RW, NORMAL).unwrap();
        assert_eq!(leaves(on, &areas, &area), expected, "{pages} pages");
        live.push(area);
    }
    assert_eq!(on.frames().reserved(), 4);
    // All of an area changes at once.
    for area in &live {
        areas.protect(on, area, |attr| attr.without(Attr::WRITE)).unwrap();
        for page in [0, area.pages() - 1] {
            let (_, attr) = areas.range().query(on, VirtAddr(area.start().0 + page * PAGE)).unwrap();
            assert!(!attr.has(Attr::WRITE));
        }
    }
    live.into_iter().for_each(|area| areas.free(on, area).unwrap());
    assert_eq!(on.frames().reserved(), 0);
    let range = areas.into_range().unwrap_or_else(|refused| panic!("{}", refused.error));
    range.release(on, |_, _| panic!("a page is left")).unwrap_or_else(|(e, _)| panic!("{e}"));
    assert_eq!(in_use(on), before);
    // The blocks are whole again.
    assert_eq!(take_blocks(on, 0).len(), 4);
}

#[test]
fn tables_in_the_way_of_blocks_go_with_one_flush() {
    let host = host(32);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut areas = areas(&host, on, 5 * LEAF);
    let before = in_use(on);
    let pages = 4 * BLOCK - 1;
    let small = areas.alloc(on, pages, RW, NORMAL).unwrap();
    areas.free(on, small).unwrap();
    assert_eq!(in_use(on) - before, 5);
    let counts = on.tlb().counts();
    let large = areas.alloc_large(on, pages, RW, NORMAL).unwrap();
    assert_eq!(leaves(on, &areas, &large), [(21, 3), (12, BLOCK - 1)]);
    assert_eq!(on.tlb().counts().kernel - counts.kernel, 1);
    // Three tables: of level 1, of the last pages, and the first one of before.
    assert_eq!(in_use(on) - before, 3 + pages as u32);
    areas.free(on, large).unwrap();
    // Nothing is in the way now.
    let counts = on.tlb().counts();
    let large = areas.alloc_large(on, 3 * BLOCK, RW, NORMAL).unwrap();
    assert_eq!(leaves(on, &areas, &large), [(21, 3)]);
    assert_eq!(on.tlb().counts().kernel, counts.kernel);
    areas.free(on, large).unwrap();
}

#[test]
fn an_area_without_a_place_for_large_pages_has_those_that_lie_in_it() {
    let host = host(32);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut areas = areas(&host, on, 4 * LEAF);
    // No aligned place has so many pages: they begin behind the first guard page.
    let pages = 4 * BLOCK - 2;
    let area = areas.alloc_large(on, pages, RW, NORMAL).unwrap();
    assert_eq!(leaves(on, &areas, &area), [(12, BLOCK - 1), (21, 2), (12, BLOCK - 1)]);
    areas.free(on, area).unwrap();
    let error = areas.alloc_large(on, pages + 1, RW, NORMAL).unwrap_err();
    assert_eq!(error, AreaError::NoRoom { pages: pages + 1, largest: pages });
}

#[test]
fn an_area_that_memory_does_not_suffice_for_gives_its_blocks_back() {
    let host = host(16);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut areas = areas(&host, on, 12 * LEAF);
    areas.alloc_large(on, 2 * BLOCK + 1, RW, NORMAL).map(|area| areas.free(on, area).unwrap()).unwrap();
    let before = in_use(on);
    let error = areas.alloc_large(on, 10 * BLOCK, RW, NORMAL).unwrap_err();
    assert!(matches!(error, AreaError::NoFrame(_)), "{error}");
    assert_eq!((areas.counts().areas, on.frames().reserved()), (0, 0));
    for page in 0..12 * BLOCK {
        assert_eq!(areas.range().query(on, VirtAddr(START + page * PAGE)), None);
    }
    // Tables stay for later.
    assert!((before..before + 12).contains(&in_use(on)));
}

#[test]
fn no_block_is_taken_below_the_minimum_watermark_however_urgent_the_area_is() {
    let host = host(16);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut areas = areas(&host, on, 4 * LEAF);
    let first = areas.alloc_large(on, BLOCK + 1, RW, NORMAL).unwrap();
    areas.free(on, first).unwrap();
    let mut blocks = take_blocks(on, 0);
    while on.frames().counts().free > 40 {
        let _pair = on.data().take_block(on.frames(), &pin, 1, AllocFlags::URGENT).unwrap();
    }
    give(on, blocks.pop().unwrap());
    let area = areas.alloc_large(on, BLOCK, RW, AllocFlags::URGENT).unwrap();
    assert_eq!(leaves(on, &areas, &area), [(12, BLOCK)]);
    areas.free(on, area).unwrap();
    // One more, and a block is above the watermark.
    give(on, blocks.pop().unwrap());
    let area = areas.alloc_large(on, BLOCK, RW, AllocFlags::URGENT).unwrap();
    assert_eq!(leaves(on, &areas, &area), [(21, 1)]);
    areas.free(on, area).unwrap();
}
