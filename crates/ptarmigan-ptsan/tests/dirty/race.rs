//! Bits that an MMU sets in a group while its entries are being written, one after another.
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{Access, Attr, Format, Rights, Slot, Slot64, Sv39Napot};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use ptarmigan::table::Tree;
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
use std::cell::Cell;

type F = Sv39Napot;

/// An entry that is to be used by an MMU after so many exchanges.
#[derive(Clone, Copy)]
struct Plan {
    exchanges: u32,
    entry: *const Racing,
    /// The entry as the MMU found it.
    found: Option<u64>,
}

thread_local! {
    static PLAN: Cell<Option<Plan>> = const { Cell::new(None) };
}

/// A slot after whose exchanges an MMU may write through an entry.
#[repr(transparent)]
struct Racing(Slot64);

// SAFETY: as `Slot64`, whose functions do the work.
unsafe impl Slot for Racing {
    const FILLS_AT_ONCE: bool = Slot64::FILLS_AT_ONCE;

    fn load(&self) -> u64 {
        self.0.load()
    }
    fn store(&self, raw: u64) {
        self.0.store(raw);
    }
    fn fill(&self, raw: u64) -> bool {
        self.0.fill(raw)
    }
    fn swap(&self, raw: u64) -> u64 {
        self.0.swap(raw)
    }
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        self.0.exchange(old, new)?;
        let Some(mut plan) = PLAN.get() else { return Ok(()) };
        plan.exchanges -= 1;
        PLAN.set(Some(plan));
        if plan.exchanges == 0 {
            // SAFETY: the test keeps the table, and reads and writes its entries as slots only.
            let slot = unsafe { &*plan.entry };
            let raw = slot.0.load();
            // Bits 6 and 7 are A and D.
            slot.0.store(raw | 3 << 6);
            PLAN.set(Some(Plan { exchanges: u32::MAX, found: Some(raw), ..plan }));
        }
        Ok(())
    }
}

/// `Sv39Napot` with such slots.
#[derive(Clone, Copy, Default)]
struct Raced;

macro_rules! of_format {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => { $(
        fn $name($($arg: $type),*) -> $result {
            F::$name($($arg),*)
        }
    )* };
}

// SAFETY: as `Sv39Napot`, whose functions these are.
unsafe impl Format for Raced {
    type Slot = Racing;
    const NAME: &'static str = F::NAME;
    const LAYOUT: Layout = F::LAYOUT;
    const LEVEL_NAMES: &'static [&'static str] = F::LEVEL_NAMES;
    const PAGE_SHIFT: u32 = F::PAGE_SHIFT;
    const INDEX_BITS: [u8; MAX_LEVELS] = F::INDEX_BITS;
    const USER_END: u64 = F::USER_END;
    const KERNEL_START: u64 = F::KERNEL_START;
    const USER_ROOT_ENTRIES: usize = F::USER_ROOT_ENTRIES;
    const PHYS_BITS: u32 = F::PHYS_BITS;
    const LEAF_LEVELS: u8 = F::LEAF_LEVELS;
    const RIGHTS: Rights = F::RIGHTS;
    const GROUP_BITS: [u8; MAX_LEVELS] = F::GROUP_BITS;
    of_format! {
        link(level: Level, at: PhysAddr) -> u64;
        linked(level: Level, raw: u64) -> Option<PhysAddr>;
        leaf(level: Level, pfn: Pfn, attr: Attr) -> u64;
        frame(level: Level, raw: u64) -> Pfn;
        attr(level: Level, raw: u64) -> Attr;
        is_present(level: Level, raw: u64) -> bool;
        allows(level: Level, raw: u64, access: Access) -> bool;
        write_protected(level: Level, raw: u64) -> u64;
        is_special(level: Level, raw: u64) -> bool;
        hinted(level: Level, raw: u64) -> u64;
        is_hinted(level: Level, raw: u64) -> bool;
        unhinted(level: Level, index: usize, raw: u64) -> u64;
    }
}

const GROUP: VirtRange = VirtRange::fixed::<{ 1 << 16 }, { 2 << 16 }>();

/// An MMU writes through each of the entries, after each exchange of an unfolding.
#[test]
fn a_bit_set_while_a_group_unfolds_is_of_all_its_pages() {
    let host = Host::<Raced>::new(HostConfig { bytes: 16 << 20, ..HostConfig::default() }).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let machine = HostMachine::new(&host, host.plain().unwrap(), NoTlb).unwrap();
    let on = machine.on(&pin).unwrap();
    let mut hinted = 0;
    for (after, entry) in (1..=32).flat_map(|after| (0..16).map(move |entry| (after, entry))) {
        let mut tree = Tree::<Raced>::new(on, AllocFlags::NORMAL).unwrap();
        // MMUs may use it: no plain stores.
        tree.activate(on).unwrap();
        let (at, attr) = (VirtAddr(GROUP.start), Attr::READ | Attr::WRITE | Attr::USER);
        let mut edit = tree.edit(on).unwrap();
        // SAFETY: 1. no program runs in this space.
        unsafe { edit.map_group(at, Level::PTE, Pfn(16), attr, AllocFlags::NORMAL).unwrap() };
        edit.flush();
        let mut table = PhysAddr(0);
        tree.view().on(on).unwrap().leaf_tables(GROUP, |_, at, _| table = at);
        let entries = host.window().open(table).base().cast::<Racing>().cast_const();
        PLAN.set(Some(Plan { exchanges: after, entry: entries.wrapping_add(16 + entry), found: None }));
        tree.edit(on).unwrap().split(at, Level::PTE).unwrap();
        if let Some(found) = PLAN.take().and_then(|plan| plan.found) {
            // A TLB that found the hint writes to all pages by that entry.
            let had_hint = F::is_hinted(Level::PTE, found);
            hinted += u32::from(had_hint);
            let mut pages = 0;
            let check = |_, pfn: Pfn, attr: Attr| {
                assert_eq!(pfn, Pfn(16 + pages));
                let is_dirty = had_hint || pages as usize == entry;
                assert!(attr.has(Attr::DIRTY) || !is_dirty, "page {pages}, after a write by entry {entry}");
                pages += 1;
            };
            tree.view().walk(on, GROUP, check).unwrap();
            assert_eq!(pages, 16);
        }
        tree.deactivate(on).unwrap();
        tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
    }
    assert!(hinted > 50, "{hinted} writes by entries that had the hint");
}
