//! Logs of written pages, of trees of every format with leaves of all sizes, compared with the
//! writes of CPUs.
//!
//! The MMUs set accessed and dirty bits, and do not set a bit again that their CPU remembers as
//! set. CPUs write in the middle of a log, too: while it tells pages, and before its flush. So a
//! write is told by that log or by the next one.
mod groups;
mod mmu;
mod race;
#[macro_use]
#[path = "../driver/formats.rs"]
mod formats;
#[path = "../driver/rng.rs"]
mod rng;
mod spaces;
#[path = "../driver/steps.rs"]
mod steps;

use mmu::NotingMmu;
use ptarmigan::addr::{FRAME_SHIFT, Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::table::{Free, Mapped, Sizes, Tree};
use ptarmigan::tlb::{CostModel, Costs, TlbConfig};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{MmuTraits, SoftMmu};
use ptsan::{Adversary, Arch, Config};
use rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use steps::steps;

/// Steps of each seed, and seeds of each format.
const STEPS: u32 = 300;
const SEEDS: u32 = 4;

fn range<F: Format>(first: u64, pages: u64) -> VirtRange {
    VirtRange::new(first << F::PAGE_SHIFT, (first + pages) << F::PAGE_SHIFT).unwrap()
}

/// Pages of a leaf of 2^`shift` bytes that begins at `va`, by number.
fn pages_of<F: Format>(va: u64, shift: u32) -> std::ops::Range<u64> {
    let first = va >> F::PAGE_SHIFT;
    first..first + (1 << (shift - F::PAGE_SHIFT))
}

/// The levels above the lowest whose tables have leaves, of those of which some fit into the space.
fn large_levels<F: Format>() -> Vec<Level> {
    let fits = |level: &Level| F::USER_END >> F::shift(*level) >= 8 && F::shift(*level) <= 34;
    F::LAYOUT.each_level().skip(1).filter(|l| F::LEAF_LEVELS >> l.0 & 1 != 0).filter(fits).collect()
}

/// What CPUs have done.
struct Model<'a, 's, 'h, F: Format, T> {
    mmu: &'a NotingMmu<'s, 'h, F, T>,
    rng: Rng,
    root: PhysAddr,
    /// CPUs that have the tree loaded.
    loaded: Vec<bool>,
    /// Whether a page that is mapped may be written, by number.
    pages: BTreeMap<u64, bool>,
    /// Pages that have lost write permission to [`TreeMut::write_protect`].
    ///
    /// [`TreeMut::write_protect`]: ptarmigan::table::TreeMut::write_protect
    protected: BTreeSet<u64>,
    /// Pages that were written since they were told.
    written: BTreeSet<u64>,
    /// Pages of leaves whose dirty bit is set, and of those whose accessed bit is.
    dirty: BTreeSet<u64>,
    /// Pages that the log told that has not been flushed yet.
    told: BTreeSet<u64>,
    /// Logs, pages told by them, writes in the middle of one, and writes that faulted.
    done: [u64; 4],
}

