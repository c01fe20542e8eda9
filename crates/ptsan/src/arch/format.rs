//! Page-table formats as data and one function.
//!
use super::perms::Perms;

/// The most levels a format may have.
pub const MAX_LEVELS: usize = 8;
/// The largest table that a format may have.
const MAX_TABLE_BYTES: u32 = 1 << 24;

/// The shape of the tables of one level.
/// ```
/// use ptsan::Arch;
///
/// let level = Arch::x86_64().levels[1];                   // page directories
/// assert_eq!((level.entries(), level.shift), (512, 21));
/// assert_eq!(level.index(0x40_0000), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// How many bits of the virtual address select the entry.
    pub index_bits: u8,
    /// The lowest of these bits: an entry of this level spans `1 << shift` bytes of virtual
    /// address.
    pub shift: u8,
    /// The size of an entry, in bytes: 4 or 8.
    pub entry_bytes: u8,
    /// The size of a table, in bytes.
    pub table_bytes: u32,
}

impl Level {
    /// Returns the index of the entry that `va` selects.
    #[inline]
    #[must_use]
    pub const fn index(&self, va: u64) -> u64 {
        (va >> self.shift) & ((1 << self.index_bits) - 1)
    }

    /// Returns the number of entries of a table of this level.
    #[must_use]
    pub const fn entries(&self) -> usize {
        1 << self.index_bits
    }
}

/// The meaning of one raw entry.
/// ```
/// use ptsan::{Arch, Entry};
///
/// let arch = Arch::x86_64();
/// assert_eq!((arch.decode)(0, 0x9006), Entry::Empty);     // the present bit is clear
/// assert!(matches!((arch.decode)(1, 0x9007), Entry::Table { phys: 0x9000, .. }));
/// assert!(matches!((arch.decode)(0, 0x9007), Entry::Leaf { phys: 0x9000, global: false, .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Not present: the walk ends in a fault.
    Empty,
    /// Points at a table of the level below.
    Table {
        /// Physical address of the table.
        phys: u64,
        /// The most that the entry allows to everything below it.
        perms: Perms,
    },
    /// Maps memory.
    Leaf {
        /// Physical address of the first byte mapped.
        phys: u64,
        /// The rights that the entry grants.
        perms: Perms,
        /// The translation holds in every address space.
        global: bool,
        /// Whether the walk may use and cache it. AArch64 faults on an entry whose access flag is
        /// clear and does not cache it. Formats whose hardware sets an accessed bit itself always
        /// say `true`.
        accessed: bool,
        /// The memory type, as the format numbers it: [`Arch::memory`] says what it means.
        memory_type: u8,
    },
    /// Present, with reserved bits set or at a level where it may not be: the hardware faults.
    Malformed,
}

/// How accesses to memory are cached and ordered.
/// ```
/// use ptsan::{Arch, Entry, MemoryType};
///
/// let arch = Arch::x86_64();
/// let Entry::Leaf { memory_type, .. } = (arch.decode)(0, 0x9017) else { panic!("a page") };
/// assert_eq!((arch.memory)(memory_type), MemoryType::Uncached);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryType {
    /// Cached, and written when a line leaves the cache.
    WriteBack,
    /// Cached for reads; writes go to memory as well.
    WriteThrough,
    /// Not cached; writes may be collected and reordered, and reads made ahead.
    WriteCombining,
    /// Not cached, and in order, unless something outside of the tables weakens it.
    Uncached,
    /// Not cached; each access is made once, in order, and never ahead.
    Device,
    /// Another one, or none.
    Other,
}

/// How far an invalidation by address reaches into the paging-structure caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructureScope {
    /// Any invalidation of the address space drops all of its structure entries, whatever the
    /// address: x86 `INVLPG` (Intel SDM vol. 3, 4.10.4.1).
    AnyInvalidation,
    /// Only the entries used for that address, and no link if the invalidation is for the last
    /// level only.
    Tagged,
    /// Not at all: only an invalidation of the whole address space drops structure entries (RISC-V
    /// `SFENCE.VMA` with an address covers leaf entries alone).
    WholeSpace,
    /// The hardware keeps no structure entries.
    None,
}

