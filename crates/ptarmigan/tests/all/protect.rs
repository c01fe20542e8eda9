//! Permissions that `mprotect` gives back, on pages of all kinds, under a sanitizer.
use crate::common;
use common::{Watch, peek, poke, small, va, watched};
use ptarmigan::addr::VirtRange;
use ptarmigan::format::{Access, Attr, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::space::{AreaFlags, Done, Space};
use ptarmigan_hosted::{Host, HostMachine, NoTlb};

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;
const BASE: u64 = 0x4000_0000;

fn pages(first: u64, n: u64) -> VirtRange {
    VirtRange::new(BASE + first * PAGE, BASE + (first + n) * PAGE).unwrap()
}

/// Pages: 0 written, 1 read, 2 not touched, 3 of an object and written privately, 4 of an object
/// and read, 5 shared and written.
#[test]
fn write_permission_returns_at_once_to_a_spaces_own_pages() {
    let host = Host::<X86_64>::new(small(1, 1, 64)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<X86_64>::new(on).unwrap();
    let all = pages(0, 6);
    {
        let mut edit = space.edit(on).unwrap();
        edit.mmap(pages(0, 3), RW, 0).unwrap();
        edit.mmap(pages(3, 2), RW.with(AreaFlags::BACKED), 1).unwrap();
        edit.mmap(pages(5, 1), RW.with(AreaFlags::SHARED).with(AreaFlags::BACKED), 1).unwrap();
    }
    let write = [true, false, false, true, false, true];
    for (n, write) in write.into_iter().enumerate().filter(|(n, _)| *n != 2) {
        let access = if write { Access::Write } else { Access::Read };
        space.fault(on, va(BASE + n as u64 * PAGE), access).unwrap();
    }
    let writable = |space: &Space<X86_64>| -> Vec<u64> {
        let has = |n: &u64| {
            space.tree().query(on, va(BASE + n * PAGE)).is_some_and(|(_, attr)| attr.has(Attr::WRITE))
        };
        (0..6).filter(has).collect()
    };
    assert_eq!(writable(&space), [0, 3, 5]);
    for none in [AreaFlags::READ, AreaFlags(0), AreaFlags::EXEC] {
        space.edit(on).unwrap().mprotect(all, none).unwrap();
        assert_eq!(writable(&space), []);
        space.edit(on).unwrap().mprotect(all, RW).unwrap();
        // The zero frame and frames of the object gain it by faults.
        assert_eq!(writable(&space), [0, 3], "after {none:?}");
    }
    assert_eq!(space.fault(on, va(BASE), Access::Write), Ok(Done::Spurious));
    assert_eq!(space.fault(on, va(BASE + PAGE), Access::Write), Ok(Done::Copied));
    assert_eq!(space.fault(on, va(BASE + 5 * PAGE), Access::Write), Ok(Done::Reused));
    // Frames that a child has, too: neither side gains it, as long as there are two.
    space.edit(on).unwrap().mprotect(all, AreaFlags::READ).unwrap();
    let mut child = space.edit(on).unwrap().fork().unwrap();
    for one in [&mut space, &mut child] {
        one.edit(on).unwrap().mprotect(all, RW).unwrap();
        assert_eq!(writable(one), []);
    }
    // The child writes page 0, and has a frame of its own: the other one is its parent's alone.
    assert_eq!(child.fault(on, va(BASE), Access::Write), Ok(Done::Copied));
    assert_eq!(writable(&child), [0]);
    space.edit(on).unwrap().mprotect(all, AreaFlags::READ).unwrap();
    space.edit(on).unwrap().mprotect(all, RW).unwrap();
    assert_eq!(writable(&space), [0]);
    child.end(on).unwrap();
    space.edit(on).unwrap().mprotect(all, AreaFlags::READ).unwrap();
    space.edit(on).unwrap().mprotect(all, RW).unwrap();
    assert_eq!(writable(&space), [0, 1, 3]);
    space.end(on).unwrap();
}

/// CPU 1 has the old permissions. It faults, finds the new ones, and writes to the same frame; a
/// child has its own.
#[test]
fn pages_gain_rights_without_requests_or_writes_to_other_frames() {
    let host = Host::<X86_64>::new(small(2, 1, 64)).unwrap();
    let watch = Watch::new(&host);
    let m = watched(&watch, host.quicklists().unwrap());
    let slots = host.slots();
    let (pin0, pin1) = (slots[0].pin(), slots[1].pin());
    let (on0, on1) = (m.on(&pin0).unwrap(), m.on(&pin1).unwrap());
    let mut space = Space::<X86_64>::new(on0).unwrap();
    let all = pages(0, 4);
    space.edit(on0).unwrap().mmap(all, RW, 0).unwrap();
    space.activate(on0).unwrap();
    space.activate(on1).unwrap();
    let write = |space: &mut Space<X86_64>, cpu: usize, n: u64, word: u64| {
        let at = BASE + n * PAGE;
        let on = if cpu == 0 { on0 } else { on1 };
        let mut faults = 0;
        while watch.access(cpu, at, ptsan::Access::WRITE, |phys| poke(&host, phys, word)).is_err() {
            watch.changing(|| space.fault(on, va(at), Access::Write).unwrap());
            faults += 1;
            assert!(faults < 3);
        }
        faults
    };
    let read = |cpu: usize, n: u64| {
        watch.access(cpu, BASE + n * PAGE, ptsan::Access::READ, |phys| peek(&host, phys)).unwrap()
    };
    for n in 0..4 {
        assert_eq!(write(&mut space, 0, n, 10 + n), 1);
    }
    watch.changing(|| space.edit(on0).unwrap().mprotect(all, AreaFlags::READ).unwrap());
    // CPU 1 knows the pages as read-only ones.
    for n in 0..4 {
        assert_eq!(read(1, n), 10 + n);
    }
    let flushes = || {
        let counts = m.tlb().counts();
        (counts.page, counts.range, counts.full, counts.asked)
    };
    let before = flushes();
    watch.changing(|| space.edit(on0).unwrap().mprotect(all, RW).unwrap());
    assert_eq!(flushes(), before, "nothing has to be forgotten");
    assert_eq!(write(&mut space, 0, 0, 20), 0, "the right came back without a fault");
    assert!(write(&mut space, 1, 1, 21) <= 1);
    // A child shares page 2; rights that come back to the parent are not the child's.
    let mut child = watch.changing(|| space.edit(on0).unwrap().fork().unwrap());
    watch.changing(|| space.edit(on0).unwrap().mprotect(all, AreaFlags::READ).unwrap());
    watch.changing(|| space.edit(on0).unwrap().mprotect(all, RW).unwrap());
    assert_eq!(write(&mut space, 1, 2, 22), 1);
    assert_eq!((read(0, 0), read(0, 1), read(1, 2)), (20, 21, 22));
    let (theirs, _) = child.tree().query(on0, va(BASE + 2 * PAGE)).unwrap();
    assert_eq!(peek(&host, theirs.addr().0), 12);
    watch.changing(|| child.edit(on0).unwrap().mprotect(all, RW).unwrap());
    child.end(on0).unwrap();
    space.deactivate(on1).unwrap();
    space.deactivate(on0).unwrap();
    space.end(on0).unwrap();
    m.drain(&slots);
    assert_eq!(watch.finish(), Default::default(), "{}", watch.report());
    host.audit().unwrap();
}
