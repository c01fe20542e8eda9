//! Each call that compares owners is given what belongs to another machine of the same shape. The
//! list `models/owners` takes the comparisons out one by one: a test here fails for each.
use crate::{Areas, LEAF, NORMAL, PAGE, RW, Range, SLOTS, START, color_of, high, host, store, tlbs};
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::cpu::{PerCpu, WrongMachine};
use ptarmigan::format::{Access, Attr, X86_64};
use ptarmigan::frames::{DataError, DataFrames, Dirty, End, Request, ZoneClass};
use ptarmigan::gather::{Gather, GatherError};
use ptarmigan::highmem::local::{LocalMaps, LocalSetupError, SwitchError, TaskMaps};
use ptarmigan::highmem::pool::{Pool, PoolConfig, PoolError, PoolSetupError};
use ptarmigan::machine::{Machine, On};
use ptarmigan::quicklist::{PolicyOn, Quicklists};
use ptarmigan::space::{AreaFlags, FaultError, LockError, SharedSpace, Space, SpaceMachine};
use ptarmigan::table::{ClaimError, KernelMap, KernelRangeError, KernelSlots, MapError, SlotsError, Tree};
use ptarmigan::tlb::{Facts, Runs, Shootdown, SlotSet, Tlb, TlbRefusal};
use ptarmigan::vmalloc::AreaError;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{
    HighConfig, HighError, HighMachine, HighSlots, Host, HostError, HostMachine, Kmap, NoTlb, SlotKind,
};
use ptarmigan_linux::LinuxPool;
use std::sync::Barrier;

/// Two machines of one shape; what belongs to `other` is given to the first.
struct Two<'a, M: Machine> {
    on: On<'a, M>,
    other: On<'a, M>,
}

impl<M: Machine> Two<'_, M> {
    /// What a call of the first answers to what belongs to the other.
    fn error(&self) -> WrongMachine {
        WrongMachine { called: self.on.frames().machine(), given: self.other.frames().machine() }
    }

    /// What a part of the other answers to the first.
    fn turned(&self) -> WrongMachine {
        WrongMachine { called: self.error().given, given: self.error().called }
    }

    fn refusal(&self) -> TlbRefusal {
        TlbRefusal::WrongMachine(self.error())
    }
}

/// Runs `f` with two machines.
fn with_two(f: impl FnOnce(&Host<X86_64>, &Host<X86_64>, &Two<'_, Small<'_>>)) {
    let hosts = [host(), host()];
    let [m, its] =
        [&hosts[0], &hosts[1]].map(|host| HostMachine::new(host, host.quicklists().unwrap(), NoTlb).unwrap());
    let slots = [hosts[0].slots(), hosts[1].slots()];
    let pins = [slots[0][0].pin(), slots[1][0].pin()];
    let two = Two { on: m.on(&pins[0]).unwrap(), other: its.on(&pins[1]).unwrap() };
    f(&hosts[0], &hosts[1], &two);
}

type Lists<'h> = Quicklists<'h, DirectMap, &'h KernelMap<X86_64, DirectMap>>;
type Small<'h> = HostMachine<'h, X86_64, Lists<'h>, NoTlb>;

fn area() -> VirtRange {
    VirtRange::new(0x40_0000, 0x40_0000 + PAGE).unwrap()
}

const VA: VirtAddr = VirtAddr(0x40_0000);

