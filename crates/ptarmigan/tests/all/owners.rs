//! Objects of one owner are refused by another, by an error that names both.
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::cpu::{MachineId, Pinned, Refused, WrongMachine};
use ptarmigan::format::{Access, Attr, Format, I386, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::highmem::local::{LocalMaps, SwitchError, TaskMaps};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::{Charge, Charged, Layered, Owner};
use ptarmigan::space::{AreaError as SpaceError, AreaFlags, Space};
use ptarmigan::table::{KernelSlots, SlotsError};
use ptarmigan::vmalloc::{AreaError, Vmalloc};
use ptarmigan::window::{DirectMap, Window, WindowGuard};
use ptarmigan_hosted::{
    HighConfig, HighError, HighMachine, HighSlots, Host, HostConfig, HostMachine, Kmap, NoTlb, SlotKind,
    StoreSlots,
};

type Areas<'k> = Vmalloc<'k, X86_64, DirectMap>;

const LEAF: u64 = 2 << 20;
const START: u64 = 0xffff_c000_0000_0000;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0);
const NORMAL: AllocFlags = AllocFlags::NORMAL;
/// The first high frame of [`host`].
const HIGH: u32 = 1024;

fn host() -> Host<X86_64> {
    let config = HostConfig { bytes: 32 << 20, low: 4 << 20, cpus: 2, prefault: 0, ..HostConfig::default() };
    Host::new(config).unwrap()
}

fn machine_of(host: &Host<X86_64>) -> MachineId {
    host.frames().machine()
}

fn high(n: u32) -> Pfn {
    Pfn(HIGH + n)
}

#[test]
fn slots_of_another_host_are_refused() {
    let (host, other) = (host(), host());
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    for kmap in [Kmap::Local, Kmap::Pool, Kmap::Linux] {
        let config = HighConfig { kmap, slots: SlotKind::Store, pool_slots: 64 };
        let slots = HighSlots::new(&other, &config).unwrap();
        let refused = HighMachine::new(&m, slots, &config).map(drop).unwrap_err();
        let both = WrongMachine { called: machine_of(&host), given: machine_of(&other) };
        assert_eq!(refused, HighError::WrongMachine(both), "{kmap:?}");
    }
}

#[test]
fn an_area_of_another_host_frees_and_changes_nothing() {
    let (host, other) = (host(), host());
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let its = HostMachine::new(&other, other.plain().unwrap(), NoTlb).unwrap();
    let (cpus, its_cpus) = (host.slots(), other.slots());
    let (pin, its_pin) = (cpus[0].pin(), its_cpus[0].pin());
    let (on, its_on) = (m.on(&pin).unwrap(), its.on(&its_pin).unwrap());
    let range = host.kernel().claim(on, VirtAddr(START), LEAF).unwrap();
    let mut areas = Areas::new(&mut host.boot(Areas::bytes(LEAF)).unwrap(), range).unwrap();
    let range = other.kernel().claim(its_on, VirtAddr(START), LEAF).unwrap();
    let mut others = Areas::new(&mut other.boot(Areas::bytes(LEAF)).unwrap(), range).unwrap();
    // Roots of hosts of one shape lie at one place: the address of the root is no identity.
    let foreign = others.alloc(its_on, 9, RW, NORMAL).unwrap();
    let held = [areas.alloc(on, 4, RW, NORMAL).unwrap(), areas.alloc(on, 4, RW, NORMAL).unwrap()];
    assert_eq!(foreign.start(), held[0].start());
    let both = WrongMachine { called: machine_of(&host), given: machine_of(&other) };
    let both = AreaError::WrongMachine(both);
    let changed = areas.protect(on, &foreign, |attr| attr.without(Attr::WRITE));
    assert_eq!(changed.unwrap_err(), both);
    let Err(Refused { value: foreign, error }) = areas.free(on, foreign) else { panic!("freed elsewhere") };
    assert_eq!(error, both);
    for area in held {
        assert!(areas.range().query(on, area.start()).is_some_and(|(_, attr)| attr.has(Attr::WRITE)));
        areas.free(on, area).unwrap();
    }
    others.free(its_on, foreign).unwrap();
    assert!(areas.into_range().is_ok() && others.into_range().is_ok());
}

/// Store slots of `host`.
fn store(host: &Host<X86_64>, n: usize) -> StoreSlots {
    let mut boot = host.boot(StoreSlots::bytes(n)).unwrap();
    // SAFETY: 1. it reaches all frames of the host.
    unsafe { StoreSlots::new(&mut boot, n, 0xffff_d000_0000_0000, host.window()) }.unwrap()
}

macro_rules! local {
    ($host:expr, $m:expr, $depth:expr, $slots:expr) => {{
        let mut boot = $host.boot(1 << 16).unwrap();
        let (frames, low) = ($host.frames(), $host.low_window());
        // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
        unsafe { LocalMaps::new(&mut boot, $depth, $m.tlb(), frames, low, $slots) }.unwrap()
    }};
}

