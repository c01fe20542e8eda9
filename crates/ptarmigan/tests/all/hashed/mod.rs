//! Machines with a hashed page table: stale pages, bits left in entries, and translations that CPUs
//! find.
mod machine;
use fastrand::Rng;
use machine::{Access, BYTES, HashedMmu, PAGE, RW, Rig, pages, va};
use ptarmigan::addr::{Pfn, VirtRange};
use ptarmigan::format::{Attr, Ppc32};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{Advice, AreaFlags, SharedSpace, Space};
use ptarmigan::tlb::hash::{HashLayout, Hashed32, Hashed64};
use ptarmigan::tlb::{CostModel, Costs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;

/// Pages of 4 MiB apart share their groups: more of them than two groups hold.
const STRIDE: u64 = 4 << 20;
const AREAS: u64 = 24;
/// Pages of each area.
const DEEP: u64 = 3;
const BASE: u64 = 0x1000_0000;
/// Forgets every page by itself, however many there are.
const BY_PAGE: CostModel = CostModel::ALWAYS_PAGE;

fn area(at: u64) -> VirtRange {
    pages(BASE + at % AREAS * STRIDE, DEEP)
}

#[test]
fn only_pages_that_were_hashed_are_looked_for_and_their_bits_go() {
    let rig = Rig::new(1);
    rig.run(BY_PAGE, |m, mmu, slots| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<Ppc32>::new(on).unwrap();
        space.activate(on).unwrap();
        let range = pages(BASE, 40);
        space.edit(on).unwrap().mmap(range, RW, 0).unwrap();
        for page in 0..40 {
            space.fault(on, va(BASE + page * PAGE), Access::Write).unwrap();
        }
        // Two of forty were used.
        for page in [3, 17] {
            assert!(mmu.access(on, &space, BASE + page * PAGE, Access::Write).is_some());
            assert!(rig.entry(&space, BASE + page * PAGE) & 2 != 0, "the bit of page {page}");
        }
        let before = (m.tlb().counts(), mmu.table().counts());
        space.edit(on).unwrap().munmap(pages(BASE, 2)).unwrap();
        assert_eq!((m.tlb().counts(), mmu.table().counts()), before, "nothing was stale");
        space.edit(on).unwrap().madvise(pages(BASE + 2 * PAGE, 37), Advice::DontNeed).unwrap();
        let removed = mmu.table().counts().removed - before.1.removed;
        assert_eq!((m.tlb().counts().hashed, removed), (2, 2));
        assert_eq!(mmu.table().valid(), 0);
        for page in 2..39 {
            assert_eq!(rig.entry(&space, BASE + page * PAGE), 0, "page {page} was scrubbed");
        }
        space.end(on).unwrap();
    });
}

#[test]
fn an_entry_that_stays_keeps_its_bit_and_a_moved_one_has_none() {
    let rig = Rig::new(1);
    rig.run(BY_PAGE, |m, mmu, slots| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<Ppc32>::new(on).unwrap();
        space.activate(on).unwrap();
        space.edit(on).unwrap().mmap(pages(BASE, 4), RW, 0).unwrap();
        space.fault(on, va(BASE), Access::Write).unwrap();
        let old = mmu.access(on, &space, BASE, Access::Read).unwrap();
        space.edit(on).unwrap().mprotect(pages(BASE, 1), AreaFlags(1)).unwrap();
        assert_eq!(mmu.table().valid(), 0, "a read-only page is not writable in the table");
        assert!(rig.entry(&space, BASE) & 2 != 0, "an entry that stays keeps its bit");
        assert_eq!(mmu.access(on, &space, BASE, Access::Write), None);
        assert_eq!(mmu.access(on, &space, BASE, Access::Read), Some(old));
        space.edit(on).unwrap().mremap(pages(BASE, 1), pages(BASE + STRIDE, 1), false).unwrap();
        assert_eq!((rig.entry(&space, BASE), mmu.table().valid()), (0, 0));
        assert_eq!(rig.entry(&space, BASE + STRIDE) & 2, 0, "at the new place it was not hashed");
        assert_eq!(mmu.access(on, &space, BASE, Access::Read), None);
        assert_eq!(mmu.access(on, &space, BASE + STRIDE, Access::Read), Some(old));
        space.end(on).unwrap();
        assert_eq!(mmu.table().valid(), 0);
    });
}