#[test]
fn frames_and_pins_of_another_machine_are_refused() {
    with_two(|host, foreign, two| {
        let (on, other) = (two.on, two.other);
        let request = Request {
            node: on.node(),
            order: 0,
            zero: false,
            class: ZoneClass::High,
            end: End::High,
            flags: NORMAL,
        };
        let frame = other.frames().take(request).unwrap().dirty();
        let refused = on.frames().try_give::<Dirty>(frame).unwrap_err();
        assert_eq!(refused.error, two.error());
        other.frames().try_give(refused.value).unwrap();

        // SAFETY: 1. the window reaches the host's memory.
        let map = unsafe { KernelMap::<X86_64, _>::new(on.frames(), host.window(), request) }.unwrap();
        let Err(map) = map.end(other.frames()) else { panic!("tables go to another machine's frames") };
        assert!(map.end(on.frames()).is_ok());

        let error = Some(DataError::WrongMachine(two.error()));
        let (data, pin, its_pin) = (on.data(), on.pin(), other.pin());
        for (frames, pin) in [(on.frames(), its_pin), (other.frames(), pin)] {
            assert_eq!(data.take(frames, pin, NORMAL).err(), error);
            assert_eq!(data.take_block(frames, pin, 2, NORMAL).err(), error);
            assert_eq!(data.take_zero(frames, pin, NORMAL).err(), error);
        }
        let frame = other.data().take(other.frames(), its_pin, NORMAL).unwrap();
        let its = on.data().take(on.frames(), pin, NORMAL).unwrap();
        assert_eq!(DataFrames::share(on.frames(), &frame).err(), Some(two.error()));
        assert_eq!(DataFrames::is_sole(on.frames(), &frame).err(), Some(two.error()));
        assert_eq!(DataFrames::order_of(on.frames(), &frame).err(), Some(two.error()));
        let refused = data.release(on.frames(), pin, frame).unwrap_err();
        assert_eq!(refused.error, two.error());
        let its = data.release(on.frames(), its_pin, its).unwrap_err().value;
        let its = data.release(other.frames(), pin, its).unwrap_err().value;
        // The lists hold frames that a drain would give back.
        data.release(on.frames(), pin, its).unwrap();
        assert_eq!((data.drain(on.frames(), its_pin), data.drain(other.frames(), pin)), (0, 0));
        assert!(data.drain(on.frames(), pin) > 0);
        other.data().release(other.frames(), its_pin, refused.value).unwrap();

        let per_cpu =
            PerCpu::<u64>::new(&mut host.boot(1 << 12).unwrap(), on.frames().machine(), 1, |_| 0).unwrap();
        assert!(per_cpu.enter(its_pin).is_none() && per_cpu.enter(pin).is_some());
        assert!(PolicyOn::new(on.policy().policy(), its_pin).is_none());
        let made = HostMachine::new(foreign, host.plain().unwrap(), NoTlb).map(drop);
        let Err(HostError::WrongMachine(error)) = made else { panic!("a policy of another host") };
        assert_eq!(error, two.turned());
        assert_eq!(on.machine().on(its_pin).err(), Some(two.error()));
    });
}

#[test]
fn spaces_of_another_machine_are_refused() {
    with_two(|_, _, two| {
        let (on, other, error) = (two.on, two.other, two.error());
        let refusal = Err(two.refusal());
        let mut space = Space::<X86_64>::new(other).unwrap();
        space.edit(other).unwrap().mmap(area(), AreaFlags::READ, 0).unwrap();
        space.fault(other, VA, Access::Read).unwrap();
        assert_eq!(space.edit(on).err(), Some(error));
        assert_eq!(space.fault(on, VA, Access::Read).err(), Some(FaultError::WrongMachine(error)));
        assert_eq!(space.activate(on), refusal);
        assert_eq!(space.rest(on), refusal);
        assert_eq!(space.deactivate(on), refusal);
        assert_eq!(space.areas().each(on, area(), |_| ()), Err(error));
        assert_eq!(space.tree().on(on).err(), Some(error));
        assert_eq!(space.tree().query(on, VA), None);
        assert_eq!(Gather::new(on, space.tlb(), 12).err(), Some(GatherError::Refused(two.refusal())));
        assert_eq!(on.tlb().readers().walk(on.pin(), space.tlb()).err(), Some(two.refusal()));
        let of = other.tlb().readers().walk(on.pin(), space.tlb()).err();
        assert_eq!(of, Some(TlbRefusal::WrongMachine(two.turned())));
        let refused = space.end(on).unwrap_err();
        assert_eq!(refused.error, two.refusal());
        let shared = SharedSpace::new(refused.value);
        assert_eq!(shared.fault(on, VA, Access::Read).err(), Some(FaultError::WrongMachine(error)));
        assert_eq!(shared.query(on, VA).err(), Some(two.refusal()));
        assert_eq!(shared.refill(on, VA, Access::Read, |_| ()).err(), Some(two.refusal()));
        assert_eq!(shared.lock(on).err(), Some(LockError::WrongMachine(error)));
        let space = shared.end(on).unwrap_err().value;
        space.end(other).unwrap();
        let mut tree = Tree::<X86_64>::new(other, NORMAL).unwrap();
        assert_eq!(tree.edit(on).err(), Some(two.refusal()));
        assert_eq!(tree.activate(on), refusal);
        assert_eq!(tree.deactivate(on), refusal);
        let refused = tree.end(on, |_, _, _| {}).unwrap_err();
        assert_eq!(refused.error, two.refusal());
        refused.value.end(other, |_, _, _| {}).unwrap();
    });
}