#[test]
fn saved_maps_go_back_to_the_maps_that_they_are_of() {
    let host = host();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let (slots, few) = (store(&host, 64), store(&host, 4));
    let (deep, flat) = (local!(host, m, 8, &slots), local!(host, m, 2, &few));
    let cpus = host.slots();
    let pins = [cpus[0].pin(), cpus[1].pin()];
    flat.scope(&pins[1], |other| {
        let live = other.map(high(99)).unwrap();
        deep.scope(&pins[0], |scope| {
            let window = scope.window();
            let guards: Vec<_> = (0..8).map(|n| window.map(high(n).addr()).unwrap()).collect();
            let mut task = TaskMaps::default();
            // SAFETY: 1. no code uses the guards before `task` is switched in.
            unsafe { deep.switch_out(&pins[0], &mut task) }.unwrap();
            let refused = flat.switch_in(&pins[0], &mut task).unwrap_err();
            let SwitchError::OtherMaps { of, called } = refused else { panic!("{refused}") };
            assert_ne!(of, called);
            let text = refused.to_string();
            assert!(text.contains(&format!("{of:?}")) && text.contains(&format!("{called:?}")), "{text}");
            assert_eq!((few.frame(2), flat.depth(&pins[0]), task.len()), (Some(high(99)), 0, 8));
            deep.switch_in(&pins[0], &mut task).unwrap();
            assert!((0..8).all(|n| slots.frame(n) == Some(high(n as u32))));
            drop(guards);
        })
        .unwrap();
        assert!(!live.base().is_null());
    })
    .unwrap();
}

#[test]
fn a_guard_of_an_outer_scope_outlives_inner_scopes_and_switches() {
    let host = host();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let slots = store(&host, 16);
    let maps = local!(host, m, 4, &slots);
    let cpus = host.slots();
    let pin = cpus[0].pin();
    maps.scope(&pin, |outer| {
        let window = outer.window();
        let mut kept = None;
        maps.scope(&pin, |inner| {
            kept = window.map(high(1).addr()).ok();
            std::mem::forget(inner.map(high(2)).unwrap());
        })
        .unwrap();
        let mut task = TaskMaps::default();
        // SAFETY: 1. no code uses `kept` before `task` is switched in.
        let out = unsafe { maps.switch_out(&pin, &mut task) };
        // The one that was forgotten, not the one below it that lives.
        assert_eq!(out, Err(SwitchError::Forgotten { guards: 1, first: high(2) }));
        assert_eq!((task.len(), slots.frame(0), slots.frame(1)), (1, None, None));
        maps.scope(&pin, |other| drop(other.map(high(77)).unwrap())).unwrap();
        maps.switch_in(&pin, &mut task).unwrap();
        assert_eq!(slots.frame(0), Some(high(1)));
        maps.scope(&pin, |scope| {
            let new = scope.map(high(5)).unwrap();
            drop(kept.take());
            assert_eq!((slots.frame(0), slots.frame(1)), (None, Some(high(5))));
            drop(new);
        })
        .unwrap();
        assert_eq!(maps.depth(&pin), 0);
    })
    .unwrap();
}

struct Free;

impl Charge for Free {
    fn charge(&self, _: &Pinned<'_>, _: Level, _: usize) -> Option<Owner> {
        Some(Owner(std::num::NonZeroU32::MIN))
    }
    fn uncharge(&self, _: Owner, _: Level, _: usize) {}
}

#[test]
fn a_layer_for_the_frames_of_one_host_is_refused_over_anothers() {
    let (host, other) = (host(), host());
    let charged = |host: &'_ Host<X86_64>| {
        let mut boot = host.boot(Charged::<Free>::bytes(&host.frames().size())).unwrap();
        Layered::new(
            Charged::new(&mut boot, other.frames(), X86_64::LAYOUT, Free).unwrap(),
            host.plain().unwrap(),
        )
        .map(drop)
        .map_err(|refused| refused.error)
    };
    let both = WrongMachine { called: machine_of(&host), given: machine_of(&other) };
    assert_eq!(charged(&host), Err(both));
    assert_eq!(charged(&other), Ok(()));
}

#[test]
fn slots_that_programs_could_reach_are_refused() {
    let host = host();
    let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let on = m.on(&pin).unwrap();
    let range = host.kernel().claim(on, VirtAddr(START), LEAF).unwrap();
    let mut boot = host.boot(1 << 16).unwrap();
    let made = KernelSlots::new(&mut boot, on, range, RW | Attr::USER);
    let Err(Refused { value: range, error }) = made else { panic!("programs reach every frame in a slot") };
    assert_eq!(error, SlotsError::ForUser);
    range.release(on, |_, _| panic!("the range maps nothing")).ok().unwrap();
}

/// Calls with the extremes of addresses and levels, and checks their results.
fn extremes<F: Format>() {
    let config = HostConfig { bytes: 16 << 20, prefault: 0, ..HostConfig::default() };
    let host = Host::<F>::new(config).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<F>::new(on).unwrap();
    let range = VirtRange::fixed::<0x40_0000, 0x60_0000>();
    let mut edit = space.edit(on).unwrap();
    edit.mmap(range, AreaFlags::READ.with(AreaFlags::WRITE), 0).unwrap();
    for va in [0, F::USER_END.wrapping_sub(1), F::USER_END, 1 << 63, u64::MAX - 4096, u64::MAX] {
        let refused = edit.copy_on_fork(VirtAddr(va));
        assert!(matches!(refused, Err(SpaceError::NoArea(_))), "{} {va:#x}: {refused:?}", F::NAME);
    }
    for level in (0..=u8::MAX).map(Level) {
        let levels = F::LAYOUT.levels;
        let expected = if level.0 < levels { Ok(()) } else { Err(SpaceError::NoSuchLevel { level, levels }) };
        assert_eq!(edit.make_tables(range, level), expected, "{}", F::NAME);
    }
    space.fault(on, VirtAddr(range.start), Access::Write).unwrap();
    for level in (0..=u8::MAX).map(Level) {
        assert_eq!(space.tree().count(level) != 0, level.0 < F::LAYOUT.levels, "{} {level:?}", F::NAME);
    }
    space.end(on).unwrap();
}

#[test]
fn extremes_of_addresses_and_levels_are_refused() {
    extremes::<X86_64>();
    extremes::<X86Pae>();
    extremes::<I386>();
}