impl<F: Format, T: MmuTraits> Model<'_, '_, '_, F, T> {
    /// A place for a large page.
    fn place(&mut self) -> (Level, u64) {
        let levels = large_levels::<F>();
        // The model is slow for a page of 1 GiB.
        let level = levels[if self.rng.below(128) == 0 { levels.len() - 1 } else { 0 }];
        let n = F::USER_END >> F::shift(level);
        let at = [n / 2, n / 2 + 1, n / 2 + 2, n - 1][self.rng.below(4) as usize];
        (level, at << (F::shift(level) - F::PAGE_SHIFT))
    }

    /// Some pages in, at the ends of, or around a large one.
    fn part(&mut self) -> (u64, u64) {
        let (level, first) = self.place();
        let pages = 1 << (F::shift(level) - F::PAGE_SHIFT);
        let (from, n) = match self.rng.below(5) {
            0 => (0, 1),
            1 => (pages - 1, 1),
            2 => (self.rng.below(pages), 1 + self.rng.below(pages)),
            3 => (0, pages),
            _ => (0, 1 + self.rng.below(2 * pages)),
        };
        let first = first + from;
        (first, n.min((F::USER_END >> F::PAGE_SHIFT) - first))
    }

    /// The largest leaves that a log leaves in its range.
    fn largest(&mut self) -> Level {
        [Level::PTE, Level(1), F::LAYOUT.root()][self.rng.below(3) as usize]
    }

    fn running(&self, cpu: usize) {
        self.mmu.soft.with(|sanitizer, _| sanitizer.running_on(cpu));
    }

    fn step<M: Machine>(&mut self, on: On<'_, M>, cpu: usize, tree: &mut Tree<F>) {
        match self.rng.below(16) {
            0..=2 => self.map(on, tree),
            3 => self.unmap(on, tree),
            4 => self.collapse(on, tree),
            5..=7 => self.take_dirty(on, cpu, tree),
            8 => self.take_accessed(on, cpu, tree),
            9 | 10 => self.write_protect(on, cpu, tree),
            _ => {
                for _ in 0..8 {
                    let (page, write) = (self.part().0, self.rng.below(3) > 0);
                    if !self.access(cpu, page, write) && write && self.protected.contains(&page) {
                        self.write_fault(on, tree, page);
                        assert!(self.access(cpu, page, true), "{}: page {page:#x} faults again", F::NAME);
                    }
                }
            }
        }
    }

    /// A CPU reads or writes a page; returns whether that is let through.
    fn access(&mut self, cpu: usize, page: u64, write: bool) -> bool {
        let found = self.mmu.access(cpu, self.root, page << F::PAGE_SHIFT, write);
        let in_log = !self.told.is_empty();
        let Some(found) = found else {
            let may = self.pages.get(&page).is_some_and(|may_write| !write || *may_write);
            let may = may && (!write || !self.protected.contains(&page));
            assert!(!may || in_log, "{}: page {page:#x} faults, write: {write}", F::NAME);
            return false;
        };
        let may_write = self.pages.get(&page).unwrap_or_else(|| panic!("{page:#x} is not mapped"));
        assert!(!write || *may_write, "{}: {page:#x} may not be written", F::NAME);
        if write {
            if let Some(leaf) = found {
                self.dirty.extend(pages_of::<F>(leaf.start, leaf.shift));
            }
            if self.dirty.contains(&page) {
                self.written.insert(page);
            } else {
                // Its CPU has not been flushed yet.
                assert!(self.told.contains(&page), "{}: a write to page {page:#x} is lost", F::NAME);
            }
        }
        true
    }

    /// Other CPUs use pages in the middle of a log: some that it is told of, and others.
    fn meanwhile(&mut self, near: u64) {
        let cpus = self.loaded.len() as u64;
        for _ in 0..self.rng.below(3) {
            let cpu = self.rng.below(cpus) as usize;
            if self.loaded[cpu] {
                let page = match self.rng.below(3) {
                    0 => near,
                    1 => (near + self.rng.below(3)).min((F::USER_END >> F::PAGE_SHIFT) - 1),
                    _ => self.part().0,
                };
                self.access(cpu, page, true);
                self.done[2] += 1;
            }
        }
    }

    /// Makes a log of `bits` in an edit of `cpu` that other CPUs do not wait for, and returns the
    /// pages that it told. `all` says that it must tell all pages of these.
    fn log<M: Machine>(
        &mut self,
        on: On<'_, M>,
        cpu: usize,
        tree: &mut Tree<F>,
        (range, bits, largest): (VirtRange, Attr, Level),
    ) -> BTreeSet<u64> {
        let operation = self.mmu.soft.with(|sanitizer, _| sanitizer.operation_begins());
        let mut all = BTreeSet::new();
        let mut edit = tree.edit(on).unwrap();
        let mut last = 0;
        let visit = |leaf: Mapped| {
            assert!(leaf.at.0 >= last && leaf.attr.has(bits), "{}: {leaf:?}", F::NAME);
            last = leaf.range().end;
            let pages = pages_of::<F>(leaf.at.0, leaf.shift);
            all.extend(pages.clone());
            self.told.extend(pages.clone());
            if bits.has(Attr::DIRTY) {
                for page in pages.clone() {
                    self.written.remove(&page);
                    assert!(self.dirty.remove(&page), "{}: {page:#x} was not written", F::NAME);
                }
            }
            let near = pages.start + self.rng.below(pages.end - pages.start);
            self.meanwhile(near);
            self.running(cpu);
        };
        match bits {
            Attr::DIRTY => edit.take_dirty(range, largest, visit).unwrap(),
            Attr::WRITE => edit.write_protect(range, largest, visit).unwrap(),
            _ => edit.take_accessed(range, visit),
        }
        self.meanwhile(range.start >> F::PAGE_SHIFT);
        self.running(cpu);
        edit.flush();
        self.told.clear();
        self.mmu.soft.with(|sanitizer, memory| sanitizer.operation_ends(memory, operation));
        if bits != Attr::ACCESSED {
            let view = tree.view();
            let fits = |leaf: Mapped| leaf.shift <= F::shift(largest);
            view.walk_leaves(on, range, |leaf| assert!(fits(leaf), "{}: {leaf:?}", F::NAME)).unwrap();
        }
        self.done[0] += 1;
        self.done[1] += all.len() as u64;
        all
    }

    fn take_dirty<M: Machine>(&mut self, on: On<'_, M>, cpu: usize, tree: &mut Tree<F>) {
        let ((first, n), largest) = (self.part(), self.largest());
        let written: Vec<u64> = self.written.range(first..first + n).copied().collect();
        let told = self.log(on, cpu, tree, (range::<F>(first, n), Attr::DIRTY, largest));
        for page in written {
            assert!(told.contains(&page), "{}: {page:#x} was written, and not told", F::NAME);
        }
    }

    fn take_accessed<M: Machine>(&mut self, on: On<'_, M>, cpu: usize, tree: &mut Tree<F>) {
        let (first, n) = self.part();
        self.log(on, cpu, tree, (range::<F>(first, n), Attr::ACCESSED, Level::PTE));
    }

    fn write_protect<M: Machine>(&mut self, on: On<'_, M>, cpu: usize, tree: &mut Tree<F>) {
        let ((first, n), largest) = (self.part(), self.largest());
        let mapped = self.pages.range(first..first + n).filter(|(_, may_write)| **may_write);
        let expected: BTreeSet<u64> =
            mapped.map(|(page, _)| *page).filter(|page| !self.protected.contains(page)).collect();
        let told = self.log(on, cpu, tree, (range::<F>(first, n), Attr::WRITE, largest));
        assert!(told == expected, "{}: pages that are protected", F::NAME);
        self.protected.extend(told);
    }

    /// The handler of a write to a page that is protected: it may be written again.
    fn write_fault<M: Machine>(&mut self, on: On<'_, M>, tree: &mut Tree<F>, page: u64) {
        let at = VirtAddr(page << F::PAGE_SHIFT);
        let mut edit = tree.edit(on).unwrap();
        let (_, attr) = edit.query(at).unwrap();
        assert!(!attr.has(Attr::WRITE));
        edit.protect(at, attr | Attr::WRITE).unwrap();
        self.protected.remove(&page);
        self.done[3] += 1;
    }

    fn map<M: Machine>(&mut self, on: On<'_, M>, tree: &mut Tree<F>) {
        let (level, first) = self.place();
        let may_write = self.rng.below(4) > 0;
        let rights = if may_write { Attr::READ | Attr::WRITE } else { Attr::READ };
        let attr = F::nearest(rights | Attr::USER);
        let frame = Pfn(((64 + self.rng.below(6)) << (F::shift(level) - FRAME_SHIFT)) as u32);
        // A whole one, or some pages of one.
        let (n, largest) = match self.rng.below(3) {
            0 => (1 + self.rng.below(200), Level::PTE),
            _ => (1 << (F::shift(level) - F::PAGE_SHIFT), level),
        };
        let sizes = Sizes::up_to(largest);
        let sizes = if self.rng.below(4) == 0 { sizes } else { sizes.with_groups() };
        // SAFETY: 1. no program uses the memory behind the frames.
        let done =
            unsafe { tree.edit(on).unwrap().map_range_large(range::<F>(first, n), frame, attr, sizes) };
        let is_free = self.pages.range(first..first + n).next().is_none();
        assert_eq!(done.is_ok(), is_free, "{done:?}");
        if is_free {
            self.pages.extend((first..first + n).map(|page| (page, may_write)));
        }
    }

    fn unmap<M: Machine>(&mut self, on: On<'_, M>, tree: &mut Tree<F>) {
        let (first, n) = self.part();
        let pages = first..first + n;
        tree.edit(on).unwrap().unmap_range(range::<F>(first, n), Free::Empty, |va, _, attr| {
            let page = va.0 >> F::PAGE_SHIFT;
            assert_eq!(attr.has(Attr::DIRTY), self.dirty.remove(&page), "{}: page {page:#x}", F::NAME);
            assert!(self.pages.remove(&page).is_some());
        });
        self.protected.retain(|page| !pages.contains(page));
        self.written.retain(|page| !pages.contains(page));
    }

    fn collapse<M: Machine>(&mut self, on: On<'_, M>, tree: &mut Tree<F>) {
        let (level, first) = self.place();
        let at = VirtAddr(first << F::PAGE_SHIFT);
        if self.rng.below(2) == 0 {
            let shift = F::PAGE_SHIFT + u32::from(F::GROUP_BITS[0]);
            let at = VirtAddr(at.0 + (self.rng.below(3) << shift));
            if tree.edit(on).unwrap().make_group(at, Level::PTE).is_ok() {
                let leaf = tree.view().query_leaf(on, at).unwrap();
                let pages = pages_of::<F>(leaf.at.0, leaf.shift);
                if self.dirty.range(pages.clone()).next().is_some() {
                    self.dirty.extend(pages);
                }
            }
            return;
        }
        if tree.edit(on).unwrap().collapse(at, level).is_ok() {
            // All of it is dirty if a part was.
            let pages = pages_of::<F>(at.0, F::shift(level));
            if self.dirty.range(pages.clone()).next().is_some() {
                self.dirty.extend(pages);
            }
        }
    }

    /// Compares the tree with the model.
    fn compare<M: Machine>(&self, on: On<'_, M>, tree: &Tree<F>) {
        let mut mapped = 0;
        let all = VirtRange::up_to(F::USER_END);
        tree.view()
            .walk(on, all, |va, _, attr| {
                let page = va.0 >> F::PAGE_SHIFT;
                let may_write = self.pages[&page] && !self.protected.contains(&page);
                assert_eq!(attr.has(Attr::WRITE), may_write, "{}: page {page:#x}", F::NAME);
                assert_eq!(attr.has(Attr::DIRTY), self.dirty.contains(&page), "{}: page {page:#x}", F::NAME);
                mapped += 1;
            })
            .unwrap();
        assert_eq!(mapped, self.pages.len());
        assert!(self.written.is_subset(&self.dirty));
    }
}

