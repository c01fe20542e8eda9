//! `patina_paging` under the sanitizer: pages mapped to the wrong frames, pages not mapped to the
//! frames asked for, and one address of 512 flushed when small pages become a large one.
//!
//! The crate takes physical addresses for pointers, so it runs on memory where the two are equal,
//! and every store is seen. It executes `invlpg` on UEFI targets only: after each store that
//! replaces a present entry, for one address of it (`src/x64/structs.rs` 177, 193, 291). Here that
//! flush is carried out at once on every CPU.
//!
//! `cargo run -p ptsan-released --example patina_paging`
use patina_paging::aarch64::AArch64PageTable;
use patina_paging::page_allocator::PageAllocator;
use patina_paging::x64::X64PageTable;
use patina_paging::{MemoryAttributes as Attributes, PageTable, PagingType, PtError};
use ptsan::watch::{Error, Watch};
use ptsan::{Access, Adversary, Arch, Config, Content, Expected, Flush, Kind, Perms, Sanitizer, Tree};
use ptsan_released::{Defect, entry_address, silent};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CPUS: usize = 4;
const SPACE: u64 = 1;
const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;
/// The root's last two slots map the tables themselves; the crate keeps them to itself.
const OWN_SLOTS: u64 = 510;
/// On x64 the crate leaves memory types to the MTRRs: these are all the attributes.
const OPEN: Attributes = Attributes::empty();
const LOCKED: Attributes = Attributes::ReadOnly;
const NO_EXECUTE: Attributes = Attributes::ExecuteProtect;

/// Hands out frames from the start of the memory on, full of old entries.
struct Frames(Rc<Watch>, u64);

impl PageAllocator for Frames {
    fn allocate_page(&mut self, _align: u64, size: u64, _root: bool) -> Result<u64, PtError> {
        let frame = self.1;
        self.1 += size;
        self.0.with(|san, ram| san.table_allocated(ram, frame, size, None, Content::Unknown));
        Ok(frame)
    }
}

/// Page tables of the crate, loaded on every CPU.
struct Machine {
    watch: Rc<Watch>,
    root: u64,
    tables: X64PageTable<Frames>,
}

impl Machine {
    fn new(seed: u64) -> Result<Self, Error> {
        let config = Config {
            cpus: CPUS,
            recursive: true,
            adversary: Some(Adversary::new(seed)),
            ..Config::new(Arch::x86_64())
        };
        let watch = Rc::new(Watch::identity(256 * PAGE as usize, Sanitizer::new(config))?);
        let start = watch.memory().start();
        for at in (start..start + 256 * PAGE).step_by(8) {
            let _ = watch.memory().store(at, 0xdead_b067);
        }
        let root = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&root);
        watch.on_store(move |san, ram, store| {
            let arch = Arch::x86_64();
            let root = seen.load(Ordering::Relaxed);
            for entry in store.changed.iter().filter(|e| root != 0 && e.old & 1 != 0) {
                if let Some(va) = entry_address(ram, &arch, root, OWN_SLOTS, entry.phys) {
                    (0..CPUS).for_each(|cpu| san.flush(ram, cpu, Flush::page(SPACE, va)));
                }
            }
        });
        let tables = X64PageTable::new(Frames(Rc::clone(&watch), start), PagingType::Paging4Level);
        let Ok(tables) = tables else { panic!("the memory has frames") };
        root.store(start, Ordering::Relaxed);
        watch.with(|san, ram| (0..CPUS).for_each(|cpu| san.switch(ram, cpu, start, SPACE)));
        Ok(Self { watch, root: start, tables })
    }

    fn map(&mut self, va: u64, pa: u64, size: u64, attributes: Attributes) -> Result<(), Error> {
        let Self { watch, tables, .. } = self;
        let done = watch.run(|| tables.map_aliased_memory_region(va, pa, size, attributes))?;
        assert_eq!(done, Ok(()), "the region is aligned and there are frames");
        Ok(())
    }

    fn unmap(&mut self, va: u64, size: u64) -> Result<(), Error> {
        let Self { watch, tables, .. } = self;
        let done = watch.run(|| tables.unmap_memory_region(va, size))?;
        assert_eq!(done, Ok(()), "the region is aligned");
        Ok(())
    }

    fn access(&self, cpu: usize, va: u64, access: Access) -> bool {
        self.watch.with(|san, ram| san.translate(ram, cpu, va, access.kernel()).is_ok())
    }

    fn expect(&self, va: u64, says: Option<Expected>) {
        let tree = Tree::Root(self.root);
        let _ = self.watch.with(|san, ram| san.expect(ram, tree, va, says));
    }

    fn verdict(self, look: impl FnOnce(&Sanitizer)) {
        self.watch.with(|san, _| look(san));
    }
}

