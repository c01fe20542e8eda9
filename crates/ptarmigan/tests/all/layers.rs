//! Layers around policies: every call arrives at the policy inside, every hook is told of its
//! events, and pages are said to come back before the policy gets them.
use crate::common;
use common::{At, small};
use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::{MachineId, NodeId, Pinned};
use ptarmigan::format::X86_64;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::machine::Machine;
use ptarmigan::page::{Clean, Flushed, FlushedLeaves, Level, Unhooked};
use ptarmigan::quicklist::{Here, Layer, Layered, Policy, PolicyCounts, PolicyOn, Returned, TakesUnhooked};
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan_hosted::test::{LayerCall, TestLayer};
use ptarmigan_hosted::{CpuSlot, Host, HostMachine, NoTlb};
use ptarmigan_linux::Rules;
use std::sync::Mutex;

/// The calls, in order.
#[derive(Default)]
struct Calls(Mutex<Vec<String>>);

impl Calls {
    fn add(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A policy that writes its calls down, and answers with figures that are seen outside.
struct Recording<'c> {
    calls: &'c Calls,
    machine: MachineId,
}

// SAFETY: 1. all are constants or a field, but pages are no frames. 2. they are of the level that
// is asked for. 3. no page is ever linked: tests look at the calls alone. 4. proofs go to no
// other policy.
unsafe impl Policy for Recording<'_> {
    fn machine(&self) -> MachineId {
        self.machine
    }
    fn cpus(&self) -> usize {
        3
    }
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        Some(self)
    }
    fn alloc(&self, _: Here<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        self.calls.add(format!("alloc {} {}", level.0, flags.may_sleep));
        // SAFETY: 1. to 3. nobody ever looks at a page of this policy; it forgets those that come
        // back.
        Ok(unsafe { Clean::from_raw(PhysAddr(0x5000), level) })
    }
    fn alloc_at_hand(&self, _: Here<'_>, _: Level, _: AllocFlags) -> Option<Clean> {
        None
    }
    fn adopt(&self, _: Here<'_>, page: &Clean) {
        self.calls.add(format!("adopt {} {}", page.level().0, page.addr()));
    }
    fn free_unlinked(&self, _: Here<'_>, page: Returned<Clean>) {
        self.calls.add(format!("free_unlinked {} {}", page.level().0, page.into_inner().into_raw()));
    }
    fn flushed(&self, _: Here<'_>, pages: Returned<Flushed>) {
        self.calls.add(format!("flushed {}", pages.len()));
    }
    fn flushed_leaves<'t>(
        &self,
        _: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        Err(pages)
    }
    fn gather_end(&self, here: Here<'_>) {
        self.calls.add(format!("gather_end {}", here.cpu().0));
    }
    fn idle(&self, here: Here<'_>) {
        self.calls.add(format!("idle {}", here.cpu().0));
    }
    fn end_interval(&self, here: Here<'_>) -> u32 {
        self.calls.add(format!("end_interval {}", here.cpu().0));
        11
    }
    fn reclaim(&self, _: Here<'_>, node: NodeId, want: u32) -> u32 {
        self.calls.add(format!("reclaim {} {want}", node.0));
        12
    }
    fn drain(&self, here: Here<'_>) {
        self.calls.add(format!("drain {}", here.cpu().0));
    }
    fn counts(&self) -> PolicyCounts {
        let mut counts = PolicyCounts::default();
        counts.levels[0].allocs = 13;
        counts
    }
}

// SAFETY: pages are no frames, it takes none, and passes nothing on.
unsafe impl TakesUnhooked for Recording<'_> {
    fn take_unhooked(
        &self,
        _: Here<'_>,
        pages: Returned<&mut Unhooked>,
        taking: &mut dyn FnMut(Level, PhysAddr),
    ) {
        self.calls.add(format!("take_unhooked {}", pages.len()));
        taking(Level(1), PhysAddr(0x6000));
        self.calls.add("taken");
    }
}

/// A layer with the required items only.
struct Bare;

// SAFETY: 1. `alloc` is the default.
unsafe impl<P: Policy> Layer<P> for Bare {
    fn frames(&self) -> Option<&Frames> {
        None
    }
}

/// A layer that writes every hook down.
fn told<'c>(
    name: &'static str,
    calls: &'c Calls,
    frames: &'c Frames,
) -> TestLayer<'c, impl Fn(&Pinned<'_>, LayerCall) + Sync> {
    TestLayer::new(Some(frames), move |_: &Pinned<'_>, call| {
        let hook = match call {
            LayerCall::Alloc(_) => "alloc",
            LayerCall::Allocated(..) => "allocated",
            LayerCall::Freeing(level, at) => &format!("freeing {} {at}", level.0),
            LayerCall::FreeUnlinked(_) => "free_unlinked",
            LayerCall::Flushed(_) => "flushed",
            LayerCall::AfterFlushed => "after_flushed",
            LayerCall::GatherEnd => "gather_end",
            LayerCall::Idle => "idle",
            LayerCall::EndInterval => "end_interval",
            LayerCall::Reclaim(..) => "reclaim",
            LayerCall::Drain => "drain",
            LayerCall::Adopted(_) => "adopted",
        };
        calls.add(format!("{name}: {hook}"));
    })
}