#[test]
fn ranges_of_the_kernels_half_of_another_machine_are_refused() {
    with_two(|host, foreign, two| {
        let (on, other) = (two.on, two.other);
        let claimed = foreign.kernel().claim(on, VirtAddr(START), LEAF).map(drop);
        assert_eq!(claimed.err(), Some(ClaimError::WrongMachine(two.error())));
        let mut range = host.kernel().claim(on, VirtAddr(START), LEAF).unwrap();
        // SAFETY: 1. nothing uses the frame.
        let map =
            |range: &mut Range<'_>, on| unsafe { range.map(on, VirtAddr(START), high(1), 1, RW, NORMAL) };
        let its = Err(KernelRangeError::WrongMachine(two.turned()));
        assert_eq!(map(&mut range, other), Err(MapError::WrongMachine(two.turned())));
        map(&mut range, on).unwrap();
        assert_eq!(range.query(other, VirtAddr(START)), None);
        assert_eq!(range.protect(other, VirtAddr(START), 1, |attr| attr.without(Attr::WRITE)), its);
        assert_eq!(range.unmap(other, VirtAddr(START), 1, |_, _| {}), its);
        // The other's tables map a page at this address, too.
        let mut others = foreign.kernel().claim(other, VirtAddr(START), LEAF).unwrap();
        map(&mut others, other).unwrap();
        assert!(host.kernel().refill(other, VirtAddr(START), Access::Read).is_none());
        others.release(other, |_, _| {}).ok().unwrap();
        assert!(host.kernel().refill(on, VirtAddr(START), Access::Read).is_some());
        let (refused, range) = range.release(other, |_, _| {}).unwrap_err();
        assert_eq!(Err(refused), its);
        range.release(on, |_, _| {}).ok().unwrap();
        let range = host.kernel().claim(on, VirtAddr(START), LEAF).unwrap();
        let mut boot = host.boot(1 << 17).unwrap();
        let Err(refused) = KernelSlots::new(&mut boot, other, range, RW) else { panic!("slots of another") };
        assert_eq!(refused.error, SlotsError::Map(MapError::WrongMachine(two.turned())));
        refused.value.release(on, |_, _| {}).ok().unwrap();
    });
}

