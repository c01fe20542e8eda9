//! Ranges of the kernel's half: mappings of their owners are seen in every space at once, and no
//! CPU knows a page any more when its frame is named.
use common::kernel_tlbs::{KernelTlbs, walk};
use fastrand::Rng;
use ptarmigan::addr::{Pfn, VirtAddr};
use ptarmigan::cpu::CpuId;
use ptarmigan::format::{Attr, Format, FormatExt, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::Space;
use ptarmigan::table::{ClaimError, KernelRange, KernelRangeError, MAX_RANGES, MapError};
use ptarmigan::tlb::TlbConfig;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::test::Call;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine, NoTlb};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common;

const PAGE: u64 = 4096;
const LEAF: u64 = 2 << 20;
const START: u64 = 0xffff_c000_0000_0000;
/// As pages of the kernel's half have it.
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);

fn config(cpus: usize, mib: u64) -> HostConfig {
    HostConfig { cpus, bytes: mib << 20, prefault: 0, ..HostConfig::default() }
}

type Range<'k> = KernelRange<'k, X86_64, DirectMap>;

/// The mappings of one owner.
struct Owner<'k> {
    range: Range<'k>,
    mapped: BTreeMap<u64, (Pfn, Attr)>,
}

/// Returns the pages of the kernel's half that became valid, and empties the log.
fn became_valid(tlbs: &KernelTlbs) -> impl Iterator<Item = u64> {
    tlbs.take_calls().into_iter().flat_map(|call| match call {
        Call::EntryBecameValid(_, entry) if entry.space.is_none() => {
            (0..entry.pages).map(|page| entry.va + (page << entry.shift)).collect()
        }
        _ => Vec::new(),
    })
}

