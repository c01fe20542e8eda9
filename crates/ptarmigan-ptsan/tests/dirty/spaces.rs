//! Logs of the pages of spaces: areas of all kinds, pages shared by fork, large pages, and the
//! faults that pages raise whose permission to write has been taken.
use crate::SEEDS;
use crate::mmu::NotingMmu;
use crate::rng::Rng;
use crate::steps::steps;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Aarch64, Attr, Format, I386, Sv39, X86_64};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{Access, AreaFlags, Done, Space, SpaceMachine};
use ptarmigan::table::Mapped;
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{Broadcasting, Fencing, Interrupting, MmuTraits, SoftMmu, Told, Watchable};
use ptsan::{Adversary, Arch, Config};
use std::collections::BTreeSet;

const CPUS: usize = 2;
const PAGE: u64 = 4096;
/// The space that is used: two large pages of x86-64 and more.
const START: u64 = 0x4000_0000;
const PAGES: u64 = 1600;

/// A space that both CPUs run in.
struct Model<'a, 's, 'h, F: Format, T> {
    mmu: &'a NotingMmu<'s, 'h, F, T>,
    rng: Rng,
    space: Space<F>,
    children: Vec<Space<F>>,
    /// Pages, by number, whose permission to write has been taken, until it is given back.
    protected: BTreeSet<u64>,
    /// Logs, leaves that they told, large pages among these, and write faults on protected pages.
    done: [u64; 4],
}

fn pages(range: VirtRange) -> std::ops::Range<u64> {
    range.start / PAGE..range.end / PAGE
}

impl<F: Format, T: MmuTraits> Model<'_, '_, '_, F, T> {
    fn part(&mut self) -> VirtRange {
        let first = self.rng.below(PAGES);
        let n = [1, 1 + self.rng.below(40), PAGES][self.rng.below(3) as usize].min(PAGES - first);
        VirtRange::new(START + first * PAGE, START + (first + n) * PAGE).unwrap()
    }

    fn forget(&mut self, range: VirtRange) {
        self.protected.retain(|page| !pages(range).contains(page));
    }

    fn step<M: SpaceMachine>(&mut self, on: On<'_, M>, cpu: usize) {
        let (range, largest) = (self.part(), [Level::PTE, F::LAYOUT.root()][self.rng.below(2) as usize]);
        let read_write = AreaFlags::READ.with(AreaFlags::WRITE);
        match self.rng.below(24) {
            0 => {
                let kinds = [AreaFlags(0), AreaFlags::SHARED, AreaFlags::BACKED, AreaFlags::LARGE];
                let kind = kinds[self.rng.below(4) as usize];
                let all = VirtRange::new(START, START + PAGES * PAGE).unwrap();
                let (range, flags) =
                    (if kind == AreaFlags::LARGE { all } else { range }, read_write.with(kind));
                self.space.edit(on).unwrap().mmap(range, flags, 1).unwrap();
                self.forget(range);
            }
            1 => {
                let flags = if self.rng.below(2) == 0 { AreaFlags::READ } else { read_write };
                if self.space.edit(on).unwrap().mprotect(range, flags).is_ok() && flags == read_write {
                    // They may have got it back.
                    self.forget(range);
                }
            }
            2 => {
                let child = self.space.edit(on).unwrap().fork().unwrap();
                self.children.push(child);
            }
            3 | 4 if !self.children.is_empty() => self.children.remove(0).end(on).unwrap(),
            5..=7 => self.log(on, range, Attr::DIRTY, largest),
            8 => self.log(on, range, Attr::ACCESSED, largest),
            9..=11 => self.log(on, range, Attr::WRITE, largest),
            _ => {
                for _ in 0..8 {
                    let at = self.part().start;
                    if self.rng.below(3) > 0 { self.write(on, cpu, at) } else { self.read(on, cpu, at) }
                }
            }
        }
    }

    fn access(&self, cpu: usize, va: u64, write: bool) -> bool {
        self.mmu.access(cpu, self.space.tree().root(), va, write).is_some()
    }

    fn read<M: SpaceMachine>(&mut self, on: On<'_, M>, cpu: usize, va: u64) {
        if !self.access(cpu, va, false) && self.space.fault(on, VirtAddr(va), Access::Read).is_ok() {
            assert!(self.access(cpu, va, false), "{}: {va:#x} faults again", F::NAME);
        }
    }

    /// A CPU writes. The handler of its fault hears of a page that was protected.
    fn write<M: SpaceMachine>(&mut self, on: On<'_, M>, cpu: usize, va: u64) {
        let page = va / PAGE;
        while !self.access(cpu, va, true) {
            match self.space.fault(on, VirtAddr(va), Access::Write) {
                Err(_) => return,
                Ok(Done::Spurious) => {}
                Ok(_) => {
                    self.done[3] += u64::from(self.protected.contains(&page));
                    let leaf = self.space.tree().query_leaf(on, VirtAddr(va)).unwrap();
                    self.forget(leaf.range());
                }
            }
        }
        assert!(!self.protected.contains(&page), "{}: a write to {va:#x} is not told", F::NAME);
        let (_, attr) = self.space.tree().query(on, VirtAddr(va)).unwrap();
        assert!(attr.has(Attr::WRITE | Attr::DIRTY), "{}: a write to {va:#x} is lost", F::NAME);
    }

    fn leaves<M: SpaceMachine>(&self, on: On<'_, M>, range: VirtRange) -> Vec<Mapped> {
        let mut leaves = Vec::new();
        self.space.tree().walk_leaves(on, range, |leaf| leaves.push(leaf)).unwrap();
        leaves
    }

    /// Makes a log, and compares it with the entries before and after.
    fn log<M: SpaceMachine>(&mut self, on: On<'_, M>, range: VirtRange, bits: Attr, largest: Level) {
        let mut expected: Vec<_> =
            self.leaves(on, range).into_iter().filter(|leaf| leaf.attr.has(bits)).collect();
        let mut told = Vec::new();
        let visit = |leaf| told.push(leaf);
        let mut edit = self.space.edit(on).unwrap();
        match bits {
            Attr::DIRTY => edit.take_dirty(range, largest, visit),
            Attr::WRITE => edit.write_protect(range, largest, visit),
            _ => edit.take_accessed(range, visit),
        }
        .unwrap();
        if bits == Attr::WRITE {
            // Large pages at the ends have been split.
            let inside = |leaf: &Mapped| leaf.range().and(range) == leaf.range();
            let whole = |leaves: &[Mapped]| leaves.iter().filter(|leaf| inside(leaf)).copied().collect();
            let ends: u64 = expected.iter().filter(|l| !inside(l)).map(|l| l.range().and(range).len()).sum();
            let parts: u64 = told.iter().map(|leaf| leaf.range().len()).sum();
            expected = whole(&expected);
            let covered: u64 = expected.iter().map(|leaf| leaf.range().len()).sum();
            assert_eq!(parts, covered + ends, "{}: {range:?}", F::NAME);
            assert!(told.iter().all(inside), "{}: {range:?}", F::NAME);
            self.protected.extend(told.iter().flat_map(|leaf| pages(leaf.range())));
        } else {
            assert_eq!(told, expected, "{}: {range:?}", F::NAME);
        }
        for leaf in self.leaves(on, range) {
            assert!(!leaf.attr.has(bits), "{}: {leaf:?}", F::NAME);
            assert!(bits == Attr::ACCESSED || leaf.level <= largest, "{}: {leaf:?}", F::NAME);
        }
        self.done[0] += 1;
        self.done[1] += told.len() as u64;
        self.done[2] += told.iter().filter(|leaf| leaf.level > Level::PTE).count() as u64;
    }
}