#[test]
fn an_area_of_another_range_or_map_of_the_machine_is_refused() {
    with_two(|host, _, two| {
        let on = two.on;
        let request = Request {
            node: on.node(),
            order: 0,
            zero: true,
            class: ZoneClass::Low,
            end: End::Low,
            flags: NORMAL,
        };
        // SAFETY: 1. the window reaches the host's memory.
        let map = unsafe { KernelMap::<X86_64, _>::new(on.frames(), host.window(), request) }.unwrap();
        let claim = |start| host.kernel().claim(on, VirtAddr(start), LEAF).unwrap();
        let ranges = [claim(START), claim(START + LEAF), map.claim(on, VirtAddr(START), LEAF).unwrap()];
        let made = |range| Areas::new(&mut host.boot(Areas::bytes(LEAF)).unwrap(), range).unwrap();
        let [mut called, others @ ..] = ranges.map(made);
        let mut others: [_; 2] = others;
        let held = called.alloc(on, 4, RW, NORMAL).unwrap();
        for other in &mut others {
            let area = other.alloc(on, 4, RW, NORMAL).unwrap();
            let refused = called.free(on, area).unwrap_err();
            let AreaError::NotHere { of, .. } = refused.error else { panic!("{}", refused.error) };
            assert_eq!(of, other.range().start());
            other.free(on, refused.value).unwrap();
        }
        called.free(on, held).unwrap();
        for areas in others.into_iter().chain([called]) {
            let Ok(range) = areas.into_range() else { panic!("areas are left") };
            range.release(on, |_, _| {}).ok().unwrap();
        }
        assert!(map.end(on.frames()).is_ok());
    });
}

/// Calls of the TLBs' state.
fn tlb_calls<S: Shootdown>(two: &Two<'_, impl Machine<Shootdown = S>>) {
    let (tlb, pin): (&Tlb<S>, _) = (two.on.tlb(), two.other.pin());
    let refusal = Err(two.refusal());
    let (space, foreign) = (tlb.new_space(), two.other.tlb().new_space());
    let stale = Runs::one(START, START + PAGE, 12);
    assert_eq!(tlb.flush_kernel(pin, &stale), refusal);
    assert_eq!(tlb.flush_kernel_tables(pin, &stale), refusal);
    let mut slots = SlotSet::new(START, 12);
    slots.insert(0);
    assert_eq!(tlb.flush_kernel_slots(pin, &slots, &Facts::UNKNOWN), refusal);
    assert_eq!(tlb.rest(pin, &space), refusal);
    assert_eq!(tlb.deactivate(pin, &space), refusal);
    assert_eq!(tlb.deactivate(two.on.pin(), &foreign), refusal);
    assert_eq!(tlb.rest(two.on.pin(), &foreign), refusal);
}

#[test]
fn flushes_and_switches_with_pins_and_spaces_of_another_machine_are_refused() {
    with_two(|_, _, two| tlb_calls(two));
}

