//! Machines that broadcast invalidations, and numbers that are the same on all of their CPUs; the
//! kernel's half, which all CPUs share on any machine.
use crate::common;
use common::{Rng, small, va};
use ptarmigan::addr::{Pfn, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Access, Formats, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::space::{AreaFlags, Space};
use ptarmigan::tlb::{
    CostModel, Costs, Facts, Invalidation, Mmu, NewEntry, Root, Runs, Scope, SlotSet, SpaceId, Structures,
    TlbConfig, TlbError,
};
use ptarmigan_hosted::{Delivery, Host, HostError, HostMachine};
use std::collections::HashMap;
use std::sync::Mutex;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start, start + n * PAGE).unwrap()
}

/// The translations in a CPU's TLB, by the number of the space when they were found.
#[derive(Default)]
struct Held {
    loaded: Option<(SpaceId, u16)>,
    pages: HashMap<(u16, u64), Pfn>,
}

/// TLBs that know spaces by their numbers alone. An invalidation on one CPU reaches all.
struct ByNumber {
    cpus: Mutex<Vec<Held>>,
    /// Loads before which everything was forgotten, and those that kept something.
    loads: Mutex<(u32, u32)>,
}

impl ByNumber {
    fn new(cpus: usize) -> Self {
        ByNumber { cpus: Mutex::new((0..cpus).map(|_| Held::default()).collect()), loads: Mutex::default() }
    }

    /// The user of the space that the CPU has loaded accesses a page, which the tables map to
    /// `now`; returns the frame that it reaches.
    fn access(&self, cpu: usize, va: u64, now: Option<Pfn>) -> Option<Pfn> {
        let held = &mut self.cpus.lock().unwrap()[cpu];
        let (_, asid) = held.loaded?;
        if let Some(known) = held.pages.get(&(asid, va)) {
            return Some(*known);
        }
        held.pages.extend(now.map(|pfn| ((asid, va), pfn)));
        now
    }

    fn loaded(&self, cpu: usize) -> Option<SpaceId> {
        self.cpus.lock().unwrap()[cpu].loaded.map(|(space, _)| space)
    }
}

// SAFETY: 1. every CPU drops covered translations under the number. 2. no translation of the
// kernel's half is held. 3. translations under another number are not used; those that must not be
// kept are dropped. 4. no translation is used any more. 5. as 1. says. 6. neither is kept. 7.
// `load` finds no translations.
unsafe impl Mmu for &ByNumber {
    const FORMATS: Formats = Formats::ANY;
    const BROADCASTS: bool = true;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, _: &Pinned<'_>, what: &Invalidation) {
        for held in self.cpus.lock().unwrap().iter_mut() {
            held.pages.retain(|(asid, va), _| *asid != what.asid || !what.scope.covers(*va));
        }
    }
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let held = &mut self.cpus.lock().unwrap()[pin.cpu().0 as usize];
        let mut loads = self.loads.lock().unwrap();
        if root.forget_all || root.asid == 0 {
            held.pages.clear();
            loads.0 += 1;
        } else if !root.keep {
            held.pages.retain(|(asid, _), _| *asid != root.asid);
        } else {
            loads.1 += u32::from(held.pages.keys().any(|(asid, _)| *asid == root.asid));
        }
        held.loaded = Some((root.space, root.asid));
    }
    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.cpus.lock().unwrap()[pin.cpu().0 as usize].loaded = None;
    }
}