#[test]
fn a_child_inherits_no_bit_and_a_write_is_its_own() {
    let rig = Rig::new(1);
    rig.run(BY_PAGE, |m, mmu, slots| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut parent = Space::<Ppc32>::new(on).unwrap();
        parent.activate(on).unwrap();
        parent.edit(on).unwrap().mmap(pages(BASE, 4), RW, 0).unwrap();
        for page in 0..4 {
            parent.fault(on, va(BASE + page * PAGE), Access::Write).unwrap();
        }
        let shared = mmu.access(on, &parent, BASE, Access::Write).unwrap();
        let mut child = parent.edit(on).unwrap().fork().unwrap();
        assert_eq!(mmu.table().valid(), 0, "the parent's page is no longer writable");
        assert_eq!(rig.entry(&child, BASE) & 2, 0);
        assert_eq!(mmu.access(on, &parent, BASE, Access::Write), None);
        assert_eq!(mmu.access(on, &parent, BASE, Access::Read), Some(shared));
        parent.fault(on, va(BASE), Access::Write).unwrap();
        let own = mmu.access(on, &parent, BASE, Access::Write).unwrap();
        assert_ne!(own, shared);
        parent.deactivate(on).unwrap();
        child.activate(on).unwrap();
        assert_eq!(mmu.access(on, &child, BASE, Access::Read), Some(shared));
        child.fault(on, va(BASE), Access::Write).unwrap();
        assert_eq!(mmu.access(on, &child, BASE, Access::Write), Some(shared), "its sole user");
        child.end(on).unwrap();
        parent.end(on).unwrap();
        assert_eq!(mmu.table().valid(), 0);
    });
}

#[test]
fn kernel_pages_are_evicted_before_their_frames_are_named() {
    let rig = Rig::new(2);
    rig.run(BY_PAGE, |m, mmu, slots| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let start = va(0xf000_0000);
        let mut range = rig.host.kernel().claim(on, start, STRIDE).unwrap();
        let first = Pfn(64);
        // SAFETY: 1. no access goes further than to the number of the frame.
        unsafe { range.map(on, start, first, 8, Attr::READ | Attr::WRITE, AllocFlags::NORMAL).unwrap() };
        for page in [1, 6] {
            let at = start.0 + page * PAGE;
            let found = mmu.access_kernel(on, rig.host.kernel(), at, Access::Write);
            assert_eq!(found.map(|pfn| u64::from(pfn.0)), Some(u64::from(first.0) + page));
        }
        assert_eq!(mmu.table().valid(), 2);
        let mut named = 0;
        range
            .unmap(on, start, 8, |_, _| {
                assert_eq!(mmu.table().valid(), 0, "a frame was named before its page was flushed");
                named += 1;
            })
            .unwrap();
        assert_eq!((named, m.tlb().counts().hashed), (8, 2));
        assert_eq!(mmu.table().counts().removed, 2);
        assert_eq!(mmu.access_kernel(on, rig.host.kernel(), start.0 + PAGE, Access::Read), None);
        assert!(range.release(on, |_, _| {}).is_ok());
    });
}

#[test]
fn the_end_of_a_space_takes_its_pages_out_by_the_cheapest_plan() {
    // By page, and with everything: a page costs 40 groups and more, the table has 1,024.
    let costs = CostModel::Costs(Costs { page_hashed: 40, ..Costs::new(16, 1024) });
    for (pages_used, by_page) in [(0, true), (1, true), (20, true), (200, false)] {
        let rig = Rig::new(1);
        rig.run(costs, |m, mmu, slots| {
            let pin = slots[0].pin();
            let on = m.on(&pin).unwrap();
            let others = other_pages(on, mmu);
            let mut space = Space::<Ppc32>::new(on).unwrap();
            space.activate(on).unwrap();
            space.edit(on).unwrap().mmap(pages(BASE, 400), RW, 0).unwrap();
            for page in 0..400 {
                space.fault(on, va(BASE + page * PAGE), Access::Write).unwrap();
            }
            for page in 0..pages_used {
                assert!(mmu.access(on, &space, BASE + page * PAGE, Access::Write).is_some());
            }
            let (flushes, table) = (m.tlb().counts(), mmu.table().counts());
            space.end(on).unwrap();
            let probes = mmu.table().counts().probes - table.probes;
            let full = m.tlb().counts().full - flushes.full;
            assert_eq!(full == 0, by_page, "{pages_used} pages");
            assert_eq!(m.tlb().counts().hashed - flushes.hashed, pages_used as usize);
            assert!(
                probes <= if by_page { 16 * pages_used.max(1) as usize } else { 8192 },
                "{probes} probes"
            );
            assert_eq!(mmu.table().valid(), 1, "the other space's page, and no other");
            others.end(on).unwrap();
            assert_eq!(mmu.table().valid(), 0);
        });
    }
}

/// A space with one page in the hash table.
fn other_pages<M: ptarmigan::space::SpaceMachine>(on: On<'_, M>, mmu: &HashedMmu) -> Space<Ppc32> {
    let mut space = Space::<Ppc32>::new(on).unwrap();
    space.activate(on).unwrap();
    space.edit(on).unwrap().mmap(pages(BASE, 1), RW, 0).unwrap();
    space.fault(on, va(BASE), Access::Write).unwrap();
    assert!(mmu.access(on, &space, BASE, Access::Write).is_some());
    space.deactivate(on).unwrap();
    space
}