/// Makes random operations; returns how much was done.
fn drive<F: Format, T: MmuTraits>(arch: Arch, seed: u64, asids: u16, cpus: usize) -> [u64; 4] {
    let memory = HostConfig { cpus, bytes: 64 << 20, prefault: 0, ..HostConfig::default() };
    let host = Host::<F>::new(memory).unwrap();
    let config = Config {
        cpus,
        asids: asids != 0,
        adversary: Some(Adversary::new(seed)),
        barriers: T::BROADCASTS,
        accessed_dirty: true,
        keeps_invalid: false,
        ..Config::new(arch)
    };
    let soft = SoftMmu::<_, T>::like(&host, config);
    soft.kernel_table_begins();
    let done = soft.told(|| operations(&host, &NotingMmu::new(&soft, cpus), (seed, asids, cpus)));
    host.audit().unwrap();
    soft.kernel_table_ended();
    soft.with(|sanitizer, _| {
        sanitizer.finish();
        assert_eq!(sanitizer.total(), 0, "{}, seed {seed}: {sanitizer}", F::NAME);
    });
    done
}

fn operations<F: Format, T: MmuTraits>(
    host: &Host<F>,
    mmu: &NotingMmu<'_, '_, F, T>,
    (seed, asids, cpus): (u64, u16, usize),
) -> [u64; 4] {
    let policy = Layered::new(mmu.soft, host.quicklists().unwrap()).unwrap();
    let costs = CostModel::Costs(Costs::new(1, 64));
    let tlb = TlbConfig { asids, costs, ..TlbConfig::new(cpus) };
    let machine = HostMachine::with_tlb(host, policy, mmu, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let mut tree = {
        let pin = slots[0].pin();
        Tree::<F>::new(machine.on(&pin).unwrap(), AllocFlags::NORMAL).unwrap()
    };
    let mut model = Model {
        mmu,
        rng: Rng::new(seed),
        root: tree.root(),
        loaded: vec![false; cpus],
        pages: BTreeMap::new(),
        protected: BTreeSet::new(),
        written: BTreeSet::new(),
        dirty: BTreeSet::new(),
        told: BTreeSet::new(),
        done: [0; 4],
    };
    for step in 0..STEPS {
        let cpu = model.rng.below(cpus as u64) as usize;
        let pin = slots[cpu].pin();
        let on = machine.on(&pin).unwrap();
        model.running(cpu);
        if !model.loaded[cpu] || model.rng.below(64) == 0 {
            model.loaded[cpu] = !model.loaded[cpu];
            if model.loaded[cpu] { tree.activate(on).unwrap() } else { tree.deactivate(on).unwrap() }
        }
        if model.loaded[cpu] {
            model.step(on, cpu, &mut tree);
        }
        if step % 32 == 0 {
            model.compare(on, &tree);
        }
    }
    let pin = slots[0].pin();
    model.running(0);
    tree.end(machine.on(&pin).unwrap(), |_, _, _| {}).unwrap();
    machine.drain(&slots);
    model.done
}

fn format<F: Format, T: MmuTraits>(arch: fn() -> Arch) {
    let mut sums = [0; 4];
    for seed in 1..=steps(SEEDS).into() {
        let (asids, cpus) = ([0, 5, 200][seed as usize % 3], 1 + seed as usize % 4);
        let done = drive::<F, T>(arch(), seed, asids, cpus);
        sums.iter_mut().zip(done).for_each(|(sum, n)| *sum += n);
    }
    let [logs, told, meanwhile, faults] = sums;
    assert!(logs > 150 && told > 500 && meanwhile > 250 && faults > 25, "{}: {sums:?}", F::NAME);
}

each_format_with_large_pages!();
