//! Areas of the kernel's half: contiguous addresses over frames that are not, with guard pages.
use common::kernel_tlbs::{KernelTlbs, walk};
use fastrand::Rng;
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr};
use ptarmigan::cpu::{CpuId, Refused};
use ptarmigan::format::{Aarch64Upper, Attr, Format, Sv39Napot, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{Space, SpaceMachine};
use ptarmigan::tlb::TlbConfig;
use ptarmigan::vmalloc::{Area, AreaError, Vmalloc};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine, NoTlb};
use std::collections::HashMap;

use crate::common;

const PAGE: u64 = 4096;
const LEAF: u64 = 2 << 20;
const START: u64 = 0xffff_c000_0000_0000;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0);
/// As pages of the kernel's half have it.
const NOTED: Attr = Attr(RW.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);
const NORMAL: AllocFlags = AllocFlags::NORMAL;

type Areas<'k> = Vmalloc<'k, X86_64, DirectMap>;

fn host(cpus: usize, mib: u64) -> Host<X86_64> {
    Host::new(HostConfig { cpus, bytes: mib << 20, prefault: 0, ..HostConfig::default() }).unwrap()
}

fn areas<'k, M: Machine>(host: &'k Host<X86_64>, on: On<'_, M>, start: u64, bytes: u64) -> Areas<'k> {
    let range = host.kernel().claim(on, VirtAddr(start), bytes).unwrap();
    let mut boot = host.boot(Areas::bytes(bytes)).unwrap();
    Vmalloc::new(&mut boot, range).unwrap()
}

fn machine<'h>(host: &'h Host<X86_64>, tlbs: &'h KernelTlbs) -> impl SpaceMachine + 'h {
    let config = TlbConfig::new(host.config().cpus);
    HostMachine::with_tlb(host, host.plain().unwrap(), tlbs, config, Delivery::AtOnce).unwrap()
}

#[test]
fn areas_reach_their_own_frames_and_their_guards_reach_nothing() {
    for seed in 0..4 {
        let host = host(2, 32);
        let tlbs = KernelTlbs::default();
        let m = machine(&host, &tlbs);
        let slots = host.slots();
        let pins = [slots[0].pin(), slots[1].pin()];
        let on = m.on(&pins[0]).unwrap();
        let in_use = || {
            pins.iter().for_each(|pin| while on.data().drain(on.frames(), pin) != 0 {});
            host.frames().counts().total - host.frames().counts().free
        };
        let before = in_use();
        let space = Space::<X86_64>::new(on).unwrap();
        let root = space.tree().root();
        let mut areas = areas(&host, on, START, 2 * LEAF);
        let mut rng = Rng::with_seed(seed);
        let mut live: Vec<Area<'_>> = Vec::new();
        // The frame of each page: no frame twice.
        let mut shown: HashMap<u64, Pfn> = HashMap::new();
        for _ in 0..400 {
            let on = m.on(&pins[rng.usize(..2)]).unwrap();
            if live.len() < 24 && rng.u64(..5) < 3 {
                match areas.alloc(on, 1 + rng.u64(..40), RW, NORMAL) {
                    Ok(area) => {
                        for page in 0..area.pages() {
                            let va = area.start().0 + page * PAGE;
                            let (pfn, attr) = walk(&host, root, va).expect("the area is mapped");
                            assert!(attr.has(Attr::WRITE) && !shown.values().any(|other| *other == pfn));
                            shown.insert(va, pfn);
                        }
                        live.push(area);
                    }
                    Err(AreaError::NoRoom { pages, largest }) => assert!(pages > largest),
                    Err(e) => panic!("{e}"),
                }
            } else if !live.is_empty() {
                let area = live.swap_remove(rng.usize(..live.len()));
                for page in 0..area.pages() {
                    shown.remove(&(area.start().0 + page * PAGE));
                }
                areas.free(on, area).unwrap();
            }
            // Both CPUs find the present pages, and have forgotten the old ones.
            for va in (START..START + 2 * LEAF).step_by(PAGE as usize) {
                let cpu = rng.u16(..2);
                let found = tlbs.access_kernel(CpuId(cpu), va, walk(&host, root, va)).map(|(pfn, _)| pfn);
                assert_eq!(found, shown.get(&va).copied(), "{va:#x} on CPU {cpu}");
            }
            for area in &live {
                for guard in [area.start().0 - PAGE, area.start().0 + area.pages() * PAGE] {
                    assert_eq!(walk(&host, root, guard), None, "a guard page is mapped");
                }
            }
            let counts = areas.counts();
            assert_eq!((counts.areas, counts.pages), (live.len(), shown.len() as u64));
        }
        live.drain(..).for_each(|area| areas.free(on, area).unwrap());
        let range = areas.into_range().unwrap_or_else(|e| panic!("{}", e.error));
        range.release(on, |_, _| panic!("a page is left")).unwrap_or_else(|(e, _)| panic!("{e}"));
        space.end(on).unwrap();
        assert_eq!(in_use(), before + 1, "all but the table below the root");
    }
}

