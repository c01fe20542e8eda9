//! Random areas of the kernel's half, of blocks, pages and frames of the test's, while the free
//! memory is in pieces. All CPUs use the pages all the time.
use crate::rng::Rng;
use crate::{config, pages_of, plain};
use ptarmigan::addr::{FRAME_SHIFT, Pfn, VirtAddr};
use ptarmigan::format::{Aarch64Upper, Attr, Format, X86_64};
use ptarmigan::frames::{AllocFlags, DataFrame, ORDERS};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::tlb::{CostModel, Costs, TlbConfig};
use ptarmigan::vmalloc::{Area, AreaError, Vmalloc};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan_ptsan::{Broadcasting, Interrupting, MmuTraits, SoftMmu, Told, Watchable};
use ptsan::{Arch, Barrier, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Steps of each format.
const STEPS: u32 = 1_500;

/// Pages of level 1 in the range.
const SPANS: u64 = 16;

const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0);

struct Run<'a, 'h, F: Format, T> {
    soft: &'a SoftMmu<'h, F, T>,
    host: &'h Host<F>,
    rng: Rng,
    cpus: usize,
    /// Each page that is mapped, and whether it can be written.
    pages: BTreeMap<u64, (Pfn, bool)>,
    /// The frames of pages that have their own.
    own: BTreeSet<u32>,
    /// Areas that had large pages alone, some beside others, and none where one would fit.
    had: [u64; 3],
}

/// An area, and whether its frames are its own.
struct Live<'k>(Area<'k>, bool);

