//! Checks the state after the MMU's code, or a policy's, has unwound.
use crate::common::{self, Mmus};
use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::CpuId;
use ptarmigan::format::{Access, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{AreaFlags, Space};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::test::{Call, LayerCall, Method, TestLayer, TestMmu};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_linux::Rules;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

type X = X86_64;
const PAGE: u64 = 4096;
const VA: u64 = 0x40_0000;
const LEAF: u64 = 2 << 20;

fn small(cpus: usize) -> HostConfig {
    HostConfig { cpus, bytes: 16 << 20, touch_data: true, prefault: 0, ..HostConfig::default() }
}

fn unwinds<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err()
}

/// A moment of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    BeforeTheRegister,
    AfterTheRegister,
}

/// Has the next load fail.
fn fail_next<T, V: Clone>(mmu: &TestMmu<'_, T, V>, moment: Moment) {
    let loads = |call: &Call| call.method() == Method::Load;
    match moment {
        Moment::BeforeTheRegister => mmu.before_next(loads, |_| panic!("the MMU's code fails")),
        Moment::AfterTheRegister => mmu.after_next(loads, |_| panic!("the MMU's code fails")),
    }
}

#[test]
fn a_load_that_failed_has_not_forgotten_what_its_number_was_before() {
    let host = Host::<X>::new(small(1)).unwrap();
    let mmu = TestMmu::new();
    let config = TlbConfig { asids: 1, ..TlbConfig::new(1) };
    let policy = host.quicklists().unwrap();
    let m = HostMachine::with_tlb(&host, policy, &mmu, config, Delivery::AtOnce).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    let (a, b) = (Space::<X>::new(on).unwrap(), Space::<X>::new(on).unwrap());
    a.activate(on).unwrap();
    a.deactivate(on).unwrap();
    fail_next(&mmu, Moment::BeforeTheRegister);
    assert!(unwinds(|| b.activate(on)));
    b.activate(on).unwrap();
    let last = mmu.loaded(CpuId(0)).unwrap();
    assert_eq!((last.space, last.asid), (b.tlb().id(), 1));
    assert!(!last.keep, "the TLB holds translations of the other space under this number");
}

#[test]
fn a_load_that_failed_has_not_forgotten_all_numbers() {
    let host = Host::<X>::new(small(1)).unwrap();
    let mmu = TestMmu::<Mmus<true>>::default();
    let config = TlbConfig { asids: 2, ..TlbConfig::new(1) };
    let policy = host.quicklists().unwrap();
    let m = HostMachine::with_tlb(&host, policy, &mmu, config, Delivery::AtOnce).unwrap();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let on = m.on(&pin).unwrap();
    let spaces: Vec<_> = (0..3).map(|_| Space::<X>::new(on).unwrap()).collect();
    for space in &spaces[..2] {
        space.activate(on).unwrap();
        space.deactivate(on).unwrap();
    }
    // The third needs a rollover.
    fail_next(&mmu, Moment::BeforeTheRegister);
    assert!(unwinds(|| spaces[2].activate(on)));
    spaces[2].activate(on).unwrap();
    let last = mmu.loaded(CpuId(0)).unwrap();
    assert!(last.forget_all, "{last:?}: under this number the TLB holds what another space left");
    // Once is enough.
    spaces[2].deactivate(on).unwrap();
    spaces[2].activate(on).unwrap();
    assert!(!mmu.loaded(CpuId(0)).unwrap().forget_all);
}