#[test]
fn an_area_without_enough_memory_leaves_nothing_behind() {
    let host = host(1, 8);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let space = Space::<X86_64>::new(on).unwrap();
    let mut areas = areas(&host, on, START, 8 * LEAF);
    // The tables that stay.
    let first = areas.alloc(on, 1000, RW, NORMAL).unwrap();
    areas.free(on, first).unwrap();
    let error = areas.alloc(on, 4000, RW, NORMAL).unwrap_err();
    assert!(matches!(error, AreaError::NoFrame(_)), "{error}");
    assert_eq!((areas.counts().areas, areas.counts().pages), (0, 0));
    for va in (START..START + 8 * LEAF).step_by(PAGE as usize) {
        assert_eq!(walk(&host, space.tree().root(), va), None);
    }
    // All that was taken is there again.
    let again = areas.alloc(on, 1000, RW, NORMAL).unwrap();
    areas.free(on, again).unwrap();
    space.end(on).unwrap();
}

#[test]
fn device_frames_stay_the_callers_and_protect_reaches_all_cpus() {
    let host = host(2, 8);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let (pin, other) = (slots[0].pin(), slots[1].pin());
    let on = m.on(&pin).unwrap();
    let space = Space::<X86_64>::new(on).unwrap();
    let mut areas = areas(&host, on, START, LEAF);
    let block = on.data().take_block(on.frames(), &pin, 3, NORMAL).unwrap();
    // SAFETY: 1. the block is the test's.
    let area = unsafe { areas.map(on, block.pfn(), 8, RW, NORMAL) }.unwrap();
    for page in 0..8 {
        let va = area.start().0 + page * PAGE;
        for cpu in 0..2 {
            let found = tlbs.access_kernel(CpuId(cpu), va, walk(&host, space.tree().root(), va));
            assert_eq!(found, Some((Pfn(block.pfn().0 + page as u32), NOTED)));
        }
    }
    areas.protect(on, &area, |attr| attr.without(Attr::WRITE)).unwrap();
    for cpu in 0..2 {
        let shown = walk(&host, space.tree().root(), area.start().0);
        let (_, attr) = tlbs.access_kernel(CpuId(cpu), area.start().0, shown).unwrap();
        assert!(!attr.has(Attr::WRITE), "CPU {cpu} still may write");
    }
    areas.free(m.on(&other).unwrap(), area).unwrap();
    assert!(on.data().release(on.frames(), &pin, block).unwrap(), "freed with the area");
    space.end(on).unwrap();
}