#[test]
fn no_cpu_uses_what_was_flushed_or_what_it_knows_of_another_space_under_its_number() {
    for (cpus, asids, park) in [(1, 2, 0), (3, 4, 0), (3, 5, 64), (2, 5000, 0), (3, 0, 0)] {
        let host = Host::<X86_64>::new(small(cpus, 1, 32)).unwrap();
        let mmu = ByNumber::new(cpus);
        let config = TlbConfig { asids, park, ..TlbConfig::new(cpus) };
        let policy = host.quicklists().unwrap();
        let m = HostMachine::with_tlb(&host, policy, &mmu, config, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let rng = Rng::new(u64::from(asids) * 7 + cpus as u64);
        let mut spaces: Vec<Space<X86_64>> = Vec::new();
        for _ in 0..6000 {
            let cpu = rng.below(cpus as u64) as usize;
            let pin = slots[cpu].pin();
            let on = m.on(&pin).unwrap();
            if spaces.len() < 7 {
                spaces.push(Space::new(on).unwrap());
            }
            let at = rng.below(spaces.len() as u64) as usize;
            let area = pages(0x40_0000 + rng.below(3) * (2 << 20), 1 + rng.below(4));
            let current = |spaces: &[Space<X86_64>], mmu: &ByNumber| {
                mmu.loaded(cpu).and_then(|id| spaces.iter().position(|s| s.tlb().id() == id))
            };
            match rng.below(14) {
                0 => {
                    let gone = spaces.swap_remove(at);
                    let id = gone.tlb().id();
                    gone.end(on).unwrap();
                    on.unpark();
                    assert!(
                        (0..cpus).all(|cpu| mmu.loaded(cpu) != Some(id)),
                        "a CPU is in a space that ended"
                    );
                }
                1 | 2 => spaces[at].edit(on).unwrap().munmap(area).unwrap(),
                3 => spaces[at].edit(on).unwrap().mmap(area, RW, 0).unwrap(),
                4 if spaces.len() < 9 => {
                    let child = spaces[at].edit(on).unwrap().fork().unwrap();
                    spaces.push(child);
                }
                5 => {
                    if let Some(at) = current(&spaces, &mmu) {
                        spaces[at].rest(on).unwrap();
                    }
                }
                6 => {
                    if let Some(at) = current(&spaces, &mmu) {
                        spaces[at].deactivate(on).unwrap();
                    }
                }
                7..=9 => {
                    if let Some(old) = current(&spaces, &mmu)
                        && old != at
                    {
                        spaces[old].deactivate(on).unwrap();
                    }
                    spaces[at].activate(on).unwrap();
                }
                _ => {
                    let access = if rng.below(2) == 0 { Access::Read } else { Access::Write };
                    _ = spaces[at].fault(on, va(area.start), access);
                }
            }
            // Programs of all CPUs use the translations of their MMUs.
            for (cpu, slot) in slots.iter().enumerate() {
                let Some(id) = mmu.loaded(cpu) else { continue };
                let space = spaces.iter().find(|s| s.tlb().id() == id).expect("loaded spaces exist");
                if !space.tlb().is_active_on(slot.cpu()) {
                    continue;
                }
                for at in (0..3).flat_map(|i| (0..4).map(move |n| 0x40_0000 + i * (2 << 20) + n * PAGE)) {
                    let now = space.tree().query(on, va(at)).map(|(pfn, _)| pfn);
                    assert_eq!(mmu.access(cpu, at, now), now, "CPU {cpu}, {at:#x}, {asids} numbers");
                }
            }
        }
        let (anew, kept) = *mmu.loads.lock().unwrap();
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
        let mmu = ByNumber::new(3);
        let config = TlbConfig { asids, ..TlbConfig::new(3) };
        let made = HostMachine::with_tlb(&host, host.plain().unwrap(), &mmu, config, Delivery::AtOnce).err();
        let refused = TlbError::TooFewAsids { asids, cpus: 3 }.to_string();
        assert_eq!(made, is_refused.then_some(HostError::OutOfRange(refused)), "{asids}");
    }
}

/// Requests to CPUs for the kernel's half, and reports of new entries.
#[derive(Default)]
struct Kernel<const BROADCASTS: bool> {
    told: Mutex<Vec<(u16, Scope)>>,
    entries: Mutex<Vec<NewEntry>>,
}

// SAFETY: the MMUs of these tests walk no tables and cache no translations.
unsafe impl<const B: bool> Mmu for &Kernel<B> {
    const FORMATS: Formats = Formats::ANY;
    const BROADCASTS: bool = B;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = B;

    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.told.lock().unwrap().push((pin.cpu().0, *scope));
    }
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
    fn entry_became_valid(&self, _: &Pinned<'_>, entry: &NewEntry) {
        self.entries.lock().unwrap().push(*entry);
    }
}