/// The barriers that order a store to an entry before an invalidation, and that complete an
/// invalidation. It is checked with [`crate::Config::barriers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOrdering {
    /// No barrier is needed (x86: stores are ordered, invalidation serializes).
    Implicit,
    /// A barrier between the store and the invalidation, and another after it, before which it may
    /// not have taken effect (AArch64: `DSB`; Arm ARM, "TLB maintenance instructions and
    /// barriers"). A load of the root takes effect at the next `ISB`.
    Completed,
    /// A fence between the store and an invalidation by *another* CPU (RISC-V: `SFENCE.VMA` orders
    /// the stores of its own CPU alone).
    Fenced,
}

/// The tables of a hypervisor, which translate a guest's physical addresses: how CPUs forget
/// combined translations, and which numbers guests have.
/// ```
/// use ptsan::{Arch, ByGuestAddress, SecondStage};
///
/// let ept = Arch::ept().second_stage.unwrap();
/// assert_eq!(ept, SecondStage { by_address: ByGuestAddress::Never, host: None });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondStage {
    /// The invalidation of one guest-physical address.
    pub by_address: ByGuestAddress,
    /// The number that the host runs under, and no guest may.
    pub host: Option<u64>,
}

/// The invalidation of one guest-physical address.
/// ```
/// use ptsan::{Arch, ByGuestAddress, Granule};
///
/// let of = |arch: Arch| arch.second_stage.map(|second| second.by_address);
/// assert_eq!(of(Arch::npt()), Some(ByGuestAddress::Never));
/// assert_eq!(of(Arch::aarch64_stage2(Granule::K4, 40, 1)), Some(ByGuestAddress::SparesCombined));
/// assert_eq!(of(Arch::riscv_sv39x4()), Some(ByGuestAddress::DropsCombined));
/// assert_eq!(of(Arch::x86_64()), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByGuestAddress {
    /// There is none. A flush is of a guest or of everything: `INVEPT` (Intel SDM vol. 3,
    /// "Operations that invalidate cached mappings"), `TLB_CONTROL` of `VMRUN` (AMD APM vol. 2,
    /// "TLB control").
    Never,
    /// It spares translations that are combined of both stages. An invalidation of stage 1 has to
    /// follow: see [`crate::Sanitizer::stage1_flushed`] (AArch64 `TLBI IPAS2E1IS`).
    SparesCombined,
    /// It drops combined translations of the address (RISC-V `HFENCE.GVMA`).
    DropsCombined,
}

/// The state of the bits of a present entry that hardware sets by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardwareBits {
    /// The entry was used. Hardware caches no entry without it.
    pub accessed: bool,
    /// The page was written.
    pub dirty: bool,
    /// Hardware sets the dirty state when the page is written next.
    pub sets_dirty: bool,
}

/// The run of neighbouring entries to which an entry belongs. Hardware may cache all of them as one
/// translation (AArch64: the Contiguous bit; RISC-V: Svnapot).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contiguous {
    /// The number of entries is two to this power; 0 for an entry that stands alone.
    pub entries_log2: u8,
    /// All entries of the run hold the address of its first page. Otherwise each holds its own.
    pub one_output: bool,
}

/// Which values of the address bits above [`Arch::va_bits`] are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canonical {
    /// All equal to the highest translated bit.
    SignExtended,
    /// All zero.
    ZeroExtended,
    /// All one: the upper of two trees (AArch64 `TTBR1`).
    OnesExtended,
}