#[test]
fn what_cannot_be_done_is_refused_and_says_why() {
    let host = host(1, 16);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut areas = areas(&host, on, START, LEAF);
    let mut others = self::areas(&host, on, START + LEAF, LEAF);
    assert_eq!(areas.alloc(on, 0, RW, NORMAL).unwrap_err(), AreaError::Empty);
    let user = Attr(RW.0 | Attr::USER.0);
    assert_eq!(areas.alloc(on, 1, user, NORMAL).unwrap_err(), AreaError::ForUser);
    // The first page and the one behind the area are guards.
    for pages in [511, 512, 1 << 40, u64::MAX] {
        let error = areas.alloc(on, pages, RW, NORMAL).unwrap_err();
        assert_eq!(error, AreaError::NoRoom { pages, largest: 510 });
    }
    let all = areas.alloc(on, 510, RW, NORMAL).unwrap();
    assert_eq!(areas.alloc(on, 1, RW, NORMAL).unwrap_err(), AreaError::NoRoom { pages: 1, largest: 0 });
    let not_here =
        AreaError::NotHere { at: all.start(), of: areas.range().start(), called: others.range().start() };
    assert_eq!(others.protect(on, &all, |attr| attr).unwrap_err(), not_here);
    let Err(Refused { value: all, error }) = others.free(on, all) else { panic!("freed elsewhere") };
    assert_eq!(error, not_here);
    let Err(Refused { value: mut areas, error }) = areas.into_range() else { panic!("an area is left") };
    assert_eq!((error.areas, error.owed), (1, 0));
    let elsewhere = self::host(1, 16);
    let its_tlbs = KernelTlbs::default();
    let its = machine(&elsewhere, &its_tlbs);
    let its_slots = elsewhere.slots();
    let its_pin = its_slots[0].pin();
    let Err(Refused { value: all, error }) = areas.free(its.on(&its_pin).unwrap(), all) else {
        panic!("freed on another machine")
    };
    assert!(matches!(error, AreaError::WrongMachine(_)), "{error}");
    areas.free(on, all).unwrap();
    assert!(areas.into_range().is_ok() && others.into_range().is_ok());
}

#[test]
fn areas_of_device_memory_have_large_pages_where_its_frames_do() {
    let host = host(2, 64);
    let tlbs = KernelTlbs::default();
    let m = machine(&host, &tlbs);
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut areas = areas(&host, on, START, 16 * LEAF);
    // Sizes of the leaves of an area, with how many there are of each in a row.
    let leaves = |areas: &Areas<'_>, area: &Area<'_>| {
        let (mut leaves, mut at) = (Vec::<(u32, u64)>::new(), area.start().0);
        while at < area.start().0 + area.pages() * PAGE {
            let leaf = areas.range().query_leaf(on, VirtAddr(at)).unwrap();
            match leaves.last_mut() {
                Some((shift, n)) if *shift == leaf.shift => *n += 1,
                _ => leaves.push((leaf.shift, 1)),
            }
            at += leaf.range().len();
        }
        for guard in [area.start().0 - PAGE, at] {
            assert_eq!(areas.range().query_leaf(on, VirtAddr(guard)), None, "a guard page is mapped");
        }
        leaves
    };
    // Pages are used there before: their tables are in the way.
    let first = areas.alloc(on, 1500, RW, NORMAL).unwrap();
    areas.free(on, first).unwrap();
    for (at, bytes, expected) in [
        (1 << 30, 2 * LEAF, vec![(21, 2)]),
        ((1 << 30) - PAGE, LEAF + 3 * PAGE, vec![(12, 1), (21, 1), (12, 2)]),
        ((1 << 30) + 5, LEAF, vec![(21, 1), (12, 1)]),
        ((1 << 30) + PAGE, 2 * LEAF - 2 * PAGE, vec![(12, 1022)]),
        (1 << 30, LEAF - PAGE, vec![(12, 511)]),
    ] {
        let (area, byte) = map_device(on, &mut areas, at, bytes);
        assert_eq!(leaves(&areas, &area), expected, "{at:#x}, {bytes:#x} bytes");
        let shown = areas.range().query(on, byte).unwrap().0;
        assert_eq!((u64::from(shown.0), byte.0 % PAGE), (at / PAGE, at % PAGE));
        areas.protect(on, &area, |attr| attr.without(Attr::WRITE)).unwrap();
        areas.free(on, area).unwrap();
        assert_eq!(host.frames().reserved(), 0);
    }
    // There is room for it, but not where it could have a large page.
    let mut small: Vec<_> = std::iter::from_fn(|| areas.alloc(on, 300, RW, NORMAL).ok()).collect();
    small.sort_by_key(Area::start);
    small.drain(..2).for_each(|area| areas.free(on, area).unwrap());
    let (area, _) = map_device(on, &mut areas, 1 << 30, LEAF);
    assert_eq!(leaves(&areas, &area), [(12, 512)]);
    small.push(area);
    small.into_iter().for_each(|area| areas.free(on, area).unwrap());
    assert_eq!((areas.counts().areas, host.frames().reserved()), (0, 0));
}

