//! Local maps: order, overflow, task switches.
use crate::highmem::machine::{
    BASE, Failing, HIGH, HostM, Tlbs, host, knows, low, machine, pins, read, store,
};
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::CpuId;
use ptarmigan::format::X86_64;
use ptarmigan::highmem::Slots;
use ptarmigan::highmem::local::{LocalError, LocalMaps, LocalSetupError, SwitchError, TaskMaps};
use ptarmigan::machine::Machine;
use ptarmigan::tlb::Shootdown;
use ptarmigan::window::{OpenWindow, Window, WindowGuard};
use ptarmigan_hosted::Host;
use std::sync::atomic::Ordering;

fn high(n: u32) -> Pfn {
    Pfn(HIGH + n)
}

fn local<'m, L: Slots>(
    host: &'m Host<X86_64>,
    machine: &'m HostM<'_, '_>,
    depth: usize,
    slots: L,
) -> Result<LocalMaps<'m, impl Shootdown, L>, LocalSetupError> {
    let mut boot = host.boot(1 << 16).unwrap();
    // SAFETY: 1. slots of the host's memory. 2. new ones.
    unsafe { LocalMaps::new(&mut boot, depth, machine.tlb(), host.frames(), low(host), slots) }
}

#[test]
fn guards_nest_and_each_cpu_has_slots_of_its_own() {
    let host = host(2);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 8));
    let machine = machine(&host, &tlbs);
    let maps = local(&host, &machine, 4, &slots).unwrap();
    let cpus = host.slots();
    let pins = pins(&cpus);
    maps.scope(&pins[1], |scope| {
        let mut outer = scope.map(high(1)).unwrap();
        assert_eq!(outer.base(), host.window().open(high(1).addr()).base());
        assert_eq!(slots.frame(4), Some(high(1)));
        let mut inner = outer.map(high(2)).unwrap();
        assert_eq!(slots.frame(5), Some(high(2)));
        // Low frames take no slot.
        let low = inner.map(Pfn(3)).unwrap();
        assert_eq!((low.base(), maps.depth(&pins[1])), (host.window().open(Pfn(3).addr()).base(), 2));
        // Another CPU meanwhile; to this one, it is as an interrupt would be.
        maps.scope(&pins[0], |other| {
            let _its = other.map(high(1)).unwrap();
            assert_eq!(slots.frame(0), Some(high(1)));
        })
        .unwrap();
        assert_eq!(slots.frame(0), None);
        maps.scope(&pins[1], |interrupt| {
            let _its = interrupt.map(high(9)).unwrap();
            assert_eq!(slots.frame(6), Some(high(9)));
        })
        .unwrap();
        read(&tlbs, 1, slots.page(5), high(2));
        drop(low);
        drop(inner);
        assert!(!knows(&tlbs, 1, BASE + 5 * 4096) && slots.frame(5).is_none());
        let _again = outer.map(high(7)).unwrap();
        read(&tlbs, 1, slots.page(5), high(7));
    })
    .unwrap();
    assert_eq!(maps.depth(&pins[1]), 0);
    assert!((0..8).all(|slot| slots.frame(slot).is_none()));
}

#[test]
fn errors_leave_the_stack_as_it_was() {
    let (host, other) = (host(1), host(1));
    let (tlbs, slots) = (Tlbs::new(), Failing::new(store(&host, 3)));
    let machine = machine(&host, &tlbs);
    let maps = local(&host, &machine, 3, &slots).unwrap();
    let (cpus, others) = (host.slots(), other.slots());
    let pin = cpus[0].pin();
    assert!(maps.scope(&others[0].pin(), |_| ()).is_err());
    maps.scope(&pin, |scope| {
        assert_eq!(scope.map(Pfn::NONE).err(), Some(LocalError::NoSuchFrame(Pfn::NONE)));
        slots.install.store(1, Ordering::Relaxed);
        assert!(matches!(scope.map(high(0)).err(), Some(LocalError::Slot(_))));
        let mut a = scope.map(high(0)).unwrap();
        let mut b = a.map(high(1)).unwrap();
        let mut c = b.map(high(2)).unwrap();
        let full = LocalError::Overflow { cpu: CpuId(0), depth: 3 };
        assert_eq!(c.map(high(3)).err(), Some(full));
        assert_eq!(maps.depth(&pin), 3);
    })
    .unwrap();
    assert_eq!(maps.depth(&pin), 0);
    for (depth, n) in [(0, 4), (33, 64), (4, 3)] {
        let refused = local(&host, &machine, depth, store(&host, n)).err();
        assert_eq!(refused, Some(LocalSetupError::Depth { depth, slots: n }));
    }
}

