//! Neighbours that have become alike stay apart if their private pages are of different histories:
//! where Linux 6.18 has areas after the same calls (docs/linux.md, "Areas").
use crate::common;
use common::small;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Access, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::space::{AreaError, AreaFlags, Object, Space};
use ptarmigan_hosted::{Host, HostMachine, NoTlb};

const PAGE: u64 = 4096;
const BASE: u64 = 0x40_0000_0000;
const R: u16 = 1;
const RW: u16 = 3;
const RWX: u16 = 7;
/// A tag that stands for a lock.
const LOCK: u16 = 2;

/// A call. Places and numbers are in pages.
#[derive(Clone, Copy, Debug)]
enum Call {
    Map(u64, u64, u16),
    /// Private pages of a file, at the same place in it.
    MapFile(u64, u64),
    Write(u64),
    Protect(u64, u64, u16),
    Lock(u64, u64),
    Unlock(u64, u64),
    Unmap(u64, u64),
    Move(u64, u64, u64),
    /// `MREMAP_DONTUNMAP`, which takes the lock from the old area.
    Keep(u64, u64, u64),
    /// What follows is done in the child.
    Fork,
}
use Call::{Fork, Keep, Lock, Map, MapFile, Move, Protect, Unlock, Unmap, Write};

/// A name, calls, and the first page and the end of each area afterwards.
type Case<'a> = (&'a str, &'a [Call], &'a [(u64, u64)]);

fn pages(at: u64, n: u64) -> VirtRange {
    VirtRange::new(BASE + at * PAGE, BASE + (at + n) * PAGE).unwrap()
}

/// Makes the calls; returns the areas below page 20.
fn areas(calls: &[Call]) -> Vec<(u64, u64)> {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let machine = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let mut spaces = vec![Space::<X86_64>::new(on).unwrap()];
    for call in calls {
        let mut edit = spaces.last_mut().unwrap().edit(on).unwrap();
        match *call {
            Map(at, n, flags) => edit.mmap(pages(at, n), AreaFlags(flags), 0).unwrap(),
            MapFile(at, n) => {
                let flags = AreaFlags(RW).with(AreaFlags::BACKED);
                edit.mmap(pages(at, n), flags, Object { id: 1, offset: at * PAGE }).unwrap();
            }
            Write(at) => {
                let va = VirtAddr(pages(at, 1).start);
                // The host has no files.
                if edit.area(va).unwrap().flags.has(AreaFlags::BACKED) {
                    edit.copy_on_fork(va).unwrap();
                } else {
                    edit.fault(va, Access::Write).unwrap();
                }
            }
            Protect(at, n, flags) => edit.mprotect(pages(at, n), AreaFlags(flags)).unwrap(),
            Lock(at, n) => edit.retag(pages(at, n), |tag| tag | LOCK).unwrap(),
            Unlock(at, n) => edit.retag(pages(at, n), |tag| tag & !LOCK).unwrap(),
            Unmap(at, n) => edit.munmap(pages(at, n)).unwrap(),
            Move(at, n, to) => edit.mremap(pages(at, n), pages(to, n), false).unwrap(),
            Keep(at, n, to) => {
                edit.mremap(pages(at, n), pages(to, n), true).unwrap();
                edit.retag_area(VirtAddr(pages(at, n).start), |tag| tag & !LOCK).unwrap();
            }
            Fork => {
                let child = edit.fork().unwrap();
                spaces.push(child);
            }
        }
    }
    let mut found = Vec::new();
    let last = spaces.last_mut().unwrap();
    last.areas()
        .each(on, pages(0, 20), |a| found.push(((a.start - BASE) / PAGE, (a.end - BASE) / PAGE)))
        .unwrap();
    if found.len() > 1 && !calls.iter().any(|call| matches!(call, Keep(..))) {
        // A move of both at once is refused, as Linux refused it until 6.17.
        let (start, end) = (found[0].0, found[found.len() - 1].1);
        let moved = last.edit(on).unwrap().mremap(pages(start, end - start), pages(100, end - start), false);
        assert!(matches!(moved, Err(AreaError::NoArea(_))), "{calls:?}: {moved:?}");
    }
    while let Some(space) = spaces.pop() {
        space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
    }
    found
}

