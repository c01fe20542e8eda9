//! Random operations on two ranges of the kernel's half that share tables, with leaves of all
//! sizes and groups mixed, compared with maps of their pages. All CPUs use the pages all the time.
use crate::rng::Rng;
use crate::steps::steps;
use crate::{Pages, config, group_of, needed, pages_of, plain};
use ptarmigan::addr::{FRAME_SHIFT, Pfn, VirtAddr};
use ptarmigan::format::{Aarch64Upper, Attr, Format, Sv39Napot, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::table::{CollapseError, KernelRange, KernelRangeError, MapError, Sizes};
use ptarmigan::tlb::{CostModel, Costs, TlbConfig};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{Broadcasting, Fencing, Interrupting, MmuTraits, SoftMmu, Told, Watchable};
use ptsan::{Arch, Barrier, Kind};

/// Steps of each format.
const STEPS: u32 = 1_000;

type Range<'h, F> = KernelRange<'h, F, DirectMap>;

/// A range and its map.
struct Owner<'h, F: Format> {
    range: Range<'h, F>,
    pages: Pages,
}

struct Run<'a, 'h, F: Format, T> {
    soft: &'a SoftMmu<'h, F, T>,
    host: &'h Host<F>,
    rng: Rng,
    cpus: usize,
    /// How many large pages were mapped, split and collapsed, how many splits were refused, and how
    /// many groups were made or found to change in part.
    done: [u64; 6],
}

/// The levels whose tables have leaves in ranges, above the lowest: of pages up to 1 GiB.
fn large_levels<F: Format>() -> Vec<Level> {
    let below_root = F::LAYOUT.each_level().take(F::LAYOUT.levels as usize - 1).skip(1);
    below_root.filter(|l| F::LEAF_LEVELS >> l.0 & 1 != 0 && F::shift(*l) <= 30).collect()
}

fn attr<F: Format>(rng: &mut Rng) -> Attr {
    let bits = [Attr::READ, Attr::READ | Attr::WRITE, Attr::READ | Attr::EXEC, Attr::READ | Attr::WRITE];
    F::nearest(bits[rng.below(4) as usize])
}

fn va<F: Format>(page: u64) -> VirtAddr {
    VirtAddr(page << F::PAGE_SHIFT)
}