#[test]
fn areas_have_groups_if_they_are_asked_for() {
    fn format<F: Format>(start: u64) {
        let host = Host::<F>::new(HostConfig { bytes: 64 << 20, prefault: 0, ..HostConfig::default() });
        let host = host.unwrap();
        let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        for groups in [false, true] {
            let bytes = 16 * LEAF;
            let range = host.kernel().claim(on, VirtAddr(start + u64::from(groups) * bytes), bytes).unwrap();
            let mut boot = host.boot(Vmalloc::<F, DirectMap>::bytes(bytes)).unwrap();
            let areas = Vmalloc::new(&mut boot, range).map_err(|refused| refused.error).unwrap();
            let mut areas = if groups { areas.with_groups() } else { areas };
            for (at, bytes, expected) in [
                // A page, 64 KiB and a page; 2 MiB with 64 KiB on either side.
                ((1 << 30) + (64 << 10) - PAGE, 18 * PAGE, &[12, 16, 12][..]),
                ((1 << 30) - (64 << 10), LEAF + (128 << 10), &[16, 21, 16]),
            ] {
                // SAFETY: 1. nothing uses the memory.
                let (area, _) = unsafe { areas.map_memory(on, PhysAddr(at), bytes, RW, NORMAL) }.unwrap();
                let (mut leaves, mut va) = (Vec::new(), area.start().0);
                while va < area.start().0 + bytes {
                    let leaf = areas.range().query_leaf(on, VirtAddr(va)).unwrap();
                    assert_eq!(u64::from(leaf.frame.0) * PAGE, at + (va - area.start().0));
                    leaves.push(leaf.shift);
                    va += leaf.range().len();
                }
                if groups {
                    assert_eq!(leaves, expected, "{}", F::NAME);
                }
                assert_eq!(leaves.contains(&16), groups, "{}", F::NAME);
                areas.protect(on, &area, |attr| attr.without(Attr::WRITE)).unwrap();
                let leaf = areas.range().query_leaf(on, VirtAddr(area.start().0 + bytes / 2)).unwrap();
                assert!(leaf.shift > 12 || !groups, "{}: protection takes no group apart", F::NAME);
                assert!(!leaf.attr.has(Attr::WRITE));
                areas.free(on, area).unwrap();
            }
            areas
                .into_range()
                .map_err(|refused| refused.error)
                .unwrap()
                .release(on, |_, _| {})
                .unwrap_or_else(|(e, _)| panic!("{e}"));
        }
    }
    format::<Aarch64Upper>(START);
    format::<Sv39Napot>(0xffff_ffd0_0000_0000);
}

fn map_device<'k, M: Machine>(
    on: On<'_, M>,
    areas: &mut Areas<'k>,
    at: u64,
    bytes: u64,
) -> (Area<'k>, VirtAddr) {
    // SAFETY: 1. nothing uses the memory.
    unsafe { areas.map_memory(on, PhysAddr(at), bytes, RW, NORMAL) }.unwrap()
}