impl<'h, F: Format, T: MmuTraits> Run<'_, 'h, F, T> {
    const PAGE: u64 = 1 << F::PAGE_SHIFT;

    fn whole() -> u64 {
        pages_of::<F>(Level(1))
    }

    fn has_blocks() -> bool {
        ((F::shift(Level(1)) - FRAME_SHIFT) as usize) < ORDERS
    }

    /// Makes an area.
    fn add<'k, M: Machine>(
        &mut self,
        on: On<'_, M>,
        areas: &mut Vmalloc<'k, F, DirectMap>,
        live: &mut Vec<Live<'k>>,
    ) {
        let (whole, attr, flags) = (Self::whole(), RW, AllocFlags::NORMAL);
        let pages = match self.rng.below(6) {
            0 => 1 + self.rng.below(40),
            1 => whole - 1,
            2 => whole + self.rng.below(9),
            3 => 2 * whole + self.rng.below(2 * whole),
            _ => [1, 2, 3, 5][self.rng.below(4) as usize] * whole,
        };
        let kind = self.rng.below(8);
        let made = match kind {
            0 => {
                let (far, off) = (64 + self.rng.below(4), self.rng.below(3));
                let first =
                    Pfn(((far << (F::shift(Level(1)) - FRAME_SHIFT)) + (off << F::PAGE_ORDER)) as u32);
                // SAFETY: 1. nobody uses the memory behind the frames.
                unsafe { areas.map(on, first, pages, attr, flags) }
            }
            1 | 2 => areas.alloc(on, pages, attr, flags),
            _ => areas.alloc_large(on, pages, attr, flags),
        };
        let area = match made {
            Ok(area) => area,
            Err(AreaError::NoRoom { .. } | AreaError::NoFrame(_)) => return,
            Err(e) => panic!("{}: {e}", F::NAME),
        };
        assert_eq!(area.pages(), pages);
        let (mut at, mut large, mut fits) = (area.start().0, 0, 0);
        for page in 0..pages {
            let va = area.start().0 + page * Self::PAGE;
            let leaf = areas.range().query_leaf(on, VirtAddr(va)).unwrap();
            if leaf.at.0 == va {
                assert_eq!((va, plain(leaf.attr)), (at, RW));
                at += leaf.range().len();
                large += u64::from(leaf.level > Level::PTE);
            }
            fits += u64::from(va.is_multiple_of(whole * Self::PAGE) && pages - page >= whole);
            let (pfn, _) = areas.range().query(on, VirtAddr(va)).unwrap();
            assert!(self.pages.insert(va, (pfn, true)).is_none(), "{}: {va:#x} is in two areas", F::NAME);
            assert!(kind == 0 || self.own.insert(pfn.0), "{}: {pfn} is shown twice", F::NAME);
        }
        assert_eq!(at, area.start().0 + pages * Self::PAGE, "no leaf goes beyond the area");
        if kind > 2 && fits > 0 {
            let which = if large == 0 { 2 } else { usize::from(large < fits) };
            self.had[which] += 1;
        }
        assert!(large == 0 || (kind != 1 && kind != 2), "{}: a large page of single frames", F::NAME);
        live.push(Live(area, kind != 0));
    }

    /// Frees an area.
    fn free<'k, M: Machine>(
        &mut self,
        on: On<'_, M>,
        areas: &mut Vmalloc<'k, F, DirectMap>,
        Live(area, own): Live<'k>,
    ) {
        for page in 0..area.pages() {
            let (pfn, _) = self.pages.remove(&(area.start().0 + page * Self::PAGE)).unwrap();
            assert!(!own || self.own.remove(&pfn.0));
        }
        areas.free(on, area).unwrap();
    }

    fn protect<'k, M: Machine>(
        &mut self,
        on: On<'_, M>,
        areas: &mut Vmalloc<'k, F, DirectMap>,
        Live(area, _): &Live<'k>,
    ) {
        let write = self.rng.below(2) == 0;
        let change = |attr: Attr| if write { attr | RW } else { attr.without(Attr::WRITE) };
        areas.protect(on, area, change).unwrap();
        for page in 0..area.pages() {
            self.pages.get_mut(&(area.start().0 + page * Self::PAGE)).unwrap().1 = write;
        }
    }

    /// Each CPU reads or writes a page in or beside an area: it finds what is mapped.
    fn access(&mut self, start: u64, live: &[Live<'_>]) {
        let len = SPANS * Self::whole();
        let mut va = start + self.rng.below(len) * Self::PAGE;
        if let Some(Live(area, _)) = live.get(self.rng.below(live.len() as u64 + 1) as usize) {
            let n = area.pages();
            let page = [0, n - 1, n, self.rng.below(n)][self.rng.below(4) as usize];
            va = area.start().0 + page * Self::PAGE;
        }
        let expected = self.pages.get(&va);
        for cpu in 0..self.cpus {
            let write = self.rng.below(2) == 0;
            let kind = if write { ptsan::Access::WRITE } else { ptsan::Access::READ }.kernel();
            let found = self.soft.with(|sanitizer, memory| sanitizer.translate(memory, cpu, va, kind)).ok();
            let allowed = expected.filter(|(_, may_write)| !write || *may_write);
            assert_eq!(
                found.map(|found| found.phys >> F::PAGE_SHIFT),
                allowed.map(|(pfn, _)| u64::from(pfn.0 >> F::PAGE_ORDER)),
                "{}: {va:#x}, CPU {cpu}, write: {write}",
                F::NAME
            );
        }
    }

    /// Takes or gives back a piece of memory, so that more or fewer blocks are free.
    fn piece<M: Machine>(&mut self, on: On<'_, M>, pieces: &mut Vec<DataFrame>) {
        let order = if Self::has_blocks() { (F::shift(Level(1)) - FRAME_SHIFT) as u8 - 1 } else { 8 };
        if self.rng.below(3) > 0 && pieces.len() < 30 {
            pieces.extend(on.data().take_block(on.frames(), on.pin(), order, AllocFlags::NORMAL));
        } else if !pieces.is_empty() {
            let at = self.rng.below(pieces.len() as u64) as usize;
            on.data().release(on.frames(), on.pin(), pieces.swap_remove(at)).unwrap();
        }
    }

    fn operations(&mut self, steps: u32, asids: u16) {
        let (soft, host, cpus) = (self.soft, self.host, self.cpus);
        let policy = Layered::new(soft, host.quicklists().unwrap()).unwrap();
        let costs = CostModel::Costs(Costs::new(1, 64));
        let tlb = TlbConfig { asids, costs, ..TlbConfig::new(cpus) };
        let machine = HostMachine::with_tlb(host, policy, soft, tlb, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let pins: Vec<_> = slots.iter().map(|slot| slot.pin()).collect();
        let bytes = SPANS << F::shift(Level(1));
        let start = bytes.wrapping_neg();
        let range = host.kernel().claim(machine.on(&pins[0]).unwrap(), VirtAddr(start), bytes).unwrap();
        let mut boot = host.boot(Vmalloc::<F, DirectMap>::bytes(bytes)).unwrap();
        let mut areas = Vmalloc::new(&mut boot, range).unwrap_or_else(|e| panic!("{}", e.error));
        let root = host.kernel().root();
        soft.load_kernel_root(0, root);
        (1..cpus).for_each(|cpu| {
            soft.with(|sanitizer, memory| {
                sanitizer.barrier(cpu, Barrier::Data);
                sanitizer.switch(memory, cpu, root.0, 0);
                sanitizer.barrier(cpu, Barrier::Instruction);
            });
        });
        let (mut live, mut pieces) = (Vec::new(), Vec::new());
        for step in 0..steps {
            let on = machine.on(&pins[self.rng.below(cpus as u64) as usize]).unwrap();
            let one = self.rng.below(live.len().max(1) as u64) as usize;
            match self.rng.below(10) {
                0..=2 => self.add(on, &mut areas, &mut live),
                3 | 4 if !live.is_empty() => {
                    let area = live.swap_remove(one);
                    self.free(on, &mut areas, area);
                }
                5 if !live.is_empty() => self.protect(on, &mut areas, &live[one]),
                6 | 7 => (0..3).for_each(|_| self.piece(on, &mut pieces)),
                _ => (0..6).for_each(|_| self.access(start, &live)),
            }
            if step % 16 == 0 {
                let (mut large, mut at) = (0, start);
                while at != 0 {
                    let leaf = areas.range().query_leaf(on, VirtAddr(at));
                    large += u32::from(leaf.is_some_and(|leaf| leaf.level > Level::PTE));
                    at = at.wrapping_add(leaf.map_or(Self::PAGE, |leaf| leaf.range().len()));
                }
                // Tables of several frames are held, not reserved.
                let reserved = if F::PAGE_ORDER == 0 { large } else { 0 };
                assert_eq!(host.frames().reserved(), reserved, "{}: one table for each", F::NAME);
                let counts = areas.counts();
                assert_eq!((counts.areas, counts.pages), (live.len(), self.pages.len() as u64));
            }
        }
        let on = machine.on(&pins[0]).unwrap();
        live.into_iter().for_each(|area| self.free(on, &mut areas, area));
        for piece in pieces {
            on.data().release(on.frames(), on.pin(), piece).unwrap();
        }
        let range = areas.into_range().unwrap_or_else(|refused| panic!("{}", refused.error));
        range.release(on, |_, _| panic!("a page is left")).map_err(|(e, _)| e).unwrap();
        assert_eq!(host.frames().reserved(), 0);
        machine.drain(&slots);
    }
}

fn format<F: Format, T: MmuTraits>(arch: fn() -> Arch) {
    const PIECE: u32 = 250;
    let mut sums = [0; 3];
    let has_blocks = Run::<F, T>::has_blocks();
    for seed in 1..=u64::from(STEPS / PIECE) {
        let (asids, cpus) = ([0, 5, 200][seed as usize % 3], 1 + seed as usize % 4);
        let bytes = if has_blocks { 32 << 20 } else { 160 << 20 };
        let host = Host::<F>::new(HostConfig { cpus, bytes, ..HostConfig::default() }).unwrap();
        let soft = SoftMmu::<_, T>::like(&host, config::<T>(arch(), seed, asids, cpus));
        let (rng, pages, own) = (Rng::new(seed), BTreeMap::new(), BTreeSet::new());
        let mut run = Run { soft: &soft, host: &host, rng, cpus, pages, own, had: [0; 3] };
        soft.told(|| run.operations(PIECE, asids));
        sums.iter_mut().zip(run.had).for_each(|(sum, n)| *sum += n);
        host.audit().unwrap();
        soft.with(|sanitizer, _| {
            assert_eq!(sanitizer.count(Kind::BreakBeforeMake), 0, "{}, seed {seed}: {sanitizer}", F::NAME);
            assert_eq!(sanitizer.total(), 0, "{}, seed {seed}: {sanitizer}", F::NAME);
        });
    }
    let [all, some, none] = sums;
    if has_blocks {
        assert!(all > 20 && some > 3 && none > 5, "{}: {sums:?}", F::NAME);
    } else {
        assert!(all + some == 0 && none > 0, "{}: {sums:?}", F::NAME);
    }
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
    areas_of_x86_64 X86_64, Interrupting;
    areas_of_aarch64_4k Aarch64Upper, Broadcasting;
}

#[cfg(feature = "formats")]
each_format! {
    areas_of_x86_64_5 ptarmigan::format::X86_64La57, ptarmigan_ptsan::Interrupting;
    areas_of_sv39 ptarmigan::format::Sv39, ptarmigan_ptsan::Fencing;
    areas_of_sv48 ptarmigan::format::Sv48, ptarmigan_ptsan::Fencing;
    areas_of_sv57 ptarmigan::format::Sv57, ptarmigan_ptsan::Fencing;
    areas_of_aarch64_16k ptarmigan::format::Aarch64K16Upper, ptarmigan_ptsan::Broadcasting;
}