const WRONG_FRAME: Defect = Defect {
    title: "an identity map is not one behind a large page that is mapped already",
    source: "patina_paging 11.1.2, src/paging.rs:284 skips the large page and goes on with the next address, but with \
             the old physical address (343 advances it, and is not reached)",
    why: "Each page behind the large one is mapped to a frame that belongs before it. A program that writes there \
          overwrites memory of others.",
    must: &[Kind::Disagreement],
    may: &[],
};

const OLD_FRAME: Defect = Defect {
    title: "a page inside a large page with the same attributes is not mapped to another frame",
    source: "patina_paging 11.1.2, src/paging.rs:281 compares the attributes only and skips the page",
    why: "map_aliased_memory_region promises to map the region \"regardless of the current mapping state\", and returns \
          Ok. The program goes on with the old frame.",
    must: &[Kind::Disagreement],
    may: &[],
};

fn pages_at_the_wrong_frames() -> Result<(), Error> {
    let mut m = Machine::new(1)?;
    m.map(LARGE, LARGE, LARGE, OPEN)?;
    // The upper half of the large page, which is open already, and 1 MiB after it.
    let result = m.watch.run(|| m.tables.map_memory_region(LARGE + LARGE / 2, LARGE, OPEN))?;
    assert_eq!(result, Ok(()), "the call says that it went well");
    m.expect(2 * LARGE, Some(Expected::at(2 * LARGE)));
    assert!(m.tables.iter_mapped_regions(None).any(|region| region.va != region.pa), "the crate sees it too");
    m.verdict(|san| WRONG_FRAME.found(san));
    Ok(())
}

fn a_new_frame_is_not_mapped() -> Result<(), Error> {
    let mut m = Machine::new(2)?;
    m.map(LARGE, 8 * LARGE, LARGE, OPEN)?;
    m.map(LARGE, 16 * LARGE, PAGE, OPEN)?;
    m.expect(LARGE, Some(Expected::at(16 * LARGE)));
    m.verdict(|san| OLD_FRAME.found(san));
    Ok(())
}

/// The same two on AArch64, with the memory type that every region has there. Its tables are only
/// compared: the crate's break-before-make is assembly that hosts do not have.
fn on_aarch64() -> Result<(), Error> {
    for defect in [&WRONG_FRAME, &OLD_FRAME] {
        let san = Sanitizer::new(Config { recursive: true, ..Config::new(Arch::aarch64_4k(48)) });
        let watch = Rc::new(Watch::identity(256 * PAGE as usize, san)?);
        let root = watch.memory().start();
        let tables = AArch64PageTable::new(Frames(Rc::clone(&watch), root), PagingType::Paging4Level);
        let Ok(mut tables) = tables else { panic!("the memory has frames") };
        let type_ = Attributes::Writeback;
        let (va, frame, expected) = if defect.title == WRONG_FRAME.title {
            assert_eq!(tables.map_memory_region(LARGE, LARGE, type_), Ok(()));
            assert_eq!(tables.map_memory_region(LARGE + LARGE / 2, LARGE, type_), Ok(()));
            (2 * LARGE, 2 * LARGE, LARGE + LARGE / 2)
        } else {
            assert_eq!(tables.map_aliased_memory_region(LARGE, 8 * LARGE, LARGE, type_), Ok(()));
            assert_eq!(tables.map_aliased_memory_region(LARGE, 16 * LARGE, PAGE, type_), Ok(()));
            (LARGE, 16 * LARGE, 8 * LARGE)
        };
        watch.with(|san, ram| {
            let found = san.expect(ram, Tree::Root(root), va, Some(Expected::at(frame)));
            assert_eq!(found.map(|t| t.phys), Ok(expected), "where the crate mapped it");
            defect.found(san);
        });
    }
    Ok(())
}

