//! Machines that broadcast invalidations, and numbers that are the same on all of their CPUs; the
//! kernel's half, which all CPUs share on any machine.
use crate::common;
use common::{Mmus, small, va};
use fastrand::Rng;
use ptarmigan::addr::VirtRange;
use ptarmigan::cpu::CpuId;
use ptarmigan::format::{Access, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::space::{AreaFlags, Space};
use ptarmigan::tlb::{CostModel, Costs, Facts, Runs, Scope, SlotSet, SpaceId, TlbConfig, TlbError};
use ptarmigan_hosted::test::{Call, TestMmu, ValidEntry};
use ptarmigan_hosted::{Delivery, Host, HostError, HostMachine};

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start, start + n * PAGE).unwrap()
}

/// The pages that programs use.
fn used() -> impl Iterator<Item = u64> {
    (0..3).flat_map(|i| (0..4).map(move |n| 0x40_0000 + i * (2 << 20) + n * PAGE))
}

#[test]
fn no_cpu_uses_a_flushed_entry_or_one_of_the_numbers_last_space() {
    for (cpus, asids, park) in [(1, 2, 0), (3, 4, 0), (3, 5, 64), (2, 5000, 0), (3, 0, 0)] {
        let host = Host::<X86_64>::new(small(cpus, 1, 32)).unwrap();
        let mmu = TestMmu::<Mmus<true>>::default();
        // Loads before which everything was forgotten, and those that kept something.
        let (mut anew, mut kept) = (0, 0);
        let config = TlbConfig { asids, park, ..TlbConfig::new(cpus) };
        let policy = host.quicklists().unwrap();
        let m = HostMachine::with_tlb(&host, policy, &mmu, config, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let mut rng = Rng::with_seed(u64::from(asids) * 7 + cpus as u64);
        let mut spaces: Vec<Space<X86_64>> = Vec::new();
        for _ in 0..6000 {
            let cpu = rng.usize(..cpus);
            let pin = slots[cpu].pin();
            let on = m.on(&pin).unwrap();
            if spaces.len() < 7 {
                spaces.push(Space::new(on).unwrap());
            }
            let at = rng.usize(..spaces.len());
            let area = pages(0x40_0000 + rng.u64(..3) * (2 << 20), 1 + rng.u64(..4));
            let loaded = |cpu: usize| mmu.loaded(CpuId(cpu as u16)).map(|root| root.space);
            let current = |spaces: &[Space<X86_64>]| {
                loaded(cpu).and_then(|id| spaces.iter().position(|s| s.tlb().id() == id))
            };
            match rng.u64(..14) {
                0 => {
                    let gone = spaces.swap_remove(at);
                    let id = gone.tlb().id();
                    gone.end(on).unwrap();
                    on.unpark();
                    assert!((0..cpus).all(|cpu| loaded(cpu) != Some(id)), "a CPU is in a space that ended");
                }
                1 | 2 => spaces[at].edit(on).unwrap().munmap(area).unwrap(),
                3 => spaces[at].edit(on).unwrap().mmap(area, RW, 0).unwrap(),
                4 if spaces.len() < 9 => {
                    let child = spaces[at].edit(on).unwrap().fork().unwrap();
                    spaces.push(child);
                }
                5 => {
                    if let Some(at) = current(&spaces) {
                        spaces[at].rest(on).unwrap();
                    }
                }
                6 => {
                    if let Some(at) = current(&spaces) {
                        spaces[at].deactivate(on).unwrap();
                    }
                }
                7..=9 => {
                    if let Some(old) = current(&spaces)
                        && old != at
                    {
                        spaces[old].deactivate(on).unwrap();
                    }
                    spaces[at].activate(on).unwrap();
                }
                _ => {
                    let access = if rng.bool() { Access::Read } else { Access::Write };
                    _ = spaces[at].fault(on, va(area.start), access);
                }
            }
            for call in mmu.take_calls() {
                let Call::Load(cpu, root) = call else { continue };
                let is_anew = root.forget_all || root.asid == 0;
                anew += usize::from(is_anew);
                kept += usize::from(!is_anew && used().any(|va| mmu.knows(cpu, va).is_some()));
            }
            // Programs of all CPUs use the translations of their MMUs.
            for (cpu, slot) in slots.iter().enumerate() {
                let Some(id) = loaded(cpu) else { continue };
                let space = spaces.iter().find(|s| s.tlb().id() == id).expect("loaded spaces exist");
                if !space.tlb().is_active_on(slot.cpu()) {
                    continue;
                }
                for at in used() {
                    let now = space.tree().query(on, va(at)).map(|(pfn, _)| pfn);
                    assert_eq!(mmu.access(slot.cpu(), at, now), now, "CPU {cpu}, {at:#x}, {asids} numbers");
                }
            }
        }
        let come_round = asids != 0 && asids < 5000;
        assert_eq!(
            anew > 0,
            come_round || asids == 0,
            "{asids} numbers for {cpus} CPUs came round {anew} times"
        );
        assert_eq!(kept > 0, asids != 0, "{asids} numbers: {kept} loads kept something");
        let pin = slots[0].pin();
        for space in spaces {
            space.end(m.on(&pin).unwrap()).unwrap();
        }
        m.drain(&slots);
        host.audit().unwrap();
    }
}

#[test]
fn a_machine_that_broadcasts_wants_more_numbers_than_cpus() {
    let host = Host::<X86_64>::new(small(3, 1, 16)).unwrap();
    for (asids, is_refused) in [(0, false), (1, true), (3, true), (4, false)] {
        let mmu = TestMmu::<Mmus<true>>::default();
        let config = TlbConfig { asids, ..TlbConfig::new(3) };
        let made = HostMachine::with_tlb(&host, host.plain().unwrap(), &mmu, config, Delivery::AtOnce).err();
        let refused = TlbError::TooFewAsids { asids, cpus: 3 }.to_string();
        assert_eq!(made, is_refused.then_some(HostError::OutOfRange(refused)), "{asids}");
    }
}

/// Returns the requests to CPUs for the kernel's half, by CPU, and empties the log.
fn kernel_requests<T>(mmu: &TestMmu<'_, T>) -> Vec<(u16, Scope)> {
    let mut told: Vec<_> = mmu
        .take_calls()
        .into_iter()
        .filter_map(|call| match call {
            Call::InvalidateKernel(cpu, scope) => Some((cpu.0, scope)),
            _ => None,
        })
        .collect();
    told.sort_by_key(|(cpu, _)| *cpu);
    told
}

/// Returns the reports of new entries.
fn new_entries<T>(mmu: &TestMmu<'_, T>) -> Vec<ValidEntry> {
    let entry = |call| match call {
        Call::EntryBecameValid(_, entry) => Some(entry),
        _ => None,
    };
    mmu.calls().into_iter().filter_map(entry).collect()
}

const HALF: u64 = 0xffff_8000_0000_0000;

/// Returns the requests for `stale`: CPU 0 runs in a space, CPU 1 keeps it lazily, CPU 2 has never
/// had one.
fn told<const B: bool>(costs: CostModel, stale: &Runs) -> Vec<(u16, Scope)> {
    let host = Host::<X86_64>::new(small(3, 1, 16)).unwrap();
    let mmu = TestMmu::<Mmus<B, B>>::default();
    let config = TlbConfig { costs, ..TlbConfig::new(3) };
    let m = HostMachine::with_tlb(&host, host.plain().unwrap(), &mmu, config, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let (a, b) = (slots[0].pin(), slots[1].pin());
    let space = Space::<X86_64>::new(m.on(&a).unwrap()).unwrap();
    space.activate(m.on(&a).unwrap()).unwrap();
    space.activate(m.on(&b).unwrap()).unwrap();
    space.rest(m.on(&b).unwrap()).unwrap();
    m.tlb().flush_kernel(&a, stale).unwrap();
    assert_eq!(m.tlb().counts().kernel, usize::from(!stale.is_empty()));
    space.end(m.on(&a).unwrap()).unwrap();
    kernel_requests(&mmu)
}

#[test]
fn the_kernels_half_is_flushed_on_every_cpu_or_by_one_broadcast() {
    let mut apart = Runs::one(HALF, HALF + PAGE, 12);
    apart.insert(HALF + 1000 * PAGE, HALF + 1002 * PAGE);
    let last = Runs::one(0u64.wrapping_sub(2 * PAGE), 0, 12);
    let costs = CostModel::Costs(Costs { run: 1, window: 1, ..Costs::new(10, 5000) });
    for (costs, stale, scope) in [
        (CostModel::LINUX, Runs::one(HALF, HALF + 1, 12), Scope::Page { at: HALF, shift: 12 }),
        (
            CostModel::LINUX,
            Runs::one(HALF, HALF + 5 * PAGE, 12),
            Scope::Range { start: HALF, end: HALF + 5 * PAGE, stride: 12, mixed: false },
        ),
        (
            CostModel::LINUX,
            last,
            Scope::Range { start: 0u64.wrapping_sub(2 * PAGE), end: 0, stride: 12, mixed: false },
        ),
        (CostModel::LINUX, apart, Scope::Full),
        (costs, apart, Scope::Runs(apart)),
    ] {
        assert_eq!(told::<false>(costs, &stale), [0, 1, 2].map(|cpu| (cpu, scope)));
        assert_eq!(told::<true>(costs, &stale), [(0, scope)]);
    }
    assert_eq!(told::<false>(CostModel::LINUX, &Runs::new(12)), []);
}

#[test]
fn a_machine_is_told_of_new_entries_if_it_needs_to_be() {
    fn entries<const B: bool>() -> Vec<(Option<SpaceId>, u64)> {
        let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
        let mmu = TestMmu::<Mmus<B, B>>::default();
        let m = HostMachine::new(&host, host.plain().unwrap(), &mmu).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.edit(on).unwrap().mmap(pages(0x40_0000, 2), RW, 0).unwrap();
        let id = space.tlb().id();
        for (at, access) in [(0, Access::Read), (1, Access::Write), (0, Access::Write)] {
            space.fault(on, va(0x40_0000 + at * PAGE), access).unwrap();
        }
        space.end(on).unwrap();
        let told = new_entries(&mmu);
        assert!(told.iter().all(|e| e.space == Some(id) && e.shift == 12 && e.raw != 0));
        told.iter().map(|e| (e.space.filter(|space| *space != id), e.va)).collect()
    }
    assert_eq!(entries::<true>(), [0, 1, 0].map(|at| (None, 0x40_0000 + at * PAGE)));
    assert_eq!(entries::<false>(), []);
}

#[test]
fn a_new_entry_has_the_number_that_the_cpu_knows_the_space_by() {
    /// The reports before the space is loaded; when it is; when the CPU keeps it lazily; and when
    /// the other CPU alone has it. And the number that the CPU loaded it under.
    fn numbers<const B: bool>(asids: u16) -> (Vec<Option<u16>>, u16) {
        let host = Host::<X86_64>::new(small(2, 1, 16)).unwrap();
        let mmu = TestMmu::<Mmus<B, true>>::default();
        let config = TlbConfig { asids, ..TlbConfig::new(2) };
        let m = HostMachine::with_tlb(&host, host.plain().unwrap(), &mmu, config, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let (pin, other) = (slots[0].pin(), slots[1].pin());
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.edit(on).unwrap().mmap(pages(0x40_0000, 4), RW, 0).unwrap();
        let fault = |space: &mut Space<X86_64>, page| {
            space.fault(on, va(0x40_0000 + page * PAGE), Access::Write).unwrap();
        };
        fault(&mut space, 0);
        space.activate(on).unwrap();
        let loaded = mmu.loaded(CpuId(0)).unwrap().asid;
        fault(&mut space, 1);
        space.rest(on).unwrap();
        fault(&mut space, 2);
        space.deactivate(on).unwrap();
        space.activate(m.on(&other).unwrap()).unwrap();
        fault(&mut space, 3);
        space.end(on).unwrap();
        (new_entries(&mmu).iter().map(|entry| entry.asid).collect(), loaded)
    }
    for (told, asids) in [(numbers::<false>(0), 0), (numbers::<true>(0), 0), (numbers::<false>(8), 8)] {
        let (told, number) = told;
        assert_eq!(told, [None, Some(number), Some(number), None]);
        assert_eq!(number == 0, asids == 0);
    }
    let (told, number) = numbers::<true>(8);
    let number = Some(number).filter(|number| *number != 0);
    assert!(number.is_some());
    assert_eq!(told, [None, number, number, number], "the number is that of all CPUs");
}

#[test]
fn any_plan_flushes_stale_slots_and_asks_other_cpus_once() {
    fn told<const B: bool>(costs: CostModel, stale: &SlotSet) -> Vec<(u16, Scope)> {
        let host = Host::<X86_64>::new(small(3, 1, 16)).unwrap();
        let mmu = TestMmu::<Mmus<B, B>>::default();
        let config = TlbConfig { costs, ..TlbConfig::new(3) };
        let m = HostMachine::with_tlb(&host, host.plain().unwrap(), &mmu, config, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        m.tlb().flush_kernel_slots(&pin, stale, &Facts::default()).unwrap();
        let counts = m.tlb().counts();
        let some = usize::from(!stale.is_empty());
        assert_eq!((counts.kernel, counts.asked), (some, if B { 0 } else { 2 * some }));
        kernel_requests(&mmu)
    }
    let mut apart = SlotSet::new(HALF, 12);
    (0..20).for_each(|slot| apart.insert(3 * slot));
    let at = |slot| HALF + slot * PAGE;
    let pages: Vec<Scope> = (0..20).map(|slot| Scope::Page { at: at(3 * slot), shift: 12 }).collect();
    let runs: Vec<Scope> = [0..8, 8..16, 16..20]
        .map(|part| {
            let mut runs = Runs::new(12);
            part.for_each(|slot| runs.insert(at(3 * slot), at(3 * slot) + PAGE));
            Scope::Runs(runs)
        })
        .to_vec();
    let window = vec![Scope::Range { start: HALF, end: at(58), stride: 12, mixed: false }];
    let mut one = SlotSet::new(HALF, 12);
    one.insert(1000);
    let costs = |page, ranged_page, window, full| {
        CostModel::Costs(Costs { ranged_page, window, ..Costs::new(page, full) })
    };
    for (model, stale, scopes) in [
        (CostModel::ALWAYS_PAGE, apart, pages),
        (costs(10, 10, 1000, 5000), apart, runs),
        (costs(1000, 500, 1, 5000), apart, vec![Scope::Full]),
        (CostModel::LINUX, apart, vec![Scope::Full]),
        (CostModel::LinuxCeiling { pages: 58 }, apart, window),
        (CostModel::LINUX, one, vec![Scope::Page { at: at(1000), shift: 12 }]),
        (CostModel::LINUX, SlotSet::new(HALF, 12), vec![]),
    ] {
        let everybody = |cpus: u16| -> Vec<(u16, Scope)> {
            (0..cpus).flat_map(|cpu| scopes.iter().map(move |scope| (cpu, *scope))).collect()
        };
        assert_eq!(told::<false>(model, &stale), everybody(3), "{model:?}");
        assert_eq!(told::<true>(model, &stale), everybody(1), "{model:?}");
    }
}