#[test]
fn an_entry_over_a_cleared_unflushed_one_keeps_its_bit() {
    for shares in [false, true] {
        let rig = Rig::new(1);
        rig.run(BY_PAGE, |m, mmu, slots| {
            let pin = slots[0].pin();
            let on = m.on(&pin).unwrap();
            let mut space = Space::<Ppc32>::new(on).unwrap();
            space.activate(on).unwrap();
            space.edit(on).unwrap().mmap(pages(BASE, 2), RW, 0).unwrap();
            // The zero frame, which is not lost with the flush.
            space.fault(on, va(BASE), Access::Read).unwrap();
            assert!(mmu.access(on, &space, BASE, Access::Read).is_some());
            mmu.fail_next();
            let failed = catch_unwind(AssertUnwindSafe(|| {
                space.edit(on).unwrap().madvise(pages(BASE, 1), Advice::DontNeed).unwrap();
            }));
            assert!(failed.is_err());
            assert_eq!((rig.entry(&space, BASE), mmu.table().valid()), (2, 1), "cleared, and still hashed");
            if shares {
                let shared = SharedSpace::new(space);
                shared.fault(on, va(BASE), Access::Write).unwrap();
                space = shared.into_inner();
            } else {
                space.fault(on, va(BASE), Access::Write).unwrap();
            }
            assert_eq!(rig.entry(&space, BASE) & 3, 3, "a fault, shared: {shares}");
            // The next flush makes up for the one that failed.
            space.edit(on).unwrap().munmap(pages(BASE, 1)).unwrap();
            assert_eq!((rig.entry(&space, BASE), mmu.table().valid()), (0, 0));
            space.end(on).unwrap();
        });
    }
}

/// Pages are missed and refilled on two CPUs while a third one unmaps them, takes permissions away
/// and maps others. Whenever all of them stop, the hash table and the TLBs agree with the tables.
#[test]
fn refills_on_two_cpus_insert_nothing_that_a_third_has_changed() {
    const ROUNDS: u64 = 150;
    let rig = Rig::new(3);
    rig.run_on(BY_PAGE, 1, |m, mmu, slots| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<Ppc32>::new(on).unwrap();
        space.edit(on).unwrap().mmap(pages(BASE, 16), RW, 0).unwrap();
        let (space, meet) = (SharedSpace::new(space), Barrier::new(3));
        let mut wrong = None;
        std::thread::scope(|scope| {
            for cpu in [1, 2] {
                let (rig, space, meet) = (&rig, &space, &meet);
                scope.spawn(move || {
                    let slot = rig.host.slot(cpu).expect("nobody has taken it");
                    let pin = slot.pin();
                    let on = m.on(&pin).unwrap();
                    space.activate(on).unwrap();
                    let mut rng = Rng::with_seed(cpu as u64 + 7);
                    for _ in 0..ROUNDS {
                        for _ in 0..60 {
                            let at = BASE + rng.u64(..16) * PAGE;
                            let access = if rng.bool() { Access::Read } else { Access::Write };
                            if mmu.access_shared(on, space, at, access).is_none() {
                                _ = space.fault(on, va(at), access);
                            }
                        }
                        meet.wait();
                        meet.wait();
                    }
                    space.deactivate(on).unwrap();
                });
            }
            let mut rng = Rng::with_seed(3);
            for round in 0..ROUNDS {
                for _ in 0..20 {
                    let range = pages(BASE + rng.u64(..13) * PAGE, 1 + rng.u64(..3));
                    let mut exclusive = space.lock(on).unwrap();
                    let mut edit = exclusive.edit();
                    match rng.u64(..4) {
                        0 => _ = edit.mprotect(range, AreaFlags(1)),
                        1 => _ = edit.mprotect(range, RW),
                        2 => edit.madvise(range, Advice::DontNeed).unwrap(),
                        _ => {
                            edit.munmap(range).unwrap();
                            edit.mmap(range, RW, 0).unwrap();
                        }
                    }
                }
                meet.wait();
                // Said when all threads have ended: the others would wait for ever for this one.
                let all = (0..16).map(|page| BASE + page * PAGE);
                if let Err(e) = rig.check_shared(on, mmu, &space, all) {
                    wrong.get_or_insert(format!("round {round}: {e}"));
                }
                meet.wait();
            }
        });
        assert_eq!(wrong, None);
        let counts = mmu.table().counts();
        assert!(counts.inserted > 1000 && counts.removed > 1000, "{counts:?}");
        space.end(on).unwrap();
        assert_eq!(mmu.table().valid(), 0);
    });
}

