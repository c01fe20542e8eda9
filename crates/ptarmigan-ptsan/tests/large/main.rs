//! Random operations on trees of every format, with leaves of all sizes and groups mixed, compared
//! with a map of pages.
//!
//! CPUs that have the tree loaded read and write pages where the software MMU finds them, which
//! decodes entries of all levels as the architecture's manual says and keeps large translations as
//! such.
mod areas;
mod groups;
mod kernel;
#[macro_use]
#[path = "../driver/formats.rs"]
mod formats;
mod noted;
#[path = "../driver/rng.rs"]
mod rng;
#[path = "../driver/steps.rs"]
mod steps;

use ptarmigan::addr::{FRAME_SHIFT, Pfn, VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::table::{CollapseError, Free, MapError, Mapped, Sizes, Tree, TreeMut};
use ptarmigan::tlb::{CostModel, Costs, TlbConfig};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{MmuTraits, SoftMmu};
use ptsan::{Adversary, Arch, Config};
use rng::Rng;
use std::collections::BTreeMap;
use steps::steps;

/// Steps of each format.
const STEPS: u32 = 2_250;

/// A frame beyond the host's memory.
const FAR: Pfn = Pfn(0x8_0000);

/// Pages by number, each with its frame and attributes without those that MMUs set.
type Pages = BTreeMap<u64, (Pfn, Attr)>;

/// A tree and its map.
struct Run<'a, 'h, F: Format, T> {
    soft: &'a SoftMmu<'h, F, T>,
    rng: Rng,
    pages: Pages,
    /// How many large pages were mapped, split and collapsed, and groups mapped and made.
    done: Done,
}

type Done = [u64; 5];

/// As a page that has been used and written: MMUs that do not note it themselves keep no others.
fn used(attr: Attr) -> Attr {
    attr | Attr::ACCESSED | Attr::DIRTY
}

fn plain(attr: Attr) -> Attr {
    attr.without(Attr::ACCESSED | Attr::DIRTY)
}

fn range<F: Format>(first: u64, pages: u64) -> VirtRange {
    VirtRange::new(first << F::PAGE_SHIFT, (first + pages) << F::PAGE_SHIFT).unwrap()
}

/// Pages of a leaf of a table of `level`.
fn pages_of<F: Format>(level: Level) -> u64 {
    1 << (F::shift(level) - F::PAGE_SHIFT)
}

/// Pages of a group of leaves of a table of `level`, or of one leaf if there are no groups.
fn group_of<F: Format>(level: Level) -> u64 {
    pages_of::<F>(level) << F::GROUP_BITS[level.at()]
}

/// The levels above the lowest whose tables have leaves, of those of which some fit into the space.
fn large_levels<F: Format>() -> Vec<Level> {
    let fits = |level: &Level| F::USER_END >> F::shift(*level) >= 8 && F::shift(*level) <= 34;
    F::LAYOUT.each_level().skip(1).filter(|l| F::LEAF_LEVELS >> l.0 & 1 != 0).filter(fits).collect()
}

/// The tables that the parts of a leaf may need.
fn needed<F: Format>(level: Level) -> u64 {
    (0..level.0).fold(0, |below, l| if l == 0 { 1 } else { 1 + below * F::entries(Level(l)) as u64 })
}

fn attr<F: Format>(rng: &mut Rng) -> Attr {
    let bits = [Attr::READ, Attr::READ | Attr::WRITE, Attr::READ | Attr::EXEC, Attr::READ | Attr::WRITE];
    F::nearest(bits[rng.below(4) as usize] | Attr::USER)
}

impl<F: Format, T: MmuTraits> Run<'_, '_, F, T> {
    /// A level of large pages, mostly the lowest, and the first page of a place for one.
    fn place(&mut self) -> (Level, u64) {
        let levels = large_levels::<F>();
        // The map is slow for a page of 1 GiB.
        let level = levels[if self.rng.below(128) == 0 { levels.len() - 1 } else { 0 }];
        // Two of them lie in one table, others do not; the last one of all among them.
        let n = F::USER_END >> F::shift(level);
        let at = [n / 2, n / 2 + 1, n / 2 + 2, n - 1][self.rng.below(4) as usize];
        (level, at * pages_of::<F>(level))
    }

    /// Some pages in, at the ends of, or around a large one.
    fn part(&mut self) -> (u64, u64) {
        let (level, first) = self.place();
        let pages = pages_of::<F>(level);
        let group = group_of::<F>(Level::PTE);
        let (from, n) = match self.rng.below(if group > 1 { 9 } else { 6 }) {
            // Around groups of pages.
            6 => (self.rng.below(4) * group, group),
            7 => (self.rng.below(4 * group), 1 + self.rng.below(3 * group)),
            8 => (self.rng.below(3) * group, 4 * group),
            0 => (0, 1),
            1 => (pages - 1, 1),
            2 => (self.rng.below(pages), 1 + self.rng.below(pages)),
            3 => (pages / 2, pages / 2),
            4 => (0, pages),
            _ => (0, 1 + self.rng.below(2 * pages)),
        };
        let first = first + from;
        (first, n.min((F::USER_END >> F::PAGE_SHIFT) - first))
    }

    fn frame(&mut self, level: Level) -> Pfn {
        let align = F::shift(level) - FRAME_SHIFT;
        // Beyond the host's memory.
        Pfn(((64 + self.rng.below(6)) << align) as u32)
    }

    fn step<M: Machine>(&mut self, on: On<'_, M>, cpu: usize, tree: &mut Tree<F>) {
        self.change_tree(on, cpu, tree);
        self.soft.with(|sanitizer, memory| sanitizer.flushes_done(memory));
    }

    fn change_tree<M: Machine>(&mut self, on: On<'_, M>, cpu: usize, tree: &mut Tree<F>) {
        let mut edit = tree.edit(on).unwrap();
        match self.rng.below(19) {
            0..=2 => self.map_large(&mut edit),
            3 | 4 => self.map_range(&mut edit),
            5 | 6 => self.unmap(&mut edit),
            7 => self.unmap_page(&mut edit),
            8 => self.change(&mut edit),
            9 => self.change_page(&mut edit),
            10 => self.split(&mut edit),
            11 | 12 => self.collapse(&mut edit),
            13 => self.cursor(&mut edit),
            14 => self.map_group(&mut edit),
            15 | 16 => {
                drop(edit);
                self.make_group(on, tree);
            }
            _ => {
                drop(edit);
                for _ in 0..8 {
                    self.access(cpu, tree.root().0);
                }
            }
        }
    }

    fn is_free(&self, first: u64, pages: u64) -> bool {
        self.pages.range(first..first + pages).next().is_none()
    }

    fn put(&mut self, first: u64, pages: u64, frame: Pfn, attr: Attr) {
        for i in 0..pages {
            let pfn = Pfn(frame.0 + ((i as u32) << F::PAGE_ORDER));
            self.pages.insert(first + i, (pfn, attr));
        }
    }

    fn map_large<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (level, first) = self.place();
        let (frame, attr) = (self.frame(level), attr::<F>(&mut self.rng));
        let at = VirtAddr(first << F::PAGE_SHIFT);
        // SAFETY: 1. no program uses the memory behind the frames.
        let done = unsafe { edit.map_large(at, level, frame, used(attr), AllocFlags::NORMAL) };
        if self.is_free(first, pages_of::<F>(level)) {
            done.unwrap();
            self.put(first, pages_of::<F>(level), frame, attr);
            self.done[0] += 1;
        } else {
            assert!(matches!(done, Err(MapError::Occupied { .. })), "{done:?}");
        }
    }

    fn map_range<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (first, pages) = self.part();
        let level = large_levels::<F>()[0];
        // Aligned alike, mostly.
        let off = if self.rng.below(4) == 0 { 1 } else { first % pages_of::<F>(level) };
        let frame = Pfn(self.frame(level).0 + ((off as u32) << F::PAGE_ORDER));
        let attr = attr::<F>(&mut self.rng);
        let sizes = Sizes::up_to(if self.rng.below(2) == 0 { Level::PTE } else { level });
        let sizes = if self.rng.below(4) == 0 { sizes } else { sizes.with_groups() };
        // SAFETY: 1. no program uses the memory behind the frames.
        let done = unsafe { edit.map_range_large(range::<F>(first, pages), frame, used(attr), sizes) };
        if self.is_free(first, pages) {
            done.unwrap();
            self.put(first, pages, frame, attr);
        } else {
            assert!(matches!(done, Err(MapError::Occupied { .. })), "{done:?}");
        }
    }

    fn unmap<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (first, pages) = self.part();
        let free = [Free::Empty, Free::Never, Free::Covered][self.rng.below(3) as usize];
        let mut gone = Pages::new();
        if self.rng.below(2) == 0 {
            edit.unmap_range(range::<F>(first, pages), free, |va, pfn, attr| {
                assert!(gone.insert(va.0 >> F::PAGE_SHIFT, (pfn, plain(attr))).is_none());
            });
        } else {
            edit.unmap_leaves(range::<F>(first, pages), free, |Mapped { at, frame, attr, shift, .. }| {
                for i in 0..1u64 << (shift - F::PAGE_SHIFT) {
                    let pfn = Pfn(frame.0 + ((i as u32) << F::PAGE_ORDER));
                    assert!(gone.insert((at.0 >> F::PAGE_SHIFT) + i, (pfn, plain(attr))).is_none());
                }
            });
        }
        let mut expected = self.pages.split_off(&first);
        self.pages.append(&mut expected.split_off(&(first + pages)));
        assert_eq!(gone, expected, "{}: unmapped {first:#x}, {pages} pages", F::NAME);
    }

    fn unmap_page<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (page, _) = self.part();
        let gone = edit.unmap(VirtAddr(page << F::PAGE_SHIFT)).map(|(pfn, attr)| (pfn, plain(attr)));
        assert_eq!(gone, self.pages.remove(&page), "{}: page {page:#x}", F::NAME);
    }

    fn change<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (first, pages) = self.part();
        let to = attr::<F>(&mut self.rng);
        let kept = Attr::ACCESSED | Attr::DIRTY;
        edit.change_range(range::<F>(first, pages), |was| used(to) | was.only(kept)).unwrap();
        self.pages.range_mut(first..first + pages).for_each(|(_, page)| page.1 = to);
    }

    fn change_page<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (page, _) = self.part();
        let to = attr::<F>(&mut self.rng);
        let was = edit.protect(VirtAddr(page << F::PAGE_SHIFT), used(to)).unwrap().map(plain);
        let entry = self.pages.get_mut(&page);
        assert_eq!(was, entry.as_ref().map(|page| page.1));
        if let Some(entry) = entry {
            entry.1 = to;
        }
    }

    fn split<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (page, _) = self.part();
        edit.split(VirtAddr(page << F::PAGE_SHIFT), Level::PTE).unwrap();
        self.done[1] += 1;
    }

    fn collapse<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (level, first) = self.place();
        let n = pages_of::<F>(level);
        let one = self.pages.get(&first).copied();
        let is_uniform = one.is_some_and(|(pfn, attr)| {
            pfn.0.trailing_zeros() >= F::shift(level) - FRAME_SHIFT
                && (0..n).all(|i| {
                    let own = Pfn(pfn.0 + ((i as u32) << F::PAGE_ORDER));
                    self.pages.get(&(first + i)) == Some(&(own, attr))
                })
        });
        match edit.collapse(VirtAddr(first << F::PAGE_SHIFT), level) {
            Ok(()) => {
                assert!(is_uniform, "{}: {first:#x} became large", F::NAME);
                self.done[2] += 1;
            }
            // Of pages, one of a higher level is not made at once.
            Err(CollapseError::Differs { .. }) => assert!(!is_uniform || level > Level(1)),
            Err(e) => panic!("{}: {e}", F::NAME),
        }
    }

    /// A level, mostly the lowest, and the first page of a place for a group, or near one.
    fn place_of_group(&mut self) -> (Level, u64) {
        // The map is slow for many large pages.
        if self.rng.below(64) == 0 {
            let level = large_levels::<F>()[0];
            let n = F::USER_END >> F::shift(level);
            return (level, n / 2 * pages_of::<F>(level));
        }
        (Level::PTE, self.place().1 + self.rng.below(4) * group_of::<F>(Level::PTE))
    }

    fn map_group<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (level, first) = self.place_of_group();
        let pages = group_of::<F>(level);
        let frames = (pages as u32) << F::PAGE_ORDER;
        let frame = Pfn(FAR.0.next_multiple_of(frames) + self.rng.below(3) as u32 * frames);
        let attr = attr::<F>(&mut self.rng);
        let at = VirtAddr(first << F::PAGE_SHIFT);
        // SAFETY: 1. no program uses the memory behind the frames.
        let done = unsafe { edit.map_group(at, level, frame, used(attr), AllocFlags::NORMAL) };
        if F::GROUP_BITS[level.at()] == 0 {
            assert!(matches!(done, Err(MapError::NoSuchSize { .. })), "{}: {done:?}", F::NAME);
        } else if self.is_free(first, pages) {
            done.unwrap();
            self.put(first, pages, frame, attr);
            self.done[3] += 1;
        } else {
            assert!(matches!(done, Err(MapError::Occupied { .. })), "{done:?}");
        }
    }

    fn make_group<M: Machine>(&mut self, on: On<'_, M>, tree: &mut Tree<F>) {
        let (level, first) = self.place_of_group();
        let (pages, at) = (group_of::<F>(level), VirtAddr(first << F::PAGE_SHIFT));
        let one = self.pages.get(&first).copied();
        let is_uniform = one.is_some_and(|(pfn, attr)| {
            u64::from(pfn.0 >> F::PAGE_ORDER).is_multiple_of(pages)
                && (0..pages).all(|i| {
                    let own = Pfn(pfn.0 + ((i as u32) << F::PAGE_ORDER));
                    self.pages.get(&(first + i)) == Some(&(own, attr))
                })
        });
        let mut levels = Vec::new();
        tree.view().walk_leaves(on, range::<F>(first, pages), |leaf| levels.push(leaf.level)).unwrap();
        match tree.edit(on).unwrap().make_group(at, level) {
            Ok(()) => {
                assert!(is_uniform || levels[0] > level, "{}: {first:#x} became a group", F::NAME);
                self.done[4] += 1;
            }
            Err(CollapseError::Differs { .. }) => {
                assert!(!is_uniform || levels.iter().any(|found| *found < level), "{}", F::NAME);
            }
            Err(CollapseError::BadPlace(_)) => assert_eq!(F::GROUP_BITS[level.at()], 0),
            Err(e) => panic!("{}: {e}", F::NAME),
        }
    }

    fn cursor<M: Machine>(&mut self, edit: &mut TreeMut<'_, F, M>) {
        let (first, pages) = self.part();
        let what = self.rng.below(3);
        let to = attr::<F>(&mut self.rng);
        let mut cursor = edit.cursor(range::<F>(first, pages.min(20)));
        while !cursor.is_done() {
            let page = cursor.at().0 >> F::PAGE_SHIFT;
            let here = cursor.query().map(|(pfn, attr)| (pfn, plain(attr)));
            assert_eq!(here, self.pages.get(&page).copied(), "{}: page {page:#x}", F::NAME);
            match what {
                0 => {
                    let gone = cursor.unmap().map(|(pfn, attr)| (pfn, plain(attr)));
                    assert_eq!(gone, self.pages.remove(&page));
                }
                1 => {
                    cursor.protect(used(to)).unwrap();
                    self.pages.entry(page).and_modify(|page| page.1 = to);
                    cursor.advance();
                }
                _ => {
                    // SAFETY: 1. no program uses the memory behind the frames.
                    let done = unsafe { cursor.map(FAR, used(to), AllocFlags::NORMAL) };
                    if let std::collections::btree_map::Entry::Vacant(entry) = self.pages.entry(page) {
                        done.unwrap();
                        entry.insert((FAR, to));
                    } else {
                        assert!(matches!(done, Err(MapError::Occupied { .. })), "{done:?}");
                        cursor.advance();
                    }
                }
            }
        }
    }

    /// A program reads or writes a page.
    fn access(&mut self, cpu: usize, _root: u64) {
        let (page, _) = self.part();
        let (va, write) = (page << F::PAGE_SHIFT, self.rng.below(2) == 0);
        let kind = if write { ptsan::Access::WRITE } else { ptsan::Access::READ };
        let found = self.soft.with(|sanitizer, memory| sanitizer.translate(memory, cpu, va, kind)).ok();
        let expected = self.pages.get(&page);
        if let Some(found) = found {
            let (pfn, attr) = expected.unwrap_or_else(|| panic!("{}: {va:#x} is not mapped", F::NAME));
            assert_eq!(
                found.phys >> F::PAGE_SHIFT,
                u64::from(pfn.0 >> F::PAGE_ORDER),
                "{}: {va:#x}",
                F::NAME
            );
            assert!(!write || attr.has(Attr::WRITE), "{}: {va:#x} may not be written", F::NAME);
        }
    }

    /// Compares the tree with the map.
    fn compare<M: Machine>(&self, on: On<'_, M>, tree: &Tree<F>) {
        let all = VirtRange::up_to(F::USER_END);
        let (mut leaves, mut last, mut reserved) = (Pages::new(), 0, 0);
        tree.view()
            .walk_leaves(on, all, |leaf| {
                assert!(leaf.at.0 >= last, "in order");
                assert_eq!(leaf.at.0 & (leaf.range().len() - 1), 0, "aligned");
                assert_eq!(tree.view().query_leaf(on, leaf.at), Some(leaf));
                last = leaf.at.0 + leaf.range().len();
                let pages = leaf.range().len() >> F::PAGE_SHIFT;
                reserved += needed::<F>(leaf.level) * (pages / pages_of::<F>(leaf.level));
                assert_eq!(u64::from(leaf.frame.0 >> F::PAGE_ORDER) & (pages - 1), 0, "aligned");
                for i in 0..pages {
                    let pfn = Pfn(leaf.frame.0 + ((i as u32) << F::PAGE_ORDER));
                    leaves.insert((leaf.at.0 >> F::PAGE_SHIFT) + i, (pfn, plain(leaf.attr)));
                }
            })
            .unwrap();
        assert!(leaves == self.pages, "{}: the tree and its map differ", F::NAME);
        assert_eq!(u64::from(tree.reserved()), reserved, "{}: tables of {reserved} are reserved", F::NAME);
        for page in self.pages.keys().step_by(97) {
            let (pfn, attr) = self.pages[page];
            let found = tree.query(on, VirtAddr(page << F::PAGE_SHIFT));
            assert_eq!(found.map(|(pfn, attr)| (pfn, plain(attr))), Some((pfn, attr)));
        }
    }
}

