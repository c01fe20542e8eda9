//! Hosts: which machine has one, and which thread owns its CPUs.
use crate::common;

use common::{Mmus, small, va};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::cpu::{CpuId, CpuSet, Pinned};
use ptarmigan::format::{Access, Attr, Format, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::{Charge, Charged, Layered, Owner};
use ptarmigan::space::{AreaFlags, Space};
use ptarmigan::table::Tree;
use ptarmigan::tlb::{Ipi, TlbConfig};
use ptarmigan_hosted::test::{Method, TestMmu};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostError, HostMachine, NoTlb};
use std::cell::Cell;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

type F = X86_64;
const AREA: VirtRange = VirtRange::fixed::<0x40_0000, 0x40_1000>();

#[test]
fn more_memory_than_the_host_can_map_is_refused() {
    // On 32 bits, 5 GiB would be a mapping of 1 GiB beside records for all of it.
    let absurd = if usize::BITS > 32 { [9 << 40, u64::MAX] } else { [5 << 30, u64::MAX] };
    for bytes in absurd {
        let refused = Host::<X86_64>::new(HostConfig { bytes, ..HostConfig::default() }).err();
        assert!(matches!(refused, Some(HostError::OutOfRange(_))), "{refused:?}");
    }
    assert!(Host::<X86_64>::new(HostConfig::default()).is_ok());
}

#[test]
fn a_host_has_one_machine_at_a_time() {
    let host = Host::<F>::new(small(1, 1, 16)).unwrap();
    let lists = || host.quicklists().unwrap();
    let one = HostMachine::new(&host, lists(), NoTlb).unwrap();
    // Roots that CPUs have loaded through `one` are not known here: a flush would not reach it.
    assert_eq!(HostMachine::new(&host, lists(), NoTlb).err(), Some(HostError::InUse));
    drop(one);
    assert!(HostMachine::new(&host, lists(), NoTlb).is_ok());
    // A machine that was refused for another reason has not taken the host.
    let other = Host::<F>::new(small(1, 1, 16)).unwrap();
    let refused = HostMachine::new(&host, other.quicklists().unwrap(), NoTlb).err();
    assert!(matches!(refused, Some(HostError::WrongMachine(_))));
    assert!(HostMachine::new(&host, lists(), NoTlb).is_ok());
}

#[test]
fn spaces_of_two_machines_of_a_host_have_names_of_their_own() {
    let host = Host::<F>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let mut names = Vec::new();
    for _ in 0..3 {
        let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
        let on = m.on(&pin).unwrap();
        for _ in 0..2 {
            let space = Space::<F>::new(on).unwrap();
            names.push(space.tlb().id());
            space.activate(on).unwrap();
            space.deactivate(on).unwrap();
            space.end(on).unwrap();
        }
    }
    names.dedup();
    assert_eq!(names.len(), 6);
    assert!(names.is_sorted());
}

/// Else the policy of the next machine would be given tables of this one's.
#[test]
fn a_host_whose_tables_have_owners_gets_no_other_machine() {
    const RANGE: VirtAddr = VirtAddr(0xffff_c000_0000_0000);
    for (what, next) in [
        ("nothing", None),
        ("a space", Some(HostError::InUse)),
        ("a tree", Some(HostError::InUse)),
        ("a range", Some(HostError::InUse)),
        ("a range that was left", Some(HostError::InUse)),
    ] {
        let host = Host::<F>::new(small(2, 1, 16)).unwrap();
        let slots = host.slots();
        let pins = [slots[0].pin(), slots[1].pin()];
        let m = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
        let on = pins.each_ref().map(|pin| m.on(pin).unwrap());
        // Those that end count no more, on whichever CPU.
        Space::<F>::new(on[0]).unwrap().end(on[1]).unwrap();
        Tree::<F>::new(on[1], AllocFlags::NORMAL).unwrap().end(on[0], |_, _, _| {}).unwrap();
        let range = host.kernel().claim(on[0], RANGE, 2 << 20).unwrap();
        range.release(on[1], |_, _| {}).map_err(|(e, _)| e).unwrap();
        match what {
            "a space" => drop(Space::<F>::new(on[0]).unwrap()),
            "a tree" => drop(Tree::<F>::new(on[0], AllocFlags::NORMAL).unwrap()),
            "a range" => drop(host.kernel().claim(on[0], RANGE, 2 << 20).unwrap()),
            "a range that was left" => {
                let mut range = host.kernel().claim(on[0], RANGE, 2 << 20).unwrap();
                // SAFETY: 1. no code goes through the page.
                unsafe { range.map(on[0], RANGE, Pfn(1), 1, Attr::READ, AllocFlags::NORMAL).unwrap() };
                let leave = || drop(range.release(on[0], |_, _| panic!("the owner's code fails")));
                catch_unwind(AssertUnwindSafe(leave)).unwrap_err();
            }
            _ => {}
        }
        drop(m);
        assert_eq!(HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).err(), next, "{what} is left");
    }
}

/// Fails the first time that it is asked.
#[derive(Default)]
struct Failing(AtomicBool);

impl Charge for &Failing {
    fn charge(&self, _: &Pinned<'_>, _: Level, _: usize) -> Option<Owner> {
        assert!(self.0.swap(true, SeqCst), "the hook fails");
        Some(Owner(NonZeroU32::MIN))
    }
    fn uncharge(&self, _: Owner, _: Level, _: usize) {}
}