#[test]
fn areas_whose_pages_began_apart_stay_apart() {
    // Each with the borders that /proc/self/maps has.
    let cases: &[Case<'_>] = &[
        ("side by side", &[Map(0, 4, RW), Write(0), Map(4, 4, RW), Write(4)], &[(0, 8)]),
        (
            "left, right, then the middle",
            &[Map(0, 4, RW), Map(8, 4, RW), Write(0), Write(8), Map(4, 4, RW), Write(4)],
            &[(0, 8), (8, 12)],
        ),
        (
            "left, right, then the middle, protected first",
            &[Map(0, 4, RW), Map(8, 4, RW), Write(0), Write(8), Map(4, 4, R), Protect(4, 4, RW), Write(4)],
            &[(0, 8), (8, 12)],
        ),
        (
            "the middle is written while it differs",
            &[
                Map(0, 4, RW),
                Map(8, 4, RW),
                Write(0),
                Write(8),
                Map(4, 4, R),
                Protect(4, 4, RWX),
                Write(4),
                Protect(4, 4, RW),
            ],
            &[(0, 4), (4, 12)],
        ),
        (
            "left and right of a file, then the middle",
            &[MapFile(0, 4), MapFile(8, 4), Write(0), Write(8), MapFile(4, 4)],
            &[(0, 8), (8, 12)],
        ),
        (
            "a moved one",
            &[Map(0, 4, RW), Write(0), Map(20, 4, RW), Write(20), Move(20, 4, 4)],
            &[(0, 4), (4, 8)],
        ),
        ("a moved one, untouched", &[Map(0, 4, RW), Write(0), Map(20, 4, RW), Move(20, 4, 4)], &[(0, 8)]),
        (
            "protected and back",
            &[Map(0, 8, RW), Write(0), Write(7), Protect(4, 4, R), Protect(4, 4, RW)],
            &[(0, 8)],
        ),
        (
            "written while protected apart",
            &[
                Map(0, 4, RW),
                Write(0),
                Map(4, 4, 0),
                Protect(4, 4, RW),
                Write(5),
                Protect(0, 4, R),
                Write(6),
                Protect(0, 4, RW),
            ],
            &[(0, 8)],
        ),
        (
            "unwritten becomes like the next",
            &[Map(4, 4, RW), Write(4), Map(0, 4, R), Protect(0, 4, RW)],
            &[(0, 8)],
        ),
        (
            "written while one was locked",
            &[Map(0, 4, RW), Lock(0, 2), Write(0), Write(2), Unlock(0, 2)],
            &[(0, 2), (2, 4)],
        ),
        (
            "one written while locked, the other later",
            &[Map(0, 4, RW), Lock(0, 2), Write(0), Unlock(0, 2), Write(2)],
            &[(0, 4)],
        ),
        (
            "cut out and mapped anew",
            &[Map(0, 12, RW), Write(0), Unmap(4, 4), Map(4, 4, RW), Write(5)],
            &[(0, 12)],
        ),
        (
            "the right one mapped anew",
            &[Map(0, 4, RW), Map(8, 4, RW), Write(0), Write(8), Map(4, 4, RW), Unmap(8, 4), Map(8, 4, RW)],
            &[(0, 12)],
        ),
        (
            "protected before a fork, and back in the child",
            &[Map(0, 8, RW), Write(0), Write(7), Protect(4, 4, R), Fork, Protect(4, 4, RW)],
            &[(0, 4), (4, 8)],
        ),
        (
            "protected and back in the child",
            &[Map(0, 8, RW), Write(0), Fork, Protect(4, 4, R), Protect(4, 4, RW)],
            &[(0, 8)],
        ),
        ("moved and kept", &[Map(0, 4, RW), Write(0), Keep(0, 4, 40), Write(0), Map(4, 4, RW)], &[(0, 8)]),
        (
            "a part of a locked one moved and kept",
            &[Map(0, 8, RW), Write(0), Lock(0, 8), Keep(0, 4, 40)],
            &[(0, 8)],
        ),
        (
            "a locked one moved and kept beside one that is not",
            &[Map(0, 8, RW), Write(0), Write(4), Lock(0, 4), Keep(0, 4, 40)],
            &[(0, 4), (4, 8)],
        ),
    ];
    for (name, calls, borders) in cases {
        assert_eq!(areas(calls), *borders, "{name}");
    }
}

#[test]
fn a_lock_goes_from_the_whole_area_that_is_kept() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let machine = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let mut space = Space::<X86_64>::new(on).unwrap();
    let mut edit = space.edit(on).unwrap();
    edit.mmap(pages(0, 8), AreaFlags(RW), 0).unwrap();
    edit.retag(pages(0, 8), |tag| tag | LOCK).unwrap();
    edit.mremap(pages(2, 2), pages(40, 2), true).unwrap();
    edit.retag_area(VirtAddr(BASE + 2 * PAGE), |tag| tag & !LOCK).unwrap();
    let tags = [0, 2, 7, 40]
        .map(|at| edit.area(VirtAddr(BASE + at * PAGE)).map(|area| (area.range().len() / PAGE, area.tag)));
    assert_eq!(tags, [Some((8, 0)), Some((8, 0)), Some((8, 0)), Some((2, LOCK))]);
    let none = edit.retag_area(VirtAddr(BASE + 30 * PAGE + 5), |tag| tag);
    assert_eq!(none, Err(AreaError::NoArea(pages(30, 1))));
    space.end(on).unwrap();
}
