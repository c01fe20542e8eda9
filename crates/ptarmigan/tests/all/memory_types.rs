//! Memory types and protection keys: numbers among the attributes, which are neither gained nor
//! lost.
use crate::formats::{on_machine, small};
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64Upper, Attr, Cause, Ept, Format, FormatExt, I386, Ia64, Keyed, LoongArch64,
    MemoryType, Npt, Sparc64, Sv32, Sv39, Sv39Pbmt, Sv39x4Pbmt, X86_64, X86Pae,
};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::space::{Access, Advice, AreaError, AreaFlags, Done, FaultError, Object, Space};
use ptarmigan::table::MapError;
use ptarmigan::tlb::TlbConfig;
use ptarmigan::vmalloc::{AreaError as VmallocError, Vmalloc};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::test::{Method, TestMmu};
use ptarmigan_hosted::{Delivery, Host, HostMachine};

const VA: u64 = 0x40_0000;

#[test]
fn another_key_is_no_gain_whatever_its_number() {
    let host = Host::<Keyed<X86_64>>::new(small()).unwrap();
    let mmu = TestMmu::new();
    let lists = host.quicklists().unwrap();
    let machine = HostMachine::with_tlb(&host, lists, &mmu, TlbConfig::new(1), Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let mut space = Space::<Keyed<X86_64>>::new(on).unwrap();
    space.activate(on).unwrap();
    let range = VirtRange::new(VA, VA + 4096).unwrap();
    let keyed = |n| AreaFlags::READ.with_key(n).unwrap();
    space.edit(on).unwrap().mmap(range, keyed(1), 0).unwrap();
    space.fault(on, VirtAddr(VA), Access::Read).unwrap();
    let mut flushes = |flags| {
        let before = mmu.count(Method::Invalidate);
        space.edit(on).unwrap().mprotect_with_key(range, flags).unwrap();
        mmu.count(Method::Invalidate) - before
    };
    // The CPU would go on with key 1, which may allow what key 3 denies: its bits are no
    // permissions.
    assert_eq!([flushes(keyed(3)), flushes(keyed(2)), flushes(keyed(0))], [1; 3]);
    // A page that only gains permissions is not flushed: a CPU that has it as it was faults.
    assert_eq!(flushes(keyed(0).with(AreaFlags::EXEC)), 0);
    space.deactivate(on).unwrap();
    space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
    machine.drain(&slots);
    drop(machine);
    host.audit().unwrap();
}

const BOTH: AreaFlags = AreaFlags(3);
/// Where a device is: beyond the frames of the machine.
const DEVICE: u64 = 0xf000_0000;

/// Maps a device into a space of the format, whose pages keep their type and frames.
fn device<F: Format>() {
    let types = MemoryType::ALL.into_iter().filter(|memory| F::RIGHTS.has_memory(*memory));
    for memory in types {
        on_machine::<F, _>(small(), |_, on| {
            let page = 1u64 << F::PAGE_SHIFT;
            let at = |n: u64| VirtAddr(VA + n * page);
            let range = |first: u64, n: u64| VirtRange::new(at(first).0, at(first + n).0).unwrap();
            let mut space = Space::<F>::new(on).unwrap();
            // SAFETY: 1. no program runs in the space.
            let mapped =
                unsafe { space.edit(on).unwrap().map_physical(range(0, 4), BOTH, PhysAddr(DEVICE), memory) };
            mapped.unwrap();
            let area = space.areas().find(on, VA).unwrap();
            assert_eq!((area.memory(), area.memory_at()), (memory, Some(PhysAddr(DEVICE))));
            let shows = |space: &Space<F>, n: u64| {
                space.tree().query(on, at(n)).map(|(pfn, attr)| {
                    assert!(attr.has(Attr::SPECIAL), "{}", F::NAME);
                    (pfn, attr.memory())
                })
            };
            let frame = |n: u64| Some((PhysAddr(DEVICE + n * page).pfn(), memory));
            assert_eq!(shows(&space, 0), None, "faults map them");
            assert_eq!(space.fault(on, at(0), Access::Read), Ok(Done::Backed));
            assert_eq!(space.fault(on, at(1), Access::Write), Ok(Done::Backed));
            assert_eq!(space.fault(on, at(0), Access::Write), Ok(Done::Reused));
            assert_eq!([shows(&space, 0), shows(&space, 1)], [frame(0), frame(1)], "{}", F::NAME);
            // Permissions go and come back; the type stays.
            for flags in [AreaFlags(0), AreaFlags::READ, BOTH] {
                space.edit(on).unwrap().mprotect(range(0, 4), flags).unwrap();
                assert_eq!([shows(&space, 0), shows(&space, 1)], [frame(0), frame(1)], "{}", F::NAME);
            }
            assert_eq!(space.fault(on, at(0), Access::Exec), Err(FaultError::Denied(at(0))));
            space.fault(on, at(1), Access::Write).unwrap();
            // The copy of fork shows the same, and a page of it that is written stays the device's.
            let mut child = space.edit(on).unwrap().fork().unwrap();
            for n in 0..4 {
                child.fault(on, at(n), Access::Write).unwrap();
                assert_eq!(shows(&child, n), frame(n), "{}", F::NAME);
            }
            assert_eq!([shows(&space, 0), shows(&space, 1)], [frame(0), frame(1)]);
            child.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
            // Pages go and come back, and the rest of an area knows where it begins.
            space.edit(on).unwrap().madvise(range(0, 2), Advice::DontNeed).unwrap();
            space.edit(on).unwrap().munmap(range(0, 1)).unwrap();
            space.edit(on).unwrap().populate(range(1, 3), Access::Write).unwrap();
            assert_eq!([1, 2, 3].map(|n| shows(&space, n)), [1, 2, 3].map(frame));
            // It moves, and shrinks by that.
            space.edit(on).unwrap().mremap(range(1, 3), range(8, 2), false).unwrap();
            space.fault(on, at(9), Access::Read).unwrap();
            assert_eq!([1, 3, 8, 9].map(|n| shows(&space, n)), [None, None, frame(1), frame(2)]);
            space.edit(on).unwrap().munmap(range(0, 16)).unwrap();
            assert!(space.areas().is_empty());
            space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
        });
    }
}

#[test]
fn an_area_of_a_device_keeps_its_memory_type_and_its_frames() {
    device::<X86_64>();
    device::<Keyed<X86_64>>();
    device::<X86Pae>();
    device::<I386>();
    device::<Sv32>();
    device::<Sv39>();
    device::<Sv39Pbmt>();
    device::<Aarch64>();
    device::<Aarch64K16>();
    device::<LoongArch64>();
    device::<Sparc64>();
    device::<Ia64>();
    device::<Ept>();
    device::<Npt>();
    device::<Sv39x4Pbmt>();
}

#[test]
fn physical_memory_is_mapped_by_the_call_for_it_alone_and_does_not_grow() {
    on_machine::<Sv39, _>(small(), |_, on| {
        let range = |first: u64, n: u64| VirtRange::new(VA + first * 4096, VA + (first + n) * 4096).unwrap();
        let mut space = Space::<Sv39>::new(on).unwrap();
        let mut edit = space.edit(on).unwrap();
        edit.mmap(range(0, 1), BOTH, 0).unwrap();
        let before = edit.area(VirtAddr(VA)).unwrap();
        // A call that is refused leaves the former content.
        let mut map = |range, at, memory| {
            // SAFETY: 1. no program runs in the space.
            unsafe { edit.map_physical(range, BOTH, PhysAddr(at), memory) }
        };
        let Err(AreaError::Inexpressible(refused)) = map(range(0, 1), DEVICE, MemoryType::Device) else {
            panic!("Sv39 has no types");
        };
        assert_eq!(refused.cause(), Cause::Missing(Attr(0).with_memory(MemoryType::Device)));
        assert_eq!(refused.to_string(), "Sv39 has no page with rw-u---s+device: it does not know +device");
        let usual = MemoryType::WriteBack;
        for bad in [DEVICE + 1, 1 << 44, u64::MAX - 4095, (1 << 44) - 4096] {
            let result = map(range(0, 2), bad, usual);
            assert_eq!(result, Err(AreaError::BadMemory(PhysAddr(bad))));
            assert!(result.unwrap_err().to_string().contains(&format!("{}", PhysAddr(bad))));
        }
        assert!(matches!(
            map(VirtRange::new(VA + 1, VA + 4096).unwrap(), DEVICE, usual),
            Err(AreaError::BadRange(_))
        ));
        assert_eq!(edit.area(VirtAddr(VA)), Some(before));
        // Two areas side by side, of memory that is not; the second is alone after that.
        for (n, at) in [(0, DEVICE), (1, DEVICE + 8 * 4096), (2, DEVICE + 9 * 4096)] {
            // SAFETY: 1. no program runs in the space.
            unsafe {
                edit.map_physical(range(n, 1), BOTH.with(AreaFlags::GROWS_DOWN), PhysAddr(at), usual).unwrap()
            };
        }
        assert_eq!(edit.areas().len(), 2);
        let area = edit.area(VirtAddr(VA)).unwrap();
        assert!(!area.flags.has(AreaFlags::GROWS_DOWN));
        assert!(edit.area(VirtAddr(VA + 2 * 4096)).unwrap().memory_at() == Some(PhysAddr(DEVICE + 8 * 4096)));
        // No safe call makes or widens one.
        let grown = range(8, 2);
        assert_eq!(edit.mremap(range(0, 1), grown, false), Err(AreaError::Physical(grown)));
        assert_eq!(edit.mremap(range(0, 2), range(8, 2), false), Err(AreaError::NoArea(range(0, 2))));
        assert_eq!(edit.mremap(range(1, 2), range(1, 3), false), Err(AreaError::Physical(range(1, 3))));
        assert_eq!(edit.map_area(area), Err(AreaError::Physical(range(0, 1))));
        let flags = BOTH.with(AreaFlags::PHYSICAL).with(AreaFlags::SHARED);
        let object = Object { id: 4, offset: DEVICE };
        assert_eq!(edit.mmap(range(9, 1), flags, object), Err(AreaError::Physical(range(9, 1))));
        assert_eq!(edit.move_stack(range(16, 4), BOTH), Err(AreaError::Physical(range(16, 4))));
        assert_eq!((edit.areas().len(), edit.area(VirtAddr(VA))), (2, Some(area)));
        space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
    });
}

/// Maps registers that begin within a page into the kernel's half.
fn registers<F: Format>(memory: MemoryType) {
    on_machine::<F, _>(small(), |host, on| {
        let bytes = 1u64 << F::shift(ptarmigan::page::Level(1));
        let steps = [1u64 << F::shift(F::LAYOUT.root()), bytes];
        let places =
            steps.into_iter().flat_map(|step| (0..64).map(move |n| F::KERNEL_START.wrapping_add(n * step)));
        let mut claims = places.filter_map(|at| host.kernel().claim(on, VirtAddr(at), bytes).ok());
        let mut boot = host.boot(Vmalloc::<F, DirectMap>::bytes(bytes)).unwrap();
        let Ok(mut areas) = Vmalloc::new(&mut boot, claims.next().unwrap()) else { panic!("no memory") };
        let noted = Attr::ACCESSED | Attr::DIRTY;
        let attr = F::nearest(Attr::READ | Attr::WRITE | noted).with_memory(memory);
        let mut map = |at, bytes, attr| {
            // SAFETY: 1. nothing uses the pages.
            unsafe { areas.map_memory(on, PhysAddr(at), bytes, attr, AllocFlags::NORMAL) }
        };
        if !F::RIGHTS.has_memory(memory) {
            let refused = MapError::Inexpressible(F::expresses(attr).unwrap_err());
            assert_eq!(map(DEVICE, 1, attr).map(|_| ()), Err(VmallocError::Map(refused)));
        } else {
            // The last byte is on a second page.
            let (area, first) = map(DEVICE + 0xff0, 0x11, attr).unwrap();
            assert_eq!((area.pages(), first.0 - area.start().0), (2, 0xff0));
            let page = |n: u64| areas.range().query(on, VirtAddr(area.start().0 + n * 4096));
            assert_eq!(
                [page(0), page(1), page(2)],
                [Some((PhysAddr(DEVICE).pfn(), attr)), Some((Pfn(PhysAddr(DEVICE).pfn().0 + 1), attr)), None]
            );
            // The permissions change, and the type does if it is asked for.
            areas.protect(on, &area, |attr| attr.without(Attr::WRITE)).unwrap();
            let (_, now) = areas.range().query(on, area.start()).unwrap();
            assert_eq!(now, attr.without(Attr::WRITE));
            areas.protect(on, &area, |attr| attr.with_memory(MemoryType::WriteBack)).unwrap();
            let (_, now) = areas.range().query(on, area.start()).unwrap();
            assert_eq!(now.memory(), MemoryType::WriteBack);
            areas.free(on, area).map_err(|refused| refused.error).unwrap();
        }
        let mut map = |at, bytes| {
            // SAFETY: 1. nothing uses the pages.
            unsafe { areas.map_memory(on, PhysAddr(at), bytes, attr, AllocFlags::NORMAL).map(|_| ()) }
        };
        assert_eq!(map(DEVICE, 0), Err(VmallocError::Empty));
        for (at, bytes) in [(u64::MAX, 1), (1 << 44, 1), (1 << 60, 4096)] {
            assert!(matches!(map(at, bytes), Err(VmallocError::Map(MapError::BadFrame { .. }))), "{at:#x}");
        }
        assert!(map(DEVICE + 1, u64::MAX).is_err());
        assert_eq!(areas.counts().areas, 0);
        let range = areas.into_range().map_err(|_| "areas are left").unwrap();
        range.release(on, |_, _| panic!("a page is left")).map_err(|(e, _)| e).unwrap();
    });
}

#[test]
fn the_kernel_maps_registers_with_a_type_wherever_they_begin() {
    for memory in MemoryType::ALL {
        registers::<X86_64>(memory);
        registers::<I386>(memory);
        registers::<Sv39>(memory);
        registers::<Sv39Pbmt>(memory);
        registers::<Aarch64Upper>(memory);
    }
}

#[test]
fn the_nearest_type_is_the_next_stricter_one() {
    let nearest = |memory| {
        let attr = Attr::READ.with_memory(memory);
        [X86_64::nearest(attr), Aarch64::nearest(attr), Sv39Pbmt::nearest(attr), Sv39::nearest(attr)]
            .map(Attr::memory)
    };
    use MemoryType::{Device, Uncached, WriteBack, WriteCombining, WriteThrough};
    assert_eq!(nearest(WriteBack), [WriteBack; 4]);
    let [combining, device] = [WriteCombining, Device];
    assert_eq!(nearest(WriteThrough), [WriteThrough, WriteThrough, combining, WriteThrough]);
    assert_eq!(nearest(combining), [combining; 4]);
    assert_eq!(nearest(Uncached), [Uncached, device, device, Uncached]);
    assert_eq!(nearest(device), [device; 4]);
}
