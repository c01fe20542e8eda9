//! A hosted machine whose data frames are high memory.
use ptarmigan::addr::{FRAME_SIZE, Pfn, VirtAddr, VirtRange};
use ptarmigan::format::X86_64;
use ptarmigan::machine::Machine;
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_hosted::{
    HighConfig, HighError, HighMachine, HighSlots, Host, HostConfig, HostError, HostMachine, Kmap, NoTlb,
    SlotKind,
};

const LOW: u64 = 16 << 20;
const AREA: VirtRange = VirtRange::fixed::<0x40_0000, 0x50_0000>();

fn config(slots: SlotKind) -> HostConfig {
    let high_file = slots == SlotKind::Real;
    let memory =
        HostConfig { bytes: 64 << 20, low: LOW, high_file, touch_data: true, ..HostConfig::default() };
    HostConfig { cpus: 2, prefault: 0, ..memory }
}

fn frame_of(space: &Space<X86_64>, on: ptarmigan::machine::On<'_, impl Machine>, page: u64) -> Pfn {
    let mut found = None;
    let range = VirtRange::new(page, page + FRAME_SIZE as u64).unwrap();
    space.tree().walk(on, range, |_, pfn, _| found = Some(pfn)).unwrap();
    found.expect("the page is mapped")
}

#[test]
fn pages_are_cleared_and_copied_through_slots_of_either_kind() {
    for slots in [SlotKind::Store, SlotKind::Real] {
        for kmap in [Kmap::Local, Kmap::Pool, Kmap::Linux, Kmap::Linux24] {
            let host = Host::<X86_64>::new(config(slots)).unwrap();
            let machine = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
            let config = HighConfig { kmap, slots, pool_slots: 32 };
            let high = HighSlots::new(&host, &config).unwrap();
            let machine = HighMachine::new(&machine, high, &config).unwrap();
            let cpus = host.slots();
            let pin = cpus[0].pin();
            let on = machine.on(&pin).unwrap();
            let word = |pfn: Pfn| host.window().open(pfn.addr()).base().cast::<u64>();
            // Twice: frames of the second space hold the first one's content.
            for _ in 0..2 {
                let mut parent = Space::<X86_64>::new(on).unwrap();
                parent.edit(on).unwrap().mmap(AREA, AreaFlags::READ.with(AreaFlags::WRITE), 0).unwrap();
                for page in (AREA.start..AREA.end).step_by(FRAME_SIZE) {
                    parent.fault(on, VirtAddr(page), Access::Write).unwrap();
                    let pfn = frame_of(&parent, on, page);
                    assert!(pfn.addr().0 >= LOW, "data comes from high memory first");
                    // SAFETY: the page is the space's alone, and no CPU runs in it.
                    unsafe {
                        assert_eq!(*word(pfn), 0, "{slots:?}, {kmap:?}: not cleared");
                        *word(pfn) = page;
                    }
                }
                let mut child = parent.edit(on).unwrap().fork().unwrap();
                for page in (AREA.start..AREA.end).step_by(FRAME_SIZE) {
                    child.fault(on, VirtAddr(page), Access::Write).unwrap();
                    let (old, new) = (frame_of(&parent, on, page), frame_of(&child, on, page));
                    assert_ne!(old, new);
                    // SAFETY: as above.
                    unsafe { assert_eq!(*word(new), page, "{slots:?}, {kmap:?}: not copied") };
                }
                child.end(on).unwrap();
                parent.end(on).unwrap();
            }
            let counts = machine.drain(&cpus).unwrap();
            let pages = 2 * (AREA.end - AREA.start) as usize / FRAME_SIZE;
            assert_eq!((counts.cleared, counts.copied), (pages, 2 * pages));
            if kmap == Kmap::Local {
                assert_eq!((counts.installs, counts.used, counts.sweeps.sweeps), (3 * pages, 2, 0));
            } else {
                // The source was a frame that had not been mapped for long.
                assert!(counts.used == 32 && counts.sweeps.sweeps > 0, "{counts:?}");
                assert!(counts.installs > 32 && counts.installs <= 3 * pages, "{counts:?}");
            }
            host.audit().unwrap();
        }
    }
}

#[test]
fn machines_and_slots_that_do_not_fit_are_refused() {
    let host = |config: HostConfig| Host::<X86_64>::new(config).map(drop).unwrap_err();
    let store = config(SlotKind::Store);
    assert!(matches!(host(HostConfig { nodes: 2, ..store }), HostError::OutOfRange(_)));
    assert!(matches!(host(HostConfig { low: 63 << 12, ..store }), HostError::OutOfRange(_)));
    assert!(matches!(host(HostConfig { low: store.bytes - 4096, ..store }), HostError::OutOfRange(_)));

    let config = |kmap, slots, pool_slots| HighConfig { kmap, slots, pool_slots };
    let host = Host::<X86_64>::new(store).unwrap();
    let refused = |config: HighConfig| HighSlots::new(&host, &config).map(drop).unwrap_err();
    assert_eq!(refused(config(Kmap::Pool, SlotKind::Real, 64)), HighError::NoFile);
    assert_eq!(refused(config(Kmap::Local, SlotKind::Real, 64)), HighError::NoFile);
    for slots in [0, 31, 65536, usize::MAX] {
        // The number of the slot has 16 bits in a frame's word, and Linux's lists need one for
        // their end.
        let error = HighError::Slots { slots, least: 32, most: 65535 };
        assert_eq!(refused(config(Kmap::Pool, SlotKind::Store, slots)), error);
    }
    assert!(matches!(
        refused(config(Kmap::Linux, SlotKind::Real, 16385)),
        HighError::Slots { most: 16384, .. }
    ));
    let low = Host::<X86_64>::new(HostConfig { low: u64::MAX, ..store }).unwrap();
    let none = HighSlots::new(&low, &config(Kmap::Pool, SlotKind::Store, 64)).map(drop).unwrap_err();
    assert_eq!(none, HighError::NoHighMemory);
}