#[test]
fn guards_of_a_window_go_in_any_order() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 4));
    let machine = machine(&host, &tlbs);
    let maps = local(&host, &machine, 4, &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    maps.scope(&pin, |scope| {
        let window = scope.window();
        let a = window.map(high(1).addr()).unwrap();
        let b = window.map(high(2).addr()).unwrap();
        drop(a);
        // Not used again before the one above has gone, and hidden at once.
        assert_eq!((maps.depth(&pin), slots.frame(0), slots.frame(1)), (2, None, Some(high(2))));
        drop(b);
        assert_eq!(maps.depth(&pin), 0);
    })
    .unwrap();
}

#[test]
fn a_task_finds_its_maps_again_after_a_switch() {
    let host = host(2);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 8));
    let machine = machine(&host, &tlbs);
    let maps = local(&host, &machine, 4, &slots).unwrap();
    let cpus = host.slots();
    let pins = pins(&cpus);
    maps.scope(&pins[0], |scope| {
        let window = scope.window();
        let a = window.map(high(1).addr()).unwrap();
        let hole = window.map(high(2).addr()).unwrap();
        let c = window.map(high(3).addr()).unwrap();
        drop(hole);
        for (slot, pfn) in [(0, high(1)), (2, high(3))] {
            read(&tlbs, 0, slots.page(slot), pfn);
        }
        let mut task = TaskMaps::default();
        // SAFETY: 1. the guards are not used until the switch back.
        unsafe { maps.switch_out(&pins[0], &mut task) }.unwrap();
        assert_eq!((task.len(), maps.depth(&pins[0])), (2, 0));
        assert!((0..4).all(|slot| slots.frame(slot).is_none() && !knows(&tlbs, 0, slots.page(slot))));
        // Another task on that CPU.
        maps.scope(&pins[0], |other| {
            let _its = other.map(high(50)).unwrap();
            assert_eq!(maps.switch_in(&pins[0], &mut task), Err(SwitchError::InUse { maps: 1 }));
        })
        .unwrap();
        let wrong = SwitchError::WrongCpu { of: CpuId(0), on: CpuId(1) };
        assert_eq!(maps.switch_in(&pins[1], &mut task), Err(wrong));
        // SAFETY: 1. as above.
        assert_eq!(unsafe { maps.switch_out(&pins[0], &mut task) }, Err(SwitchError::Saved));
        maps.switch_in(&pins[0], &mut task).unwrap();
        assert!(task.is_empty());
        assert_eq!([0, 1, 2].map(|slot| slots.frame(slot)), [Some(high(1)), None, Some(high(3))]);
        drop((a, c));
        assert_eq!(maps.depth(&pins[0]), 0);
    })
    .unwrap();
}

#[test]
fn forgotten_guards_are_an_error_at_the_next_switch_and_their_slots_come_back() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 4));
    let machine = machine(&host, &tlbs);
    let maps = local(&host, &machine, 4, &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    maps.scope(&pin, |scope| {
        let held = scope.map(high(1)).unwrap();
        maps.scope(&pin, |inner| {
            std::mem::forget(inner.map(high(2)).unwrap());
        })
        .unwrap();
        let mut task = TaskMaps::default();
        // SAFETY: 1. `held` is not used until the switch back.
        let switched = unsafe { maps.switch_out(&pin, &mut task) };
        assert_eq!(switched, Err(SwitchError::Forgotten { guards: 1, first: high(2) }));
        assert_eq!((task.len(), slots.frame(1)), (1, None));
        maps.switch_in(&pin, &mut task).unwrap();
        assert_eq!((slots.frame(0), maps.depth(&pin)), (Some(high(1)), 1));
        drop(held);
        // SAFETY: 1. no map is held.
        unsafe { maps.switch_out(&pin, &mut task) }.unwrap();
    })
    .unwrap();
}