/// The settings of a sanitizer beside which an adversary walks, and sets bits for every other seed.
/// No fault is served, so no entry is kept that is not valid.
fn config<T: MmuTraits>(arch: Arch, seed: u64, asids: u16, cpus: usize) -> Config {
    let adversary = Some(Adversary::new(seed));
    let (asids, barriers) = (asids != 0, T::BROADCASTS);
    let walkers_set_bits = arch.used.is_some() && seed % 2 == 1;
    Config { cpus, asids, adversary, barriers, keeps_invalid: false, walkers_set_bits, ..Config::new(arch) }
}

/// Makes random operations; returns the counts of the run.
fn drive<F: Format, T: MmuTraits>(arch: Arch, seed: u64, steps: u32, asids: u16, cpus: usize) -> Done {
    let memory = HostConfig { cpus, bytes: 64 << 20, prefault: 0, ..HostConfig::default() };
    let host = Host::<F>::new(memory).unwrap();
    let soft = SoftMmu::<_, T>::like(&host, config::<T>(arch, seed, asids, cpus));
    let run = Run { soft: &soft, rng: Rng::new(seed), pages: Pages::new(), done: [0; 5] };
    soft.kernel_table_begins();
    let done = soft.told(|| operations(&host, run, steps, asids, cpus));
    host.audit().unwrap();
    soft.kernel_table_ended();
    soft.with(|sanitizer, _| {
        sanitizer.finish();
        assert_eq!(sanitizer.total(), 0, "{}, seed {seed}: {sanitizer}", F::NAME);
    });
    done
}