/// A page-table format and the caching rules of the MMU that walks it.
/// ```
/// use ptsan::{Access, Arch, Session, StructureScope};
///
/// // As x86-64, on a CPU whose invalidation by address spares the tables of other addresses.
/// let arch = Arch { name: "careful", structures: StructureScope::Tagged, ..Arch::x86_64() };
/// assert_eq!((arch.top(), arch.is_canonical(1 << 47)), (3, false));
/// let mut s = Session::new(arch, vec![0u8; 1 << 16]);
/// assert!(s.translate(0, Access::READ).is_err());         // nothing is loaded
/// # let _ = s.sanitizer.total();
/// ```
#[derive(Clone, Debug)]
pub struct Arch {
    /// The name that reports print.
    pub name: &'static str,
    /// The names of the levels in the architecture's manual, leaves first. A level without a name
    /// is called by its number. See [`Arch::level_name`].
    pub level_names: &'static [&'static str],
    /// The levels, leaves first; at most [`MAX_LEVELS`].
    pub levels: Vec<Level>,
    /// How many address bits are translated.
    pub va_bits: u8,
    /// The value that the bits above must have.
    pub canonical: Canonical,
    /// The effect of an invalidation on the paging-structure caches.
    pub structures: StructureScope,
    /// Whether loading the root copies its entries into registers, which only another load
    /// refreshes (x86 PAE; Intel SDM vol. 3, 4.4.1).
    pub top_registers: bool,
    /// Whether a valid entry that a CPU may hold must be made invalid and be flushed before another
    /// valid one takes its place, if output, size or memory type differ, or it becomes global (Arm
    /// ARM, "Using break-before-make when updating translation table entries"). See
    /// [`crate::Kind::BreakBeforeMake`].
    pub break_before_make: bool,
    /// Whether a CPU keeps an entry that denied an access, so that it faults again after a
    /// permission was added (AArch64, TLBs that software fills: a permission fault does not drop
    /// it). Otherwise the fault drops it, and the access is made again (x86; Intel SDM vol. 3,
    /// 4.10.4.1). See [`crate::Rule::DeniedTwice`].
    pub keeps_denied: bool,
    /// Whether a walker may keep entries that were not valid when it read them (RISC-V; privileged
    /// manual, "Supervisor Memory-Management Fence Instruction"). [`crate::Config::keeps_invalid`]
    /// begins with it.
    pub keeps_invalid: bool,
    /// Which barriers page-table code needs.
    pub ordering: StoreOrdering,
    /// For CPUs that walk no tables and look pages up in a hash table, which software fills from
    /// its tables: whether an entry says that its page was put into the hash table since it was
    /// flushed last. See [`crate::Kind::HashTable`].
    pub hashed: Option<fn(level: u8, raw: u64) -> bool>,
    /// How CPUs forget, if the tables are those of stage 2.
    pub second_stage: Option<SecondStage>,
    /// The bits of an entry that hardware sets by itself, if it sets any. See
    /// [`crate::Config::accessed_dirty`].
    pub hardware_bits: Option<fn(level: u8, raw: u64) -> HardwareBits>,
    /// Whether hardware lets a page be written that is clean and may become dirty, and sets the
    /// dirty state ([`HardwareBits::sets_dirty`]). For formats whose clean pages look read-only
    /// (AArch64 with `TCR_ELx.HD`). [`crate::Config::accessed_dirty`] implies it.
    pub sets_dirty: bool,
    /// An entry as hardware that sets these bits leaves it, when it has used it for an access, or
    /// for a write. See [`crate::Config::walkers_set_bits`].
    pub used: Option<fn(level: u8, raw: u64, written: bool) -> u64>,
    /// The run of entries to which a valid entry belongs, if the format has such runs. See
    /// [`crate::Kind::ContiguousRange`].
    pub contiguous: Option<fn(level: u8, raw: u64) -> Contiguous>,
    /// The meaning of a memory type as [`Entry::Leaf`] numbers it. Where a register decides (the
    /// PAT of x86, `MAIR_EL1`), the value that Linux gives to it, or the library that the format is
    /// for: replace this for another one.
    pub memory: fn(memory_type: u8) -> MemoryType,
    /// Decodes an entry found at a level.
    pub decode: fn(level: u8, raw: u64) -> Entry,
}

impl Arch {
    /// Returns the number of the root's level.
    #[inline]
    #[must_use]
    pub fn top(&self) -> u8 {
        (self.levels.len().saturating_sub(1)) as u8
    }

    /// Returns the run to which an entry belongs.
    #[inline]
    pub(crate) fn run_of(&self, level: u8, raw: u64) -> Contiguous {
        let Some(of) = self.contiguous else { return Contiguous::default() };
        let run = of(level, raw);
        // A table may be smaller than a run.
        Contiguous { entries_log2: run.entries_log2.min(self.levels[usize::from(level)].index_bits), ..run }
    }