/// CPU 1 keeps a space lazily and fails to load another; then `after`, with both.
fn failed_load(moment: Moment, after: impl FnOnce(&TestMmu<'_>, [PhysAddr; 2], &dyn Fn(usize))) {
    let host = Host::<X>::new(small(2)).unwrap();
    let mmu = TestMmu::new();
    let slots = host.slots();
    let pins: Vec<_> = slots.iter().map(|slot| slot.pin()).collect();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &mmu).unwrap();
    let (on0, on1) = (m.on(&pins[0]).unwrap(), m.on(&pins[1]).unwrap());
    let (old, new) = (Space::<X>::new(on0).unwrap(), Space::<X>::new(on0).unwrap());
    let roots = [old.tree().root(), new.tree().root()];
    old.activate(on1).unwrap();
    old.rest(on1).unwrap();
    fail_next(&mmu, moment);
    assert!(unwinds(|| new.activate(on1)));
    let spaces = Mutex::new([Some(old), Some(new)]);
    after(&mmu, roots, &|which| {
        let space = spaces.lock().unwrap()[which].take().unwrap();
        space.end(on0).unwrap();
    });
}

#[test]
fn a_cpu_whose_load_failed_leaves_both_spaces_before_they_end() {
    for moment in [Moment::BeforeTheRegister, Moment::AfterTheRegister] {
        for which in [0, 1] {
            failed_load(moment, |mmu, roots, end| {
                end(which);
                let loaded = mmu.loaded(CpuId(1)).map(|root| root.at);
                assert_ne!(loaded, Some(roots[which]), "CPU 1 walks tables that are handed out again");
            });
        }
    }
}

#[test]
fn a_space_whose_load_failed_can_be_loaded_then() {
    let host = Host::<X>::new(small(1)).unwrap();
    let mmu = TestMmu::new();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &mmu).unwrap();
    let on = m.on(&pin).unwrap();
    let space = Space::<X>::new(on).unwrap();
    for moment in [Moment::BeforeTheRegister, Moment::AfterTheRegister] {
        fail_next(&mmu, moment);
        assert!(unwinds(|| space.activate(on)));
        assert!(!space.tlb().is_active_on(pin.cpu()));
        space.activate(on).unwrap();
        assert!(space.tlb().is_active_on(pin.cpu()));
        assert_eq!(mmu.loaded(CpuId(0)).map(|root| root.at), Some(space.tree().root()));
        space.deactivate(on).unwrap();
    }
    space.end(on).unwrap();
}

#[test]
fn the_next_flush_makes_up_for_one_that_a_layer_kept_from_beginning() {
    let rw = AreaFlags::READ.with(AreaFlags::WRITE);
    let page = |start| VirtRange::new(start, start + PAGE).unwrap();
    let host = Host::<X>::new(small(2)).unwrap();
    let model = TestMmu::new();
    let slots = host.slots();
    let (pin, pin1) = (slots[0].pin(), slots[1].pin());
    // This policy takes tables before the flush, and the layer is told of them then.
    let fails = AtomicBool::new(true);
    let layer = TestLayer::new(Some(host.frames()), |_, call| {
        if let LayerCall::Freeing(..) = call {
            assert!(!fails.swap(false, SeqCst), "the layer's code fails");
        }
    });
    let policy = Layered::new(layer, common::historic(&host, Rules::V5, 2).unwrap()).unwrap();
    let m = HostMachine::new(&host, policy, &model).unwrap();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<X>::new(on).unwrap();
    for va in [VA, VA + LEAF] {
        space.edit(on).unwrap().mmap(page(va), rw, 0).unwrap();
        space.fault(on, VirtAddr(va), Access::Write).unwrap();
    }
    space.activate(m.on(&pin1).unwrap()).unwrap();
    let (frame, _) = space.tree().query(on, VirtAddr(VA)).unwrap();
    assert_eq!(model.access(CpuId(1), VA, Some(frame)), Some(frame));
    assert!(unwinds(|| space.edit(on).unwrap().munmap(page(VA))));
    // No page is left that could be flushed.
    space.edit(on).unwrap().munmap(page(VA)).unwrap();
    space.edit(on).unwrap().mmap(page(VA), rw, 0).unwrap();
    space.fault(on, VirtAddr(VA), Access::Write).unwrap();
    space.edit(on).unwrap().munmap(page(VA + LEAF)).unwrap();
    assert_eq!(model.knows(CpuId(1), VA), None, "CPU 1 writes to a frame that the space has not any more");
}