#[test]
fn every_cpu_sees_mapped_pages_in_every_space_and_no_unmapped() {
    // Two that share all tables but the leaves, one with tables of its own, one at the end of all
    // addresses.
    let places = [
        (START, 2 * LEAF),
        (START + 2 * LEAF, LEAF),
        (START + (1 << 39), 2 * LEAF),
        (0u64.wrapping_sub(LEAF), LEAF),
    ];
    for seed in 0..6 {
        let host = Host::<X86_64>::new(config(2, 16)).unwrap();
        let tlbs = KernelTlbs::default();
        let m = HostMachine::with_tlb(
            &host,
            host.quicklists().unwrap(),
            &tlbs,
            TlbConfig::new(2),
            Delivery::AtOnce,
        )
        .unwrap();
        let slots = host.slots();
        let mut rng = Rng::with_seed(seed);
        let mut owners: Vec<Option<Owner<'_>>> = places.iter().map(|_| None).collect();
        let mut spaces: Vec<Space<X86_64>> = Vec::new();
        for _ in 0..1500 {
            let cpu = rng.usize(..2);
            let pin = slots[cpu].pin();
            let on = m.on(&pin).unwrap();
            // Roots come fresh, from lists, and go back.
            if spaces.len() < 2 || (spaces.len() < 5 && rng.u64(..8) == 0) {
                spaces.push(Space::new(on).unwrap());
            } else if rng.u64(..8) == 0 {
                spaces.swap_remove(rng.usize(..spaces.len())).end(on).unwrap();
            }
            let which = rng.usize(..places.len());
            let (start, bytes) = places[which];
            let Some(owner) = &mut owners[which] else {
                let range = host.kernel().claim(on, VirtAddr(start), bytes).unwrap();
                owners[which] = Some(Owner { range, mapped: BTreeMap::new() });
                continue;
            };
            let first = rng.u64(..bytes / PAGE);
            let most = if rng.u64(..9) == 0 { 600 } else { 5 };
            let n = 1 + rng.u64(..(bytes / PAGE - first).min(most));
            let at = VirtAddr(start + first * PAGE);
            let addresses = (0..n).map(|i| at.0 + i * PAGE);
            match rng.u64(..12) {
                0 => {
                    let mut gone = BTreeMap::new();
                    let Owner { range, mapped } = owners[which].take().unwrap();
                    range.release(on, |va, pfn| _ = gone.insert(va.0, pfn)).map_err(|(e, _)| e).unwrap();
                    assert!(gone.into_iter().eq(mapped.into_iter().map(|(va, (pfn, _))| (va, pfn))));
                }
                1..=3 => {
                    let mut gone = BTreeMap::new();
                    owner
                        .range
                        .unmap(on, at, n, |va, pfn| {
                            let known = [0, 1].map(|cpu| tlbs.knows(CpuId(cpu), va.0));
                            assert_eq!(known, [None; 2], "named while a CPU knows it");
                            gone.insert(va.0, pfn);
                        })
                        .unwrap();
                    let expected =
                        addresses.filter_map(|va| owner.mapped.remove(&va).map(|(pfn, _)| (va, pfn)));
                    assert!(gone.into_iter().eq(expected.collect::<BTreeMap<_, _>>()));
                }
                4 | 5 => {
                    let attr = if rng.bool() { Attr::READ | Attr::ACCESSED } else { RW };
                    owner.range.protect(on, at, n, |_| attr).unwrap();
                    for va in addresses {
                        owner.mapped.entry(va).and_modify(|(_, a)| *a = attr);
                    }
                }
                _ => {
                    let pfn = Pfn(rng.u32(..4000));
                    tlbs.take_calls();
                    // SAFETY: 1. no code reads or writes through the mapping.
                    let done = unsafe { owner.range.map(on, at, pfn, n, RW, AllocFlags::NORMAL) };
                    match addresses.clone().find(|va| owner.mapped.contains_key(va)) {
                        Some(va) => assert_eq!(done, Err(MapError::Occupied { at: VirtAddr(va) })),
                        None => {
                            assert_eq!(done, Ok(()));
                            assert!(became_valid(&tlbs).eq(addresses.clone()));
                            owner.mapped.extend(
                                addresses.enumerate().map(|(i, va)| (va, (Pfn(pfn.0 + i as u32), RW))),
                            );
                        }
                    }
                }
            }
            // Every CPU, in some space, looks at some pages of all ranges.
            for (owner, (start, bytes)) in owners.iter().zip(places) {
                for _ in 0..6 {
                    let va = start + rng.u64(..(bytes / PAGE).min(40)) * PAGE;
                    let root = spaces[rng.usize(..spaces.len())].tree().root();
                    let expected = owner.as_ref().and_then(|owner| owner.mapped.get(&va).copied());
                    for cpu in 0..2 {
                        assert_eq!(
                            tlbs.access_kernel(CpuId(cpu), va, walk(&host, root, va)),
                            expected,
                            "CPU {cpu}, {va:#x}, seed {seed}"
                        );
                    }
                    if let Some(owner) = owner {
                        assert_eq!(owner.range.query(on, VirtAddr(va + 5)), expected);
                    }
                }
            }
        }
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        for space in spaces {
            space.end(on).unwrap();
        }
        for owner in owners.into_iter().flatten() {
            owner.range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
        }
        m.drain(&slots);
        host.audit().unwrap();
        assert_eq!(m.policy().counts().live(), host.kernel().tables() - 1, "tables below the root stay");
    }
}