/// Makes each call of a policy once.
fn call_all(policy: &impl Policy, pin: &Pinned<'_>) {
    let here = policy.at(pin);
    let page = here.alloc(Level(2), AllocFlags::ATOMIC).expect("this policy has any number");
    here.free_unlinked(page);
    here.unhooked(&mut Unhooked::new());
    here.flushed(Flushed::default());
    here.gather_end();
    here.idle();
    assert_eq!(here.end_interval(), 11);
    assert_eq!(here.reclaim(NodeId(1), 77), 12);
    here.drain();
    assert_eq!(policy.counts().levels[0].allocs, 13);
    assert!(
        policy.takes_unhooked().is_some() && policy.cpus() == 3 && policy.machine().matches(pin.machine())
    );
}

const ALL: [&str; 10] = [
    "alloc 2 false",
    "free_unlinked 2 0x5000",
    "take_unhooked 0",
    "taken",
    "flushed 0",
    "gather_end 0",
    "idle 0",
    "end_interval 0",
    "reclaim 1 77",
    "drain 0",
];

#[test]
fn every_call_arrives_through_two_layers_as_it_was_made() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slot = &host.slots()[0];
    let calls = Calls::default();
    let policy = || Recording { calls: &calls, machine: host.machine() };
    call_all(&policy(), &slot.pin());
    assert_eq!(calls.take(), ALL);
    call_all(&Layered::new(Bare, Layered::new(Bare, policy()).unwrap()).unwrap(), &slot.pin());
    assert_eq!(calls.take(), ALL);
}

#[test]
fn every_hook_is_told_before_the_call_goes_on_the_outer_layer_first() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slot = &host.slots()[0];
    let calls = Calls::default();
    let told = |name| told(name, &calls, host.frames());
    let inner = Recording { calls: &calls, machine: host.machine() };
    call_all(&Layered::new(told("out"), Layered::new(told("in"), inner).unwrap()).unwrap(), &slot.pin());
    let mut want = Vec::new();
    for call in ALL {
        let name = call.split(' ').next().expect("a name");
        for layer in ["out", "in"] {
            match name {
                // Hooks are told of each page as the policy takes it.
                "take_unhooked" => continue,
                "taken" => {
                    want.push(format!("{layer}: freeing 1 0x6000"));
                    continue;
                }
                _ => want.push(format!("{layer}: {name}")),
            }
            if name == "free_unlinked" {
                want.push(format!("{layer}: freeing 2 0x5000"));
            }
        }
        want.push(call.to_owned());
        for layer in ["in", "out"] {
            match name {
                "alloc" => want.push(format!("{layer}: allocated")),
                "flushed" => want.push(format!("{layer}: after_flushed")),
                _ => {}
            }
        }
    }
    assert_eq!(calls.take(), want);
}

/// Tables of a space that ends, as a layer is told of them: those before the policy takes them
/// unhooked, and those before it takes them flushed.
fn freed(host: &Host<X86_64>, slots: &[CpuSlot], policy: impl Policy) -> (usize, usize) {
    let calls = Calls::default();
    let told = told("t", &calls, host.frames());
    let m = HostMachine::new(host, Layered::new(told, policy).unwrap(), NoTlb).unwrap();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut space = Space::<X86_64>::new(on).unwrap();
    let area = VirtRange::fixed::<0x40_0000, 0x40_8000>();
    space.edit(on).unwrap().mmap(area, AreaFlags(3), 0).unwrap();
    space.fault(on, VirtAddr(0x40_0000), Access::Write).unwrap();
    let tables = space.tree().tables_below_root() as usize + 1;
    calls.take();
    space.end(on).unwrap();
    on.policy().drain();
    let calls = calls.take();
    let flushed = calls.iter().position(|c| c == "t: flushed").unwrap_or(calls.len());
    let freeing = |calls: &[String]| calls.iter().filter(|c| c.starts_with("t: freeing")).count();
    let (early, late) = (freeing(&calls[..flushed]), freeing(&calls[flushed..]));
    assert_eq!(early + late, tables, "each table once");
    (early, late)
}

#[test]
fn a_layer_is_told_of_tables_where_its_policy_takes_them() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let (early, late) = freed(&host, &slots, host.plain().unwrap());
    assert!(early == 0 && late > 0, "after the flush");
    let (early, late) = freed(&host, &slots, common::historic(&host, Rules::V5, 2).unwrap());
    assert!(early == 3 && late == 1, "before the flush, as in 2007, but for the root");
    let (early, late) = freed(&host, &slots, common::historic(&host, Rules::V2004, 2).unwrap());
    assert!(early == 2 && late == 2, "PTE pages come after the flush, too");
}

#[test]
fn a_pin_of_another_machine_or_of_a_cpu_that_was_not_counted_is_refused() {
    let [host, other] = [1, 1].map(|n| Host::<X86_64>::new(small(4, n, 16)).unwrap());
    let (slots, others) = (host.slots(), other.slots());
    let policy = host.quicklists().unwrap();
    assert!(PolicyOn::new(&policy, &slots[3].pin()).is_some());
    assert!(PolicyOn::new(&policy, &others[0].pin()).is_none(), "of another host");
    let calls = Calls::default();
    let small = Recording { calls: &calls, machine: host.machine() };
    assert!(PolicyOn::new(&small, &slots[2].pin()).is_some());
    assert!(PolicyOn::new(&small, &slots[3].pin()).is_none(), "made for three CPUs");
}

#[test]
fn a_reference_to_a_policy_answers_as_the_policy() {
    fn answers(policy: impl Policy) -> (MachineId, usize, Option<Level>) {
        (policy.machine(), policy.cpus(), policy.root())
    }
    for cpus in [1, 3] {
        let host = Host::<X86_64>::new(small(cpus, 1, 16)).unwrap();
        let policy = host.quicklists().unwrap();
        assert_eq!(answers(&policy), (host.machine(), cpus, policy.root()));
    }
}