#[test]
fn maps_of_high_frames_with_pins_of_another_machine_are_refused() {
    let hosts = [host(), host()];
    let tlbs = [tlbs(), tlbs()];
    let m = machine!(hosts[0], tlbs[0]);
    let cpus = [hosts[0].slots(), hosts[1].slots()];
    let (pin, other) = (cpus[0][0].pin(), cpus[1][0].pin());
    let (frames, low) = (hosts[0].frames(), hosts[0].low_window());
    let error = WrongMachine { called: frames.machine(), given: hosts[1].frames().machine() };
    let slots = store(&hosts[0], SLOTS);
    let mut boot = hosts[0].boot(1 << 18).unwrap();

    let config = PoolConfig { colors: 2, color_of, ..PoolConfig::new(1, SLOTS) };
    // SAFETY: 1. and 2. it is refused: the slots are not used.
    let made = unsafe { Pool::new(&mut boot, config, m.tlb(), hosts[1].frames(), low, &slots, &()) };
    assert_eq!(made.err(), Some(PoolSetupError::WrongMachine(error)));
    // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
    let pool = unsafe { Pool::new(&mut boot, config, m.tlb(), frames, low, &slots, &()) }.unwrap();
    assert_eq!(pool.try_map(&other, high(1)).err(), Some(PoolError::WrongMachine(error)));
    assert_eq!(pool.flush_unused(&other).err(), Some(PoolError::WrongMachine(error)));
    drop(pool.try_map(&pin, high(1)).unwrap());
    pool.idle(&other);
    pool.flush_unused(&pin).unwrap();

    let slots = store(&hosts[0], SLOTS);
    // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
    let pool = unsafe { LinuxPool::new(&mut boot, m.tlb(), frames, low, &slots) }.unwrap();
    assert_eq!(pool.try_map(&other, high(1)).err(), Some(PoolError::WrongMachine(error)));
    pool.try_map(&pin, high(1)).unwrap();
    // SAFETY: 1. it is refused, and then mapped above.
    let unmapped = unsafe { [pool.unmap(&other, high(1)), pool.unmap(&pin, high(1))] };
    assert_eq!(unmapped, [Err(PoolError::WrongMachine(error)), Ok(true)]);
    assert_eq!(pool.flush_unused(&other), Err(PoolError::WrongMachine(error)));

    let slots = store(&hosts[0], SLOTS);
    // SAFETY: 1. and 2. it is refused: the slots are not used.
    let made = unsafe { LocalMaps::new(&mut boot, SLOTS, m.tlb(), hosts[1].frames(), low, &slots) };
    assert_eq!(made.err(), Some(LocalSetupError::WrongMachine(error)));
    // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
    let maps = unsafe { LocalMaps::new(&mut boot, SLOTS, m.tlb(), frames, low, &slots) }.unwrap();
    assert_eq!(maps.scope(&other, |_| ()), Err(error));
    maps.scope(&pin, |scope| {
        let guard = scope.map(high(1)).unwrap();
        let mut task = TaskMaps::default();
        // SAFETY: 1. the guard is not used before the task is switched in.
        let out = unsafe { maps.switch_out(&other, &mut task) };
        assert_eq!(out, Err(SwitchError::WrongMachine(error)));
        // SAFETY: 1. as above.
        unsafe { maps.switch_out(&pin, &mut task) }.unwrap();
        assert_eq!(maps.switch_in(&other, &mut task), Err(SwitchError::WrongMachine(error)));
        maps.switch_in(&pin, &mut task).unwrap();
        drop(guard);
    })
    .unwrap();
}

/// Each of two machines' worth of maps has its own slots: that two have the same does not compile
/// (E0382 in `kmap.rs` of `ptarmigan-hosted`). Fresh pages show no other program's data then.
#[test]
fn machines_on_one_host_with_slots_of_their_own_clear_no_page_of_each_other() {
    const ROUNDS: u64 = 30;
    let config = ptarmigan_hosted::HostConfig {
        cpus: 2,
        bytes: 32 << 20,
        low: 4 << 20,
        touch_data: true,
        use_lines: 8,
        prefault: 0,
        ..Default::default()
    };
    for kmap in [Kmap::Local, Kmap::Pool, Kmap::Linux] {
        let host = Host::<X86_64>::new(config).unwrap();
        let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
        let high = HighConfig { kmap, slots: SlotKind::Store, pool_slots: 64 };
        let made = || -> Result<_, HighError> { HighMachine::new(&m, HighSlots::new(&host, &high)?, &high) };
        let two = [made().unwrap(), made().unwrap()];
        let begin = Barrier::new(2);
        std::thread::scope(|s| {
            for (cpu, m) in two.iter().enumerate() {
                let (host, begin) = (&host, &begin);
                s.spawn(move || {
                    let slot = host.slot(cpu).unwrap();
                    let pin = slot.pin();
                    begin.wait();
                    fill_again_and_again(m.on(&pin).unwrap(), ROUNDS);
                });
            }
        });
    }
}

/// Programs that fill fresh pages, which the machine compares with zero.
fn fill_again_and_again<M: SpaceMachine>(on: On<'_, M>, rounds: u64) {
    for _ in 0..rounds {
        let mut space = Space::<X86_64>::new(on).unwrap();
        let heap = VirtRange::new(VA.0, VA.0 + 64 * PAGE).unwrap();
        let flags = AreaFlags::READ.with(AreaFlags::WRITE);
        space.edit(on).unwrap().mmap(heap, flags, 0).unwrap();
        for at in (heap.start..heap.end).step_by(PAGE as usize) {
            space.fault(on, VirtAddr(at), Access::Write).unwrap();
        }
        space.end(on).unwrap();
    }
}