/// Whatever happens, every access of every CPU reaches the frame in the tables, every entry of the
/// hash table has its bit and is one of a live page, and tables are handed out all zero.
fn survives<L: HashLayout>(costs: CostModel, asids: u16, bytes: usize, seed: u64) {
    let rig = Rig::<L>::sized(3, asids, bytes);
    rig.run(costs, |m, mmu, slots| {
        let mut rng = Rng::with_seed(seed);
        let mut spaces: Vec<Space<Ppc32>> = Vec::new();
        let loaded = |spaces: &[Space<Ppc32>], mmu: &HashedMmu<L>, cpu: usize| {
            mmu.loaded(cpu).and_then(|id| spaces.iter().position(|s| s.tlb().id() == id))
        };
        for step in 0..600 {
            let cpu = rng.usize(..3);
            let pin = slots[cpu].pin();
            let on = m.on(&pin).unwrap();
            if spaces.len() < 4 {
                spaces.push(Space::new(on).unwrap());
            }
            let at = rng.usize(..spaces.len());
            let range = area(rng.u64(..AREAS));
            let current = loaded(&spaces, mmu, cpu);
            change(on, &mut rng, &mut spaces, at, range, current);
            for (cpu, slot) in slots.iter().enumerate() {
                let Some(at) = loaded(&spaces, mmu, cpu) else { continue };
                if !spaces[at].tlb().is_active_on(slot.cpu()) {
                    continue;
                }
                let pin = slot.pin();
                let on = m.on(&pin).unwrap();
                for page in all_pages() {
                    let access = if rng.bool() { Access::Read } else { Access::Write };
                    mmu.check_access(on, &spaces[at], page, access);
                }
            }
            if step % 50 == 0 {
                rig.check_entries(mmu, &spaces, all_pages());
            }
        }
        let evicted = mmu.table().counts().evicted;
        assert!(evicted > 100 || bytes > BYTES, "only {evicted} pages were evicted");
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        for space in spaces {
            space.end(on).unwrap();
        }
        assert_eq!(mmu.table().valid(), 0, "entries of spaces that have ended");
    });
}

fn all_pages() -> impl Iterator<Item = u64> + Clone {
    (0..AREAS).flat_map(|at| (0..DEEP).map(move |page| area(at).start + page * PAGE))
}

fn change<M: ptarmigan::space::SpaceMachine>(
    on: On<'_, M>,
    rng: &mut Rng,
    spaces: &mut Vec<Space<Ppc32>>,
    at: usize,
    range: VirtRange,
    current: Option<usize>,
) {
    match rng.u64(..16) {
        0 => spaces.swap_remove(at).end(on).unwrap(),
        1 => spaces[at].edit(on).unwrap().munmap(range).unwrap(),
        2..=4 => {
            // With the addresses between the pages that are used.
            let end = (range.start + 12 * STRIDE).min(area(AREAS - 1).end);
            spaces[at].edit(on).unwrap().mmap(VirtRange::new(range.start, end).unwrap(), RW, 0).unwrap();
        }
        5 if spaces.len() < 6 => {
            let child = spaces[at].edit(on).unwrap().fork().unwrap();
            spaces.push(child);
        }
        6 => _ = spaces[at].edit(on).unwrap().mprotect(range, AreaFlags(1)),
        7 => _ = spaces[at].edit(on).unwrap().mprotect(range, RW),
        8 => _ = spaces[at].edit(on).unwrap().mremap(range, area(rng.u64(..AREAS)), false),
        9 => _ = spaces[at].edit(on).unwrap().madvise(range, Advice::DontNeed),
        10 | 11 => {
            if let Some(old) = current
                && old != at
            {
                spaces[old].deactivate(on).unwrap();
            }
            spaces[at].activate(on).unwrap();
        }
        12 => {
            if let Some(old) = current {
                spaces[old].rest(on).unwrap();
            }
        }
        _ => {
            for page in all_pages() {
                let access = if rng.bool() { Access::Read } else { Access::Write };
                _ = spaces[at].fault(on, va(page), access);
            }
        }
    }
}

/// More than a million accesses in all, each of which reaches the frame in the tables: both
/// layouts, and tables of any size, give the same answers.
#[test]
fn no_cpu_finds_a_flushed_entry_and_no_page_lacks_its_hash_bit() {
    for (costs, asids, seed) in [(BY_PAGE, 200, 1), (CostModel::LINUX, 200, 2), (BY_PAGE, 5, 3)] {
        survives::<Hashed32>(costs, asids, BYTES, seed);
    }
    for (shift, costs) in [BY_PAGE, CostModel::LINUX, CostModel::ALWAYS_FULL, BY_PAGE].into_iter().enumerate()
    {
        survives::<Hashed32>(costs, 6, BYTES << (shift + 1), 4 + shift as u64);
        survives::<Hashed64>(costs, 6, (4 * BYTES) << shift, 10 + shift as u64);
    }
}