/// Makes the operations; returns the counts of the run.
fn operations<F: Format, T: MmuTraits>(
    host: &Host<F>,
    mut run: Run<'_, '_, F, T>,
    steps: u32,
    asids: u16,
    cpus: usize,
) -> Done {
    let soft = run.soft;
    let policy = Layered::new(soft, host.quicklists().unwrap()).unwrap();
    let costs = CostModel::Costs(Costs::new(1, 64));
    let tlb = TlbConfig { asids, costs, ..TlbConfig::new(cpus) };
    {
        let machine = HostMachine::with_tlb(host, policy, soft, tlb, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let mut tree = {
            let pin = slots[0].pin();
            Tree::<F>::new(machine.on(&pin).unwrap(), AllocFlags::NORMAL).unwrap()
        };
        let mut loaded = vec![false; cpus];
        for step in 0..steps {
            let cpu = run.rng.below(cpus as u64) as usize;
            let pin = slots[cpu].pin();
            let on = machine.on(&pin).unwrap();
            if !loaded[cpu] || run.rng.below(64) == 0 {
                loaded[cpu] = !loaded[cpu];
                if loaded[cpu] { tree.activate(on).unwrap() } else { tree.deactivate(on).unwrap() }
            }
            if loaded[cpu] {
                run.step(on, cpu, &mut tree);
            }
            if step % 64 == 0 {
                run.compare(on, &tree);
                assert_eq!(host.frames().reserved(), if F::PAGE_ORDER == 0 { tree.reserved() } else { 0 });
            }
        }
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        run.compare(on, &tree);
        let mut left = Pages::new();
        tree.end(on, |va, pfn, attr| {
            left.insert(va.0 >> F::PAGE_SHIFT, (pfn, plain(attr)));
        })
        .unwrap();
        assert!(left == run.pages, "{}: at the end", F::NAME);
        assert_eq!(host.frames().reserved(), 0);
        machine.drain(&slots);
    }
    run.done
}

fn format<F: Format, T: MmuTraits>(arch: fn() -> Arch) {
    const PIECE: u32 = 450;
    let mut sums = [0; 5];
    for seed in 1..=steps(STEPS) / PIECE {
        let (asids, cpus) = ([0, 5, 200][seed as usize % 3], 1 + seed as usize % 4);
        let done = drive::<F, T>(arch(), seed.into(), PIECE, asids, cpus);
        sums.iter_mut().zip(done).for_each(|(sum, n)| *sum += n);
    }
    let [mapped, split, collapsed, groups, made] = sums;
    assert!(mapped > 25 && split > 25 && collapsed > 5, "{}: {sums:?}", F::NAME);
    let has_groups = F::GROUP_BITS != [0; 5];
    assert!(!has_groups || groups > 50 && made > 20, "{}: {sums:?}", F::NAME);
}

each_format_with_large_pages!();