#[test]
fn what_cannot_be_claimed_is_refused_and_says_why() {
    let host = Host::<X86_64>::new(config(1, 8)).unwrap();
    let other = Host::<X86_64>::new(config(1, 8)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let claim =
        |start: u64, bytes: u64| host.kernel().claim(on, VirtAddr(start), bytes).map(|range| range.len());
    for (start, bytes) in [
        (0, LEAF),
        (START, 0),
        (1 << 47, LEAF),
        (X86_64::KERNEL_START - LEAF, 2 * LEAF),
        (START, 1 << 63),
        (0u64.wrapping_sub(LEAF), 2 * LEAF),
    ] {
        assert_eq!(claim(start, bytes), Err(ClaimError::NotKernel { at: VirtAddr(start) }), "{start:#x}");
    }
    for (start, bytes) in [(START + PAGE, LEAF), (START, LEAF + PAGE), (START, PAGE)] {
        assert_eq!(claim(start, bytes), Err(ClaimError::NotWholeTables { span: LEAF }));
    }
    assert!(matches!(other.kernel().claim(on, VirtAddr(START), LEAF), Err(ClaimError::WrongMachine(_))));
    // An entry that was set by hand.
    let index = X86_64::index(Level(3), START + (5 << 39));
    // SAFETY: 1. no space is ever made. 2. no range lies there. 3. the host's own.
    unsafe { host.kernel().set(host.frames(), index, 0x1000 | 0x63) };
    let at = VirtAddr(START + (5 << 39));
    assert_eq!(claim(START + (4 << 39), 2 << 39), Err(ClaimError::Taken { at }));
    // SAFETY: 1. to 3. as above.
    unsafe { host.kernel().set(host.frames(), index, 0) };
    let range = host.kernel().claim(on, VirtAddr(START), 4 * LEAF).unwrap();
    for (start, bytes) in [(START, LEAF), (START + 3 * LEAF, 4 * LEAF)] {
        assert_eq!(claim(start, bytes), Err(ClaimError::Taken { at: VirtAddr(start) }));
    }
    assert_eq!(claim(START + 4 * LEAF, LEAF), Ok(LEAF));
    // A dropped range stays claimed.
    assert_eq!(claim(START + 4 * LEAF, LEAF), Err(ClaimError::Taken { at: VirtAddr(START + 4 * LEAF) }));
    let more: Vec<_> =
        (5..).map_while(|i| host.kernel().claim(on, VirtAddr(START + i * LEAF), LEAF).ok()).collect();
    assert_eq!(more.len() + 2, MAX_RANGES);
    assert_eq!(claim(START + (1 << 40), LEAF), Err(ClaimError::TooMany));
    range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    assert_eq!(claim(START, 4 * LEAF), Ok(4 * LEAF));
}

#[test]
fn nothing_is_mapped_where_anything_is_wrong() {
    let host = Host::<X86_64>::new(config(1, 8)).unwrap();
    let other = Host::<X86_64>::new(config(1, 8)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let foreign = HostMachine::new(&other, other.quicklists().unwrap(), NoTlb).unwrap();
    let (slots, others) = (host.slots(), other.slots());
    let (pin, other_pin) = (slots[0].pin(), others[0].pin());
    let (on, elsewhere) = (m.on(&pin).unwrap(), foreign.on(&other_pin).unwrap());
    let mut range = host.kernel().claim(on, VirtAddr(START), 1 << 30).unwrap();
    // SAFETY: 1. no code reads or writes through the mappings of this test.
    let map = |range: &mut Range<'_>, at: u64, pages| unsafe {
        range.map(on, VirtAddr(at), Pfn(7), pages, RW, AllocFlags::NORMAL)
    };
    for (at, pages) in [
        (START - PAGE, 1),
        (START, 0),
        (START, u64::MAX),
        (START + (1 << 30), 1),
        (START + 1, 1),
        (0, 1),
        (u64::MAX, 1),
    ] {
        let error = MapError::OutOfRange { at: VirtAddr(at) };
        assert_eq!(map(&mut range, at, pages), Err(error), "{at:#x}");
        let error = Err(KernelRangeError::OutOfRange { at: VirtAddr(at) });
        assert_eq!(range.unmap(on, VirtAddr(at), pages, |_, _| panic!()), error);
        assert_eq!(range.protect(on, VirtAddr(at), pages, |_| panic!()), error);
        assert!(range.query(on, VirtAddr(at & !0xfff)).is_none());
    }
    // SAFETY: as above.
    let done = unsafe { range.map(elsewhere, VirtAddr(START), Pfn(7), 1, RW, AllocFlags::NORMAL) };
    assert!(matches!(done, Err(MapError::WrongMachine(_))));
    assert!(matches!(
        range.unmap(elsewhere, VirtAddr(START), 1, |_, _| {}),
        Err(KernelRangeError::WrongMachine(_))
    ));
    // One page in the way, in the last table.
    map(&mut range, START + LEAF + PAGE, 1).unwrap();
    assert_eq!(map(&mut range, START, 600), Err(MapError::Occupied { at: VirtAddr(START + LEAF + PAGE) }));
    assert!((0..512).all(|page| range.query(on, VirtAddr(START + page * PAGE)).is_none()));
    // No memory for the last table.
    let mut taken = Vec::new();
    while let Ok(page) = on.alloc(Level::PTE, AllocFlags::NORMAL) {
        taken.push(page);
    }
    let give_back = |page| {
        // SAFETY: 1. it is one of those taken above.
        unsafe { on.free_unlinked(page) };
    };
    give_back(taken.pop().unwrap());
    assert!(matches!(map(&mut range, START + 8 * LEAF, 1024), Err(MapError::NoFrame(_))));
    assert!((0..1024).all(|page| range.query(on, VirtAddr(START + 8 * LEAF + page * PAGE)).is_none()));
    assert!(matches!(
        host.kernel().claim(on, VirtAddr(START + (1 << 42)), LEAF),
        Err(ClaimError::NoFrame(_))
    ));
    taken.into_iter().for_each(give_back);
    map(&mut range, START + 8 * LEAF, 1024).unwrap();
    // A callback that panics: the remaining frames are named the next time.
    let mut named = Vec::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        range.unmap(on, VirtAddr(START + 8 * LEAF), 1024, |va, _| {
            named.push(va.0);
            assert!(named.len() < 700);
        })
    }));
    assert!(panicked.is_err() && named.len() == 700);
    range.release(on, |va, _| named.push(va.0)).map_err(|(e, _)| e).unwrap();
    named.sort();
    named.dedup();
    assert_eq!(named.len(), 1024 + 1);
    m.drain(&slots);
    host.audit().unwrap();
}

