//! A format with small tables, of which models use the first two entries.
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::{Access, Attr, Format, Slot, Slot64};
use ptarmigan::page::{Layout, Level, MAX_LEVELS};

/// Entries of a table, as many as the map of touched lines has bits for.
pub const ENTRIES: usize = 64;
/// Those that there are. Each one costs in every execution of a model.
pub const REAL: usize = 2;

/// The place of an entry: the library's own, or no place at all.
pub enum Place {
    Real(Slot64),
    Nothing,
}

impl Place {
    pub fn walk(&self) -> u64 {
        match self {
            Place::Real(slot) => slot.walk(),
            Place::Nothing => 0,
        }
    }
}

// SAFETY: `Slot64` keeps the promises; `Place`s without an entry are never written to. The model's
// memory holds places of this type, made before anybody uses them, so that not any bit pattern has
// to be valid.
unsafe impl Slot for Place {
    fn load(&self) -> u64 {
        match self {
            Place::Real(slot) => slot.load(),
            Place::Nothing => 0,
        }
    }
    fn store(&self, raw: u64) {
        match self {
            Place::Real(slot) => slot.store(raw),
            Place::Nothing => panic!("models use the first {REAL} entries of a table"),
        }
    }
    const FILLS_AT_ONCE: bool = Slot64::FILLS_AT_ONCE;
    fn fill(&self, raw: u64) -> bool {
        match self {
            Place::Real(slot) => slot.fill(raw),
            Place::Nothing => panic!("models use the first {REAL} entries of a table"),
        }
    }
    fn swap(&self, raw: u64) -> u64 {
        match self {
            Place::Real(slot) => slot.swap(raw),
            Place::Nothing => panic!("models use the first {REAL} entries of a table"),
        }
    }
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        match self {
            Place::Real(slot) => slot.exchange(old, new),
            Place::Nothing => panic!("models use the first {REAL} entries of a table"),
        }
    }
}

/// Trees of `LEVELS` levels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Small<const LEVELS: u8>;

/// Attributes are kept in the lower bits, and one that says that this is an entry.
const ENTRY: u64 = 1 << 8;
const FRAME: u32 = 9;
const P: u64 = Attr::READ.0 as u64;

// SAFETY: 1. and 2. frame numbers and attributes have bits of their own; no leaf of level 0 is
// asked. 3. both set `ENTRY`. 4. the models' MMUs ask the same functions. 5. a frame's number is
// shifted.
unsafe impl<const LEVELS: u8> Format for Small<LEVELS> {
    type Slot = Place;
    const NAME: &'static str = "small";
    const LAYOUT: Layout = Layout { levels: LEVELS, table_shift: [12, 12, 12, 12, 12] };
    const LEVEL_NAMES: &'static [&'static str] = ["0", "1", "2"].split_at(LEVELS as usize).0;
    const PAGE_SHIFT: u32 = 12;
    const USER_END: u64 = 1 << (12 + 6 * LEVELS as u32 - 1);
    const KERNEL_START: u64 = Self::USER_END;
    const USER_ROOT_ENTRIES: usize = ENTRIES / 2;
    const INDEX_BITS: [u8; MAX_LEVELS] = [6; MAX_LEVELS];
    const PHYS_BITS: u32 = 44;

    fn link(_: Level, at: PhysAddr) -> u64 {
        u64::from(at.pfn().0) << FRAME | ENTRY | P
    }
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
        (raw & P != 0).then(|| Pfn((raw >> FRAME) as u32).addr())
    }
    fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
        u64::from(pfn.0) << FRAME | ENTRY | u64::from(attr.0)
    }
    fn frame(_: Level, raw: u64) -> Pfn {
        Pfn((raw >> FRAME) as u32)
    }
    fn attr(_: Level, raw: u64) -> Attr {
        Attr(raw as u32 & 0xff)
    }
    fn is_present(_: Level, raw: u64) -> bool {
        raw & P != 0
    }
    fn write_protected(_: Level, raw: u64) -> u64 {
        raw & !u64::from(Attr::WRITE.0)
    }
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let attr = Self::attr(Level::PTE, raw);
        match access {
            Access::Read => attr.has(Attr::READ),
            Access::Write => attr.has(Attr::READ | Attr::WRITE),
            Access::Exec => attr.has(Attr::READ | Attr::EXEC),
        }
    }
    fn is_special(_: Level, raw: u64) -> bool {
        Self::attr(Level::PTE, raw).has(Attr::SPECIAL)
    }
}