#[test]
fn a_range_whose_claim_has_unwound_is_an_owner_until_it_is_released() {
    const RANGE: VirtAddr = VirtAddr(0xffff_c000_0000_0000);
    for (claimed_again, tree, next) in
        [(false, false, Some(HostError::InUse)), (true, false, None), (true, true, Some(HostError::InUse))]
    {
        let (host, hook) = (Host::<F>::new(small(1, 1, 16)).unwrap(), Failing::default());
        let mut boot = host.boot(Charged::<&Failing>::bytes(&host.frames().size())).unwrap();
        let layer = Charged::new(&mut boot, host.frames(), F::LAYOUT, &hook).unwrap();
        let policy = Layered::new(layer, host.plain().unwrap()).map_err(|refused| refused.error).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let m = HostMachine::new(&host, policy, NoTlb).unwrap();
        let on = m.on(&pin).unwrap();
        let claim = || host.kernel().claim(on, RANGE, 2 << 20).unwrap();
        catch_unwind(AssertUnwindSafe(|| drop(claim()))).unwrap_err();
        if claimed_again {
            claim().release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
        }
        if tree {
            drop(Tree::<F>::new(on, AllocFlags::NORMAL).unwrap());
        }
        drop(m);
        assert_eq!(HostMachine::new(&host, host.plain().unwrap(), NoTlb).err(), next);
    }
}

#[test]
fn a_host_whose_cpus_have_spaces_loaded_gets_no_other_machine() {
    let host = Host::<F>::new(small(2, 1, 16)).unwrap();
    let mmu = TestMmu::new();
    let slots = host.slots();
    let pins = [slots[0].pin(), slots[1].pin()];
    let one = HostMachine::new(&host, host.plain().unwrap(), &mmu).unwrap();
    let on = pins.each_ref().map(|pin| one.on(pin).unwrap());
    let mut space = Space::<F>::new(on[0]).unwrap();
    space.edit(on[0]).unwrap().mmap(AREA, AreaFlags(3), 0).unwrap();
    space.fault(on[0], va(AREA.start), Access::Write).unwrap();
    space.activate(on[1]).unwrap();
    space.rest(on[1]).unwrap();
    // A flush of the next machine would skip CPU 1.
    drop(one);
    assert_eq!(HostMachine::new(&host, host.plain().unwrap(), &mmu).err(), Some(HostError::InUse));
}

#[test]
fn a_host_whose_cpus_share_numbers_of_spaces_gets_no_other_machine() {
    let host = Host::<F>::new(small(1, 1, 16)).unwrap();
    let config = TlbConfig { asids: 4, ..TlbConfig::new(1) };
    let mmu = TestMmu::<Mmus<true>>::default();
    let make = || HostMachine::with_tlb(&host, host.plain().unwrap(), &mmu, config, Delivery::AtOnce);
    drop(make().unwrap());
    let slots = host.slots();
    let pin = slots[0].pin();
    let m = make().unwrap();
    // From here on numbers may have been handed out, which TLBs remember.
    Space::<F>::new(m.on(&pin).unwrap()).unwrap().end(m.on(&pin).unwrap()).unwrap();
    drop(m);
    assert_eq!(make().err(), Some(HostError::InUse));
}

#[test]
fn a_cpu_without_a_thread_is_nobodys_after_its_mmu_has_failed() {
    let host = Host::<F>::new(small(2, 1, 16)).unwrap();
    let mmu = TestMmu::new();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &mmu).unwrap();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<F>::new(on).unwrap();
    space.edit(on).unwrap().mmap(AREA, AreaFlags(3), 0).unwrap();
    space.fault(on, va(AREA.start), Access::Write).unwrap();
    {
        let slot = host.slot(1).unwrap();
        space.activate(m.on(&slot.pin()).unwrap()).unwrap();
    }
    mmu.before_next(|call| call.method() == Method::Invalidate, |_| panic!("the MMU's code fails"));
    let unmapped = catch_unwind(AssertUnwindSafe(|| space.edit(on).unwrap().munmap(AREA)));
    assert!(unmapped.is_err());
    assert!(host.slot(1).is_some(), "no thread owns CPU 1, and none can have it");
}

#[test]
fn a_cpu_is_its_threads_for_as_long_as_that_acts_for_it() {
    let host = Host::<F>::new(small(2, 1, 16)).unwrap();
    let m = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let messages = m.tlb().hardware().messages();
    let slot = host.slot(0).unwrap();
    let pin = slot.pin();
    let one = CpuSet::default().with(CpuId(1));
    let taken_elsewhere = || std::thread::scope(|t| t.spawn(|| host.slot(1).is_some()).join().unwrap());
    let own = Cell::new(host.slot(1));
    let calls = Cell::new(0);
    let check = |pin: &Pinned<'_>| {
        let on = m.on(pin).unwrap();
        assert!(!taken_elsewhere(), "two threads are CPU 1");
        assert!(host.slot(1).is_none(), "one thread is CPU 1 twice");
        assert_eq!(on.cpu(), CpuId(1));
        calls.set(calls.get() + 1);
    };
    messages.send(&pin, &one, &|pin1| {
        check(pin1);
        // The slot goes in the middle; and in the middle of another message.
        messages.send(pin1, &one, &|pin1| {
            drop(own.take());
            check(pin1);
        });
        check(pin1);
    });
    // Nobody's: the same holds while it is borrowed.
    messages.send(&pin, &one, &|pin1| {
        messages.send(pin1, &one, &check);
        check(pin1);
    });
    assert_eq!(calls.get(), 5);
    assert!(taken_elsewhere(), "it was given back");
    own.set(host.slot(1));
    // Also if the message's code fails after it has dropped the slot.
    let failed = catch_unwind(AssertUnwindSafe(|| {
        messages.send(&pin, &one, &|_| {
            drop(own.take());
            panic!("the message's code fails");
        });
    }));
    assert!(failed.is_err() && taken_elsewhere());
}