fn operations<F: Format, T: MmuTraits>(host: &Host<F>, mmu: &NotingMmu<'_, '_, F, T>, seed: u64) -> [u64; 4] {
    let policy = Layered::new(mmu.soft, host.quicklists().unwrap()).unwrap();
    let tlb = TlbConfig { asids: [0, 5][seed as usize % 2], ..TlbConfig::new(CPUS) };
    let machine = HostMachine::with_tlb(host, policy, mmu, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let space = Space::<F>::new(machine.on(&slots[0].pin()).unwrap()).unwrap();
    let (rng, protected) = (Rng::new(seed), BTreeSet::new());
    let mut model = Model { mmu, rng, space, children: Vec::new(), protected, done: [0; 4] };
    for (cpu, slot) in slots.iter().enumerate() {
        mmu.soft.with(|sanitizer, _| sanitizer.running_on(cpu));
        model.space.activate(machine.on(&slot.pin()).unwrap()).unwrap();
    }
    for _ in 0..500 {
        let cpu = model.rng.below(CPUS as u64) as usize;
        let pin = slots[cpu].pin();
        mmu.soft.with(|sanitizer, _| sanitizer.running_on(cpu));
        model.step(machine.on(&pin).unwrap(), cpu);
    }
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    mmu.soft.with(|sanitizer, _| sanitizer.running_on(0));
    model.children.drain(..).for_each(|child| child.end(on).unwrap());
    model.space.end(on).unwrap();
    machine.drain(&slots);
    model.done
}

fn format<F: Format, T: MmuTraits>(arch: fn() -> Arch) {
    let mut sums = [0; 4];
    for seed in 1..=steps(SEEDS).into() {
        let memory = HostConfig { cpus: CPUS, bytes: 64 << 20, prefault: 0, ..HostConfig::default() };
        let host = Host::<F>::new(memory).unwrap();
        let config = Config {
            cpus: CPUS,
            asids: seed % 2 != 0,
            adversary: Some(Adversary::new(seed)),
            barriers: T::BROADCASTS,
            accessed_dirty: true,
            keeps_invalid: false,
            ..Config::new(arch())
        };
        let soft = SoftMmu::<_, T>::like(&host, config);
        let done = soft.told(|| operations(&host, &NotingMmu::new(&soft, CPUS), seed));
        sums.iter_mut().zip(done).for_each(|(sum, n)| *sum += n);
        host.audit().unwrap();
        soft.with(|sanitizer, _| {
            sanitizer.finish();
            assert_eq!(sanitizer.total(), 0, "{}, seed {seed}: {sanitizer}", F::NAME);
        });
    }
    let [logs, told, large, faults] = sums;
    assert!(logs > 300 && told > 500 && large > 5 && faults > 50, "{}: {sums:?}", F::NAME);
}

macro_rules! each_format {
    ($($test:ident $format:ty, $mmu:ty;)*) => { $(
        #[test]
        fn $test() {
            format::<Told<$format>, $mmu>(<$format as Watchable>::arch);
        }
    )* };
}

each_format! {
    of_x86_64 X86_64, Interrupting;
    of_i386 I386, Interrupting;
    of_sv39 Sv39, Fencing;
    of_aarch64_4k Aarch64, Broadcasting;
}