#[test]
fn roots_in_registers_get_their_table_before_the_first_is_made() {
    let host = Host::<X86Pae>::new(config(1, 8)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let start = VirtAddr(0xffc0_0000);
    // SAFETY: 1. the entry goes, before the first root is made. 2. no range is there. 3. the host's
    // own.
    unsafe { host.kernel().set(host.frames(), 3, 0) };
    let mut range = host.kernel().claim(on, start, 4 << 20).unwrap();
    assert_eq!((range.start(), range.len()), (start, 4 << 20));
    let space = Space::<X86Pae>::new(on).unwrap();
    // SAFETY: 1. no code reads or writes through the mapping.
    unsafe { range.map(on, VirtAddr(0xffff_f000), Pfn(9), 1, RW, AllocFlags::NORMAL).unwrap() };
    assert_eq!(walk(&host, space.tree().root(), 0xffff_f000), Some((Pfn(9), RW)));
    // The same entry of the root: it is there.
    let below = host.kernel().claim(on, VirtAddr(0xc000_0000), 2 << 20).unwrap();
    below.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    space.end(on).unwrap();
    m.drain(&slots);
    host.audit().unwrap();

    let late = Host::<X86Pae>::new(config(1, 8)).unwrap();
    // SAFETY: 1. to 3. as above.
    unsafe { late.kernel().set(late.frames(), 3, 0) };
    let m = HostMachine::new(&late, late.quicklists().unwrap(), NoTlb).unwrap();
    let slots = late.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let space = Space::<X86Pae>::new(on).unwrap();
    assert_eq!(late.kernel().claim(on, start, 4 << 20).map(|_| ()), Err(ClaimError::TooLate));
    space.end(on).unwrap();
}