    /// Decodes entry `index` of a table of a level. A page has the address that this entry maps.
    #[inline]
    pub(crate) fn entry(&self, level: u8, index: u64, raw: u64) -> Entry {
        match (self.decode)(level, raw) {
            Entry::Leaf { phys, perms, global, accessed, memory_type } if self.contiguous.is_some() => {
                let bits = self.hardware_bits.filter(|_| self.sets_dirty).map(|of| of(level, raw));
                let perms = perms.with_if(Perms::WRITE, bits.is_some_and(|b| b.sets_dirty));
                let run = self.run_of(level, raw);
                let within = if run.one_output { index & ((1 << run.entries_log2) - 1) } else { 0 };
                let phys = phys.wrapping_add(within << self.levels[usize::from(level)].shift);
                Entry::Leaf { phys, perms, global, accessed, memory_type }
            }
            other => other,
        }
    }

    /// Returns whether the hardware accepts `va` at all.
    #[inline]
    #[must_use]
    pub fn is_canonical(&self, va: u64) -> bool {
        let unused = 64u32.saturating_sub(u32::from(self.va_bits)).min(63);
        match self.canonical {
            Canonical::SignExtended => ((va << unused) as i64 >> unused) as u64 == va,
            Canonical::ZeroExtended => (va << unused) >> unused == va,
            Canonical::OnesExtended => (!va << unused) >> unused == !va,
        }
    }

    /// Returns the address with the translated bits of `va` and the bits above as they must be.
    #[inline]
    pub(crate) fn extend(&self, va: u64) -> u64 {
        let unused = 64u32.saturating_sub(u32::from(self.va_bits)).min(63);
        match self.canonical {
            Canonical::SignExtended => ((va << unused) as i64 >> unused) as u64,
            Canonical::ZeroExtended => (va << unused) >> unused,
            Canonical::OnesExtended => !((!va << unused) >> unused),
        }
    }

    /// Returns the size of a usual table: one frame.
    pub(crate) fn granule(&self) -> u64 {
        self.levels.first().map_or(4096, |l| u64::from(l.table_bytes))
    }

    /// Returns the size of an entry in bytes, which is the same at all levels.
    #[inline]
    pub(crate) fn entry_bytes(&self) -> u8 {
        self.levels.first().map_or(8, |l| l.entry_bytes)
    }

    /// Identifies the table of `level` that translates `va`: the bits of `va` above the span of
    /// such a table.
    #[inline]
    pub(crate) fn position(&self, level: u8, va: u64) -> u64 {
        let l = &self.levels[level as usize];
        let span = u32::from(l.shift) + u32::from(l.index_bits);
        (va.checked_shr(span).unwrap_or(0) << 3) | u64::from(level)
    }

    /// Returns the first address of the table position made by [`Arch::position`].
    pub(crate) fn position_start(&self, position: u64) -> u64 {
        let l = &self.levels[(position & 7) as usize];
        (position >> 3).checked_shl(u32::from(l.shift) + u32::from(l.index_bits)).unwrap_or(0)
    }

    /// Returns whether the description can be walked: between one level and [`MAX_LEVELS`] that
    /// join without a gap, entries of 4 or 8 bytes, pages of 8 bytes or more, and tables as large
    /// as their index needs.
    pub(crate) fn is_usable(&self) -> bool {
        let fits = |l: &Level| {
            matches!(l.entry_bytes, 4 | 8)
                && l.entry_bytes == self.entry_bytes()
                && l.shift >= 3
                && (1..=20).contains(&l.index_bits)
                && u32::from(l.shift) + u32::from(l.index_bits) <= 64
                && u64::from(l.entry_bytes) << l.index_bits <= u64::from(l.table_bytes)
                && l.table_bytes <= MAX_TABLE_BYTES
        };
        let joined = |w: &[Level]| w[0].shift + w[0].index_bits == w[1].shift;
        (1..=MAX_LEVELS).contains(&self.levels.len())
            && (1..=64).contains(&self.va_bits)
            && self.levels.iter().all(fits)
            && self.levels.windows(2).all(joined)
    }

    /// Returns the stand-in for a format that does not exist; [`crate::Rule::BadArch`] reports it.
    pub(super) fn unusable(self) -> Self {
        Self { levels: Vec::new(), ..self }
    }
}