fn one_address_of_512() -> Result<(), Error> {
    let mut m = Machine::new(3)?;
    m.map(LARGE, LARGE, LARGE, OPEN)?;
    m.map(LARGE, LARGE, PAGE, LOCKED)?;
    let va = LARGE + 5 * PAGE;
    assert!(m.access(0, va, Access::WRITE), "a small page now, and writable");
    m.map(LARGE, LARGE, LARGE, LOCKED)?;
    m.expect(va, Some(Expected::at(va).in_page_of(LARGE).allowing(Perms::READ | Perms::EXEC)));
    m.access(0, va, Access::WRITE);
    m.verdict(|san| {
        Defect {
            title: "a region that was made read-only as a whole stays writable",
            source: "patina_paging 11.1.2, src/paging.rs:296 puts a large page in the place of a table of small ones; \
                     src/x64/structs.rs:177 flushes its first address",
            why: "The translations of the other 511 small pages stay in the TLB, with the rights of before: memory that \
                  was locked can be written, and code that was made no code is executed.",
            must: &[Kind::StaleUse],
            may: &[Kind::FlushMissing],
        }
        .found(san);
    });
    Ok(())
}

/// Maps, protects and unmaps pages at random as far as the crate does it correctly, with all four
/// CPUs accessing pages in between, and compares every page with a model.
fn right(seed: u64) -> Result<(), Error> {
    const BASE: u64 = 4 * LARGE;
    let mut m = Machine::new(seed)?;
    let mut model = BTreeMap::new();
    for large in 0..4 {
        m.map(BASE + large * LARGE, BASE + large * LARGE, LARGE, OPEN)?;
    }
    model.extend((0..4 * LARGE / PAGE).map(|n| (BASE + n * PAGE, (BASE + n * PAGE, OPEN))));
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut below = |n: u64| rng.u64(..n);
    for _ in 0..60 {
        // Never a whole large page, and never the attributes of one that is left.
        let va = BASE + below(4) * LARGE + below(200) * PAGE;
        let size = (1 + below(300)) * PAGE;
        let pages = (va..va + size).step_by(PAGE as usize);
        match below(3) {
            0 => {
                m.unmap(va, size)?;
                pages.for_each(|page| _ = model.remove(&page));
            }
            1 => {
                m.map(va, va, size, LOCKED)?;
                model.extend(pages.map(|page| (page, (page, LOCKED))));
            }
            _ => {
                m.map(va, va + 64 * LARGE, size, NO_EXECUTE)?;
                model.extend(pages.map(|page| (page, (page + 64 * LARGE, NO_EXECUTE))));
            }
        }
        for n in 0..16 {
            let va = BASE + below(4 * LARGE);
            m.access((n % CPUS as u64) as usize, va, if n & 8 == 0 { Access::READ } else { Access::WRITE });
        }
    }
    for va in (BASE..BASE + 4 * LARGE).step_by(PAGE as usize) {
        let says = model.get(&va).map(|&(frame, attributes)| {
            let perms = Perms::READ
                .with_if(Perms::WRITE, !attributes.contains(Attributes::ReadOnly))
                .with_if(Perms::EXEC, !attributes.contains(Attributes::ExecuteProtect));
            Expected::at(frame).allowing(perms)
        });
        m.expect(va, says);
    }
    m.verdict(|san| silent("maps, protections, splits and unmaps at random", san));
    Ok(())
}

/// Runs the crate. Fails unless exactly the known defects are found.
pub fn main() -> Result<(), Error> {
    pages_at_the_wrong_frames()?;
    a_new_frame_is_not_mapped()?;
    on_aarch64()?;
    one_address_of_512()?;
    (10..14).try_for_each(right)
}