const HALF: u64 = 0xffff_8000_0000_0000;

/// Returns the requests for `stale`: CPU 0 runs in a space, CPU 1 keeps it lazily, CPU 2 has never
/// had one.
fn told<const B: bool>(costs: CostModel, stale: &Runs) -> Vec<(u16, Scope)> {
    let host = Host::<X86_64>::new(small(3, 1, 16)).unwrap();
    let mmu = Kernel::<B>::default();
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
    let mut told = std::mem::take(&mut *mmu.told.lock().unwrap());
    told.sort_by_key(|(cpu, _)| *cpu);
    told
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
        let mmu = Kernel::<B>::default();
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
        let told = mmu.entries.lock().unwrap();
        assert!(told.iter().all(|e| e.space == Some(id) && e.shift == 12 && e.raw != 0));
        told.iter().map(|e| (e.space.filter(|space| *space != id), e.va)).collect()
    }
    assert_eq!(entries::<true>(), [0, 1, 0].map(|at| (None, 0x40_0000 + at * PAGE)));
    assert_eq!(entries::<false>(), []);
}

/// Notes the number of each new entry, and of the root that was loaded last.
#[derive(Default)]
struct Numbers<const BROADCASTS: bool>(Mutex<(Vec<Option<u16>>, u16)>);

// SAFETY: the MMUs of these tests walk no tables and cache no translations.
unsafe impl<const B: bool> Mmu for &Numbers<B> {
    const FORMATS: Formats = Formats::ANY;
    const BROADCASTS: bool = B;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = true;

    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, _: &Pinned<'_>, root: &Root) {
        self.0.lock().unwrap().1 = root.asid;
    }
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
    fn entry_became_valid(&self, _: &Pinned<'_>, entry: &NewEntry) {
        self.0.lock().unwrap().0.push(entry.asid);
    }
}

#[test]
fn a_new_entry_has_the_number_that_the_cpu_knows_the_space_by() {
    /// The reports before the space is loaded; when it is; when the CPU keeps it lazily; and when
    /// the other CPU alone has it. And the number that the CPU loaded it under.
    fn numbers<const B: bool>(asids: u16) -> (Vec<Option<u16>>, u16) {
        let host = Host::<X86_64>::new(small(2, 1, 16)).unwrap();
        let mmu = Numbers::<B>::default();
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
        let loaded = mmu.0.lock().unwrap().1;
        fault(&mut space, 1);
        space.rest(on).unwrap();
        fault(&mut space, 2);
        space.deactivate(on).unwrap();
        space.activate(m.on(&other).unwrap()).unwrap();
        fault(&mut space, 3);
        space.end(on).unwrap();
        (std::mem::take(&mut mmu.0.lock().unwrap().0), loaded)
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
fn stale_slots_are_forgotten_by_any_plan_and_other_cpus_are_asked_once() {
    fn told<const B: bool>(costs: CostModel, stale: &SlotSet) -> Vec<(u16, Scope)> {
        let host = Host::<X86_64>::new(small(3, 1, 16)).unwrap();
        let mmu = Kernel::<B>::default();
        let config = TlbConfig { costs, ..TlbConfig::new(3) };
        let m = HostMachine::with_tlb(&host, host.plain().unwrap(), &mmu, config, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        m.tlb().flush_kernel_slots(&pin, stale, &Facts::default()).unwrap();
        let counts = m.tlb().counts();
        let some = usize::from(!stale.is_empty());
        assert_eq!((counts.kernel, counts.asked), (some, if B { 0 } else { 2 * some }));
        let mut told = std::mem::take(&mut *mmu.told.lock().unwrap());
        told.sort_by_key(|(cpu, _)| *cpu);
        told
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