impl<'h, F: Format, T: MmuTraits> Run<'_, 'h, F, T> {
    fn first(owner: &Owner<'h, F>) -> u64 {
        owner.range.start().0 >> F::PAGE_SHIFT
    }

    fn len(owner: &Owner<'h, F>) -> u64 {
        owner.range.len() >> F::PAGE_SHIFT
    }

    /// A level of large pages, mostly the lowest, and the first page of a place for one.
    fn place(&mut self, owner: &Owner<'h, F>) -> (Level, u64) {
        let levels = large_levels::<F>();
        let (first, len) = (Self::first(owner), Self::len(owner));
        // The map is slow for a page of 1 GiB.
        let mut level = levels[if self.rng.below(64) == 0 { levels.len() - 1 } else { 0 }];
        if len < 2 * pages_of::<F>(level) {
            level = levels[0];
        }
        let n = pages_of::<F>(level);
        let from = first.next_multiple_of(n);
        let places = (first + len - from) / n;
        let at = [0, 1, places / 2, places - 1][self.rng.below(4) as usize].min(places - 1);
        (level, from + at * n)
    }

    /// Some pages in, at the ends of, or around a large one.
    fn part(&mut self, owner: &Owner<'h, F>) -> (u64, u64) {
        let (level, first) = self.place(owner);
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
        (first + from, n.min(Self::first(owner) + Self::len(owner) - first - from))
    }

    fn frame(&mut self, level: Level) -> Pfn {
        // Beyond the host's memory.
        Pfn(((64 + self.rng.below(6)) << (F::shift(level) - FRAME_SHIFT)) as u32)
    }

    fn step<M: Machine>(&mut self, on: On<'_, M>, owner: &mut Owner<'h, F>) {
        match self.rng.below(18) {
            0..=2 => self.map_large(on, owner),
            3 | 4 => self.map_range(on, owner),
            5..=7 => self.unmap(on, owner),
            8 | 9 => self.protect(on, owner),
            10 => self.split(on, owner),
            11 | 12 => self.collapse(on, owner),
            13 | 14 => self.make_group(on, owner),
            _ => {
                for _ in 0..8 {
                    self.access(owner);
                }
            }
        }
    }

    fn put(owner: &mut Owner<'h, F>, first: u64, pages: u64, frame: Pfn, attr: Attr) {
        for i in 0..pages {
            owner.pages.insert(first + i, (Pfn(frame.0 + ((i as u32) << F::PAGE_ORDER)), attr));
        }
    }

    fn map_large<M: Machine>(&mut self, on: On<'_, M>, owner: &mut Owner<'h, F>) {
        let (level, first) = self.place(owner);
        let (frame, attr, n) = (self.frame(level), attr::<F>(&mut self.rng), pages_of::<F>(level));
        // SAFETY: 1. nobody uses the memory behind the frames.
        let done =
            unsafe { owner.range.map_large(on, va::<F>(first), level, frame, attr, AllocFlags::NORMAL) };
        if owner.pages.range(first..first + n).next().is_none() {
            done.unwrap();
            Self::put(owner, first, n, frame, attr);
            self.done[0] += 1;
        } else {
            assert!(matches!(done, Err(MapError::Occupied { .. })), "{done:?}");
        }
    }

    fn map_range<M: Machine>(&mut self, on: On<'_, M>, owner: &mut Owner<'h, F>) {
        let (first, n) = self.part(owner);
        let level = large_levels::<F>()[0];
        // Aligned alike, mostly.
        let off = if self.rng.below(4) == 0 { 1 } else { first % pages_of::<F>(level) };
        let frame = Pfn(self.frame(level).0 + ((off as u32) << F::PAGE_ORDER));
        let (attr, at) = (attr::<F>(&mut self.rng), va::<F>(first));
        let flags = AllocFlags::NORMAL;
        // SAFETY: 1. nobody uses the memory behind the frames.
        let done = unsafe {
            match self.rng.below(6) {
                0 => owner.range.map(on, at, frame, n, attr, flags),
                1 => owner.range.map_range_large(on, at, frame, n, attr, Level::PTE, flags),
                2 => {
                    let sizes = Sizes::up_to(Level::PTE).with_groups();
                    owner.range.map_range_large(on, at, frame, n, attr, sizes, flags)
                }
                3 | 4 => {
                    let sizes = Sizes::up_to(level).with_groups();
                    owner.range.map_range_large(on, at, frame, n, attr, sizes, flags)
                }
                _ => owner.range.map_range_large(on, at, frame, n, attr, level, flags),
            }
        };
        if owner.pages.range(first..first + n).next().is_none() {
            done.unwrap();
            Self::put(owner, first, n, frame, attr);
        } else {
            assert!(matches!(done, Err(MapError::Occupied { .. })), "{done:?}");
        }
    }

    /// Makes a change of some pages, for which large pages may have to be split before.
    fn change<M: Machine>(
        &mut self,
        on: On<'_, M>,
        owner: &mut Owner<'h, F>,
        (first, n): (u64, u64),
        mut change: impl FnMut(&mut Range<'h, F>) -> Result<(), KernelRangeError>,
    ) {
        let is_end = |page: u64| {
            page < Self::first(owner) + Self::len(owner)
                && owner.range.query_leaf(on, va::<F>(page)).is_some_and(|leaf| leaf.at != va::<F>(page))
        };
        let splits = is_end(first) || is_end(first + n);
        let is_group = |page: u64| {
            let leaf = owner.range.query_leaf(on, va::<F>(page));
            leaf.is_some_and(|leaf| leaf.shift != F::shift(leaf.level))
        };
        if is_end(first) && is_group(first) || is_end(first + n) && is_group(first + n) {
            self.done[5] += 1;
        }
        loop {
            match change(&mut owner.range) {
                Ok(()) => break,
                Err(KernelRangeError::PartOfLarge { at }) => {
                    assert!(F::EVER_BREAKS && splits, "{}: {at} need not be split", F::NAME);
                    owner.range.split(on, at, Level::PTE).unwrap();
                    for end in [first, first + n] {
                        if end < Self::first(owner) + Self::len(owner) {
                            owner.range.split(on, va::<F>(end), Level::PTE).unwrap();
                        }
                    }
                    self.done[3] += 1;
                }
                Err(e) => panic!("{}: {e}", F::NAME),
            }
        }
    }

    fn unmap<M: Machine>(&mut self, on: On<'_, M>, owner: &mut Owner<'h, F>) {
        let (first, n) = self.part(owner);
        let mut gone = Vec::new();
        self.change(on, owner, (first, n), |range| {
            range.unmap(on, va::<F>(first), n, |va, pfn| gone.push((va.0 >> F::PAGE_SHIFT, pfn)))
        });
        let mut expected = owner.pages.split_off(&first);
        owner.pages.append(&mut expected.split_off(&(first + n)));
        assert!(gone.into_iter().eq(expected.into_iter().map(|(page, (pfn, _))| (page, pfn))));
    }

    fn protect<M: Machine>(&mut self, on: On<'_, M>, owner: &mut Owner<'h, F>) {
        let (first, n) = self.part(owner);
        let to = attr::<F>(&mut self.rng);
        self.change(on, owner, (first, n), |range| range.protect(on, va::<F>(first), n, |_| to));
        owner.pages.range_mut(first..first + n).for_each(|(_, page)| page.1 = to);
    }

    fn split<M: Machine>(&mut self, on: On<'_, M>, owner: &mut Owner<'h, F>) {
        let (page, _) = self.part(owner);
        owner.range.split(on, va::<F>(page), Level::PTE).unwrap();
        let leaf = owner.range.query_leaf(on, va::<F>(page));
        assert!(leaf.is_none_or(|leaf| leaf.shift == F::PAGE_SHIFT));
        self.done[1] += 1;
    }

    fn collapse<M: Machine>(&mut self, on: On<'_, M>, owner: &mut Owner<'h, F>) {
        let (level, first) = self.place(owner);
        let one = owner.pages.get(&first).copied();
        let is_uniform = one.is_some_and(|(pfn, attr)| {
            pfn.0.trailing_zeros() >= F::shift(level) - FRAME_SHIFT
                && (0..pages_of::<F>(level)).all(|i| {
                    let own = Pfn(pfn.0 + ((i as u32) << F::PAGE_ORDER));
                    owner.pages.get(&(first + i)) == Some(&(own, attr))
                })
        });
        match owner.range.collapse(on, va::<F>(first), level) {
            Ok(()) => {
                assert!(is_uniform, "{}: {first:#x} became large", F::NAME);
                self.done[2] += 1;
            }
            // Of pages, one of a higher level is not made at once.
            Err(CollapseError::Differs { .. }) => assert!(!is_uniform || level > Level(1)),
            Err(e) => panic!("{}: {e}", F::NAME),
        }
    }

    fn make_group<M: Machine>(&mut self, on: On<'_, M>, owner: &mut Owner<'h, F>) {
        let pages = group_of::<F>(Level::PTE);
        let first = self.place(owner).1 + self.rng.below(4) * pages;
        let one = owner.pages.get(&first).copied();
        let is_uniform = one.is_some_and(|(pfn, attr)| {
            u64::from(pfn.0 >> F::PAGE_ORDER).is_multiple_of(pages)
                && (0..pages).all(|i| {
                    let own = Pfn(pfn.0 + ((i as u32) << F::PAGE_ORDER));
                    owner.pages.get(&(first + i)) == Some(&(own, attr))
                })
        });
        let is_large = owner.range.query_leaf(on, va::<F>(first)).is_some_and(|leaf| leaf.level > Level::PTE);
        match owner.range.make_group(on, va::<F>(first), Level::PTE) {
            Ok(()) => {
                assert!(is_uniform || is_large, "{}: {first:#x} became a group", F::NAME);
                self.done[4] += 1;
            }
            Err(CollapseError::Differs { .. }) => assert!(!is_uniform, "{}: {first:#x}", F::NAME),
            Err(CollapseError::BadPlace(_)) => assert_eq!(F::GROUP_BITS[0], 0),
            Err(e) => panic!("{}: {e}", F::NAME),
        }
    }

    /// Each CPU reads or writes a page: it finds what is mapped, and nothing else.
    fn access(&mut self, owner: &Owner<'h, F>) {
        let (page, _) = self.part(owner);
        let expected = owner.pages.get(&page);
        for cpu in 0..self.cpus {
            let write = self.rng.below(2) == 0;
            let kind = if write { ptsan::Access::WRITE } else { ptsan::Access::READ }.kernel();
            let at = va::<F>(page).0;
            let found = self.soft.with(|sanitizer, memory| sanitizer.translate(memory, cpu, at, kind)).ok();
            let allowed = expected.filter(|(_, attr)| !write || attr.has(Attr::WRITE));
            assert_eq!(
                found.map(|found| found.phys >> F::PAGE_SHIFT),
                allowed.map(|(pfn, _)| u64::from(pfn.0 >> F::PAGE_ORDER)),
                "{}: {at:#x}, CPU {cpu}, write: {write}",
                F::NAME
            );
        }
    }

    /// Compares a range with its map; returns the tables that its pages reserve.
    fn compare<M: Machine>(&mut self, on: On<'_, M>, owner: &Owner<'h, F>) -> u64 {
        let (mut reserved, mut next) = (0, 0);
        for (page, (pfn, attr)) in &owner.pages {
            let found = owner.range.query(on, va::<F>(*page)).map(|(pfn, attr)| (pfn, plain(attr)));
            assert_eq!(found, Some((*pfn, *attr)), "{}: page {page:#x}", F::NAME);
            if *page >= next {
                let leaf = owner.range.query_leaf(on, va::<F>(*page)).unwrap();
                assert_eq!((leaf.at, leaf.frame), (va::<F>(*page), *pfn), "all of it is in the map");
                let pages = 1 << (leaf.shift - F::PAGE_SHIFT);
                reserved += needed::<F>(leaf.level) * (pages / pages_of::<F>(leaf.level));
                next = page + pages;
            }
        }
        for _ in 0..64 {
            let page = Self::first(owner) + self.rng.below(Self::len(owner));
            let found = owner.range.query(on, va::<F>(page));
            assert_eq!(found.is_some(), owner.pages.contains_key(&page), "{}: page {page:#x}", F::NAME);
        }
        reserved
    }

    fn operations(&mut self, steps: u32, asids: u16) {
        let (soft, host, cpus) = (self.soft, self.host, self.cpus);
        let policy = Layered::new(soft, host.quicklists().unwrap()).unwrap();
        let costs = CostModel::Costs(Costs::new(1, 64));
        let tlb = TlbConfig { asids, costs, ..TlbConfig::new(cpus) };
        let machine = HostMachine::with_tlb(host, policy, soft, tlb, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let pins: Vec<_> = slots.iter().map(|slot| slot.pin()).collect();
        // At the end of the address space; the first of them has two places of each size.
        let levels = large_levels::<F>();
        let small = 4 << F::shift(levels[0]);
        let large = 2u64 << F::shift(*levels.last().unwrap());
        let places =
            [(small + large, large), (small, small)].map(|(back, bytes)| (back.wrapping_neg(), bytes));
        let claim = |on, (start, bytes)| {
            let range = host.kernel().claim(on, VirtAddr(start), bytes).unwrap();
            Owner { range, pages: Pages::new() }
        };
        let mut owners = places.map(|place| Some(claim(machine.on(&pins[0]).unwrap(), place)));
        let root = host.kernel().root();
        soft.load_kernel_root(0, root);
        (1..cpus).for_each(|cpu| {
            soft.with(|sanitizer, memory| {
                sanitizer.barrier(cpu, Barrier::Data);
                sanitizer.switch(memory, cpu, root.0, 0);
                sanitizer.barrier(cpu, Barrier::Instruction);
            });
        });
        for step in 0..steps {
            let on = machine.on(&pins[self.rng.below(cpus as u64) as usize]).unwrap();
            let which = self.rng.below(2) as usize;
            if self.rng.below(128) == 0 {
                let Owner { range, pages } = owners[which].take().unwrap();
                let mut gone = Vec::new();
                range
                    .release(on, |va, pfn| gone.push((va.0 >> F::PAGE_SHIFT, pfn)))
                    .map_err(|(e, _)| e)
                    .unwrap();
                assert!(gone.into_iter().eq(pages.into_iter().map(|(page, (pfn, _))| (page, pfn))));
                owners[which] = Some(claim(on, places[which]));
            }
            self.step(on, owners[which].as_mut().unwrap());
            soft.with(|sanitizer, memory| sanitizer.flushes_done(memory));
            if step % 64 == 0 {
                let reserved = owners.iter().flatten().map(|owner| self.compare(on, owner)).sum();
                assert_eq!(
                    u64::from(host.frames().reserved()),
                    if F::PAGE_ORDER == 0 { reserved } else { 0 }
                );
            }
        }
        let on = machine.on(&pins[0]).unwrap();
        for owner in owners.into_iter().flatten() {
            self.compare(on, &owner);
            owner.range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
        }
        assert_eq!(host.frames().reserved(), 0);
        machine.drain(&slots);
    }
}

fn format<F: Format, T: MmuTraits>(arch: fn() -> Arch) {
    const PIECE: u32 = 250;
    let mut sums = [0; 6];
    for seed in 1..=u64::from(steps(STEPS) / PIECE) {
        let (asids, cpus) = ([0, 5, 200][seed as usize % 3], 1 + seed as usize % 4);
        let host = Host::<F>::new(HostConfig { cpus, bytes: 64 << 20, ..HostConfig::default() }).unwrap();
        let soft = SoftMmu::<_, T>::like(&host, config::<T>(arch(), seed, asids, cpus));
        let mut run = Run { soft: &soft, host: &host, rng: Rng::new(seed), cpus, done: [0; 6] };
        soft.told(|| run.operations(PIECE, asids));
        sums.iter_mut().zip(run.done).for_each(|(sum, n)| *sum += n);
        host.audit().unwrap();
        soft.with(|sanitizer, _| {
            assert_eq!(sanitizer.count(Kind::BreakBeforeMake), 0, "{}, seed {seed}: {sanitizer}", F::NAME);
            assert_eq!(sanitizer.total(), 0, "{}, seed {seed}: {sanitizer}", F::NAME);
        });
    }
    let [mapped, split, collapsed, refused, groups, parts] = sums;
    assert!(mapped > 25 && split > 25 && collapsed > 5, "{}: {sums:?}", F::NAME);
    assert_eq!(refused > 25, F::EVER_BREAKS, "{}: {sums:?}", F::NAME);
    assert!(F::GROUP_BITS == [0; 5] || groups > 10 && parts > 5, "{}: {sums:?}", F::NAME);
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
    kernel_of_x86_64 X86_64, Interrupting;
    kernel_of_sv39_napot Sv39Napot, Fencing;
    kernel_of_aarch64_4k Aarch64Upper, Broadcasting;
}

#[cfg(feature = "formats")]
each_format! {
    kernel_of_x86_64_5 ptarmigan::format::X86_64La57, ptarmigan_ptsan::Interrupting;
    kernel_of_sv39 ptarmigan::format::Sv39, ptarmigan_ptsan::Fencing;
    kernel_of_sv48 ptarmigan::format::Sv48, ptarmigan_ptsan::Fencing;
    kernel_of_sv57 ptarmigan::format::Sv57, ptarmigan_ptsan::Fencing;
    kernel_of_aarch64_16k ptarmigan::format::Aarch64K16Upper, ptarmigan_ptsan::Broadcasting;
    kernel_of_aarch64_64k ptarmigan::format::Aarch64K64Upper, ptarmigan_ptsan::Broadcasting;
}
